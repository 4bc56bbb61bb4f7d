"""The scripts of cloudbuild.yaml, run as Cloud Build runs them: in its order, with its environment, in a fresh copy.

Where a step needs Google's cloud or a registry, its script runs with a stand-in for the one command that does, which
writes down what it was asked for.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.cloudbuild import rules

ROOT = Path(__file__).parents[2]
BUILD = yaml.safe_load((ROOT / "cloudbuild.yaml").read_text(encoding="utf-8"))
STEPS = {step["id"]: step for step in BUILD["steps"]}
DIGESTS = {
    image: f"registry.example/p/r/{image}@sha256:{digit * 64}"
    for image, digit in (("cpu", "1"), ("tpu", "2"), ("serving", "3"))
}
# Of a build that a trigger started; by hand, what a trigger gives is empty.
TRIGGERED = {
    **BUILD["substitutions"],
    "COMMIT_SHA": "0a1b2c3" + "d" * 33,
    "SHORT_SHA": "0a1b2c3",
    "TRIGGER_NAME": "tpu-pipelines-merge",
}


def run(name, folder, substitutions=TRIGGERED, **environment):
    """Runs a step's script in a folder and returns its status, output and errors."""
    step, script = STEPS[name], folder.parent / f"{name}.sh"
    script.write_text(step["script"], encoding="utf-8")
    script.chmod(0o755)
    given = dict(rules.expand(line, substitutions).split("=", 1) for line in step.get("env", []))
    # Cloud Build's own environment, and of this machine's what leads to its programs, engine and package index.
    kept = {key: os.environ[key] for key in ("PATH", "HOME", "DOCKER_HOST") if key in os.environ}
    # A script of Cloud Build has stdin at its end, and is run by its first line.
    return subprocess.run(
        [script],
        cwd=folder,
        env=kept | given | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def succeed(*words, **options):
    result = run(*words, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture
def workspace(tmp_path):
    """A copy of the repository with this machine's .venv, and references as the three pushes leave them."""
    folder = tmp_path / "workspace"
    left_out = (".git", ".venv", "runs", "build", ".hypothesis", ".pytest_cache", "__pycache__", "*.part*")
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*left_out), symlinks=True)
    (folder / ".venv").symlink_to(ROOT / ".venv")
    for name in ("pyproject.toml", "uv.lock"):
        os.utime(folder / name, (0, 0))  # older than .venv, which `make` would else set up anew
    (folder / "build").mkdir()
    for image, reference in DIGESTS.items():
        (folder / "build" / f"{image}.ref").write_text(f"{reference}\n")
    return folder


@pytest.fixture
def recorder(tmp_path):
    """Gives a function that puts stand-ins on the PATH; each call of one is a line of what is returned."""
    record, programs = tmp_path / "record", tmp_path / "bin"
    record.touch()
    programs.mkdir()

    def stand_in(name, program="exit 0", folder=programs):
        path = folder / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >>"{record}"\n{program}\n')
        path.chmod(0o755)

    stand_in.calls = lambda: record.read_text().splitlines()
    stand_in.path = f"{programs}:{os.environ['PATH']}"
    return stand_in


def test_the_builder_refuses_a_build_that_names_no_commit(workspace, recorder):
    recorder("docker")
    result = run("builder", workspace, TRIGGERED | {"SHORT_SHA": "", "COMMIT_SHA": ""}, PATH=recorder.path)
    assert result.returncode != 0
    assert "a build by hand needs SHORT_SHA and COMMIT_SHA, see docs/build.md" in result.stderr
    assert recorder.calls() == []
    succeed("builder", workspace, PATH=recorder.path)
    assert recorder.calls() == ["docker buildx create --name tpu-pipelines --bootstrap"]


def test_the_images_are_pulled_by_digest_and_the_workspace_is_looked_for(workspace, recorder):
    recorder("docker")
    succeed("pull", workspace, PATH=recorder.path)
    *pulls, look = recorder.calls()
    assert pulls == [f"docker pull --quiet {reference}" for reference in DIGESTS.values()]
    assert look.endswith(f"--volume {workspace}:/seen --entrypoint test {DIGESTS['cpu']} -f /seen/images.json")
    recorder("docker", '[ "$1" != run ]')
    result = run("pull", workspace, PATH=recorder.path)
    assert result.returncode == 1
    assert "is not the same folder on the engine's machine" in result.stderr


def test_every_image_is_scanned_and_one_finding_fails_the_build(workspace, recorder):
    recorder("trivy", 'case "$*" in */tpu@*) exit 1 ;; esac')
    result = run("scan", workspace, PATH=recorder.path)
    assert result.returncode == 1
    assert [call.split()[-1] for call in recorder.calls()] == list(DIGESTS.values())
    recorder("trivy")
    succeed("scan", workspace, PATH=recorder.path)


