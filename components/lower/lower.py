"""The training step as XLA's program: the one that training runs, of one replica among all of a slice."""

import traceback
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tf_keras

from components.dataset.description import Description
from components.dataset.manifest import Feature
from components.errors import DataError, ProgramError, TpuPipelinesError
from components.lower import faults
from components.lower.explain import explain
from components.lower.replicas import AllReplicas
from components.models import registry
from components.program import Program
from components.step import log
from components.train.custom_loop import CustomLoop
from components.train.fit_loop import FitLoop
from components.train.options import TrainOptions
from components.train.setup import in_order_of_logits, make_loop, make_model, whole_steps


def lower(options: TrainOptions, description: Description, folder: str) -> Program:
    """Writes the training step's program: forward, backward, all-reduce of the gradients, and the optimizer's update.

    The step is the loop's own (`FitLoop.step`, `CustomLoop.step`), traced for the shapes that every batch of the data
    set has, the model's variables being the program's arguments.

    Args:
        options: What to train and how; `options.replicas` are the slice's.
        description: What the data set's examples are.
        folder: Where to write it, `program.json` last.

    Returns:
        What `program.json` says.

    Raises:
        ProgramError: if the step has what a TPU can't run, naming it.
        ConfigError: if the class weights don't go with the classes.
        DataError: if a feature has no fixed shape, or the training split fills no batch.
        ModelError: if the builder refuses its arguments or the features.
    """
    tf_keras.backend.clear_session()  # layers of an earlier job would give these other names
    strategy = AllReplicas(options.replicas)
    in_order_of_logits(options.class_weights, description.class_names)
    examples = description.train_examples
    steps = 1 if examples is None else options.epochs * whole_steps(examples, options.global_batch_size)
    model, optimizer = make_model(
        strategy,
        options,
        description.features,
        description.num_classes,
        total_steps=steps,
    )
    parameters = model.count_params()
    log.info("%s: %s parameters; tracing its step", options.builder, f"{parameters:,}")
    loop = make_loop(strategy, options, model, optimizer)
    specs = batch_specs(description.features, options.replica_batch_size, weighted=bool(options.class_weights))
    program = Program(
        builder=options.builder,
        parameters=parameters,
        replicas=options.replicas,
        global_batch_size=options.global_batch_size,
        epochs=options.epochs,
        precision=options.precision,
        train_examples=description.train_examples,
        padding=description.padding,
    )
    program.save(folder, _hlo(strategy, loop, list(description.features), specs))
    return program


def _hlo(strategy: AllReplicas, loop: FitLoop | CustomLoop, names: list[str], specs: list[Any]) -> bytes:
    """Returns a loop's step as a serialized `xla.HloModuleProto`.

    Args:
        strategy: The strategy in whose scope the loop was made.
        loop: The loop.
        names: Names of the features, in the order of their specs.
        specs: Of each feature, the labels, and maybe the weights.
    """

    # A TPU compiles the step and nothing around it. XLA takes its arguments one by one. With AutoGraph, as in training.
    @tf.function(jit_compile=True)
    def step(*tensors: Any) -> None:
        features = dict(zip(names, tensors, strict=False))
        strategy.run(loop.step, args=((features, *tensors[len(names) :]),))

    try:
        graph = step.get_concrete_function(*specs).graph
    except TpuPipelinesError:
        raise
    except Exception as error:  # a user's model may raise whatever it likes while it is traced
        log.info(traceback.format_exc())
        raise ProgramError(explain(error)) from error
    if found := faults.find(graph):
        raise ProgramError(faults.sentence(found))
    try:
        program = step.experimental_get_compiler_ir(*specs)(stage="hlo_serialized", device_name="/device:CPU:0")
    except (tf.errors.OpError, ValueError, TypeError, NotImplementedError) as error:
        raise ProgramError(explain(error, graph)) from error
    return bytes(program)


def batch_specs(features: Mapping[str, Feature], batch_size: int, *, weighted: bool) -> list[Any]:
    """Returns the specs of one replica's batch: its features, int32 labels `[batch]`, and maybe float32 weights.

    Raises:
        DataError: if a feature has a dimension of no fixed size.
    """
    for name, feature in features.items():
        if not all(isinstance(size, int) and size > 0 for size in feature.shape):
            raise DataError(
                f"The feature {name} has the shape {feature.shape}: a TPU's program needs every size to be fixed; pad "
                "texts to data.max_length, and make all images one size."
            )
    return [
        *(
            tf.TensorSpec((batch_size, *feature.shape), registry.model_dtype(feature), name)
            for name, feature in features.items()
        ),
        tf.TensorSpec((batch_size,), tf.int32, "label"),
        *([tf.TensorSpec((batch_size,), tf.float32, "weight")] if weighted else []),
    ]
