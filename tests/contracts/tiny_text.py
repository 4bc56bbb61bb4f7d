"""A user's own model: `tests.contracts.tiny_text:build`."""

import tf_keras


def build(*, features, num_classes, units):
    inputs = {name: tf_keras.Input(feature.shape, name=name, dtype=feature.dtype) for name, feature in features.items()}
    x = tf_keras.layers.Embedding(30522, int(units))(inputs["input_ids"])
    x = tf_keras.layers.GlobalAveragePooling1D()(x)
    return tf_keras.Model(inputs, tf_keras.layers.Dense(num_classes, dtype="float32")(x))
