import itertools
import json
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.dataset import description as descriptions
from components.dataset import reader
from components.dataset.description import Description
from components.dataset.manifest import Feature, Manifest
from components.errors import ConfigError, DataError, ModelError, TpuPipelinesError
from components.prepare.describe import describe
from components.prepare.prepare import prepare
from components.prepare.settings import PrepareSettings
from components.worker import Worker

Make = Callable[..., PrepareSettings]
TOKENS = ("input_ids", "attention_mask", "token_type_ids")


def padding_of(folder: Path, data: Manifest) -> float:
    """The share of the prepared training split's tokens that are padding."""
    batches = reader.evaluation_data(str(folder), data, "train", batch_size=500).as_numpy_iterator()
    return 1 - float(np.mean(np.concatenate([features["attention_mask"] for features, _ in batches])))


def described_as_prepared(asked: PrepareSettings, folder: Path) -> tuple[Description, float | None]:
    """Describes a source, checks that against what prepare writes, and returns it with the true share of padding."""
    description, data = describe(asked), prepare(asked, str(folder))
    assert description.task == data.task
    assert description.features == data.features
    assert description.class_names == data.class_names
    assert description.num_classes == len(data.class_names)
    assert (description.train_examples, description.exact) == (data.splits["train"].examples, True)
    assert description.tokenizer == (data.tokenizer.name if data.tokenizer else None)
    return description, padding_of(folder, data) if data.tokenizer else None


def lines(number: int, *, words: int, seed: int = 0) -> list[tuple[str, str]]:
    """Different texts of 1 to `words` words, the short ones first, in two classes by turns."""
    chance = random.Random(seed)
    texts = [" ".join(chance.choices(("good", "bad", "se", "."), k=chance.randint(1, words))) for _ in range(number)]
    return [(text, "pos" if index % 2 else "neg") for index, text in enumerate(sorted(texts, key=len))]


def write_csv(path: Path, rows: list[tuple[str, str]]) -> str:
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows), encoding="utf-8")
    return str(path)


def test_images(settings: Make, tmp_path: Path) -> None:
    description, _ = described_as_prepared(settings("sample://mnist"), tmp_path / "out")
    assert description.features == {"image": Feature("uint8", (28, 28, 1))}
    assert description.class_names == tuple("0123456789")
    assert description.padding is None


@pytest.mark.slow
def test_texts(settings: Make, tmp_path: Path) -> None:
    asked = settings("sample://bbc_news", pretrained="sample://minilm", max_length=128)
    description, padding = described_as_prepared(asked, tmp_path / "out")
    assert description.features == dict.fromkeys(TOKENS, Feature("int32", (128,)))
    assert description.tokenizer == "sample://minilm"
    assert description.padding == pytest.approx(padding, abs=0.02)


def test_padding_is_that_of_the_whole_source_though_it_is_sorted_by_length(
    settings: Make, tiny_bert: str, tmp_path: Path
) -> None:
    path = write_csv(tmp_path / "data.csv", lines(6000, words=20))
    description, padding = described_as_prepared(settings(path, pretrained=tiny_bert, max_length=16), tmp_path / "out")
    assert description.padding == pytest.approx(padding, abs=0.02)
    assert padding == pytest.approx(0.35, abs=0.15)


def test_padding_by_hand(settings: Make, tiny_bert: str, tmp_path: Path) -> None:
    # [CLS] good bad se [SEP] is 5 of 8 tokens, and so are any other three words.
    texts = [" ".join(words) for words in itertools.product(("good", "bad", "se", "."), repeat=3)]
    path = write_csv(tmp_path / "data.csv", [(text, str(number % 2)) for number, text in enumerate(texts)])
    description = describe(settings(path, pretrained=tiny_bert, max_length=8))
    assert description.padding == 1 - 5 / 8


@pytest.mark.parametrize("changed", [{}, {"sample_fraction": 0.3}, {"validation_fraction": 0.4, "split_seed": 7}])
def test_rows_are_counted_as_prepare_keeps_them(
    settings: Make, tiny_bert: str, tmp_path: Path, changed: dict[str, Any]
) -> None:
    rows = [*lines(400, words=12), ("good", ""), ("", "pos"), (" ", " "), ("bad bad", "neg"), ("bad bad", "neg")]
    asked = settings(write_csv(tmp_path / "data.csv", rows), pretrained=tiny_bert, max_length=8, **changed)
    description, _ = described_as_prepared(asked, tmp_path / "out")
    assert description.class_names == ("neg", "pos")


