"""Finds the machine's devices, makes them replicas, and proves that they compute before training relies on them."""

import logging
import sys
import textwrap
from typing import Any

import numpy as np
import tensorflow as tf

from components.errors import DeviceError, first_line
from components.step import log

_REHEARSE = "to rehearse on this machine's CPU, set machine.name to cpu-8"


def connect(device: str, replicas: int, tpu: str = "local") -> tf.distribute.Strategy:
    """Returns a strategy over the devices of this machine.

    Args:
        device: `cpu`, `gpu` or `tpu`. A TPU that was asked for is never replaced by a CPU.
        replicas: How many replicas there must be.
        tpu: `local` for a TPU attached to this machine (as on Vertex AI), its name, or a grpc address (as in Colab).

    Raises:
        DeviceError: if the devices aren't there.
    """
    match device:
        case "tpu":
            return _connect_tpu(tpu)
        case "gpu":
            found = tf.config.list_physical_devices("GPU")
            if len(found) < replicas:
                raise DeviceError(
                    f"TensorFlow sees {len(found)} GPUs here, machine.name asks for {replicas}; {_REHEARSE}."
                )
            return tf.distribute.MirroredStrategy([f"GPU:{index}" for index in range(replicas)])
        case _:
            _split_cpu(replicas)
            # Collective operations, the default, stall for seconds when CPU replicas outnumber the cores.
            return tf.distribute.MirroredStrategy(
                [f"CPU:{index}" for index in range(replicas)], tf.distribute.ReductionToOneDevice()
            )


def _split_cpu(replicas: int) -> None:
    """Makes the CPU as many logical devices as there are replicas, unless it has that many already."""
    (cpu,) = tf.config.list_physical_devices("CPU")
    configured = tf.config.get_logical_device_configuration(cpu) or []
    if len(configured) >= replicas:
        return
    try:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * replicas)
    except RuntimeError as error:
        raise DeviceError(
            f"TensorFlow already runs with {max(1, len(configured))} logical CPUs in this process, {replicas} are "
            "needed; connect before anything else is computed."
        ) from error


def _connect_tpu(tpu: str) -> tf.distribute.Strategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=tpu)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except (tf.errors.OpError, ValueError, RuntimeError, OSError) as error:
        reason = textwrap.shorten(first_line(error), 120)
        where = "attached to this machine" if tpu == "local" else f"at {tpu!r}"
        raise DeviceError(
            f"There is no TPU {where} that TensorFlow {tf.__version__} can start ({reason}); check the machine and its "
            f"image, or {_REHEARSE}."
        ) from error


# Small whole numbers are exact in bfloat16, the type in which a TPU multiplies, so results must be equal everywhere.
_MATRIX = np.arange(128 * 128, dtype=np.int64).reshape(128, 128) * 7 % 8


def check(strategy: tf.distribute.Strategy, replicas: int) -> None:
    """Multiplies one matrix on one device and on every replica, and compares count and results with what is promised.

    Raises:
        DeviceError: if the number of replicas differs from `replicas`, or a product is wrong.
    """
    devices = [device.name for device in tf.config.list_logical_devices() if "SYSTEM" not in device.device_type]
    log.info("devices: %s", ", ".join(name.removeprefix("/device:") for name in devices))
    if strategy.num_replicas_in_sync != replicas:
        raise DeviceError(
            f"The machine has {strategy.num_replicas_in_sync} replicas, machine.name promises {replicas}: the slice is "
            "not the one that was asked for; correct machine.name, or the job's machine."
        )

    @tf.function
    def product() -> Any:
        matrix = tf.constant(_MATRIX, tf.float32)
        return tf.matmul(matrix, matrix)

    expected = _MATRIX @ _MATRIX
    with tf.device(strategy.extended.worker_devices[0]):
        results = [product()]
    results += strategy.experimental_local_results(tf.function(lambda: strategy.run(product))())
    for index, result in enumerate(results):
        if not np.array_equal(result.numpy(), expected):
            place = "one device" if index == 0 else f"replica {index - 1} of {replicas}"
            raise DeviceError(
                f"A 128x128 matrix product came out wrong on {place}; the machine is faulty, use another."
            )
    log.info("device check: %d replicas, equal and right matrix products", replicas)


def main(device: str, replicas: str) -> None:
    """Runs the device check alone: `python -m components.train.strategy cpu 8`."""
    logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stdout)
    try:
        check(connect(device, int(replicas)), int(replicas))
    except DeviceError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
