"""Turns a source into the on-disk data set: read as a stream, split by content, written once, its manifest last."""

import contextlib
import hashlib
import importlib.metadata
from collections import Counter
from itertools import islice

from components import files
from components.dataset.manifest import SPLITS, Manifest, Split
from components.dataset.writer import SplitWriter
from components.errors import DataError
from components.prepare import rows
from components.prepare.encoders import Encoder, encoder_of
from components.prepare.settings import PrepareSettings
from components.prepare.source import Source
from components.prepare.sources import open_source, unreadable
from components.step import log

__all__ = ["PrepareSettings", "prepare"]

# Enough texts to keep the tokenizer busy, few enough to hold in memory.
BATCH_EXAMPLES = 1000
LIBRARIES = ("tpu-pipelines", "numpy", "transformers", "tokenizers", "tensorflow-datasets")


def prepare(settings: PrepareSettings, folder: str) -> Manifest:
    """Writes the data set of a source.

    Args:
        settings: What to read, how to split it, how to tokenize it.
        folder: Where to write: emptied first, and removed if anything fails.

    Returns:
        The manifest, as written to the folder.

    Raises:
        ConfigError: if a setting is impossible, or does not go with the source.
        DataError: if the source is broken, or too small for the splits asked for.
        ModelError: if the tokenizer can't be loaded or used.
    """
    try:
        return _prepare(settings, folder)
    except OSError as error:
        raise unreadable(settings, error) from error


def _prepare(settings: PrepareSettings, folder: str) -> Manifest:
    with files.new_directory(folder):
        source = open_source(settings)
        encoder = encoder_of(source, settings)
        class_names = rows.class_names(source, settings)
        written = _write(source, encoder, class_names, settings, folder)
        result = Manifest(
            task=source.task,
            features=encoder.features,
            class_names=class_names,
            splits=written.splits,
            source=settings.source,
            fingerprint=written.fingerprint,
            tokenizer=encoder.save(folder),
            dropped=written.dropped,
            versions=_versions(),
        )
        result.save(folder)
        log.info(f"{len(class_names)} classes; examples: {result.counts()}")
        return result


# Writing


class _Written:
    """What one pass over a source has written.

    Attributes:
        splits: Shards by split.
        dropped: Rows left out, by reason.
        fingerprint: SHA-256 of every kept content and label.
    """

    def __init__(self) -> None:
        self.splits: dict[str, Split] = {}
        self.dropped: dict[str, int] = {}
        self.fingerprint = ""


def _write(
    source: Source, encoder: Encoder, class_names: tuple[str, ...], settings: PrepareSettings, folder: str
) -> _Written:
    written, digest, dropped = _Written(), hashlib.sha256(), Counter[str]()
    class_counts: Counter[tuple[str, str]] = Counter()
    index = {name: position for position, name in enumerate(class_names)}
    writers: dict[str, SplitWriter] = {}
    with contextlib.ExitStack() as stack:
        kept = rows.kept(rows.usable(source, settings, dropped), settings, dropped)
        while batch := list(islice(kept, BATCH_EXAMPLES)):
            encoded = encoder([example for _, example in batch])
            for (split, example), features in zip(batch, encoded, strict=True):
                if example.label not in index:
                    raise DataError(
                        f"{example.where} has the label {example.label!r}, which the first pass did not see: "
                        f"{settings.source} changed meanwhile; run the step again."
                    )
                if split not in writers:
                    megabytes = settings.shard_megabytes * 1_000_000
                    writer = SplitWriter(folder, split, encoder.features, shard_bytes=megabytes)
                    writers[split] = stack.enter_context(writer)
                # The report shows test texts, and the export check sends them to the served model.
                text = example.content if split == "test" and isinstance(example.content, str) else None
                writers[split].write(features, index[example.label], text=text)
                _update(digest, rows.content_bytes(example), example.label.encode("utf-8"))
                class_counts[split, example.label] += 1
    written.splits = {name: writers[name].split for name in SPLITS if name in writers}
    written.dropped, written.fingerprint = dict(dropped), digest.hexdigest()
    rows.check_splits(class_counts, class_names, dropped, settings)
    return written


def _update(digest: "hashlib._Hash", *values: bytes) -> None:
    for value in values:  # with its length, so that no two series of values give the same bytes
        digest.update(len(value).to_bytes(8, "big") + value)


def _versions() -> dict[str, str]:
    import tensorflow as tf  # by its module: in the TPU image the distribution is tensorflow-tpu

    return {"tensorflow": tf.__version__} | {name: importlib.metadata.version(name) for name in LIBRARIES}
