"""Decides whether a model is good enough to be released."""

from collections.abc import Mapping
from typing import Any, Literal

from components.errors import ConfigError, ModelError
from components.step import log

Verdict = Literal["PASSED", "REJECTED"]
PASSED: Verdict = "PASSED"
REJECTED: Verdict = "REJECTED"


def accuracy_of(metadata: Mapping[str, Any]) -> float:
    """Returns the accuracy among an evaluation's metrics.

    Raises:
        ModelError: if there is none, or it is no number.
    """
    accuracy = metadata.get("accuracy")
    if isinstance(accuracy, bool) or not isinstance(accuracy, int | float):
        known = ", ".join(metadata) or "none"
        raise ModelError(
            f"The evaluation's metrics give accuracy as {accuracy!r}, expected a number (metrics there: {known}); "
            "run the evaluate step again."
        )
    return float(accuracy)


def compare(accuracy: float, min_accuracy: float) -> Verdict:
    """Compares the test accuracy with the least that a released model may have.

    Args:
        accuracy: Share of the test examples that the model got right.
        min_accuracy: The least accuracy that passes; an equal one passes.

    Returns:
        `PASSED` or `REJECTED`.

    Raises:
        ModelError: if the accuracy is no number from 0 to 1: NaN compares false with everything, and must not decide.
        ConfigError: if the least accuracy is not.
    """
    if not 0 <= accuracy <= 1:  # false for NaN too
        raise ModelError(
            f"The test accuracy is {accuracy!r}, expected a number from 0 to 1; run the evaluate step again."
        )
    if not 0 <= min_accuracy <= 1:
        raise ConfigError(f"evaluation.min_accuracy is {min_accuracy!r}, expected a number from 0 to 1.")
    passed = accuracy >= min_accuracy
    # As many digits as it takes to show that a model just short of the floor is.
    digits = next((n for n in range(2, 16) if passed or f"{accuracy:.{n}%}" != f"{min_accuracy:.{n}%}"), 16)
    log.info(
        f"{PASSED if passed else REJECTED}: test accuracy {accuracy:.{digits}%} is "
        f"{'at least' if passed else 'below'} evaluation.min_accuracy {min_accuracy:.{digits}%}."
    )
    return PASSED if passed else REJECTED
