"""A strategy that traces one replica's program as it is among all replicas: what `TPUStrategy` makes of a step."""

from typing import Any

import tensorflow as tf

# The base classes are not public; a strategy can't be made from public names alone.
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.distribute.one_device_strategy import OneDeviceExtended


class AllReplicas(tf.distribute.Strategy):
    """One device, on which a step is traced as one of many replicas: sums over the replicas become XLA's all-reduce.

    Model, optimizer and step see the number of replicas that the slice has, so that a loss's share, synchronised batch
    normalisation and gradients are what they will be there. Nothing can be run under it, only traced and lowered.

    Args:
        replicas: Replicas of the slice.
    """

    def __init__(self, replicas: int) -> None:
        super().__init__(_Extended(self, replicas))


class _Extended(OneDeviceExtended):
    def __init__(self, strategy: AllReplicas, replicas: int) -> None:
        super().__init__(strategy, "/device:CPU:0")
        self._replicas = replicas

    @property
    def _num_replicas_in_sync(self) -> int:
        return self._replicas

    def _use_merge_call(self) -> bool:
        return False  # optimizers then ask for an all-reduce in the replica's own program

    def _replica_ctx_all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
        mean = reduce_op == tf.distribute.ReduceOp.MEAN
        return tf.nest.map_structure(lambda tensor: self._all_reduce(tensor, mean=mean), value)

    def _all_reduce(self, tensor: Any, *, mean: bool) -> Any:
        dense = tf.convert_to_tensor(tensor)  # the gradient of an embedding comes as rows, and is summed whole
        total = gen_xla_ops.xla_all_reduce(
            dense, group_assignment=[list(range(self._replicas))], reduce_op="Add", mode="CrossReplica"
        )
        return total / tf.cast(self._replicas, total.dtype) if mean else total
