import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.dataset import manifest
from components.dataset.manifest import Feature, Manifest, Shard, Split, Tokenizer
from components.errors import DataError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
COUNT = st.integers(0, 2**53)
SHARDS = st.builds(Shard, name=TEXT, examples=COUNT, bytes=COUNT, sha256=TEXT)
SPLITS = st.dictionaries(
    st.sampled_from(manifest.SPLITS), st.builds(Split, shards=st.lists(SHARDS, max_size=3).map(tuple))
)
FEATURES = st.builds(Feature, dtype=st.sampled_from(["uint8", "int32"]), shape=st.lists(COUNT, max_size=3).map(tuple))
MANIFESTS = st.builds(
    Manifest,
    task=st.sampled_from(["image_classification", "text_classification"]),
    features=st.dictionaries(TEXT, FEATURES, max_size=3),
    class_names=st.lists(TEXT, max_size=4).map(tuple),
    splits=SPLITS,
    source=TEXT,
    fingerprint=TEXT,
    tokenizer=st.none()
    | st.builds(Tokenizer, name=TEXT, vocabulary_sha256=TEXT, max_length=COUNT, lower_case=st.booleans()),
    dropped=st.dictionaries(TEXT, COUNT, max_size=3),
    versions=st.dictionaries(TEXT, TEXT, max_size=3),
    format_version=st.just(manifest.FORMAT_VERSION),
)


@given(MANIFESTS)
def test_a_manifest_comes_back_as_it_was_saved(saved: Manifest) -> None:
    with tempfile.TemporaryDirectory() as folder:
        saved.save(folder)
        assert manifest.load(folder) == saved


def test_incomplete_and_foreign_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no manifest.json, so it is no complete data set"):
        manifest.load(str(tmp_path))
    for content in ("", "[]", "{}", json.dumps({"format_version": 99}), json.dumps({"format_version": 1})):
        (tmp_path / "manifest.json").write_text(content)
        with pytest.raises(DataError, match=r"is not a manifest of format 1"):
            manifest.load(str(tmp_path))


def test_an_empty_split_is_refused_with_the_counts() -> None:
    shard = Shard("train-00000.tfrecord", 4000, 1, "")
    data = Manifest("image_classification", {}, ("a", "b"), {"train": Split((shard,)), "test": Split(())}, "x.csv", "")
    assert data.split("train").examples == 4000
    for name in ("test", "validation"):
        with pytest.raises(
            DataError, match=rf"x.csv has no examples in its {name} split \(it has train 4,000, test 0\)"
        ):
            data.split(name)
