"""Counts what an optimized program does: multiply-adds, memory traffic, and sums over the replicas.

The program is libtpu's text: scheduled, one replica's, each buffer's place in its layout (`{1,0:T(8,128)S(1)}`: S(1) is
memory on the chip; no S is HBM). Sizes are of the elements alone: what a tile pads is left out. Counting follows XLA's
`HloCostAnalysis` (xla/service/hlo_cost_analysis.cc), where not said otherwise.
"""

import functools
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field


class UncountableError(ValueError):
    """A loop's number of rounds is not in the program."""


@dataclass(frozen=True)
class Collective:
    """One exchange between replicas: its kind (`all-reduce`), the bytes of one replica, and how many take part."""

    kind: str
    bytes: int
    group_size: int


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What one replica does in one step.

    Attributes:
        flops: Two for each multiply-add of convolutions and dots: on a TPU, what its matrix units do.
        hbm_bytes: Bytes read from and written to HBM.
        collectives: Exchanges between replicas.
    """

    flops: int
    hbm_bytes: int
    collectives: tuple[Collective, ...]


def costs(text: str) -> Costs:
    """Counts an optimized program.

    Args:
        text: What `executable.hlo_modules()[0].to_string()` gives.

    Raises:
        UncountableError: if the program has a loop of unknown length.
    """
    program = _Program(text)
    return Costs(
        flops=program.flops(program.entry),
        hbm_bytes=program.hbm_bytes(program.entry),
        collectives=tuple(program.collectives(program.entry)),
    )


# The program's text

_BYTES = {"pred": 1, "bf16": 2, "f16": 2, "f32": 4, "f64": 8, "c64": 8, "c128": 16, "token": 0, "opaque": 0}
_SHAPE = re.compile(r"([a-z]\w*)\[([\d,<= ]*)\](?:\{[^}]*?(?:S\((\d+)\)[^}]*)?\})?")
_COMPUTATION = re.compile(r"(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) \(.*\) -> .* \{$")
_INSTRUCTION = re.compile(r"\s+(?P<root>ROOT )?%?(?P<name>[\w.\-]+) = ")
_NAME = re.compile(r"%([\w.\-]+)")
_CALLED = re.compile(r"(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)")


@dataclass(frozen=True)
class _Shape:
    dtype: str
    sizes: tuple[int, ...]
    in_hbm: bool

    @property
    def elements(self) -> int:
        return math.prod(self.sizes)

    @property
    def bytes(self) -> int:
        bits = re.fullmatch(r"[suf](\d+)\w*", self.dtype)  # s32, and f8e4m3fn
        size = _BYTES[self.dtype] if self.dtype in _BYTES else max(1, int(bits[1]) // 8) if bits else 4
        return self.elements * size

    @property
    def hbm_bytes(self) -> int:
        return self.bytes if self.in_hbm else 0


@dataclass(frozen=True)
class _Instruction:
    name: str
    opcode: str
    shapes: tuple[_Shape, ...]
    operands: tuple[str, ...]
    attributes: str

    @property
    def called(self) -> str | None:
        """The computation of a fusion, call or async instruction."""
        found = _CALLED.search(self.attributes)
        return found[1] if found else None

    def attribute(self, name: str) -> str:
        """Returns the text of a named computation of a while or conditional."""
        found = re.search(rf"\b{name}=%?([\w.\-]+)", self.attributes)
        assert found, f"{self.name} has no {name}"
        return found[1]


@dataclass
class _Computation:
    instructions: dict[str, _Instruction] = field(default_factory=dict)
    root: str = ""

    @functools.cached_property
    def users(self) -> Mapping[str, list[_Instruction]]:
        users: dict[str, list[_Instruction]] = defaultdict(list)
        for instruction in self.instructions.values():
            for operand in instruction.operands:
                users[operand].append(instruction)
        return users

    @functools.cached_property
    def parameters(self) -> list[_Instruction]:
        found = [i for i in self.instructions.values() if i.opcode == "parameter"]
        return sorted(found, key=lambda instruction: int(instruction.attributes))


def _parse(text: str) -> tuple[dict[str, _Computation], str]:
    """Returns the program's computations by name, and the entry's name."""
    computations: dict[str, _Computation] = {}
    entry, current = "", _Computation()
    for line in text.splitlines():
        if match := _INSTRUCTION.match(line):
            instruction = _instruction(match["name"], line[match.end() :])
            current.instructions[instruction.name] = instruction
            if match["root"]:
                current.root = instruction.name
        elif match := _COMPUTATION.match(line):
            current = computations[match["name"]] = _Computation()
            entry = match["name"] if match["entry"] else entry
    return computations, entry


def _instruction(name: str, text: str) -> _Instruction:
    """Returns an instruction from what stands after its `=`: type, opcode, operands, attributes."""
    end = _closing(text, 0) + 1 if text.startswith("(") else text.index(" ")
    opcode, rest = text[end:].strip().split("(", 1)
    close = _closing("(" + rest, 0) - 1
    inside, attributes = rest[:close], rest[close + 1 :]
    return _Instruction(
        name=name,
        opcode=opcode,
        shapes=tuple(_shapes(text[:end])),
        operands=tuple(_NAME.findall(inside)),
        attributes=inside if opcode in ("parameter", "constant") else attributes,
    )


def _closing(text: str, start: int) -> int:
    """Returns where the bracket that opens at `start` closes."""
    depth = 0
    for match in re.compile(r"[()]").finditer(text, start):
        depth += 1 if match[0] == "(" else -1
        if not depth:
            return match.start()
    raise ValueError(f"no closing bracket in {text[:80]!r}")


def _shapes(text: str) -> Iterator[_Shape]:
    for dtype, sizes, space in _SHAPE.findall(text):
        numbers = tuple(int(size.strip("<= ")) for size in sizes.split(",") if size)
        yield _Shape(dtype, numbers, space in ("", "0"))


# What an instruction costs

# They name a buffer, or make none.
_FREE = {"parameter", "tuple", "get-tuple-element", "bitcast", "constant", "after-all", "partition-id", "replica-id"}
_FREE |= {"opt-barrier", "get-dimension-size", "add-dependency"}
_FREE_CALLS = ('custom_call_target="AllocateBuffer"', 'custom_call_target="ConcatBitcast"')
_SLICES = {"slice", "dynamic-slice", "gather", "slice-start", "dynamic-slice-start"}
_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
_CALLS = {"fusion", "call", "async-start", "map"}
# Of each, the place of the operand that is written to the first one, in place.
_UPDATES = {"dynamic-update-slice": 1, "scatter": 2}
# Their result begins with their operands.
_STARTS = {"all-gather-start", "collective-permute-start", "async-start", "slice-start", "dynamic-slice-start"}


class _Program:
    def __init__(self, text: str) -> None:
        self.computations, self.entry = _parse(text)
        self.replicas = _replicas(text)
        self._flops: dict[str, int] = {}

    def flops(self, name: str) -> int:
        """Returns the multiply-adds, times two, of a computation and all that it calls."""
        if name not in self._flops:
            computation = self.computations[name]
            self._flops[name] = sum(self._flops_of(computation, i) for i in computation.instructions.values())
        return self._flops[name]

    def _flops_of(self, computation: _Computation, instruction: _Instruction) -> int:
        match instruction.opcode:
            case "convolution":
                left, right = (computation.instructions[name].shapes[0] for name in instruction.operands[:2])
                return _convolution_flops(left, right, instruction)
            case "dot":
                return _dot_flops(computation.instructions[instruction.operands[0]].shapes[0], instruction)
            case "while":
                return self._rounds(computation, instruction) * self.flops(instruction.attribute("body"))
            case "conditional":
                return max(self.flops(branch) for branch in _branches(instruction))
            case opcode if opcode in _CALLS and instruction.called:
                return self.flops(instruction.called)
            case _:
                return 0

    def hbm_bytes(self, name: str) -> int:
        """Returns the bytes of HBM that a scheduled computation reads and writes."""
        computation = self.computations[name]
        return sum(self._bytes_of(computation, i) for i in computation.instructions.values())

    def _bytes_of(self, computation: _Computation, instruction: _Instruction) -> int:
        opcode = instruction.opcode
        if opcode in _FREE or opcode.endswith("-done") or opcode.endswith("-update"):
            return 0
        match opcode:
            case "while":
                rounds = self._rounds(computation, instruction)
                return rounds * self.hbm_bytes(instruction.attribute("body"))
            case "conditional":
                return max(self.hbm_bytes(branch) for branch in _branches(instruction))
            case "call":
                assert instruction.called
                return self.hbm_bytes(instruction.called)
            case "copy-start" | "send" | "recv":  # what is copied, and its copy; then a flag
                return sum(shape.hbm_bytes for shape in instruction.shapes[:2])
            case "custom-call" if any(target in instruction.attributes for target in _FREE_CALLS):
                return 0
            case opcode if _updates_one(instruction):
                return self._update_bytes(computation, instruction)
            case opcode if opcode in _SLICES:  # as much is read as comes out
                out = _results(computation, instruction)[0]
                source = computation.instructions[instruction.operands[0]].shapes[0]
                return out.hbm_bytes + (out.bytes if source.in_hbm else 0)
            case "fusion" | "async-start" if instruction.called:
                return self._fusion_bytes(computation, instruction)
            case _:
                operands = _operand_shapes(computation, instruction)
                return sum(shape.hbm_bytes for shape in (*operands, *_results(computation, instruction)))

    def _update_bytes(self, computation: _Computation, instruction: _Instruction) -> int:
        """Returns the bytes of an update in place: it and its indices are read, and its part of the buffer is written.

        A scatter combines the update with what was there, which it reads too.
        """
        _, *others = _operand_shapes(computation, instruction)
        update = others[_UPDATES[instruction.opcode] - 1].bytes if instruction.shapes[0].in_hbm else 0
        return sum(shape.hbm_bytes for shape in others) + update * (2 if instruction.opcode == "scatter" else 1)

    def _fusion_bytes(self, computation: _Computation, instruction: _Instruction) -> int:
        assert instruction.called
        inner = self.computations[instruction.called]
        read = sum(
            self._read(inner, parameter.name)
            for parameter, operand in zip(inner.parameters, instruction.operands, strict=True)
            if computation.instructions[operand].shapes[0].in_hbm
        )
        roots = [inner.instructions[inner.root]]
        if roots[0].opcode == "tuple":
            roots = [inner.instructions[name] for name in roots[0].operands]
        written = 0
        for shape, root in zip(_results(computation, instruction), roots, strict=False):
            written += (_updated(inner, root) or shape.bytes) if shape.in_hbm else 0
        return read + written

    def _read(self, computation: _Computation, name: str) -> int:
        """Returns the bytes that a fused computation reads of one of its values: all, or the slices that it takes."""
        value, total = computation.instructions[name], 0
        for user in computation.users[name]:
            first = user.operands[0] == name
            if user.opcode in _SLICES and first:
                total += user.shapes[0].bytes
            elif _updates_one(user) and user.operands.count(name) == 1 and first:
                if user.opcode == "scatter":  # the other is written, not read
                    total += computation.instructions[user.operands[2]].shapes[0].bytes
            elif user.opcode == "bitcast":
                total += self._read(computation, user.name)
            elif user.opcode == "fusion" and user.called:
                inner = self.computations[user.called]
                places = [place for place, operand in enumerate(user.operands) if operand == name]
                total += sum(self._read(inner, inner.parameters[place].name) for place in places)
            else:
                return value.shapes[0].bytes
        return min(total, value.shapes[0].bytes)

    def collectives(self, name: str) -> Iterator[Collective]:
        """Yields the exchanges of a computation and all that it calls, as often as they happen."""
        computation = self.computations[name]
        for instruction in computation.instructions.values():
            kind = instruction.opcode.removesuffix("-start")
            if kind in _COLLECTIVES:
                shapes = [s for operand in instruction.operands for s in computation.instructions[operand].shapes]
                yield Collective(
                    kind, sum(shape.bytes for shape in shapes), _group_size(instruction.attributes, self.replicas)
                )
            elif instruction.opcode == "while":
                inner = list(self.collectives(instruction.attribute("body")))
                yield from inner * (self._rounds(computation, instruction) if inner else 1)
            elif instruction.opcode == "conditional":
                branches = [list(self.collectives(branch)) for branch in _branches(instruction)]
                yield from max(branches, key=lambda found: sum(collective.bytes for collective in found))
            elif instruction.opcode in _CALLS and instruction.called:
                yield from self.collectives(instruction.called)

    def _rounds(self, computation: _Computation, loop: _Instruction) -> int:
        """Returns how often a loop's body runs: by the compiler's note, else from its counter.

        Raises:
            UncountableError: if the counter's start, step or limit is not in the program.
        """
        if noted := re.search(r'"known_trip_count":\{"n":"?(\d+)', loop.attributes):
            return int(noted[1])
        way = self._limit(computation, loop) - self._element(computation, loop.operands[0], self._counter(loop))
        return max(0, math.ceil(way / self._step(computation, loop)))

    def _step(self, computation: _Computation, loop: _Instruction) -> int:
        """Returns by how much a loop's counter grows in a round."""
        body, place = self.computations[loop.attribute("body")], self._counter(loop)
        root = body.instructions[body.root]
        grown = _source(body, root.operands[place]) if root.opcode == "tuple" else root
        if grown.opcode == "add":
            terms = [_source(body, name) for name in grown.operands]
            counters = [t for t in terms if t.opcode == "get-tuple-element" and _index(t) == place]
            steps = [self._carried(computation, loop, body, t) for t in terms if t not in counters]
            if len(counters) == 1 and steps[0] > 0:
                return steps[0]
        raise UncountableError(f"the counter of the loop {loop.name} does not grow by a constant")

    def _counter(self, loop: _Instruction) -> int:
        """Returns the place of a loop's counter among what it carries."""
        condition = self.computations[loop.attribute("condition")]
        root = condition.instructions[condition.root]
        if root.opcode == "compare" and "direction=LT" in root.attributes:
            counter = condition.instructions[root.operands[0]]
            if counter.opcode == "get-tuple-element":
                return _index(counter)
        raise UncountableError(f"the loop {loop.name} does not count up to a limit")

    def _limit(self, computation: _Computation, loop: _Instruction) -> int:
        condition = self.computations[loop.attribute("condition")]
        limit = condition.instructions[condition.instructions[condition.root].operands[1]]
        return self._carried(computation, loop, condition, limit)

    def _carried(self, computation: _Computation, loop: _Instruction, inner: _Computation, value: _Instruction) -> int:
        """Returns a constant of a loop's body or condition, or one that the loop carries round by round as it is."""
        if value.opcode != "get-tuple-element":
            return self._value(inner, value.name)
        body, place = self.computations[loop.attribute("body")], _index(value)
        root = body.instructions[body.root]
        kept = _source(body, root.operands[place]) if root.opcode == "tuple" else root
        if kept.opcode == "get-tuple-element" and _index(kept) == place:
            return self._element(computation, loop.operands[0], place)
        raise UncountableError(f"the loop {loop.name} changes {value.name} as it goes")

    def _element(self, computation: _Computation, name: str, index: int) -> int:
        """Returns the constant that stands at a place of a tuple."""
        source = computation.instructions[name]
        if source.opcode == "tuple":
            return self._value(computation, source.operands[index])
        if source.opcode == "while":
            if index == self._counter(source):
                return self._ended(computation, source)
            return self._element(computation, source.operands[0], index)
        raise UncountableError(f"{name} is no tuple of constants")

    def _ended(self, computation: _Computation, loop: _Instruction) -> int:
        """Returns where a loop's counter stands after it."""
        start = self._element(computation, loop.operands[0], self._counter(loop))
        return start + self._rounds(computation, loop) * self._step(computation, loop)

    def _value(self, computation: _Computation, name: str) -> int:
        """Returns a constant of one whole number, through copies of it."""
        instruction = _source(computation, name)
        if instruction.opcode == "constant" and re.fullmatch(r"-?\d+", instruction.attributes):
            return int(instruction.attributes)
        if instruction.opcode == "get-tuple-element":
            return self._element(computation, instruction.operands[0], _index(instruction))
        raise UncountableError(f"{name} is no constant")


