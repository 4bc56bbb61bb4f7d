"""The convolutional network of TensorFlow's TPU guide, its sizes as arguments."""

from collections.abc import Mapping, Sequence
from typing import Any

import tf_keras
from tf_keras import layers

from components.dataset.manifest import Feature
from components.errors import ModelError
from components.models import arguments
from components.models.random_shift import RandomShift


def build(
    *,
    features: Mapping[str, Feature],
    num_classes: int,
    filters: Sequence[float] = (256, 256),
    kernel_size: float = 3,
    pool: bool = False,
    dense_units: Sequence[float] = (256, 128),
    dropout: float = 0.0,
    shift: float = 0,
) -> Any:
    """Builds the TPU guide's CNN: convolutions, dense layers, logits. The defaults are the guide's own.

    Args:
        features: One feature, `image`, of shape `[height, width, channels]`.
        num_classes: Width of the logits.
        filters: Filters of each convolution.
        kernel_size: Side of every convolution's kernel, in pixels.
        pool: Halve height and width by max-pooling after each convolution. The guide does not; with it a small
            model learns more from few examples.
        dense_units: Units of each dense layer.
        dropout: Rate of dropout before each dense layer. The guide has none.
        shift: Pixels by which training images are moved at random, at most. The guide does not.

    Returns:
        A `tf_keras.Model`: `{"image": float32 [batch, height, width, channels]}` → float32 logits
        `[batch, num_classes]`.

    Source: https://www.tensorflow.org/guide/tpu, `create_model`.

    Example:
        build(features={"image": Feature("uint8", (28, 28, 1))}, num_classes=10, filters=[32, 32])
    """
    if set(features) != {"image"} or len(features["image"].shape) != 3:
        raise ModelError(f"image_classifier needs one feature, image [height, width, channels]; got {dict(features)}.")
    kernel = arguments.whole("kernel_size", kernel_size)
    rate = arguments.fraction("dropout", dropout)
    image = x = layers.Input(features["image"].shape, name="image")
    if pixels := arguments.whole("shift", shift, minimum=0):
        x = RandomShift(pixels)(x)
    for number, count in enumerate(arguments.wholes("filters", filters), start=1):
        if min(x.shape[1:3]) < kernel:
            raise ModelError(
                f"Images of {features['image'].shape} shrink to {tuple(x.shape[1:3])} before convolution "
                f"{number} of {kernel}x{kernel}; use fewer filters or a smaller model.arguments.kernel_size."
            )
        x = layers.Conv2D(count, kernel, activation="relu")(x)
        if arguments.flag("pool", pool):
            x = layers.MaxPooling2D(2)(x)
    x = layers.Flatten()(x)
    for units in arguments.wholes("dense_units", dense_units):
        if rate:
            x = layers.Dropout(rate)(x)
        x = layers.Dense(units, activation="relu")(x)
    logits = layers.Dense(num_classes, dtype="float32", name="logits")(x)
    return tf_keras.Model({"image": image}, logits, name="image_classifier")
