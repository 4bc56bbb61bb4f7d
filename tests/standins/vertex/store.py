"""Resources by name, in memory."""

import threading
from functools import partial
from typing import Any

from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct

from tests.standins.vertex.errors import ApiError
from tests.standins.vertex.filters import matches


class Store:
    """The resources of one kind.

    Args:
        noun: What a missing one is called, such as `PipelineJob`.
    """

    def __init__(self, noun: str) -> None:
        self.lock = threading.RLock()
        self._noun, self._items = noun, {}

    def add(self, message: Message) -> Message:
        with self.lock:
            if message.name in self._items:
                raise ApiError("ALREADY_EXISTS", f"The {self._noun} {message.name!r} already exists.")
            self._items[message.name] = message
        return message

    def get(self, name: str) -> Message:
        with self.lock:
            if name not in self._items:
                raise ApiError("NOT_FOUND", f"The {self._noun} {name!r} does not exist.")
            return self._items[name]

    def remove(self, name: str) -> None:
        with self.lock:
            self.get(name)
            del self._items[name]

    def all(self, parent: str = "") -> list[Message]:
        """Returns those below a parent, newest first."""
        with self.lock:
            return [item for name, item in reversed(self._items.items()) if name.startswith(parent)]


def page(messages: list[Message], field: str, query: dict[str, str], look_up: Any = None) -> dict[str, Any]:
    """Returns the list answer for a query with `filter`, `pageSize` and `pageToken`."""
    look_up = look_up or value_of
    found = [item for item in messages if matches(query.get("filter", ""), partial(look_up, item))]
    start, size = int(query.get("pageToken") or 0), int(query.get("pageSize") or 0) or len(found)
    answer: dict[str, Any] = {field: found[start : start + size]}
    if start + size < len(found):
        answer["nextPageToken"] = str(start + size)
    return answer


def value_of(message: Message, field: str) -> Any:
    """Returns what a filter's field stands for: `display_name`, `displayName`, `labels.team`, `state`."""
    value: Any = message
    for part in field.split("."):
        if isinstance(value, Struct):
            value = dict(value).get(part)
        elif isinstance(value, Message):
            names = {name: spec for spec in value.DESCRIPTOR.fields for name in (spec.name, spec.json_name)}
            if part not in names:
                raise ApiError("INVALID_ARGUMENT", f"filter: {field!r} is no field of {message.DESCRIPTOR.name}")
            spec, value = names[part], getattr(value, names[part].name)
            if spec.enum_type is not None:
                value = spec.enum_type.values_by_number[value].name
        else:
            value = value.get(part)
    return list(value) if type(value).__name__.startswith("Repeated") else value
