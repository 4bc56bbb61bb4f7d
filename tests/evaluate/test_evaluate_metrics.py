import json
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score, f1_score, roc_auc_score

from components.evaluate import metrics as module
from components.evaluate.metrics import calibration, compute, expected_calibration_error, roc_curve, wilson_interval

# Six examples worked out by hand. Right: 0, 1, 3, 4. Example 2 is an a taken for b, example 5 a c taken for a.
LABELS = np.array([0, 0, 0, 1, 1, 2])
PROBABILITIES = np.array(
    [[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.3, 0.5, 0.2], [0.1, 0.8, 0.1], [0.2, 0.7, 0.1], [0.5, 0.2, 0.3]], np.float32
)


def test_by_hand():
    metrics = compute(PROBABILITIES, LABELS, ["a", "b", "c"], loss=0.5)
    assert (metrics.examples, metrics.correct, metrics.loss) == (6, 4, 0.5)
    assert metrics.accuracy == pytest.approx(4 / 6)
    assert metrics.baseline_accuracy == pytest.approx(3 / 6)
    assert metrics.confusion_matrix == ((2, 1, 0), (0, 2, 0), (1, 0, 0))
    a, b, c = metrics.classes
    assert (a.support, a.predicted, a.precision, a.recall, a.f1) == pytest.approx((3, 3, 2 / 3, 2 / 3, 2 / 3))
    assert (b.support, b.predicted, b.precision, b.recall, b.f1) == pytest.approx((2, 3, 2 / 3, 1.0, 0.8))
    assert (c.support, c.predicted, c.precision, c.recall, c.f1) == (1, 0, 0.0, 0.0, 0.0)
    assert metrics.macro_recall == pytest.approx((2 / 3 + 1 + 0) / 3)
    assert metrics.macro_f1 == pytest.approx((2 / 3 + 0.8 + 0) / 3)
    # Pairs of an a (0.7, 0.6, 0.3) and another (0.1, 0.2, 0.5) in the right order: 8 of 9. b: all 8. c: all 5.
    assert [k.roc_auc for k in metrics.classes] == pytest.approx([8 / 9, 1.0, 1.0])
    assert metrics.roc_auc == pytest.approx((8 / 9 + 1 + 1) / 3)
    assert metrics.roc_curve is None
    assert [k.name for k in metrics.classes] == ["a", "b", "c"]


def test_one_class_only():
    metrics = compute(PROBABILITIES[:2], LABELS[:2], ["a", "b", "c"], loss=0.4)
    assert metrics.accuracy == 1.0
    assert metrics.roc_auc is None
    assert metrics.roc_auc_note.startswith("Undefined: every test example is of the class 'a'")
    assert metrics.confusion_matrix == ((2, 0, 0), (0, 0, 0), (0, 0, 0))
    assert (metrics.macro_recall, metrics.macro_f1) == (1.0, 1.0)
    assert metrics.classes[1].recall is None
    assert "roc_auc" not in metrics.scalars()


def test_a_class_that_the_split_lacks():
    # The c is left out. One example of b is taken for c, which costs b's recall and nothing else.
    probabilities = np.array([[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]], np.float32)
    metrics = compute(probabilities, np.array([0, 1, 1]), ["a", "b", "c"], loss=1.0)
    assert metrics.confusion_matrix == ((1, 0, 0), (0, 1, 1), (0, 0, 0))
    absent = metrics.classes[2]
    assert (absent.support, absent.predicted) == (0, 1)
    assert (absent.precision, absent.recall, absent.f1, absent.roc_auc) == (None, None, None, None)
    assert metrics.macro_recall == pytest.approx((1 + 1 / 2) / 2)
    assert metrics.macro_precision == 1.0
    assert metrics.roc_auc == 1.0
    assert "2 of 3 classes" in metrics.roc_auc_note


def test_two_classes_have_a_finite_roc_curve():
    # Scores of class 1 and what they are: 0.9 (1), 0.8 (0), 0.6 (1), 0.1 (0).
    scores = np.array([0.9, 0.8, 0.6, 0.1], np.float32)
    metrics = compute(np.stack([1 - scores, scores], axis=1), np.array([1, 0, 1, 0]), ["no", "yes"], loss=0.1)
    curve = metrics.roc_curve
    assert curve.false_positive_rates == (0.0, 0.0, 0.5, 0.5, 1.0)
    assert curve.true_positive_rates == (0.0, 0.5, 0.5, 1.0, 1.0)
    assert curve.thresholds[0] > 1
    assert curve.thresholds[1:] == pytest.approx((0.9, 0.8, 0.6, 0.1))
    assert all(math.isfinite(threshold) for threshold in curve.thresholds)
    assert metrics.roc_auc == pytest.approx(3 / 4)  # of four pairs, one (0.6 below 0.8) is in the wrong order