def test_json_lines_in_several_files(settings: Make, tiny_bert: str, tmp_path: Path) -> None:
    for number in range(3):
        rows = lines(100, words=15, seed=number)
        content = "".join(json.dumps({"body": text, "kind": f"{label} é"}) + "\n" for text, label in rows)
        (tmp_path / f"{number}.jsonl").write_text(content + "\n", encoding="utf-8")
    columns = {"text_column": "body", "label_column": "kind"}
    asked = settings(str(tmp_path / "*.jsonl"), pretrained=tiny_bert, max_length=8, **columns)
    description, padding = described_as_prepared(asked, tmp_path / "out")
    assert description.class_names == ("neg é", "pos é")
    assert description.padding == pytest.approx(padding)  # fewer texts than the sample takes


def test_the_errors_are_prepares(settings: Make, tiny_bert: str, tmp_path: Path) -> None:
    def check(asked: PrepareSettings, kind: type[TpuPipelinesError]) -> None:
        with pytest.raises(kind) as expected:
            prepare(asked, str(tmp_path / "out"))
        with pytest.raises(kind) as found:
            describe(asked)
        assert (type(found.value), str(found.value)) == (type(expected.value), str(expected.value))

    def csv(rows: list[tuple[str, str]], **changed: object) -> PrepareSettings:
        return settings(write_csv(tmp_path / "data.csv", rows), **{"pretrained": tiny_bert, "max_length": 8} | changed)

    check(settings("sample://minst"), ConfigError)
    check(csv(lines(9, words=4), pretrained=""), ConfigError)
    check(csv(lines(9, words=4), max_length=17), ModelError)
    check(csv([("", "a"), ("good", "a"), ("bad", "")], sample_fraction=0.001), DataError)  # one class
    check(csv([*lines(50, words=4), ("", "a")], empty_rows="error"), DataError)
    check(csv([*lines(50, words=4), ("", "a")], sample_fraction=0.001), DataError)  # no training split
    check(csv([*lines(200, words=9), ("good,more", "neg")]), DataError)
    check(settings(str(tmp_path / "absent.csv"), pretrained=tiny_bert), DataError)
    check(settings("tfds://mnits"), ConfigError)


# TensorFlow Datasets


def store(folder: Path, name: str, content: Any, splits: dict[str, list[Any]]) -> str:
    """Prepares a tfds data set of two classes, which only its folder knows of; returns the folder."""
    tfds: Any = pytest.importorskip("tensorflow_datasets")
    tfds.dataset_builders.store_as_tfds_dataset(
        name=name,
        version="1.0.0",
        data_dir=folder,
        features=tfds.features.FeaturesDict(
            {"content": content, "label": tfds.features.ClassLabel(names=["even", "odd"])}
        ),
        split_datasets={
            split: [(number, {"content": value, "label": number % 2}) for number, value in enumerate(values)]
            for split, values in splits.items()
        },
    )
    return str(folder)


def test_a_tfds_set_that_is_there_is_estimated(settings: Make, tmp_path: Path) -> None:
    from tensorflow_datasets.public_api import features

    image = np.zeros((4, 5, 1), np.uint8)
    content = features.Image(shape=(4, 5, 1))
    folder = store(tmp_path / "tfds", "tiny_images", content, {"train": [image] * 200, "test": [image] * 10})

    def estimate(**changed: object) -> Description:
        return describe(settings("tfds://tiny_images", tfds_data_dir=folder, **changed))

    expected = Description(
        task="image_classification",
        features={"image": Feature("uint8", (4, 5, 1))},
        class_names=("even", "odd"),
        train_examples=150,
        exact=False,
        padding=None,
        tokenizer=None,
    )
    assert estimate(validation_fraction=0.25) == expected
    half = {"train_split": "train[:50%]", "test_split": ""}
    assert estimate(validation_fraction=0.25, test_fraction=0.2, **half).train_examples == 60
    assert estimate(validation_fraction=0.25, sample_fraction=0.1).train_examples == 15
    with pytest.raises(ConfigError, match=r"data.train_split is 'train\[5:3\]', which holds no examples"):
        estimate(train_split="train[5:3]")


