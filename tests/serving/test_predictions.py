"""Requests and their answers, over HTTP: predictions are those worked out by hand, and what is wrong is refused."""

import asyncio
import base64
import io
import json
import re
import threading
from pathlib import Path

import httpx
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from components.errors import ConsistencyError
from components.serving import instances as parsing
from components.serving import predictor, server
from components.serving.predictor import load
from components.serving.server import Service
from components.step import log
from tests.serving.conftest import IMAGE_CLASSES, TEXT_CLASSES, Client
from tests.serving.tiny_models import CHANNELS, HEIGHT, WIDTH, image_probabilities, softmax

BLACK = np.zeros((HEIGHT, WIDTH, CHANNELS), np.uint8).tolist()


def ask(client, instances, **more):
    return client.post("/predict", content=json.dumps({"instances": instances, **more}))


def changed(value, row=1, column=2, channel=0):
    image = np.zeros((HEIGHT, WIDTH, CHANNELS)).astype(int).tolist()
    image[row][column][channel] = value
    return image


def encoded(content):
    return {"b64": base64.b64encode(content).decode("ascii")}


def file_of(pixels, kind, **options):
    buffer = io.BytesIO()
    Image.fromarray(np.asarray(pixels)).save(buffer, kind, **options)
    return buffer.getvalue()


