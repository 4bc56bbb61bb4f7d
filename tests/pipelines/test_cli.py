"""The command line: exit statuses and one sentence for the user's fault."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
COMMAND = str(Path(sys.executable).with_name("tpu-pipelines"))


def call(*words, cwd=ROOT):
    return subprocess.run([COMMAND, *words], capture_output=True, text=True, check=False, cwd=cwd)


def test_help_answers_in_under_a_third_of_a_second():
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        result = call("--help")
        seconds.append(time.perf_counter() - start)
        assert result.returncode == 0
    assert min(seconds) < 0.3, seconds
    for word in ("run", "check", "doctor", "machines"):
        assert f"\n  {word} " in result.stdout


def test_check_prints_the_plan():
    result = call("check", "configs/mnist.yaml")
    assert result.returncode == 0, result.stderr
    assert "training.global_batch_size" in result.stdout
    assert "v5e-4: 4 replicas of 50 examples a step, at least 4.80 USD an hour" in result.stdout


def test_machines_lists_slices_and_refusals():
    result = call("machines")
    assert result.returncode == 0
    for word in ("v2-8", "v3-8", "v5e-8", "refused", "cpu-8"):
        assert word in result.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["check", "configs/none.yaml"], "can't be read"),
        (["check", "configs/mnist_sample.yaml", "--set", "training.epoch=3"], "Did you mean 'epochs'?"),
        (["run"], "Give a run's YAML file, or --resume"),
        (["run", "configs/mnist_sample.yaml", "--resume", "runs/x"], "one of them"),
        (["run", "--resume", "docs"], "no config.yaml, so it is no run to resume"),
        (
            ["run", "--resume", "docs", "--set", "training.epochs=3"],
            "can't change a run that is resumed",
        ),
        (["run", "configs/mnist.yaml", "--set", "machine.tpu=my-tpu"], "a TPU on another host"),
        (["run", "configs/mnist_sample.yaml", "--images", "images.json"], "has no meaning without --runner docker"),
        (["run", "configs/mnist_sample.yaml", "--runs", "a [1] b"], "takes for a pattern"),
        (["run", "configs/mnist_sample.yaml", "--runs", "README.md"], "No run can be made in --runs README.md"),
        (["run", "configs/mnist.yaml"], "There is no TPU attached to this machine"),
        (["run", "configs/mnist_sample.yaml", "--set", "machine.name=gpu-1"], "TensorFlow sees 0 GPUs here"),
    ],
)
def test_the_users_fault_is_a_sentence_and_status_2(words, sentence, tmp_path):
    if words[0] == "run" and "--runs" not in words:
        words = [*words, "--runs", str(tmp_path)]
    result = call(*words)
    assert result.returncode == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_an_unknown_option_is_status_2():
    assert call("run", "--nonsense").returncode == 2


@pytest.mark.slow
def test_the_doctor_finds_this_environment_well():
    result = call("doctor", "--replicas", "2")
    assert result.returncode == 0, result.stdout
    assert "2 replicas, equal and right matrix products" in result.stdout
    assert "all is well" in result.stdout
