from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.errors import ConfigError, DataError
from components.prepare.settings import PrepareSettings
from components.prepare.sources import open_source

tfds: Any = pytest.importorskip("tensorflow_datasets")

Build = Callable[..., str]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Builds a tfds data set in a folder and returns the folder."""

    def make(name: str, features: dict[str, Any], splits: dict[str, list[dict[str, Any]]], keys: Any = None) -> str:
        class TinySet(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[misc]
            VERSION = tfds.core.Version("1.0.0")
            pkg_dir_path = tmp_path

            def _info(self) -> Any:
                return tfds.core.DatasetInfo(
                    builder=self, features=tfds.features.FeaturesDict(features), supervised_keys=keys
                )

            def _split_generators(self, _: Any) -> dict[str, Any]:
                return {split: self._generate_examples(rows) for split, rows in splits.items()}

            def _generate_examples(self, rows: Any) -> Iterator[Any]:
                yield from enumerate(rows)

        TinySet.name = name
        folder = str(tmp_path / "tfds")
        TinySet(data_dir=folder).download_and_prepare()
        return folder

    return make


def images(numbers: range) -> list[dict[str, Any]]:
    return [{"image": np.full((4, 5, 1), number, np.uint8), "label": number % 2} for number in numbers]


@pytest.fixture
def digits(build: Build) -> str:
    features = {"image": tfds.features.Image(shape=(4, 5, 1)), "label": tfds.features.ClassLabel(names=["even", "odd"])}
    return build("tiny_digits", features, {"train": images(range(50)), "test": images(range(50, 60))})


Make = Callable[..., PrepareSettings]


def test_images(digits: str, settings: Make) -> None:
    source = open_source(settings("tfds://tiny_digits", tfds_data_dir=digits))
    assert (source.task, source.class_names, source.total) == ("image_classification", ("even", "odd"), 60)
    for _ in range(2):  # as often as needed
        examples = list(source.examples())
        assert sorted(int(e.content[0, 0, 0]) for e in examples if e.split == "train") == list(range(50))
        assert sorted(int(e.content[0, 0, 0]) for e in examples if e.split == "test") == list(range(50, 60))
        assert all(e.label == ("odd" if e.content[3, 4, 0] % 2 else "even") for e in examples)
        assert examples[50].where == "tfds://tiny_digits test, example 1"


def test_slices_cover_what_they_say(digits: str, settings: Make) -> None:
    def rows(**splits: str) -> list[tuple[int, str | None]]:
        source = open_source(settings("tfds://tiny_digits", tfds_data_dir=digits, **splits))
        return sorted((int(example.content[0, 0, 0]), example.split) for example in source.examples())

    assert rows(train_split="train[:80%]+train[80%:]", test_split="") == [(n, None) for n in range(50)]
    train_and_test = rows(train_split="train[:40]", test_split="train[40:]")
    assert sorted(number for number, _ in train_and_test) == list(range(50))
    assert sum(split == "test" for _, split in train_and_test) == 10


@pytest.mark.parametrize(
    ("splits", "expected"),
    [
        ({"train_split": "train[:1%]"}, r"data.train_split is 'train\[:1%\]', which holds no examples"),
        ({"train_split": "train[5:3]"}, "which holds no examples"),
        ({"test_split": "test[50%]"}, r"data.test_split is 'test\[50%\]', which is no split or slice"),
        ({"test_split": "validation"}, r"it has train \(50 examples\), test \(10 examples\)"),
        ({"train_split": "tain"}, "Did you mean 'train'"),
        ({"test_split": "train[90%:]"}, "share examples"),
        ({"train_split": "all"}, "share examples"),
    ],
)
def test_bad_slices_are_refused_quoting_them(
    digits: str, settings: Make, splits: dict[str, str], expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected):
        open_source(settings("tfds://tiny_digits", tfds_data_dir=digits, **splits))


def test_texts_and_their_key(build: Build, settings: Make) -> None:
    features = {
        "title": tfds.features.Text(),
        "body": tfds.features.Text(),
        "label": tfds.features.ClassLabel(names=["neg", "pos"]),
    }
    rows = [{"title": "té", "body": "中文", "label": 1}, {"title": "u", "body": "c", "label": -1}]
    folder = build("tiny_texts", features, {"train": rows, "test": rows})
    with pytest.raises(ConfigError, match=r"has several \(body, title\); name one as data.tfds_feature"):
        open_source(settings("tfds://tiny_texts", tfds_data_dir=folder))
    with pytest.raises(ConfigError, match=r"data.tfds_feature is 'tilte'.*Did you mean 'title'"):
        open_source(settings("tfds://tiny_texts", tfds_data_dir=folder, tfds_feature="tilte"))
    source = open_source(settings("tfds://tiny_texts", tfds_data_dir=folder, tfds_feature="body", test_split=""))
    assert source.task == "text_classification"
    # A label of -1 is one that the data set's authors keep to themselves.
    assert sorted((str(e.content), e.label) for e in source.examples()) == [("c", ""), ("中文", "pos")]


def test_supervised_keys_choose_among_several(build: Build, settings: Make) -> None:
    label = tfds.features.ClassLabel(names=["a", "b"])
    features = {"one": tfds.features.Text(), "two": tfds.features.Text(), "coarse": label, "fine": label}
    rows = [{"one": "1", "two": "2", "coarse": 0, "fine": 1}]
    folder = build("tiny_keys", features, {"train": rows, "test": rows}, ("two", "fine"))
    example = next(open_source(settings("tfds://tiny_keys", tfds_data_dir=folder)).examples())
    assert (example.content, example.label) == ("2", "b")


def test_a_set_that_has_no_classes(build: Build, settings: Make) -> None:
    folder = build("tiny_plain", {"text": tfds.features.Text()}, {"train": [{"text": "a"}]})
    with pytest.raises(ConfigError, match=r"must have one ClassLabel among its features, and has none"):
        open_source(settings("tfds://tiny_plain", tfds_data_dir=folder))


def test_half_written_folders_are_never_taken_as_complete(digits: str, settings: Make, tmp_path: Path) -> None:
    def refused(expected: str) -> None:
        with pytest.raises(DataError, match=expected) as refusal:
            list(open_source(settings("tfds://tiny_digits", tfds_data_dir=digits)).examples())
        assert "data.tfds_data_dir" in str(refusal.value)

    version = Path(digits, "tiny_digits", "1.0.0")
    (shard,) = version.glob("*-train.tfrecord-*")
    content = shard.read_bytes()
    shard.write_bytes(content[:-7])
    refused("can't be read in train .*half-written or damaged")
    border = 0
    for _ in range(25):  # a TFRecord: length (8 bytes), its checksum (4), content, its checksum (4)
        border += 8 + 4 + int.from_bytes(content[border : border + 8], "little") + 4
    shard.write_bytes(content[:border])
    refused("expected to contain 50 elements but contained only 25")
    shard.unlink()
    refused("train.tfrecord-.* is missing")

    mnist = tmp_path / "half" / "mnist" / "3.0.1"
    mnist.mkdir(parents=True)
    with pytest.raises(DataError, match=r"mnist/3.0.1 has no dataset_info.json"):
        open_source(settings("tfds://mnist", tfds_data_dir=str(tmp_path / "half")))


def test_unknown_names_get_the_nearest(digits: str, settings: Make) -> None:
    with pytest.raises(ConfigError, match=r"Dataset mnits not found. Did you mean 'tfds://mnist'"):
        open_source(settings("tfds://mnits"))
    with pytest.raises(ConfigError, match=r"Did you mean 'tfds://tiny_digits'"):
        open_source(settings("tfds://tiny_digit", tfds_data_dir=digits))
    with pytest.raises(ConfigError, match=r"sst3"):
        open_source(settings("tfds://glue/sst3", tfds_data_dir=digits))
    with pytest.raises(ConfigError, match=r"set one of them, not both"):
        open_source(settings("tfds://mnist", tfds_data_dir=digits, try_gcs=True))


def test_a_failed_download_says_how_to_supply_the_data(settings: Make, tmp_path: Path) -> None:
    class Unreachable(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc]
        VERSION = tfds.core.Version("1.0.0")
        pkg_dir_path = tmp_path

        def _info(self) -> Any:
            features = {"text": tfds.features.Text(), "label": tfds.features.ClassLabel(num_classes=2)}
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, _: Any) -> Any:
            raise tfds.download.DownloadError("Failed to get url http://example.com. HTTP code: 403.")

        def _generate_examples(self) -> Any:
            raise NotImplementedError

    with pytest.raises(DataError, match=r"could not be downloaded \(DownloadError: .*403.*set data.tfds_data_dir"):
        open_source(settings("tfds://unreachable", tfds_data_dir=str(tmp_path / "data")))
