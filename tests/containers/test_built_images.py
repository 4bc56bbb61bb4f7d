"""The images that `containers/build.sh` makes of the working tree, and what runs in them."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from tests.standins import engine

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent
BYTES = {"cpu": 2.6e9, "tpu": 2.6e9, "serving": 2.6e9}
EACH = pytest.mark.parametrize("name", BYTES)


def python(image, code):
    """Runs Python in an image, as its own user and with no network, and returns what it prints."""
    result = engine.run("run", "--rm", "--network", "none", image, "python", "-c", code)
    assert result.returncode == 0, result.stderr
    return result.stdout


def inspect(image):
    return json.loads(engine.run("image", "inspect", image).stdout)[0]


@EACH
def test_an_image_is_small_and_says_what_it_is(name, images):
    found = inspect(images[name])
    print(f"{name}: {found['Size'] / 1e9:.2f} GB")
    assert found["Size"] <= BYTES[name]
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    labels = found["Config"]["Labels"]
    assert labels["org.opencontainers.image.title"] == f"tpu-pipelines/{name}"
    assert labels["org.opencontainers.image.version"] == version
    words = ["git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude", "*"]
    revision = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    assert labels["org.opencontainers.image.revision"] == revision
    assert found["Config"]["User"] == "pipeline"
    assert not any(entry.startswith("TPU_SKIP_MDS_QUERY") for entry in found["Config"]["Env"])  # forbidden on a TPU


@EACH
def test_an_image_holds_no_compiler_cache_or_test_and_its_user_may_not_change_it(name, images):
    script = """
        id -u
        for tool in gcc cc g++ make strip uv hatchling; do command -v $tool; done
        find /opt /home \\( -name tests -o -name include -o -name .cache -o -name '*.whl' \\) -not -path '*/jaxlib/*'
        touch /opt/venv/x /opt/venv/lib/python3.11/site-packages/components/x
    """
    result = engine.run("run", "--rm", "--network", "none", images[name], "sh", "-c", script)
    assert result.stdout.split() == ["1000"]
    assert result.stderr.count("Permission denied") == 2, result.stderr


@EACH
def test_the_bill_of_materials_lists_what_the_lock_has(name, images, tmp_path):
    output = tmp_path / "bill.cdx.json"
    words = [ROOT / ".venv/bin/python", ROOT / "containers/sbom.py", images[name], "-o", output]
    subprocess.run(words, check=True)
    bill = json.loads(output.read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    found = {part["name"]: part["version"] for part in bill["components"] if part["purl"].startswith("pkg:pypi/")}
    locked = {(each["name"], each["version"]) for each in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}
    assert set(found.items()) - locked == set()
    builds = {"cpu": "tensorflow", "tpu": "tensorflow-tpu", "serving": "tensorflow"}
    assert {each for each in found if each in ("tensorflow", "tensorflow-tpu")} == {builds[name]}
    assert any(part["purl"].startswith("pkg:deb/debian/libc6@") for part in bill["components"])
    assert any(part["purl"].startswith("pkg:generic/python@3.11.") for part in bill["components"])
    assert ("kfp" in found) == (name != "serving")


def test_the_tpu_image_imports_tensorflow_in_seconds_without_a_tpu(images):
    code = """
import os, tensorflow, transformers
print(os.getuid(), tensorflow.__version__, transformers.is_tf_available(), os.path.realpath("/lib/libtpu.so"))
from transformers import TFBertForSequenceClassification
from kfp.dsl import executor_main
"""
    start = time.monotonic()
    user, version, seen, libtpu = python(images["tpu"], code).split()
    seconds = time.monotonic() - start
    print(f"{seconds:.1f} s")
    assert (user, version, seen) == ("1000", "2.19.1", "True")
    assert libtpu.endswith("site-packages/libtpu/libtpu.so")
    assert seconds < 20


def test_asking_for_a_tpu_that_is_not_there_is_one_sentence(images):
    pjrt = ("NEXT_PLUGGABLE_DEVICE_USE_C_API=true", "TF_PLUGGABLE_DEVICE_LIBRARY_PATH=/lib/libtpu.so")
    options = [word for variable in pjrt for word in ("--env", variable)]
    words = ("python", "-m", "components.train.strategy", "tpu", "4")
    result = engine.run("run", "--rm", "--network", "none", *options, images["tpu"], *words)
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert re.fullmatch(
        r"There is no TPU attached to this machine that TensorFlow 2\.19\.1 can start \(.+\); check the machine and "
        r"its image, or to rehearse on this machine's CPU, set machine\.name to cpu-8\.",
        last,
    )
    assert "Graph execution error" not in last


def test_the_training_step_compiles_for_v5e_by_the_compiler_in_the_tpu_image(images):
    def step(image, script, program=None):
        words = ["run", "--interactive", "--rm", "--network", "none", "--volume", f"{SCRIPTS}:/c:ro", image]
        words = [engine.docker(), *words, "python", f"/c/{script}"]
        result = subprocess.run(words, input=program, capture_output=True, check=False)
        assert result.returncode == 0, result.stderr.decode()
        return result.stdout

    program = step(images["cpu"], "lower_step.py")
    compiled = step(images["tpu"], "compile_step.py", program).decode()
    match = re.fullmatch(r"TPU v5 lite: (\d+) bytes of temporaries\n", compiled)
    assert match, compiled
    assert int(match[1]) > 0


@EACH
def test_a_change_of_the_code_rebuilds_the_last_layer_alone(name, images, tmp_path):
    left_out = shutil.ignore_patterns(".venv", ".git", "__pycache__", "runs", "build", ".*_cache", ".hypothesis")
    shutil.copytree(ROOT, tmp_path / "tree", ignore=left_out)
    with (tmp_path / "tree" / "components" / "errors.py").open("a") as file:
        file.write("# A change.\n")
    environment = {**os.environ, "DOCKER": engine.docker(), "TAG": "changed"}
    start = time.monotonic()
    subprocess.run([tmp_path / "tree" / engine.BUILD, name], env=environment, check=True)
    seconds = time.monotonic() - start
    print(f"{seconds:.1f} s")
    changed = f"tpu-pipelines/{name}:changed"
    before, after = (inspect(image)["RootFS"]["Layers"] for image in (images[name], changed))
    engine.run("image", "rm", changed)
    assert before[:-1] == after[:-1]
    assert before[-1] != after[-1]
    assert seconds <= 15


STEP = """
import sys
from kfp import local
from components.prepare.component import prepare
from pipelines.config import load, parameters
from pipelines.platforms import in_image
from pathlib import Path

root, image = sys.argv[1:]
local.init(local.DockerRunner(), pipeline_root=root)
settings = parameters(load(Path("configs/mnist_sample.yaml"), ["data.sample_fraction=0.1"]))
names = prepare.component_spec.inputs.keys() & settings.keys()
in_image(prepare, image)(**{name: settings[name] for name in names}, source_fingerprint="")
"""


def test_a_step_runs_as_the_images_own_user(images, tmp_path):
    """As on Vertex AI; `--runner docker` gives the steps the user who started the run."""
    root = tmp_path / "root"
    root.mkdir()
    root.chmod(0o777)
    words = [sys.executable, "-c", STEP, root, images["cpu"]]
    result = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    (manifest,) = root.glob("*/*/dataset/manifest.json")
    assert manifest.stat().st_uid == 1000
    assert json.loads(manifest.read_text())["task"] == "image_classification"
