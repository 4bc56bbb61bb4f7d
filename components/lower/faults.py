"""Names what no TPU runs, by the op, its place in the model and the line of the user's code, before it is compiled.

tpu_ops.txt has the ops, and their types, for which TensorFlow's TPU build has kernels. Each op that this build's bridge
to XLA takes is among them, with the same types but complex128; a few run on a TPU, and nothing here can lower them.

TensorFlow is not needed to import this: it reads the graphs that it made.
"""

import functools
import re
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TPU_OPS = Path(__file__).with_name("tpu_ops.txt")

_PREPARE = "do that when the data is prepared, and give the model numbers"
_MASK = "use tf.where with three arguments, or multiply with a mask"
_ONE_HOT = "sum tf.one_hot over a known range"
# What types no TPU holds, and what to do. Resources are variables, which the program gets as arguments.
_TYPES = {
    "string": ("texts", _PREPARE),
    "variant": ("values of no fixed type", "give it dense tensors"),
    "complex128": ("complex numbers of 128 bits", "use float32 and complex64"),
}
# XLA has kernels for most of these, which bound the shape; TPUStrategy's own rule is that every shape is fixed.
_VALUES_DECIDE = {
    "Where": _MASK,
    "Unique": _ONE_HOT,
    "UniqueV2": _ONE_HOT,
    "UniqueWithCounts": _ONE_HOT,
    "UniqueWithCountsV2": _ONE_HOT,
    "ListDiff": "use a mask over a known range",
    "DynamicPartition": "use a mask for each part",
    "NonMaxSuppression": "use tf.image.non_max_suppression_padded",
    "NonMaxSuppressionV2": "use tf.image.non_max_suppression_padded",
    "NonMaxSuppressionV3": "use tf.image.non_max_suppression_padded",
    "NonMaxSuppressionV4": "use tf.image.non_max_suppression_padded",
    "NonMaxSuppressionV5": "use tf.image.non_max_suppression_padded",
    "XlaSetDynamicDimensionSize": "use a mask",
}
# Inputs from which a slice's size follows: no value of the batch may be behind them.
_SLICES = {"Slice": (2,), "StridedSlice": (1, 2)}
# Patterns of op types, the first that fits: what to use in their place.
_INSTEAD = {
    r"(Eager)?PyFunc(Stateless)?": "write it with TensorFlow's ops, or do it when the data is prepared",
    r"PrintV2|Print|StringFormat": "leave tf.print out of the step",
    r"AsString|String\w*|(Static)?Regex\w*|Substr|ReduceJoin|Unicode\w*|(Read|Write)File": _PREPARE,
    r"Decode\w+|Encode\w+|Parse\w+|\w*LookupTable\w*|\w*HashTable\w*": _PREPARE,
    r"ImageProjectiveTransform\w*": "move images by slices and gathers, as components.models.random_shift does",
    r"CropAndResize\w*": "cut out slices of one size, then resize by tf.image.resize",
    r"ResizeBicubic\w*|ResizeArea\w*|ScaleAndTranslate\w*": "use bilinear, or resize when the data is prepared",
    r"ResizeNearestNeighborGrad": "use bilinear, or tf.repeat along height and width",
    r"Ragged\w*|Sparse\w*|DenseToDenseSet\w*": "use dense tensors, padded to one length, and a mask",
    r"CTCLoss\w*": "use tf.nn.ctc_loss with dense labels",
    r"(Dense)?Bincount|HistogramFixedWidth": _ONE_HOT,
    r"Segment(Sum|Mean|Max|Min|Prod)\w*": "use tf.math.unsorted_segment_sum and its like",
    r"Range": "give it fixed limits (tf.sequence_mask: a maxlen)",
    r"Eig": "use tf.linalg.eigh if the matrix is symmetric",
    r"\w*Dataset\w*|\w*Iterator\w*": "read data outside of the step",
    r"\w*Summary\w*": "write summaries outside of the step",
}
# TensorFlow's bridge resolves these itself. In a graph, a placeholder is an input, whose type is looked at.
_CALLS = {f"{kind}{name}" for kind in ("", "Stateless") for name in ("If", "While", "Case")}
_CALLS |= {"PartitionedCall", "StatefulPartitionedCall", "SymbolicGradient"}
_RESOLVED = _CALLS | {"Placeholder", "VarHandleOp", "_Arg", "_Retval", "Switch", "Merge", "Enter", "Exit"}
_RESOLVED |= {"NextIteration", "LoopCond"}
# What these return are shapes, and those are known, whatever the values are.
_OF_SHAPES = {"Shape", "ShapeN", "Size", "Rank", "VariableShape", "ZerosLike", "OnesLike", "Const"}

