"""What the prepare step can be told: the settings under `data`, and the model whose tokenizer is used."""

from dataclasses import dataclass
from typing import Literal, get_args

from components.errors import ConfigError

EmptyRows = Literal["drop", "error"]


@dataclass(frozen=True, kw_only=True)
class PrepareSettings:
    """Settings of the prepare step. They have the names of `data` in a run's configuration, where their defaults stand.

    Attributes:
        source: `sample://NAME`, `tfds://NAME`, or a path or `gs://` URI (globs too) of .csv, .tsv or .jsonl files.
        text_column: Column or key of the text, in files.
        label_column: Column or key of the label, in files.
        encoding: Encoding of files; a byte-order mark is accepted.
        tfds_data_dir: Folder or `gs://` URI of prepared TensorFlow Datasets; empty for its default.
        tfds_feature: Text or image key of a tfds data set that has several, else empty.
        try_gcs: Let tfds read the data set from Google's public bucket.
        train_split: The tfds split, or slice of it, to train on.
        test_split: The tfds split to test on; empty to take it from the training split.
        sample_fraction: Share of the examples to keep, chosen by their content.
        validation_fraction: Share of the training examples held out for validation.
        test_fraction: Share held out for the test, where the source has no test split.
        split_seed: Seed of the hash that splits the examples by content.
        empty_rows: `drop` (and count) rows that have no text or no label, or stop with an `error`.
        max_length: Tokens of a text, padding and special tokens included.
        shard_megabytes: Size of a TFRecord shard, in 10^6 bytes.
        pretrained: Model whose tokenizer a text source needs: see `components.models.pretrained.locate`.
    """

    source: str
    text_column: str
    label_column: str
    encoding: str
    tfds_data_dir: str
    tfds_feature: str
    try_gcs: bool
    train_split: str
    test_split: str
    sample_fraction: float
    validation_fraction: float
    test_fraction: float
    split_seed: int
    empty_rows: str
    max_length: int
    shard_megabytes: int
    pretrained: str

    def __post_init__(self) -> None:
        """Checks the bounds again: a run that is cloned in the console has not passed the configuration's schema."""
        _expect("sample_fraction", self.sample_fraction, 0 < self.sample_fraction <= 1, "above 0, up to 1")
        for name in ("validation_fraction", "test_fraction"):
            _expect(name, getattr(self, name), 0 < getattr(self, name) < 1, "between 0 and 1")
        for name in ("max_length", "shard_megabytes"):
            _expect(name, getattr(self, name), getattr(self, name) >= 1, "at least 1")
        _expect("split_seed", self.split_seed, 0 <= self.split_seed < 2**31, "from 0 to 2^31 - 1")
        _expect("empty_rows", self.empty_rows, self.empty_rows in get_args(EmptyRows), "drop or error")
        for name in ("text_column", "label_column", "train_split"):
            _expect(name, getattr(self, name), bool(getattr(self, name).strip()), "a name")


def _expect(name: str, value: object, holds: bool, expected: str) -> None:
    if not holds:
        raise ConfigError(f"data.{name} is {value!r}, expected {expected}.")
