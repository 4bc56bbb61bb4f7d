"""One step of a pipeline at run time: its log, its progress, and the record of how it ended.

A step logs to standard output: readable lines, or one JSON object a line where `TPU_PIPELINES_LOG=json` (the form that
Cloud Logging and `tpu-pipelines run` read). Its record, `step.json`, stands in the step's own output folder, beside its
artifacts, and is what the exit handler and the run's summary are made from.
"""

import contextlib
import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Iterator
from typing import Any

from components import files
from components.errors import TpuPipelinesError

RECORD = "step.json"
LOG_FORMAT_VARIABLE = "TPU_PIPELINES_LOG"
PROGRESS_SECONDS = 1.0

log = logging.getLogger("components")


class _JsonFormatter(logging.Formatter):
    """One JSON object a line, with the fields that Cloud Logging knows: severity, message, time."""

    def __init__(self, step: str) -> None:
        super().__init__()
        self._step = step

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record as one line of JSON."""
        entry = {
            "severity": record.levelname,
            "time": time.strftime(f"%Y-%m-%dT%H:%M:%S.{int(record.msecs):03d}Z", time.gmtime(record.created)),
            "step": self._step,
            "message": record.getMessage(),
        }
        if event := getattr(record, "event", None):
            entry["event"] = event
        return json.dumps(entry, ensure_ascii=True)


def log_to_stdout(step: str) -> logging.Handler:
    """Makes the log of `components` go to standard output, under a step's name; returns what does it."""
    handler = logging.StreamHandler(sys.stdout)
    if os.environ.get(LOG_FORMAT_VARIABLE) == "json":
        handler.setFormatter(_JsonFormatter(step))
    else:
        formatter = logging.Formatter(f"%(asctime)s %(levelname)s {step}: %(message)s", "%Y-%m-%dT%H:%M:%SZ")
        formatter.converter = time.gmtime
        handler.setFormatter(formatter)
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    return handler


class StepRun:
    """A running step: what its body reports goes into the step's record."""

    def __init__(self, name: str, folder: str) -> None:
        self._record: dict[str, Any] = {"step": name, "state": "RUNNING", "started": time.time(), "outputs": {}}
        self._uri = files.join(folder, RECORD)
        self.save()

    def save(self, **fields: Any) -> None:
        """Adds fields to the record and writes it."""
        self._record.update(fields, seconds=round(time.time() - self._record["started"], 3))
        files.write_json(self._uri, self._record)

    def report(self, **fields: Any) -> None:
        """Adds figures to the record (plain Python values), to be written when the step ends."""
        self._record.update(fields)


@contextlib.contextmanager
def running(name: str, **outputs: str) -> Iterator[StepRun]:
    """Runs the body of a step: sets up its log, and writes its record whatever happens.

    Args:
        name: The step's name.
        outputs: URIs of the step's output artifacts by name; the record is written beside the first.

    Yields:
        The running step, for figures that belong in its record.

    Raises:
        SystemExit: with code 1 when the body failed, after the error was logged and recorded. A `TpuPipelinesError`
            is logged as its one sentence; anything else, which is our fault, with its traceback.
    """
    handler = log_to_stdout(name)
    folder = os.path.dirname(next(iter(outputs.values())))  # noqa: PTH120 - may be a gs:// URI
    try:
        step = StepRun(name, folder)
    except OSError as error:
        log.error(f"{folder} can't be written ({error}); check that it exists, and that the account may write there.")
        log.removeHandler(handler)
        raise SystemExit(1) from error
    try:
        yield step
    except BaseException as error:  # an exit too: a step that leaves early has not done its work
        if isinstance(error, TpuPipelinesError):
            message, fault = str(error), error.fault
        else:
            message, fault = f"{type(error).__name__}: {error}", "ours"
            traceback.print_exc(file=sys.stdout)
        log.error(message)
        step.save(state="FAILED", error=message, fault=fault)
        raise SystemExit(1) from error
    else:
        step.save(state="SUCCEEDED", outputs=outputs, files={uri: inventory(uri) for uri in outputs.values()})
    finally:
        log.removeHandler(handler)


def inventory(uri: str) -> dict[str, int]:
    """Returns the size in bytes of a file, or of each file below a folder, by its place there."""
    names = {path[len(uri) :]: files.size(path) for path in files.walk(uri)}
    return names or ({"": files.size(uri)} if files.exists(uri) else {})


class Progress:
    """Logs how far a long loop has come, at most once a second: done, rate and time left.

    Args:
        unit: What is counted, such as `rows` or `steps`.
        total: How many there are, where that is known.
        rate_unit: What the rate counts, where that is not `unit`.
        per_unit: How many `rate_unit` go into one `unit`: a step's global batch size.

    Example:
        progress = Progress("rows", total=5000)
        for done, row in enumerate(rows, start=1):
            progress(done)
    """

    def __init__(self, unit: str, total: int | None = None, *, rate_unit: str = "", per_unit: int = 1) -> None:
        self._unit, self._total = unit, total
        self._rate_unit, self._per_unit = rate_unit or unit, per_unit
        self._start = self._logged = time.monotonic()
        self._first: int | None = None

    def __call__(self, done: int, *, prefix: str = "", **figures: float) -> None:
        """Logs a line if a second has passed since the last one.

        Args:
            done: Units done so far, of the total.
            prefix: Text in front of the line, such as the epoch.
            figures: What else to show, such as the loss.
        """
        now = time.monotonic()
        if self._first is None:  # what came before (a restart, a slow first call) says nothing of the rate
            self._first, self._start = done, now
        if now - self._logged < PROGRESS_SECONDS and done != self._total:
            return
        self._logged = now
        parts = [f"{done:,}/{self._total:,} {self._unit}" if self._total else f"{done:,} {self._unit}"]
        elapsed, new = now - self._start, done - self._first
        if elapsed > 0 and new > 0:
            rate = new / elapsed
            parts.append(f"{rate * self._per_unit:,.0f} {self._rate_unit}/s")
            if self._total and done < self._total:
                parts.append(f"{duration((self._total - done) / rate)} left")
        parts += [f"{name} {value:.4f}" for name, value in figures.items()]
        log.info(prefix + " · ".join(parts), extra={"event": "progress"})


def duration(seconds: float) -> str:
    """Returns a length of time as people write it: `45 s`, `3 min 05 s`, `2 h 04 min`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
