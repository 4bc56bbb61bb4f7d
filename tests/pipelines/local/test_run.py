"""The whole pipeline, run through KFP on a small part of the real digits."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tensorflow as tf

ROOT = Path(__file__).parents[3]
COMMAND = str(Path(sys.executable).with_name("tpu-pipelines"))
SMALL = [
    "data.sample_fraction=0.2",
    "data.validation_fraction=0.2",
    "data.test_fraction=0.2",
    "model.arguments={filters: [8, 8], pool: true, dense_units: [32]}",
    "training.epochs=3",
    "training.global_batch_size=32",
    "evaluation.min_accuracy=0.3",
    "machine.name=cpu-2",
]


def command(runs, *settings, config="configs/mnist_sample.yaml"):
    sets = [word for setting in (*SMALL, *settings) for word in ("--set", setting)]
    return [COMMAND, "run", str(ROOT / config), "--runs", str(runs), *sets]


def run(runs, *settings, **options):
    result = subprocess.run(command(runs, *settings, **options), capture_output=True, text=True, check=False)
    return result, json.loads((runs / "latest" / "summary.json").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_the_whole_pipeline_ends_in_an_exported_model(tmp_path):
    result, summary = run(tmp_path)

    assert result.returncode == 0, result.stdout + result.stderr
    assert summary["state"] == "SUCCEEDED"
    assert {step["state"] for step in summary["steps"].values()} == {"SUCCEEDED"}
    assert summary["metrics"]["accuracy"] >= 0.3
    assert set(summary["artifacts"]) == {"dataset", "model", "report", "export"}
    served = tf.saved_model.load(summary["artifacts"]["export"]).signatures["serving_default"]
    answer = served(image=tf.zeros([2, 28, 28, 1], tf.uint8))
    assert answer["probabilities"].shape == (2, 10)
    assert Path(summary["artifacts"]["report"]).read_text(encoding="utf-8").startswith("<!doctype html>")
    for word in ("test accuracy", "SavedModel", "report", "train         SUCCEEDED"):
        assert word in result.stdout
    notice = next((tmp_path / "latest" / "steps").glob("*/notify/notice"))
    assert json.loads(notice.read_text(encoding="utf-8"))["state"] == "SUCCEEDED"


@pytest.mark.slow
def test_a_model_below_the_floor_is_reported_and_not_exported(tmp_path):
    result, summary = run(tmp_path, "evaluation.min_accuracy=0.999", "training.loop=custom", "training.epochs=1")

    assert result.returncode == 3
    assert summary["state"] == "REJECTED"
    assert summary["steps"]["export"]["state"] == "SKIPPED"
    assert "export" not in summary["artifacts"]
    assert "report" in summary["artifacts"]


@pytest.mark.slow
def test_a_failing_step_is_named_with_its_error_and_its_log(tmp_path):
    result, summary = run(tmp_path, "model.arguments={filter: [8]}")

    assert result.returncode == 2
    assert summary["state"] == "FAILED"
    assert summary["failing_step"] == "train"
    assert "it takes filters" in summary["error"]
    assert {name: step["state"] for name, step in summary["steps"].items()} == {
        "fingerprint": "SUCCEEDED",
        "prepare": "SUCCEEDED",
        "train": "FAILED",
        "evaluate": "SKIPPED",
        "compare": "SKIPPED",
        "export": "SKIPPED",
        "notify": "SUCCEEDED",
    }
    assert "train failed: model.arguments don't fit image_classifier" in result.stdout
    assert "logs/train.log" in result.stdout
    notice = json.loads(next((tmp_path / "latest" / "steps").glob("*/notify/notice")).read_text(encoding="utf-8"))
    assert (notice["state"], notice["failing_step"]) == ("FAILED", "train")
    assert notice["error"] == summary["error"]


@pytest.mark.slow
def test_a_resumed_run_repairs_what_has_been_damaged(tmp_path):
    run(tmp_path)
    folder = (tmp_path / "latest").resolve()
    next(folder.glob("steps/*/prepare/dataset/test-*.tfrecord")).unlink()
    next(folder.glob("steps/*/export/exported/variables/*.index")).unlink()

    result = subprocess.run([COMMAND, "run", "--resume", str(folder)], capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stdout
    summary = json.loads((folder / "summary.json").read_text())
    assert {step["state"] for step in summary["steps"].values()} == {"SUCCEEDED"}
    served = tf.saved_model.load(summary["artifacts"]["export"]).signatures["serving_default"]
    assert served(image=tf.zeros([1, 28, 28, 1], tf.uint8))["probabilities"].shape == (1, 10)
    assert "resumed from" in (folder / "logs" / "train.log").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_its_children_and_resumes(stop, tmp_path):
    words = command(tmp_path, "training.epochs=40")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("latest/checkpoints/ckpt-*.index")):  # until training has saved something
            assert time.monotonic() < deadline, "no checkpoint in two minutes"
            time.sleep(0.1)
        second = subprocess.run(
            [COMMAND, "run", "--resume", str(tmp_path / "latest")], capture_output=True, text=True, check=False
        )
        assert second.returncode == 2
        assert "is being run by another process" in second.stderr
        process.send_signal(stop)
        output = process.communicate(timeout=60)[0]

    folder = (tmp_path / "latest").resolve()
    assert process.returncode == 130, output
    assert f"tpu-pipelines run --resume {folder}" in output
    assert json.loads((folder / "summary.json").read_text())["steps"]["train"]["state"] == "INTERRUPTED"
    alive = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(folder) in _read(path)]
    assert not alive, "a process of the run is still there"

    result = subprocess.run([COMMAND, "run", "--resume", str(folder)], capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stdout
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["state"] == "SUCCEEDED"
    assert summary["steps"]["prepare"]["state"] == "CACHED"
    assert "resumed from" in (folder / "logs" / "train.log").read_text(encoding="utf-8")


def _read(path):
    try:
        return path.read_text(errors="replace")
    except OSError:  # the process has ended meanwhile
        return ""
