"""Runs a pipeline on this machine through KFP's SubprocessRunner, shows it live, and says how it went."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from components.errors import ConfigError
from components.step import LOG_FORMAT_VARIABLE
from pipelines.config import RunConfig
from pipelines.runs import RunFolder, State, StepSummary, Summary

# The tasks of `pipelines.training`, which is not imported here because it imports kfp.
STEPS = ("prepare", "train", "evaluate", "compare", "export", "notify")
# How long the steps have to end after Ctrl-C before they are killed.
GRACE_SECONDS = 10.0
# Between two lines of progress where the output is no terminal.
PLAIN_PROGRESS_SECONDS = 15.0

# What kfp 2.17 prints, its colours removed, around and within a task's own output.
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_STARTED = re.compile(r"- INFO - Executing task '(?P<step>[^']+)'")
_ENDED = re.compile(r"- (INFO|ERROR) - Task '(?P<step>[^']+)' finished with status (?P<status>SUCCESS|FAILURE)")
_CACHED = re.compile(r"Task (?P<step>\S+) cache hit")


@dataclass
class StepView:
    """What is known of a step while the pipeline runs."""

    state: str = "WAITING"
    started: float = 0.0
    seconds: float = 0.0
    message: str = ""


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
        return json.loads(text)
    except ValueError:
        return None


def run(folder: RunFolder, config: RunConfig, console: Console) -> Summary:
    """Runs the pipeline of a run's folder to its end, and writes its summary.

    Args:
        folder: The run's folder, new or to be resumed.
        config: The run's settings.
        console: Where the run is shown.

    Returns:
        How it went. Ctrl-C ends the steps and gives the state `INTERRUPTED`.

    Raises:
        ConfigError: if the run can't work on this machine.
    """
    if config.machine.tpu != "local":
        raise ConfigError(
            f"machine.tpu is {config.machine.tpu!r}, a TPU on another host, which can't read the runs folder here; "
            "run on the TPU's own host with machine.tpu local."
        )
    start = time.monotonic()
    view = RunView(folder)
    driver = subprocess.Popen(
        [sys.executable, "-m", "pipelines.local_driver", str(folder.path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, LOG_FORMAT_VARIABLE: "json", "PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    )
    assert driver.stdout is not None
    interrupted = False
    try:
        with _display(view, console) as show:
            for line in driver.stdout:
                show(view.read(line))
        driver.wait()
    except KeyboardInterrupt:
        interrupted = True
        view.interrupt()
    finally:
        _end_group(driver)
        view.close()
    summary = _summarize(folder, view, time.monotonic() - start, interrupted, driver.returncode)
    summary.save(folder.summary_file)
    return summary


def _end_group(driver: "subprocess.Popen[str]") -> None:
    """Ends the driver and the steps below it: asks first, then kills."""
    for end, wait in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):  # all have ended
            os.killpg(driver.pid, end)
        with contextlib.suppress(subprocess.TimeoutExpired):
            driver.wait(wait)
    if driver.stdout:
        driver.stdout.close()


@contextlib.contextmanager
def _display(view: RunView, console: Console) -> Iterator[Callable[[str | None], None]]:
    """Shows the run live: a line per step that moves on a terminal, lines that follow each other elsewhere."""
    if console.is_terminal:
        with Live(get_renderable=lambda: _live(view), console=console, refresh_per_second=4):
            yield lambda changed: None
        return
    shown = 0.0

    def show(changed: str | None) -> None:
        nonlocal shown
        now = time.monotonic()
        running = next((name for name, step in view.steps.items() if step.state == "RUNNING"), None)
        if changed:
            console.print(_line(changed, view.steps[changed]))
        elif running and now - shown >= PLAIN_PROGRESS_SECONDS:
            console.print(_line(running, view.steps[running]))
        else:
            return
        shown = now

    yield show


def _live(view: RunView) -> Group:
    return Group(*(_line(name, step) for name, step in view.steps.items()))


STYLES = {
    "WAITING": ("·", "dim"),
    "RUNNING": ("▶", "cyan"),
    "SUCCEEDED": ("✔", "green"),
    "CACHED": ("✔", "green"),
    "SKIPPED": ("-", "dim"),
    "FAILED": ("✘", "red"),
    "REJECTED": ("✘", "yellow"),
    "INTERRUPTED": ("■", "yellow"),
}


def step_style(state: str) -> str:
    """Returns the colour of a step's or run's state."""
    return STYLES[state][1]


def _line(name: str, step: StepView) -> Text:
    """Returns a step's line: sign, name, seconds, newest message, cut to the width of the terminal."""
    sign, style = STYLES[step.state]
    seconds = time.monotonic() - step.started if step.state == "RUNNING" else step.seconds
    time_text = f"{seconds:6.1f} s" if seconds else " " * 8
    text = Text(no_wrap=True, overflow="ellipsis")
    return text.append(f" {sign} {name:<9}", style).append(f"{time_text}  ", "dim").append(step.message)


def _summarize(folder: RunFolder, view: RunView, seconds: float, interrupted: bool, returncode: int) -> Summary:
    """Makes a run's summary from the steps' records and from what KFP said of them."""
    records = folder.records()
    steps = {
        name: StepSummary("SKIPPED" if step.state == "WAITING" else step.state, round(step.seconds, 1))
        for name, step in view.steps.items()
    }
    outputs = {name: uri for record in records.values() for name, uri in record["outputs"].items()}
    failing = next((name for name, step in steps.items() if step.state == "FAILED"), None)
    error = fault = None
    state: State = "SUCCEEDED"
    if interrupted:
        state = "INTERRUPTED"
    elif failing or returncode or any(step.state == "RUNNING" for step in view.steps.values()):
        state = "FAILED"
        error, fault = _failure(folder, failing, records)
    elif records["compare"]["verdict"] == "REJECTED":
        state = "REJECTED"
    return Summary(
        state=state,
        seconds=round(seconds, 1),
        steps=steps,
        metrics=records.get("evaluate", {}).get("metrics", {}),
        artifacts={name: outputs[name] for name in ("dataset", "model", "report", "export") if name in outputs},
        failing_step=failing,
        error=error,
        fault=fault,
    )


def _failure(folder: RunFolder, step: str | None, records: dict[str, dict[str, Any]]) -> tuple[str, str]:
    """Returns the error of a failed run and whose fault it is."""
    if step in records and records[step]["state"] == "FAILED":
        return records[step]["error"], records[step]["fault"]
    log = folder.log(step or "kfp")
    lines = log.read_text(encoding="utf-8").strip().splitlines() if log.exists() else []
    last = f"; its last line: {lines[-1].strip()}" if lines else ""
    if step:
        return f"The {step} step ended without a word, as a killed process does (out of memory?){last}", "ours"
    return f"The pipeline could not be run{last}", "ours"
