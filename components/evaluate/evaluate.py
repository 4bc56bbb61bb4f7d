"""Runs a trained model over the whole test split, and keeps what the report needs of it."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from components import files
from components.dataset import manifest as manifests
from components.dataset import reader
from components.dataset.manifest import Manifest
from components.errors import ConfigError, DataError, ModelError
from components.evaluate import metrics as figures
from components.evaluate.metrics import Metrics
from components.models import saved
from components.models.saved import ModelDescription
from components.step import Progress, log

# The trainer's curves, beside `model.json`: {"epochs": [{"epoch": 1, "step": 62, "loss": 0.5, ...}, ...]}.
# Mistakes that are kept, with their image or text, for the report.
MISTAKES = 24


@dataclass(frozen=True)
class Mistake:
    """A test example that the model got wrong.

    Attributes:
        index: Its place in the test split, from 0.
        label: Index of the true class.
        prediction: Index of the class that the model took it for.
        confidence: Probability of the predicted class.
        label_probability: Probability of the true class.
        image: The image as stored, uint8 `[height, width, channels]`; None for text.
        text: The raw text; None for images.
    """

    index: int
    label: int
    prediction: int
    confidence: float
    label_probability: float
    image: np.ndarray | None
    text: str | None


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found.

    Attributes:
        manifest: The data set's manifest.
        model: What `model.json` says of the model.
        metrics: The figures.
        mistakes: The most confident mistakes, the most confident first.
        history: The trainer's figures of each epoch; empty if it left none.
        reference_difference: Largest difference of a probability from the trainer's own, over the first test examples.
            None if the model was trained with another data set, for which the trainer's answers are no reference.
    """

    manifest: Manifest
    model: ModelDescription
    metrics: Metrics
    mistakes: tuple[Mistake, ...]
    history: tuple[dict[str, Any], ...]
    reference_difference: float | None


def evaluate(model_folder: str, dataset_folder: str, *, batch_size: int) -> Evaluation:
    """Evaluates a trained model on every example of a data set's test split.

    Args:
        model_folder: Folder or URI of the train step's model.
        dataset_folder: Folder or URI of the prepare step's data set.
        batch_size: Examples in a batch. It changes speed and memory, not the result.

    Raises:
        ConfigError: if the batch size is not positive.
        DataError: if the data set is not what its manifest says.
        ModelError: if the model is incomplete, does not fit the data set, answers with NaN or infinity, or does not
            answer as it did when it was trained.
    """
    if batch_size < 1:
        raise ConfigError(f"evaluation.evaluation_batch_size is {batch_size}, expected at least 1.")
    manifest = manifests.load(dataset_folder)
    model = saved.load(model_folder)
    model.check_dataset(manifest)
    reader.check(manifest, dataset_folder)
    examples = manifest.split("test").examples
    log.info(f"Evaluating {model.builder} of step {model.step:,} on {examples:,} test examples from {manifest.source}.")

    run = _Run(model, model_folder, min(batch_size, examples))
    progress = Progress("examples", examples)
    for batch in _batches(dataset_folder, manifest, run.batch_size):
        run.add(*batch)
        progress(run.examples)
    if run.examples != examples:
        raise DataError(
            f"The test split of {dataset_folder} has {run.examples:,} examples, the manifest says {examples:,}; "
            "prepare the data again."
        )

    probabilities, labels = np.concatenate(run.probabilities), np.concatenate(run.labels)
    difference = None
    if manifest.digest == model.dataset_digest:
        difference = saved.check_against_reference(model_folder, probabilities, model.precision)
    else:
        log.warning(
            f"The model was trained with the data set {model.dataset_digest[:12]}, this one is "
            f"{manifest.digest[:12]}: the test examples may be among those it was trained on, and its "
            "probabilities can't be compared with the trainer's."
        )
    result = figures.compute(probabilities, labels, model.class_names, loss=run.loss / examples)
    low, high = result.accuracy_interval
    log.info(
        f"Accuracy {result.accuracy:.2%} ({result.correct:,} of {examples:,}; 95 % interval {low:.2%} to {high:.2%}), "
        f"loss {result.loss:.4f}, macro F1 {result.macro_f1:.4f}."
    )
    return Evaluation(manifest, model, result, run.mistakes(), _history(model_folder), difference)


