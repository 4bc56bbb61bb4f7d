"""What a request holds: its JSON, and its instances as arrays that the model takes."""

import base64
import binascii
import json
import struct
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, NoReturn

import numpy as np

from components.errors import TpuPipelinesError, did_you_mean

LARGEST_BODY = 10 * 2**20  # bytes: what Vertex AI's dedicated endpoints let through
MOST_INSTANCES = 1024
LONGEST_TEXT = 100_000  # characters

_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_HEADER = struct.Struct(">8xI4sIIB")  # signature, length and type of the first chunk, width, height, bit depth
_JPEG = b"\xff\xd8\xff"


class RequestError(TpuPipelinesError):
    """A request that can't be answered; its text goes to the client.

    Attributes:
        status: The HTTP status of the answer.
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def read_body(body: bytes) -> list[Any]:
    """Returns the instances of a request.

    Args:
        body: JSON: `{"instances": [...]}`. `parameters` may be there if it is empty: there are none.

    Returns:
        1 to 1,024 instances, as JSON has them.

    Raises:
        RequestError: if it is anything else.
    """
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise RequestError(f"The request is not UTF-8 text (byte {error.start}); send JSON in UTF-8.") from error
    except RecursionError as error:
        raise RequestError(
            "The request is nested too deeply; see docs/serving.md for the form of a request."
        ) from error
    except ValueError as error:
        raise RequestError(f'The request is not JSON ({error}); send {{"instances": [...]}}.') from error
    if not isinstance(value, dict):
        raise RequestError(f'The request is {_shown(value)}, expected an object: {{"instances": [...]}}.')
    if unknown := sorted(set(value) - {"instances", "parameters"}):
        near = did_you_mean(unknown[0], ["instances", "parameters"])
        raise RequestError(f"The request has the unknown field {_quoted(unknown[0])}; leave it out.{near}")
    if value.get("parameters") not in (None, {}):
        raise RequestError(f"parameters is {_shown(value['parameters'])}, but this model takes none; leave it out.")
    if "instances" not in value:
        raise RequestError('The request has no instances; send {"instances": [...]}.')
    instances = value["instances"]
    if not isinstance(instances, list):
        raise RequestError(f"instances is {_shown(instances)}, expected a list; put a single instance in a list too.")
    if not instances:
        raise RequestError("instances is an empty list; send at least one instance.")
    if len(instances) > MOST_INSTANCES:
        message = f"The request has {len(instances):,} instances, at most {MOST_INSTANCES:,} are answered; send fewer."
        raise RequestError(message, 413)
    return instances


def parser(inputs: Mapping[str, Mapping[str, Any]]) -> "Images | Texts | None":
    """Returns what reads instances for a model's inputs, or None if there is nothing for such inputs.

    Args:
        inputs: `dtype` (TensorFlow's name) and `shape` (the batch first; None stands for any size) by input name.
    """
    if len(inputs) != 1:
        return None
    ((name, spec),) = inputs.items()
    match spec["dtype"], spec["shape"]:
        case "uint8", [None, int(height), int(width), int(channels)]:
            return Images(name, (height, width, channels))
        case "string", [None]:
            return Texts(name)
    return None


class Images:
    """Reads images: nested lists of pixels, or a PNG or JPEG in base64.

    Args:
        name: The model's input: an instance may be an object with this key.
        shape: Height, width and channels of the model's images.
    """

    def __init__(self, name: str, shape: tuple[int, int, int]) -> None:
        self.name, self._shape = name, shape
        self._expected = f"an image of shape {list(shape)} (height, width, channels)"

    def __call__(self, instances: list[Any]) -> np.ndarray:
        """Returns uint8 `[batch, height, width, channels]`.

        Raises:
            RequestError: if an instance is no image of the model's size.
        """
        return np.stack([self._image(f"Instance {index}", value) for index, value in enumerate(instances)])

    def example(self) -> np.ndarray:
        """Returns a batch of one: a black image."""
        return np.zeros((1, *self._shape), np.uint8)

    def _image(self, where: str, value: Any) -> np.ndarray:
        if isinstance(value, dict) and set(value) == {self.name}:
            value = value[self.name]
        if isinstance(value, dict) and set(value) == {"b64"}:
            return self._from_file(where, value["b64"])
        if isinstance(value, list):
            return self._from_lists(where, value)
        raise RequestError(
            f'{where} is {_shown(value)}, expected {self._expected}: nested lists of pixels, or {{"b64": "..."}} with '
            f'a PNG or JPEG; either may be under the key "{self.name}".'
        )

    def _from_lists(self, where: str, value: list[Any]) -> np.ndarray:
        level: list[Any] = [value]
        for size in self._shape:
            for item in level:
                if not isinstance(item, list) or len(item) != size:
                    raise RequestError(
                        f"{where}: expected {self._expected} as nested lists, found {_shown(item)} in place of a list "
                        f"of {size}; resize the image, or mend the order of its dimensions."
                    )
            level = list(chain.from_iterable(level))
        # A whole float is taken: Vertex AI may hand every number on as one. By type, since True is an int to Python.
        if not set(map(type, level)) <= {int, float}:
            self._refuse_pixel(where, next(item for item in level if type(item) not in (int, float)))
        if not 0 <= min(level) <= max(level) <= 255:
            self._refuse_pixel(where, next(item for item in level if not 0 <= item <= 255))
        pixels = np.array(level, np.float64)
        if np.any(pixels != np.floor(pixels)):
            self._refuse_pixel(where, next(item for item in level if item != int(item)))
        return pixels.astype(np.uint8).reshape(self._shape)

    def _refuse_pixel(self, where: str, value: Any) -> NoReturn:
        raise RequestError(
            f"{where}: a pixel is {_shown(value)}, expected whole numbers from 0 to 255 (uint8); send pixels as an "
            "image file has them, neither scaled to 0..1 nor normalised: the model does that itself."
        )

    def _from_file(self, where: str, value: Any) -> np.ndarray:
        import tensorflow as tf

        if not isinstance(value, str):
            raise RequestError(f"{where}: b64 is {_shown(value)}, expected a PNG or JPEG as base64 text.")
        try:
            content = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError) as error:
            raise RequestError(
                f"{where}: b64 is not base64 ({error}); encode the file's bytes with the standard alphabet, padding "
                "included, without line ends."
            ) from error
        # The size stands in the file's head: a small file may unfold to gigabytes.
        decode: Callable[..., Any]
        try:
            if content.startswith(_PNG):
                _, _, width, height, depth = _PNG_HEADER.unpack_from(content)
                if depth == 16:
                    raise RequestError(f"{where}: the PNG has 16 bits a channel, expected 8; convert it.")
                decode = tf.io.decode_png
            elif content.startswith(_JPEG):
                height, width, _ = tf.io.extract_jpeg_shape(content).numpy().tolist()
                decode = tf.io.decode_jpeg
            else:
                raise RequestError(f"{where}: b64 holds neither a PNG nor a JPEG; convert the image to one of them.")
            if (height, width) == self._shape[:2]:
                pixels: np.ndarray = decode(content, channels=0).numpy()  # 0: the file's own number
                shape = pixels.shape
            else:
                shape = (height, width)
        except (tf.errors.OpError, struct.error) as error:
            raise RequestError(f"{where}: the image can't be decoded; its file is damaged or cut off.") from error
        if shape != self._shape:
            raise RequestError(
                f"{where}: the image file has shape {list(shape)}, expected {self._expected}; resize it, and convert "
                "it to the same channels (1 grey, 3 colour, 4 with transparency)."
            )
        return pixels


class Texts:
    """Reads texts.

    Args:
        name: The model's input: an instance may be an object with this key.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, instances: list[Any]) -> np.ndarray:
        """Returns UTF-8 bytes, as objects, `[batch]`.

        Raises:
            RequestError: if an instance is no text, or blank, or too long.
        """
        texts = np.empty(len(instances), object)
        for index, value in enumerate(instances):
            texts[index] = self._text(f"Instance {index}", value)
        return texts

    def example(self) -> np.ndarray:
        """Returns a batch of one text."""
        return np.array([b"warm-up"], object)

    def _text(self, where: str, value: Any) -> bytes:
        if isinstance(value, dict) and set(value) == {self.name}:
            value = value[self.name]
        if not isinstance(value, str):
            raise RequestError(f'{where} is {_shown(value)}, expected a text: "..." or {{"{self.name}": "..."}}.')
        if not value.strip():
            raise RequestError(f"{where} is a text without content, of which there was none in training; leave it out.")
        if len(value) > LONGEST_TEXT:
            raise RequestError(
                f"{where} has {len(value):,} characters, at most {LONGEST_TEXT:,} are taken; cut it: the model reads "
                "no more than its first tokens."
            )
        try:
            return value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise RequestError(
                f"{where} holds half of a surrogate pair at character {error.start}, which is no character; send "
                "whole characters."
            ) from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"it holds {name}, which JSON has no word for")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("an object has the same key twice")
    return value


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "...")


def _shown(value: Any) -> str:
    """Returns a JSON value in a few words."""
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        keys = ", ".join(map(_quoted, list(value)[:4]))
        return f"an object with {len(value)} keys ({keys})" if value else "an empty object"
    return f"the text {_quoted(value)}" if isinstance(value, str) else json.dumps(value)[:40]
