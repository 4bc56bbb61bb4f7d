"""What no TPU runs is named in the graph of a step; what one runs is not."""

import re
import tomllib
from pathlib import Path

import pytest
import tensorflow as tf
import tf_keras
from tensorflow.python.framework import dtypes, kernels
from tf_keras import layers

from components.lower import faults
from components.lower.explain import explain
from components.lower.replicas import AllReplicas
from components.train.optimizer import make_optimizer
from components.train.options import TrainOptions
from components.train.setup import make_loop


def found(function, *specs):
    """Returns the faults of a function's graph: op, name and source of each."""
    graph = tf.function(function, autograph=False).get_concrete_function(*specs).graph
    return faults.find(graph)


VECTOR = tf.TensorSpec((8,), tf.float32, "x")


def unresolved(x):
    with tf.name_scope("model"), tf.name_scope("rotate"):
        return tf.raw_ops.ImageProjectiveTransformV3(
            images=tf.reshape(x, [1, 2, 2, 2]),
            transforms=tf.zeros([1, 8]),
            output_shape=[2, 2],
            fill_value=0.0,
            interpolation="NEAREST",
        )


@pytest.mark.parametrize(
    ("function", "op", "advice"),
    [
        (unresolved, "ImageProjectiveTransformV3", "slices and gathers"),
        (lambda x: tf.py_function(lambda v: v, [x], tf.float32), "EagerPyFunc", "TensorFlow's ops"),
        (lambda x: tf.numpy_function(lambda v: v, [x], tf.float32), "PyFunc", "TensorFlow's ops"),
        (lambda x: tf.strings.to_number(tf.strings.as_string(x)), "AsString", "when the data is prepared"),
        (lambda x: tf.boolean_mask(x, x > 0), "Where", "three arguments"),
        (lambda x: tf.where(x > 0), "Where", "three arguments"),
        (lambda x: tf.unique(x).y, "Unique", "one_hot"),
        (lambda x: x[: tf.cast(x[0], tf.int32)], "StridedSlice", "mask"),
        (lambda x: tf.slice(x, [0], [tf.cast(x[0], tf.int32)]), "Slice", "mask"),
        (lambda x: tf.image.non_max_suppression(tf.reshape(x, [2, 4]), x[:2], 1), "NonMaxSuppressionV3", "padded"),
        (lambda x: tf.linalg.eig(tf.reshape(x[:4], [2, 2])), "Eig", "eigh"),
        (lambda x: tf.dynamic_partition(x, tf.cast(x > 0, tf.int32), 2), "DynamicPartition", "mask"),
        (lambda x: tf.image.resize(tf.reshape(x, [2, 2, 2]), [4, 4], "bicubic"), "ResizeBicubic", "bilinear"),
        (lambda x: tf.math.real(tf.cast(x, tf.complex128)), "Cast", "complex64"),
    ],
)
def test_an_op_is_named_with_its_line_and_advice(function, op, advice):
    fault = found(function, VECTOR)[0]
    assert fault.op == op
    assert fault.source.startswith("test_faults.py:")
    assert advice in str(fault)
    assert str(fault).endswith(".")


def test_the_name_has_the_scopes_in_it():
    (fault,) = found(unresolved, VECTOR)
    assert fault.name == "model/rotate/ImageProjectiveTransformV3"
    assert str(fault).startswith("ImageProjectiveTransformV3 (model/rotate/ImageProjectiveTransformV3, test_faults.py:")


def test_a_print_is_a_fault_though_nothing_needs_its_result():
    def function(x):
        tf.print("x:", x)
        return x + 1

    assert [fault.op for fault in found(function, VECTOR)] == ["StringFormat", "PrintV2"]
    assert "There is 1 more: PrintV2." in faults.sentence(found(function, VECTOR))


def test_what_nothing_needs_is_no_fault():
    def function(x):
        tf.strings.as_string(x)
        return x + 1

    assert found(function, VECTOR) == []


def test_functions_branches_and_loops_are_looked_into():
    inner = tf.function(lambda x: tf.boolean_mask(x, x > 0)[0])

    def branch(x):
        return tf.cond(x[0] > 0, lambda: tf.py_function(lambda v: v, [x], tf.float32), lambda: x)

    def loop(x):
        return tf.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v + inner(x)), [0, 0.0])[1]

    assert found(inner, VECTOR)[0].op == "Where"
    assert found(lambda x: inner(x) + 1, VECTOR)[0].op == "Where"
    assert found(branch, VECTOR)[0].op == "EagerPyFunc"
    assert found(loop, VECTOR)[0].op == "Where"


