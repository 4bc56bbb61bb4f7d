"""Between JSON and Vertex AI's own protos: nothing unknown gets in, and what goes out has the names of REST."""

from typing import Any

from google.cloud import aiplatform_v1 as v1
from google.protobuf import json_format
from google.protobuf.message import Message

from tests.standins.vertex.errors import ApiError


def new(kind: str, **fields: Any) -> Message:
    """Returns a message of `aiplatform_v1`."""
    return getattr(v1, kind).pb()(**fields)


def parse(content: str | bytes | dict, message: Message) -> Message:
    """Reads JSON into a message, refusing every field that it does not have."""
    try:
        if isinstance(content, dict):
            return json_format.ParseDict(content, message)
        return json_format.Parse(content or "{}", message)
    except (json_format.ParseError, UnicodeDecodeError) as error:
        name = message.DESCRIPTOR.name
        raise ApiError("INVALID_ARGUMENT", f"Invalid JSON payload received for {name}. {error}") from None


def to_dict(message: Message) -> dict[str, Any]:
    """Returns the JSON of a message, whole numbers of a Struct as ints, as Vertex renders them."""
    return integral(json_format.MessageToDict(message))


def integral(value: Any) -> Any:
    """Returns the value with every float that is whole as an int, at any depth."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: integral(item) for key, item in value.items()}
    if isinstance(value, list):
        return [integral(item) for item in value]
    return value