def _source(computation: _Computation, name: str) -> _Instruction:
    """Returns what a value is, or is a copy of."""
    instruction = computation.instructions[name]
    while instruction.opcode in ("copy", "copy-start", "copy-done", "bitcast", "convert"):
        instruction = computation.instructions[instruction.operands[0]]
    return instruction


def _index(instruction: _Instruction) -> int:
    found = re.search(r"index=(\d+)", instruction.attributes)
    assert found, f"{instruction.name} has no index"
    return int(found[1])


def _branches(instruction: _Instruction) -> list[str]:
    found = re.search(r"branch_computations=\{([^}]*)\}", instruction.attributes)
    return _NAME.findall(found[1]) if found else _CALLED.findall(instruction.attributes)


def _operand_shapes(computation: _Computation, instruction: _Instruction) -> list[_Shape]:
    return [shape for name in instruction.operands for shape in computation.instructions[name].shapes]


def _results(computation: _Computation, instruction: _Instruction) -> tuple[_Shape, ...]:
    """Returns the shapes of what an instruction makes."""
    skipped = len(_operand_shapes(computation, instruction)) if instruction.opcode in _STARTS else 0
    return instruction.shapes[skipped:]


def _updates_one(instruction: _Instruction) -> bool:
    """Says whether an instruction updates one buffer in place: a scatter may take several."""
    return instruction.opcode in _UPDATES and len(instruction.shapes) == 1


