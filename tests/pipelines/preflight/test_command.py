"""`tpu-pipelines preflight`, with the real compiler behind it."""

import json
import re
import subprocess
import sys
import time

import pytest

from benchmarks.preflight import MANIFEST_WITH_TEXT
from components.preflight import compiler
from pipelines.config import load
from pipelines.preflight import command, request
from tests.command_line import ROOT, call

CONFIG = "configs/mnist_sample.yaml"
# Compiles in a second.
SMALL = ["--set", "model.builder=tests.preflight.dense:build", "--set", "model.arguments={units: 64}"]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    return {"TPU_PIPELINES_CACHE": str(tmp_path_factory.mktemp("cache")), "COLUMNS": "200"}


def preflight(environment, *words, config=CONFIG):
    return call("preflight", config, *words, environment=environment)


@pytest.fixture(scope="module")
def report(environment):
    ran = preflight(environment, "--machine", "v5e-4", *SMALL, "--json")
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"✔ +[\d.]+ s  tracing the step of 4 replicas, 64 examples\n", ran.stderr)
    return json.loads(ran.stdout)


@pytest.mark.slow
def test_the_report(report):
    assert (report["machine"], report["verdict"], report["sentence"]) == ("v5e-4", "fits", "")
    assert report["compiler"] == "libtpu 0.0.10"
    assert report["train_examples"] == 4025  # as prepare's own manifest of the sample says
    assert report["parameters"] == 784 * 64 + 64 + 64 * 10 + 10
    assert report["estimate"]["steps"] == 4025 // 64 * 15
    hours = report["estimate"]["hours"]
    assert report["estimate"]["usd"] == pytest.approx(hours * 4 * 1.2)  # v5e's price in us-central1


@pytest.mark.slow
def test_the_same_question_is_answered_at_once_without_tensorflow(environment):
    words = ["-X", "importtime", "-m", "pipelines.cli", "preflight", CONFIG, "--machine", "v5e-4", *SMALL, "--json"]

    def ask():
        start = time.monotonic()
        command = [sys.executable, *words]
        ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        return ran, time.monotonic() - start

    (first, _), (second, seconds) = ask(), ask()
    assert seconds < 3
    assert second.stdout == first.stdout
    imported = set(re.findall(r"\| +([\w.]+)$", second.stderr, re.M))
    assert "pipelines.preflight.engine" in imported
    assert not imported & {"tensorflow", "jax", "kfp", "numpy"}


@pytest.mark.slow
def test_the_report_for_people(report, environment):
    ran = preflight(environment, "--machine", "v5e-4", *SMALL)
    assert ran.returncode == 0
    for part in (
        "mnist-sample on v5e-4, 64 examples a step: fits",
        "of 15.75 GiB: 100% free",
        "at the peak rate",
        "930 steps",
        "bounds by formula, not measurements",
    ):
        assert part in ran.stdout
    assert "padding" not in ran.stdout  # images have none


@pytest.mark.slow
def test_every_machine_in_one_table_the_cheapest_epoch_first(environment):
    ran = preflight(environment, "--all", *SMALL)
    assert ran.returncode == 0
    rows = re.findall(r"^ (v\d\w*-\d) +fits ", ran.stdout, re.M)
    assert sorted(rows) == ["v2-8", "v3-8", "v5e-1", "v5e-4", "v5e-8"]
    assert rows[0] == "v5e-1"  # one chip is enough for so small a model


@pytest.mark.slow
def test_a_machine_whose_replicas_cannot_share_the_batch_is_a_row(environment):
    ran = preflight(environment, "--all", *SMALL, "--set", "training.global_batch_size=100")
    assert ran.returncode == 0
    assert re.search(r"^ v3-8 +uneven batch", ran.stdout, re.M)
    assert re.search(r"^ v5e-4 +fits", ran.stdout, re.M)


def test_unverified_machines_are_compared_where_they_are_allowed():
    run = load(ROOT / CONFIG)
    assert [row.name for row in request.slices_for(run)] == ["v2-8", "v3-8", "v5e-1", "v5e-4", "v5e-8"]
    allowed = load(ROOT / CONFIG, ["machine.allow_unverified=true"])
    assert [row.name for row in request.slices_for(allowed)][-3:] == ["v6e-1", "v6e-4", "v6e-8"]


