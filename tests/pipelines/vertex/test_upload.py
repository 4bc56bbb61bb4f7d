"""`tpu-pipelines upload`: KFP's own client and Google's credentials, against a registry at the network's edge."""

import hashlib
import json
import threading
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml
from google.cloud.aiplatform.constants.pipeline import _VALID_AR_URL
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

from components.errors import ConfigError
from pipelines.vertex.upload import Template, upload
from tests import command_line
from tests.standins.edge import TOKEN, edge

ROOT = Path(__file__).parents[3]
PIPELINE = ROOT / "tests" / "golden" / "mnist.yaml"
REPOSITORY = "https://europe-west4-kfp.pkg.dev/my-project/templates"
VERSION = f"sha256:{hashlib.sha256(PIPELINE.read_bytes()).hexdigest()}"


class Registry(BaseHTTPRequestHandler):
    """Artifact Registry's upload of one pipeline: a form with the file and its tags, answered by PACKAGE/VERSION."""

    def do_POST(self):
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        parts = message_from_bytes(head + self.rfile.read(int(self.headers["Content-Length"]))).get_payload()
        form = {part.get_param("name", header="Content-Disposition"): part.get_payload(decode=True) for part in parts}
        self.server.uploads.append((self.path, self.headers["Authorization"], form))
        status, body = self.server.answer or (200, self.stored(form["content"]))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body.encode())

    @staticmethod
    def stored(content):
        spec = json_format.ParseDict(yaml.safe_load(content), pipeline_spec_pb2.PipelineSpec())
        return f"{spec.pipeline_info.name}/sha256:{hashlib.sha256(content).hexdigest()}"

    def log_message(self, *_):
        pass


@pytest.fixture
def registry():
    server = HTTPServer(("127.0.0.1", 0), Registry)
    server.uploads, server.answer = [], None
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def call(*words, network=None, **environment):
    edges = network.environment if network else {}
    return command_line.call("upload", *words, environment=edges | environment)


def sentence(result):
    assert "Traceback" not in result.stderr
    (line,) = result.stderr.splitlines()
    return line


def test_a_pipeline_is_uploaded_with_its_tags(registry, tmp_path):
    with edge({"*-kfp.pkg.dev": registry.server_port}, tmp_path) as network:
        result = call(
            PIPELINE, "--repository", f"{REPOSITORY}/", "--tag", "0a1b2c3", "--tag", "latest", network=network
        )
    assert result.returncode == 0, result.stderr
    assert registry.uploads == [
        (
            "/my-project/templates",
            f"Bearer {TOKEN}",
            {"tags": b"0a1b2c3,latest", "content": PIPELINE.read_bytes()},
        )
    ]
    assert network.connections == {"oauth2.googleapis.com": 1, "europe-west4-kfp.pkg.dev": 1}
    assert result.stdout.splitlines() == [
        "package: mnist",
        f"version: {VERSION}",
        f"template: {REPOSITORY}/mnist/{VERSION}",
        f"template: {REPOSITORY}/mnist/0a1b2c3",
        f"template: {REPOSITORY}/mnist/latest",
    ]


def test_without_tags_only_the_file_is_sent(registry, tmp_path):
    with edge({"*-kfp.pkg.dev": registry.server_port}, tmp_path) as network:
        result = call(PIPELINE, "--repository", REPOSITORY, network=network)
    assert result.returncode == 0, result.stderr
    assert [list(form) for _, _, form in registry.uploads] == [["content"]]


def test_the_addresses_are_ones_that_a_run_is_started_from():
    for address in Template(REPOSITORY, "mnist", VERSION, ("v1",)).addresses:
        assert _VALID_AR_URL.match(address)


