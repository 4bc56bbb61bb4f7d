"""The KFP interface of the registration step."""

from google_cloud_pipeline_components.types import artifact_types
from kfp import dsl

from components.images import CPU_IMAGE


@dsl.component(base_image=CPU_IMAGE, packages_to_install=[], install_kfp_package=False)
def registration(
    exported: dsl.Input[dsl.Model],
    evaluated: dsl.Input[dsl.Metrics],
    model_name: str,
    serving_image: str,
    project: str,
    location: str,
    candidate: dsl.Output[artifact_types.UnmanagedContainerModel],
    parent: dsl.Output[artifact_types.VertexModel],
    evaluation: dsl.Output[artifact_types.ClassificationMetrics],
) -> str:
    """Prepares what the upload of a model and the import of its evaluation need, and writes nothing to the registry.

    Args:
        exported: The export step's SavedModel.
        evaluated: The evaluate step's metrics.
        model_name: The model's name in the registry.
        serving_image: Image that serves the model, by digest.
        project: Google Cloud project of the registry.
        location: Region of the registry.
        candidate: The SavedModel with its serving container, for ModelUploadOp's unmanaged_container_model.
        parent: The registered model of that name, for ModelUploadOp's parent_model; without metadata if there is none.
        evaluation: The evaluation, for ModelImportEvaluationOp's classification_metrics.

    Returns:
        `VERSION` where a model of that name is registered, so that this is a new version of it; else `NEW`.
    """
    from components import files, step

    with step.running("registration", evaluation=evaluation.uri) as run:
        from components.registration import evaluation as evaluations
        from components.registration.registration import container_spec, find_parent, vertex_uri

        candidate.uri = exported.uri
        candidate.metadata["containerSpec"] = container_spec(serving_image)
        figures = evaluations.read(evaluated.uri)
        found = find_parent(model_name, project=project, location=location)
        if found:
            parent.uri = vertex_uri(found, location)
            parent.metadata["resourceName"] = found
        decision = "VERSION" if found else "NEW"
        run.report(registration=decision, parent=found)
        evaluation.metadata.update(evaluations.summary(figures))
        files.write_json(evaluation.uri, evaluations.sliced_metrics(figures))
    return decision
