"""`containers/build.sh` and `containers/images.py`: what is pushed is named by its digest."""

import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from containers.images import IMAGES, references
from pipelines import images as image_files
from tests.standins import engine

ROOT = Path(__file__).parents[2]
DIGEST = "sha256:" + "7" * 64


@pytest.fixture
def tree(tmp_path):
    """A tree with the scripts, and images of one file in the place of the real ones."""
    folder = tmp_path / "tree"
    (folder / "containers").mkdir(parents=True)
    for name in ("build.sh", "images.py"):
        shutil.copy(ROOT / "containers" / name, folder / "containers")
    shutil.copy(ROOT / "pyproject.toml", folder)
    stages = (f"FROM scratch AS {name}\nCOPY pyproject.toml /{name}\n" for name in engine.IMAGES)
    (folder / "containers" / "Dockerfile").write_text("".join(stages))
    return folder


@pytest.fixture
def registry(tmp_path):
    """A real registry on this machine."""
    program = shutil.which("docker-registry", path=f"{os.environ['PATH']}:/usr/bin")
    if not engine.docker():
        pytest.skip(f"NOT RUN: {engine.NO_ENGINE}")
    if not program:
        pytest.skip("NOT RUN: no docker-registry here (Debian's package of that name)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = tmp_path / "registry.json"
    config.write_text(
        json.dumps(
            {
                "version": "0.1",
                "storage": {"filesystem": {"rootdirectory": str(tmp_path / "registry")}},
                "http": {"addr": f"127.0.0.1:{port}"},
            }
        )
    )
    process = subprocess.Popen([program, "serve", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@pytest.mark.slow
def test_what_is_pushed_is_named_by_the_registrys_own_digest(tree, registry):
    environment = {**os.environ, "DOCKER": engine.docker() or "", "REGISTRY": f"{registry}/project/repository"}
    for words, variables in (
        (["containers/build.sh"], {"TAG": "0a1b2c3"}),
        ([sys.executable, "containers/images.py"], {}),
    ):
        result = subprocess.run(
            words, cwd=tree, env=environment | variables, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stderr
    chosen = image_files.load(tree / "images.json")  # which takes digests only
    for name in engine.IMAGES:
        address, _, digest = getattr(chosen, name).partition("@")
        assert address == f"{registry}/project/repository/{name}"
        request = urllib.request.Request(
            f"http://{registry}/v2/project/repository/{name}/manifests/0a1b2c3",
            headers={"Accept": "application/vnd.docker.distribution.manifest.v2+json"},
        )
        with urllib.request.urlopen(request) as answer:
            assert answer.headers["Docker-Content-Digest"] == digest
        assert engine.run("pull", f"{address}@{digest}").returncode == 0
        engine.run("image", "rm", f"{address}@{digest}", f"{address}:0a1b2c3")


def test_a_cache_without_a_registry_is_refused(tree):
    words = [tree / "containers" / "build.sh", "cpu"]
    environment = {"PATH": os.environ["PATH"], "DOCKER": "false", "CACHE": "1"}
    result = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "CACHE keeps layers in a registry: give REGISTRY too" in result.stderr


@pytest.mark.parametrize(
    "text", [None, "", "host/p/r/cpu:latest", f"host/p/r/tpu@{DIGEST}", f"host/p/r/cpu@{DIGEST[:-1]}", "@\n"]
)
def test_an_image_without_its_own_digest_is_refused(text, tmp_path):
    for name in IMAGES:
        (tmp_path / f"{name}.ref").write_text(f"host/p/r/{name}@{DIGEST}\n")
    assert references(tmp_path) == {name: f"host/p/r/{name}@{DIGEST}" for name in engine.IMAGES}
    if text is None:
        (tmp_path / "cpu.ref").unlink()
    else:
        (tmp_path / "cpu.ref").write_text(text)
    with pytest.raises(ValueError, match=r"cpu\.ref says .*, expected HOST/PROJECT/REPOSITORY/cpu@sha256:DIGEST"):
        references(tmp_path)


def test_what_the_images_take_from_the_lock_is_the_locks(tmp_path):
    words = [
        ROOT / ".venv/bin/uv",
        "export",
        "--quiet",
        "--locked",
        "--only-group",
        "build",
        "--no-annotate",
        "--no-header",
    ]
    exported = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert (ROOT / "containers" / "tools.txt").read_text() == exported, "make lock"


@pytest.mark.parametrize("registry", ["", "host.pkg.dev/p/r"])
def test_make_images_pushes_where_a_registry_is_given(registry):
    words = ["make", "-n", "images", f"REGISTRY={registry}"]  # in the environment it would be taken as well
    planned = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "\ncontainers/build.sh cpu tpu serving\n" in planned
    assert ("containers/images.py" in planned) == bool(registry)
    assert ("the images stay on this machine" in planned) != bool(registry)