@pytest.mark.slow
def test_the_largest_batch_within_the_training_split(environment):
    ran = preflight(environment, "--machine", "v5e-4", *SMALL, "--find-batch-size", "--examples", "100")
    assert ran.returncode == 0
    assert "the largest global batch is 96 (limited by the size of the training split, not by memory)" in ran.stdout
    assert re.search(r"^ +1 +64 +fits ", ran.stdout, re.M)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "op"),
    [
        ("op_without_kernel", "ResizeBicubic"),
        ("dynamic_shape", "Where"),
        ("py_function", "EagerPyFunc"),
    ],
)
def test_what_no_tpu_runs_is_named_and_ends_with_3(environment, fault, op):
    words = ["--set", f"model.builder=benchmarks.faulty_models:{fault}", "--set", "model.arguments={}"]
    start = time.monotonic()
    ran = preflight(environment, "--machine", "v5e-4", *words)
    assert time.monotonic() - start < 30
    assert ran.returncode == 3
    assert "mnist-sample on v5e-4, 64 examples a step: does not compile" in ran.stdout
    assert f"The step can't run on a TPU: {op} (model/faulty/" in ran.stdout
    assert "Traceback" not in ran.stdout + ran.stderr
    assert preflight(environment, "--machine", "v5e-4", *words, "--json").returncode == 3


@pytest.mark.slow
def test_texts_in_the_batch_are_named_and_end_with_3(environment, tmp_path):
    (tmp_path / "manifest.json").write_text(json.dumps(MANIFEST_WITH_TEXT), encoding="utf-8")
    words = ["--set", "model.builder=benchmarks.faulty_models:string_feature", "--set", "model.arguments={}"]
    ran = preflight(environment, "--machine", "v5e-4", *words, "--dataset", tmp_path)
    assert ran.returncode == 3
    assert "the input 'text' holds texts, which no TPU holds" in ran.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            [],
            "machine.name is 'cpu-1', which the TPU's compiler does not compile for; name a slice: --machine",
        ),
        (["--machine", "v5e-5"], "Did you mean 'v5e-8'?"),
        (["--machine", "v6e-4"], "machine.allow_unverified"),
        (["--machine", "v5e-16"], "its 4 hosts"),
        (
            ["--machine", "v2-8", "--set", "training.global_batch_size=100"],
            "is 100, expected a multiple of the 8 replicas",
        ),
        (["--all", "--find-batch-size"], "--all compares machines"),
        (
            ["--machine", "v5e-4", "--set", "data.source=/nowhere.csv", "--set", "model.builder=mine:build"],
            "/nowhere.csv",
        ),
        pytest.param(
            *(["--machine", "v5e-4", "--set", "model.builder=nowhere:build"], "can't be imported"),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *(["--machine", "v5e-4", "--set", "model.arguments={filter: [4]}"], "it takes filters"),
            marks=pytest.mark.slow,
        ),
        (["--machine", "v5e-4", "--dataset", "docs"], "docs has no manifest.json"),
    ],
)
def test_the_users_fault_is_one_sentence_and_2(environment, words, sentence):
    ran = preflight(environment, *words)
    assert ran.returncode == 2, ran.stderr
    assert sentence in ran.stderr.splitlines()[-1]  # before it, the traceback of a builder's own fault


def test_without_the_compiler_one_sentence_says_how_to_get_it(environment, monkeypatch):
    found = compiler.importlib.util.find_spec
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: None if name == "libtpu" else found(name))
    ran = preflight(environment, "--machine", "v5e-4", "--fresh")
    assert ran.returncode == 2
    assert ran.stderr.strip() == (
        "The TPU's compiler is not installed (libtpu missing): pip install 'tpu-pipelines[preflight]', or in a "
        "checkout `make setup`."
    )


def test_an_interrupt_ends_with_130(environment, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "Preflight", interrupted)
    assert preflight(environment, "--machine", "v5e-4").returncode == 130
