"""Two models, one of images and one of texts, made by the project's own export step."""

import asyncio

import httpx
import numpy as np
import pytest
import tensorflow as tf

from components import files
from components.dataset import manifest as manifests
from components.dataset.manifest import Feature, Tokenizer
from components.dataset.writer import file_sha256
from components.export.export import export
from components.models import registry, saved
from components.models.saved import ModelDescription
from components.serving.predictor import load
from components.serving.server import Service
from tests.conftest import write_dataset
from tests.serving import tiny_models

IMAGE_CLASSES = ("zebra", "apple", "mängo")  # in no alphabet's order
TEXT_CLASSES = ("pos", "neg")
LENGTH = 8


def exported(folder, builder, task, features, class_names, rows, probabilities, tokenizer=None):
    """Exports a model that was not trained; the export step compares it with the probabilities worked out by hand."""
    dataset, model = str(folder / "dataset"), str(folder / "model")
    write_dataset(dataset, task, features, class_names, {"test": rows}, tokenizer)
    if tokenizer:
        for place in (dataset, model):
            files.write_bytes(files.join(place, manifests.VOCABULARY), (folder / "vocab.txt").read_bytes())
    keras_model = registry.build(builder, {}, features, len(class_names))
    tf.train.Checkpoint(model=keras_model).write(files.join(model, saved.BEST_CHECKPOINT))
    saved.save_reference(model, probabilities)
    digest = manifests.load(dataset).digest
    ModelDescription(
        task, builder, {}, class_names, features, tokenizer, "float32", step=1, metric={}, dataset_digest=digest
    ).save(model)
    export(model, dataset, str(folder / "exported"), name="tiny")
    return folder / "exported"


@pytest.fixture(scope="session")
def pixels():
    """32 images."""
    shape = (32, tiny_models.HEIGHT, tiny_models.WIDTH, tiny_models.CHANNELS)
    return np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)


@pytest.fixture(scope="session")
def image_export(tmp_path_factory, pixels):
    features = {"image": Feature("uint8", pixels.shape[1:])}
    rows = [({"image": image}, index % 3, None) for index, image in enumerate(pixels)]
    builder = "tests.serving.tiny_models:images"
    probabilities = tiny_models.image_probabilities(pixels)
    folder = tmp_path_factory.mktemp("images")
    return exported(folder, builder, "image_classification", features, IMAGE_CLASSES, rows, probabilities)


@pytest.fixture(scope="session")
def text_export(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "film"]) + "\n")
    features = {name: Feature("int32", (LENGTH,)) for name in ("input_ids", "attention_mask")}
    ids = np.array([2, tiny_models.GOOD, tiny_models.GOOD, 6, 3, 0, 0, 0], np.int32)
    rows = [({"input_ids": ids, "attention_mask": (ids > 0).astype(np.int32)}, 0, "good good film")]
    return exported(
        folder,
        "tests.serving.tiny_models:texts",
        "text_classification",
        features,
        TEXT_CLASSES,
        rows,
        tiny_models.softmax([[2, 0]]),
        Tokenizer("tiny", file_sha256(str(vocabulary)), LENGTH, True),
    )


class Client:
    """Asks an application without a network (Starlette's own TestClient warns of the httpx that the project has)."""

    def __init__(self, app):
        self._transport = httpx.ASGITransport(app)

    def request(self, method, path, **content):
        async def answer():
            async with httpx.AsyncClient(transport=self._transport, base_url="http://server") as client:
                return await client.request(method, path, **content)

        return asyncio.run(answer())

    def get(self, path):
        return self.request("GET", path)

    def post(self, path, content):
        return self.request("POST", path, content=content)


def client_of(folder):
    service = Service("/health", "/predict")
    service.predictor = load(str(folder))
    return Client(service.app)


@pytest.fixture(scope="session")
def image_client(image_export):
    return client_of(image_export)


@pytest.fixture(scope="session")
def text_client(text_export):
    return client_of(text_export)
