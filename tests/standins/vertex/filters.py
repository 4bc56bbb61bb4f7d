"""Google's list filters (AIP-160), as far as the clients here write them."""

import re
from collections.abc import Callable
from typing import Any

from tests.standins.vertex.errors import ApiError

_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[<>!]=|[()=:<>*]|[^\s()=:<>!"*]+)')
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda found, value: found == value,
    "!=": lambda found, value: found != value,
    ">=": lambda found, value: found >= value,
    "<=": lambda found, value: found <= value,
    ">": lambda found, value: found > value,
    "<": lambda found, value: found < value,
    ":": lambda found, value: value in found if found else False,
}


def matches(expression: str, look_up: Callable[[str], Any]) -> bool:
    """Says whether a resource passes a filter.

    Args:
        expression: `a="x" AND (b:"y" OR NOT c>=3)`, `in_context("name")`; empty passes all.
        look_up: Gives the value of a field; a list matches if one of its values does. For a function such as
            `in_context`, the values that it is true of.
    """
    tokens = _TOKEN.findall(expression)
    if not tokens:
        return True
    parser = _Parser(expression, tokens, look_up)
    result = parser.either()
    parser.expect_end()
    return result


class _Parser:
    def __init__(self, expression: str, tokens: list[str], look_up: Callable[[str], Any]) -> None:
        self._expression, self._tokens, self._look_up = expression, tokens, look_up

    def either(self) -> bool:
        result = self._both()
        while self._take("OR"):
            result = self._both() or result
        return result

    def expect_end(self) -> None:
        if self._tokens:
            self._fail()

    def _both(self) -> bool:
        result = self._one()
        while self._tokens and self._tokens[0] not in ("OR", ")"):
            self._take("AND")
            result = self._one() and result
        return result

    def _one(self) -> bool:
        if self._take("NOT"):
            return not self._one()
        if self._take("("):
            result = self.either()
            self._expect(")")
            return result
        field = self._next()
        if self._take("("):
            value = _plain(self._next())
            self._expect(")")
            return value in self._look_up(field)
        operator = self._next()
        if operator not in _OPERATORS:
            self._fail()
        if self._take("("):
            values = [_plain(self._next())]
            while self._take("OR"):
                values.append(_plain(self._next()))
            self._expect(")")
        else:
            values = [_plain(self._next())]
        return any(self._compare(field, operator, value) for value in values)

    def _compare(self, field: str, operator: str, value: str) -> bool:
        found = self._look_up(field)
        if operator == ":" and value == "*":
            return found not in (None, "", [])
        if isinstance(found, list):
            return any(_OPERATORS[operator](item, value) for item in found)
        return found is not None and _OPERATORS[operator](found, value)

    def _next(self) -> str:
        if not self._tokens:
            self._fail()
        return self._tokens.pop(0)

    def _take(self, token: str) -> bool:
        if self._tokens and self._tokens[0] == token:
            self._tokens.pop(0)
            return True
        return False

    def _expect(self, token: str) -> None:
        if not self._take(token):
            self._fail()

    def _fail(self) -> None:
        raise ApiError("INVALID_ARGUMENT", f"filter: {self._expression!r} is not understood at {self._tokens[:3]}")


def _plain(token: str) -> str:
    return re.sub(r"\\(.)", r"\1", token[1:-1]) if token.startswith('"') else token
