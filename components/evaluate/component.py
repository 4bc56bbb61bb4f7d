"""The KFP interface of the evaluate step."""

from kfp import dsl

from components.images import CPU_IMAGE


@dsl.component(base_image=CPU_IMAGE, packages_to_install=[], install_kfp_package=False)
def evaluate(
    dataset: dsl.Input[dsl.Dataset],
    model: dsl.Input[dsl.Model],
    evaluation_batch_size: int,
    metrics: dsl.Output[dsl.Metrics],
    classification: dsl.Output[dsl.ClassificationMetrics],
    report: dsl.Output[dsl.HTML],
) -> None:
    """Evaluates a trained model on the whole test split.

    Args:
        dataset: The prepare step's data set.
        model: The train step's model.
        evaluation_batch_size: Examples of a batch; it changes speed and memory, not the result.
        metrics: Accuracy, loss and more as metadata, and every figure as JSON.
        classification: The confusion matrix and, for two classes, the ROC curve.
        report: One HTML page for people, with curves, confusion matrix, calibration and the worst mistakes.
    """
    from components import step

    report.uri += ".html"  # a browser shows a file without an ending as source text
    with step.running("evaluate", metrics=metrics.uri, classification=classification.uri, report=report.uri) as run:
        from components import files
        from components.evaluate.evaluate import evaluate
        from components.evaluate.report import render

        found = evaluate(model.uri, dataset.uri, batch_size=evaluation_batch_size)
        figures = found.metrics
        names, matrix = list(found.model.class_names), [list(row) for row in figures.confusion_matrix]
        classification.log_confusion_matrix(names, matrix)
        if curve := figures.roc_curve:
            classification.log_roc_curve(
                list(curve.false_positive_rates), list(curve.true_positive_rates), list(curve.thresholds)
            )
        metrics.metadata.update(figures.scalars())
        files.write_bytes(report.uri, render(found).encode("utf-8"))
        files.write_json(classification.uri, classification.metadata)
        files.write_json(metrics.uri, figures.as_json())
        run.report(metrics={"accuracy": figures.accuracy, "loss": figures.loss, "macro_f1": figures.macro_f1})
