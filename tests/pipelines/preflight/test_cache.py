"""What a report is kept by: all that decides it, and nothing else."""

import pytest

from components.preflight.slices import Slice
from pipelines import machines
from pipelines.config import parse
from pipelines.preflight import cache
from pipelines.preflight.cache import Cache, key
from pipelines.preflight.request import slice_of


def config(**changes):
    values = {
        "name": "mnist",
        "data": {"source": "sample://mnist"},
        "model": {"builder": "image_classifier", "arguments": {}},
        "training": {"epochs": 1, "global_batch_size": 64},
        "machine": {"name": "v5e-4"},
    }
    for path, value in changes.items():
        section, name = path.split("__")
        values.setdefault(section, {})[name] = value
    return parse(values, "test")


def slice_(name="v5e-4"):
    return slice_of(machines.find(name))


def test_the_same_run_has_the_same_key():
    assert key(config(), slice_(), "") == key(config(), slice_(), "")


@pytest.mark.parametrize(
    "changed",
    [
        {"training__global_batch_size": 128},
        {"training__precision": "bfloat16"},
        {"model__arguments": {"filters": [8]}},
        {"data__validation_fraction": 0.2},
    ],
)
def test_a_setting_that_decides_the_step_changes_it(changed):
    assert key(config(**changed), slice_(), "") != key(config(), slice_(), "")


def test_what_does_not_decide_the_step_does_not():
    assert key(config(vertex__project="my-project", evaluation__min_accuracy=0.5), slice_(), "") == key(
        config(), slice_(), ""
    )


def test_the_slice_its_rates_and_prices_do():
    one = slice_()
    for other in (
        slice_("v5e-8"),
        Slice(**{**vars(one), "usd_per_hour": 1.0}),
        Slice(**{**vars(one), "peak_flops": None}),
    ):
        assert key(config(), other, "") != key(config(), one, "")


def test_a_version_does(monkeypatch):
    before = key(config(), slice_(), "")
    monkeypatch.setattr(cache, "_version", lambda name: "0.0.11" if name == "libtpu" else "1")
    assert key(config(), slice_(), "") != before


def test_the_data_on_this_machine_does(tmp_path):
    source = tmp_path / "a b*.csv"
    file = tmp_path / "a b1.csv"
    file.write_text("text,label\ngood,pos\n", encoding="utf-8")
    run = config(data__source=str(source), model__builder="text_classifier", model__pretrained="sample://minilm")
    before = key(run, slice_(), "")
    file.write_text("text,label\ngood,pos\nbad,neg\n", encoding="utf-8")
    assert key(run, slice_(), "") != before


def test_a_users_builder_and_what_it_imports_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("import numpy\nfrom layers_of_mine import block\n", encoding="utf-8")
    (tmp_path / "layers_of_mine").mkdir()
    (tmp_path / "layers_of_mine" / "__init__.py").write_text("block = 1\n", encoding="utf-8")
    (tmp_path / "unrelated.py").write_text("x = 1\n", encoding="utf-8")
    run = config(model__builder="mine:build")
    keys = [key(run, slice_(), "")]
    (tmp_path / "unrelated.py").write_text("x = 2\n", encoding="utf-8")
    assert key(run, slice_(), "") == keys[0]
    for file in ("mine.py", "layers_of_mine/__init__.py"):
        with (tmp_path / file).open("a", encoding="utf-8") as opened:
            opened.write("# changed\n")
        keys.append(key(run, slice_(), ""))
    assert len(set(keys)) == 3


def test_a_builder_that_is_installed_does_and_the_libraries_it_imports_are_not_read(tmp_path, monkeypatch):
    (tmp_path / "their_models").mkdir()
    (tmp_path / "their_models" / "cnn.py").write_text("import tensorflow, json\n", encoding="utf-8")
    run = config(model__builder="their_models.cnn:build")
    missing = key(run, slice_(), "")
    monkeypatch.syspath_prepend(tmp_path)
    found = key(run, slice_(), "")
    (tmp_path / "their_models" / "other.py").write_text("x = 1\n", encoding="utf-8")
    assert len({missing, found, key(run, slice_(), "")}) == 3
    assert cache._builder_files(run.model.builder) == set((tmp_path / "their_models").iterdir())


def test_the_data_set_and_the_size_of_its_split_do(tmp_path):
    keys = [
        key(config(), slice_(), dataset, examples) for dataset in ("", "/nowhere", "gs://b/d") for examples in (None, 9)
    ]
    assert len(set(keys)) == 6


def test_a_report_is_kept_and_found_again(tmp_path):
    reports = Cache(tmp_path)
    assert reports.get("k") is None
    reports.put("k", {"verdict": "fits"})
    assert Cache(tmp_path).get("k") == {"verdict": "fits"}
    assert Cache(tmp_path, fresh=True).get("k") is None


def test_a_broken_file_is_no_report(tmp_path):
    (tmp_path / "preflight").mkdir()
    (tmp_path / "preflight" / "k.json").write_text('{"verdict":', encoding="utf-8")
    assert Cache(tmp_path).get("k") is None


def test_a_folder_that_cannot_be_written_is_no_fault(tmp_path):
    (tmp_path / "preflight").write_text("a file where the folder should be", encoding="utf-8")
    Cache(tmp_path).put("k", {"verdict": "fits"})
    assert [path.name for path in tmp_path.iterdir()] == ["preflight"]
