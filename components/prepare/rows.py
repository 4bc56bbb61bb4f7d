"""The rows of a source: which are used, what their classes are, and which split each of them goes to."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from components.dataset.manifest import SPLITS
from components.errors import DataError
from components.prepare.settings import PrepareSettings
from components.prepare.source import Example, Source
from components.prepare.splits import SplitName, choose_split
from components.step import Progress, log

OUTSIDE_SAMPLE = "outside data.sample_fraction"


def usable(source: Source, settings: PrepareSettings, dropped: Counter[str], *, prefix: str = "") -> Iterator[Example]:
    """Yields the examples that have a text and a label, and counts the others.

    Args:
        source: The source, which is read once.
        settings: What to do with the others.
        dropped: Where to count them, by reason.
        prefix: Text in front of the progress.

    Raises:
        DataError: if a row can't be read, or has no text or label where such rows are errors.
    """
    progress = Progress("rows", source.total)
    for read, example in enumerate(source.examples(), start=1):
        progress(read, prefix=prefix)
        if reason := _what_is_missing(example, settings):
            dropped[reason] += 1
        else:
            yield example


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


def kept(
    examples: Iterable[Example], settings: PrepareSettings, dropped: Counter[str]
) -> Iterator[tuple[SplitName, Example]]:
    """Yields the examples of the sample with their splits, and counts the others.

    Args:
        examples: Usable examples.
        settings: The sample's fraction, and the splits'.
        dropped: Where to count those outside the sample, by reason; at the end it is logged with all that is in it.
    """
    for example in examples:
        if name := choose_split(content_bytes(example), example.split, settings):
            yield name, example
        else:
            dropped[OUTSIDE_SAMPLE] += 1
    if dropped:
        log.info(f"rows left out: {_reasons(dropped)}")


def content_bytes(example: Example) -> bytes:
    """Returns an example's text or pixels as the bytes that decide its split."""
    return example.content.encode("utf-8") if isinstance(example.content, str) else example.content.tobytes()


def class_names(source: Source, settings: PrepareSettings) -> tuple[str, ...]:
    """Returns the source's class names, or in a first pass collects them, sorted.

    Raises:
        DataError: if they are no classes to learn, or a row is broken.
    """
    dropped: Counter[str] = Counter()
    labels: set[str] = set()
    if source.class_names is None:
        labels = {example.label for example in usable(source, settings, dropped, prefix="collecting labels: ")}
    return checked_class_names(source, labels, settings, dropped)


def checked_class_names(
    source: Source, labels: Collection[str], settings: PrepareSettings, dropped: Counter[str]
) -> tuple[str, ...]:
    """Returns the source's class names, or where it has none, those seen on its rows, sorted.

    Args:
        source: The source.
        labels: Names seen on usable rows.
        settings: The settings, for the error.
        dropped: Rows that were not usable, by reason, for the error.

    Raises:
        DataError: if there are fewer than two, or one has no name.
    """
    names = tuple(sorted(labels)) if source.class_names is None else source.class_names
    if len(names) < 2:
        found = f"only the class {names[0]!r}" if names else "no class"
        raise DataError(
            f"{settings.source} has {found}, expected two or more (rows left out: {_reasons(dropped) or 'none'}); "
            "check data.source and data.label_column."
        )
    if any(not name.strip() for name in names):
        raise DataError(f"Class {[name.strip() for name in names].index('')} of {settings.source} has no name.")
    return names


def check_splits(
    class_counts: Counter[tuple[str, str]],
    class_names: tuple[str, ...],
    dropped: Counter[str],
    settings: PrepareSettings,
) -> None:
    """Refuses splits that nothing could be trained or tested on.

    Args:
        class_counts: Examples by split and class.
        class_names: The classes.
        dropped: Rows left out, by reason, for the error.
        settings: The settings, for the error.

    Raises:
        DataError: if a split has no examples, or the training split has none of a class.
    """
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


def _reasons(dropped: Counter[str]) -> str:
    return ", ".join(f"{rows:,} {reason}" for reason, rows in dropped.items())
