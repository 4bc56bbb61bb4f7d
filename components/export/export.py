"""Exports a trained model, and lets nothing out that does not answer as the trainer did."""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from components import files
from components.dataset import manifest as manifests
from components.dataset import reader
from components.errors import ConsistencyError
from components.export.serving import TENSORS, ServedModel
from components.exported import CONTRACT, FORMAT_VERSION, LABELS, SERVING
from components.models import saved
from components.models.saved import ModelDescription
from components.step import log


def export(model_folder: str, dataset_folder: str, export_folder: str, *, name: str) -> dict[str, Any]:
    """Writes the best checkpoint as a SavedModel and checks it in a fresh process.

    Args:
        model_folder: A trained model.
        dataset_folder: The data set whose first test examples are asked about.
        export_folder: Where the SavedModel goes; `contract.json` is written last, and only if the check passes.
        name: The model's name, for the contract.

    Returns:
        The contract: signatures, class names, and how far the exported model's answers are from the trainer's.

    Raises:
        ConsistencyError: if the exported model answers otherwise than the trained one.
        ModelError: if the trained model can't be restored, or does not fit the data set.
    """
    description = saved.load(model_folder)
    manifest = manifests.load(dataset_folder)
    description.check_dataset(manifest)
    reader.check(manifest, dataset_folder)
    served = ServedModel(description.restore(model_folder), description, model_folder)
    with files.new_directory(export_folder):
        signatures = served.signatures()
        tf.saved_model.save(served, export_folder, signatures=signatures)
        files.write_json(files.join(export_folder, LABELS), list(description.class_names))
        log.info("SavedModel written; a fresh process now loads it")
        differences = _check_in_fresh_process(export_folder, dataset_folder, model_folder, description)
        contract = {
            "format_version": FORMAT_VERSION,
            "name": name,
            "task": description.task,
            "class_names": list(description.class_names),
            "signatures": {key: _describe(function) for key, function in signatures.items()},
            "step": description.step,
            "dataset_digest": description.dataset_digest,
            "tensorflow": tf.__version__,
            "checked_examples": len(saved.load_reference(model_folder)),
            "largest_difference_from_trainer": differences,
        }
        files.write_json(files.join(export_folder, CONTRACT), contract)
    log.info("exported %s: answers within %.1g of the trainer's", name, max(differences.values()))
    return contract


def _check_in_fresh_process(
    export_folder: str, dataset_folder: str, model_folder: str, description: ModelDescription
) -> dict[str, float]:
    """Returns the largest difference of a probability from the trainer's, for each signature."""
    reference = saved.load_reference(model_folder)
    tolerance = saved.TOLERANCE[description.precision]
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "answers.npz")
        command = [sys.executable, "-P", "-m", "components.export.verify"]
        command += [export_folder, dataset_folder, str(len(reference)), str(output)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            log.error(run.stderr)
            raise ConsistencyError(
                f"The exported model can't be loaded and called in a fresh process: {_last_line(run.stderr)}"
            )
        answers = np.load(output, allow_pickle=False)
        names, raw, tensors = answers["class_names"], answers["raw"], answers["tensors"]
    if tuple(names) != description.class_names:
        raise ConsistencyError(
            f"The exported model names its classes {tuple(names)}, the trained one {description.class_names}."
        )
    differences = {}
    for signature, probabilities in ((SERVING, raw), (TENSORS, tensors)):
        difference = float(np.max(np.abs(probabilities - reference)))
        if not difference <= tolerance:
            worst = int(np.argmax(np.max(np.abs(probabilities - reference), axis=1)))
            raise ConsistencyError(
                f"Signature {signature} of the exported model gives probabilities that differ from the trainer's by up "
                f"to {difference:.2g} (allowed: {tolerance:g}), the most on test example {worst}; it was not exported."
            )
        differences[signature] = difference
    return differences


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing"])[-1]


def _describe(function: Any) -> dict[str, Any]:
    """Returns the inputs and outputs of a signature, with dtypes and shapes; None stands for any size."""

    def describe(spec: Any) -> dict[str, Any]:
        return {"dtype": spec.dtype.name, "shape": spec.shape.as_list()}

    return {
        "inputs": {name: describe(spec) for name, spec in sorted(function.structured_input_signature[1].items())},
        "outputs": {name: describe(spec) for name, spec in sorted(function.structured_outputs.items())},
    }
