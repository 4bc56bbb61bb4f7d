"""Turns an error of tracing or lowering a step into one sentence that names the op, the layer and the user's line."""

import itertools
import re
import traceback
from collections.abc import Iterator
from typing import Any

from components.errors import first_line
from components.lower.faults import Fault, find, functions_of, innermost, instead_of, scope_of, tpu_ops

_NODE = r"\{\{node (?P<name>[^}]+)\}\}"
_NO_KERNEL = re.compile(rf"(?P<op>\w+) \(No registered .*?{_NODE}", re.DOTALL)
_NO_CONSTANT = re.compile(r"Input \d+ to node `(?P<name>[^`]+)` with op (?P<op>\w+) must be a compile-time constant")
_NO_LIST_SIZE = re.compile(rf"requires a fixed tensor list size.*?{_NODE}", re.DOTALL)
_IN_LAYER = re.compile(r"Exception encountered when calling layer ['\"](?P<name>.+?)['\"] \(type (?P<type>\w+)\)\.\s*")
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_CODE = re.compile(rf"{_FRAME.pattern}, in .*\n.*\n")
_ARGUMENTS = "Call arguments received by layer"


def explain(error: BaseException, graph: Any = None) -> str:
    """Returns an error of tracing or lowering as one sentence, which names the op or the layer if the error does.

    Args:
        error: What was raised.
        graph: The graph that was to be lowered, which knows the lines of its ops; None while it is being traced.
    """
    text = str(error)
    if found := _NO_KERNEL.search(text):
        for_others = "attributes didn't match" in text  # there is a kernel, for other types
        fault = _without_kernel(found["op"], found["name"], graph, for_others=for_others)
        return f"The step can't be made into a program for a TPU: {fault}"
    if found := _NO_CONSTANT.search(text):
        why = "takes a shape that depends on values, and a TPU's shapes are fixed"
        fault = _named(found["op"], found["name"], graph, why, instead_of(found["op"]) or "take shapes from x.shape")
        return f"The step can't run on a TPU: {fault}"
    if found := _NO_LIST_SIZE.search(text):
        why = "is in a loop of no fixed number of rounds, whose gradient is taken"
        fault = _named("TensorListReserve", found["name"], graph, why, "give tf.while_loop maximum_iterations")
        return f"The step can't run on a TPU: {fault}"
    return f"The step can't be made into a program for a TPU: {_said_by(error)}."


def _without_kernel(op_type: str, name: str, graph: Any, *, for_others: bool) -> Fault:
    """Returns what is wrong with an op that the bridge has no kernel for, though `find` found no fault."""
    if op_type in tpu_ops() and not for_others:
        why = "runs on a TPU, and only TensorFlow's TPU build can write it, so preflight can't tell about this step"
    elif graph is not None and find(graph) == []:
        return _named(op_type, name, graph, "has no kernel for a TPU, and nothing needs its result", "leave it out")
    else:
        why = f"has no kernel for a TPU{' with its types' if for_others else ''}"
    return _named(op_type, name, graph, why, instead_of(op_type))


def _named(op_type: str, name: str, graph: Any, why: str, instead: str) -> Fault:
    """Returns the fault of an op that an error names. The line may be that of the loop or branch which it is in."""
    ops = {} if graph is None else {op.name: op for op in _everywhere(graph, set())}
    scopes = itertools.accumulate(scope_of(name).split("/"), "{}/{}".format)
    around = [ops[scope] for scope in (name, *reversed(list(scopes))) if scope in ops]
    source = next((line for op in around if (line := innermost(op.traceback))), "")
    return Fault(ops[name].type if name in ops else op_type, name, source, why, instead)


def _everywhere(graph: Any, seen: set[int]) -> Iterator[Any]:
    """Yields the ops of a graph and of the functions that it calls."""
    if id(graph) not in seen:
        seen.add(id(graph))
        for op in graph.get_operations():
            yield op
            for called in functions_of(op, graph):
                yield from _everywhere(called, seen)


def _said_by(error: BaseException) -> str:
    """Returns what an error says: the innermost layer that it went through, the user's line, and the first sentence."""
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)  # str would quote it
    text = re.sub(r"^Failed getting HLO text: '(.*)'$", r"\1", text, flags=re.DOTALL)
    layers = list(_IN_LAYER.finditer(text))
    if layers:
        text = text[layers[-1].end() :].partition(_ARGUMENTS)[0]
    frames: list[Any] = traceback.extract_tb(error.__traceback__)
    if "in user code:" in text:  # AutoGraph's own report of lines, which ends with what is wrong
        frames = [traceback.FrameSummary(file, int(row), "") for file, row in _FRAME.findall(text)]
        text = _CODE.split(text)[-1]
    names = dict.fromkeys(re.findall(_NODE, text))
    line = re.sub(r"\{\{(function_)?node ([^}]+)\}\}", r"\2" if layers else "", first_line(Exception(text.strip())))
    line = re.sub(r" = (\w+)\[[^\]]*\]\([^)]*\)", r" (\1)", line)  # an op's attributes and inputs
    line = line.partition(". ")[0].strip().rstrip(".")
    source = innermost(frames)
    where = f"the layer {layers[-1]['name']!r} ({layers[-1]['type']})" if layers else ""
    places = [where, source] if layers else [*names, source]
    at = ", ".join(place for place in places if place)
    return f"{line or type(error).__name__}{f' (at {at})' if at else ''}"
