"""The floors of the project: no import runs upward, and the command line starts without TensorFlow."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
STEPS = (
    "fingerprint",
    "prepare",
    "lower",
    "preflight",
    "train",
    "evaluate",
    "compare",
    "export",
    "registration",
    "notify",
)
# Types of the artifacts that Google's operators take, which stand in an interface's signature.
GOOGLES_TYPES = "google_cloud_pipeline_components.types"


def imports_of(path):
    """Yields the names of our modules that a file imports, wherever in the file it does."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            if node.module.split(".")[0] in ("components", "pipelines"):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules(folder):
    return sorted((ROOT / folder).rglob("*.py"))


def ours(path):
    return {name for name in imports_of(path) if name.split(".")[0] in ("components", "pipelines")}


def is_below(name, floors):
    return any(name == floor or name.startswith(floor + ".") for floor in floors)


@pytest.mark.parametrize("path", modules("components"), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_component_imports_only_its_own_floor_and_those_below(path):
    package = path.relative_to(ROOT / "components").parts[0]
    allowed = {
        f"components.{name}"
        for name in ("cloud", "dataset", "errors", "exported", "files", "images", "program", "step", "worker")
    }
    if package not in ("dataset",):
        allowed.add("components.models")
    if package in STEPS:
        allowed.add(f"components.{package}")
    if package == "lower":  # what it writes is train's step, and no copy of it
        allowed.add("components.train")
    if package == "serving":  # its image has little more than TensorFlow
        allowed = {f"components.{name}" for name in ("errors", "exported", "files", "serving", "step")}
    for name in ours(path):
        assert name == "components" or is_below(name, allowed), f"{path.name} imports {name}"


@pytest.mark.parametrize("path", modules("pipelines"), ids=lambda path: path.name)
def test_pipelines_see_components_by_their_interface_alone(path):
    allowed = {
        "components.cloud",
        "components.errors",
        "components.images",
        "components.preflight",  # the command and the pipeline's step are one thing; light until it compiles
        "components.program",
        "components.step",
        "components.worker",
        "pipelines",
        *(f"components.{step}.component" for step in STEPS),
    }
    for name in ours(path):
        assert is_below(name, allowed), f"{path.name} imports {name}"


@pytest.mark.parametrize("step", STEPS)
def test_an_interface_imports_kfp_alone_at_its_top(step):
    tree = ast.parse((ROOT / "components" / step / "component.py").read_text(encoding="utf-8"))
    names = {getattr(node, "module", None) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)}
    assert names == {"kfp", "components.images"} | ({GOOGLES_TYPES} if step == "registration" else set())


def imported_by(code, *heavy):
    """Returns which heavy packages a fresh process has loaded after running some code."""
    heavy = heavy or ("tensorflow", "transformers", "kfp", "tf_keras", "sklearn", "pydantic", "rich")
    code = f"import sys\n{code}\nprint(*[name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


def test_the_command_line_starts_light():
    assert imported_by("import pipelines.cli") == set()


def test_checking_a_config_needs_neither_tensorflow_nor_kfp():
    code = "from pathlib import Path\nfrom pipelines.config import load\nload(Path('configs/mnist_sample.yaml'))"
    assert imported_by(code) <= {"pydantic", "rich"}


def test_a_submission_is_checked_without_googles_sdk():
    code = "import pipelines.vertex.plan, pipelines.vertex.submission"
    assert imported_by(code, "google.cloud.aiplatform", "tensorflow") == set()


def test_light_steps_stay_light():
    steps = (
        "compare.compare",
        "preflight.preflight",
        "fingerprint.fingerprint",
        "notify.notify",
        "registration.registration",
    )
    code = f"import {', '.join(f'components.{step}' for step in steps)}"
    assert imported_by(code) == set()


def test_the_prediction_server_answers_before_it_loads_tensorflow():
    assert imported_by("import components.serving.__main__") == set()
