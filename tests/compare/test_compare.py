import logging
import subprocess
import sys

import pytest

from components.compare.compare import accuracy_of, compare
from components.errors import ConfigError, ModelError
from components.step import log


@pytest.mark.parametrize(
    ("accuracy", "floor", "verdict"),
    [
        (0.97, 0.95, "PASSED"),
        (0.95, 0.95, "PASSED"),
        (0.9499999, 0.95, "REJECTED"),
        (0.0, 0.0, "PASSED"),
        (1, 1, "PASSED"),
    ],
)
def test_verdict(accuracy, floor, verdict):
    assert compare(accuracy, floor) == verdict


@pytest.mark.parametrize("accuracy", [float("nan"), float("inf"), -0.1, 97.0])
def test_an_accuracy_that_is_none_never_passes(accuracy):
    with pytest.raises(ModelError, match="expected a number from 0 to 1"):
        compare(accuracy, 0.0)


@pytest.mark.parametrize("floor", [float("nan"), -0.1, 95.0])
def test_an_impossible_floor_is_an_error(floor):
    with pytest.raises(ConfigError, match="min_accuracy"):
        compare(0.9, floor)


@pytest.mark.parametrize("metadata", [{}, {"accuracy": None}, {"accuracy": "0.97"}, {"accuracy": True}])
def test_missing_accuracy_is_an_error(metadata):
    with pytest.raises(ModelError, match="accuracy"):
        accuracy_of(metadata)


def test_accuracy_from_metadata():
    assert accuracy_of({"accuracy": 1, "loss": 0.1}) == 1.0


def test_the_sentence_tells_near_numbers_apart(caplog, monkeypatch):
    monkeypatch.setattr(log, "propagate", True)
    caplog.set_level(logging.INFO, logger=log.name)
    compare(0.9499999, 0.95)
    assert "94.99999% is below evaluation.min_accuracy 95.00000%" in caplog.text


def test_tensorflow_is_not_loaded():
    code = "import sys, components.compare.compare, components.notify.notify; assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
