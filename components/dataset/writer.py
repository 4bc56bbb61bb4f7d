"""Writes the TFRecord shards of one split, counted, sized and hashed as they are written."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from components import files
from components.dataset.manifest import Feature, Shard, Split

# A hundred megabytes reads in one go from object storage and still gives a large set enough files to shuffle.
SHARD_BYTES = 100 * 1000 * 1000

LABEL = "label"
# Raw text stands in the test split only: the report shows it, and the export check sends it to the served model.
RAW_TEXT = "text"


class SplitWriter:
    """Writes one split as numbered TFRecord shards of about `shard_bytes`.

    Images are stored as raw bytes, integers as int64 lists (a varint each, so that a mask costs a byte a token), in
    `tf.train.Example`, which any TensorFlow program reads.

    Example:
        with SplitWriter(folder, "train", features) as writer:
            writer.write({"image": image}, label=3)
        split = writer.split
    """

    def __init__(
        self, folder: str, name: str, features: Mapping[str, Feature], *, shard_bytes: int = SHARD_BYTES
    ) -> None:
        self._folder, self._name, self._features, self._limit = folder, name, dict(features), shard_bytes
        self._shards: list[Shard] = []
        self._writer: Any = None
        self._examples = self._bytes = 0

    @property
    def split(self) -> Split:
        """The shards written so far; complete once the writer is closed."""
        return Split(tuple(self._shards))

    def __enter__(self) -> "SplitWriter":
        return self

    def __exit__(self, *exception: object) -> None:
        self._close_shard()

    def write(self, features: Mapping[str, np.ndarray], label: int, *, text: str | None = None) -> None:
        """Appends one example.

        Args:
            features: Arrays of the dtypes and shapes that the data set declares.
            label: Index of the class.
            text: The raw text, where it is to be kept.
        """
        fields = {name: _encode(features[name], feature) for name, feature in self._features.items()}
        fields[LABEL] = _int64s([label])
        if text is not None:
            fields[RAW_TEXT] = _bytes(text.encode("utf-8"))
        example = tf.train.Example(features=tf.train.Features(feature=fields))
        record = example.SerializeToString(deterministic=True)  # equal examples, equal shards, equal checksums
        if self._writer is None:
            self._shard_name = f"{self._name}-{len(self._shards):05d}.tfrecord"
            self._writer = tf.io.TFRecordWriter(files.join(self._folder, self._shard_name))
        self._writer.write(record)
        self._examples += 1
        self._bytes += len(record)
        if self._bytes >= self._limit:
            self._close_shard()

    def _close_shard(self) -> None:
        if self._writer is None:
            return
        self._writer.close()
        uri = files.join(self._folder, self._shard_name)
        # Hashed from what the file system gives back, so that the manifest vouches for the file and not for our memory.
        self._shards.append(Shard(self._shard_name, self._examples, files.size(uri), file_sha256(uri)))
        self._writer, self._examples, self._bytes = None, 0, 0


def file_sha256(uri: str) -> str:
    """Returns the SHA-256 of a file, in hexadecimal, reading a megabyte at a time."""
    digest = hashlib.sha256()
    with files.open_bytes(uri) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _encode(value: np.ndarray, feature: Feature) -> Any:
    if value.shape != feature.shape or value.dtype != feature.dtype:
        raise ValueError(f"got {value.dtype}{value.shape}, the data set declares {feature.dtype}{feature.shape}")
    return _bytes(value.tobytes()) if feature.dtype == "uint8" else _int64s(value.ravel())


def _bytes(value: bytes) -> Any:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def _int64s(values: Any) -> Any:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
