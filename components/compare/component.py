"""The KFP interface of the compare step."""

from kfp import dsl

from components.images import CPU_IMAGE


@dsl.component(base_image=CPU_IMAGE, packages_to_install=[], install_kfp_package=False)
def compare(metrics: dsl.Input[dsl.Metrics], min_accuracy: float, verdict: dsl.Output[dsl.Artifact]) -> str:
    """Passes or rejects a model by its test accuracy.

    Args:
        metrics: The evaluate step's metrics.
        min_accuracy: The least test accuracy that passes, from 0 to 1.
        verdict: JSON with the verdict and both numbers.

    Returns:
        `PASSED` or `REJECTED`.
    """
    from components import files, step
    from components.compare.compare import accuracy_of, compare

    with step.running("compare", verdict=verdict.uri) as run:
        accuracy = accuracy_of(metrics.metadata)
        decision = compare(accuracy, min_accuracy)
        figures = {"verdict": decision, "accuracy": accuracy, "min_accuracy": min_accuracy}
        run.report(**figures)
        verdict.metadata.update(figures)
        files.write_json(verdict.uri, figures)
    return decision
