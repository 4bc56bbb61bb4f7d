"""Compiles XLA's program on standard input for one chip of TPU v5e, by the compiler in the `tpu` image."""

import os
import sys

# What a machine without a TPU must say of the slice: libtpu otherwise asks for it.
os.environ |= {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",
    "TPU_WORKER_HOSTNAMES": "localhost",
}

import jax  # noqa: F401 - makes the compiler known
import numpy as np
from jax._src.lib import xla_client
from jax.experimental import topologies

program = xla_client._xla.mlir.xla_computation_to_mlir_module(xla_client.XlaComputation(sys.stdin.buffer.read()))
chip = topologies.get_topology_desc(platform="tpu", topology_name="v5e:1x1", chips_per_host_bounds=(1, 1, 1)).devices[0]
options = xla_client.CompileOptions()
options.executable_build_options.device_assignment = xla_client.DeviceAssignment.create(np.array([[0]]))
executable = chip.client.compile(program.encode(), options)
memory = executable.get_compiled_memory_stats()
print(f"{chip.device_kind}: {memory.temp_size_in_bytes} bytes of temporaries")
