"""`model.json`: what a trained model is, and the promise that its folder is complete."""

import io
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from components import files
from components.dataset.manifest import Feature, Manifest, Task, Tokenizer
from components.errors import ConsistencyError, ModelError, first_line
from components.models import registry

MODEL_FILE = "model.json"
FORMAT_VERSION = 1
# Below the model's folder: the best checkpoint, the same weights as Keras writes them, the figures of each epoch, the
# tokenizer's vocabulary, and the trainer's answers to the first test examples, with which later steps must agree.
BEST_CHECKPOINT = "best/ckpt"
WEIGHTS = "weights.h5"
HISTORY = "history.json"
TOKENIZER = "tokenizer"
REFERENCE = "reference.npz"
REFERENCE_EXAMPLES = 32

# What TensorFlow raises where a checkpoint is missing, cut, or another model's.
RESTORE_ERRORS = (tf.errors.OpError, AssertionError, ValueError, LookupError, RuntimeError)

# Largest difference of a probability between the trainer and another process, by the precision of training. float32:
# other batch sizes and CPUs reorder sums (1e-6 seen). bfloat16 has 8 bits of mantissa, and a deep network adds up.
TOLERANCE = {"float32": 1e-4, "bfloat16": 5e-2}


@dataclass(frozen=True)
class ModelDescription:
    """What `model.json` says of a trained model.

    Attributes:
        task: What the classes are classes of.
        builder: A name that `registry.find` knows.
        arguments: Arguments with which the builder makes the model again, without pretrained weights.
        class_names: Names in the order of the logits.
        features: The features of the data set, as stored.
        tokenizer: Set for text.
        precision: `float32` or `bfloat16`, of training's computations; weights are always float32.
        step: Optimizer step of the best checkpoint.
        metric: Validation loss and accuracy of the best checkpoint.
        dataset_digest: Digest of the data set it was trained on.
    """

    task: Task
    builder: str
    arguments: dict[str, Any]
    class_names: tuple[str, ...]
    features: dict[str, Feature]
    tokenizer: Tokenizer | None
    precision: str
    step: int
    metric: dict[str, float]
    dataset_digest: str
    format_version: int = FORMAT_VERSION

    def save(self, folder: str) -> None:
        """Writes `model.json`: the last file of the folder, which makes it complete."""
        files.write_json(files.join(folder, MODEL_FILE), asdict(self))

    def check_dataset(self, manifest: Manifest) -> None:
        """Refuses a data set that this model can't be judged on.

        Raises:
            ModelError: if its class names, their order, its features or its tokenizer differ from the model's.
        """
        for what, own, other in (
            ("class names, in the order of the logits,", self.class_names, manifest.class_names),
            ("features", self.features, manifest.features),
            ("tokenizer", self.tokenizer, manifest.tokenizer),
        ):
            if own != other:
                raise ModelError(
                    f"The model's {what} are {own}, the data set from {manifest.source} has {other}: prepare the data "
                    "with the same settings as the training data, or train again."
                )

    def restore(self, folder: str) -> Any:
        """Returns the Keras model with the weights of its best checkpoint, on the default device, in float32.

        Raises:
            ModelError: if the checkpoint is missing or does not fit the model.
        """
        tf_keras.mixed_precision.set_global_policy("float32")
        model = registry.build(self.builder, self.arguments, self.features, len(self.class_names))
        uri = files.join(folder, BEST_CHECKPOINT)
        try:
            status = tf.train.Checkpoint(model=model).read(uri)
            status.assert_existing_objects_matched().expect_partial()
        except RESTORE_ERRORS as error:
            reason = first_line(error)
            raise ModelError(f"Checkpoint {uri} does not restore the model of its {MODEL_FILE}: {reason}") from error
        return model


def load(folder: str) -> ModelDescription:
    """Reads `model.json`.

    Raises:
        ModelError: if it is missing (training did not finish), or of another format.
    """
    uri = files.join(folder, MODEL_FILE)
    if not files.exists(uri):
        raise ModelError(f"{folder} has no {MODEL_FILE}, so training did not finish there; run the train step again.")
    try:
        value = files.read_json(uri)
        if value["format_version"] != FORMAT_VERSION:
            raise ValueError(f"it says format {value['format_version']}")
        value["features"] = {name: Feature(f["dtype"], tuple(f["shape"])) for name, f in value["features"].items()}
        value["class_names"] = tuple(value["class_names"])
        value["tokenizer"] = Tokenizer(**value["tokenizer"]) if value["tokenizer"] else None
        return ModelDescription(**value)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{uri} is no {MODEL_FILE} of format {FORMAT_VERSION} ({error}); train again.") from error


def save_reference(folder: str, probabilities: np.ndarray) -> None:
    """Writes the trainer's probabilities `[examples, classes]` for the first examples of the test split."""
    buffer = io.BytesIO()
    np.savez(buffer, probabilities=probabilities.astype(np.float32))
    files.write_bytes(files.join(folder, REFERENCE), buffer.getvalue())


def load_reference(folder: str) -> np.ndarray:
    """Returns the trainer's probabilities, float32 `[examples, classes]`, for the first examples of the test split."""
    content = files.read_bytes(files.join(folder, REFERENCE))
    return np.load(io.BytesIO(content), allow_pickle=False)["probabilities"]


def check_against_reference(folder: str, probabilities: np.ndarray, precision: str) -> float:
    """Compares probabilities of the first test examples with the trainer's.

    Args:
        folder: The model's folder.
        probabilities: `[examples, classes]`, in the order of the test split.
        precision: Precision of training, which sets the tolerance.

    Returns:
        The largest absolute difference.

    Raises:
        ModelError: if the trainer's are of other examples.
        ConsistencyError: if the difference is above the tolerance.
    """
    reference = load_reference(folder)
    own = probabilities[: len(reference)]
    if own.shape != reference.shape:
        raise ModelError(
            f"{files.join(folder, REFERENCE)} has the trainer's probabilities of shape {reference.shape}, the test "
            f"split gives {own.shape}, so the model was not trained with this data set; train again."
        )
    difference = float(np.max(np.abs(reference - own)))
    if not difference <= TOLERANCE[precision]:
        raise ConsistencyError(
            f"On the first {len(reference)} test examples the model restored from {folder} gives probabilities that "
            f"differ from the trainer's by up to {difference:.2g} (allowed: {TOLERANCE[precision]:g}), so it is not "
            "the model that was trained; train again."
        )
    return difference
