"""The one loss: sparse categorical cross-entropy on float32 logits."""

from typing import Any

import tensorflow as tf


def per_example_loss(labels: Any, logits: Any) -> Any:
    """Returns the cross-entropy of each example, float32 `[batch]`, from int32 labels and float32 logits."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)


def correct(labels: Any, logits: Any) -> Any:
    """Returns 1.0 for each example whose largest logit is its label's, float32 `[batch]`."""
    return tf.cast(tf.equal(tf.argmax(logits, axis=-1, output_type=tf.int32), labels), tf.float32)
