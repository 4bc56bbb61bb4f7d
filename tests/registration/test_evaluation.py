import functools
import json

import numpy as np
import pytest
from google.cloud.aiplatform.gapic import ModelServiceClient
from google_cloud_pipeline_components.container._implementation.model_evaluation import import_model_evaluation
from google_cloud_pipeline_components.types.artifact_types import ClassificationMetrics

from components.errors import ModelError
from components.evaluate.metrics import compute
from components.registration import evaluation

# True class, answer and confidence: a a .90 · a b .62 · b b .70 · b b .50 · b c .70. Nothing is of class c.
LABELS = np.array([0, 0, 1, 1, 1])
PROBABILITIES = np.array([[0.9, 0.05, 0.05], [0.28, 0.62, 0.1], [0.2, 0.7, 0.1], [0.1, 0.5, 0.4], [0.1, 0.2, 0.7]])


@pytest.fixture
def figures():
    """The metrics of five examples, as they come back from evaluate's file."""
    return json.loads(json.dumps(compute(PROBABILITIES, LABELS, ["a", "b", "c"], loss=0.5).as_json()))


def counts(right, wrong, missed, others):
    return {
        "truePositiveCount": right,
        "falsePositiveCount": wrong,
        "falseNegativeCount": missed,
        "trueNegativeCount": others,
    }


def test_the_whole(figures):
    whole = evaluation.sliced_metrics(figures)["slicedMetrics"][0]
    assert set(whole) == {"metrics"}
    found = whole["metrics"]["classification"]
    assert set(found) == {"logLoss", "confusionMatrix", "confidenceMetrics"}, "no macro average where micro is meant"
    assert found["logLoss"] == 0.5
    assert found["confusionMatrix"] == {
        "annotationSpecs": [{"id": "0", "displayName": "a"}, {"id": "1", "displayName": "b"},
                            {"id": "2", "displayName": "c"}],
        "rows": [[1, 1, 0], [0, 2, 1], [0, 0, 0]],
    }  # fmt: skip


def test_answers_by_confidence(figures):
    entries = evaluation.sliced_metrics(figures)["slicedMetrics"][0]["metrics"]["classification"]["confidenceMetrics"]
    assert [entry["confidenceThreshold"] for entry in entries] == [k / 15 for k in range(15)]
    # Right and wrong answers above 0/15, 1/15, ... 14/15: 0.50 goes at 8/15, 0.62 at 10/15, both 0.70 at 11/15.
    expected = [(3, 2)] * 8 + [(2, 2)] * 2 + [(2, 1)] + [(1, 0)] * 3 + [(0, 0)]
    assert [(e["truePositiveCount"], e["falsePositiveCount"]) for e in entries] == expected
    assert entries[10] == counts(2, 1, 3, 9) | {
        "confidenceThreshold": 10 / 15,
        "maxPredictions": 1,
        "recall": 0.4,
        "precision": 2 / 3,
        "f1Score": 0.5,
        "falsePositiveRate": 0.1,
        "recallAt1": 0.4,
        "precisionAt1": 2 / 3,
        "f1ScoreAt1": 0.5,
        "falsePositiveRateAt1": 0.1,
    }
    # Where no answer is given, precision is undefined.
    assert entries[14] == counts(0, 0, 5, 10) | {
        "confidenceThreshold": 14 / 15,
        "maxPredictions": 1,
        "recall": 0.0,
        "f1Score": 0.0,
        "falsePositiveRate": 0.0,
        "recallAt1": 0.0,
        "f1ScoreAt1": 0.0,
        "falsePositiveRateAt1": 0.0,
    }


def test_each_class_that_was_judged(figures):
    slices = evaluation.sliced_metrics(figures)["slicedMetrics"][1:]
    one = {"confidenceThreshold": 0.0, "maxPredictions": 1}
    a = counts(1, 0, 1, 3) | {"recall": 0.5, "precision": 1.0, "f1Score": 2 / 3, "falsePositiveRate": 0.0}
    b = counts(2, 1, 1, 1) | {"recall": 2 / 3, "precision": 2 / 3, "f1Score": 2 / 3, "falsePositiveRate": 0.5}
    # Class a: 0.9 and 0.28 lie above 0.2, 0.1 and 0.1. Class b: 4 of the 6 pairs of 0.7, 0.5, 0.2 and 0.05, 0.62.
    assert slices == [
        {
            "singleOutputSlicingSpec": {"dimension": "annotationSpec", "value": name},
            "metrics": {"classification": {"auRoc": pytest.approx(area), "confidenceMetrics": [one | entry]}},
        }
        for name, area, entry in (("a", 1.0, a), ("b", 4 / 6, b))
    ]


