"""An exported model, loaded, checked against what its contract says, and asked."""

import time
from typing import Any

import numpy as np
import tensorflow as tf

from components import files
from components.errors import ConsistencyError, ModelError, first_line
from components.exported import CONTRACT, FORMAT_VERSION, LABELS, SERVING
from components.serving.instances import Images, Texts, parser
from components.step import log

# Instances of one call of the model. A larger request is answered in several: the memory of 1,024 long texts at once,
# squared in their length, is no machine's.
BATCH = 32


class Predictor:
    """A loaded model.

    Args:
        class_names: Of the export's `contract.json`, in the order of the probabilities.
        model: The SavedModel.
        read: Reads instances for the one input of its signature.
    """

    def __init__(self, class_names: list[str], model: Any, read: Images | Texts) -> None:
        self.class_names = class_names
        self._model, self._read = model, read

    def warm_up(self) -> None:
        """Asks the model once, and checks what it answers.

        Raises:
            ConsistencyError: if its class names are not the contract's, or it does not answer with probabilities.
        """
        answer = self._call(self._read.example())
        names = [name.decode("utf-8") for name in answer["class_names"].numpy()]
        if names != self.class_names:
            raise ConsistencyError(
                f"The SavedModel names its classes {names}, its {CONTRACT} {self.class_names}; run the export step "
                "again."
            )
        self._rows(answer)

    def predict(self, instances: list[Any]) -> list[dict[str, Any]]:
        """Returns the prediction of each instance, with the fields of the SavedModel's own outputs.

        Args:
            instances: As they stand in the request.

        Returns:
            For each `class_name`, its `probability` (float32 written out in full), `probabilities` of all classes, and
            `class_names`, in the order of the probabilities.

        Raises:
            RequestError: if an instance is not what the model takes.
            ConsistencyError: if the model does not answer with probabilities.
        """
        inputs = self._read(instances)
        rows: list[dict[str, Any]] = []
        for start in range(0, len(inputs), BATCH):
            rows += self._rows(self._call(inputs[start : start + BATCH]))
        return rows

    def _call(self, inputs: np.ndarray) -> dict[str, Any]:
        answer: dict[str, Any] = self._model.signatures[SERVING](**{self._read.name: tf.constant(inputs)})
        return answer

    def _rows(self, answer: dict[str, Any]) -> list[dict[str, Any]]:
        probabilities = answer["probabilities"].numpy()
        if probabilities.shape[1:] != (len(self.class_names),) or not np.all(np.isfinite(probabilities)):
            raise ConsistencyError(
                f"The model answers with other than {len(self.class_names)} finite probabilities; train it again."
            )
        return [
            {
                "class_name": name.decode("utf-8"),
                "probability": probability,
                "probabilities": row,
                "class_names": self.class_names,
            }
            for name, probability, row in zip(
                answer["class_name"].numpy(),
                answer["probability"].numpy().tolist(),
                probabilities.tolist(),
                strict=True,
            )
        ]


def load(uri: str) -> Predictor:
    """Loads an exported model and asks it once.

    Args:
        uri: Folder that the export step wrote, local or `gs://`.

    Raises:
        ModelError: if it is incomplete, damaged, or takes what this server can't read.
        ConsistencyError: if the SavedModel is not what the files beside it say.
    """
    start = time.monotonic()
    contract = _contract(uri)
    if contract.get("task") == "text_classification":
        import tensorflow_text  # noqa: F401 - registers the tokenizer's operations
    try:
        model = tf.saved_model.load(uri)
        inputs = model.signatures[SERVING].structured_input_signature[1]
    except (tf.errors.OpError, OSError, ValueError, LookupError, AttributeError, TypeError) as error:
        raise ModelError(
            f"The SavedModel in {uri} can't be loaded ({first_line(error)}); run the export step again."
        ) from error
    found = {key: {"dtype": spec.dtype.name, "shape": spec.shape.as_list()} for key, spec in inputs.items()}
    listed = contract["signatures"][SERVING]["inputs"]
    if found != listed:
        raise ConsistencyError(f"The SavedModel in {uri} takes {found}, its {CONTRACT} says {listed}; export it again.")
    read = parser(found)
    if read is None:
        raise ModelError(
            f"The model of {uri} takes {found}, expected images, uint8 [None, height, width, channels], or texts, "
            "string [None]; it can't be served here."
        )
    predictor = Predictor(contract["class_names"], model, read)
    loaded = time.monotonic()
    predictor.warm_up()
    log.info(
        f"model {contract.get('name')!r} of {uri}: {contract.get('task')}, {len(predictor.class_names)} classes "
        f"({', '.join(predictor.class_names[:10])}{', ...' if len(predictor.class_names) > 10 else ''}), "
        f"{SERVING} takes {found}; loaded in {loaded - start:.1f} s, "
        f"warm-up prediction {time.monotonic() - loaded:.2f} s"
    )
    return predictor


def _contract(uri: str) -> dict[str, Any]:
    """Returns `contract.json`, whose class names are those of `labels.json`."""
    place = files.join(uri, CONTRACT)
    try:
        contract = files.read_json(place)
        labels = files.read_json(files.join(uri, LABELS))
    except FileNotFoundError as error:
        raise ModelError(
            f"{error.filename} is not there, so no export was finished in {uri}; set AIP_STORAGE_URI to the folder "
            "that the export step wrote."
        ) from error
    except (OSError, ValueError) as error:
        raise ModelError(f"{uri} can't be read ({first_line(error)}); check that the account may read it.") from error
    if not _is_contract(contract):
        raise ModelError(
            f"{place} is no {CONTRACT} of format {FORMAT_VERSION} with a {SERVING}; export with the version of this "
            "server's image."
        )
    names = contract.get("class_names")
    if not names or names != labels:
        raise ConsistencyError(f"{place} names the classes {names}, {LABELS} beside it {labels}; export it again.")
    return contract


def _is_contract(value: Any) -> bool:
    try:
        return value["format_version"] == FORMAT_VERSION and isinstance(value["signatures"][SERVING]["inputs"], dict)
    except (LookupError, TypeError):
        return False
