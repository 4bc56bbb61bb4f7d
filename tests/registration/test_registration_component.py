import json

import pytest
from google_cloud_pipeline_components.preview.model_evaluation import ModelImportEvaluationOp
from google_cloud_pipeline_components.types import artifact_types
from google_cloud_pipeline_components.v1.model import ModelUploadOp
from kfp import compiler, dsl

from components.evaluate.metrics import compute
from components.registration.component import registration
from tests.contracts.test_components import execute
from tests.registration.test_evaluation import LABELS, PROBABILITIES

INPUTS = {
    "model_name": "digits",
    "serving_image": "europe-docker.pkg.dev/p/r/serving@sha256:0",
    "project": "test-project",
    "location": "us-central1",
}


def run(folder):
    """Runs the shipped source in a fresh process."""
    metrics = folder / "metrics"
    metrics.write_text(json.dumps(compute(PROBABILITIES, LABELS, ["a", "b", "c"], loss=0.5).as_json()))
    return execute(registration, folder, INPUTS, {"exported": ("/the/export", {}), "evaluated": (str(metrics), {})})


@pytest.mark.slow
@pytest.mark.parametrize("registered", [False, True])
def test_the_shipped_source_prepares_a_registration(registry, tmp_path, registered):
    resource = registry.add("7", "digits", "2026-01-01T00:00:00Z") if registered else ""
    status, output, out = run(tmp_path)

    assert status == 0, output
    told = json.loads((out / "executor_output.json").read_text())
    artifacts = {name: made["artifacts"][0] for name, made in told["artifacts"].items()}
    assert told["parameterValues"]["Output"] == ("VERSION" if registered else "NEW")
    assert artifacts["candidate"]["uri"] == "/the/export"
    assert artifacts["candidate"]["metadata"] == {
        "containerSpec": {
            "imageUri": INPUTS["serving_image"],
            "predictRoute": "/predict",
            "healthRoute": "/health",
            "ports": [{"containerPort": 8080}],
        }
    }
    assert artifacts["parent"]["metadata"] == ({"resourceName": resource} if registered else {})
    if registered:
        assert artifacts["parent"]["uri"] == f"https://us-central1-aiplatform.googleapis.com/v1/{resource}"
    assert artifacts["evaluation"]["metadata"]["accuracy"] == 0.6
    assert len(json.loads((out / "evaluation").read_text())["slicedMetrics"]) == 3
    record = json.loads((out / "step.json").read_text())
    assert (record["state"], record["registration"]) == ("SUCCEEDED", told["parameterValues"]["Output"])
    assert record["parent"] == resource


@pytest.mark.slow
def test_a_registry_that_refuses_is_one_sentence(registry, tmp_path):
    registry.refusal = (403, "Permission denied.")
    status, output, out = run(tmp_path)
    assert status == 1
    assert "give the account the roles in docs/vertex.md" in output
    assert "Traceback" not in output
    assert [path.name for path in out.iterdir()] == ["step.json"]


@dsl.component
def exported_and_evaluated(exported: dsl.Output[dsl.Model], evaluated: dsl.Output[dsl.Metrics]):
    """Stands for the steps before."""


@dsl.component
def deploy(model: dsl.Input[artifact_types.VertexModel]):
    """Stands for a step after."""


def test_googles_operators_take_its_outputs(tmp_path):
    @dsl.pipeline(name="registers")
    def graph(verdict: str = "PASSED"):
        before = exported_and_evaluated()
        with dsl.If(verdict == "PASSED"):
            prepared = registration(
                exported=before.outputs["exported"], evaluated=before.outputs["evaluated"], **INPUTS
            ).set_caching_options(False)
            shared = {
                "display_name": INPUTS["model_name"],
                "project": INPUTS["project"],
                "location": INPUTS["location"],
                "unmanaged_container_model": prepared.outputs["candidate"],
            }
            with dsl.If(prepared.outputs["Output"] == "VERSION"):
                version = ModelUploadOp(parent_model=prepared.outputs["parent"], **shared)
            with dsl.Else():
                new = ModelUploadOp(**shared)
            model = dsl.OneOf(version.outputs["model"], new.outputs["model"])
            ModelImportEvaluationOp(model=model, classification_metrics=prepared.outputs["evaluation"])
            deploy(model=model)

    compiler.Compiler().compile(graph, str(tmp_path / "graph.yaml"))
    written = (tmp_path / "graph.yaml").read_text()
    assert "--parent_model_name" in written
    assert "--classification_metrics" in written
    for kind in ("UnmanagedContainerModel", "VertexModel", "ClassificationMetrics"):
        assert f"google.{kind}" in written