class _Run:
    """A restored model and what came out of it so far: probabilities, labels, summed loss, the worst mistakes."""

    def __init__(self, model: ModelDescription, folder: str, batch_size: int) -> None:
        self.batch_size = batch_size
        self.examples = 0
        self.loss = 0.0
        self.probabilities: list[np.ndarray] = []
        self.labels: list[np.ndarray] = []
        self._folder, self._num_classes = folder, len(model.class_names)
        # A heap with the least confident of the kept mistakes on top. An index is unique, so images are not compared.
        self._worst: list[tuple[float, int, Mistake]] = []
        keras_model = model.restore(folder)

        @tf.function
        def forward(inputs: Any, labels: Any) -> Any:
            logits = keras_model(inputs, training=False)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
            return tf.nn.softmax(logits), losses

        self._forward = forward

    def add(self, features: dict[str, Any], labels: np.ndarray, texts: np.ndarray | None) -> None:
        """Runs one batch, the last of which may be smaller than the others."""
        self._check_labels(labels)
        count = len(labels)
        inputs = reader.to_model_input({name: self._padded(value) for name, value in features.items()})
        probabilities, losses = (output.numpy()[:count] for output in self._forward(inputs, self._padded(labels)))
        finite = np.isfinite(probabilities).all(axis=1) & np.isfinite(losses)
        if not finite.all():
            index = self.examples + int(np.argmin(finite))
            raise ModelError(
                f"The model in {self._folder} answers test example {index} with NaN or infinity, so its training has "
                "diverged; train again with a smaller training.learning_rate."
            )
        self.loss += float(losses.sum(dtype=np.float64))
        self.probabilities.append(probabilities)
        self.labels.append(labels)
        self._keep_mistakes(features, labels, texts, probabilities)
        self.examples += count

    def mistakes(self) -> tuple[Mistake, ...]:
        """Returns the kept mistakes, the most confident first."""
        return tuple(mistake for _, _, mistake in sorted(self._worst, key=lambda kept: kept[:2], reverse=True))

    def _padded(self, value: Any) -> Any:
        # The last example again, rather than zeros: whatever a model does with it, it has done to real data before.
        missing = self.batch_size - len(value)
        return tf.concat([value, tf.repeat(value[-1:], missing, axis=0)], axis=0) if missing else tf.constant(value)

    def _check_labels(self, labels: np.ndarray) -> None:
        wrong = (labels < 0) | (labels >= self._num_classes)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise DataError(
                f"Test example {self.examples + at} has the label {labels[at]}, the data set's class names allow 0 to "
                f"{self._num_classes - 1}; prepare the data again."
            )

    def _keep_mistakes(
        self, features: dict[str, Any], labels: np.ndarray, texts: np.ndarray | None, probabilities: np.ndarray
    ) -> None:
        predictions = probabilities.argmax(axis=1)
        for row in np.flatnonzero(predictions != labels):
            index, confidence = self.examples + int(row), float(probabilities[row, predictions[row]])
            key = (confidence, -index)  # of equals, the first
            if len(self._worst) == MISTAKES and key < self._worst[0][:2]:
                continue
            mistake = Mistake(
                index=index,
                label=int(labels[row]),
                prediction=int(predictions[row]),
                confidence=confidence,
                label_probability=float(probabilities[row, labels[row]]),
                image=_image(features, row) if texts is None else None,
                text=texts[row].decode("utf-8", "replace") if texts is not None else None,
            )
            (heapq.heappush if len(self._worst) < MISTAKES else heapq.heapreplace)(self._worst, (*key, mistake))


def _batches(folder: str, manifest: Manifest, batch_size: int) -> Iterator[tuple[dict[str, Any], Any, Any]]:
    """Yields features as stored, labels, and for a text data set the raw texts (otherwise None)."""
    is_text = manifest.task == "text_classification"
    data = reader.evaluation_data(folder, manifest, "test", batch_size=batch_size, text=is_text)
    try:
        for features, labels, *texts in data:
            yield features, labels.numpy(), texts[0].numpy() if is_text else None
    except tf.errors.OpError as error:
        reason = str(error.message).split("\n", maxsplit=1)[0]
        raise DataError(f"The test split of {folder} can't be read ({reason}); prepare the data again.") from error


def _image(features: dict[str, Any], row: int) -> np.ndarray | None:
    for value in features.values():
        if value.dtype == tf.uint8 and value.shape.rank == 4:
            return value[row].numpy()
    return None


def _history(folder: str) -> tuple[dict[str, Any], ...]:
    uri = files.join(folder, saved.HISTORY)
    return tuple(files.read_json(uri)["epochs"]) if files.exists(uri) else ()