def test_a_single_class_in_the_test_split_has_no_area():
    figures = compute(PROBABILITIES[:2], LABELS[:2], ["a", "b", "c"], loss=0.5).as_json()
    (only,) = evaluation.sliced_metrics(figures)["slicedMetrics"][1:]
    assert set(only["metrics"]["classification"]) == {"confidenceMetrics"}
    assert "falsePositiveRate" not in only["metrics"]["classification"]["confidenceMetrics"][0]
    assert "auRoc" not in evaluation.summary(figures)


def test_a_large_confusion_matrix_stays_away(figures, monkeypatch):
    monkeypatch.setattr(evaluation, "LARGEST_MATRIX", 2)
    found = evaluation.sliced_metrics(figures)["slicedMetrics"][0]["metrics"]["classification"]
    assert set(found) == {"logLoss", "confidenceMetrics"}


def test_the_summary_is_what_gcpc_knows(figures):
    found = evaluation.summary(figures)
    # Recall: (1/2 + 2/3) / 2, precision: (1 + 2/3) / 2, area: (1 + 2/3) / 2, over the two classes there are.
    assert found == {
        "aggregationType": "MACRO_AVERAGE",
        "accuracy": 0.6,
        "precision": pytest.approx(5 / 6),
        "recall": pytest.approx(7 / 12),
        "f1Score": pytest.approx(2 / 3),
        "auRoc": pytest.approx(5 / 6),
        "logLoss": 0.5,
    }
    gcpc = ClassificationMetrics.create(accuracy=1, precision=1, recall=1, f1_score=1, au_roc=1, log_loss=1)
    assert set(gcpc.metadata) == set(found) - {"aggregationType"}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "has no metrics of an evaluation"),
        ("{", "has no metrics of an evaluation"),
        ("[]", "lacks the metrics examples, accuracy, loss"),
        ('{"examples": 5}', "lacks the metrics accuracy, loss"),
    ],
)
def test_metrics_that_are_none(tmp_path, content, sentence):
    file = tmp_path / "metrics"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ModelError, match=f"{file} {sentence}.*; run the evaluate step again"):
        evaluation.read(str(file))


def test_gcpcs_importer_sends_it(figures, registry, tmp_path, monkeypatch):
    """The code of ModelImportEvaluationOp's container reads the file, and the API's own client sends it.

    The client speaks REST rather than gRPC here, so that the stand-in understands it.
    """
    rest = functools.partial(ModelServiceClient, transport="rest")
    monkeypatch.setattr(import_model_evaluation.aiplatform.gapic, "ModelServiceClient", rest)
    file = tmp_path / "evaluation"
    file.write_text(json.dumps(evaluation.sliced_metrics(figures)))
    model = "projects/123456/locations/us-central1/models/7@3"
    arguments = {
        "classification_metrics": str(file),
        "model_name": model,
        "gcp_resources": str(tmp_path / "out" / "gcp_resources"),
        "evaluation_resource_name": str(tmp_path / "out" / "name"),
    }
    import_model_evaluation.main([part for name, value in arguments.items() for part in (f"--{name}", value)])

    (path, sent), (slices_path, slices) = registry.posted
    assert path == f"{model}/evaluations:import"
    assert sent["modelEvaluation"]["metricsSchemaUri"].endswith("/classification_metrics_1.0.0.yaml")
    whole, *rest_of_them = evaluation.sliced_metrics(figures)["slicedMetrics"]
    assert sent["modelEvaluation"]["metrics"] == whole["metrics"]["classification"]
    assert slices_path == f"{model}/evaluations/9/slices:batchImport"
    assert [each["slice"] for each in slices["modelEvaluationSlices"]] == [
        {"dimension": "annotationSpec", "value": "a"},
        {"dimension": "annotationSpec", "value": "b"},
    ]
    assert [each["metrics"] for each in slices["modelEvaluationSlices"]] == [
        each["metrics"]["classification"] for each in rest_of_them
    ]
    assert (tmp_path / "out" / "name").read_text() == f"{model}/evaluations/9"
