"""The TPU's own compiler (libtpu), on a CPU: no TPU is needed, none is touched.

libtpu is reached through jax, whose plug-in names the slice and takes the program. jax's inner modules have no stable
interface, so its version is pinned together with libtpu's (pyproject.toml, extra `preflight`).
"""

import importlib.util
import os
import re
from dataclasses import dataclass
from typing import Any

from components.errors import ConfigError, ProgramError, TpuPipelinesError, first_line
from components.preflight.slices import Slice

HOW_TO_INSTALL = "pip install 'tpu-pipelines[preflight]', or in a checkout `make setup`"

# libtpu otherwise asks Google's metadata server which TPU it is on, for minutes where there is none.
_ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",  # any will do: the topology names the slice
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # no TPU is taken, so another process may compile too
}
_OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"
# A program may lack other memory than HBM, the chip's own; another batch need not mend that.
_OF_HBM = re.compile(r"memory space hbm|enough device memory|Allocation \(size=\d+\) would exceed memory")
# Of these the environment is to blame: a full disk, a lock, a name that is taken.
_OURS = (
    "UNAVAILABLE",
    "ALREADY_EXISTS",
    "INTERNAL: Failed to create",
    "INTERNAL: Internal error when accessing libtpu",
)
_LARGEST = re.compile(r"1\. Size: (?P<size>\S+)\n(?:\s+Operator: (?P<operator>.*)\n)?\s+Shape: (?P<shape>[^{\s]+)")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes of high-bandwidth memory that a compiled program takes of one replica, as the compiler says.

    Attributes:
        arguments: Variables (weights, the optimizer's moments) and the batch.
        outputs: What the step leaves, variables included.
        aliases: Outputs that lie where an argument was: counted once.
        temporaries: Activations, gradients and what else lives within the step.
        code: The program itself.
    """

    arguments: int
    outputs: int
    aliases: int
    temporaries: int
    code: int

    @property
    def peak(self) -> int:
        """Bytes that are taken at once."""
        return self.arguments + self.outputs - self.aliases + self.temporaries + self.code


@dataclass(frozen=True)
class Compiled:
    """A program that compiles and fits: its memory, and its optimized, scheduled form as text."""

    memory: Memory
    text: str


class OutOfMemoryError(ProgramError):
    """The compiler's verdict that a program needs more memory than a replica has.

    Attributes:
        needed: Bytes that the program needs, at least; None where the compiler's words don't say.
        largest: The largest allocation, by its shape, its op where that is known, and its size.
    """

    def __init__(self, message: str, *, needed: int | None, largest: str) -> None:
        super().__init__(message)
        self.needed, self.largest = needed, largest


class CompilerError(TpuPipelinesError):
    """The compiler itself failed, whatever the program."""

    fault = "ours"


def check_installed() -> None:
    """Refuses where the compiler isn't installed.

    Raises:
        ConfigError: saying how to get it.
    """
    if missing := [name for name in ("jax", "jaxlib", "libtpu") if importlib.util.find_spec(name) is None]:
        raise ConfigError(f"The TPU's compiler is not installed ({', '.join(missing)} missing): {HOW_TO_INSTALL}.")


def compile_program(program: bytes, slice_: Slice) -> Compiled:
    """Compiles a program for all replicas of a slice.

    Args:
        program: A serialized `xla.HloModuleProto`, of one replica.
        slice_: The slice, each of whose replicas runs the program.

    Raises:
        OutOfMemoryError: if it needs more memory than a replica has.
        ProgramError: if the compiler refuses it otherwise, with the compiler's words.
    """
    xla_client = _xla_client()
    computation = xla_client.XlaComputation(program)
    executable = _compile(xla_client._xla.mlir.xla_computation_to_mlir_module(computation), slice_)
    stats = executable.get_compiled_memory_stats()
    memory = Memory(
        arguments=stats.argument_size_in_bytes,
        outputs=stats.output_size_in_bytes,
        aliases=stats.alias_size_in_bytes,
        temporaries=stats.temp_size_in_bytes,
        code=stats.generated_code_size_in_bytes,
    )
    return Compiled(memory, executable.hlo_modules()[0].to_string())


# The least program: what the compiler says of a slice does not depend on it.
_PROBE = """module @probe {
  func.func public @main(%x: tensor<8x128xf32>) -> tensor<8x128xf32> {
    %y = stablehlo.add %x, %x : tensor<8x128xf32>
    return %y : tensor<8x128xf32>
  }
}
"""


def compiles_for(slice_: Slice) -> bool:
    """Says whether the compiler knows a slice, by compiling a program of one addition for it."""
    try:
        _compile(_PROBE, slice_)
    except ProgramError:
        return False
    return True


def _compile(module: str, slice_: Slice) -> Any:
    """Returns jax's executable of a StableHLO module."""
    xla_client = _xla_client()
    import jax
    import numpy as np
    from jax.experimental import topologies

    options = xla_client.CompileOptions()
    options.num_replicas, options.num_partitions = slice_.replicas, 1
    assignment = xla_client.DeviceAssignment.create(np.arange(slice_.replicas)[:, None])
    options.executable_build_options.device_assignment = assignment
    try:
        devices = topologies.get_topology_desc(
            platform="tpu", topology_name=slice_.topology, chips_per_host_bounds=slice_.host_bounds
        ).devices
        return devices[0].client.compile(module.encode(), options)
    except jax.errors.JaxRuntimeError as error:
        raise _refusal(str(error)) from error


def _xla_client() -> Any:
    """Returns jax's way to XLA, imported in the environment that libtpu needs."""
    os.environ.update(_ENVIRONMENT)
    from jax._src.lib import xla_client

    return xla_client


def _refusal(message: str) -> TpuPipelinesError:
    """Returns what the compiler's error says."""
    line = first_line(Exception(message))
    if message.startswith(_OURS):
        return CompilerError(f"The TPU's compiler failed: {line}")
    if _OUT_OF_MEMORY not in message or not _OF_HBM.search(message):
        return ProgramError(f"The TPU's compiler refuses the step: {line.rstrip('.')}{_of(message)}.")
    needed = re.search(r"(?:Used|Requires) ([\d.]+)([KMGT]?)|Allocation \(size=(\d+)", message)
    return OutOfMemoryError(
        line, needed=_bytes(needed[1] or needed[3], needed[2] or "") if needed else None, largest=_largest(message)
    )


def _largest(message: str) -> str:
    """Returns the largest allocation that an error lists, or the one that is more than all of the memory."""
    if listed := _LARGEST.search(message):
        return f"{listed['shape']}{_of(listed['operator'])}, {listed['size']}B"
    alone = re.search(r"shape = '([^{']+)", message)
    return alone[1] if alone else ""


def _of(operator: str | None) -> str:
    """Returns ` of OP`, by the op's name in the model."""
    name = re.search(r'op_name="([^"]+)"', operator or "")
    return f" of {name[1]}" if name else ""


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * _UNITS[unit])
