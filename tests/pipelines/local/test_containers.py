"""What `tpu-pipelines run --runner docker` refuses before it starts a container."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from components.errors import ConfigError
from pipelines.config import load
from pipelines.images import Images
from pipelines.local import docker as containers
from pipelines.local import folder as runs
from pipelines.local.folder import RunFolder

ROOT = Path(__file__).parents[3]
PROGRAM = Path(sys.executable).with_name("tpu-pipelines")


def run(*words, **environment):
    words = [PROGRAM, "run", "configs/mnist_sample.yaml", "--runner", "docker", *words]
    environment = {**os.environ, **environment}
    return subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "environment", "sentence"),
    [
        ((), {"DOCKER_HOST": "unix:///nowhere/docker.sock"}, "No Docker engine answers ("),
        ((), {"DOCKER_HOST": "nonsense://"}, "No Docker engine answers ("),
        ((), {"DOCKER_HOST": "tcp://x:y"}, "No Docker engine answers ("),
        (("--set", "machine.name=v5e-4"), {}, "machine.name is v5e-4, but containers on this machine train on its CPU"),
        (("--images", "none.json"), {}, "none.json is not there: make images writes it"),
        (("--images", "README.md"), {}, "README.md can't be read as JSON"),
        (("--images", "configs"), {}, "configs can't be read as JSON"),
    ],
)
def test_what_cant_run_in_containers_is_refused_in_one_sentence(words, environment, sentence, tmp_path):
    result = run(*words, "--runs", tmp_path / "runs", **environment)
    assert result.returncode == 2, result.stdout + result.stderr
    assert result.stderr.startswith(sentence), result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_without_the_package_docker_the_sentence_says_how_to_get_it(tmp_path):
    (tmp_path / "docker.py").write_text("raise ImportError('no docker here')")
    result = run("--runs", tmp_path / "runs", PYTHONPATH=str(tmp_path))
    assert result.returncode == 2
    assert "--runner docker needs the Python package docker; run make setup" in result.stderr


def test_the_steps_see_the_runs_folder_and_what_the_settings_name_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "a").mkdir(parents=True)
    settings = load(
        ROOT / "configs" / "bbc_news_sample.yaml",
        ["data.source=data/a/*.csv", "data.tfds_data_dir=tfds", "training.checkpoint_dir=gs://bucket/checkpoints"],
    )
    (tmp_path / "data" / "a" / "linked.csv").symlink_to("../../elsewhere.csv")
    (tmp_path / "elsewhere.csv").touch()
    (tmp_path / "run").mkdir()
    runner = containers.runner(RunFolder(tmp_path / "run"), settings)
    mounts = {mount["Source"]: mount["ReadOnly"] for mount in runner.container_run_args["mounts"]}
    assert mounts == {
        str(tmp_path / "run"): False,
        str(tmp_path / "data" / "a"): True,
        str(tmp_path / "elsewhere.csv"): True,
        str(tmp_path / "tfds"): False,
    }
    assert (tmp_path / "run" / "steps").is_dir(), "which the engine would make as root"
    assert all(mount["Source"] == mount["Target"] for mount in runner.container_run_args["mounts"])
    assert runner.container_run_args["user"] == f"{os.getuid()}:{os.getgid()}"
    assert runner.container_run_args["working_dir"] == str(tmp_path)


def test_a_folder_that_is_read_and_written_is_given_once(tmp_path):
    settings = load(
        ROOT / "configs" / "bbc_news_sample.yaml",
        [f"data.source={tmp_path}/*.csv", f"data.tfds_data_dir={tmp_path}", f"training.checkpoint_dir={tmp_path}"],
    )
    assert containers._seen(settings) == {str(tmp_path): False}


@pytest.mark.parametrize("source", ["/tmp/*.csv", "/*.csv", "/opt/*/x.csv"])
def test_a_folder_that_the_images_have_themselves_is_not_taken_from_them(source):
    settings = load(ROOT / "configs" / "bbc_news_sample.yaml", [f"data.source={source}"])
    with pytest.raises(ConfigError, match="whose images have their own; use a folder below it"):
        containers._seen(settings)


def test_a_place_that_cant_be_made_is_the_users_fault():
    settings = load(ROOT / "configs" / "mnist_sample.yaml", ["training.checkpoint_dir=/proc/none/checkpoints"])
    with pytest.raises(ConfigError, match=r"/proc/none.* can't be given to the steps: No such file"):
        containers._seen(settings)


def test_runs_in_a_path_with_a_colon_are_refused_in_containers_alone(tmp_path):
    settings = load(ROOT / "configs" / "mnist_sample.yaml")
    with pytest.raises(ConfigError, match="has a : in its path, which Docker takes for an end"):
        runs.create(tmp_path / "a:b", settings, Images())
    assert runs.create(tmp_path / "a:b", settings).images() is None