def _updated(computation: _Computation, value: _Instruction) -> int | None:
    """Returns the bytes that are written over a parameter to make a value; None if it is no parameter, updated."""
    if value.opcode == "parameter":
        return 0
    if value.opcode != "bitcast" and not _updates_one(value):
        return None
    before = _updated(computation, computation.instructions[value.operands[0]])
    if before is None or value.opcode == "bitcast":
        return before
    return before + computation.instructions[value.operands[_UPDATES[value.opcode]]].shapes[0].bytes


def _replicas(text: str) -> int:
    """Returns how many replicas run the program, by its first line; one where that says nothing."""
    found = re.search(r"\breplica_count=(\d+)", text.partition("\n")[0])
    return int(found[1]) if found else 1


def _group_size(attributes: str, replicas: int) -> int:
    """Returns how many replicas take part: of `{{0,1},{2,3}}` and of `[2,2]<=[4]`, two; of `{}`, all."""
    if "replica_groups={}" in attributes:
        return replicas
    if listed := re.search(r"replica_groups=\{\{([\d,]+)\}", attributes):
        return listed[1].count(",") + 1
    shape = re.search(r"replica_groups=\[(\d+),(\d+)\]", attributes)
    return int(shape[2]) if shape else 1


def _dot_flops(left: _Shape, instruction: _Instruction) -> int:
    found = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", instruction.attributes)
    contracted = [left.sizes[int(number)] for number in found[1].split(",") if number] if found else []
    return 2 * instruction.shapes[0].elements * math.prod(contracted)


