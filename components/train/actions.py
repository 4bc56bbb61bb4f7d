"""What is done with a loop's output. A loop knows none of these: it calls each with a step and the epoch's figures."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from components.errors import ModelError
from components.step import Progress
from components.train.checkpoints import Checkpoints

# A scalar each 20 steps draws a smooth curve and costs object storage one small write every few seconds.
SCALAR_EVERY_STEPS = 20

Figures = Mapping[str, float]
"""`loss` and `accuracy`, each the mean over the epoch's examples so far, from the restart on where there was one."""

StepAction = Callable[[int, Figures], None]
"""Called with the optimizer's step and the figures, each time the compiled training function has returned."""

EpochAction = Callable[[int, Figures], None]
"""Called with the epoch's number (from 0) and its figures, after its last step."""


@dataclass(frozen=True)
class Actions:
    """What a loop calls.

    Attributes:
        after_execution: Called in order after each call of the compiled training function.
        after_epoch: Called in order after each epoch.
    """

    after_execution: tuple[StepAction, ...] = ()
    after_epoch: tuple[EpochAction, ...] = ()


def stop_on_nan(step: int, figures: Figures) -> None:
    """Ends a training whose loss is no number any more: every step after it is wasted."""
    if not math.isfinite(figures["loss"]):
        raise ModelError(
            f"The loss is {figures['loss']} at step {step}: training diverged. Lower training.learning_rate, lengthen "
            "training.warmup_fraction, or set training.clip_norm (1.0 is usual)."
        )


class ShowProgress:
    """Logs epoch, steps, examples a second, loss and time left."""

    def __init__(self, *, epochs: int, steps_per_epoch: int, global_batch_size: int) -> None:
        self._epochs, self._steps_per_epoch = epochs, steps_per_epoch
        self._progress = Progress("steps", epochs * steps_per_epoch, rate_unit="examples", per_unit=global_batch_size)

    def __call__(self, step: int, figures: Figures) -> None:
        """Logs a line, at most once a second."""
        epoch = (step - 1) // self._steps_per_epoch + 1
        self._progress(step, prefix=f"epoch {epoch}/{self._epochs} · ", **figures)


class WriteScalars:
    """Writes loss and accuracy for TensorBoard, every so many steps."""

    def __init__(self, writer: Any) -> None:
        self._writer, self._written = writer, 0

    def __call__(self, step: int, figures: Figures) -> None:
        """Writes the scalars if enough steps have passed."""
        if step - self._written < SCALAR_EVERY_STEPS:
            return
        self._written = step
        write_scalars(self._writer, step, "train", figures)


def write_scalars(writer: Any, step: int, prefix: str, figures: Figures) -> None:
    """Writes figures as TensorBoard scalars `prefix/name`."""
    with writer.as_default(step=step):
        for name, value in figures.items():
            tf.summary.scalar(f"{prefix}/{name}", value)


class SaveWithinEpoch:
    """Saves a checkpoint within an epoch, as soon as another so many optimizer steps are done.

    An epoch's last step is left to the epoch's end, which validates first: its checkpoint knows the best metric.
    """

    def __init__(self, checkpoints: Checkpoints, steps: int, steps_per_epoch: int) -> None:
        self._checkpoints, self._steps, self._steps_per_epoch = checkpoints, steps, steps_per_epoch
        self._periods = 0

    def __call__(self, step: int, figures: Figures) -> None:
        """Saves if this step is the first of a new period."""
        if step // self._steps > self._periods:
            self._periods = step // self._steps
            if step % self._steps_per_epoch:
                self._checkpoints.save()
