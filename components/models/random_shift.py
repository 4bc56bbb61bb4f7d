"""Moves training images by a few random pixels: more examples from few."""

from typing import Any

import tensorflow as tf
from tf_keras import __internal__ as internal


class RandomShift(internal.layers.BaseRandomLayer):
    """Moves each image of a batch by its own random offset while training, black where nothing moves in.

    `tf_keras.layers.RandomTranslation` has no TPU kernel (ImageProjectiveTransformV3); this layer is two gathers of
    static shape. It draws from a generator as dropout does, so a restart draws what the unbroken run would have.

    Args:
        pixels: Largest move in each of the four directions.

    Example:
        images = RandomShift(2)(images, training=True)  # [batch, height, width, channels]
    """

    def __init__(self, pixels: int, **options: Any) -> None:
        super().__init__(**options)
        self.pixels = pixels

    def call(self, images: Any, training: bool = False) -> Any:
        """Returns images of the same shape and dtype, `[batch, height, width, channels]`."""
        if not training:
            return images
        batch, (height, width) = tf.shape(images)[0], images.shape[1:3]
        margin = [self.pixels, self.pixels]
        padded = tf.pad(images, [[0, 0], margin, margin, [0, 0]])
        offsets = self._random_generator.random_uniform([batch, 2], 0, 2 * self.pixels + 1, dtype=tf.int32)
        rows = offsets[:, :1] + tf.range(height)
        columns = offsets[:, 1:] + tf.range(width)
        return tf.gather(tf.gather(padded, rows, axis=1, batch_dims=1), columns, axis=2, batch_dims=1)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "pixels": self.pixels}
