"""Measures what the TPU's compiler lets a program use of a core's memory: no TPU, but the packages of `[preflight]`.

python benchmarks/compiler_memory.py

A program that sums one argument compiles until argument and program exceed what the compiler has; its message then says
by how much. rates.yaml keeps what this prints. 8 seconds on one CPU core.
"""

import os
import re
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

# Before jax is imported: no look-up of a machine that isn't there, and no lock against a second libtpu on this one.
os.environ |= {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}

import numpy as np
from jax._src.lib import xla_client
from jax.experimental import topologies

from pipelines import machines

TILE = 8 * 128 * 4  # bytes of the tile in which 32-bit values lie in memory: an argument of whole tiles has no padding
LARGEST = 64 * 2**30  # bytes, more than any core's memory
UNITS = {"B": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def usable_bytes(slice_of: machines.Machine) -> int:
    """Returns the memory that the compiler has for a program on a core of the slice, in bytes.

    The smallest argument that is too large, and the program, less what its message says that they are over.
    """
    compile_with = compiler(slice_of)
    fits, exceeds = 0, LARGEST // TILE
    message = compile_with(exceeds)
    while exceeds - fits > 1:
        middle = (fits + exceeds) // 2
        if found := compile_with(middle):
            exceeds, message = middle, found
        else:
            fits = middle
    program, over = amount(r"Program hbm requirement (\S+):", message), amount(r"hbm capacity by (\S+)\.\n", message)
    return exceeds * TILE + program - over


def compiler(slice_of: machines.Machine) -> Callable[[int], str]:
    """Returns what compiles a program with an argument of so many tiles, and returns the message if it has no room."""
    description = topologies.get_topology_desc(
        platform="tpu",
        topology_name=slice_of.compiler_topology,
        chips_per_host_bounds=slice_of.chips_per_host_bounds,
    )
    devices: list[Any] = description.devices
    options = xla_client.CompileOptions()
    options.num_replicas = len(devices)
    assignment = np.arange(len(devices))[:, None]
    options.executable_build_options.device_assignment = xla_client.DeviceAssignment.create(assignment)

    def compile_with(tiles: int) -> str:
        try:
            devices[0].client.compile(program(tiles).encode(), options)
        except Exception as error:
            if "Ran out of memory in memory space hbm" not in str(error):
                raise
            return str(error)
        return ""

    return compile_with


def program(tiles: int) -> str:
    """Returns the StableHLO of a sum over an argument of so many tiles."""
    argument = f"tensor<{tiles * 8}x128xi32>"
    return f"""
    func.func public @main(%argument: {argument}) -> tensor<i32> {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %sum = stablehlo.reduce(%argument init: %zero) applies stablehlo.add across dimensions = [0, 1]
        : ({argument}, tensor<i32>) -> tensor<i32>
      return %sum : tensor<i32>
    }}"""


def amount(pattern: str, message: str) -> int:
    """Returns an amount of the message, such as `52.5K`, in bytes: below a megabyte they are exact."""
    found = re.search(pattern, message)
    assert found, f"no {pattern!r} in {message}"
    return round(float(found[1].rstrip("BKMG")) * UNITS[found[1][-1]])


def main() -> None:
    """Prints a row for each slice of one host: what the compiler has, and what rates.yaml says."""
    print(f"libtpu {version('libtpu')}, per core")
    print(f"{'machine':<8} {'compiled for':<13} {'bytes':>12} {'MiB':>8} {'rates.yaml':>11}")
    for machine in machines.TPU_MACHINES.values():
        if machine.compiler_topology:
            usable, known = usable_bytes(machine), machine.replica_usable_hbm_bytes
            kept = "?" if known is None else "the same" if known == usable else f"{known}"
            print(f"{machine.name:<8} {machine.compiler_topology:<13} {usable:>12} {usable / 2**20:>8.6g} {kept:>11}")


if __name__ == "__main__":
    main()