@pytest.mark.parametrize(
    ("status", "body", "expected", "code"),
    [
        (401, "", "not allowed", 2),
        (403, "Permission 'uploadArtifacts' denied", "not allowed (403 Permission 'uploadArtifacts' denied)", 2),
        (404, json.dumps({"error": {"message": "Repository not found."}}), "not found (404 Repository not found)", 2),
        (400, "no pipeline", "refused (400 no pipeline)", 2),
        (400, '{"error": "no pipeline"}', "refused (400 {", 2),
        (429, "", "too much at once", 1),
        (503, "<html>\nlater</html>", "it failed there (503 <html>)", 1),
        (200, "<html>a portal</html>", "did not answer as a registry", 1),
        (200, "mnist/1/2", "did not answer as a registry", 1),
    ],
)
def test_what_the_registry_refuses_is_a_sentence(status, body, expected, code, registry, tmp_path):
    registry.answer = status, body
    with edge({"*-kfp.pkg.dev": registry.server_port}, tmp_path) as network:
        result = call(PIPELINE, "--repository", REPOSITORY, network=network)
    assert expected in sentence(result)
    assert REPOSITORY in result.stderr
    assert result.returncode == code


def test_a_network_without_a_registry_and_bad_credentials_are_sentences(tmp_path):
    with edge({}, tmp_path) as network:
        result = call(PIPELINE, "--repository", REPOSITORY, network=network)
        assert result.returncode == 1
        assert "it failed there (ProxyError); check the network" in sentence(result)
        (tmp_path / "list.json").write_text("[]")
        for name in ("list.json", "none.json"):
            account = tmp_path / name
            result = call(
                PIPELINE, "--repository", REPOSITORY, network=network, GOOGLE_APPLICATION_CREDENTIALS=str(account)
            )
            assert result.returncode == 2
            assert "no credentials that work" in sentence(result)


@pytest.mark.parametrize(
    ("pipeline", "repository", "tag", "expected"),
    [
        ("none.yaml", REPOSITORY, "v1", "none.yaml can't be read (No such file or directory)"),
        ("tests", REPOSITORY, "v1", "tests can't be read (Is a directory)"),
        ("configs/mnist.yaml", REPOSITORY, "v1", "configs/mnist.yaml is no compiled pipeline; make it with"),
        ("README.md", REPOSITORY, "v1", "README.md is no compiled pipeline"),
        (PIPELINE, "gs://bucket", "v1", "'gs://bucket' is no repository of pipelines; expected https://LOCATION-kfp"),
        (PIPELINE, "https://us-docker.pkg.dev/p/r", "v1", "is no repository of pipelines"),
        (PIPELINE, "http://us-kfp.pkg.dev/p/r", "v1", "is no repository of pipelines"),
        (PIPELINE, "https://us-kfp.pkg.dev/my-project", "v1", "is no repository of pipelines"),
        (PIPELINE, f"{REPOSITORY}/mnist", "v1", "is no repository of pipelines"),
        (PIPELINE, "https://evil.example/us-kfp.pkg.dev/p/r", "v1", "is no repository of pipelines"),
        (PIPELINE, REPOSITORY, "a,b", "The tag 'a,b' is impossible"),
        (PIPELINE, REPOSITORY, "", "The tag '' is impossible"),
        (PIPELINE, REPOSITORY, "sha256:0", "The tag 'sha256:0' is impossible"),
    ],
)
def test_what_is_wrong_here_is_found_before_anything_is_sent(pipeline, repository, tag, expected, tmp_path):
    with edge({}, tmp_path) as network:
        result = call(pipeline, "--repository", repository, "--tag", tag, network=network)
    assert expected in sentence(result)
    assert result.returncode == 2
    assert not network.connections + network.unknown_hosts


@pytest.mark.parametrize(
    "content", ["", "{}", "[1]", "a: [", "pipelineInfo: {name: x}", "pipelineInfo: {name: x}\nroot: {}\nodd: 1"]
)
def test_a_file_that_is_nearly_a_pipeline_is_none(content, tmp_path):
    path = tmp_path / "pipeline.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match="is no compiled pipeline"):
        upload(path, REPOSITORY)
