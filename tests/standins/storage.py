"""Google Cloud Storage on this machine: the gcp-storage-emulator package in a thread, its objects in memory."""

import contextlib
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import HTTPServer
from typing import Any
from unittest import mock
from urllib.parse import parse_qs, urlparse

from gcp_storage_emulator import server as emulator
from gcp_storage_emulator.handlers import buckets as bucket_handlers
from gcp_storage_emulator.server import RequestHandler
from gcp_storage_emulator.storage import Storage as Objects

from tests.standins.edge import STORAGE_HOSTS


@dataclass
class Storage:
    """A running storage server.

    Attributes:
        port: Its port on 127.0.0.1, plain HTTP.
        objects: The emulator's own store, to look into from a test.
    """

    port: int
    objects: Objects

    @property
    def routes(self) -> dict[str, int]:
        """What `edge` needs to know of it."""
        return dict.fromkeys(STORAGE_HOSTS, self.port)

    def names(self, bucket: str, prefix: str = "") -> list[str]:
        """Returns the names of a bucket's objects that begin with `prefix`, sorted."""
        return sorted(name for name in self.objects.objects.get(bucket, {}) if name.startswith(prefix))

    def read(self, bucket: str, name: str) -> bytes:
        """Returns an object's content."""
        return self.objects.get_file(bucket, name)


@contextlib.contextmanager
def storage(buckets: Sequence[str] = ("bucket",)) -> Iterator[Storage]:
    """Runs a storage server with some empty buckets."""
    objects = _Objects(use_memory_fs=True)
    for bucket in buckets:
        bucket_handlers.create_bucket(bucket, objects)
    server = _Server(("127.0.0.1", 0), partial(_Handler, objects))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        with mock.patch.object(emulator, "Request", _Request):
            yield Storage(server.server_port, objects)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Request(emulator.Request):
    """The emulator's request, whose links lead to https:// addresses, and whose empty content is no None."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._base_url = self._base_url.replace("http://", "https://")
        self._full_url = self._full_url.replace("http://", "https://")

    @property
    def data(self) -> Any:
        return super().data or b""


class _PreconditionError(Exception):
    pass


class _Objects(Objects):
    """The emulator's store, with the precondition that it lacks: `ifGenerationMatch`, the guard against lost races."""

    expected_generation: str | None = None  # by the request being served: there is one at a time

    def create_file(self, bucket_name: str, file_name: str, *arguments: Any) -> None:
        self._check_generation(bucket_name, file_name)
        super().create_file(bucket_name, file_name, *arguments)

    def delete_file(self, bucket_name: str, file_name: str) -> None:
        self._check_generation(bucket_name, file_name)
        super().delete_file(bucket_name, file_name)

    def _check_generation(self, bucket: str, name: str) -> None:
        found = self.objects.get(bucket, {}).get(name, {}).get("generation", "0")
        if self.expected_generation not in (None, found):
            raise _PreconditionError

    def _bucket_soft_delete_retention_seconds(self, bucket_name: str) -> int:
        return 0

    def _write_config_to_file(self) -> None:
        """Spares a dump of all metadata at each write, which nobody reads."""


class _Server(HTTPServer):
    request_queue_size = 128  # tf.data reads many shards at once, and the emulator's store knows no threads


class _Handler(RequestHandler):
    """The emulator's handler, one request a connection, corrected where TensorFlow's client depends on the real answer.

    The emulator takes the Content-Length that TensorFlow sends with chunks to be their length too, says of an upload of
    which nothing has arrived that one byte has, and answers a read past an object's end with 206.
    """

    protocol_version = "HTTP/1.1"  # so that `Expect: 100-continue` is answered: curl else waits a second

    def parse_request(self) -> bool:
        parsed = super().parse_request()
        if parsed:
            query = parse_qs(urlparse(self.path).query)
            (self.storage.expected_generation,) = query.get("ifGenerationMatch", [None])
            if self.headers.get("Transfer-Encoding") == "chunked":
                del self.headers["Content-Length"]
        return parsed

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except _PreconditionError:
            self.send_response(HTTPStatus.PRECONDITION_FAILED)
            self.send_header("Content-Length", "0")
            self.end_headers()

    def send_response(self, code: int, message: str | None = None) -> None:
        super().send_response(code, message)
        self.send_header("Connection", "close")

    def send_header(self, keyword: str, value: str) -> None:
        if keyword == "Range" and value == "bytes=0-0":
            return
        if keyword == "Content-Range":
            start, end, size = re.fullmatch(r"bytes (\d+)-(-?\d+)/(\d+)", value).groups()
            if int(start) > int(end):
                self._headers_buffer.clear()
                self.send_response(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
                value = f"bytes */{size}"
        super().send_header(keyword, value)
