"""Turns a source into the on-disk data set: read as a stream, split by content, written once, its manifest last."""

import contextlib
import hashlib
import importlib.metadata
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Protocol

import numpy as np
import numpy.typing as npt

from components import files
from components.dataset import manifest
from components.dataset.manifest import SPLITS, Feature, Manifest, Split
from components.dataset.writer import SplitWriter
from components.errors import ConfigError, DataError
from components.prepare.settings import PrepareSettings
from components.prepare.source import Example, Source
from components.prepare.sources import open_source
from components.prepare.splits import SplitName, choose_split
from components.prepare.tokenizer import WordPieceTokenizer
from components.step import Progress, log

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
        raise DataError(
            f"{settings.source} can't be prepared: {error}; check that it can be read, and the disk."
        ) from error


def _prepare(settings: PrepareSettings, folder: str) -> Manifest:
    with files.new_directory(folder):
        source = open_source(settings)
        encoder = _encoder(source, settings)
        class_names = _class_names(source, settings)
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


# Classes


def _class_names(source: Source, settings: PrepareSettings) -> tuple[str, ...]:
    """Returns the source's class names, or in a first pass collects them, sorted."""
    dropped: Counter[str] = Counter()
    names = source.class_names
    if names is None:
        names = tuple(sorted(_labels(source, settings, dropped)))
    if len(names) < 2:
        found = f"only the class {names[0]!r}" if names else "no class"
        raise DataError(
            f"{settings.source} has {found}, expected two or more (rows left out: {_reasons(dropped) or 'none'}); "
            "check data.source and data.label_column."
        )
    if any(not name.strip() for name in names):
        raise DataError(f"Class {[name.strip() for name in names].index('')} of {settings.source} has no name.")
    return names


def _labels(source: Source, settings: PrepareSettings, dropped: Counter[str]) -> set[str]:
    progress = Progress("rows", source.total)
    labels = set()
    for read, example in enumerate(source.examples(), start=1):
        progress(read, prefix="collecting labels: ")
        if reason := _what_is_missing(example, settings):
            dropped[reason] += 1
        else:
            labels.add(example.label)
    return labels


def _reasons(dropped: Counter[str]) -> str:
    return ", ".join(f"{rows:,} {reason}" for reason, rows in dropped.items())


def _what_is_missing(example: Example, settings: PrepareSettings) -> str:
    """Returns why a row can't be used (`empty text`, `empty label`, or both), or an empty string.

    Raises:
        DataError: if it can't, and such rows are errors.
    """
    no_text = isinstance(example.content, str) and not example.content.strip()
    no_label = not example.label.strip()
    reason = " and ".join(part for part, missing in (("empty text", no_text), ("empty label", no_label)) if missing)
    if reason and settings.empty_rows == "error":
        raise DataError(f"{example.where} has an {reason}; fill it in, or set data.empty_rows to drop.")
    return reason


# Encoding


class _Encoder(Protocol):
    """Turns examples into the features of the data set."""

    @property
    def features(self) -> dict[str, Feature]: ...

    def __call__(self, examples: list[Example]) -> list[dict[str, npt.NDArray[np.generic]]]: ...

    def save(self, folder: str) -> manifest.Tokenizer | None: ...


class _TextEncoder:
    """Token ids, by the tokenizer that the model was pretrained with."""

    def __init__(self, tokenizer: WordPieceTokenizer) -> None:
        self._tokenizer, self.features = tokenizer, tokenizer.features

    def __call__(self, examples: list[Example]) -> list[dict[str, npt.NDArray[np.generic]]]:
        """Returns the token features of every text."""
        columns = self._tokenizer([str(example.content) for example in examples])
        return [{name: column[row] for name, column in columns.items()} for row in range(len(examples))]

    def save(self, folder: str) -> manifest.Tokenizer:
        """Writes the vocabulary."""
        return self._tokenizer.save(folder)


