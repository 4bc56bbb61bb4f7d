"""Reads a prepared data set: checked against its manifest, in an order that depends on seed and epoch alone."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from components import files
from components.dataset.manifest import Feature, Manifest, Split
from components.dataset.writer import LABEL, RAW_TEXT, file_sha256
from components.errors import DataError

# Bytes of examples held in memory to shuffle: a data set of up to this size is shuffled whole.
SHUFFLE_BYTES = 256 * 1000 * 1000
# Shards read at the same time while shuffling.
INTERLEAVED_SHARDS = 8


def check(manifest: Manifest, folder: str, *, hashes: bool = False) -> None:
    """Compares every shard on disk with the manifest.

    Args:
        manifest: The data set's manifest.
        folder: Where its shards are.
        hashes: Also read every byte and compare checksums (sizes are always compared).

    Raises:
        DataError: naming the first shard that is missing, or differs in size or checksum.
    """
    for split in manifest.splits.values():
        for shard in split.shards:
            uri = files.join(folder, shard.name)
            if not files.exists(uri):
                raise DataError(f"Shard {uri} is missing, the manifest promises {shard.examples:,} examples in it; "
                                "prepare the data again.")  # fmt: skip
            if (found := files.size(uri)) != shard.bytes:
                raise DataError(f"Shard {uri} has {found:,} bytes, the manifest says {shard.bytes:,}: it was cut or "
                                "changed; prepare the data again.")  # fmt: skip
            if hashes and file_sha256(uri) != shard.sha256:
                raise DataError(f"Shard {uri} has the right size but another checksum than the manifest: it was "
                                "changed; prepare the data again.")  # fmt: skip


def parser(features: Mapping[str, Feature], *, text: bool = False) -> Any:
    """Returns a function from a batch of serialized examples to `(features, labels)`, or with `text`, texts third.

    Features are as stored: see `to_model_input` for what a model takes. Labels are int32 of shape `[batch]`.
    """
    spec: dict[str, Any] = {LABEL: tf.io.FixedLenFeature([], tf.int64)}
    for name, feature in features.items():
        is_bytes = feature.dtype == "uint8"
        spec[name] = tf.io.FixedLenFeature([] if is_bytes else feature.shape, tf.string if is_bytes else tf.int64)
    if text:
        spec[RAW_TEXT] = tf.io.FixedLenFeature([], tf.string)

    def parse(records: Any) -> Any:
        fields = tf.io.parse_example(records, spec)
        parsed = {name: _decode(fields[name], feature) for name, feature in features.items()}
        labels = tf.cast(fields[LABEL], tf.int32)
        return (parsed, labels, fields[RAW_TEXT]) if text else (parsed, labels)

    return parse


def _decode(value: Any, feature: Feature) -> Any:
    if feature.dtype == "uint8":
        return tf.reshape(tf.io.decode_raw(value, tf.uint8), [-1, *feature.shape])
    return tf.cast(value, feature.dtype)


def to_model_input(features: Mapping[str, Any]) -> dict[str, Any]:
    """Turns stored features into what every model takes: images as float32 in [0, 1], everything else unchanged.

    Training, evaluation and the serving signature all call this, on the host: a TPU takes no uint8.
    """
    return {
        name: tf.cast(value, tf.float32) / 255.0 if value.dtype == tf.uint8 else value
        for name, value in features.items()
    }


def options() -> Any:
    """Returns the tf.data options of every data set here: deterministic order, and no autotuning thread."""
    result = tf.data.Options()
    result.deterministic = True
    result.autotune.enabled = False
    return result


def training_data(
    folder: str,
    manifest: Manifest,
    *,
    replica_batch_size: int,
    replicas: int,
    seed: int,
    epochs: range,
    skip_steps: int = 0,
    class_weights: Sequence[float] | None = None,
    pipelines: int = 1,
    index: int = 0,
) -> Any:
    """Returns the training split, one shuffled epoch after another, in batches of one static size.

    A strategy hands one batch to each replica in turn, so a step takes `replicas` batches; the same examples make up a
    step whatever the number of replicas. Their order depends on `seed` and the epoch's number alone, so a restart goes
    on exactly where it was. The examples that fill no whole step at an epoch's end are left out of that epoch.

    Args:
        folder: The data set's folder.
        manifest: Its manifest.
        replica_batch_size: Examples that one replica gets in a step.
        replicas: Replicas of the strategy.
        seed: Seed of the shuffle.
        epochs: The epochs to yield, by number.
        skip_steps: Steps of the first epoch to leave out: those a restarted run has seen.
        class_weights: A weight per class; then every element has float32 weights `[batch]` third.
        pipelines: Input pipelines among which the batches are dealt out in turn.
        index: Which of them this is.

    Returns:
        A `tf.data.Dataset` of `(features, labels)`, ready for the model.
    """
    split, parse = manifest.split("train"), parser(manifest.features)
    steps = split.examples // (replica_batch_size * replicas)
    weights = None if class_weights is None else tf.constant(class_weights, tf.float32)

    def batches(epoch: int) -> Any:
        data = _shuffled(folder, split, seed=seed, epoch=epoch)
        return data.batch(replica_batch_size, drop_remainder=True).take(steps * replicas)

    def prepare(records: Any) -> Any:
        features, labels = parse(records)
        example = (to_model_input(features), labels)
        return example if weights is None else (*example, tf.gather(weights, labels))

    data = batches(epochs[0]).skip(skip_steps * replicas)
    for epoch in epochs[1:]:
        data = data.concatenate(batches(epoch))
    data = data.shard(pipelines, index)
    return data.map(prepare, num_parallel_calls=2).prefetch(4).with_options(options())


def _shuffled(folder: str, split: Split, *, seed: int, epoch: int) -> Any:
    """Returns the serialized examples of a split, shuffled: the shards' order, then a buffer over several of them."""
    order = np.random.default_rng([seed, epoch]).permutation(len(split.shards))
    uris = [files.join(folder, split.shards[index].name) for index in order]
    data = tf.data.Dataset.from_tensor_slices(uris).interleave(
        tf.data.TFRecordDataset, cycle_length=INTERLEAVED_SHARDS, block_length=16
    )
    total_bytes = sum(shard.bytes for shard in split.shards)
    buffer = max(1, split.examples * min(SHUFFLE_BYTES, total_bytes) // total_bytes)
    return data.shuffle(buffer, seed=seed * 1_000_003 + epoch, reshuffle_each_iteration=False)


def padded_data(
    folder: str,
    manifest: Manifest,
    split: str,
    *,
    replica_batch_size: int,
    replicas: int,
    pipelines: int = 1,
    index: int = 0,
) -> Any:
    """Returns a split again and again, each time whole and padded to a whole number of steps.

    Args:
        folder: The data set's folder.
        manifest: Its manifest.
        split: `train`, `validation` or `test`.
        replica_batch_size: Examples that one replica gets in a step.
        replicas: Replicas of the strategy; a step takes that many batches.
        pipelines: Input pipelines among which the batches are dealt out in turn.
        index: Which of them this is.

    Returns:
        An endless `tf.data.Dataset` of `(features, labels, weights)`, ready for the model; weights are float32
        `[batch]`, 1 for an example and 0 for padding.
    """
    shards, examples = manifest.split(split).shards, manifest.split(split).examples
    records = tf.data.TFRecordDataset([files.join(folder, shard.name) for shard in shards])
    padding = records.repeat().take(-examples % (replica_batch_size * replicas))
    ones, zeros = (tf.data.Dataset.from_tensors(weight).repeat() for weight in (1.0, 0.0))
    weighted = tf.data.Dataset.zip((records, ones)).concatenate(tf.data.Dataset.zip((padding, zeros)))
    parse = parser(manifest.features)

    def prepare(batch: Any, weights: Any) -> Any:
        features, labels = parse(batch)
        return to_model_input(features), labels, weights

    data = weighted.batch(replica_batch_size, drop_remainder=True).shard(pipelines, index)
    return data.map(prepare, num_parallel_calls=2).repeat().prefetch(2).with_options(options())


def evaluation_data(
    folder: str, manifest: Manifest, split: str, *, batch_size: int, text: bool = False, limit: int | None = None
) -> Any:
    """Returns a split in its stored order, whole: the last batch may be smaller.

    Args:
        folder: The data set's folder.
        manifest: Its manifest.
        split: `train`, `validation` or `test`.
        batch_size: Examples in a batch.
        text: Also yield the raw texts (kept in the test split of a text data set).
        limit: Stop after that many examples.

    Returns:
        A `tf.data.Dataset` of `(features, labels)` or `(features, labels, texts)`, features as stored.
    """
    uris = [files.join(folder, shard.name) for shard in manifest.split(split).shards]
    data = tf.data.TFRecordDataset(uris)
    if limit is not None:
        data = data.take(limit)
    data = data.batch(batch_size).map(parser(manifest.features, text=text), num_parallel_calls=2)
    return data.prefetch(2).with_options(options())
