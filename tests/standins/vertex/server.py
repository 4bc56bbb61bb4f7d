"""The HTTP server: finds who answers a request, and gives the answer or the refusal the form of Google's REST."""

import json
import traceback
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from google.protobuf import json_format
from google.protobuf.message import Message

from tests.standins.vertex.errors import ApiError
from tests.standins.vertex.routes import Request, find, route

TOKEN = {"access_token": "token-of-the-stand-in", "token_type": "Bearer", "expires_in": 3600}


class Accounts:
    """What is asked of other services: everybody gets a token, and the project's number.

    Before a pipeline is submitted, the SDK compares the number with that of the bucket's project.
    """

    def __init__(self, project: str, number: str) -> None:
        self._project, self._number = project, number

    @route("POST", "/token")
    def token(self, request: Request) -> dict[str, Any]:
        return TOKEN

    @route("GET", "/v3/projects/{id}")
    def project(self, request: Request) -> dict[str, Any]:
        if request.id not in (self._project, self._number):
            raise ApiError("PERMISSION_DENIED", f"Permission denied on project {request.id!r}.")
        return {"name": f"projects/{self._number}", "projectId": self._project, "state": "ACTIVE"}


class Server(ThreadingHTTPServer):
    """The server on a free port of 127.0.0.1.

    Args:
        services: Objects with methods marked by `route`.
        canonical: Gives the name of a project under which resources are kept, or None for one that is not ours.
        record: Is called with each request.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(
        self, services: list[Any], canonical: Callable[[str], str | None], record: Callable[[Request], None]
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._routes, self._canonical, self._record = list(find(services)), canonical, record

    def answer(self, request: Request) -> Any:
        self._record(request)
        for method, pattern, function in self._routes:
            if method == request.method and (match := pattern.fullmatch(request.path)):
                request.parts = match.groupdict()
                if name := request.parts.get("project"):
                    number = self._canonical(name)
                    if number is None:
                        raise ApiError("PERMISSION_DENIED", f"Permission denied on project {name!r}.")
                    request.parent = f"projects/{number}/locations/{request.location}"
                return function(request)
        raise ApiError("UNIMPLEMENTED", f"The stand-in does not answer {request.method} {request.path}.")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def _serve(self) -> None:
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = Request(self.command, unquote(url.path), dict(parse_qsl(url.query)), body)
        try:
            status, answer = 200, self.server.answer(request)
            content = json.dumps(_plain(answer))
        except ApiError as error:
            status, content = error.http_status, json.dumps(error.body())
        except Exception as error:  # ours: the client hears of it, and the test's output shows where
            traceback.print_exc()
            status, content = 500, json.dumps(ApiError("INTERNAL", repr(error)).body())
        encoded = content.encode("utf-8")
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=UTF-8")
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815

    def log_message(self, *arguments: Any) -> None:
        """Says nothing: requests are recorded."""


def _plain(value: Any) -> Any:
    if isinstance(value, Message):
        return json_format.MessageToDict(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
