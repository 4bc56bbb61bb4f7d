import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from tests.standins.edge import edge

MODELS = "/v1/projects/{project}/locations/{location}/models"
PAGE = 2


class Registry:
    """A stand-in for Vertex AI's Model Registry, which lists models by display name, two a page.

    Attributes:
        models: Models as the REST API has them.
        refusal: Status and message of an error to answer with instead.
        filters: The filters that were asked for.
        posted: Path and content of what was sent to it.
        environment: Variables under which Google's host names lead here.
    """

    def __init__(self) -> None:
        self.models: list[dict[str, str]] = []
        self.refusal: tuple[int, str] | None = None
        self.filters: list[str] = []
        self.posted: list[tuple[str, dict]] = []
        self.environment: dict[str, str] = {}

    def add(self, model: str, name: str, created: str, version: str = "1") -> str:
        resource = f"projects/123456/locations/us-central1/models/{model}"
        self.models.append({"name": resource, "displayName": name, "createTime": created, "versionId": version})
        return resource

    def answer(self, target: str) -> tuple[int, dict]:
        if self.refusal:
            code, message = self.refusal
            return code, {"error": {"code": code, "message": message}}
        url = urlsplit(target)
        if url.path != MODELS.format(project="test-project", location="us-central1"):
            return 404, {"error": {"code": 404, "message": f"{url.path} was not found."}}
        asked = parse_qs(url.query)
        (wanted,) = asked["filter"]
        self.filters.append(wanted)
        # As a registry that tells no upper from lower case would.
        found = [model for model in self.models if wanted.lower() == f'display_name="{model["displayName"]}"'.lower()]
        start = int(asked.get("pageToken", ["0"])[0])
        page = {"models": found[start : start + PAGE]}
        return 200, page | ({"nextPageToken": str(start + PAGE)} if len(found) > start + PAGE else {})

    def take(self, target: str, content: dict) -> tuple[int, dict]:
        path = unquote(urlsplit(target).path).removeprefix("/v1/")
        self.posted.append((path, content))
        if path.endswith("/evaluations:import"):
            return 200, {"name": path.removesuffix(":import") + "/9"}
        count = len(content["modelEvaluationSlices"])
        return 200, {
            "importedModelEvaluationSlices": [f"{path.removesuffix(':batchImport')}/{n}" for n in range(count)]
        }


@pytest.fixture
def registry(tmp_path, monkeypatch) -> Iterator[Registry]:
    stand_in = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(*stand_in.answer(self.path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.reply(*stand_in.take(self.path, json.loads(body)))

        def reply(self, code: int, content: dict) -> None:
            body = json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    with edge({"*-aiplatform.googleapis.com": server.server_port}, tmp_path / "edge") as network:
        stand_in.environment = network.environment
        for name, value in network.environment.items():
            monkeypatch.setenv(name, value)
        yield stand_in
    server.shutdown()
    server.server_close()