def check(answer, probabilities, class_names):
    """Compares an answer with probabilities worked out by hand."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    predictions = answer.json()["predictions"]
    assert len(predictions) == len(probabilities)
    for prediction, row in zip(predictions, probabilities, strict=True):
        assert prediction["class_names"] == list(class_names)
        np.testing.assert_allclose(prediction["probabilities"], row, atol=1e-6)
        assert prediction["class_name"] == class_names[int(np.argmax(row))]
        assert prediction["probability"] == max(prediction["probabilities"])
        assert set(prediction) == {"class_name", "probability", "probabilities", "class_names"}


@pytest.mark.parametrize("count", [1, 2, 31, 32])
def test_images_are_classified(image_client, pixels, count):
    check(ask(image_client, pixels[:count].tolist()), image_probabilities(pixels[:count]), IMAGE_CLASSES)


def test_every_way_to_write_an_image_is_the_same_image(image_client, pixels):
    image = pixels[0]
    png = encoded(file_of(image, "PNG"))
    ways = [image.tolist(), {"image": image.tolist()}, image.astype(float).tolist(), png, {"image": png}]
    check(ask(image_client, ways), image_probabilities([image] * 5), IMAGE_CLASSES)


def test_images_of_a_palette_and_jpegs_are_decoded(image_client):
    grey = np.full((HEIGHT, WIDTH, CHANNELS), 200, np.uint8)  # which JPEG keeps as it is
    colour = grey * np.array([1, 0, 0], np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(colour).convert("P", palette=Image.Palette.ADAPTIVE).save(buffer, "PNG")
    files = [encoded(file_of(grey, "JPEG", quality=100)), encoded(buffer.getvalue())]
    check(ask(image_client, files), image_probabilities([grey, colour]), IMAGE_CLASSES)


@pytest.mark.parametrize("count", [33, 1024])
def test_a_large_request_is_answered_in_order(image_client, pixels, count):
    """More instances than one call of the model takes; as files, which are small."""
    files = [encoded(file_of(image, "PNG")) for image in pixels]
    many = [files[index % 32] for index in range(count)]
    expected = image_probabilities(pixels)[np.arange(count) % 32]
    check(ask(image_client, many), expected, IMAGE_CLASSES)


def test_an_answer_is_the_saved_models_own_whatever_the_batch_size(image_client, image_export, pixels):
    signature = tf.saved_model.load(str(image_export)).signatures["serving_default"]
    for count in (3, 7, 32):
        answer = signature(image=tf.constant(pixels[:count]))
        rows = ask(image_client, pixels[:count].tolist()).json()["predictions"]
        assert [row["probabilities"] for row in rows] == answer["probabilities"].numpy().tolist()
        assert [row["class_name"].encode() for row in rows] == answer["class_name"].numpy().tolist()
        assert [row["probability"] for row in rows] == answer["probability"].numpy().tolist()


def test_texts_are_classified(text_client):
    texts = ["good", {"text": "A BAD film, bad!"}, "Ünknown wörds 😀\u0000", "good bad", "good\n" * 50]
    counts = [[1, 0], [0, 2], [0, 0], [1, 1], [6, 0]]  # of 8 tokens the first and the last are special
    check(ask(text_client, texts), softmax(counts), TEXT_CLASSES)


@pytest.mark.parametrize("more", [{}, {"parameters": None}, {"parameters": {}}])
def test_empty_parameters_are_none(text_client, more):
    assert ask(text_client, ["good"], **more).status_code == 200


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (b"", 400, "The request is not JSON"),
        (b"{", 400, "The request is not JSON"),
        (b"instances=1", 400, r'send {"instances": \[...\]}'),
        (b'{"instances": ["\xff"]}', 400, r"not UTF-8 text \(byte 16\)"),
        ('{"instances": ["good"]}'.encode("utf-16"), 400, "not UTF-8"),
        (b'{"instances": [NaN]}', 400, "holds NaN, which JSON has no word for"),
        (b'{"instances": [-Infinity]}', 400, "holds -Infinity"),
        (b"[" * 100_000, 400, "nested too deeply"),
        (b'{"instances": ["good"], "x": ' + b"9" * 5000 + b"}", 400, "The request is not JSON"),
        (b'{"instances": ["good"], "instances": ["bad"]}', 400, "the same key twice"),
        (b'{"instances": [{"text": "good", "text": "bad"}]}', 400, "the same key twice"),
        (b'["good"]', 400, "The request is a list of 1, expected an object"),
        (b"null", 400, "The request is null, expected an object"),
        (b"{}", 400, "has no instances"),
        (b'{"instance": ["good"]}', 400, "unknown field 'instance'; leave it out. Did you mean 'instances'"),
        (b'{"instances": ["good"], "signature_name": "tensors"}', 400, "unknown field 'signature_name'"),
        (b'{"instances": ["good"], "parameters": {"top": 1}}', 400, "parameters is an object with 1 keys .'top'."),
        (b'{"instances": ["good"], "parameters": false}', 400, "parameters is false, but this model takes none"),
        (b'{"instances": "good"}', 400, "instances is the text 'good', expected a list"),
        (b'{"instances": {"text": "good"}}', 400, "instances is an object .* expected a list"),
        (b'{"instances": null}', 400, "instances is null"),
        (b'{"instances": []}', 400, "instances is an empty list"),
        (json.dumps({"instances": ["good"] * 1025}).encode(), 413, "has 1,025 instances, at most 1,024"),
        (b'{"instances": ["' + b"x" * 10 * 2**20 + b'"]}', 413, "has 10,485,779 bytes, at most 10,485,760"),
    ],
)
def test_a_request_that_is_none_is_refused(text_client, body, status, sentence):
    refused(text_client.post("/predict", content=body), status, sentence)


def refused(answer, status, sentence):
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert list(answer.json()) == ["error"]
    error = answer.json()["error"]
    assert re.search(sentence, error), error
    assert "\n" not in error
    assert "Traceback" not in error
    assert len(error) < 500


SCALED = "expected whole numbers from 0 to 255 .uint8.; send pixels as an image file has them, neither scaled"


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (changed(300), f"Instance 1: a pixel is 300, {SCALED}"),
        (changed(256), "a pixel is 256"),
        (changed(-1), "a pixel is -1"),
        (changed(10**400), "a pixel is 1000"),
        (changed(0.5), f"a pixel is 0.5, {SCALED}"),
        (changed(5.5), "a pixel is 5.5"),
        (changed(True), "a pixel is true"),
        (changed(None), "a pixel is null"),
        (changed("7"), "a pixel is the text '7'"),
        (changed([7]), "a pixel is a list of 1"),
        (changed({}), "a pixel is an empty object"),
        (BLACK[:3], r"expected an image of shape \[4, 5, 3\] .* found a list of 3 in place of a list of 4"),
        ([row[:4] for row in BLACK], "found a list of 4 in place of a list of 5"),
        ([[0] * 5] * 4, "found 0 in place of a list of 3"),
        (np.zeros((5, 4, 3), int).tolist(), "found a list of 5 in place of a list of 4"),
        ([BLACK[0], BLACK[1], BLACK[2], [*BLACK[3][:4], [0, 0]]], "found a list of 2 in place of a list of 3"),
        ([], "found a list of 0 in place of a list of 4"),
        (7, "Instance 1 is 7, expected an image"),
        (None, "Instance 1 is null"),
        ("good", "Instance 1 is the text 'good'"),
        ({}, "Instance 1 is an empty object"),
        ({"images": BLACK}, "Instance 1 is an object with 1 keys .'images'., .* under the key \"image\""),
        ({"image": BLACK, "more": 1}, "Instance 1 is an object with 2 keys"),
        ({"image": {"image": BLACK}}, "Instance 1 is an object"),
        ({"b64": 7}, "b64 is 7"),
        ({"b64": "not base64!"}, "b64 is not base64"),
        ({"b64": "é"}, "b64 is not base64"),
        ({"b64": "AAA"}, "b64 is not base64"),
        ({"b64": "-_-_"}, "b64 is not base64"),
        (encoded(b""), "neither a PNG nor a JPEG"),
        (encoded(b"GIF89a"), "neither a PNG nor a JPEG"),
        (encoded(b"\x89PNG\r\n\x1a\n"), "can't be decoded"),
        (encoded(file_of(BLACK_ARRAY := np.array(BLACK, np.uint8), "PNG")[:60]), "can't be decoded"),
        (encoded(file_of(BLACK_ARRAY, "JPEG")[:300]), "can't be decoded"),
        (encoded(b"\xff\xd8\xff\x00"), "can't be decoded"),
        (encoded(file_of(BLACK_ARRAY[:, :4], "PNG")), r"file has shape \[4, 4\], expected an image of shape"),
        (encoded(file_of(BLACK_ARRAY[:, :4], "JPEG")), r"file has shape \[4, 4\], expected an image of shape"),
        (encoded(file_of(BLACK_ARRAY[:, :, 0], "PNG")), r"file has shape \[4, 5, 1\], .* same channels"),
        (encoded(file_of(BLACK_ARRAY[:, :, 0], "JPEG")), r"file has shape \[4, 5, 1\], .* same channels"),
        (encoded(file_of(np.zeros((4, 5, 4), np.uint8), "PNG")), r"file has shape \[4, 5, 4\], .* same channels"),
        (encoded(file_of(np.zeros((4, 5), np.uint16), "PNG")), "16 bits a channel"),
        # 60,000 x 60,000 pixels, if its head were believed.
        (encoded(file_of(BLACK_ARRAY, "PNG").replace(b"\0\0\0\5\0\0\0\4", b"\0\0\xea\x60" * 2)), r"\[60000, 60000\]"),
    ],
)
def test_what_is_no_image_of_the_models_is_refused(image_client, wrong, sentence):
    refused(ask(image_client, [BLACK, wrong]), 400, sentence)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (7, "Instance 1 is 7, expected a text"),
        (True, "Instance 1 is true"),
        (None, "Instance 1 is null"),
        (["good"], "Instance 1 is a list of 1"),
        ({"txt": "good"}, "Instance 1 is an object with 1 keys .'txt'., expected a text: .* {\"text\": "),
        ({"text": 7}, "Instance 1 is 7"),
        ({"input_ids": [2, 4, 3]}, "Instance 1 is an object with 1 keys .'input_ids'."),
        ("", "Instance 1 is a text without content"),
        (" \n\u00a0", "Instance 1 is a text without content"),
        ("x" * 100_001, "Instance 1 has 100,001 characters, at most 100,000"),
        ("good \ud800", "half of a surrogate pair at character 5"),
        ({"\ud800": "good"}, "Instance 1 is an object"),
        ({"k" * 1000: "good"}, "Instance 1 is an object"),
    ],
)
def test_what_is_no_text_is_refused(text_client, wrong, sentence):
    refused(ask(text_client, ["good", wrong]), 400, sentence)


def test_the_largest_text_is_taken(text_client):
    check(ask(text_client, ["bad " + "x" * 99_996]), softmax([[0, 1]]), TEXT_CLASSES)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda values: (
        st.lists(values, max_size=6)
        | st.dictionaries(st.sampled_from(["image", "text", "b64"]) | st.text(), values, max_size=3)
    ),
    max_leaves=20,
)
PIXEL = st.integers(-1, 256) | st.sampled_from([0.0, 255.0, 0.5, True, None])
NEARLY = st.lists(st.lists(st.lists(PIXEL, min_size=3, max_size=3), min_size=5, max_size=5), min_size=4, max_size=4)
FILES = st.binary(max_size=40).map(
    lambda end: encoded(file_of(np.zeros((4, 5, 3), np.uint8), "PNG")[: 60 - len(end)] + end)
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(value=JSON | st.lists(JSON | NEARLY | FILES, min_size=1, max_size=3))
def test_any_json_is_answered_or_refused(image_client, text_client, value):
    for client in (image_client, text_client):
        answer = ask(client, value)
        assert answer.status_code in (200, 400), answer.text
        assert set(answer.json()) == {"predictions" if answer.status_code == 200 else "error"}


def test_health_is_503_until_the_model_is_ready(image_client):
    loading = Client(Service("/health", "/predict").app)
    refused(loading.get("/health"), 503, "being loaded")
    refused(ask(loading, [1]), 503, "being loaded; try again")
    assert image_client.get("/health").status_code == 200
    assert image_client.get("/health").json() == {"status": "ready"}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/predict", 405),
        ("PUT", "/predict", 405),
        ("POST", "/health", 405),
        ("GET", "/", 404),
        ("POST", "/predict/", 404),
        ("GET", "/../etc/passwd", 404),
    ],
)
def test_other_routes_are_refused(image_client, method, path, status):
    refused(image_client.request(method, path), status, "answers GET /health and POST /predict; send the request there")


class Stub:
    """In the model's place, where a test needs it to fail or to take its time."""

    def __init__(self, error=None):
        self.started, self.go, self.error = threading.Event(), threading.Event(), error

    def predict(self, instances):
        self.started.set()
        assert self.go.wait(30)
        if self.error:
            raise self.error
        return [{"class_name": "a"} for _ in instances]


