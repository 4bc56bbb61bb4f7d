"""Compiles for another process: `python -m components.preflight`, a job a line. See components/worker.py."""

from collections.abc import Mapping
from typing import Any

from components import worker
from components.preflight import compiler
from components.preflight.preflight import preflight
from components.preflight.slices import Slice


def do(job: worker.Job) -> Mapping[str, Any]:
    """Compiles the program of one folder for one slice, or (doctor's job) says for which slices the compiler works."""
    if "known" in job:
        slices = [Slice.from_json(values) for values in job["known"]]
        return {"known": [slice_.name for slice_ in slices if compiler.compiles_for(slice_)]}
    return preflight(job["program"], Slice.from_json(job["slice"]))


if __name__ == "__main__":
    worker.serve(do)