class _ImageEncoder:
    """Pixels as they are; the first image says the shape that all must have."""

    def __init__(self) -> None:
        self.features: dict[str, Feature] = {}

    def __call__(self, examples: list[Example]) -> list[dict[str, npt.NDArray[np.generic]]]:
        """Returns the pixels of every image."""
        return [{"image": self._checked(example)} for example in examples]

    def _checked(self, example: Example) -> npt.NDArray[np.generic]:
        image = np.asarray(example.content)
        if image.dtype != np.uint8 or image.ndim != 3:
            raise DataError(
                f"{example.where} is an image of {image.dtype} and shape {image.shape}, expected uint8 and "
                "[height, width, channels]."
            )
        expected = self.features.setdefault("image", Feature("uint8", image.shape)).shape
        if image.shape != expected:
            raise DataError(
                f"{example.where} is an image of shape {image.shape}, the ones before it have {expected}; make all "
                "images of the data set one size."
            )
        return image

    def save(self, folder: str) -> None:
        """Images need nothing beside them."""


def _encoder(source: Source, settings: PrepareSettings) -> _Encoder:
    if source.task == "image_classification":
        return _ImageEncoder()
    if not settings.pretrained:
        raise ConfigError(
            f"{settings.source} holds texts, so model.pretrained is needed for its tokenizer: a folder, "
            "a gs:// folder, sample://minilm or a hub name."
        )
    return _TextEncoder(WordPieceTokenizer(settings.pretrained, max_length=settings.max_length))


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
    source: Source, encoder: _Encoder, class_names: tuple[str, ...], settings: PrepareSettings, folder: str
) -> _Written:
    written, digest, dropped = _Written(), hashlib.sha256(), Counter[str]()
    class_counts: Counter[tuple[str, str]] = Counter()
    index = {name: position for position, name in enumerate(class_names)}
    writers: dict[str, SplitWriter] = {}
    with contextlib.ExitStack() as stack:
        kept = _kept(source, settings, dropped)
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
                _update(digest, _content_bytes(example), example.label.encode("utf-8"))
                class_counts[split, example.label] += 1
    written.splits = {name: writers[name].split for name in SPLITS if name in writers}
    written.dropped, written.fingerprint = dict(dropped), digest.hexdigest()
    _check_splits(class_counts, class_names, dropped, settings)
    return written


def _kept(source: Source, settings: PrepareSettings, dropped: Counter[str]) -> Iterator[tuple[SplitName, Example]]:
    """Yields the examples to write with their splits, and counts the others."""
    progress = Progress("rows", source.total)
    for read, example in enumerate(source.examples(), start=1):
        progress(read)
        if reason := _what_is_missing(example, settings):
            dropped[reason] += 1
        elif split := choose_split(_content_bytes(example), example.split, settings):
            yield split, example
        else:
            dropped["outside data.sample_fraction"] += 1
    if dropped:
        log.info(f"rows left out: {_reasons(dropped)}")


def _content_bytes(example: Example) -> bytes:
    return example.content.encode("utf-8") if isinstance(example.content, str) else example.content.tobytes()


def _update(digest: "hashlib._Hash", *values: bytes) -> None:
    for value in values:  # with its length, so that no two series of values give the same bytes
        digest.update(len(value).to_bytes(8, "big") + value)


def _check_splits(
    class_counts: Counter[tuple[str, str]],
    class_names: tuple[str, ...],
    dropped: Counter[str],
    settings: PrepareSettings,
) -> None:
    counts = dict.fromkeys(SPLITS, 0)
    for (split, _), examples in class_counts.items():
        counts[split] += examples
    found = ", ".join(f"{name} {examples:,}" for name, examples in counts.items())
    if dropped:
        found += f"; rows left out: {_reasons(dropped)}"
    advice = {
        "train": "lower data.validation_fraction and data.test_fraction",
        "validation": "raise data.validation_fraction",
        "test": "raise data.test_fraction (or choose another data.test_split of a tfds source)",
    }
    for name in SPLITS:
        if not counts[name]:
            raise DataError(
                f"The {name} split of {settings.source} has no examples ({found}); {advice[name]}, raise "
                "data.sample_fraction, or give more data."
            )
    if untrained := [name for name in class_names if not class_counts["train", name]]:
        names = ", ".join(map(repr, untrained[:10])) + (
            f" and {len(untrained) - 10} more" if len(untrained) > 10 else ""
        )
        raise DataError(
            f"The train split of {settings.source} has no example of {names}, so a model could never learn it "
            f"({found}); give more data, raise data.sample_fraction, or check data.label_column and data.train_split."
        )


def _versions() -> dict[str, str]:
    import tensorflow as tf  # by its module: in the TPU image the distribution is tensorflow-tpu

    return {"tensorflow": tf.__version__} | {name: importlib.metadata.version(name) for name in LIBRARIES}
