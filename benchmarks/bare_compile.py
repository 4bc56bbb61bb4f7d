"""Traces a run's step and compiles it for v5e-4, and nothing else: what preflight is compared with.

python benchmarks/bare_compile.py CONFIG
"""

import os
import sys
from pathlib import Path

os.environ.update(JAX_PLATFORMS="cpu", TPU_SKIP_MDS_QUERY="1", TPU_ACCELERATOR_TYPE="v5litepod-4")
os.environ.update(TPU_WORKER_HOSTNAMES="localhost", TF_USE_LEGACY_KERAS="1")

import jax  # noqa: F401 - makes the compiler known
import numpy as np
import tensorflow as tf
from jax._src.lib import xla_client
from jax.experimental import topologies

from components.dataset.manifest import Feature
from components.lower.replicas import AllReplicas
from components.train.options import TrainOptions
from components.train.setup import make_loop, make_model
from components.worker import options_of
from pipelines.config import load, parameters

REPLICAS = 4

config = load(Path(sys.argv[1]))
options = options_of(TrainOptions, parameters(config) | {"device": "tpu", "replicas": REPLICAS})
image = options.builder == "image_classifier"
tokens = Feature("int32", (config.data.max_length,))
features = (
    {"image": Feature("uint8", (28, 28, 1))}
    if image
    else dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), tokens)
)
strategy = AllReplicas(REPLICAS)
model, optimizer = make_model(strategy, options, features, 10 if image else 5, total_steps=100)
loop = make_loop(strategy, options, model, optimizer)


@tf.function(jit_compile=True, autograph=False)
def step(*tensors):  # noqa: D103
    strategy.run(loop.step, args=((dict(zip(features, tensors, strict=False)), tensors[-1]),))


dtype = tf.float32 if image else tf.int32
batch = options.replica_batch_size
specs = [tf.TensorSpec((batch, *feature.shape), dtype) for feature in features.values()]
program = step.experimental_get_compiler_ir(*specs, tf.TensorSpec((batch,), tf.int32))(
    stage="hlo_serialized", device_name="/device:CPU:0"
)
text = xla_client._xla.mlir.xla_computation_to_mlir_module(xla_client.XlaComputation(program))
devices = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2", chips_per_host_bounds=(2, 2, 1)).devices
compile_options = xla_client.CompileOptions()
compile_options.num_replicas = REPLICAS
assignment = xla_client.DeviceAssignment.create(np.arange(REPLICAS)[:, None])
compile_options.executable_build_options.device_assignment = assignment
executable = devices[0].client.compile(text.encode(), compile_options)
print(executable.get_compiled_memory_stats())