@pytest.fixture
def logged(caplog, monkeypatch):
    """The project's log lines, whatever a test before this one did to the log."""
    monkeypatch.setattr(log, "propagate", True)
    caplog.set_level("DEBUG", logger="components")
    return caplog


def test_an_internal_error_is_told_to_the_log_and_not_to_the_client(logged):
    service = Service("/health", "/predict")
    service.predictor = Stub(RuntimeError("secret"))
    service.predictor.go.set()
    answer = ask(Client(service.app), ["x"])
    refused(answer, 500, "The server failed to answer this request")
    assert "secret" not in answer.text
    (record,) = [record for record in logged.records if record.levelname == "ERROR"]
    assert "Traceback (most recent call last)" in record.getMessage()
    assert "RuntimeError: secret" in record.getMessage()


def test_probabilities_that_are_no_numbers_are_an_internal_error(image_export, monkeypatch):
    broken = load(str(image_export))
    answer = broken._call(broken._read.example())
    monkeypatch.setattr(broken, "_call", lambda _: answer | {"probabilities": answer["probabilities"] * np.nan})
    service = Service("/health", "/predict")
    service.predictor = broken
    refused(ask(Client(service.app), [BLACK]), 500, "The server failed")
    with pytest.raises(ConsistencyError, match="other than 3 finite probabilities"):
        broken.warm_up()


