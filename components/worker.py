"""A process that does jobs for another: TensorFlow and the TPU's compiler can't live in one process.

Jobs and answers are JSON, one line each, on the worker's standard input and output; its log is its standard error. The
worker keeps what is slow to start (an import, a compiler) from job to job, and a library that crashes takes the worker
with it and no one else.
"""

import contextlib
import inspect
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from components.errors import ConfigError, DataError, DeviceError, ModelError, ProgramError, TpuPipelinesError
from components.step import log

Job = Mapping[str, Any]
Options = TypeVar("Options")

_ERRORS = {error.__name__: error for error in (ConfigError, DataError, DeviceError, ModelError, ProgramError)}
_LOG_LINES = 20


class WorkerError(TpuPipelinesError):
    """A worker failed in a way that is no fault of the user's: its log's last lines are part of the message."""

    fault = "ours"


def serve(do: Callable[[Job], Mapping[str, Any]]) -> None:
    """Does jobs until standard input ends.

    Args:
        do: Does one job. A `TpuPipelinesError` that it raises is raised again where the job came from; anything else
            ends the worker.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print would otherwise stand among the answers
    logging.basicConfig(format="%(message)s", level=logging.WARNING, stream=sys.stderr)
    log.setLevel(logging.INFO)
    tracebacks = _Tracebacks()
    log.addHandler(tracebacks)
    for line in sys.stdin:
        tracebacks.found.clear()
        try:
            answer: dict[str, Any] = {"answer": do(json.loads(line))}
        except TpuPipelinesError as error:
            kinds = (cls.__name__ for cls in type(error).__mro__ if cls.__name__ in _ERRORS)
            kind = next(kinds, "") if error.fault == "user" else ""  # what is our fault stays so
            answer = {"error": str(error), "kind": kind, "log": tracebacks.found}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def options_of(kind: Callable[..., Options], settings: Mapping[str, Any]) -> Options:
    """Returns a dataclass of options, made of those of a run's settings that it has fields for."""
    return kind(**{name: value for name, value in settings.items() if name in inspect.signature(kind).parameters})


class _Tracebacks(logging.Handler):
    """Keeps the tracebacks that are logged: those of a user's own code."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps a record that is one."""
        if (text := record.getMessage()).startswith("Traceback"):
            self.found.append(text)


class Worker:
    """Another process that does jobs, as a context manager.

    Args:
        module: What it runs, as `python -P -m MODULE`: a module that calls `serve`.

    Example:
        with Worker("components.preflight") as compiler:
            report = compiler.do({"program": "/tmp/program", "slice": {...}})
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - closed at exit
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
        )

    def do(self, job: Job) -> dict[str, Any]:
        """Hands it a job and waits for the answer.

        Raises:
            TpuPipelinesError: of the kind that the worker raised, with the tracebacks that it logged as notes.
            WorkerError: if the worker died.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._death() from error
        line = self._process.stdout.readline()
        if not line:
            raise self._death()
        reply = json.loads(line)
        if "error" in reply:
            raised = _ERRORS.get(reply["kind"], WorkerError)(reply["error"])
            for text in reply["log"]:
                raised.add_note(text)
            raise raised
        answer: dict[str, Any] = reply["answer"]
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()  # it has nothing to put in order, and may be in the middle of a job
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def _death(self) -> WorkerError:
        status = self._process.wait()
        self._log.seek(0)
        tail = [line.rstrip() for line in self._log.readlines() if line.strip()][-_LOG_LINES:]
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        if status == -signal.SIGKILL:
            how += ", as where a machine's memory runs out"
        return WorkerError(
            "\n".join([f"{self._module} ended with {how}; its log's last lines:", *(tail or ["(none)"])])
        )
