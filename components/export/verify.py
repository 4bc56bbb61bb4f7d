"""Loads an exported model in a fresh process, as a server does, and asks it about test examples.

Run as `python -m components.export.verify EXPORT DATASET EXAMPLES OUTPUT`: writes the probabilities of both signatures
to OUTPUT, an .npz file. Nothing of the project's model code is imported.
"""

import sys

import numpy as np
import tensorflow as tf

from components.dataset import manifest as manifests
from components.dataset import reader


def main(export: str, dataset: str, examples: str, output: str) -> None:
    """Writes `raw` and `tensors`, float32 `[examples, classes]`, and `class_names`, of the first test examples."""
    import tensorflow_text  # noqa: F401 - registers the tokenizer's operations

    manifest = manifests.load(dataset)
    is_text = manifest.tokenizer is not None
    count = int(examples)
    data = reader.evaluation_data(dataset, manifest, "test", batch_size=count, limit=count, text=is_text)
    ((features, _, *texts),) = data
    signatures = tf.saved_model.load(export).signatures
    tensors = signatures["tensors"](**features)
    raw = signatures["serving_default"](text=texts[0]) if is_text else signatures["serving_default"](**features)
    np.savez(
        output,
        raw=raw["probabilities"].numpy(),
        tensors=tensors["probabilities"].numpy(),
        class_names=np.array([name.decode("utf-8") for name in raw["class_names"].numpy()]),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