def test_the_log_holds_nothing_of_a_request(text_client, logged):
    ask(text_client, ["good private-word"])
    ask(text_client, [{"private-word": 1}])
    assert "predicted 1 instances in" in logged.text
    assert "refused with status 400" in logged.text
    assert "private-word" not in logged.text


def test_health_is_answered_during_a_prediction_and_no_more_requests_are_taken_than_fit(monkeypatch):
    monkeypatch.setattr(server, "MOST_REQUESTS", 1)
    service = Service("/health", "/predict")
    service.predictor = stub = Stub()

    async def talk():
        transport = httpx.ASGITransport(service.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            running = asyncio.create_task(client.post("/predict", json={"instances": ["x"]}))
            assert await asyncio.to_thread(stub.started.wait, 30)
            health = await client.get("/health")
            refused(await client.post("/predict", json={"instances": ["x"]}), 429, "1 requests are being answered")
            stub.go.set()
            return health, await running, await client.post("/predict", json={"instances": ["x"]})

    assert [answer.status_code for answer in asyncio.run(talk())] == [200, 200, 200]


def test_the_documented_limits_are_these():
    page = Path(__file__).parents[2].joinpath("docs/serving.md").read_text(encoding="utf-8")
    for limit in (parsing.MOST_INSTANCES, parsing.LONGEST_TEXT, server.MOST_REQUESTS, predictor.BATCH):
        assert re.search(rf"\b{limit:,} ", page), limit
    assert f"{parsing.LARGEST_BODY // 2**20} MiB" in page


def test_a_request_that_never_arrives_is_answered_and_makes_room(image_client, monkeypatch):
    monkeypatch.setattr(server, "SECONDS_TO_SEND", 0.05)

    async def slowly():
        yield b'{"instances":'
        await asyncio.sleep(60)

    for _ in range(2):
        answer = image_client.request("POST", "/predict", content=slowly())
        assert answer.status_code == 408
        assert answer.json()["error"].startswith("The request had not arrived after 0.05 seconds")