def test_the_first_image_tells_a_size_that_is_not_declared(settings: Make, tmp_path: Path) -> None:
    from tensorflow_datasets.public_api import features

    image = np.zeros((6, 3, 3), np.uint8)
    folder = store(tmp_path / "tfds", "tiny_unsized", features.Image(), {"train": [image] * 20, "test": [image] * 2})
    description = describe(settings("tfds://tiny_unsized", tfds_data_dir=folder))
    assert description.features == {"image": Feature("uint8", (6, 3, 3))}


def test_texts_of_a_tfds_set_that_is_there(settings: Make, tiny_bert: str, tmp_path: Path) -> None:
    from tensorflow_datasets.public_api import features

    texts = {"train": ["good", "good bad bad", "se"] * 20, "test": ["good " * 20] * 20}
    folder = store(tmp_path / "tfds", "tiny_sentences", features.Text(), texts)
    asked = settings("tfds://tiny_sentences", tfds_data_dir=folder, pretrained=tiny_bert, max_length=10)
    description = describe(asked)
    assert description.features == dict.fromkeys(TOKENS, Feature("int32", (10,)))
    assert description.padding == pytest.approx(1 - (3 + 5 + 3) / 30)  # with [CLS] and [SEP]
    assert (description.tokenizer, description.exact) == (tiny_bert, False)


def test_tfds_sets_that_are_not_there_are_known_by_their_code(settings: Make, tiny_bert: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorflow_datasets")
    absent = {"tfds_data_dir": str(tmp_path / "tfds")}
    images = describe(settings("tfds://mnist", **absent))
    assert images.features == {"image": Feature("uint8", (28, 28, 1))}
    assert images.class_names == tuple("0123456789")
    assert (images.train_examples, images.exact, images.padding) == (None, False, None)
    texts = describe(settings("tfds://imdb_reviews", pretrained=tiny_bert, max_length=16, **absent))
    assert texts.features == dict.fromkeys(TOKENS, Feature("int32", (16,)))
    assert texts.class_names == ("neg", "pos")
    assert (texts.train_examples, texts.padding) == (None, None)
    with pytest.raises(DataError, match=r"images of shape \(None, None, 3\).*tfds build imagenette .*tfds_data_dir"):
        describe(settings("tfds://imagenette", **absent))
    assert not (tmp_path / "tfds").exists()


# For other processes


def test_a_description_goes_through_json(settings: Make) -> None:
    description = describe(settings("sample://mnist"))
    assert Description.from_json(json.loads(json.dumps(description.to_json()))) == description


def test_the_worker_answers_without_tensorflow(settings: Make, tmp_path: Path) -> None:
    asked = settings("sample://mnist")
    command = [sys.executable, "-X", "importtime", "-m", "components.prepare.describe"]
    job = json.dumps(asdict(asked) | {"dataset": "", "epochs": 3})
    ran = subprocess.run(command, input=job + "\n", capture_output=True, text=True, check=True)
    assert Description.from_json(json.loads(ran.stdout)["answer"]) == describe(asked)
    imported = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines() if line.startswith("import time:")}
    assert "numpy" in imported
    assert not imported & {"tensorflow", "tensorflow_datasets", "transformers"}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"source": "sample://minst"}, "Did you mean 'sample://mnist'"),
        ({"sample_fraction": 2}, "data.sample_fraction is 2, expected above 0, up to 1"),
    ],
)
def test_the_worker_hands_back_an_error(settings: Make, changed: dict[str, Any], expected: str) -> None:
    with Worker("components.prepare.describe") as worker, pytest.raises(ConfigError, match=expected):
        worker.do(asdict(settings("sample://mnist")) | {"dataset": ""} | changed)


def test_a_prepared_data_set_is_described_as_its_source_was(settings: Make, tmp_path: Path) -> None:
    source = tmp_path / "reviews.csv"
    source.write_text("text,label\n" + "".join(f"good {n} words,pos\nbad {n},neg\n" for n in range(40)), "utf-8")
    asked = settings(str(source), pretrained="sample://minilm", max_length=8)
    prepare(asked, str(tmp_path / "dataset"))
    found, expected = descriptions.of(str(tmp_path / "dataset")), describe(asked)
    assert found.padding == pytest.approx(expected.padding)
    assert replace(found, padding=None) == replace(expected, padding=None)