# Scopes that gradients, loops and branches put around a layer's own.
_AROUND = re.compile(r"^(gradient_tape|gradients|StatefulPartitionedCall|PartitionedCall)(_\d+)?/")
_LIBRARIES = re.compile(r"/(site|dist)-packages/(tensorflow|keras|tf_keras|transformers|numpy)\w*/")
_OURS = Path(__file__).parents[1]
_LOOPS = tuple(str(_OURS / name) for name in ("train", "lower"))
_STDLIB = re.compile(rf"{re.escape(sysconfig.get_path('stdlib'))}/(?!(site|dist)-packages/)")


@dataclass(frozen=True)
class Fault:
    """What a TPU can't run.

    Attributes:
        op: The op's type, such as `EagerPyFunc`, or the name of an input.
        name: Its name in the graph, which has the names of the model's layers in it; empty for an input.
        source: The line of the user's code that made it, such as `mine.py:12`, or an empty string.
        why: What is wrong with it.
        instead: What to use, or an empty string.
    """

    op: str
    name: str
    source: str
    why: str
    instead: str

    @property
    def layer(self) -> str:
        """The scope that it is in, such as `model/faulty`: the layer and what it calls, as far as names tell."""
        return scope_of(self.name)

    def __str__(self) -> str:
        """Returns it as one sentence."""
        where = f" ({', '.join(part for part in (self.name, self.source) if part)})" if self.name or self.source else ""
        return f"{self.op}{where} {self.why}{f'; {self.instead}' if self.instead else ''}."


def find(graph: Any) -> list[Fault]:
    """Returns what no TPU runs among the ops that a function's results and side effects need.

    Args:
        graph: The `FuncGraph` of a concrete function.
    """
    return list(_faults_of_inputs(graph)) or list(_faults(graph, set()))


def scope_of(name: str) -> str:
    """Returns the scope that an op is in by its name, without what gradients and calls put around it."""
    while (inner := _AROUND.sub("", name)) != name:
        name = inner
    return name.rpartition("/")[0]


def sentence(faults: list[Fault]) -> str:
    """Returns the first fault as a sentence, and how many more there are."""
    kinds = sorted({fault.op for fault in faults[1:]})
    more = f" There {'is' if len(faults) == 2 else 'are'} {len(faults) - 1} more: {', '.join(kinds)}." if kinds else ""
    return f"The step can't run on a TPU: {faults[0]}{more}"


def _faults_of_inputs(graph: Any) -> Iterator[Fault]:
    """Yields the batch's tensors that no TPU holds; one from elsewhere is named by the op that takes it."""
    captured = {id(tensor) for tensor in graph.internal_captures}
    needed = {op.name for op in _needed(graph)}
    for tensor in graph.inputs:
        if tensor.dtype.name not in _TYPES:
            continue
        held, instead = _TYPES[tensor.dtype.name]
        if id(tensor) not in captured:
            name = f"the input {tensor.op.name!r}"
            yield Fault(name, "", "", f"holds {held}, which no TPU holds", instead)
        elif takers := [op for op in tensor.consumers() if op.name in needed]:
            yield _fault(takers[0], f"takes {held}, which no TPU holds", instead)


def _faults(graph: Any, seen: set[int]) -> Iterator[Fault]:
    """Yields the faults of a graph and of the functions that it calls."""
    if id(graph) in seen:
        return
    seen.add(id(graph))
    for op in _needed(graph):
        if fault := _fault_of(op):
            yield fault
        else:
            for called in functions_of(op, graph):
                yield from _faults(called, seen)


def _needed(graph: Any) -> list[Any]:
    """Returns the ops that a graph's outputs and side effects need, in the graph's order: the others are pruned."""
    needed = _behind([*(tensor.op for tensor in graph.outputs), *graph.control_outputs])
    return [op for op in graph.get_operations() if op.name in needed]


