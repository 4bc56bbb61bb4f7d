"""What becomes of an exported model on Vertex AI: a version in the Model Registry, and an endpoint where asked."""

import warnings
from typing import Any

from google_cloud_pipeline_components import _placeholders as placeholders
from google_cloud_pipeline_components.types.artifact_types import VertexEndpoint
from google_cloud_pipeline_components.v1.endpoint import EndpointCreateOp, ModelDeployOp
from google_cloud_pipeline_components.v1.model import ModelUploadOp
from kfp import dsl

from pipelines.config import Vertex

with warnings.catch_warnings():  # a component of the same package names no image
    warnings.simplefilter("ignore", FutureWarning)
    from google_cloud_pipeline_components.preview.model_evaluation import ModelImportEvaluationOp


def register(prepared: dsl.PipelineTask, model_name: Any, vertex: Vertex) -> None:
    """Adds the tasks that register a model with its evaluation, and deploy it where asked.

    Google's operators have no "new model or next version": which one it is, the registration step finds out when the
    pipeline runs, so that every run of a schedule adds a version.

    Args:
        prepared: The registration step's task.
        model_name: The model's name in the registry; a pipeline parameter.
        vertex: How the run uses Vertex AI.
    """
    location = placeholders.LOCATION_PLACEHOLDER
    upload = {
        "display_name": model_name,
        "location": location,
        "unmanaged_container_model": prepared.outputs["candidate"],
        "version_aliases": vertex.model_aliases,
        "labels": dict(vertex.labels),
    }
    with dsl.If(prepared.outputs["Output"] == "VERSION", name="known"):
        version = ModelUploadOp(**upload, parent_model=prepared.outputs["parent"]).set_caching_options(False)
    with dsl.Else(name="new"):
        first = ModelUploadOp(**upload).set_caching_options(False)
    registered = dsl.OneOf(version.outputs["model"], first.outputs["model"])
    ModelImportEvaluationOp(
        model=registered,
        classification_metrics=prepared.outputs["evaluation"],
        display_name=model_name,
    ).set_caching_options(False)
    if vertex.deploy:
        ModelDeployOp(
            model=registered,
            endpoint=_endpoint(model_name, vertex),
            traffic_split={"0": "100"},
            dedicated_resources_machine_type=vertex.serving_machine,
            dedicated_resources_min_replica_count=1,
            dedicated_resources_max_replica_count=1,
            service_account=vertex.service_account,
        ).set_caching_options(False)


def _endpoint(model_name: Any, vertex: Vertex) -> Any:
    """Returns the endpoint to deploy to: the one that is named, or a new one of the model's name."""
    if not vertex.endpoint:
        created = EndpointCreateOp(
            display_name=model_name, location=placeholders.LOCATION_PLACEHOLDER, labels=dict(vertex.labels)
        )
        return created.set_caching_options(False).outputs["endpoint"]
    region = vertex.endpoint.split("/")[3]
    named = dsl.importer(
        artifact_uri=f"https://{region}-aiplatform.googleapis.com/v1/{vertex.endpoint}",
        artifact_class=VertexEndpoint,
        metadata={"resourceName": vertex.endpoint},
    )
    return named.output
