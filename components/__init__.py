"""What runs inside the containers: one package a step, on two ground floors, `dataset` and `models`.

Importing this package sets the process up for TensorFlow without importing it.
"""

import os

# Keras 3 is broken under TPUStrategy; tf-keras is chosen by this variable, read when TensorFlow is imported.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
# transformers does not recognise the distribution `tensorflow-tpu` unless told that TensorFlow is there.
os.environ.setdefault("FORCE_TF_AVAILABLE", "1")
# TensorFlow's C++ start-up notices; its errors still show.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# A fork after tokenizing makes the tokenizers library warn, or dead-lock, if its threads are on.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
