"""The network's edge: Google's host names, served by this machine, to clients that don't know it.

A CONNECT proxy on 127.0.0.1 that ends TLS with certificates of its own authority and pipes what is inside to a local
plain-HTTP server, chosen by host name. Clients find it through the variables that any of them obeys (`https_proxy`,
`CURL_CA_BUNDLE`, `REQUESTS_CA_BUNDLE`), so that libcurl inside TensorFlow and Google's Python clients run unpatched.
Nothing leaves the machine: a host without a route is answered with 502 and recorded.
"""

import asyncio
import contextlib
import json
import ssl
import threading
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

STORAGE_HOSTS = ("www.googleapis.com", "storage.googleapis.com")
TOKEN_HOST = "oauth2.googleapis.com"
TOKEN = "token-of-the-stand-in"
PROJECT = "test-project"
PIECE = 1 << 16

KINDS = ("unavailable", "reset", "lost", "slow")
"""HTTP 503; a connection reset before the request reached the server, or after it was done; an answer a second late."""


@dataclass(frozen=True)
class Faults:
    """What goes wrong at the storage hosts, the same way in every run.

    Attributes:
        every: One request in so many goes wrong; the kinds follow each other.
        kinds: Which kinds of `KINDS`.
        first: The first request to go wrong, from 1: another `first` is another series.
        delay: Seconds that a slow answer takes longer.
    """

    every: int = 20
    kinds: tuple[str, ...] = KINDS
    first: int = 7
    delay: float = 1.0

    def kind(self, request: int) -> str:
        """Returns what happens to the n-th request, from 1; empty for nothing."""
        turn, rest = divmod(request - self.first, self.every)
        return "" if rest or turn < 0 else self.kinds[turn % len(self.kinds)]


@dataclass
class Edge:
    """A running edge.

    Attributes:
        environment: Variables that make a child process use it.
        connections: Connections by host. Storage answers `Connection: close`, so there each is one request.
        faults: Faults by kind.
        unknown_hosts: Hosts without a route that were asked for, by number of times.
        requests: Method, host and path of every connection's first request, in order.
    """

    environment: dict[str, str] = field(default_factory=dict)
    connections: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    unknown_hosts: Counter[str] = field(default_factory=Counter)
    requests: list[str] = field(default_factory=list)


