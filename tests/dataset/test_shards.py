import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.dataset import reader
from components.dataset.manifest import Feature, Manifest
from components.dataset.writer import SplitWriter
from components.errors import DataError

IMAGES = {"image": Feature("uint8", (2, 3, 1))}
TOKENS = {"input_ids": Feature("int32", (4,)), "attention_mask": Feature("int32", (4,))}


def write(
    folder: str, features: dict[str, Feature], rows: list[Any], shard_bytes: int, split: str = "train"
) -> Manifest:
    with SplitWriter(folder, split, features, shard_bytes=shard_bytes) as writer:
        for columns, label, *text in rows:
            writer.write(columns, label, text=text[0] if text else None)
    return Manifest("image_classification", features, ("a", "b"), {split: writer.split}, "x.csv", "")


def images(number: int) -> list[Any]:
    return [({"image": np.full((2, 3, 1), index, np.uint8)}, index % 2) for index in range(number)]


@settings(deadline=None, max_examples=25)
@given(
    rows=st.lists(
        st.tuples(
            st.lists(st.integers(-(2**31), 2**31 - 1), min_size=8, max_size=8),
            st.integers(0, 1),
            st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
        ),
        min_size=1,
        max_size=12,
    ),
    shard_bytes=st.integers(1, 400),
    batch_size=st.integers(1, 5),
)
def test_tokens_come_back_as_they_were_written(rows: list[Any], shard_bytes: int, batch_size: int) -> None:
    examples = [
        ({"input_ids": np.array(ids[:4], np.int32), "attention_mask": np.array(ids[4:], np.int32)}, label, text)
        for ids, label, text in rows
    ]
    with tempfile.TemporaryDirectory() as folder:
        data = write(folder, TOKENS, examples, shard_bytes, "test")
        reader.check(data, folder, hashes=True)
        assert data.splits["test"].examples == len(rows)
        found = reader.evaluation_data(folder, data, "test", batch_size=batch_size, text=True).as_numpy_iterator()
        features, labels, texts = zip(*found, strict=True)
    for name in TOKENS:
        column = np.concatenate([batch[name] for batch in features])
        assert column.dtype == np.int32
        np.testing.assert_array_equal(column, [columns[name] for columns, *_ in examples])
    np.testing.assert_array_equal(np.concatenate(labels), [label for _, label, _ in examples])
    assert [text.decode() for text in np.concatenate(texts)] == [text for *_, text in examples]


def test_images_come_back_as_they_were_written(tmp_path: Path) -> None:
    data = write(str(tmp_path), IMAGES, images(10), shard_bytes=100)
    assert len(data.splits["train"].shards) > 1
    for shard in data.splits["train"].shards:
        content = (tmp_path / shard.name).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (shard.bytes, shard.sha256)
    (batch,) = reader.evaluation_data(str(tmp_path), data, "train", batch_size=10).as_numpy_iterator()
    np.testing.assert_array_equal(batch[0]["image"][:, 1, 2, 0], np.arange(10))
    np.testing.assert_array_equal(batch[1], np.arange(10) % 2)


def test_features_other_than_declared_are_refused(tmp_path: Path) -> None:
    for image in (np.zeros((2, 3, 1), np.float32), np.zeros((3, 2, 1), np.uint8)):
        with pytest.raises(ValueError, match=r"declares uint8"):
            write(str(tmp_path), IMAGES, [({"image": image}, 0)], shard_bytes=100)


def cut(content: bytes) -> bytes:
    return content[:-7]


def half(content: bytes) -> bytes:
    return content[: len(content) // 2]  # at the border of two records, which TensorFlow reads without a word


def flip(content: bytes) -> bytes:
    return content[:20] + bytes([content[20] ^ 1]) + content[21:]


@pytest.mark.parametrize(
    ("damage", "expected"),
    [(cut, "it was cut or changed"), (half, "it was cut or changed"), (flip, "right size but another checksum")],
)
def test_damaged_shards_are_refused_by_name(tmp_path: Path, damage: Callable[[bytes], bytes], expected: str) -> None:
    data = write(str(tmp_path), IMAGES, images(10), shard_bytes=10**6)
    shard = tmp_path / "train-00000.tfrecord"
    shard.write_bytes(damage(shard.read_bytes()))
    with pytest.raises(DataError, match=rf"train-00000.tfrecord.*{expected}"):
        reader.check(data, str(tmp_path), hashes=True)


def test_a_missing_shard_is_refused_by_name(tmp_path: Path) -> None:
    data = write(str(tmp_path), IMAGES, images(3), shard_bytes=10**6)
    (tmp_path / "train-00000.tfrecord").unlink()
    with pytest.raises(DataError, match=r"train-00000.tfrecord is missing, the manifest promises 3 examples"):
        reader.check(data, str(tmp_path))


def seen(data: Any) -> list[list[int]]:
    return [[int(image[0, 0, 0] * 255 + 0.5) for image in features["image"].numpy()] for features, *_ in data]


def test_training_order_depends_on_seed_and_epoch_alone(tmp_path: Path) -> None:
    data = write(str(tmp_path), IMAGES, images(50), shard_bytes=300)

    def steps(epochs: range, *, seed: int = 3, skip: int = 0, replicas: int = 1) -> list[list[int]]:
        batches = reader.training_data(
            str(tmp_path),
            data,
            replica_batch_size=8 // replicas,
            replicas=replicas,
            seed=seed,
            epochs=epochs,
            skip_steps=skip,
        )
        flat = [number for batch in seen(batches) for number in batch]
        return [flat[start : start + 8] for start in range(0, len(flat), 8)]

    two = steps(range(2))
    assert [len(step) for step in two] == [8] * 12  # six steps of eight an epoch, two examples left out
    for epoch in (two[:6], two[6:]):
        assert len({number for step in epoch for number in step}) == 48
    assert two == steps(range(2))
    assert two == steps(range(2), replicas=4)
    assert two[6:] == steps(range(1, 2))
    assert two[4:] == steps(range(2), skip=4)
    assert two[2:] == steps(range(2), skip=2, replicas=2)
    assert two[:6] != two[6:]
    assert two != steps(range(2), seed=4)


def test_class_weights_follow_the_labels(tmp_path: Path) -> None:
    data = write(str(tmp_path), IMAGES, images(8), shard_bytes=10**6)
    (element,) = reader.training_data(
        str(tmp_path), data, replica_batch_size=8, replicas=1, seed=0, epochs=range(1), class_weights=[1.0, 2.5]
    )
    np.testing.assert_array_equal(element[2], np.where(element[1] == 1, 2.5, 1.0))


def test_padding_weighs_nothing(tmp_path: Path) -> None:
    data = write(str(tmp_path), IMAGES, images(10), shard_bytes=10**6)
    # Ten examples in steps of two replicas with three each: two steps, two rows of padding.
    endless = reader.padded_data(str(tmp_path), data, "train", replica_batch_size=3, replicas=2)
    weights, numbers = [], []
    for features, _, weight in endless.take(8):
        weights += weight.numpy().tolist()
        numbers += seen([(features,)])[0]
    assert weights == ([1.0] * 10 + [0.0] * 2) * 2
    assert numbers[:10] == numbers[12:22] == list(range(10))
