"""Optimizer and learning-rate schedule."""

import math
from typing import Any

import tensorflow as tf
import tf_keras

from components.train.options import TrainOptions

# BERT's practice (Devlin et al. 2018, the reference AdamWeightDecayOptimizer): biases and norms are not decayed.
_NOT_DECAYED = ["bias", "LayerNorm", "layer_norm", "batch_normalization"]


class WarmUpThenDecay(tf_keras.optimizers.schedules.LearningRateSchedule):
    """A linear rise from zero to the peak, then a fall to zero at the last step.

    At step s of S, after W warm-up steps: peak * s / W for s < W, then peak * f((s - W) / (S - W)) with f(x) = 1
    (constant), 1 - x (linear) or (1 + cos(pi x)) / 2 (cosine, Loshchilov & Hutter 2017, one cycle).

    Args:
        peak: Learning rate after the warm-up.
        total_steps: Steps of the whole training.
        warmup_steps: Steps of the rise.
        decay: `constant`, `linear` or `cosine`.
    """

    def __init__(self, peak: float, *, total_steps: int, warmup_steps: int, decay: str) -> None:
        super().__init__()
        self.peak, self.total_steps, self.warmup_steps, self.decay = peak, total_steps, warmup_steps, decay

    def __call__(self, step: Any) -> Any:
        """Returns the float32 learning rate of a step, counted from 0."""
        step = tf.cast(step, tf.float32)
        done = (step - self.warmup_steps) / max(1, self.total_steps - self.warmup_steps)
        done = tf.clip_by_value(done, 0.0, 1.0)
        match self.decay:
            case "linear":
                factor = 1.0 - done
            case "cosine":
                factor = (1.0 + tf.cos(math.pi * done)) / 2.0
            case _:
                factor = tf.ones_like(done)
        rise = step / max(1, self.warmup_steps)
        return self.peak * tf.where(step < self.warmup_steps, rise, factor)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            "peak": self.peak,
            "total_steps": self.total_steps,
            "warmup_steps": self.warmup_steps,
            "decay": self.decay,
        }


def make_optimizer(options: TrainOptions, total_steps: int) -> Any:
    """Returns the optimizer of a run; make it inside the strategy's scope.

    Args:
        options: Names the optimizer and its rates.
        total_steps: Steps of the whole training.
    """
    schedule = WarmUpThenDecay(
        options.learning_rate,
        total_steps=total_steps,
        warmup_steps=round(options.warmup_fraction * total_steps),
        decay=options.decay,
    )
    clip = {"global_clipnorm": options.clip_norm} if options.clip_norm else {}
    if options.optimizer == "adam":
        return tf_keras.optimizers.Adam(schedule, **clip)
    optimizer = tf_keras.optimizers.AdamW(schedule, weight_decay=options.weight_decay, **clip)
    optimizer.exclude_from_weight_decay(var_names=_NOT_DECAYED)
    return optimizer
