"""What several tests share: eight logical CPU devices, small data sets on disk, and the container images."""

import numpy as np
import pytest
import tensorflow as tf

from components import files
from components.dataset.manifest import Feature, Manifest
from components.dataset.writer import SplitWriter
from tests.standins import engine

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


_BUILD = pytest.StashKey[engine.Build]()


def _needs_images(item):
    return "images" in item.fixturenames


def pytest_collection_modifyitems(items):
    """Puts what needs the images last."""
    items.sort(key=_needs_images)


def pytest_collection_finish(session):
    """Builds the images while the other tests run."""
    if any(map(_needs_images, session.items)) and not session.config.option.collectonly and engine.docker():
        session.config.stash[_BUILD] = engine.Build()


@pytest.fixture(scope="session")
def images(request):
    """The images of the working tree, by name, in the engine of this machine."""
    if _BUILD not in request.config.stash:
        pytest.skip(f"NOT RUN: {engine.NO_ENGINE}")
    request.config.stash[_BUILD].wait()
    return engine.IMAGES


def pytest_terminal_summary(terminalreporter, config):
    """Says loudly if nothing of the images was tested."""
    skipped = terminalreporter.stats.get("skipped", ())
    count = sum(engine.NO_ENGINE in str(report.longrepr) for report in skipped)
    if count:
        terminalreporter.write_sep("!", f"THE IMAGES WERE NOT TESTED ({count} tests): {engine.NO_ENGINE}", red=True)


def pytest_unconfigure(config):
    """Ends a build that is still going on."""
    if _BUILD in config.stash:
        config.stash[_BUILD].stop()
