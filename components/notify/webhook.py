"""Posts a run's notice to a webhook. Nothing that goes wrong there is the run's fault, so it is a warning at most.

A webhook's path and query are its password: they are never logged, nor is an error's own text, which may hold them.
"""

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from components.step import log

TIMEOUT_SECONDS = 10.0
# Seconds before each try.
TRIES = (0.0, 1.0, 4.0)
# Chats show `text`, and Google's refuses a message with fields that it doesn't know.
_CHATS = ("chat.googleapis.com", "hooks.slack.com")
_THIS_MACHINE = ("127.0.0.1", "localhost")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Leaves a redirect unfollowed: it would take the notice to another host, and turn POST into GET."""

    def redirect_request(self, *_: Any) -> None:
        """Returns no request."""


def post(webhook: str, notice: dict[str, Any], text: str, *, wait: Callable[[float], None] = time.sleep) -> bool:
    """Posts a notice as JSON, with its one readable line as `text`; to Slack and Google Chat, that line alone.

    Args:
        webhook: An https URL; http only on this machine.
        notice: The notice.
        text: The line.
        wait: Waits for so many seconds before another try.

    Returns:
        Whether it was taken. If not, a warning names the host and what went wrong.
    """
    host = _host(webhook)
    if not host:
        log.warning("The notice was not sent: the webhook is not a URL that starts with https:// and names a host.")
        return False
    content = {"text": text} if host in _CHATS else notice | {"text": text}
    problem = ""
    for seconds in TRIES:
        if seconds:
            wait(seconds)
        problem, again = _try(webhook, json.dumps(content).encode("ascii"))
        if not problem:
            log.info(f"The notice was sent to the webhook at {host}.")
            return True
        if not again:
            break
    log.warning(f"The notice was not sent: the webhook at {host} {problem}; check the address, and that it is in use.")
    return False


def _host(webhook: str) -> str:
    """Returns the host of a webhook, or an empty string where it may not be called."""
    try:
        url = urlsplit(webhook)
        host = url.hostname or ""
    except ValueError:
        return ""
    return host if url.scheme == "https" or (url.scheme == "http" and host in _THIS_MACHINE) else ""


def _try(webhook: str, content: bytes) -> tuple[str, bool]:
    """Posts once. Returns what went wrong, if anything, and whether another try may help."""
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        headers = {"Content-Type": "application/json; charset=UTF-8", "User-Agent": "tpu-pipelines"}
        request = urllib.request.Request(webhook, content, headers)  # noqa: S310 - the scheme was checked
        with opener.open(request, timeout=TIMEOUT_SECONDS):
            return "", False
    except urllib.error.HTTPError as error:
        error.close()
        return f"answered HTTP {error.code}", error.code == http.client.TOO_MANY_REQUESTS or error.code >= 500
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        said = f" ({reason.strerror})" if isinstance(reason, OSError) and reason.strerror else ""
        kind = type(reason if isinstance(reason, Exception) else error).__name__
        return f"could not be reached: {kind}{said}", isinstance(error, OSError)
