"""Mends arguments that came through a pipeline: numbers inside a list or dict are floats, and the order is lost."""

from collections.abc import Mapping
from typing import Any

from components.errors import ModelError


def whole(name: str, value: Any, *, minimum: int = 1) -> int:
    """Returns `value` as an int: 64 from 64.0.

    Raises:
        ModelError: if it is not a whole number, or below `minimum`.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value) or value < minimum:
        raise ModelError(f"model.arguments.{name} is {value!r}, expected a whole number of at least {minimum}.")
    return int(value)


def wholes(name: str, values: Any) -> list[int]:
    """Returns a list of whole numbers, each at least 1: [32, 64] from [32.0, 64.0]."""
    if not isinstance(values, list | tuple):
        raise ModelError(f"model.arguments.{name} is {values!r}, expected a list of whole numbers such as [32, 64].")
    return [whole(f"{name}[{index}]", value) for index, value in enumerate(values)]


def fraction(name: str, value: Any) -> float:
    """Returns a float of at least 0 and below 1, such as a dropout rate."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise ModelError(f"model.arguments.{name} is {value!r}, expected a number from 0 up to, but without, 1.")
    return float(value)


def flag(name: str, value: Any) -> bool:
    """Returns a bool; the text `false` is not taken for true."""
    if not isinstance(value, bool):
        raise ModelError(f"model.arguments.{name} is {value!r}, expected true or false.")
    return value


def in_order(value: Any) -> Any:
    """Returns `value` with the keys of every dict in it sorted.

    KFP hands them to each process in another order (protobuf's maps have none), and what is written must not differ.
    """
    if isinstance(value, Mapping):
        return {key: in_order(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [in_order(item) for item in value]
    return value
