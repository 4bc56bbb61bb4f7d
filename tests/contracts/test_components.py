"""What every component must satisfy, from its interface and from one run of each on tiny data."""

import ast
import builtins
import inspect
import json
import subprocess
import sys
import typing

import pytest
from docstring_parser import parse

from components.compare.component import compare
from components.evaluate.component import evaluate
from components.export.component import export
from components.fingerprint.component import fingerprint
from components.lower.component import lower
from components.notify.component import notify
from components.preflight.component import preflight
from components.prepare.component import prepare
from components.registration.component import registration
from components.train.component import train
from pipelines import machines
from pipelines.config import parameter_fields
from pipelines.preflight.request import slice_of
from pipelines.training import kfp_type

COMPONENTS = {
    component.name: component
    for component in (fingerprint, prepare, lower, preflight, train, evaluate, compare, export, registration, notify)
}

TRAIN = {
    "builder": "image_classifier",
    "arguments": {"filters": [4], "dense_units": [8]},
    "pretrained": "",
    "loop": "custom",
    "epochs": 1,
    "global_batch_size": 16,
    "optimizer": "adam",
    "learning_rate": 0.01,
    "warmup_fraction": 0.0,
    "decay": "constant",
    "weight_decay": 0.0,
    "clip_norm": 0.0,
    "precision": "float32",
    "steps_per_execution": 4,
    "class_weights": {},
    "checkpoint_every_steps": 0,
    "checkpoint_dir": "",
    "seed": 0,
    "device": "cpu",
    "replicas": 1,
    "tpu": "local",
}

# As it arrives through a pipeline: whole numbers are floats.
V5E_1 = slice_of(machines.find("v5e-1")).to_json() | {"replicas": 1.0, "chips": 1.0, "host_bounds": [1.0, 1.0, 1.0]}


@pytest.mark.parametrize("component", COMPONENTS.values(), ids=COMPONENTS)
def test_every_input_and_output_is_documented(component):
    documented = {item.arg_name for item in parse(component.python_func.__doc__).params}
    assert documented == set(inspect.signature(component.python_func).parameters)
    assert component.python_func.__doc__.splitlines()[0].endswith(".")


@pytest.mark.parametrize("component", COMPONENTS.values(), ids=COMPONENTS)
def test_inputs_that_are_settings_have_their_types(component):
    settings = parameter_fields()
    for name, annotation in typing.get_type_hints(component.python_func).items():
        if name in settings:
            assert annotation is kfp_type(settings[name].annotation), name


def test_every_setting_reaches_a_component():
    taken = {name for component in COMPONENTS.values() for name in component.component_spec.inputs or {}}
    assert set(parameter_fields()) <= taken


@pytest.mark.parametrize("component", COMPONENTS.values(), ids=COMPONENTS)
def test_the_body_needs_nothing_from_its_module(component):
    """KFP ships the function's source alone: it must run in an empty namespace."""
    source = component.component_spec.implementation.container.command[-1]
    (function,) = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
    own = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
    for node in ast.walk(function):
        if isinstance(node, ast.ImportFrom | ast.Import):
            own |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
    read = {node.id for statement in function.body for node in ast.walk(statement) if isinstance(node, ast.Name)}
    assert read - own - set(dir(builtins)) == set()


