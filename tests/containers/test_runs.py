"""`tpu-pipelines run --runner docker`: the pipeline in the images."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipelines.local.docker import LABEL
from tests.standins import engine

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sys.executable).with_name("tpu-pipelines")
SMALL = [
    word
    for setting in ("data.sample_fraction=0.2", "training.epochs=1", "evaluation.min_accuracy=0.1")
    for word in ("--set", setting)
]


def run(*words):
    return subprocess.run([PROGRAM, "run", *words], cwd=ROOT, capture_output=True, text=True, check=False)


def summary(runs):
    return json.loads((runs / "latest" / "summary.json").read_text())


def containers():
    """Returns the containers of any run."""
    return engine.run("ps", "--quiet", "--filter", f"label={LABEL}").stdout.split()


def test_mnist_keeps_its_accuracy_in_the_images(images, tmp_path):
    result = run("configs/mnist_sample.yaml", "--runner", "docker", "--runs", tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    found = summary(tmp_path)
    print(f"{found['seconds']} s")
    assert found["state"] == "SUCCEEDED"
    assert found["metrics"]["accuracy"] >= 0.97
    assert {step["state"] for step in found["steps"].values()} == {"SUCCEEDED"}
    for name, image in (("train", "tpu"), ("prepare", "cpu"), ("export", "cpu")):
        assert images[image] in (tmp_path / "latest" / "logs" / f"{name}.log").read_text()
    contract = Path(found["artifacts"]["export"]) / "contract.json"
    assert contract.stat().st_uid == os.getuid()
    assert containers() == []


def test_an_interrupted_run_leaves_no_container_and_goes_on(images, tmp_path):
    relative = os.path.relpath(tmp_path, ROOT)
    words = [PROGRAM, "run", "configs/mnist_sample.yaml", "--runner", "docker", "--runs", relative, *SMALL]
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("*/steps/*/train/step.json")):  # training has begun
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert len(containers()) == 1
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert containers() == []
    assert summary(tmp_path)["state"] == "INTERRUPTED"
    result = run("--resume", tmp_path / "latest")
    assert result.returncode == 0, result.stdout + result.stderr
    found = summary(tmp_path)
    assert (found["state"], found["steps"]["prepare"]["state"]) == ("SUCCEEDED", "CACHED")
    assert images["tpu"] in (tmp_path / "latest" / "logs" / "train.log").read_text()


def test_the_steps_see_the_files_that_the_settings_name_and_say_what_is_wrong_in_them(images, tmp_path):
    source = tmp_path / "data ä" / "texts.csv"
    source.parent.mkdir()
    source.write_text("text,label\n" + "a text,yes\n" * 5)
    settings = ("--set", f"data.source={source}", "--set", "name=mine")
    result = run("configs/bbc_news_sample.yaml", "--runner", "docker", "--runs", tmp_path / "runs", *settings)
    assert result.returncode == 2, result.stdout + result.stderr
    assert str(source) in summary(tmp_path / "runs")["error"]


def test_an_image_by_a_name_that_kfp_would_pull_is_refused(images, tmp_path):
    identity = engine.run("image", "inspect", "--format", "{{.Id}}", images["cpu"]).stdout.strip()
    (tmp_path / "images.json").write_text(json.dumps(dict.fromkeys(images, identity.removeprefix("sha256:")[:12])))
    result = run("configs/mnist_sample.yaml", "--runner", "docker", "--images", tmp_path / "images.json")
    assert result.returncode == 2
    assert f"is here by the names {images['cpu']}" in result.stderr


def test_an_image_that_is_not_here_is_one_sentence(tmp_path):
    if not engine.docker():
        pytest.skip(f"NOT RUN: {engine.NO_ENGINE}")
    (tmp_path / "images.json").write_text(json.dumps(dict.fromkeys(engine.IMAGES, "tpu-pipelines/none:none")))
    words = ("--runner", "docker", "--images", tmp_path / "images.json", "--runs", tmp_path / "runs")
    result = run("configs/mnist_sample.yaml", *words)
    assert result.returncode == 2
    assert result.stderr.startswith("The image tpu-pipelines/none:none is not here and can't be pulled (")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "runs").exists()
