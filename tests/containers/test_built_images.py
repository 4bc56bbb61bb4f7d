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

from pipelines import machines
from pipelines.preflight.request import slice_of
from tests.standins import engine

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
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


def test_a_step_lowered_in_the_cpu_image_compiles_for_v5e_in_the_tpu_image(images, tmp_path):
    tmp_path.chmod(0o777)  # the images' user is another
    feature = {"image": {"dtype": "uint8", "shape": [28, 28, 1]}}
    description = {"task": "image_classification", "features": feature, "class_names": ["a", "b"]}
    description |= {"train_examples": 640, "exact": True, "padding": None, "tokenizer": None}
    settings = {
        "builder": "image_classifier",
        "epochs": 1,
        "global_batch_size": 256,
        "checkpoint_dir": "",
        "replicas": 4,
    }
    job = {"settings": settings, "description": description, "program": "/p/program"}
    words = ["run", "--interactive", "--rm", "--network", "none", "--volume", f"{tmp_path}:/p", images["cpu"]]
    words = [engine.docker(), *words, "python", "-m", "components.lower"]
    lowered = subprocess.run(words, input=json.dumps(job), capture_output=True, text=True, check=False)
    assert lowered.returncode == 0, lowered.stderr
    assert json.loads(lowered.stdout)["answer"]["replicas"] == 4

    slice_ = slice_of(machines.find("v5e-4")).to_json()
    code = f"from components.preflight.check import check; print(check('/p/program', {slice_!r}, '/p/report.md'))"
    words = ["run", "--rm", "--network", "none", "--volume", f"{tmp_path}:/p", images["tpu"], "python", "-c", code]
    compiled = engine.run(*words)
    assert compiled.returncode == 0, compiled.stderr
    assert "'verdict': 'fits'" in compiled.stdout
    assert "v5e-4, 256 examples a step: fits" in (tmp_path / "report.md").read_text()


def test_tensorflows_tpu_build_runs_every_op_that_the_cpu_builds_bridge_takes(images):
    """What `components.lower.faults` relies on: an op that passes here has a kernel there, for the same types."""
    code = """
import json, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
from tensorflow.python.framework import kernels

where, device = json.loads(sys.argv[1])
tf.function(lambda: tf.constant(0), jit_compile=True).experimental_get_compiler_ir()(stage="hlo", **where)
types = {}
for kernel in kernels.get_all_registered_kernels().kernel:
    if kernel.device_type == device:
        known = types.setdefault(kernel.op, {})
        for constraint in kernel.constraint:
            known.setdefault(constraint.name, []).extend(constraint.allowed_values.list.type)
print(json.dumps(types))
"""
    here = [sys.executable, "-c", code, json.dumps([{"device_name": "/device:CPU:0"}, "XLA_CPU_JIT"])]
    cpu = json.loads(subprocess.run(here, capture_output=True, text=True, check=True).stdout)
    there = ["run", "--rm", "--network", "none", images["tpu"], "python", "-c", code]
    ran = engine.run(*there, json.dumps([{"platform_name": "TPU"}, "XLA_TPU_JIT"]))
    assert ran.returncode == 0, ran.stderr
    tpu = json.loads(ran.stdout.splitlines()[-1])
    assert len(cpu) > 400
    assert cpu.keys() <= tpu.keys()
    complex128 = 18  # tensorflow/core/framework/types.proto
    for op, constraints in cpu.items():
        for name, types in constraints.items():
            assert set(types) - set(tpu[op].get(name, [])) <= {complex128}, (op, name)


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
from pipelines.platform import in_image
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
