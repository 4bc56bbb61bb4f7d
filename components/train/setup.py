"""A run's model, optimizer and loop: what training runs, and what the TPU's compiler is given before it."""

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

import tf_keras

from components.dataset.manifest import Feature
from components.errors import ConfigError, DataError, did_you_mean
from components.models import registry
from components.models.arguments import in_order
from components.train.custom_loop import CustomLoop
from components.train.fit_loop import FitLoop
from components.train.optimizer import make_optimizer
from components.train.options import TrainOptions


def make_model(
    strategy: Any, options: TrainOptions, features: Mapping[str, Feature], num_classes: int, *, total_steps: int
) -> tuple[Any, Any]:
    """Returns a run's built model and optimizer, made in the strategy's scope, the same for the same seed.

    Args:
        strategy: A `tf.distribute.Strategy`.
        options: What to train and how.
        features: The data set's features, as stored.
        num_classes: Width of the logits.
        total_steps: Steps of the whole training.

    Raises:
        ModelError: if the builder refuses its arguments or the features.
    """
    tf_keras.utils.set_random_seed(options.seed)
    tf_keras.src.backend.enable_tf_random_generator()  # dropout draws from generators that a checkpoint can hold
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16" if options.precision == "bfloat16" else "float32")
    with strategy.scope():
        model = registry.build(options.builder, builder_arguments(options), features, num_classes)
        optimizer = make_optimizer(options, total_steps)
        optimizer.build(model.trainable_variables)
    return model, optimizer


def make_loop(strategy: Any, options: TrainOptions, model: Any, optimizer: Any) -> FitLoop | CustomLoop:
    """Returns the loop that `options.loop` names. Its `step` is what each replica runs."""
    common = {
        "strategy": strategy,
        "model": model,
        "optimizer": optimizer,
        "steps_per_execution": options.steps_per_execution,
    }
    if options.loop == "fit":
        return FitLoop(**common)
    return CustomLoop(**common, global_batch_size=options.global_batch_size)


def builder_arguments(options: TrainOptions) -> dict[str, Any]:
    """Returns the builder's arguments, with `pretrained` if it takes that: a model may want the tokens alone."""
    takes_pretrained = "pretrained" in inspect.signature(registry.find(options.builder)).parameters
    extra = {"pretrained": options.pretrained} if options.pretrained and takes_pretrained else {}
    return in_order({**options.arguments, **extra})


def whole_steps(examples: int, global_batch_size: int) -> int:
    """Returns the steps of an epoch: the examples that fill no whole one are left out.

    Raises:
        DataError: if there is none.
    """
    steps = examples // global_batch_size
    if not steps:
        raise DataError(
            f"The training split has {examples:,} examples and training.global_batch_size is {global_batch_size:,}, so "
            f"an epoch would have no step; use a batch of at most {examples:,}."
        )
    return steps


def in_order_of_logits(weights: Mapping[str, float], class_names: Sequence[str]) -> list[float] | None:
    """Returns a weight per class, in the order of the logits, or None where none was given.

    A key is a class's name or, where no class has that name, its index.

    Raises:
        ConfigError: if a key is neither, or a weight is no number of at least 0.
    """
    if not weights:
        return None
    indices = {str(index): index for index in range(len(class_names))}
    indices |= {name: index for index, name in enumerate(class_names)}
    result = [1.0] * len(class_names)
    for key, weight in weights.items():
        if key not in indices:
            raise ConfigError(
                f"training.class_weights names {key!r}, the data set's classes are {', '.join(class_names)}."
                f"{did_you_mean(key, class_names)}"
            )
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < math.inf:
            raise ConfigError(f"training.class_weights.{key} is {weight!r}, expected a number of at least 0.")
        result[indices[key]] = float(weight)
    return result
