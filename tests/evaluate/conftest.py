"""A tiny data set and a tiny model whose answers can be worked out by hand."""

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from components import files
from components.dataset.manifest import Feature, Manifest, Split, Tokenizer
from components.dataset.writer import SplitWriter
from components.models import registry, saved
from components.models.saved import ModelDescription

# The probability that the model gives to the class whose pixel is lit.
CONFIDENCE = 0.9
TOKENIZER = Tokenizer("tiny", "0" * 64, 4, True)
TINY_BERT = {
    "model_type": "bert",
    "vocab_size": 16,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "intermediate_size": 8,
    "max_position_embeddings": 8,
}


@dataclass
class Run:
    """Where a data set and a model are, and what they are."""

    model: str
    dataset: str
    manifest: Manifest
    saved: ModelDescription
    keras: Any

    def resave(self, **changes: object) -> None:
        """Writes `model.json` again with other values."""
        dataclasses.replace(self.saved, **changes).save(self.model)

    def write_history(self) -> list[dict[str, float]]:
        """Leaves the trainer's curves beside the model, and returns them."""
        epochs = [
            {
                "epoch": epoch,
                "step": 10 * epoch,
                "loss": 1 / epoch,
                "accuracy": 0.8 + 0.05 * epoch,
                "validation_loss": 1.1 / epoch,
                "validation_accuracy": 0.79 + 0.05 * epoch,
                "learning_rate": 0.001,
                "seconds": 1.5,
            }
            for epoch in (1, 2, 3)
        ]
        Path(self.model, "history.json").write_text(json.dumps({"epochs": epochs}), encoding="utf-8")
        return epochs


def pixels(lit: int, classes: int) -> np.ndarray:
    """An image of one row in which one pixel is white: the model answers that pixel's class."""
    image = np.zeros([1, classes, 1], np.uint8)
    image[0, lit, 0] = 255
    return image


def expected_probabilities(lit: Sequence[int], classes: int) -> np.ndarray:
    """What the model must answer, from its definition."""
    others = (1 - CONFIDENCE) / (classes - 1)
    return np.where(np.arange(classes) == np.array(lit)[:, None], CONFIDENCE, others)


@pytest.fixture
def image_run(tmp_path: Path) -> Callable[..., Run]:
    """Returns a function that writes a data set and a model, and returns their folders."""

    def make(
        lit: Sequence[int],
        labels: Sequence[int],
        names: Sequence[str] = ("a", "b", "c"),
        *,
        confidence: float = CONFIDENCE,
        builder: str = "image_classifier",
        reference: np.ndarray | None = None,
        shard_bytes: int = 200,
    ) -> Run:
        classes = len(names)
        features = {"image": Feature("uint8", (1, classes, 1))}
        dataset, model_folder = str(tmp_path / "dataset"), str(tmp_path / "model")
        files.make_directory(dataset)
        with SplitWriter(dataset, "test", features, shard_bytes=shard_bytes) as writer:
            for pixel, label in zip(lit, labels, strict=True):
                writer.write({"image": pixels(pixel, classes)}, label)
        manifest = Manifest(
            "image_classification", features, tuple(names), {"test": writer.split}, "local://tiny", "f" * 64
        )
        manifest.save(dataset)

        arguments = {"filters": [], "dense_units": []} if builder == "image_classifier" else {}
        model = registry.build(builder, arguments, features, classes)
        # softmax([k, 0, ..., 0])[0] = e^k / (e^k + classes - 1) = confidence
        scale = math.log(confidence * (classes - 1) / (1 - confidence))
        model.set_weights([scale * np.eye(classes, dtype=np.float32), np.zeros(classes, np.float32)])
        tf.train.Checkpoint(model=model).write(files.join(model_folder, saved.BEST_CHECKPOINT))
        own = expected_probabilities(lit, classes)[: saved.REFERENCE_EXAMPLES]
        saved.save_reference(model_folder, own if reference is None else reference)
        saved_model = ModelDescription(
            task="image_classification",
            builder=builder,
            arguments=arguments,
            class_names=tuple(names),
            features=features,
            tokenizer=None,
            precision="float32",
            step=20,
            metric={"loss": 0.25, "accuracy": 0.9},
            dataset_digest=manifest.digest,
        )
        saved_model.save(model_folder)
        return Run(model_folder, dataset, manifest, saved_model, model)

    return make


@pytest.fixture
def text_run(tmp_path: Path) -> Callable[..., Run]:
    """The same for texts, with a tiny, untrained BERT."""

    def make(texts: Sequence[str], labels: Sequence[int], names: Sequence[str] = ("no", "yes")) -> Run:
        features = {name: Feature("int32", (4,)) for name in ("input_ids", "attention_mask")}
        dataset, model_folder = str(tmp_path / "dataset"), str(tmp_path / "model")
        files.make_directory(dataset)
        with SplitWriter(dataset, "test", features) as writer:
            for index, (text, label) in enumerate(zip(texts, labels, strict=True)):
                ids = np.array([2, 4 + index % 8, 3, 0], np.int32)
                writer.write({"input_ids": ids, "attention_mask": (ids > 0).astype(np.int32)}, label, text=text)
        manifest = Manifest(
            "text_classification",
            features,
            tuple(names),
            {"train": Split(()), "test": writer.split},
            "local://texts",
            "e" * 64,
            TOKENIZER,
        )
        manifest.save(dataset)
        tf_keras.utils.set_random_seed(1)
        model = registry.build("text_classifier", {"config": TINY_BERT}, features, len(names))
        tf.train.Checkpoint(model=model).write(files.join(model_folder, saved.BEST_CHECKPOINT))
        saved_model = ModelDescription(
            task="text_classification",
            builder="text_classifier",
            arguments={"config": TINY_BERT},
            class_names=tuple(names),
            features=features,
            tokenizer=TOKENIZER,
            precision="float32",
            step=7,
            metric={},
            dataset_digest="another",  # an untrained model has no trainer's answers to be compared with
        )
        saved_model.save(model_folder)
        return Run(model_folder, dataset, manifest, saved_model, model)

    return make
