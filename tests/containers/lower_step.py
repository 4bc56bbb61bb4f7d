"""Writes the training step of the MNIST model as XLA's program to standard output: the custom loop's own step.

Run in the `cpu` image: tensorflow-tpu lowers nothing for a CPU, and for a TPU only what has no variables.
"""

import sys

import tensorflow as tf

from components.dataset.manifest import Feature
from components.models import registry
from components.train.custom_loop import CustomLoop
from components.train.optimizer import make_optimizer
from components.train.options import TrainOptions

BATCH = 64

options = TrainOptions(builder="image_classifier", epochs=1, global_batch_size=BATCH, checkpoint_dir="")
model = registry.build("image_classifier", {}, {"image": Feature("uint8", (28, 28, 1))}, 10)
optimizer = make_optimizer(options, 100)
optimizer.build(model.trainable_variables)
loop = CustomLoop(
    strategy=tf.distribute.get_strategy(),
    model=model,
    optimizer=optimizer,
    global_batch_size=BATCH,
    steps_per_execution=1,
)


@tf.function(jit_compile=True, autograph=False)
def step(images, labels):
    loop._train_step(({"image": images}, labels))


specs = tf.TensorSpec((BATCH, 28, 28, 1)), tf.TensorSpec((BATCH,), tf.int32)
program = step.experimental_get_compiler_ir(*specs)(stage="hlo_serialized", device_name="/device:CPU:0")
sys.stdout.buffer.write(program)
