"""The KFP interface of the export step."""

from kfp import dsl

from components.images import CPU_IMAGE


@dsl.component(base_image=CPU_IMAGE, packages_to_install=[], install_kfp_package=False)
def export(
    dataset: dsl.Input[dsl.Dataset],
    model: dsl.Input[dsl.Model],
    model_name: str,
    exported: dsl.Output[dsl.Model],
) -> None:
    """Exports the best checkpoint as a SavedModel, checked in a fresh process against the trainer's answers.

    Args:
        dataset: The prepared data set whose first test examples are asked about.
        model: A trained model.
        model_name: The model's name.
        exported: The SavedModel, with labels.json and contract.json.
    """
    from components import step

    with step.running("export", export=exported.uri) as run:
        from components.export.export import export

        contract = export(model.uri, dataset.uri, exported.uri, name=model_name)
        run.report(largest_difference=contract["largest_difference_from_trainer"])
        exported.metadata.update(framework="tensorflow", tensorflow=contract["tensorflow"])
