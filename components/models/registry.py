"""Builds a model by name: ours, or a user's own `my_package.my_module:build`."""

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
import tf_keras

from components.dataset.manifest import Feature
from components.errors import ModelError, did_you_mean, first_line
from components.models import image_classifier, text_classifier
from components.step import log

Builder = Callable[..., Any]

BUILDERS: dict[str, Builder] = {
    "image_classifier": image_classifier.build,
    "text_classifier": text_classifier.build,
}


def find(name: str) -> Builder:
    """Returns the function that a builder's name stands for.

    Raises:
        ModelError: if the name is unknown, or names a module or function that can't be imported.
    """
    if name in BUILDERS:
        return BUILDERS[name]
    module_name, colon, function_name = name.partition(":")
    if not colon:
        raise ModelError(
            f"model.builder is {name!r}, expected one of {', '.join(BUILDERS)}, or a function of your own as "
            f"my_package.my_module:build.{did_you_mean(name, BUILDERS)}"
        )
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # last, so that a user's folder can't stand in for an installed package
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except Exception as error:  # whatever a user's module raises is the user's to mend
        log.info(traceback.format_exc())
        raise ModelError(
            f"model.builder {name!r} can't be imported ({type(error).__name__}: {first_line(error)}); is its package "
            "installed, or its module in this folder?"
        ) from error
    if not callable(function):
        raise ModelError(f"model.builder {name!r} is a {type(function).__name__}, expected a function.")
    return function


def build(name: str, arguments: Mapping[str, Any], features: Mapping[str, Feature], num_classes: int) -> Any:
    """Builds a model and checks that it fits the data set.

    Args:
        name: A builder's name.
        arguments: Keyword arguments for it, beyond `features` and `num_classes`.
        features: The data set's features, as stored. The model sees them after `reader.to_model_input`.
        num_classes: Width of the logits.

    Returns:
        A built `tf_keras.Model`: dict of features `[batch, ...]` → float32 logits `[batch, num_classes]`.

    Raises:
        ModelError: if the builder refuses the arguments, or the model's output is not as above.
    """
    function = find(name)
    try:
        inspect.signature(function).bind(features=features, num_classes=num_classes, **arguments)
    except TypeError as error:
        accepted = [p for p in inspect.signature(function).parameters if p not in ("features", "num_classes")]
        raise ModelError(f"model.arguments don't fit {name} ({error}); it takes {', '.join(accepted)}.") from error
    model = _called(name, lambda: function(features=features, num_classes=num_classes, **arguments))
    if not isinstance(model, tf_keras.Model):
        kind = f"{type(model).__module__}.{type(model).__name__}"
        raise ModelError(f"{name} returned a {kind}, expected a tf_keras.Model (Keras 3 does not run on a TPU here).")
    logits = _called(name, lambda: model(example_input(features), training=False))
    if not tf.is_tensor(logits):
        raise ModelError(f"{name} returns a {type(logits).__name__}, expected one tensor of logits.")
    if logits.dtype != tf.float32 or tuple(logits.shape) != (2, num_classes):
        raise ModelError(
            f"{name} returns {logits.dtype.name} of shape {tuple(logits.shape)} for two examples, expected float32 "
            f"logits of shape (2, {num_classes}); give its last layer {num_classes} units and dtype='float32'."
        )
    return model


def _called(name: str, function: Callable[[], Any]) -> Any:
    """Calls a builder or its model; what a user's own raises becomes one sentence, its traceback goes to the log."""
    try:
        return function()
    except ModelError:
        raise
    except (Exception, SystemExit) as error:
        if name in BUILDERS:
            raise
        log.info(traceback.format_exc())
        raise ModelError(f"{name} failed ({type(error).__name__}: {first_line(error)}); see the log.") from error


def example_input(features: Mapping[str, Feature]) -> dict[str, Any]:
    """Returns a batch of two examples of zeros, as a model takes it."""
    return {name: tf.zeros([2, *feature.shape], model_dtype(feature)) for name, feature in features.items()}


def model_dtype(feature: Feature) -> Any:
    """Returns the dtype in which a model sees a stored feature: images arrive as float32."""
    return tf.float32 if feature.dtype == "uint8" else tf.as_dtype(feature.dtype)
