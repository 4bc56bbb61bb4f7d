"""What several tests share: eight logical CPU devices, and small data sets on disk."""

import numpy as np
import pytest
import tensorflow as tf

from components import files
from components.dataset.manifest import Feature, Manifest
from components.dataset.writer import SplitWriter

# Fixed for the process before TensorFlow starts: tests use the first 1, 2, 4 or 8 of them.
LOGICAL_CPUS = 8


@pytest.fixture(scope="session", autouse=True)
def _logical_cpus():
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * LOGICAL_CPUS)


def write_dataset(folder, task, features, class_names, examples, tokenizer=None):
    """Writes a data set: `examples` maps a split to (features, label, text or None) triples."""
    splits = {}
    with files.new_directory(str(folder)):
        for name, rows in examples.items():
            with SplitWriter(str(folder), name, features) as writer:
                for row, label, text in rows:
                    writer.write(row, label, text=text)
            splits[name] = writer.split
        manifest = Manifest(
            task=task,
            features=features,
            class_names=tuple(class_names),
            splits=splits,
            source="test",
            fingerprint="0" * 64,
            tokenizer=tokenizer,
        )
        manifest.save(str(folder))
    return str(folder)


def stripes(count, seed):
    """Yields 8x8 images with a bright row (class 0), column (class 1) or neither (class 2): learnt in a few steps."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        label = int(random.integers(3))
        image = random.integers(0, 60, (8, 8, 1), dtype=np.uint8)
        position = random.integers(8)
        if label == 0:
            image[position] = 255
        elif label == 1:
            image[:, position] = 255
        yield {"image": image}, label, None


@pytest.fixture(scope="session")
def stripes_dataset(tmp_path_factory):
    """A data set of 8x8 images in three classes: 640 to train, 75 to validate (no multiple), 90 to test."""
    folder = tmp_path_factory.mktemp("stripes") / "dataset"
    examples = {"train": stripes(640, 1), "validation": stripes(75, 2), "test": stripes(90, 3)}
    features = {"image": Feature("uint8", (8, 8, 1))}
    return write_dataset(folder, "image_classification", features, ("row", "column", "none"), examples)
