"""Models whose answers can be worked out by hand: `tests.serving.tiny_models:images` and `:texts`."""

import numpy as np
import tf_keras

HEIGHT, WIDTH, CHANNELS = 4, 5, 3
# A weight of its own for each pixel and class: a transposed or flipped image is another image to it.
KERNEL = np.random.default_rng(0).normal(size=(HEIGHT * WIDTH * CHANNELS, 3)).astype(np.float32)
GOOD, BAD = 4, 5  # the words' places in the vocabulary


def images(*, features, num_classes):
    """Logits are the pixels in [0, 1] times KERNEL."""
    inputs = tf_keras.Input(features["image"].shape, name="image")
    kernel = tf_keras.initializers.Constant(KERNEL)
    logits = tf_keras.layers.Dense(num_classes, use_bias=False, kernel_initializer=kernel)
    return tf_keras.Model({"image": inputs}, logits(tf_keras.layers.Flatten()(inputs)))


def texts(*, features, num_classes):
    """Logits are how often `good` and `bad` are among the tokens."""
    length = features["input_ids"].shape[0]
    table = np.zeros((7, num_classes), np.float32)
    table[GOOD, 0] = table[BAD, 1] = length
    inputs = {name: tf_keras.Input(feature.shape, name=name, dtype=feature.dtype) for name, feature in features.items()}
    embedding = tf_keras.layers.Embedding(*table.shape, embeddings_initializer=tf_keras.initializers.Constant(table))
    return tf_keras.Model(inputs, tf_keras.layers.GlobalAveragePooling1D()(embedding(inputs["input_ids"])))


def softmax(logits):
    exponentials = np.exp(np.asarray(logits, np.float64))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def image_probabilities(pixels):
    """Returns what the image model must answer to uint8 `[batch, height, width, channels]`."""
    return softmax(np.reshape(pixels, (len(pixels), -1)) / 255 @ KERNEL.astype(np.float64))
