"""Models of one layer whose work is counted by hand."""

import tf_keras
from tf_keras import layers


def build(*, features, num_classes, units):
    image = layers.Input(features["image"].shape, name="image")
    x = layers.Dense(int(units), activation="relu")(layers.Flatten()(image))
    return tf_keras.Model({"image": image}, layers.Dense(num_classes, dtype="float32")(x), name="dense")


def recurrent(*, features, num_classes):
    image = layers.Input(features["image"].shape, name="image")
    x = layers.LSTM(128)(layers.Reshape(features["image"].shape[:2])(image))
    return tf_keras.Model({"image": image}, layers.Dense(num_classes, dtype="float32")(x), name="recurrent")