@contextlib.contextmanager
def edge(routes: Mapping[str, int], folder: Path | str, faults: Faults | None = None) -> Iterator[Edge]:
    """Runs an edge in a thread.

    Args:
        routes: Port on 127.0.0.1 by host name or pattern such as `*-aiplatform.googleapis.com`; the first that fits.
        folder: Where the authority's certificate and the service account's key go.
        faults: What goes wrong at the storage hosts; None for nothing.

    Example:
        with storage() as server, edge(server.routes, tmp_path) as network:
            subprocess.run(command, env={**os.environ, **network.environment})
    """
    result = Edge()
    proxy = _Proxy(routes, faults, result)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        port = _call(loop, proxy.start())
        result.environment.update(_environment(f"http://127.0.0.1:{port}", proxy.authority, Path(folder)))
        yield result
        _call(loop, proxy.stop())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _call(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run_coroutine_threadsafe(work, loop).result(timeout=30)


def _environment(proxy: str, authority: trustme.CA, folder: Path) -> dict[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    certificate, account = folder / "authority.pem", folder / "service-account.json"
    authority.cert_pem.write_to_path(certificate)
    account.write_text(json.dumps(_service_account()), encoding="utf-8")
    return {
        "https_proxy": proxy,
        "HTTPS_PROXY": proxy,
        "no_proxy": "",
        "NO_PROXY": "",
        "CURL_CA_BUNDLE": str(certificate),
        "REQUESTS_CA_BUNDLE": str(certificate),
        "GOOGLE_APPLICATION_CREDENTIALS": str(account),
        "GOOGLE_AUTH_TOKEN_FOR_TESTING": TOKEN,  # TensorFlow's; else it signs a request for a token with the key above
        "GOOGLE_CLOUD_PROJECT": PROJECT,
        "NO_GCE_CHECK": "true",
        "GCS_RETRY_CONFIG_INIT_DELAY_TIME_US": "0",  # TensorFlow else waits 1 to 2 s before its first retry
    }


def _service_account() -> dict[str, str]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode("ascii")
    return {
        "type": "service_account",
        "project_id": PROJECT,
        "private_key_id": "0",
        "private_key": pem,
        "client_email": f"tests@{PROJECT}.iam.gserviceaccount.com",
        "client_id": "0",
        "token_uri": f"https://{TOKEN_HOST}/token",
    }


class _Proxy:
    """The proxy itself; all its methods run in one event loop."""

    def __init__(self, routes: Mapping[str, int], faults: Faults | None, record: Edge) -> None:
        self.authority = trustme.CA()
        self._routes, self._faults, self._record = dict(routes), faults, record
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._storage_requests = 0

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            # A client that leaves early is no fault of ours.
            with contextlib.suppress(OSError, ssl.SSLError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._serve(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, target, *_ = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split()
        host = target.rpartition(":")[0]
        port = next((port for pattern, port in self._routes.items() if fnmatch(host, pattern)), None)
        if method != "CONNECT" or (port is None and host != TOKEN_HOST):
            self._record.unknown_hosts[host if method == "CONNECT" else target] += 1
            writer.write(b"HTTP/1.1 502 no route at the edge\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
            return
        self._record.connections[host] += 1
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await writer.drain()
        await writer.start_tls(self._context(host))
        head = await reader.readuntil(b"\r\n\r\n")
        method, path, *_ = head.decode("latin-1").split()
        self._record.requests.append(f"{method} {host}{path}")
        if port is None:
            token = {"access_token": TOKEN, "token_type": "Bearer", "expires_in": 3600}
            await _answer(reader, writer, "200 OK", token)
            return
        kind = self._next_fault(host)
        if kind == "unavailable":
            error = {"error": {"code": 503, "message": "Try again."}}
            await _answer(reader, writer, "503 Service Unavailable", error)
            return
        if kind == "reset":
            writer.transport.abort()
            return
        if kind == "slow":
            await asyncio.sleep(self._faults.delay)
        backend_reader, backend_writer = await asyncio.open_connection("127.0.0.1", port)
        backend_writer.write(head)
        answers = _pipe(backend_reader, writer) if kind != "lost" else _lose(backend_reader, writer)
        pipes = [asyncio.ensure_future(way) for way in (_pipe(reader, backend_writer), answers)]
        try:
            await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pipe in pipes:
                pipe.cancel()
            await asyncio.gather(*pipes, return_exceptions=True)
            backend_writer.close()

    def _next_fault(self, host: str) -> str:
        if self._faults is None or host not in STORAGE_HOSTS:
            return ""
        self._storage_requests += 1
        kind = self._faults.kind(self._storage_requests)
        if kind:
            self._record.faults[kind] += 1
        return kind

    def _context(self, host: str) -> ssl.SSLContext:
        if host not in self._contexts:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.set_alpn_protocols(["http/1.1"])
            self.authority.issue_cert(host).configure_cert(context)  # keys on elliptic curves: a handshake takes 1 ms
            self._contexts[host] = context
        return self._contexts[host]


async def _answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, status: str, value: dict[str, Any]
) -> None:
    content = json.dumps(value)
    headers = f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\nConnection: close\r\n"
    writer.write(f"HTTP/1.1 {status}\r\n{headers}\r\n{content}".encode("ascii"))
    await writer.drain()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1):  # a close with unread bytes would reset the connection, the answer with it
            while await reader.read(PIECE):
                pass


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(PIECE):
        writer.write(piece)
        await writer.drain()


async def _lose(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Lets the client send its body, and cuts it off once there is an answer."""
    while (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100"):
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await writer.drain()
    writer.transport.abort()
