"""Compiles a training step for a slice, and says whether it fits and what it costs."""

import importlib.metadata
import time
from dataclasses import asdict
from typing import Any

from components import program as programs
from components.preflight import compiler
from components.preflight.compiler import Compiled, OutOfMemoryError
from components.preflight.estimate import Estimate, estimate
from components.preflight.hlo import UncountableError, costs
from components.preflight.rows import FITS, TOO_LARGE, gib
from components.preflight.slices import Slice
from components.program import Program
from components.step import log


def preflight(folder: str, slice_: Slice) -> dict[str, Any]:
    """Compiles the program of a folder.

    Args:
        folder: Where lower wrote it; on this machine.
        slice_: What to compile it for.

    Returns:
        The report, as JSON takes it: see docs/preflight.md. A step that needs more memory than there is has one too,
        with the verdict `does not fit`.

    Raises:
        ProgramError: if the compiler refuses the program for another reason than its memory.
        ModelError: if the folder is not whole.
        ConfigError: if the compiler isn't installed.
    """
    compiler.check_installed()
    program, hlo = programs.load(folder)
    start = time.monotonic()
    report = {
        "machine": slice_.name,
        "compiler": f"libtpu {importlib.metadata.version('libtpu')}",
        "builder": program.builder,
        "parameters": program.parameters,
        "precision": program.precision,
        "replicas": program.replicas,
        "global_batch_size": program.global_batch_size,
        "train_examples": program.train_examples,
        "padding": program.padding,
    }
    try:
        compiled = compiler.compile_program(hlo, slice_)
    except OutOfMemoryError as error:
        report |= {
            "verdict": TOO_LARGE,
            "sentence": _too_large(slice_, error.needed, error.largest),
            "needed_bytes": error.needed,
            "usable_bytes": slice_.usable_bytes,
        }
    else:
        report |= _compiled(program, slice_, compiled)
    return report | {"compile_seconds": time.monotonic() - start}


def _compiled(program: Program, slice_: Slice, compiled: Compiled) -> dict[str, Any]:
    # The compiler counts arguments, temporaries and code, and no outputs that have a place of their own.
    fits = slice_.usable_bytes is None or compiled.memory.peak <= slice_.usable_bytes
    return {
        "verdict": FITS if fits else TOO_LARGE,
        "sentence": "" if fits else _too_large(slice_, compiled.memory.peak),
        "usable_bytes": slice_.usable_bytes,
        "memory": asdict(compiled.memory) | {"peak": compiled.memory.peak},
        **_work(program, slice_, compiled.text),
    }


def _work(program: Program, slice_: Slice, text: str) -> dict[str, Any]:
    """Returns what a program does and how long that takes at best; nothing where it has loops of unknown length."""
    try:
        counted = costs(text)
    except UncountableError as error:
        log.warning("no estimate of time and price: %s", error)
        return {"work": None, "estimate": asdict(Estimate())}
    bounds = estimate(
        counted,
        slice_,
        global_batch_size=program.global_batch_size,
        epochs=program.epochs,
        train_examples=program.train_examples,
    )
    work = {
        "flops": counted.flops,
        "hbm_bytes": counted.hbm_bytes,
        "all_reduce_bytes": sum(collective.bytes for collective in counted.collectives),
    }
    return {"work": work, "estimate": asdict(bounds)}


def _too_large(slice_: Slice, needed: int | None, largest: str = "") -> str:
    need = "" if needed is None else f" at least {gib(needed)} of memory,"
    usable = "too little of it" if slice_.usable_bytes is None else gib(slice_.usable_bytes)
    piece = f" (the largest piece is {largest})" if largest else ""
    return (
        f"The step needs{need or ' more memory:'} a replica of {slice_.name} has {usable}{piece}; lower "
        "training.global_batch_size (--find-batch-size finds the largest that fits), set training.precision to "
        "bfloat16, or take a machine with more memory a replica."
    )
