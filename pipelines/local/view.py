"""What is seen of a local run: the driver's output as each step's log, state and newest message."""

import json
import re
import time
from typing import IO, Any

from pipelines.live import StepView
from pipelines.local.folder import RunFolder

# The tasks of `pipelines.training`, which is not imported here because it imports kfp.
STEPS = ("fingerprint", "prepare", "train", "evaluate", "compare", "export", "notify")
# What kfp 2.17 prints, its colours removed, around and within a task's own output.
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_STARTED = re.compile(r"- INFO - Executing task '(?P<step>[^']+)'")
_ENDED = re.compile(r"- (INFO|ERROR) - Task '(?P<step>[^']+)' finished with status (?P<status>SUCCESS|FAILURE)")
_CACHED = re.compile(r"Task (?P<step>\S+) cache hit")


class RunView:
    """Follows the driver's output: writes each step's log, keeps its state and its newest message."""

    def __init__(self, folder: RunFolder) -> None:
        self.steps = {name: StepView() for name in STEPS}
        self._folder = folder
        self._current = ""
        self._logs: dict[str, IO[str]] = {}

    def read(self, line: str) -> str | None:
        """Takes one line of output; returns the name of the step whose state it changed, if it did."""
        plain = _COLOURS.sub("", line.rstrip("\n"))
        changed = self._follow(plain)
        if self._current and (record := _record(plain)):
            view = self.steps[self._current]
            view.message = record["message"]
            self._write(self._current, f"{record['time']} {record['severity']} {record['message']}")
        else:
            self._write(self._current or "kfp", plain.removeprefix("    "))
        return changed

    def _follow(self, plain: str) -> str | None:
        """Moves on to the step that KFP says has started, ended, or was taken from its cache."""
        now = time.monotonic()
        if (match := _STARTED.search(plain)) and match["step"] in self.steps:
            self._current = match["step"]
            self.steps[self._current] = StepView("RUNNING", started=now, message="starting")
            return self._current
        if (match := _ENDED.search(plain)) and match["step"] in self.steps:
            view = self.steps[match["step"]]
            view.state = "SUCCEEDED" if match["status"] == "SUCCESS" else "FAILED"
            view.seconds = now - view.started
            self._current = ""
            return match["step"]
        if (match := _CACHED.search(plain)) and match["step"] in self.steps:
            self.steps[match["step"]] = StepView("CACHED", message="done by an earlier try of this run")
            return match["step"]
        return None

    def interrupt(self) -> None:
        """Marks the running step as ended from outside."""
        for view in self.steps.values():
            if view.state == "RUNNING":
                view.state, view.seconds = "INTERRUPTED", time.monotonic() - view.started

    def close(self) -> None:
        """Closes the logs."""
        for log in self._logs.values():
            log.close()

    def _write(self, name: str, line: str) -> None:
        if name not in self._logs:
            self._logs[name] = self._folder.log(name).open("a", encoding="utf-8", buffering=1)
        self._logs[name].write(line + "\n")


def _record(plain: str) -> dict[str, Any] | None:
    """Returns the log record that a step wrote as JSON, or None for any other line."""
    text = plain.strip()
    if not text.startswith('{"severity"'):
        return None
    try:
        record = json.loads(text)
    except ValueError:
        return None
    return record if {"severity", "time", "message"} <= record.keys() else None