def test_a_long_roc_curve_is_thinned_and_keeps_its_ends():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 5000)
    curve = roc_curve(labels, rng.random(5000))
    assert len(curve.thresholds) <= module.ROC_POINTS
    assert (curve.false_positive_rates[0], curve.true_positive_rates[0]) == (0, 0)
    assert (curve.false_positive_rates[-1], curve.true_positive_rates[-1]) == (1, 1)


@pytest.mark.parametrize(
    ("correct", "examples", "low", "high"),
    [
        # statsmodels.stats.proportion.proportion_confint(method="wilson"), and Newcombe (1998), table I.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (20, 20, 0.8389, 1.0),
    ],
)
def test_wilson_interval_against_published_values(correct, examples, low, high):
    assert wilson_interval(correct, examples) == pytest.approx((low, high), abs=5e-5)


def test_calibration_by_hand():
    # Three bins in use, (0.533, 0.6], (0.6, 0.667] and (0.933, 1], of 1, 1 and 2 examples.
    confidences, correct = np.array([0.6, 0.61, 0.95, 1.0]), np.array([True, False, True, False])
    bins = calibration(confidences, correct)
    assert [b.examples for b in bins] == [0] * 8 + [1, 1, 0, 0, 0, 0, 2]
    assert bins[8].accuracy == 1.0
    assert bins[14].confidence == pytest.approx(0.975)
    expected = 1 / 4 * abs(1 - 0.6) + 1 / 4 * abs(0 - 0.61) + 2 / 4 * abs(0.5 - 0.975)
    assert expected_calibration_error(bins) == pytest.approx(expected)


def test_calibration_loses_no_example_at_the_edges():
    confidences = np.array([0.0, 1 / 15, 14 / 15, 1.0, np.float32(1.0000001)])
    assert sum(b.examples for b in calibration(confidences, np.ones(5, bool))) == 5


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 6), st.integers(1, 60), st.integers(0, 2**32 - 1))
def test_agrees_with_definitions_and_is_plain_json(classes, examples, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, examples)
    probabilities = rng.dirichlet(np.ones(classes), examples).astype(np.float32)
    metrics = compute(probabilities, labels, [f"class {index}" for index in range(classes)], loss=1.0)
    predictions = probabilities.argmax(axis=1)

    assert json.loads(json.dumps(metrics.as_json(), allow_nan=False))["accuracy"] == (predictions == labels).mean()
    assert all(type(value) is float and math.isfinite(value) for value in metrics.scalars().values())
    assert np.array(metrics.confusion_matrix).shape == (classes, classes)
    assert np.array(metrics.confusion_matrix).sum() == examples
    assert metrics.accuracy_interval[0] <= metrics.accuracy <= metrics.accuracy_interval[1]
    present = sorted(set(labels.tolist()))
    assert metrics.macro_f1 == pytest.approx(
        f1_score(labels, predictions, labels=present, average="macro", zero_division=0)
    )
    with warnings.catch_warnings(action="ignore"):  # scikit-learn warns of classes that are only predicted
        assert metrics.macro_recall == pytest.approx(balanced_accuracy_score(labels, predictions))
    if len(present) == classes > 2:
        assert metrics.roc_auc == pytest.approx(
            roc_auc_score(labels, probabilities / probabilities.sum(1, keepdims=True), multi_class="ovr"), abs=1e-5
        )
    # The calibration error, once more, by a loop over examples.
    sums: dict[int, list[tuple[float, bool]]] = {}
    for row, label in zip(probabilities, labels, strict=True):
        sums.setdefault(math.ceil(float(row.max()) * 15), []).append((float(row.max()), bool(row.argmax() == label)))
    error = sum(abs(sum(c for c, _ in rows) - sum(right for _, right in rows)) for rows in sums.values()) / examples
    assert metrics.expected_calibration_error == pytest.approx(error, abs=1e-6)
