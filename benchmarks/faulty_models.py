"""Models that no TPU runs, each for another reason: for preflight's benchmark, and as what its sentences look like."""

import tensorflow as tf
import tf_keras
from tf_keras import layers


def _model(features, num_classes, fault):
    image = layers.Input(features["image"].shape, name="image")
    x = layers.Lambda(fault, name="faulty")(layers.Flatten()(image))
    return tf_keras.Model({"image": image}, layers.Dense(num_classes, dtype="float32")(x), name="model")


def op_without_kernel(*, features, num_classes):
    """Returns a model that resizes by an op for which TPUs have no kernel."""
    height, width, channels = features["image"].shape

    def fault(x):
        images = tf.reshape(x, [-1, height, width, channels])
        return tf.reshape(tf.image.resize(images, [height, width], method="bicubic"), tf.shape(x))

    return _model(features, num_classes, fault)


def dynamic_shape(*, features, num_classes):
    """Returns a model with a tensor as long as there are bright pixels."""
    return _model(features, num_classes, lambda x: x + tf.reduce_sum(tf.boolean_mask(x, x > 0.5)))


def py_function(*, features, num_classes):
    """Returns a model that calls Python in each step."""

    def fault(x):
        y = tf.py_function(lambda value: value * 2, [x], tf.float32)
        return tf.ensure_shape(y, x.shape)

    return _model(features, num_classes, fault)


def string_feature(*, features, num_classes):
    """Returns a model that takes texts as they are, and looks at their length."""
    text = layers.Input(features["text"].shape, name="text", dtype="string")
    length = layers.Lambda(lambda x: tf.cast(tf.strings.length(x), tf.float32)[:, tf.newaxis])(text)
    return tf_keras.Model({"text": text}, layers.Dense(num_classes, dtype="float32")(length), name="model")