def execute(component, folder, inputs, artifacts):
    """Runs a component as a container does: KFP's executor in a fresh process, with the shipped source alone.

    Returns the exit status, the output and the folder of the component's outputs.
    """
    out = folder / component.name
    out.mkdir(parents=True)
    spec = component.component_spec
    outputs = spec.outputs.items()

    def artifact(name, uri, kind):
        title, version = kind.split("@")
        kind = {"schemaTitle": title, "schemaVersion": version}
        metadata = artifacts[name][1] if name in artifacts else {}
        return {"artifacts": [{"name": name, "uri": uri, "type": kind, "metadata": metadata}]}

    executor_input = {
        "inputs": {
            "parameterValues": inputs,
            "artifacts": {
                name: artifact(name, artifacts[name][0], item.type)
                for name, item in (spec.inputs or {}).items()
                if name in artifacts
            },
        },
        "outputs": {
            "artifacts": {
                name: artifact(name, str(out / name), item.type) for name, item in outputs if "@" in item.type
            },
            "parameters": {name: {"outputFile": str(out / name)} for name, item in outputs if "@" not in item.type},
            "outputFile": str(out / "executor_output.json"),
        },
    }
    module = out / "ephemeral_component.py"
    module.write_text(spec.implementation.container.command[-1])
    command = [sys.executable, "-m", "kfp.dsl.executor_main", "--component_module_path", str(module)]
    command += ["--function_to_execute", component.python_func.__name__, "--executor_input", json.dumps(executor_input)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    module.unlink()
    return result.returncode, result.stdout + result.stderr, out


def data_settings(source):
    defaults = {
        name: field.default for name, field in parameter_fields().items() if name in prepare.component_spec.inputs
    }
    changed = {"source": str(source), "pretrained": "sample://minilm", "max_length": 16, "source_fingerprint": ""}
    return {**defaults, **changed}


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """Runs all components up to export, one after the other, on 160 tiny texts."""
    folder = tmp_path_factory.mktemp("chain")
    rows = [
        f"{word} number {index},{label}" for index in range(80) for word, label in (("good", "pos"), ("bad", "neg"))
    ]
    source = folder / "reviews é 1.csv"
    source.write_text("text,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    outputs = {}

    def run(component, inputs, **artifacts):
        status, output, out = execute(component, folder, inputs, artifacts)
        assert status == 0, output
        outputs[component.name] = out
        return json.loads((out / "executor_output.json").read_text())

    settings = data_settings(source)
    seen = run(fingerprint, {name: settings[name] for name in ("source", "tfds_data_dir", "pretrained")})
    made = run(prepare, settings | {"source_fingerprint": seen["parameterValues"]["Output"]})
    dataset = made["artifacts"]["dataset"]["artifacts"][0]["uri"]
    tiny = TRAIN | {
        "builder": "tests.contracts.tiny_text:build",
        "arguments": {"units": 8.0},
        "pretrained": "sample://minilm",
    }
    run(lower, {name: tiny[name] for name in lower.component_spec.inputs if name in tiny}, dataset=(dataset, {}))
    run(preflight, {"machine": V5E_1}, program=(str(outputs["lower"] / "program"), {}))
    run(train, tiny, dataset=(dataset, {}))
    model = str(outputs["train"] / "model")
    made = run(evaluate, {"evaluation_batch_size": 8}, dataset=(dataset, {}), model=(model, {}))
    metrics = made["artifacts"]["metrics"]["artifacts"][0]
    verdict = run(compare, {"min_accuracy": 0.0}, metrics=(metrics["uri"], metrics["metadata"]))
    run(export, {"model_name": "reviews"}, dataset=(dataset, {}), model=(model, {}))
    return outputs, metrics, verdict


@pytest.mark.slow
def test_the_components_work_in_a_chain(chain):
    outputs, metrics, verdict = chain
    assert json.loads((outputs["fingerprint"] / "listing").read_text())["files"] == 1
    assert (outputs["prepare"] / "dataset" / "manifest.json").exists()
    assert (outputs["lower"] / "program" / "program.json").exists()
    assert "v5e-1, 16 examples a step: fits" in (outputs["preflight"] / "report").read_text()
    assert (outputs["train"] / "model" / "model.json").exists()
    assert 0 <= metrics["metadata"]["accuracy"] <= 1
    assert (outputs["evaluate"] / "report.html").read_text().startswith("<!doctype html>")
    assert verdict["parameterValues"]["Output"] == "PASSED"
    assert (outputs["export"] / "exported" / "contract.json").exists()
    for name, out in outputs.items():
        record = json.loads((out / "step.json").read_text())
        assert (record["step"], record["state"]) == (name, "SUCCEEDED")


BROKEN = {
    "lower": (
        {name: TRAIN[name] for name in lower.component_spec.inputs if name in TRAIN},
        {"dataset": ("/nowhere", {})},
        "/nowhere has no manifest.json",
    ),
    "preflight": ({"machine": V5E_1}, {"program": ("/nowhere", {})}, "has no program.json"),
    "fingerprint": (
        {"source": "/nowhere/*.csv", "tfds_data_dir": "", "pretrained": ""},
        {},
        "No file matches data.source '/nowhere/*.csv'",
    ),
    "prepare": (data_settings("/nowhere/*.csv"), {}, "/nowhere/*.csv"),
    "train": (TRAIN, {"dataset": ("/nowhere", {})}, "/nowhere has no manifest.json"),
    "evaluate": (
        {"evaluation_batch_size": 8},
        {"dataset": ("/nowhere", {}), "model": ("/nowhere", {})},
        "/nowhere has no",
    ),
    "compare": ({"min_accuracy": 0.5}, {"metrics": ("/nowhere", {})}, "accuracy"),
    "export": (
        {"model_name": "x"},
        {"dataset": ("/nowhere", {}), "model": ("/nowhere", {})},
        "/nowhere has no model.json",
    ),
    "registration": (
        {"model_name": "x", "serving_image": "x", "project": "x", "location": "us-central1"},
        {"exported": ("/nowhere", {}), "evaluated": ("/nowhere", {})},
        "/nowhere has no metrics of an evaluation",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_a_component_refuses_a_broken_input_with_one_sentence_and_leaves_nothing(name, tmp_path):
    inputs, artifacts, sentence = BROKEN[name]
    status, output, out = execute(COMPONENTS[name], tmp_path, inputs, artifacts)

    assert status == 1
    assert sentence in output
    assert "Traceback" not in output, "a user's fault is a sentence, not a traceback"
    record = json.loads((out / "step.json").read_text())
    assert (record["state"], record["fault"]) == ("FAILED", "user")
    assert sentence in record["error"]
    left = {path.name for path in out.rglob("*") if path.is_file()}
    assert left == {"step.json"}
