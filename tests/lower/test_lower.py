"""The program of a step: the loop's own, among all replicas, for every model and setting that trains."""

import pytest
import tensorflow as tf
import tf_keras

from components import program as programs
from components.dataset.description import Description
from components.dataset.manifest import Feature
from components.errors import ConfigError, DataError, ProgramError
from components.lower.lower import batch_specs, lower
from components.lower.replicas import AllReplicas
from components.train.options import TrainOptions

IMAGES = {"image": Feature("uint8", (12, 12, 1))}
TOKENS = {name: Feature("int32", (16,)) for name in ("input_ids", "attention_mask", "token_type_ids")}
TINY_BERT = {
    "model_type": "bert",
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 100,
}
CNN = {"builder": "image_classifier", "arguments": {"filters": [4], "dense_units": [8], "dropout": 0.5, "shift": 2}}
BERT = {"builder": "text_classifier", "arguments": {"config": TINY_BERT}}


def described(features, examples=1000):
    return Description(
        task="image_classification",
        features=features,
        class_names=("neg", "pos"),
        train_examples=examples,
        exact=True,
        padding=0.25,
        tokenizer=None,
    )


def options(**changes):
    defaults = {"epochs": 3, "global_batch_size": 32, "replicas": 4, "checkpoint_dir": ""}
    return TrainOptions(**{**defaults, **CNN, **changes})


@pytest.mark.parametrize("loop", ["fit", "custom"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("model", "features"), [(CNN, IMAGES), pytest.param(BERT, TOKENS, marks=pytest.mark.slow)], ids=["cnn", "bert"]
)
def test_every_model_becomes_a_program(tmp_path, loop, precision, model, features):
    result = lower(
        options(loop=loop, precision=precision, optimizer="adamw", weight_decay=0.1, clip_norm=1.0, **model),
        described(features),
        str(tmp_path),
    )
    loaded, hlo = programs.load(str(tmp_path))
    assert loaded == result
    assert (result.replicas, result.global_batch_size, result.epochs) == (4, 32, 3)
    assert (result.train_examples, result.padding, result.precision) == (1000, 0.25, precision)
    assert b"all-reduce" in hlo
    assert b"XlaAllReduce" in hlo


@pytest.mark.parametrize("loop", ["fit", "custom"])
def test_the_step_is_the_loops_own(tmp_path, monkeypatch, loop):
    from components.train.custom_loop import CustomLoop
    from components.train.fit_loop import FitLoop

    traced = []
    cls = {"fit": FitLoop, "custom": CustomLoop}[loop]
    own = cls.step
    monkeypatch.setattr(cls, "step", lambda self, batch: traced.append(batch) or own(self, batch))
    lower(options(loop=loop, class_weights={"pos": 2.0}), described(IMAGES), str(tmp_path))
    ((features, labels, weights),) = traced
    assert features["image"].shape == (8, 12, 12, 1)
    assert (features["image"].dtype, labels.dtype, weights.dtype) == (tf.float32, tf.int32, tf.float32)
    assert labels.shape == weights.shape == (8,)


def test_the_replicas_add_up_as_they_do_in_training():
    strategy = AllReplicas(8)
    assert strategy.num_replicas_in_sync == 8

    @tf.function(jit_compile=True, autograph=False)
    def step(x):
        def sums():
            context = tf.distribute.get_replica_context()
            return context.all_reduce("SUM", x), context.all_reduce("MEAN", x)

        return strategy.run(sums)

    text = step.experimental_get_compiler_ir(tf.TensorSpec((4,)))(stage="hlo", device_name="/device:CPU:0")
    assert text.count("replica_groups={{0,1,2,3,4,5,6,7}}") == 2
    assert "divide" in text


def test_a_rare_gradient_is_summed_whole():
    """The gradient of an embedding comes as the rows that were looked up; TPUStrategy sums the table."""
    strategy = AllReplicas(2)
    with strategy.scope():
        table = tf.Variable(tf.zeros([50, 4]))
        optimizer = tf_keras.optimizers.SGD(0.1)
        optimizer.build([table])

    @tf.function(jit_compile=True, autograph=False)
    def step(rows):
        def one():
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.gather(table, rows))
            optimizer.apply_gradients([(tape.gradient(loss, table), table)])

        strategy.run(one)

    spec = tf.TensorSpec((3,), tf.int32)
    text = step.experimental_get_compiler_ir(spec)(stage="hlo", device_name="/device:CPU:0")
    assert "f32[50,4]{1,0} all-reduce" in text.replace("(", " ")


def test_the_batch_has_the_types_that_the_reader_gives():
    image, tokens, label, weight = batch_specs(
        {"image": Feature("uint8", (28, 28, 1)), "ids": Feature("int32", (7,))}, 8, weighted=True
    )
    assert (image.shape, image.dtype) == ((8, 28, 28, 1), tf.float32)
    assert (tokens.shape, tokens.dtype, tokens.name) == ((8, 7), tf.int32, "ids")
    assert (label.dtype, weight.dtype) == (tf.int32, tf.float32)


@pytest.mark.parametrize("shape", [(None,), (28, None, 1), (-1,), (0,)])
def test_a_shape_that_is_not_fixed_is_refused(shape):
    with pytest.raises(DataError, match=r"The feature ids has the shape .*every size to be fixed"):
        batch_specs({"ids": Feature("int32", shape)}, 8, weighted=False)


def test_what_training_would_refuse_is_refused_here(tmp_path):
    with pytest.raises(DataError, match="an epoch would have no step"):
        lower(options(), described(IMAGES, examples=31), str(tmp_path))
    with pytest.raises(ConfigError, match="Did you mean 'pos'"):
        lower(options(class_weights={"poss": 2.0}), described(IMAGES), str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_split_of_unknown_size_is_no_fault(tmp_path):
    assert lower(options(), described(IMAGES, examples=None), str(tmp_path)).train_examples is None


def test_a_fault_leaves_no_program(tmp_path):
    with pytest.raises(ProgramError, match=r"EagerPyFunc \(model/faulty/EagerPyFunc, faulty_models\.py:\d+\)"):
        lower(options(builder="benchmarks.faulty_models:py_function", arguments={}), described(IMAGES), str(tmp_path))
    assert list(tmp_path.iterdir()) == []


class Branching(tf_keras.Model):
    def __init__(self):
        super().__init__()
        self.dense, self.flat = tf_keras.layers.Dense(2, dtype="float32"), tf_keras.layers.Flatten()

    def call(self, inputs, training=False):
        x = self.flat(inputs["image"])
        if training and tf.reduce_sum(x) > 1e9:  # a tensor: AutoGraph makes it a branch of the graph
            x = x * 2
        return self.dense(x)


def branching(*, features, num_classes):
    return Branching()


@pytest.mark.parametrize("loop", ["fit", "custom"])
def test_python_that_autograph_makes_a_graph_of_in_training_is_one_here(tmp_path, loop):
    lower(options(builder=f"{__name__}:branching", arguments={}, loop=loop), described(IMAGES), str(tmp_path))
    assert b"conditional" in programs.load(str(tmp_path))[1]
