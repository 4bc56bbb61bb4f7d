"""Turns an evaluation's metrics into the form that Vertex AI's Model Registry shows beside a model version.

The form is that of Google's schema `gs://google-cloud-aiplatform/schema/modelevaluation/classification_metrics_1.0.0.yaml`,
in the file that `ModelImportEvaluationOp` reads from its input `classification_metrics`: a list of slices, first the
whole test split, then one class after the other.

What the schema defines otherwise than we compute is left out: its `auRoc` and `auPrc` of the whole are micro-averaged
over examples and classes. A class's own `auRoc` is the same in both, and is there.
"""

from collections.abc import Mapping
from typing import Any

from components import files
from components.errors import ModelError

_EXPECTED = ("examples", "accuracy", "loss", "macro_precision", "macro_recall", "macro_f1", "roc_auc", "classes",
             "confusion_matrix", "calibration")  # fmt: skip
# A cell takes 11 bytes of the request, which must stay below gRPC's usual 4 MB.
LARGEST_MATRIX = 500


def read(uri: str) -> dict[str, Any]:
    """Returns the evaluate step's metrics.

    Raises:
        ModelError: if they are missing or incomplete.
    """
    try:
        figures = files.read_json(uri)
    except (OSError, ValueError) as error:
        raise ModelError(f"{uri} has no metrics of an evaluation ({error}); run the evaluate step again.") from error
    missing = [name for name in _EXPECTED if not isinstance(figures, dict) or name not in figures]
    if missing:
        raise ModelError(f"{uri} lacks the metrics {', '.join(missing)}; run the evaluate step again.")
    return dict(figures)


def summary(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the metadata of a `google.ClassificationMetrics` artifact, whose averages are over the classes."""
    found = {
        "accuracy": figures["accuracy"],
        "precision": figures["macro_precision"],
        "recall": figures["macro_recall"],
        "f1Score": figures["macro_f1"],
        "auRoc": figures["roc_auc"],
        "logLoss": figures["loss"],
    }
    return {"aggregationType": "MACRO_AVERAGE"} | {name: value for name, value in found.items() if value is not None}


def sliced_metrics(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the content of the file that `ModelImportEvaluationOp` reads.

    Args:
        figures: The evaluate step's metrics: `components.evaluate.metrics.Metrics.as_json()`.
    """
    classes, examples = figures["classes"], figures["examples"]
    whole: dict[str, Any] = {"logLoss": figures["loss"], "confidenceMetrics": _by_confidence(figures)}
    if len(classes) <= LARGEST_MATRIX:
        whole["confusionMatrix"] = {
            "annotationSpecs": [{"id": str(index), "displayName": c["name"]} for index, c in enumerate(classes)],
            "rows": [list(row) for row in figures["confusion_matrix"]],
        }
    slices = [_slice({}, whole)]
    for index, found in enumerate(classes):
        if found["support"]:  # a class that the test split lacks was not judged
            spec = {"singleOutputSlicingSpec": {"dimension": "annotationSpec", "value": found["name"]}}
            right = figures["confusion_matrix"][index][index]
            wrong, missed = found["predicted"] - right, found["support"] - right
            entry = {"confidenceThreshold": 0.0, "maxPredictions": 1} | _rates(
                right, wrong, missed, examples - right - wrong - missed
            )
            area = {} if found["roc_auc"] is None else {"auRoc": found["roc_auc"]}
            slices.append(_slice(spec, area | {"confidenceMetrics": [entry]}))
    return {"slicedMetrics": slices}


def _slice(spec: dict[str, Any], metrics: dict[str, Any]) -> dict[str, Any]:
    return spec | {"metrics": {"classification": metrics}}


def _by_confidence(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns what the model's first answers are worth when those below a confidence are not given.

    The thresholds are the lower ends of the calibration's bins, which leave out a confidence that equals theirs but 0.
    """
    examples, others = figures["examples"], len(figures["classes"]) - 1
    entries: list[dict[str, Any]] = []
    right = given = 0
    for found in reversed(figures["calibration"]):
        given += found["examples"]
        right += round(found["examples"] * (found["accuracy"] or 0.0))
        wrong = given - right
        # One of each example's classes is true: if not given, a false negative; any other, if not given, a true one.
        rates = _rates(right, wrong, examples - right, examples * others - wrong)
        at_1 = {f"{name}At1": rates[name] for name in _RATES if name in rates}
        entries.append({"confidenceThreshold": found["lower"], "maxPredictions": 1} | rates | at_1)
    return entries[::-1]


_RATES = ("recall", "precision", "f1Score", "falsePositiveRate")


def _rates(true_positive: int, false_positive: int, false_negative: int, true_negative: int) -> dict[str, Any]:
    """Returns the four counts, and the rates that they define."""
    rates = {
        "recall": (true_positive, true_positive + false_negative),
        "precision": (true_positive, true_positive + false_positive),
        "f1Score": (2 * true_positive, 2 * true_positive + false_positive + false_negative),
        "falsePositiveRate": (false_positive, false_positive + true_negative),
    }
    counts = {
        "truePositiveCount": true_positive,
        "falsePositiveCount": false_positive,
        "falseNegativeCount": false_negative,
        "trueNegativeCount": true_negative,
    }
    return {name: part / whole for name, (part, whole) in rates.items() if whole} | counts
