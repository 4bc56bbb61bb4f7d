"""The conditions of KFP's control flow: the part of CEL that `dsl.If`, `Elif` and `Else` compile to."""

import ast
import operator
import re
from typing import Any

_TOKENS = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|&&|\|\||!(?!=)|\b(?:true|false)\b")
_WORDS = {"&&": " and ", "||": " or ", "!": " not ", "true": "True", "false": "False"}
_COMPARE = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_CASTS = {"int": int, "double": float, "string": str}


def holds(condition: str, parameters: dict[str, Any]) -> bool:
    """Says whether a condition such as `inputs.parameter_values['x'] == 'PASSED'` holds."""
    python = _TOKENS.sub(lambda token: _WORDS.get(token[0], token[0]), condition)
    return bool(_value(ast.parse(python.strip(), mode="eval").body, parameters))


def _value(node: ast.expr, parameters: dict[str, Any]) -> Any:
    match node:
        case ast.Constant(value):
            return value
        case ast.BoolOp(ast.And(), parts):
            return all(_value(part, parameters) for part in parts)
        case ast.BoolOp(ast.Or(), parts):
            return any(_value(part, parameters) for part in parts)
        case ast.UnaryOp(ast.Not(), part):
            return not _value(part, parameters)
        case ast.Compare(left, [comparison], [right]) if type(comparison) in _COMPARE:
            return _COMPARE[type(comparison)](_value(left, parameters), _value(right, parameters))
        case ast.Call(ast.Name(name), [part]) if name in _CASTS:
            return _CASTS[name](_value(part, parameters))
        case ast.Subscript(ast.Attribute(ast.Name("inputs"), "parameter_values"), ast.Constant(name)):
            return parameters[name]
    raise ValueError(f"condition not understood: {ast.unparse(node)}")
