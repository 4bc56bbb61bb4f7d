"""The pipeline's preflight: training does not start if this fails."""

import tempfile
from collections.abc import Mapping
from typing import Any

from components import files
from components.errors import ProgramError
from components.preflight import rows
from components.step import log
from components.worker import Worker


def check(program_uri: str, slice_: Mapping[str, Any], report_uri: str) -> dict[str, Any]:
    """Compiles a program for a slice and writes the report for people.

    The compiler works in a process of its own: TensorFlow, which reads `gs://`, has libtpu too in the TPU image, and
    one process can't hold it twice.

    Args:
        program_uri: What lower wrote.
        slice_: The slice, as `components.preflight.slices` describes it.
        report_uri: The Markdown file to write, if the step fits.

    Returns:
        The report's figures that a pipeline shows.

    Raises:
        ProgramError: if the step does not compile, or needs more memory than a replica has.
        WorkerError: if the compiler crashed.
    """
    with tempfile.TemporaryDirectory() as folder, Worker("components.preflight") as compiler:
        files.copy_tree(program_uri, folder)
        log.info("compiling for %s", slice_["name"])
        report = compiler.do({"program": folder, "slice": dict(slice_)})
    if report["verdict"] != rows.FITS:
        raise ProgramError(report["sentence"])
    for section in rows.sections(report):
        for name, figure, note in section:
            log.info("%s: %s %s", name, figure, note)
    files.write_bytes(report_uri, _markdown(report).encode("utf-8"))
    known = {name: value for name, value in report["estimate"].items() if value is not None}
    return {"verdict": report["verdict"], "peak_bytes": report["memory"]["peak"], **(report["work"] or {}), **known}


def _markdown(report: Mapping[str, Any]) -> str:
    lines = [
        f"# {report['machine']}, {report['global_batch_size']:,} examples a step: {report['verdict']}",
        "",
        "| of each replica | | |",
        "| --- | --- | --- |",
        *(f"| {name} | {figure} | {note} |" for section in rows.sections(report) for name, figure, note in section),
        "",
        rows.footnote(report),
        "",
    ]
    return "\n".join(lines)
