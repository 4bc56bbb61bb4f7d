"""Starts the server: `python -m components.serving`, told by Vertex AI's environment variables what to serve where.

The port is open, and health answers 503, while the model is being loaded. Exit status: 0 after SIGTERM or SIGINT, 2
where a setting or the exported model is at fault, 1 for ours.
"""

import logging
import os
import re
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass

import uvicorn

from components.errors import ConfigError, TpuPipelinesError
from components.serving.server import Service
from components.step import log, log_to_stdout

# Longest time that running requests have after SIGTERM. A request that a client never sends whole would else wait on.
SECONDS_TO_END = 30
_ROUTE = re.compile(r"/[\w.~:@!$&'()*+,;=%/-]*")


@dataclass(frozen=True)
class Settings:
    """What the environment says.

    Attributes:
        storage_uri: Folder of the exported model, local or `gs://`.
        port: Where to listen, on every interface.
        health_route: Path of health checks.
        predict_route: Path of predictions.
    """

    storage_uri: str
    port: int
    health_route: str
    predict_route: str

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> "Settings":
        """Reads Vertex AI's variables.

        Raises:
            ConfigError: if there is no model, or a port or path is impossible.
        """
        uri = environment.get("AIP_STORAGE_URI", "").strip()
        if not uri:
            raise ConfigError("AIP_STORAGE_URI is empty; set it to the folder that the export step wrote.")
        port = environment.get("AIP_HTTP_PORT") or "8080"
        if not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
            raise ConfigError(f"AIP_HTTP_PORT is {port!r}, expected a port from 1 to 65535.")
        routes = []
        for name, default in (("AIP_HEALTH_ROUTE", "/health"), ("AIP_PREDICT_ROUTE", "/predict")):
            route = environment.get(name) or default
            if not _ROUTE.fullmatch(route):
                raise ConfigError(f"{name} is {route!r}, expected a path such as {default}.")
            routes.append(route)
        if routes[0] == routes[1]:
            raise ConfigError(f"AIP_HEALTH_ROUTE and AIP_PREDICT_ROUTE are both {routes[0]!r}, expected two paths.")
        return cls(uri, int(port), *routes)


def main() -> int:
    """Serves until a signal ends the process; returns an exit status only if it can't serve."""
    start = time.monotonic()
    # Importing tensorflow-text imports Keras, and the server's image has the one that TensorFlow brings, not tf-keras.
    # The SavedModel needs neither.
    os.environ["TF_USE_LEGACY_KERAS"] = "0"
    uvicorn_log = logging.getLogger("uvicorn.error")
    uvicorn_log.addHandler(log_to_stdout("serving"))
    uvicorn_log.propagate = False
    # uvicorn handles both while it runs, and raises them again once every request is answered. Not sys.exit: a thread
    # that still loads the model can't be interrupted, and would break the interpreter's end.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    try:
        settings = Settings.read(os.environ)
        listener = _listen(settings.port)
    except ConfigError as error:
        log.error(str(error))
        return 2
    service = Service(settings.health_route, settings.predict_route)
    config = uvicorn.Config(
        service.app,
        log_config=None,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=SECONDS_TO_END,
    )
    server = uvicorn.Server(config)
    status = 0

    def load_model() -> None:
        nonlocal status
        try:
            from components.serving.predictor import load

            service.predictor = load(settings.storage_uri)
            log.info(f"ready {time.monotonic() - start:.1f} s after the start")
        except TpuPipelinesError as error:
            log.error(str(error))
            status = 2 if error.fault == "user" else 1
        except BaseException:
            log.error(f"{settings.storage_uri} can't be served\n{traceback.format_exc()}")
            status = 1
        server.should_exit = service.predictor is None

    log.info(f"listening on port {settings.port}; loading {settings.storage_uri}")
    threading.Thread(target=load_model, daemon=True, name="load").start()
    server.run(sockets=[listener])
    return status


def _leave(number: int, _: object) -> None:
    log.info(f"{signal.Signals(number).name}: every request is answered, the server ends")
    os._exit(0)


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server(("0.0.0.0", port))  # noqa: S104 - Vertex AI asks for every interface
    except OSError as error:
        raise ConfigError(
            f"Port {port} can't be listened on ({os.strerror(error.errno or 0)}); set AIP_HTTP_PORT."
        ) from error


if __name__ == "__main__":
    sys.exit(main())