def test_texts_in_the_batch_are_named_by_their_feature():
    (fault,) = found(lambda text: tf.strings.length(text), tf.TensorSpec((8,), tf.string, "review"))
    assert "the input 'review' holds texts" in str(fault)


def test_what_a_tpu_runs_is_no_fault():
    variable, generator = tf.Variable(tf.ones([8, 8])), tf.random.Generator.from_seed(1)

    def function(x):
        tf.debugging.assert_all_finite(x, "not finite")
        tf.debugging.assert_positive(x)
        noise = generator.uniform([8]) + tf.random.stateless_uniform([8], [1, 2])
        total = tf.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2), [0, x])[1]
        chosen = tf.cond(x[0] > 0, lambda: x, lambda: -x)
        table = tf.gather(variable, tf.cast(x, tf.int32))
        values, _ = tf.math.top_k(tf.where(x > 0, x, noise), 3)
        variable.assign_add(tf.linalg.matmul(table, table))
        return tf.reduce_sum(total + chosen) + tf.reduce_sum(values), tf.linalg.svd(table, compute_uv=False)

    assert found(function, VECTOR) == []


def test_what_the_bridge_computes_on_the_host_is_no_fault():
    """Without a value behind it, an op becomes a constant of the program."""
    mask = [True, False] * 4

    def function(x):
        kept = tf.boolean_mask(x, mask) + tf.gather(x, tf.where(mask)[:, 0])
        size = tf.linalg.det(tf.eye(tf.shape(x)[0])) + tf.strings.to_number("1.5")
        return tf.reduce_sum(kept) + size + tf.cast(tf.math.real(tf.cast(tf.ones(2), tf.complex128)), tf.float32)

    assert found(function, VECTOR) == []
    compiled = tf.function(function, jit_compile=True, autograph=False)
    assert "<=" not in compiled.experimental_get_compiler_ir(VECTOR)(stage="hlo")  # a shape that is only bounded


def test_slices_of_a_known_size_are_no_fault():
    """Where they begin may be up to values."""

    def function(x):
        start = tf.cast(x[0], tf.int32)
        half = tf.shape(x)[0] // 2
        return tf.slice(x, [start], [4]), x[start], x[:half], x[half:], tf.reshape(x, [half, -1])

    assert found(function, VECTOR) == []


def test_a_text_from_outside_is_named_by_the_op_that_takes_it():
    text = tf.constant("outside")
    (fault,) = found(lambda x: x + tf.strings.to_number(text), VECTOR)
    assert "takes texts, which no TPU holds" in str(fault)
    assert fault.source.startswith("test_faults.py:")


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("model/faulty/Where", "model/faulty"),
        ("gradient_tape/model/faulty/ResizeBicubicGrad", "model/faulty"),
        ("StatefulPartitionedCall/gradient_tape/model/encoder/faulty/PyFunc", "model/encoder/faulty"),
        ("Where", ""),
    ],
)
def test_the_layer_is_the_scope_without_what_is_put_around_it(name, layer):
    assert faults.Fault("Where", name, "", "", "").layer == layer


class Step:
    """A loop's step of a model with one layer under test."""

    def __init__(self, layer, loop="custom", width=4):
        tf_keras.backend.clear_session()
        options = TrainOptions(
            builder="", epochs=1, global_batch_size=8, checkpoint_dir="", replicas=2, loop=loop, clip_norm=1.0
        )
        strategy = AllReplicas(options.replicas)
        with strategy.scope():
            image = layers.Input((width, width, 1), name="image")
            x = layers.Flatten()(layer(image))
            model = tf_keras.Model({"image": image}, layers.Dense(3)(x), name="model")
            optimizer = make_optimizer(options, 100)
            optimizer.build(model.trainable_variables)
        own = make_loop(strategy, options, model, optimizer)
        self._specs = tf.TensorSpec((4, width, width, 1)), tf.TensorSpec((4,), tf.int32)

        @tf.function(jit_compile=True, autograph=False)
        def step(image, label):
            strategy.run(own.step, args=(({"image": image}, label),))

        self._step = step

    def trace(self):
        return self._step.get_concrete_function(*self._specs).graph

    def lower(self):
        return self._step.experimental_get_compiler_ir(*self._specs)(stage="hlo", device_name="/device:CPU:0")

    def explained(self):
        """What is said of a step in which `find` finds nothing."""
        graph = self.trace()
        assert faults.find(graph) == []
        with pytest.raises(ValueError) as caught:
            self.lower()
        return explain(caught.value, graph)


