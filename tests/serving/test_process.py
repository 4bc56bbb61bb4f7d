"""The process as its image starts it: `python -m components.serving`, with nothing but what that image has."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

import httpx
import numpy as np
import pytest

from tests.serving.conftest import TEXT_CLASSES
from tests.serving.tiny_models import softmax
from tests.standins.edge import edge
from tests.standins.storage import storage

pytestmark = pytest.mark.slow

# What the serving image lacks, of what our packages import.
ABSENT = ("kfp", "pydantic", "sklearn", "tensorflow_datasets", "tf_keras", "transformers", "yaml")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextlib.contextmanager
def serving(folder, **environment):
    """Starts the server where the packages that its image lacks can't be imported."""
    stubs = folder / "absent"
    stubs.mkdir()
    for name in ABSENT:
        (stubs / f"{name}.py").write_text("raise ImportError('the serving image does not have this')\n")
    environment = {
        **os.environ,
        "PYTHONPATH": str(stubs),
        "PYTHONUNBUFFERED": "1",
        "TPU_PIPELINES_LOG": "json",
        **environment,
    }
    command = [sys.executable, "-m", "components.serving"]
    with (
        (folder / "log").open("wb") as output,
        (folder / "errors").open("wb") as errors,
        subprocess.Popen(command, env=environment, stdout=output, stderr=errors) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def log_of(folder):
    return [json.loads(line) for line in (folder / "log").read_text().splitlines()]


def connects(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def until_ready(process, url):
    """Asks for health until it is 200; returns the statuses seen, each once, None for a refused connection."""
    seen = []
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and process.poll() is None:
        try:
            status = httpx.get(url).status_code
        except httpx.TransportError:
            status = None
        if status not in seen:
            seen.append(status)
        if status == 200:
            break
        time.sleep(0.02)
    return seen


def test_it_serves_from_a_bucket_and_answers_the_running_request_when_it_is_ended(text_export, tmp_path):
    port = free_port()
    with storage() as store, edge(store.routes, tmp_path) as network:
        for path in text_export.rglob("*"):
            if path.is_file():
                query = {"uploadType": "media", "name": f"model/{path.relative_to(text_export).as_posix()}"}
                place = f"http://127.0.0.1:{store.port}/upload/storage/v1/b/bucket/o"
                httpx.post(place, params=query, content=path.read_bytes()).raise_for_status()
        variables = {
            "AIP_STORAGE_URI": "gs://bucket/model",
            "AIP_HTTP_PORT": str(port),
            "AIP_HEALTH_ROUTE": "/v1/m/1",
            "AIP_PREDICT_ROUTE": "/v1/m/1:predict",
        }
        with serving(tmp_path, **variables, **network.environment) as process:
            seen = until_ready(process, f"http://127.0.0.1:{port}/v1/m/1")
            assert [status for status in seen if status] == [503, 200], (tmp_path / "log").read_text()
            answer = httpx.post(f"http://127.0.0.1:{port}/v1/m/1:predict", json={"instances": ["good good film"]})
            (row,) = answer.json()["predictions"]
            assert row["class_name"] == "pos"
            np.testing.assert_allclose(row["probabilities"], softmax([2, 0]), atol=1e-6)
            assert row["class_names"] == list(TEXT_CLASSES)

            body = b'{"instances": ["bad"]}'
            head = f"POST /v1/m/1:predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\nExpect: 100-continue"
            with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
                connection.sendall(head.encode() + b"\r\n\r\n")
                assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")  # it waits for the body
                process.send_signal(signal.SIGTERM)
                wait_until(lambda: not connects(port))
                connection.sendall(body)
                answer = b""
                while part := connection.recv(65536):
                    answer += part
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert b'"class_name": "neg"' in answer
            assert process.wait(30) == 0
    messages = [entry["message"] for entry in log_of(tmp_path)]
    assert any("text_classification, 2 classes (pos, neg), serving_default takes" in text for text in messages)
    assert any(text.startswith("ready ") for text in messages)
    assert messages[-1] == "SIGTERM: every request is answered, the server ends"
    assert {entry["severity"] for entry in log_of(tmp_path)} == {"INFO"}
    assert "Traceback" not in (tmp_path / "errors").read_text()


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"AIP_STORAGE_URI": ""}, "AIP_STORAGE_URI is empty"),
        ({"AIP_STORAGE_URI": "/nowhere"}, "no export was finished in /nowhere"),
        ({"AIP_STORAGE_URI": "/nowhere", "AIP_HTTP_PORT": "taken"}, "can't be listened on (Address already in use)"),
    ],
    ids=["no model", "no such model", "port taken"],
)
def test_what_cant_be_served_ends_with_one_sentence_and_status_2(tmp_path, variables, sentence):
    with socket.create_server(("0.0.0.0", 0)) as taken:
        ports = {"taken": taken.getsockname()[1], "free": free_port()}
        variables = variables | {"AIP_HTTP_PORT": str(ports[variables.get("AIP_HTTP_PORT", "free")])}
        with serving(tmp_path, **variables) as process:
            assert process.wait(90) == 2
    (entry,) = [entry for entry in log_of(tmp_path) if entry["severity"] == "ERROR"]
    assert sentence in entry["message"]
    assert "\n" not in entry["message"]


def test_it_can_be_ended_while_it_loads(tmp_path, image_export):
    port = free_port()
    with serving(tmp_path, AIP_STORAGE_URI=str(image_export), AIP_HTTP_PORT=str(port)) as process:
        wait_until(lambda: connects(port))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
