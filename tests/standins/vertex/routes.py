"""Which method of the service answers which request."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

# The SDK asks after operations below /ui, as their service description says.
LOCATION = r"/(?:v1|ui)/projects/(?P<project>[^/]+)/locations/(?P<location>[^/:]+)"


@dataclass
class Request:
    """A request that has arrived.

    Attributes:
        parts: What the path's variables stand for.
        parent: `projects/NUMBER/locations/REGION`, for those below a location.
    """

    method: str
    path: str
    query: dict[str, str]
    body: bytes
    parts: dict[str, str] = field(default_factory=dict)
    parent: str = ""

    @property
    def id(self) -> str:
        return self.parts["id"]

    @property
    def location(self) -> str:
        return self.parts["location"]


def route(method: str, path: str) -> Callable:
    """Marks a method as the answer to a request.

    Args:
        method: HTTP's method.
        path: The path, where `{location}` is `/v1/projects/P/locations/L`, and `{id}` is one part of it.
    """
    pattern = re.compile(
        re.sub(r"\\{(\w+)\\}", lambda m: LOCATION if m[1] == "location" else rf"(?P<{m[1]}>[^/:]+)", re.escape(path))
    )

    def mark(function: Callable) -> Callable:
        function.routes = [*getattr(function, "routes", []), (method, pattern)]
        return function

    return mark


def find(services: list[Any]) -> Iterator[tuple[str, re.Pattern[str], Callable]]:
    """Yields the routes of some objects: method, pattern and bound function."""
    for service in services:
        for name in dir(type(service)):
            for method, pattern in getattr(getattr(type(service), name), "routes", []):
                yield method, pattern, getattr(service, name)
