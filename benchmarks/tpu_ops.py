"""Writes components/lower/tpu_ops.txt: the ops, and their types, that TensorFlow can compile for a TPU.

uv venv /tmp/tpu && VIRTUAL_ENV=/tmp/tpu uv pip install tensorflow-tpu==2.19.1
/tmp/tpu/bin/python benchmarks/tpu_ops.py > components/lower/tpu_ops.txt                    10 seconds, and no TPU

It needs tensorflow-tpu, which can't be installed beside the tensorflow of this checkout.
"""

import os

# libtpu otherwise asks Google's metadata server which TPU it is on, for minutes where there is none.
os.environ.update(TPU_SKIP_MDS_QUERY="1", TPU_ACCELERATOR_TYPE="v5litepod-4", TPU_WORKER_HOSTNAMES="localhost")

import tensorflow as tf
from tensorflow.python.framework import dtypes, kernels

BRIDGE = "XLA_TPU_JIT"
Types = tuple[str, ...]


def register() -> None:
    """Compiles something: the kernels are registered with that."""
    add = tf.function(lambda x: x + 1, jit_compile=True)
    add.experimental_get_compiler_ir(tf.TensorSpec((2,)))(stage="hlo", platform_name="TPU")


def kernels_by_op() -> dict[str, dict[str, Types]]:
    """Returns the types that each type attribute of each op may have; an op's kernels taken together."""
    found: dict[str, dict[str, set[str]]] = {}
    for kernel in kernels.get_all_registered_kernels().kernel:
        if kernel.device_type == BRIDGE:
            attributes = found.setdefault(kernel.op, {})
            for constraint in kernel.constraint:
                types = {dtypes.as_dtype(value).name for value in constraint.allowed_values.list.type}
                attributes.setdefault(constraint.name, set()).update(types)
    return {op: {name: tuple(sorted(types)) for name, types in sorted(found[op].items())} for op in sorted(found)}


def main() -> None:
    """Prints the file."""
    register()
    ops = kernels_by_op()
    sets = sorted({types for attributes in ops.values() for types in attributes.values()})
    names = {types: f"t{number}" for number, types in enumerate(sets)}
    print(f"# {len(ops)} ops with kernels for {BRIDGE}, tensorflow-tpu {tf.__version__}: by benchmarks/tpu_ops.py")
    print("# First sets of types, then each op with the set for each of its type attributes.")
    for types, name in names.items():
        print(f"{name} = {' '.join(types)}")
    for op, attributes in ops.items():
        print(" ".join([op, *(f"{name}:{names[types]}" for name, types in attributes.items())]))


if __name__ == "__main__":
    main()