def line_of(part):
    """Where this file has a text."""
    lines = Path(__file__).read_text().splitlines()
    return f"test_faults.py:{next(number for number, line in enumerate(lines, 1) if part in line)}"


class Asks(layers.Layer):
    """Asks Python for something, in a layer's own `call`."""

    def call(self, x):
        return tf.ensure_shape(tf.numpy_function(abs, [x], tf.float32), x.shape)  # the line of Asks


def masked(x):
    bright = tf.boolean_mask(x, x > 0.5)  # the line of masked
    return x + tf.reduce_sum(bright)


@pytest.mark.parametrize("loop", ["fit", "custom"])
@pytest.mark.parametrize(
    ("layer", "name", "line"),
    [
        (lambda: Asks(name="faulty"), "model/faulty/PyFunc", "# the line of Asks"),
        (lambda: layers.Lambda(masked, name="faulty"), "model/faulty/boolean_mask/Where", "# the line of masked"),
        (lambda: layers.RandomRotation(0.1, name="faulty"), "model/faulty/", ""),
        (lambda: layers.IntegerLookup(vocabulary=[1, 2], name="faulty"), "model/faulty/", ""),
    ],
    ids=["layer", "lambda", "keras", "table"],
)
def test_a_layer_of_a_model_is_named_through_both_loops(layer, name, line, loop):
    graph = Step(layer(), loop).trace()
    fault = faults.find(graph)[0]
    assert fault.name.startswith(name)
    assert fault.layer.startswith("model/faulty")
    assert fault.source == (line_of(line) if line else "")
    assert faults.sentence(faults.find(graph)).startswith(f"The step can't run on a TPU: {fault.op} (model/faulty/")


def usual():
    """Returns a model of Keras's usual layers, in training."""
    return tf_keras.Sequential(
        [
            layers.Rescaling(1 / 255),
            layers.RandomFlip(),
            layers.GaussianNoise(0.1),
            layers.Conv2D(4, 3, padding="same"),
            layers.BatchNormalization(),
            layers.SpatialDropout2D(0.1),
            layers.SeparableConv2D(4, 3, padding="same"),
            layers.Conv2DTranspose(4, 3, strides=2, padding="same"),
            layers.MaxPooling2D(),
            layers.UpSampling2D(interpolation="bilinear"),
            layers.AveragePooling2D(),
            layers.Reshape((16, 4)),
            layers.LayerNormalization(),
            layers.LSTM(4, return_sequences=True),
            layers.Bidirectional(layers.GRU(4, return_sequences=True)),
            layers.Conv1D(4, 3),
            layers.GlobalMaxPooling1D(),
            layers.Dense(4, "gelu", kernel_regularizer="l2"),
        ],
        name="usual",
    )


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["fit", "custom"])
def test_the_usual_layers_are_no_fault(loop):
    step = Step(usual(), loop)
    assert faults.find(step.trace()) == []
    assert step.lower()


def test_what_only_the_tpus_build_can_lower_is_not_said_to_be_impossible():
    layer = tf_keras.Sequential([layers.Conv2D(1, 1), layers.UpSampling2D(name="up")], name="net")
    said = Step(layer).explained()
    assert "ResizeNearestNeighborGrad (gradient_tape/model/net/up/" in said
    assert "runs on a TPU, and only TensorFlow's TPU build can write it" in said
    assert "bilinear" in said


def counted(x):
    count = tf.cast(tf.reduce_sum(x), tf.int32)
    return x + tf.cast(tf.reduce_sum(tf.range(count)), tf.float32)  # the line of counted


def looped(x):
    return tf.while_loop(lambda v: tf.reduce_max(v) < 9, lambda v: (v * 2 + tf.sin(v),), [x])[0]  # the line of looped


