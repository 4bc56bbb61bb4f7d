"""What may be served: a complete export whose files agree with each other."""

import json
import shutil

import pytest

from components.errors import ConfigError, ConsistencyError, ModelError
from components.serving.__main__ import Settings
from components.serving.instances import parser
from components.serving.predictor import load


def edit(name, change):
    def edited(folder):
        path = folder / name
        path.write_text(json.dumps(change(json.loads(path.read_text()))))

    return edited


def both(folder):
    edit("labels.json", lambda names: names[::-1])(folder)
    edit("contract.json", lambda contract: contract | {"class_names": contract["class_names"][::-1]})(folder)


def input_of(dtype, shape):
    def change(contract):
        contract["signatures"]["serving_default"]["inputs"] = {"image": {"dtype": dtype, "shape": shape}}
        return contract

    return edit("contract.json", change)


@pytest.mark.parametrize(
    ("damage", "error", "sentence"),
    [
        (shutil.rmtree, ModelError, "contract.json is not there, so no export was finished in .* set AIP_STORAGE_URI"),
        (lambda f: (f / "contract.json").unlink(), ModelError, "contract.json is not there, so no export was finished"),
        (lambda f: (f / "labels.json").unlink(), ModelError, "labels.json is not there"),
        (lambda f: (f / "contract.json").write_text("{"), ModelError, "can't be read"),
        (lambda f: (f / "contract.json").write_text("[]"), ModelError, "is no contract.json of format 1"),
        (
            edit("contract.json", lambda c: c | {"format_version": 2}),
            ModelError,
            "is no contract.json of format 1 .* export with",
        ),
        (edit("contract.json", lambda c: c | {"signatures": {}}), ModelError, "with a serving_default"),
        (edit("labels.json", lambda names: names[::-1]), ConsistencyError, "names the classes .* labels.json beside"),
        (edit("labels.json", lambda names: names[:2]), ConsistencyError, "names the classes"),
        (both, ConsistencyError, "The SavedModel names its classes .*zebra.*, its contract.json"),
        (input_of("float32", [None, 4, 5, 3]), ConsistencyError, "its contract.json says .*float32"),
        (input_of("uint8", [None, 5, 4, 3]), ConsistencyError, "takes .*4, 5, 3.* its contract.json says .*5, 4, 3"),
        (lambda f: (f / "saved_model.pb").unlink(), ModelError, "The SavedModel in .* can't be loaded"),
        (lambda f: (f / "saved_model.pb").write_bytes(b"\x0a\xff"), ModelError, "can't be loaded"),
        (lambda f: shutil.rmtree(f / "variables"), ModelError, "can't be loaded"),
    ],
)
def test_what_is_incomplete_or_contradicts_itself_is_not_served(image_export, tmp_path, damage, error, sentence):
    folder = tmp_path / "exported"
    shutil.copytree(image_export, folder)
    damage(folder)
    with pytest.raises(error, match=sentence) as raised:
        load(str(folder))
    assert "\n" not in str(raised.value)


def test_settings_are_vertex_ais_variables():
    assert Settings.read({"AIP_STORAGE_URI": "gs://b/m"}) == Settings("gs://b/m", 8080, "/health", "/predict")
    given = {
        "AIP_STORAGE_URI": "/model",
        "AIP_HTTP_PORT": "8081",
        "AIP_HEALTH_ROUTE": "/v1/endpoints/1/deployedModels/2",
        "AIP_PREDICT_ROUTE": "/v1/endpoints/1/deployedModels/2:predict",
    }
    assert Settings.read(given) == Settings("/model", 8081, *list(given.values())[2:])


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("AIP_STORAGE_URI", " ", "AIP_STORAGE_URI is empty"),
        ("AIP_HTTP_PORT", "http", "AIP_HTTP_PORT is 'http', expected a port"),
        ("AIP_HTTP_PORT", "0", "expected a port from 1 to 65535"),
        ("AIP_HTTP_PORT", "65536", "expected a port from 1 to 65535"),
        ("AIP_HEALTH_ROUTE", "health", "AIP_HEALTH_ROUTE is 'health', expected a path such as /health"),
        ("AIP_PREDICT_ROUTE", "/{x}", "AIP_PREDICT_ROUTE is '/{x}'"),
        ("AIP_PREDICT_ROUTE", "/health", "are both '/health'"),
    ],
)
def test_impossible_settings_are_refused(name, value, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Settings.read({"AIP_STORAGE_URI": "/model", name: value})


@pytest.mark.parametrize(
    "inputs",
    [
        {},
        {"image": ("float32", [None, 4, 5, 3])},
        {"image": ("uint8", [None, None, 5, 3])},
        {"image": ("uint8", [4, 5, 3])},
        {"text": ("string", [None, 2])},
        {"text": ("string", [None]), "more": ("string", [None])},
        {"input_ids": ("int32", [None, 8])},
    ],
)
def test_a_model_of_other_inputs_has_no_reader(inputs):
    assert parser({name: {"dtype": dtype, "shape": shape} for name, (dtype, shape) in inputs.items()}) is None
