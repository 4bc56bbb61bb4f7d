"""Hands data to the replicas."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def distribute(strategy: tf.distribute.Strategy, batches: Callable[[int, int], Any]) -> Any:
    """Returns a distributed data set, of which each step takes one batch for each replica.

    Args:
        strategy: The strategy.
        batches: Called with the number of input pipelines and the index of one; makes that pipeline's `tf.data.Dataset`
            of batches: of all batches (the first replica's, the second's, and so on) each so-many-th.
    """

    def pipeline(context: tf.distribute.InputContext) -> Any:
        return batches(context.num_input_pipelines, context.input_pipeline_id)

    if strategy.num_replicas_in_sync == 1 or "CPU" not in strategy.extended.worker_devices[0]:
        return strategy.distribute_datasets_from_function(pipeline)
    # Several CPU replicas get a pipeline each. The default, one pipeline that feeds every device, makes a data set per
    # device whose autotuning thread can't be switched off and sleeps through its cancellation: each iterator that ends
    # then stalls, for 10 s and more with 8 replicas (seen in TensorFlow 2.19.1, threads in Model::OptimizeLoop).
    options = tf.distribute.InputOptions(
        experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA,
        experimental_fetch_to_device=False,
    )
    return strategy.distribute_datasets_from_function(pipeline, options)
