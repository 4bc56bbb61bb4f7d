import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from components.dataset.manifest import Feature, Manifest, Tokenizer
from components.errors import ModelError
from components.models import arguments, registry, saved
from components.models.saved import ModelDescription

FEATURES = {"image": Feature("uint8", (4, 4, 1))}
MODEL = ModelDescription(
    task="image_classification",
    builder="image_classifier",
    arguments={"filters": [2.0], "kernel_size": 3.0, "dense_units": [3.0]},
    class_names=("a", "b", "c"),
    features=FEATURES,
    tokenizer=None,
    precision="float32",
    step=5,
    metric={"loss": 0.5},
    dataset_digest="f",
)
MANIFEST = Manifest("image_classification", FEATURES, ("a", "b", "c"), {}, "local://x", "f")


def test_written_and_read_back(tmp_path):
    for model in (MODEL, dataclasses.replace(MODEL, tokenizer=Tokenizer("t", "0", 8, True))):
        model.save(str(tmp_path))
        assert saved.load(str(tmp_path)) == model


def test_without_model_json_training_did_not_finish(tmp_path):
    with pytest.raises(ModelError, match=r"no model\.json, so training did not finish"):
        saved.load(str(tmp_path))


@pytest.mark.parametrize("change", [{"format_version": 2}, {"surprise": 1}, {"features": 3}])
def test_another_format_is_refused(tmp_path, change):
    Path(tmp_path, "model.json").write_text(json.dumps(dataclasses.asdict(MODEL) | change))
    with pytest.raises(ModelError, match=r"no model\.json of format 1"):
        saved.load(str(tmp_path))


def test_restored_model_answers_the_same(tmp_path):
    model = registry.build(MODEL.builder, MODEL.arguments, FEATURES, 3)
    tf.train.Checkpoint(model=model).write(str(tmp_path / "best" / "ckpt"))
    image = tf.random.stateless_uniform([2, 4, 4, 1], [1, 2])
    restored = MODEL.restore(str(tmp_path))
    np.testing.assert_array_equal(restored({"image": image}), model({"image": image}))


@pytest.mark.parametrize(
    "other", [{"filters": [3.0]}, {"dense_units": [3.0, 4.0]}, {"dense_units": []}], ids=["shape", "more", "fewer"]
)
def test_checkpoint_of_another_model_is_refused(tmp_path, other):
    model = registry.build(MODEL.builder, MODEL.arguments | other, FEATURES, 3)
    tf.train.Checkpoint(model=model).write(str(tmp_path / "best" / "ckpt"))
    with pytest.raises(ModelError, match="does not restore the model"):
        MODEL.restore(str(tmp_path))


def test_missing_checkpoint_is_refused(tmp_path):
    with pytest.raises(ModelError, match="does not restore the model"):
        MODEL.restore(str(tmp_path))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"class_names": ("b", "a", "c")}, "class names, in the order of the logits"),
        ({"class_names": ("a", "b")}, "class names"),
        ({"features": {"image": Feature("uint8", (5, 4, 1))}}, "features"),
        ({"tokenizer": Tokenizer("t", "0", 8, True)}, "tokenizer"),
    ],
)
def test_data_set_that_does_not_fit_is_refused(change, what):
    MODEL.check_dataset(MANIFEST)
    with pytest.raises(ModelError, match=what):
        MODEL.check_dataset(dataclasses.replace(MANIFEST, **change))


def test_reference_within_and_beyond_the_tolerance(tmp_path):
    reference = np.array([[0.9, 0.1], [0.2, 0.8]])
    saved.save_reference(str(tmp_path), reference)
    more = np.concatenate([reference, [[0.5, 0.5]]])
    assert saved.check_against_reference(str(tmp_path), more, "float32") < 1e-6
    off = more + np.array([[1e-3, -1e-3], [0, 0], [0, 0]])
    with pytest.raises(ModelError, match=r"by up to 0\.001 \(allowed: 0\.0001\)"):
        saved.check_against_reference(str(tmp_path), off, "float32")
    assert saved.check_against_reference(str(tmp_path), off, "bfloat16") == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("probabilities", [np.full([2, 2], np.nan), np.full([1, 2], 0.5), np.full([2, 3], 1 / 3)])
def test_reference_is_not_met_by_nan_or_another_shape(tmp_path, probabilities):
    saved.save_reference(str(tmp_path), np.full([2, 2], 0.5))
    with pytest.raises(ModelError):
        saved.check_against_reference(str(tmp_path), probabilities, "float32")


def test_numbers_that_a_pipeline_made_floats_are_whole_again():
    model = registry.build("image_classifier", {"filters": [2.0], "dense_units": [3.0]}, FEATURES, 3)
    # 3·3·1·2 + 2 for the convolution, 2·2·2·3 + 3 and 3·3 + 3 for the dense layers.
    assert model.count_params() == 20 + 27 + 12
    with pytest.raises(ModelError, match=r"model\.arguments\.filters\[0\] is 2\.5"):
        registry.build("image_classifier", {"filters": [2.5]}, FEATURES, 3)
    with pytest.raises(ModelError, match="true or false"):
        arguments.flag("pool", "false")


def test_unknown_builder_and_argument_are_named():
    with pytest.raises(ModelError, match=r"Did you mean 'image_classifier'\?"):
        registry.find("image_clasifier")
    with pytest.raises(ModelError, match=r"can't be imported"):
        registry.find("no_such_package:build")
    with pytest.raises(ModelError, match=r"it takes filters, kernel_size"):
        registry.build("image_classifier", {"filter": [2]}, FEATURES, 3)


def test_builder_of_the_users_own_is_checked(tmp_path, monkeypatch):
    Path(tmp_path, "my_builders.py").write_text(
        "import tf_keras\n"
        "def narrow(*, features, num_classes):\n"
        "    image = tf_keras.layers.Input(features['image'].shape)\n"
        "    out = tf_keras.layers.Dense(num_classes - 1)(tf_keras.layers.Flatten()(image))\n"
        "    return tf_keras.Model({'image': image}, out)\n"
        "def nothing(*, features, num_classes):\n"
        "    return 'model'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModelError, match=r"shape \(2, 2\) for two examples, expected float32 logits of shape \(2, 3\)"):
        registry.build("my_builders:narrow", {}, FEATURES, 3)
    with pytest.raises(ModelError, match=r"returned a builtins\.str"):
        registry.build("my_builders:nothing", {}, FEATURES, 3)


def test_images_that_shrink_to_nothing_are_refused():
    with pytest.raises(ModelError, match="shrink"):
        registry.build("image_classifier", {"filters": [2, 2]}, {"image": Feature("uint8", (4, 4, 1))}, 3)
