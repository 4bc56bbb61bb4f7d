"""The routes: health and predictions, every answer JSON."""

import asyncio
import json
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from components.serving.instances import LARGEST_BODY, RequestError, read_body
from components.step import log

if TYPE_CHECKING:  # it imports TensorFlow, which takes seconds: the server answers before that
    from components.serving.predictor import Predictor

# TensorFlow spreads one call over all cores; the second thread reads the next request meanwhile.
THREADS = 2
# Longest time that a client may take to send a request.
SECONDS_TO_SEND = 60
# Requests taken on at once, running and waiting: each may hold LARGEST_BODY.
MOST_REQUESTS = 64


class Service:
    """The HTTP application of one model.

    Args:
        health_route: Path that answers 200 once the model is ready, and 503 before.
        predict_route: Path that answers predictions.

    Attributes:
        app: The ASGI application.
        predictor: The model, once it is ready.
    """

    def __init__(self, health_route: str, predict_route: str) -> None:
        self.predictor: Predictor | None = None
        self._threads = ThreadPoolExecutor(THREADS, "predict")
        self._requests = 0
        self._routes = f"GET {health_route} and POST {predict_route}"
        routes = [Route(health_route, self._health), Route(predict_route, self._predict, methods=["POST"])]
        self.app = Starlette(routes=routes, exception_handlers={HTTPException: self._no_route})
        self.app.router.redirect_slashes = False

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "ready"}) if self.predictor else _error("The model is being loaded.", 503)

    async def _predict(self, request: Request) -> Response:
        if self.predictor is None:
            return _error("The model is being loaded; try again in some seconds.", 503)
        if self._requests >= MOST_REQUESTS:
            return _error(f"{MOST_REQUESTS} requests are being answered already; try again later.", 429)
        self._requests += 1
        try:
            try:
                async with asyncio.timeout(SECONDS_TO_SEND):
                    body = await _read(request)
            except TimeoutError:
                return _error(f"The request had not arrived after {SECONDS_TO_SEND} seconds; send it again.", 408)
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, _answer, self.predictor, body)
        except RequestError as error:
            log.warning(f"a request was refused with status {error.status}")  # its sentence may quote the request
            return _error(str(error), error.status)
        except ClientDisconnect:
            return Response(status_code=400)  # which nobody reads
        except Exception:
            log.error(f"a request failed\n{traceback.format_exc()}")
            return _error(
                "The server failed to answer this request, which is not the request's fault; see its log.", 500
            )
        finally:
            self._requests -= 1

    async def _no_route(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        answer = _error(f"This server answers {self._routes}; send the request there.", error.status_code)
        answer.headers.update(error.headers or {})
        return answer


def _answer(predictor: "Predictor", body: bytes) -> Response:
    """Runs in a thread, JSON included, so that health is answered meanwhile."""
    start = time.monotonic()
    rows = predictor.predict(read_body(body))
    content = json.dumps({"predictions": rows}, ensure_ascii=False, allow_nan=False)
    answer = Response(content, media_type="application/json")
    log.info(f"predicted {len(rows):,} instances in {1000 * (time.monotonic() - start):,.0f} ms")
    return answer


async def _read(request: Request) -> bytes:
    """Returns the request's body. One that is too large is read to its end, or the client would not see the answer."""
    body, size = bytearray(), 0
    async for part in request.stream():
        size += len(part)
        if size <= LARGEST_BODY:
            body += part
    if size > LARGEST_BODY:
        raise RequestError(
            f"The request has {size:,} bytes, at most {LARGEST_BODY:,} are read; send fewer instances, or images as "
            "PNG or JPEG.",
            413,
        )
    return bytes(body)


def _error(message: str, status: int) -> Response:
    return JSONResponse({"error": message}, status)
