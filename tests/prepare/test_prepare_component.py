import ast
import builtins
import dis
import inspect
import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from kfp import dsl

from components.prepare import component
from components.prepare.settings import PrepareSettings
from pipelines.config import Data

Make = Callable[..., PrepareSettings]


def test_inputs_are_the_settings() -> None:
    names = [field.name for field in fields(PrepareSettings)]
    assert names == [*Data.model_fields, "pretrained"]
    inputs = inspect.signature(component.prepare.python_func).parameters
    assert list(inputs) == [*names, "source_fingerprint", "dataset"]
    assert {name: inputs[name].annotation for name in names} == {f.name: f.type for f in fields(PrepareSettings)}
    assert all(parameter.default is inspect.Parameter.empty for parameter in inputs.values())


def test_the_body_stands_alone() -> None:
    loaded = [i.argval for i in dis.get_instructions(component.prepare.python_func) if i.opname == "LOAD_GLOBAL"]
    assert all(hasattr(builtins, name) for name in loaded)
    tree = ast.parse(inspect.getsource(component))
    modules = [node.module for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert modules == ["kfp", "components.images"]


def test_it_reports_and_records(settings: Make, tmp_path: Path) -> None:
    asked = settings("sample://mnist", sample_fraction=0.1)
    dataset = dsl.Dataset(name="dataset", uri=str(tmp_path / "task" / "dataset"))
    inputs = {field.name: getattr(asked, field.name) for field in fields(asked)}
    component.prepare.python_func(**inputs, source_fingerprint="f1", dataset=dataset)
    manifest = json.loads((tmp_path / "task" / "dataset" / "manifest.json").read_text())
    record = json.loads((tmp_path / "task" / "step.json").read_text())
    assert record["state"] == "SUCCEEDED"
    assert record["examples"] == dataset.metadata["examples"]
    assert set(record["examples"]) == {"train", "validation", "test"}
    assert dataset.metadata["class_names"] == list("0123456789")
    assert dataset.metadata["fingerprint"] == manifest["fingerprint"]
    assert dataset.metadata["source_fingerprint"] == "f1"
    json.dumps(dataset.metadata)


def test_a_fault_of_the_user_is_one_sentence(
    settings: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = settings("sample://mnst")
    dataset = dsl.Dataset(name="dataset", uri=str(tmp_path / "task" / "dataset"))
    inputs = {field.name: getattr(asked, field.name) for field in fields(asked)}
    with pytest.raises(SystemExit):
        component.prepare.python_func(**inputs, source_fingerprint="f1", dataset=dataset)
    record = json.loads((tmp_path / "task" / "step.json").read_text())
    assert (record["state"], record["fault"]) == ("FAILED", "user")
    assert "Did you mean 'sample://mnist'?" in record["error"]
    assert "Traceback" not in capsys.readouterr().out
    assert not Path(dataset.uri).exists()
