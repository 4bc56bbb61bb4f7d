"""Figures of merit of a classifier, from its probabilities and the true labels, as plain Python values."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from sklearn import metrics as sklearn_metrics

# Bins of the calibration error: as many as in the paper that made it known (see `calibration`).
CALIBRATION_BINS = 15
# Points of a ROC curve that go into the artifact's metadata, which is a database row and not a file.
ROC_POINTS = 100
# 97.5 % quantile of the normal distribution: 95 % of it lies within so many standard deviations.
_Z95 = 1.959963984540054


@dataclass(frozen=True)
class ClassMetrics:
    """How well one class is recognised.

    Attributes:
        name: The class's name.
        support: Its examples in the test split.
        predicted: Examples taken for it.
        precision: Share of `predicted` that are of the class; 0 if there are none. None where `support` is 0.
        recall: Share of `support` that was taken for the class. None where `support` is 0.
        f1: Harmonic mean of the two. None where `support` is 0.
        roc_auc: Area under the ROC curve of this class against the rest. None where one of the two has no examples.
    """

    name: str
    support: int
    predicted: int
    precision: float | None
    recall: float | None
    f1: float | None
    roc_auc: float | None


@dataclass(frozen=True)
class CalibrationBin:
    """The examples whose confidence lies above `lower` and up to `upper`; the means are None if there are none."""

    lower: float
    upper: float
    examples: int
    confidence: float | None
    accuracy: float | None


@dataclass(frozen=True)
class RocCurve:
    """A ROC curve: at each threshold, an example whose score reaches it counts as positive."""

    false_positive_rates: tuple[float, ...]
    true_positive_rates: tuple[float, ...]
    thresholds: tuple[float, ...]


@dataclass(frozen=True)
class Metrics:
    """The figures of one evaluation. Everything is a plain Python value and finite, so it can be written as JSON.

    Attributes:
        examples: Test examples.
        correct: Those whose most probable class is the true one.
        accuracy: Share of the two.
        accuracy_interval: 95 % Wilson interval of the accuracy.
        baseline_accuracy: Accuracy of always answering the most frequent class of the test split.
        loss: Mean cross-entropy, in nats.
        macro_precision: Mean over the classes that the test split holds.
        macro_recall: The same; also known as balanced accuracy.
        macro_f1: The same.
        roc_auc: Mean area under the ROC curve, one class against the rest, over the classes where it is defined.
        roc_auc_note: Why `roc_auc` is None, or which classes it leaves out; empty if it is whole.
        expected_calibration_error: Of the confidence: see `calibration`.
        classes: Figures of each class, in the order of the logits.
        confusion_matrix: Examples by true class (row) and predicted class (column), one row and column a class.
        calibration: The bins of the calibration error.
        roc_curve: For two classes, the curve of the second; None otherwise, or where it is undefined.
    """

    examples: int
    correct: int
    accuracy: float
    accuracy_interval: tuple[float, float]
    baseline_accuracy: float
    loss: float
    macro_precision: float
    macro_recall: float
    macro_f1: float
    roc_auc: float | None
    roc_auc_note: str
    expected_calibration_error: float
    classes: tuple[ClassMetrics, ...]
    confusion_matrix: tuple[tuple[int, ...], ...]
    calibration: tuple[CalibrationBin, ...]
    roc_curve: RocCurve | None

    def scalars(self) -> dict[str, float]:
        """Returns the single figures by name, those that are undefined left out."""
        names = ("accuracy", "loss", "macro_precision", "macro_recall", "macro_f1", "roc_auc",
                 "expected_calibration_error", "baseline_accuracy")  # fmt: skip
        figures = {name: getattr(self, name) for name in names}
        figures |= {"accuracy_low": self.accuracy_interval[0], "accuracy_high": self.accuracy_interval[1]}
        return {name: float(value) for name, value in figures.items() if value is not None} | {
            "examples": float(self.examples)
        }

    def as_json(self) -> dict[str, Any]:
        """Returns everything as a dict that JSON can hold."""
        return asdict(self)


def compute(probabilities: np.ndarray, labels: np.ndarray, class_names: Sequence[str], *, loss: float) -> Metrics:
    """Computes the metrics of one evaluation.

    Args:
        probabilities: float `[examples, classes]`, at least one example.
        labels: int `[examples]`, indices of the true classes.
        class_names: Names in the order of the probabilities.
        loss: Mean cross-entropy, which the logits give more exactly than the probabilities do.
    """
    indices = range(len(class_names))
    predictions = probabilities.argmax(axis=1)
    correct = int((predictions == labels).sum())
    matrix = sklearn_metrics.confusion_matrix(labels, predictions, labels=list(indices))
    support, predicted = matrix.sum(axis=1), matrix.sum(axis=0)
    present = [index for index in indices if support[index]]
    precision, recall, f1, _ = sklearn_metrics.precision_recall_fscore_support(
        labels, predictions, labels=list(indices), zero_division=0.0
    )
    areas = [_roc_auc(labels == index, probabilities[:, index]) for index in indices]
    defined = [area for area in areas if area is not None]
    bins = calibration(probabilities.max(axis=1), predictions == labels)
    return Metrics(
        examples=len(labels),
        correct=correct,
        accuracy=correct / len(labels),
        accuracy_interval=wilson_interval(correct, len(labels)),
        baseline_accuracy=int(support.max()) / len(labels),
        loss=float(loss),
        macro_precision=float(precision[present].mean()),
        macro_recall=float(recall[present].mean()),
        macro_f1=float(f1[present].mean()),
        roc_auc=math.fsum(defined) / len(defined) if defined else None,
        roc_auc_note=_roc_auc_note(class_names, present),
        expected_calibration_error=expected_calibration_error(bins),
        classes=tuple(
            ClassMetrics(
                name=str(name),
                support=int(support[index]),
                predicted=int(predicted[index]),
                precision=float(precision[index]) if support[index] else None,
                recall=float(recall[index]) if support[index] else None,
                f1=float(f1[index]) if support[index] else None,
                roc_auc=areas[index],
            )
            for index, name in enumerate(class_names)
        ),
        confusion_matrix=tuple(tuple(int(count) for count in row) for row in matrix),
        calibration=bins,
        roc_curve=roc_curve(labels, probabilities[:, 1]) if len(class_names) == 2 and len(present) == 2 else None,
    )


def wilson_interval(correct: int, examples: int) -> tuple[float, float]:
    """Returns the 95 % confidence interval of a share, by Wilson's score method.

    With p the share, n the examples and z = 1.96: (p + z²/2n ± z·√(p(1-p)/n + z²/4n²)) / (1 + z²/n). Unlike the
    textbook p ± z·√(p(1-p)/n), it stays within 0 and 1, and is not empty for a perfect score.

    Source: E. B. Wilson, Probable inference, the law of succession, and statistical inference, JASA 22 (1927).
    """
    share, z2 = correct / examples, _Z95**2
    middle = share + z2 / (2 * examples)
    half = _Z95 * math.sqrt(share * (1 - share) / examples + z2 / (4 * examples**2))
    scale = 1 + z2 / examples
    # Rounding must not take a perfect score's upper end below 1, nor the lower end of a score of nothing above 0.
    low = 0.0 if correct == 0 else (middle - half) / scale
    high = 1.0 if correct == examples else (middle + half) / scale
    return low, high


def calibration(confidences: np.ndarray, correct: np.ndarray) -> tuple[CalibrationBin, ...]:
    """Sorts examples by confidence, the probability of the predicted class, into bins of equal width, (lower, upper].

    Args:
        confidences: float `[examples]`.
        correct: bool `[examples]`, whether the prediction was right.

    Source: C. Guo et al., On calibration of modern neural networks, ICML 2017, section 2, with the paper's 15 bins.
    """
    edges = [index / CALIBRATION_BINS for index in range(CALIBRATION_BINS + 1)]
    # Confidences may exceed 1 by rounding; the last bin takes them, and the first one takes an exact 0.
    where = np.clip(np.searchsorted(edges, confidences.astype(np.float64), side="left") - 1, 0, CALIBRATION_BINS - 1)
    bins = []
    for index in range(CALIBRATION_BINS):
        inside = where == index
        count = int(inside.sum())
        bins.append(
            CalibrationBin(
                lower=edges[index],
                upper=edges[index + 1],
                examples=count,
                confidence=float(confidences[inside].mean(dtype=np.float64)) if count else None,
                accuracy=float(correct[inside].mean()) if count else None,
            )
        )
    return tuple(bins)


def expected_calibration_error(bins: Sequence[CalibrationBin]) -> float:
    """Returns the mean gap between confidence and accuracy: Σ_m |B_m|/n · |acc(B_m) - conf(B_m)| over the bins B_m.

    0 means that of the answers given with 80 % confidence, 80 % are right.

    Source: C. Guo et al., On calibration of modern neural networks, ICML 2017, equation 3.
    """
    examples = sum(b.examples for b in bins)
    return math.fsum(
        b.examples / examples * abs(b.accuracy - b.confidence)
        for b in bins
        if b.accuracy is not None and b.confidence is not None
    )


def roc_curve(labels: np.ndarray, scores: np.ndarray) -> RocCurve:
    """Returns the ROC curve of class 1 of two, thinned to about `ROC_POINTS` points.

    Args:
        labels: int `[examples]`, 0 and 1, both present.
        scores: float `[examples]`, probabilities of class 1.
    """
    false_positive, true_positive, thresholds = sklearn_metrics.roc_curve(labels, scores)
    # scikit-learn's first point, where nothing is positive, has an infinite threshold, which JSON can't hold. The next
    # number above 1 means the same, as no probability reaches it.
    thresholds = np.where(np.isinf(thresholds), math.nextafter(1.0, 2.0), thresholds.astype(np.float64))
    keep = np.unique(np.linspace(0, len(thresholds) - 1, ROC_POINTS).round().astype(int))
    return RocCurve(
        tuple(false_positive[keep].tolist()), tuple(true_positive[keep].tolist()), tuple(thresholds[keep].tolist())
    )


def _roc_auc(is_class: np.ndarray, scores: np.ndarray) -> float | None:
    if is_class.all() or not is_class.any():
        return None
    return float(sklearn_metrics.roc_auc_score(is_class, scores))


def _roc_auc_note(class_names: Sequence[str], present: list[int]) -> str:
    if len(present) == 1:
        return f"Undefined: every test example is of the class {class_names[present[0]]!r}, and there is no other."
    if len(present) < len(class_names):
        return f"Over the {len(present)} of {len(class_names)} classes that the test split holds."
    return ""