def _convolution_flops(left: _Shape, right: _Shape, instruction: _Instruction) -> int:
    """Counts the multiply-adds of a convolution whose both factors are there, not in padding or between elements."""
    found = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", instruction.attributes)
    assert found, f"{instruction.name} has no dim_labels"
    left_labels, right_labels, out_labels = found.groups()
    groups, batch_groups = (_number(instruction, f"{name}_group_count") for name in ("feature", "batch"))
    window = _Window.of(instruction.attributes)
    positions = 1
    for number in range(len(left_labels) - 2):
        label = str(number)
        positions *= _positions(
            left.sizes[left_labels.index(label)],
            right.sizes[right_labels.index(label)],
            instruction.shapes[0].sizes[out_labels.index(label)],
            *window.of_dimension(number),
        )
    batch, inputs = left.sizes[left_labels.index("b")], left.sizes[left_labels.index("f")]
    outputs = right.sizes[right_labels.index("o")]
    return 2 * (inputs // groups) * outputs * (batch // batch_groups) * positions


def _number(instruction: _Instruction, name: str) -> int:
    found = re.search(rf"\b{name}=(\d+)", instruction.attributes)
    return int(found[1]) if found else 1


@dataclass(frozen=True)
class _Window:
    stride: Sequence[int]
    low: Sequence[int]
    left_dilation: Sequence[int]
    right_dilation: Sequence[int]

    @classmethod
    def of(cls, attributes: str) -> "_Window":
        found = re.search(r"window=\{([^}]*)\}", attributes)
        parts = dict(part.split("=") for part in found[1].split()) if found else {}

        def numbers(name: str) -> list[int]:
            return [int(number.split("_")[0]) for number in parts[name].split("x")] if name in parts else []

        return cls(numbers("stride"), numbers("pad"), numbers("lhs_dilate"), numbers("rhs_dilate"))

    def of_dimension(self, number: int) -> tuple[int, int, int, int]:
        """Returns stride, padding in front, and dilation of input and kernel."""

        def at(values: Sequence[int], default: int) -> int:
            return values[number] if values else default

        return at(self.stride, 1), at(self.low, 0), at(self.left_dilation, 1), at(self.right_dilation, 1)


@functools.cache
def _positions(size: int, kernel: int, out: int, stride: int, low: int, left_dilation: int, right_dilation: int) -> int:
    """Counts the pairs of output and kernel position in one dimension that meet an element of the input."""
    end = (size - 1) * left_dilation + 1
    count = 0
    for place in range(kernel):
        offset = place * right_dilation - low
        # output o meets input position o * stride + offset
        first, last = max(0, -(offset // stride)), min(out - 1, (end - 1 - offset) // stride)
        if left_dilation == 1:
            count += max(0, last - first + 1)
        else:
            count += sum((o * stride + offset) % left_dilation == 0 for o in range(first, last + 1))
    return count
