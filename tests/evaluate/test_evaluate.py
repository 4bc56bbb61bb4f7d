import dataclasses
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from components.dataset.writer import SplitWriter
from components.errors import ConfigError, DataError, ModelError
from components.evaluate import evaluate as module
from components.evaluate.evaluate import evaluate
from components.models import registry, saved

# Ten examples of three classes. The lit pixel is the model's answer: seven are right, and 1, 4 and 8 are wrong.
LIT = [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
LABELS = [0, 2, 2, 0, 0, 2, 0, 1, 1, 0]


@pytest.mark.parametrize("batch_size", [1, 3, 4, 10, 64])
def test_every_example_counts_whatever_the_batch_size(image_run, batch_size):
    run = image_run(LIT, LABELS)
    metrics = evaluate(run.model, run.dataset, batch_size=batch_size).metrics
    assert (metrics.examples, metrics.correct, metrics.accuracy) == (10, 7, 0.7)
    # 0.9 for the lit class and 0.05 for each other one: seven times -ln 0.9, three times -ln 0.05.
    assert metrics.loss == pytest.approx((7 * -np.log(0.9) + 3 * -np.log(0.05)) / 10, rel=1e-5)
    assert metrics.confusion_matrix == ((4, 1, 0), (0, 1, 1), (0, 1, 2))


def test_the_last_batch_is_padded_so_that_one_shape_is_compiled(image_run, tmp_path, monkeypatch):
    Path(tmp_path, "shape_recorder.py").write_text(
        textwrap.dedent("""
        import tf_keras
        shapes = []

        class Recorder(tf_keras.Model):
            def __init__(self, num_classes):
                super().__init__()
                self.dense = tf_keras.layers.Dense(num_classes)

            def call(self, inputs, training=False):
                shapes.append(tuple(inputs["image"].shape))
                return self.dense(tf_keras.layers.Flatten()(inputs["image"]))

        def build(*, features, num_classes):
            return Recorder(num_classes)
        """)
    )
    monkeypatch.syspath_prepend(tmp_path)
    run = image_run(LIT, LABELS, builder="shape_recorder:build")
    shapes = sys.modules["shape_recorder"].shapes
    shapes.clear()
    assert evaluate(run.model, run.dataset, batch_size=4).metrics.accuracy == 0.7
    # One call on a trial batch of two when the model is restored, one trace; a retrace would be a third.
    assert shapes == [(2, 1, 3, 1), (4, 1, 3, 1)]


def test_probabilities_equal_the_trainers(image_run):
    run = image_run(LIT, LABELS)
    assert evaluate(run.model, run.dataset, batch_size=4).reference_difference < 1e-6


def test_a_model_that_answers_otherwise_than_when_trained_is_refused(image_run):
    reference = np.full([10, 3], 1 / 3)
    run = image_run(LIT, LABELS, reference=reference)
    with pytest.raises(ModelError, match=r"differ from the trainer's by up to 0\.57"):
        evaluate(run.model, run.dataset, batch_size=4)


def test_reference_of_another_number_of_examples_is_refused(image_run):
    run = image_run(LIT, LABELS, reference=np.full([12, 3], 1 / 3))
    with pytest.raises(ModelError, match=r"shape \(12, 3\).*\(10, 3\)"):
        evaluate(run.model, run.dataset, batch_size=4)


def test_reference_is_not_asked_for_data_the_model_was_not_trained_with(image_run):
    run = image_run(LIT, LABELS, reference=np.full([10, 3], 1 / 3))
    run.resave(dataset_digest="9" * 64)
    assert evaluate(run.model, run.dataset, batch_size=4).reference_difference is None


def test_other_class_order_is_refused(image_run):
    run = image_run(LIT, LABELS)
    run.resave(class_names=("b", "a", "c"))
    with pytest.raises(ModelError, match=r"class names, in the order of the logits"):
        evaluate(run.model, run.dataset, batch_size=4)


def test_a_nan_is_an_error_that_names_the_example(image_run):
    run = image_run(LIT, LABELS)
    model = registry.build("image_classifier", run.saved.arguments, run.saved.features, 3)
    weights = np.eye(3, dtype=np.float32)
    weights[2] = np.nan  # 0 · NaN is NaN too, so every example answers with it
    model.set_weights([weights, np.zeros(3, np.float32)])
    tf.train.Checkpoint(model=model).write(f"{run.model}/{saved.BEST_CHECKPOINT}")
    with pytest.raises(ModelError, match=r"test example 0 with NaN"):
        evaluate(run.model, run.dataset, batch_size=4)


def test_a_label_beyond_the_class_names_is_an_error_that_names_the_example(image_run):
    run = image_run(LIT, [*LABELS[:-1], 3])
    with pytest.raises(DataError, match=r"Test example 9 has the label 3.*0 to 2"):
        evaluate(run.model, run.dataset, batch_size=4)


def test_a_changed_shard_of_the_right_size_is_an_error(image_run):
    run = image_run(LIT, LABELS, shard_bytes=10**6)
    shard = Path(run.dataset, "test-00000.tfrecord")
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 0xFF
    shard.write_bytes(bytes(content))
    with pytest.raises(DataError, match=r"can't be read"):
        evaluate(run.model, run.dataset, batch_size=4)


def test_fewer_examples_than_promised_is_an_error(image_run):
    run = image_run(LIT, LABELS, shard_bytes=10**6)
    manifest_file = Path(run.dataset, "manifest.json")
    manifest_file.write_text(manifest_file.read_text().replace('"examples": 10', '"examples": 11'))
    with pytest.raises(DataError, match=r"has 10 examples, the manifest says 11"):
        evaluate(run.model, run.dataset, batch_size=4)


def test_batch_size_must_be_positive(image_run):
    run = image_run(LIT, LABELS)
    with pytest.raises(ConfigError, match="evaluation_batch_size is 0"):
        evaluate(run.model, run.dataset, batch_size=0)


def test_mistakes_come_with_their_image_and_place(image_run):
    run = image_run(LIT, LABELS)
    mistakes = evaluate(run.model, run.dataset, batch_size=4).mistakes
    assert [m.index for m in mistakes] == [1, 4, 8]  # all as confident; of equals, the first
    for mistake in mistakes:
        assert (mistake.label, mistake.prediction) == (LABELS[mistake.index], LIT[mistake.index])
        assert mistake.confidence == pytest.approx(0.9, rel=1e-5)
        assert mistake.label_probability == pytest.approx(0.05, rel=1e-4)
        assert mistake.image.tolist() == np.where(np.arange(3) == mistake.prediction, 255, 0).reshape(1, 3, 1).tolist()
        assert mistake.text is None


def test_only_the_most_confident_mistakes_are_kept(image_run, monkeypatch):
    monkeypatch.setattr(module, "MISTAKES", 3)
    run = image_run([0] * 8, [1] * 8)
    # Dimmer pixels make less confident answers: write the split again with eight brightnesses, shuffled.
    brightness = [40, 200, 10, 255, 120, 90, 160, 220]
    with SplitWriter(run.dataset, "test", run.manifest.features) as writer:
        for value in brightness:
            image = np.zeros([1, 3, 1], np.uint8)
            image[0, 0, 0] = value
            writer.write({"image": image}, 1)
    dataclasses.replace(run.manifest, splits={"test": writer.split}).save(run.dataset)
    run.resave(dataset_digest="other")
    mistakes = evaluate(run.model, run.dataset, batch_size=3).mistakes
    assert [m.index for m in mistakes] == [3, 7, 1]
    assert sorted((m.confidence for m in mistakes), reverse=True) == [m.confidence for m in mistakes]


def test_texts_come_with_the_mistakes(text_run):
    texts = [f"text number {index} ünïcode" for index in range(6)]
    run = text_run(texts, [0, 1, 0, 1, 0, 1])
    evaluation = evaluate(run.model, run.dataset, batch_size=4)
    ids = np.array([[2, 4 + index, 3, 0] for index in range(6)], np.int32)
    logits = run.keras({"input_ids": ids, "attention_mask": (ids > 0).astype(np.int32)}, training=False).numpy()
    wrong = [index for index in range(6) if logits[index].argmax() != index % 2]
    assert wrong, "an untrained model gets some wrong"
    assert sorted(m.index for m in evaluation.mistakes) == wrong
    assert all(m.text == texts[m.index] and m.image is None for m in evaluation.mistakes)


def test_history_is_read_where_the_trainer_left_one(image_run):
    run = image_run(LIT, LABELS)
    assert evaluate(run.model, run.dataset, batch_size=4).history == ()
    epochs = run.write_history()
    assert list(evaluate(run.model, run.dataset, batch_size=4).history) == epochs
