"""The `serving` image as Vertex AI would run it: a port, a health route, a prediction route."""

import contextlib
import json
import time
import urllib.error
import urllib.request

import numpy as np
import pytest

from tests.serving import tiny_models
from tests.standins import engine

pytestmark = pytest.mark.slow


def post(address, body):
    request = urllib.request.Request(f"{address}/predict", json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def health(address):
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:  # nobody listens yet
        return None


@contextlib.contextmanager
def served(image, export):
    """Starts a container that serves an export, and waits until it is healthy."""
    words = ("--detach", "--publish", "127.0.0.1::8080", "--volume", f"{export}:/model:ro")
    result = engine.run("run", *words, "--env", "AIP_STORAGE_URI=/model", image)
    assert result.returncode == 0, result.stderr
    container = result.stdout.strip()
    try:
        address = "http://" + engine.run("port", container, "8080/tcp").stdout.split()[0]
        deadline = time.monotonic() + 60
        while (status := health(address)) != 200:
            assert status in (None, 503)
            assert time.monotonic() < deadline, engine.run("logs", container).stdout
            time.sleep(0.1)
        yield address
        engine.run("stop", container)
        state = json.loads(engine.run("inspect", container).stdout)[0]["State"]
        assert state["ExitCode"] == 0, "SIGTERM ends it in order"
    finally:
        engine.run("rm", "--force", container)


def test_images_are_answered_and_wrong_ones_refused(images, image_export, pixels):
    with served(images["serving"], image_export) as address:
        status, answer = post(address, {"instances": pixels[:5].tolist()})
        assert status == 200
        found = [prediction["probabilities"] for prediction in answer["predictions"]]
        np.testing.assert_allclose(found, tiny_models.image_probabilities(pixels[:5]), atol=1e-5)
        status, answer = post(address, {"instances": (pixels[:1] / 255).tolist()})
        assert status == 400
        assert "0 to 255" in answer["error"]
        assert post(address, {"instances": []})[0] == 400
        assert health(address) == 200


def test_texts_are_answered_and_wrong_ones_refused(images, text_export):
    with served(images["serving"], text_export) as address:
        status, answer = post(address, {"instances": ["good good film", {"text": "bad film"}]})
        assert status == 200
        assert [prediction["class_name"] for prediction in answer["predictions"]] == ["pos", "neg"]
        status, answer = post(address, {"instances": [7]})
        assert (status, "expected a text" in answer["error"]) == (400, True)
