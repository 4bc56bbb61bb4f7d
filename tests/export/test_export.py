"""The export step: what is served answers as what was trained, or nothing is exported."""

import json

import numpy as np
import pytest
import tensorflow as tf

from components import files
from components.dataset import manifest as manifests
from components.dataset import reader
from components.dataset.manifest import Tokenizer
from components.dataset.writer import file_sha256
from components.errors import ConsistencyError, ModelError
from components.export.export import export
from components.export.serving import InGraphTokenizer
from components.models import saved
from components.models.pretrained import locate
from components.prepare.tokenizer import WordPieceTokenizer
from components.train.options import TrainOptions
from components.train.train import train

MINILM = locate("sample://minilm")


@pytest.fixture(scope="module")
def trained(stripes_dataset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    options = TrainOptions(
        builder="image_classifier",
        arguments={"filters": [4], "dense_units": [16], "shift": 1},
        epochs=12,
        global_batch_size=64,
        learning_rate=3e-3,
        replicas=2,
        checkpoint_dir=str(folder / "checkpoints"),
    )
    train(stripes_dataset, str(folder / "model"), options)
    return str(folder / "model")


@pytest.mark.slow
def test_the_served_model_takes_uint8_images_and_names_the_class(trained, stripes_dataset, tmp_path):
    folder = str(tmp_path / "export")
    contract = export(trained, stripes_dataset, folder, name="stripes")

    assert json.loads((tmp_path / "export" / "contract.json").read_text()) == contract
    assert json.loads((tmp_path / "export" / "labels.json").read_text()) == ["row", "column", "none"]
    inputs = contract["signatures"]["serving_default"]["inputs"]
    assert inputs == {"image": {"dtype": "uint8", "shape": [None, 8, 8, 1]}}
    manifest = manifests.load(stripes_dataset)
    ((features, labels),) = reader.evaluation_data(stripes_dataset, manifest, "test", batch_size=90)
    answer = tf.saved_model.load(folder).signatures["serving_default"](**features)
    named = [manifest.class_names.index(name.decode()) for name in answer["class_name"].numpy()]
    assert np.mean(named == labels.numpy()) > 0.9
    np.testing.assert_allclose(answer["probabilities"].numpy().sum(axis=1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(answer["probability"], answer["probabilities"].numpy().max(axis=1))


@pytest.mark.slow
def test_a_model_that_answers_otherwise_than_the_trainer_is_not_exported(trained, stripes_dataset, tmp_path):
    model = str(tmp_path / "model")
    files.copy_tree(trained, model)
    saved.save_reference(model, saved.load_reference(model)[:, ::-1])

    with pytest.raises(ConsistencyError, match=r"differ from the trainer's by up to .* it was not exported"):
        export(model, stripes_dataset, str(tmp_path / "export"), name="stripes")

    assert not (tmp_path / "export").exists()


@pytest.mark.slow
def test_a_damaged_checkpoint_is_refused(trained, stripes_dataset, tmp_path):
    model = str(tmp_path / "model")
    files.copy_tree(trained, model)
    (data,) = (tmp_path / "model" / "best").glob("*.data-*")
    data.write_bytes(data.read_bytes()[:100])

    with pytest.raises(ModelError, match="does not restore"):
        export(model, stripes_dataset, str(tmp_path / "export"), name="stripes")


def test_an_unfinished_training_is_refused(stripes_dataset, tmp_path):
    with pytest.raises(ModelError, match=r"has no model\.json, so training did not finish"):
        export(str(tmp_path), stripes_dataset, str(tmp_path / "export"), name="stripes")


TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "Café déjà vu — naïve façade, ½ price™ …",
    "  white\u00a0space\tand\nlines\u3000everywhere  ",
    "control\x00characters\x07are\u200bdropped",
    "日本語のテキスト and 한국어 mixed",
    "Straße, ŒUVRE, ﬁne, ＦＵＬＬ ＷＩＤＴＨ",
    "emoji 😀 and e-mail@example.com, $5.00!",
    "a" * 150 + " unknown",
    "при" * 33 + " " + "при" * 34,
    "สวัสดี" * 12,
    "",
    "word " * 100,
]


@pytest.mark.parametrize("lower_case", [True, False])
def test_the_tokenizer_in_the_graph_is_the_one_of_the_data_set(lower_case, tmp_path):
    """Compared with transformers' own tokenizer, on text that is hard to split."""
    from transformers import BertTokenizerFast

    (tmp_path / "tokenizer").mkdir()
    vocabulary = tmp_path / "tokenizer" / "vocab.txt"
    vocabulary.write_bytes(files.read_bytes(files.join(MINILM, "vocab.txt")))
    reference = BertTokenizerFast(str(vocabulary), do_lower_case=lower_case)
    expected = reference(TEXTS, max_length=32, truncation=True, padding="max_length", return_tensors="np")

    description = Tokenizer("minilm", file_sha256(str(vocabulary)), 32, lower_case)
    names = {"input_ids", "attention_mask", "token_type_ids"}
    found = tf.function(InGraphTokenizer(description, names, str(tmp_path)))(tf.constant(TEXTS))

    for name in names:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


def test_the_tokenizer_in_the_graph_repeats_the_prepare_step(tmp_path):
    """Also where a text speaks of special tokens: it is text to both."""
    texts = [*TEXTS, "Don't  split [SEP], [MASK] or [CLS]: they are text."]
    prepared = WordPieceTokenizer("sample://minilm", max_length=32)
    description = prepared.save(str(tmp_path))
    expected = prepared(texts)

    found = tf.function(InGraphTokenizer(description, set(expected), str(tmp_path)))(tf.constant(texts))

    for name, ids in expected.items():
        np.testing.assert_array_equal(found[name], ids, err_msg=name)
