"""Training steps through the whole way: TensorFlow's lowering and the TPU's real compiler, against hand counts."""

import re

import pytest

from components.errors import ProgramError
from components.preflight.slices import Slice
from components.worker import Worker
from pipelines import machines
from pipelines.config import parse
from pipelines.preflight import request

pytestmark = pytest.mark.slow

CLASSES = 10
DENSE = {"builder": "tests.preflight.dense:build", "arguments": {"units": 64}}


@pytest.fixture(scope="module")
def workers():
    with Worker("components.lower") as lower, Worker("components.preflight") as compiler:
        yield lower, compiler


def images(height=28, width=28, channels=1):
    features = {"image": {"dtype": "uint8", "shape": [height, width, channels]}}
    return described("image_classification", features)


def tokens(length):
    names = ("input_ids", "attention_mask", "token_type_ids")
    return described("text_classification", {name: {"dtype": "int32", "shape": [length]} for name in names})


def described(task, features):
    names = [f"class {number}" for number in range(CLASSES)]
    known = {"train_examples": 100_000, "exact": True, "padding": None, "tokenizer": None}
    return {"task": task, "features": features, "class_names": names, **known}


@pytest.fixture
def preflight(workers, tmp_path, monkeypatch):
    """Returns a function that lowers and compiles a step."""

    def run(machine, description, *, builder="image_classifier", arguments=None, **training):
        config = parse(
            {
                "name": "test",
                "data": {"source": "sample://mnist"},
                "model": {"builder": "image_classifier"},
                "training": {"epochs": 1, "global_batch_size": 256, **training},
                "machine": {"name": machine},
            },
            "test",
        )
        row = machines.find(machine)
        settings = request.settings(config, row) | {"builder": builder, "arguments": arguments or {}}
        lower, compiler = workers
        lower.do({"settings": settings, "description": description, "program": str(tmp_path)})
        return compiler.do({"program": str(tmp_path), "slice": request.slice_of(row).to_json()})

    return run


def mnist_flops(batch):
    """The multiply-adds of the TPU guide's CNN, times two; of the first layer no gradient of its input is needed."""
    first, second = 26 * 26 * 9 * 1 * 256, 24 * 24 * 9 * 256 * 256
    dense = 24 * 24 * 256 * 256 + 256 * 128 + 128 * CLASSES
    return 2 * batch * (2 * first + 3 * second + 3 * dense)


@pytest.mark.parametrize("loop", ["fit", "custom"])
def test_the_mnist_step_for_v5e_4(preflight, loop):
    report = preflight("v5e-4", images(), loop=loop, global_batch_size=1024)
    assert report["verdict"] == "fits"
    assert report["work"]["flops"] == mnist_flops(256)
    # Adam's two moments beside the weights, all float32; and the batch.
    weights = 4 * report["parameters"]
    assert report["memory"]["arguments"] == pytest.approx(3 * weights + 256 * 28 * 28 * 4, rel=0.01)
    assert report["work"]["all_reduce_bytes"] == pytest.approx(weights, rel=0.001)
    assert report["memory"]["aliases"] == pytest.approx(3 * weights, rel=0.01)  # updated in place
    assert 0 < report["memory"]["peak"] < report["usable_bytes"]
    assert report["estimate"]["step_seconds"] > report["estimate"]["compute_seconds"] > 0


SMALL_BERT = {
    "model_type": "bert",
    "hidden_size": 256,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "vocab_size": 2000,
}


def bert_layer_flops(batch, length, hidden, intermediate):
    """The multiply-adds of a BERT layer, times two: forward, and twice that backward."""
    projections = 4 * length * hidden * hidden  # query, key, value, output
    attention = 2 * length * length * hidden  # scores, and what they weigh
    feed_forward = 2 * length * hidden * intermediate
    return 3 * 2 * batch * (projections + attention + feed_forward)


def test_a_small_bert_for_v3_8_and_what_one_more_layer_costs(preflight):
    one, two = (
        preflight(
            "v3-8",
            tokens(128),
            builder="text_classifier",
            arguments={"config": SMALL_BERT | {"num_hidden_layers": layers}},
            optimizer="adamw",
            clip_norm=1.0,
        )
        for layers in (1, 2)
    )
    assert (one["verdict"], two["verdict"]) == ("fits", "fits")
    more = two["work"]["flops"] - one["work"]["flops"]
    assert more == pytest.approx(bert_layer_flops(32, 128, 256, 1024), rel=0.02)
    assert two["work"]["hbm_bytes"] > one["work"]["hbm_bytes"]


def test_a_dense_layer(preflight):
    wide, narrow = (
        preflight("v5e-1", images(), builder="tests.preflight.dense:build", arguments={"units": units})["work"]["flops"]
        for units in (512, 256)
    )
    # The layer's input needs no gradient; the logits' layer, whose input does, grows too.
    by_hand = 2 * 256 * 256 * (2 * 28 * 28 + 3 * CLASSES)
    assert wide - narrow == pytest.approx(by_hand, rel=0.02)


def test_a_batch_that_nearly_fits_names_the_op_of_the_largest_piece(preflight):
    report = preflight("v5e-1", images(), global_batch_size=14_336)
    assert report["verdict"] == "does not fit"
    assert "memory" not in report
    assert report["needed_bytes"] > report["usable_bytes"]
    named = r"the largest piece is f32\[14336,24,24,256\] of \S*image_classifier/\S+, [\d.]+GB"
    assert re.search(named, report["sentence"])


def test_class_weights_are_part_of_the_batch(preflight):
    plain, weighted = (
        preflight("v5e-1", images(), **DENSE, class_weights=weights)["memory"]["arguments"]
        for weights in ({}, {"class 1": 2.0})
    )
    assert weighted > plain


def test_a_loop_in_the_model_is_counted_round_by_round(preflight):
    report = preflight("v5e-1", images(), builder="tests.preflight.dense:recurrent", global_batch_size=64)
    units, rounds = 128, 28
    forward = 2 * 64 * rounds * 4 * units * (28 + units)
    # Backward: the weights' gradients, and the state's; the input needs none.
    backward = 2 * 64 * rounds * 4 * units * (28 + units + units)
    logits = 3 * 2 * 64 * units * CLASSES
    assert report["work"]["flops"] == pytest.approx(forward + backward + logits, rel=0.02)


def test_the_compiler_knows_every_slice_and_no_other(workers):
    _, compiler = workers
    slices = [request.slice_of(row).to_json() for row in machines.TPU_MACHINES.values() if row.compiler_topology]
    odd = Slice.from_json(slices[0] | {"name": "v9-8", "topology": "v9:2x2"}).to_json()
    known = compiler.do({"known": [*slices, odd]})["known"]
    assert known == ["v2-8", "v3-8", "v5e-1", "v5e-4", "v5e-8", "v6e-1", "v6e-4", "v6e-8"]


def test_a_fault_is_named_and_the_worker_goes_on(preflight):
    with pytest.raises(ProgramError, match=r"EagerPyFunc \(model/faulty/EagerPyFunc, faulty_models\.py:\d+\)"):
        preflight("v5e-4", images(), builder="benchmarks.faulty_models:py_function")
    assert preflight("v5e-1", images(), **DENSE)["verdict"] == "fits"