def _behind(ops: Iterable[Any], *, but: Iterable[str] = ()) -> dict[str, Any]:
    """Returns, by name, the ops that some ops come from and these themselves; not what is behind the types in `but`."""
    pending, found = list(ops), {}
    while pending:
        op = pending.pop()
        if op.name not in found:
            found[op.name] = op
            if op.type not in but:
                pending += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
    return found


def functions_of(op: Any, graph: Any) -> Iterator[Any]:
    """Yields the graphs of the functions that an op calls: of a call, a branch, or a loop."""
    for value in op.node_def.attr.values():
        for called in [value.func, *value.list.func]:
            function = graph._get_function(called.name) if called.name else None
            if (inner := getattr(function, "graph", None)) is not None:
                yield inner


def _fault_of(op: Any) -> Fault | None:
    if op.type in _RESOLVED:
        return None
    why = "makes a tensor whose shape depends on values, and a TPU's shapes are fixed"
    if op.type in _VALUES_DECIDE and not (op.type == "Where" and _is_constant(op)):
        return _fault(op, why, _VALUES_DECIDE[op.type])
    if op.type in _SLICES and _values_decide_size(op):
        return _fault(op, why, "slice at fixed places, and use a mask")
    if op.type not in tpu_ops() and not _is_constant(op):
        return _fault(op, "has no kernel for a TPU")
    if op.type in tpu_ops() and (odd := _odd_type(op)) and not _is_constant(op):
        return _fault(op, f"has no kernel for a TPU with the type {odd}", _TYPES.get(odd, ("", ""))[1])
    return None


def _fault(op: Any, why: str, instead: str = "") -> Fault:
    return Fault(op.type, op.name, innermost(op.traceback), why, instead or instead_of(op.type))


def _values_decide_size(op: Any) -> bool:
    """Says whether a slice is as long as values say: TensorFlow knows no size, and a value is behind it."""
    if op.outputs[0].shape.is_fully_defined() or not op.inputs[0].shape.is_fully_defined():
        return False
    return not all(_is_constant(op.inputs[index].op) for index in _SLICES[op.type])


def _is_constant(op: Any) -> bool:
    """Says whether neither batch nor state is behind an op: the bridge computes it on the host, for a TPU too."""
    # An input of a function within may be a constant of its caller's: that is not looked for.
    behind = _behind([op], but=_OF_SHAPES).values()
    return not any(one.type == "Placeholder" or one.op_def.is_stateful for one in behind if one.type not in _OF_SHAPES)


def _odd_type(op: Any) -> str:
    """Returns a type of an op's for which TPUs have no kernel, or an empty string."""
    for name, allowed in tpu_ops()[op.type].items():
        value = op.get_attr(name)
        for dtype in value if isinstance(value, list) else [value]:
            if dtype.name not in allowed:
                return str(dtype.name)
    return ""


@functools.cache
def tpu_ops() -> dict[str, dict[str, frozenset[str]]]:
    """Returns the ops that have kernels for TPUs, and the types that each of their attributes may have."""
    types: dict[str, frozenset[str]] = {}
    ops = {}
    for line in TPU_OPS.read_text(encoding="utf-8").splitlines():
        name, *rest = line.split()
        if rest[:1] == ["="]:
            types[name] = frozenset(rest[1:])
        elif name != "#":
            ops[name] = {attribute: types[key] for attribute, key in (pair.split(":") for pair in rest)}
    return ops


def instead_of(op_type: str) -> str:
    """Returns what to use in an op's place, or an empty string."""
    return next((advice for pattern, advice in _INSTEAD.items() if re.fullmatch(pattern, op_type)), "")


def innermost(frames: Iterable[Any]) -> str:
    """Returns the innermost line of code below our loop that is neither a library's nor ours, or an empty string."""
    source = ""
    for frame in frames:
        if frame.filename.startswith(_LOOPS):
            source = ""  # what called our loop is no model
        elif not _foreign(frame.filename):
            source = f"{Path(frame.filename).name}:{frame.lineno}"
    return source


def _foreign(filename: str) -> bool:
    """Says whether a file is no user's."""
    # Not all of site-packages: a user's package may be installed there too.
    return bool(filename.startswith(("<", f"{_OURS}/")) or _LIBRARIES.search(filename) or _STDLIB.match(filename))