def test_the_inventories_are_stored_beside_the_images(workspace, recorder):
    recorder("docker", "cat >/dev/null")
    (workspace / "build" / "sbom").mkdir(exist_ok=True)
    (workspace / "images.json").touch()
    succeed("store-sbom", workspace, PATH=recorder.path)
    name = f"{TRIGGERED['_REGISTRY']}/sbom:0a1b2c3"
    assert recorder.calls() == [f"docker build --tag {name} --file - build/sbom", f"docker push --quiet {name}"]


def test_an_image_that_was_not_pushed_ends_the_build(workspace):
    (workspace / "build" / "tpu.ref").unlink()
    result = run("digests", workspace)
    assert result.returncode != 0
    assert "tpu.ref says ''" in result.stderr
    assert not (workspace / "images.json").exists()


@pytest.fixture
def bare(tmp_path, recorder):
    """An empty workspace whose `tpu-pipelines` writes down what it was called with."""
    folder = tmp_path / "bare"
    (folder / ".venv" / "bin").mkdir(parents=True)
    recorder("tpu-pipelines", folder=folder / ".venv" / "bin")
    return folder


def test_only_a_trigger_moves_the_tag_latest(bare, recorder):
    succeed("upload", bare)
    succeed("upload", bare, TRIGGERED | {"TRIGGER_NAME": ""})
    words = f"tpu-pipelines upload pipeline.yaml --repository {TRIGGERED['_KFP_REPOSITORY']} --tag 0a1b2c3"
    assert recorder.calls() == [f"{words} --tag latest", words]


def test_a_run_is_submitted_only_where_the_trigger_says_so(bare, recorder):
    for value in ("false", "", "True"):
        assert "Nothing is submitted" in succeed("submit", bare, TRIGGERED | {"_SUBMIT": value})
    assert recorder.calls() == []
    succeed("submit", bare, TRIGGERED | {"_SUBMIT": "true"})
    assert recorder.calls() == [
        "tpu-pipelines submit configs/vertex.example.yaml --pipeline pipeline.yaml --job-id build-0a1b2c3"
    ]


@pytest.fixture
def without_docker(recorder):
    """A PATH like that of the image with Python, which has no docker command: the engine's socket is all there is."""
    recorder("docker", "echo 'docker is not in this image' >&2; exit 127")
    return recorder.path


@pytest.mark.slow
def test_the_steps_that_need_no_cloud_run_in_the_files_order(images, workspace, without_docker):
    """In images that were built here, which have no digest: those that a push leaves are compiled in all the same."""
    path = workspace / "tests" / "test_small.py"
    few = {"PYTEST_ADDOPTS": str(path), "PYTHONPATH": str(workspace)}

    def tests(name):
        path.write_text("def test_small():\n    assert 1 + 1 == 2\n")
        assert "1 passed" in succeed(name, workspace, **few)

    def digests(name):
        succeed(name, workspace)
        assert json.loads((workspace / "images.json").read_text()) == DIGESTS

    def sbom(name):
        for image, reference in images.items():
            (workspace / "build" / f"{image}.ref").write_text(f"{reference}\n")
        succeed(name, workspace, PATH=without_docker)
        for image in images:
            bill = json.loads((workspace / "build" / "sbom" / f"{image}.cdx.json").read_text())
            assert bill["metadata"]["component"]["name"] == images[image]

    def compiled(name):
        succeed(name, workspace, PYTHONPATH=str(workspace))
        text = (workspace / "pipeline.yaml").read_text()
        assert yaml.safe_load(text)["pipelineInfo"]["name"] == "mnist"
        assert all(reference in text for reference in DIGESTS.values())

    def smoke(name):
        (workspace / "images.json").write_text(json.dumps(images))
        config = workspace / "configs" / "mnist_sample.yaml"
        settings = yaml.safe_load(config.read_text())
        settings["data"]["sample_fraction"] = 0.2
        settings["training"]["epochs"] = 1
        settings["evaluation"]["min_accuracy"] = 0.1
        config.write_text(yaml.safe_dump(settings))
        succeed(name, workspace, PATH=without_docker, PYTHONPATH=str(workspace))
        summary = json.loads((workspace / "runs" / "latest" / "summary.json").read_text())
        assert summary["state"] == "SUCCEEDED"

    steps = {"check": tests, "test": tests, "digests": digests, "sbom": sbom, "compile": compiled, "smoke": smoke}
    done = [name for name in STEPS if name in steps and not steps[name](name)]
    assert done == list(steps)


@pytest.mark.slow
def test_a_test_that_fails_ends_the_build(workspace):
    path = workspace / "tests" / "test_small.py"
    path.write_text("def test_small():\n    assert 1 + 1 == 3\n")
    result = run("check", workspace, PYTEST_ADDOPTS=str(path), PYTHONPATH=str(workspace))
    path.unlink()
    assert result.returncode != 0
    assert "1 failed" in result.stdout
