"""`manifest.json`: what a prepared data set holds, and the promise that it is complete."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from components import files
from components.errors import DataError

MANIFEST = "manifest.json"
# Below a data set of text, and below a model trained on it.
VOCABULARY = "tokenizer/vocab.txt"
FORMAT_VERSION = 1
SPLITS = ("train", "validation", "test")

Task = Literal["image_classification", "text_classification"]


@dataclass(frozen=True)
class Feature:
    """A model input of one example.

    Attributes:
        dtype: TensorFlow's name of the stored type, `uint8` (images) or `int32` (token ids).
        shape: Shape of one example, without the batch dimension.
    """

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Shard:
    """One TFRecord file: its name below the data set's folder, its examples, bytes and SHA-256."""

    name: str
    examples: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Split:
    """The shards of one split, in the order they were written."""

    shards: tuple[Shard, ...]

    @property
    def examples(self) -> int:
        """Examples in all shards."""
        return sum(shard.examples for shard in self.shards)


@dataclass(frozen=True)
class Tokenizer:
    """The tokenizer that made the token ids, so that serving can repeat it.

    Attributes:
        name: Where it was loaded from.
        vocabulary_sha256: SHA-256 of `vocab.txt`, which lies in `tokenizer/` below the data set.
        max_length: Tokens of an example, padding and special tokens included.
        lower_case: Whether text is lower-cased and accents are stripped (BERT's uncased models).
    """

    name: str
    vocabulary_sha256: str
    max_length: int
    lower_case: bool


@dataclass(frozen=True)
class Manifest:
    """What `manifest.json` says of a data set.

    Attributes:
        task: What the labels mean.
        features: Model inputs by name. A label is an int32 scalar, the index of its name in `class_names`.
        class_names: Names in the order of the model's logits. Nothing else defines that order.
        splits: Shards by split name.
        source: The URI that the data came from.
        fingerprint: SHA-256 over every kept example and its label, in the order read: equal data, equal fingerprint.
        tokenizer: Set for text.
        dropped: Rows left out, by reason.
        versions: Versions of the libraries that wrote it.
    """

    task: Task
    features: dict[str, Feature]
    class_names: tuple[str, ...]
    splits: dict[str, Split]
    source: str
    fingerprint: str
    tokenizer: Tokenizer | None = None
    dropped: dict[str, int] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    format_version: int = FORMAT_VERSION

    @property
    def digest(self) -> str:
        """SHA-256 over what a step reads: every shard's, the features, class names and tokenizer.

        Unlike `fingerprint` it changes with the splits and with the tokens of an example.
        """
        read = {
            "shards": {name: [shard.sha256 for shard in split.shards] for name, split in self.splits.items()},
            "features": {name: asdict(feature) for name, feature in self.features.items()},
            "class_names": self.class_names,
            "tokenizer": asdict(self.tokenizer) if self.tokenizer else None,
        }
        return hashlib.sha256(json.dumps(read, sort_keys=True).encode("utf-8")).hexdigest()

    def split(self, name: str) -> Split:
        """Returns a split that holds examples.

        Raises:
            DataError: if there is no such split, or it is empty.
        """
        if name not in self.splits or not self.splits[name].examples:
            raise DataError(
                f"The data set from {self.source} has no examples in its {name} split (it has {self.counts()}); "
                f"give more data or a larger data.{name}_fraction."
            )
        return self.splits[name]

    def counts(self) -> str:
        """Returns the number of examples of each split, for people: `train 4,000, test 500`."""
        return ", ".join(f"{name} {split.examples:,}" for name, split in self.splits.items())

    def save(self, folder: str) -> None:
        """Writes `manifest.json` into the data set's folder: the last file, which makes it complete."""
        files.write_json(files.join(folder, MANIFEST), asdict(self))


def load(folder: str) -> Manifest:
    """Reads a data set's manifest.

    Raises:
        DataError: if there is none (the data set is incomplete), or it is not of this format.
    """
    uri = files.join(folder, MANIFEST)
    if not files.exists(uri):
        raise DataError(f"{folder} has no {MANIFEST}, so it is no complete data set; run the prepare step again.")
    try:
        return _parse(files.read_json(uri))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{uri} is not a manifest of format {FORMAT_VERSION} ({error}); prepare again.") from error


def _parse(value: dict[str, Any]) -> Manifest:
    if value["format_version"] != FORMAT_VERSION:
        raise ValueError(f"it says format {value['format_version']}")
    value["features"] = {name: Feature(f["dtype"], tuple(f["shape"])) for name, f in value["features"].items()}
    value["splits"] = {
        name: Split(tuple(Shard(**shard) for shard in split["shards"])) for name, split in value["splits"].items()
    }
    value["class_names"] = tuple(value["class_names"])
    if value["tokenizer"]:
        value["tokenizer"] = Tokenizer(**value["tokenizer"])
    return Manifest(**value)
