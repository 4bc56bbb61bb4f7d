"""Says what a data set will hold without preparing it: nothing is written or downloaded, no whole text set tokenized.

`python -m components.prepare.describe` does so for another process: see components/worker.py.
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, takewhile
from typing import Any

from components import worker
from components.dataset import description
from components.dataset.description import PADDING_EXAMPLES, Description
from components.prepare import rows
from components.prepare.encoders import Encoder, encoder_of
from components.prepare.settings import PrepareSettings
from components.prepare.source import Example, Source
from components.prepare.sources import open_source, unreadable
from components.prepare.tfds_source import TfdsSource


def describe(settings: PrepareSettings) -> Description:
    """Returns what `prepare` would make of a source, by way of the same code.

    Samples and files are read once: the examples are counted, and every row is checked. Of a tfds data set no examples
    are read but those that tell a size or the padding, and its training examples are estimated from its split's; if it
    is not there, its features and classes are known still, since they stand in its code.

    Args:
        settings: As for `prepare`.

    Raises:
        ConfigError: if a setting is impossible, or does not go with the source.
        DataError: if the source is broken or too small for its splits, or its images' size can't be known.
        ModelError: if the tokenizer can't be loaded or used.
    """
    try:
        source = open_source(settings, download=False)
        encoder = encoder_of(source, settings)
        if isinstance(source, TfdsSource):
            return _from_tfds(source, encoder, settings)
        return _from_rows(source, encoder, settings)
    except OSError as error:
        raise unreadable(settings, error) from error


def _from_rows(source: Source, encoder: Encoder, settings: PrepareSettings) -> Description:
    """Counts a source's examples in one pass over its rows."""
    class_counts: Counter[tuple[str, str]] = Counter()
    dropped: Counter[str] = Counter()
    labels: set[str] = set()
    texts = _Sample(PADDING_EXAMPLES)
    usable = _noting_labels(rows.usable(source, settings, dropped), labels)
    for split, example in rows.kept(usable, settings, dropped):
        class_counts[split, example.label] += 1
        if source.task == "image_classification":
            encoder([example])
        elif split == "train":
            texts.add(example)
    unusable = Counter({reason: count for reason, count in dropped.items() if reason != rows.OUTSIDE_SAMPLE})
    class_names = rows.checked_class_names(source, labels, settings, unusable)
    rows.check_splits(class_counts, class_names, dropped, settings)
    train_examples = sum(examples for (split, _), examples in class_counts.items() if split == "train")
    padding = encoder.padding(texts.examples)
    return _description(source, encoder, class_names, settings, train_examples, padding=padding, exact=True)


def _noting_labels(examples: Iterable[Example], labels: set[str]) -> Iterator[Example]:
    """Yields the examples, and adds the label of each to `labels`."""
    for example in examples:
        labels.add(example.label)
        yield example


class _Sample:
    """Takes some of a stream's examples, each with the same chance (reservoir sampling, Vitter's algorithm R).

    Attributes:
        examples: Those taken so far.
    """

    def __init__(self, size: int) -> None:
        self.examples: list[Example] = []
        self._size, self._seen = size, 0
        self._random = random.Random(0)  # noqa: S311 - the same texts each time, and no secret

    def add(self, example: Example) -> None:
        """Takes the example, or not."""
        self._seen += 1
        if len(self.examples) < self._size:
            self.examples.append(example)
        elif (place := self._random.randrange(self._seen)) < self._size:
            self.examples[place] = example


def _from_tfds(source: TfdsSource, encoder: Encoder, settings: PrepareSettings) -> Description:
    """Estimates a tfds data set's training examples, if it is there."""
    class_names = rows.class_names(source, settings)
    train_examples = padding = None
    if source.available:
        train_examples = _estimated_train_examples(source.train_total, settings)
    if source.task == "image_classification":
        encoder([source.image_like()])
    elif source.available:
        usable = rows.usable(source, settings, Counter())
        train = takewhile(lambda example: example.split != "test", usable)  # tfds has shuffled the examples
        padding = encoder.padding(list(islice(train, PADDING_EXAMPLES)))
    return _description(source, encoder, class_names, settings, train_examples, padding=padding, exact=False)


def _estimated_train_examples(examples: int, settings: PrepareSettings) -> int:
    """Returns how many of `data.train_split`'s examples are to be expected in the training split: see splits.py."""
    share = settings.sample_fraction * (1 - settings.validation_fraction)
    if not settings.test_split:
        share *= 1 - settings.test_fraction
    return round(examples * share)


def _description(
    source: Source,
    encoder: Encoder,
    class_names: tuple[str, ...],
    settings: PrepareSettings,
    train_examples: int | None,
    *,
    padding: float | None,
    exact: bool,
) -> Description:
    return Description(
        task=source.task,
        features=encoder.features,
        class_names=class_names,
        train_examples=train_examples,
        exact=exact,
        padding=padding,
        tokenizer=settings.pretrained if source.task == "text_classification" else None,
    )


def do(job: worker.Job) -> Mapping[str, Any]:
    """Describes for another process: a prepared data set if the job names one, else what its settings would make."""
    if job["dataset"]:
        return description.of(job["dataset"]).to_json()
    return describe(worker.options_of(PrepareSettings, job)).to_json()


if __name__ == "__main__":
    worker.serve(do)