def wasted(x):
    tf.strings.as_string(x)  # the line of wasted
    return x


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (counted, ("Range (model/faulty/range, ", "shape that depends on values", "fixed limits")),
        (looped, ("no fixed number of rounds", "maximum_iterations")),
        (wasted, ("AsString (model/faulty/AsString, ", "nothing needs its result", "leave it out")),
    ],
)
def test_an_error_of_lowering_becomes_one_sentence(function, words):
    # Something to learn before the layer: its gradient is what needs the loop's history.
    layer = tf_keras.Sequential([layers.Conv2D(1, 1), layers.Lambda(function, name="faulty")], name="model")
    said = Step(layer).explained()
    for word in words:
        assert word in said.replace("model/model/", "model/")
    assert line_of(f"# the line of {function.__name__}") in said
    assert said.count("\n") == 0


class Late(layers.Layer):
    """Does something, but not while the model is built."""

    def __init__(self, function):
        super().__init__(name="faulty")
        self.function, self.built_whole = function, False

    def call(self, x):
        return self.function(x) if self.built_whole else x


def decides(x):
    return x if tf.reduce_sum(x) > 0 else -x  # the line of decides


def misfits(x):
    return x @ tf.ones((7, 7))  # the line of misfits


def refuses(x):
    raise KeyError("no such feature")  # the line of refuses


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (decides, "Using a symbolic `tf.Tensor` as a Python `bool` is not allowed"),
        (misfits, "Dimensions must be equal, but are 1 and 7 for 'model/faulty/matmul (BatchMatMulV2)'"),
        (refuses, "no such feature"),
    ],
)
@pytest.mark.parametrize("loop", ["fit", "custom"])
def test_an_error_of_tracing_names_the_layer_and_the_line(function, words, loop):
    layer = Late(tf.autograph.experimental.do_not_convert(function))
    step = Step(layer, loop)
    layer.built_whole = True
    with pytest.raises(Exception) as caught:
        step.trace()
    said = explain(caught.value)
    assert said.startswith(f"The step can't be made into a program for a TPU: {words}")
    assert f"(at the layer 'faulty' (Late), {line_of(f'# the line of {function.__name__}')})." in said


def test_autographs_report_of_lines_is_read():
    layer = Late(misfits)
    step = tf.function(layer)
    layer.built_whole = True
    with pytest.raises(ValueError, match="in user code") as caught:
        step.get_concrete_function(tf.TensorSpec((4, 8)))
    said = explain(caught.value)
    assert "ValueError: Dimensions must be equal, but are 8 and 7" in said
    assert f"(at the layer 'faulty' (Late), {line_of('# the line of misfits')})." in said


def test_an_error_of_lowering_names_its_node():
    error = tf.errors.InvalidArgumentError(
        None, None, "Detected at node\n{{node model/x/Foo}} No kernel for Foo.\nmore"
    )
    assert explain(error) == ("The step can't be made into a program for a TPU: No kernel for Foo (at model/x/Foo).")


def test_whatever_this_builds_bridge_takes_a_tpu_takes():
    """Else a step would pass here, and fail on a TPU."""
    tf.function(lambda: tf.constant(0), jit_compile=True).experimental_get_compiler_ir()(stage="hlo")
    here = [kernel for kernel in kernels.get_all_registered_kernels().kernel if kernel.device_type == "XLA_CPU_JIT"]
    known = faults.tpu_ops()
    lacking = {
        dtypes.as_dtype(value).name
        for kernel in here
        for constraint in kernel.constraint
        for value in constraint.allowed_values.list.type
        if dtypes.as_dtype(value).name not in known[kernel.op].get(constraint.name, ())
    }
    assert len({kernel.op for kernel in here}) > 400
    assert lacking == {"complex128"}


def test_the_list_is_of_the_build_that_the_images_have():
    first = faults.TPU_OPS.read_text().splitlines()[0]
    extras = tomllib.loads(Path("pyproject.toml").read_text())["project"]["optional-dependencies"]
    version = re.search(r"tensorflow-tpu ([\d.]+):", first)[1]
    assert extras["tpu"] == [f"tensorflow-tpu=={version}"]
    assert first.startswith(f"# {len(faults.tpu_ops())} ops ")
