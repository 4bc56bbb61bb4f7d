"""Runs a pipeline on this machine through KFP's local runners, shows it live, and says how it went."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import IO, Any

from rich.console import Console

from components.errors import ConfigError, DeviceError
from components.step import LOG_FORMAT_VARIABLE
from pipelines.config import RunConfig
from pipelines.images import Images
from pipelines.live import StepView, display
from pipelines.local import docker as containers
from pipelines.local.folder import RunFolder, State, StepSummary, Summary
from pipelines.local.view import RunView

# How long the steps have to end after Ctrl-C before they are killed.
GRACE_SECONDS = 10.0


def check(config: RunConfig, images: Images | None = None) -> None:
    """Refuses a run that can't work on this machine, before its data is prepared.

    Args:
        config: The run.
        images: The images of a run in containers; None for a run in processes.

    Raises:
        ConfigError: if it asks for a TPU on another host, or for containers that can't be had.
        DeviceError: if it asks for GPUs or a TPU that aren't here, or that fail the device check.
    """
    if config.machine.tpu != "local":
        raise ConfigError(
            f"machine.tpu is {config.machine.tpu!r}, a TPU on another host, which can't read the runs folder here; "
            "run on the TPU's own host with machine.tpu local."
        )
    machine = config.machine.row
    if images:
        containers.check(config, images)
    elif machine.device != "cpu":
        result = device_check(machine.device, machine.replicas)
        if result.returncode:
            raise DeviceError((result.stderr.strip() or "The device check failed.").splitlines()[-1])


def device_check(device: str, replicas: int) -> "subprocess.CompletedProcess[str]":
    """Makes the device check in a process of its own, so that TensorFlow stays out of this one."""
    words = [sys.executable, "-P", "-m", "components.train.strategy", device, str(replicas)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def run(folder: RunFolder, console: Console) -> Summary:
    """Runs the pipeline of a run's folder to its end, and writes its summary.

    Args:
        folder: The run's folder, new or to be resumed.
        console: Where the run is shown.

    Returns:
        How it went. Ctrl-C, SIGTERM and a closed terminal end the steps and give the state `INTERRUPTED`.

    Raises:
        ConfigError: if another process runs in this folder.
    """
    began, start = time.time(), time.monotonic()
    view, interrupted = RunView(folder), False
    with _locked(folder) as lock, _signals_interrupt():
        folder.summary_file.unlink(missing_ok=True)
        folder.forget_broken_steps()
        in_containers = folder.images() is not None
        if in_containers:
            containers.end(folder)  # those of a try whose process was killed
        driver = subprocess.Popen(
            [sys.executable, "-m", "pipelines.local.driver", str(folder.path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, LOG_FORMAT_VARIABLE: "json", "PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1"},
            start_new_session=True,
            pass_fds=[lock.fileno()],  # if this process is killed, the driver still holds the folder
        )
        assert driver.stdout is not None
        try:
            with display(view.steps, console) as show:
                for line in driver.stdout:
                    show(view.read(line))
            driver.wait()
        except (KeyboardInterrupt, BrokenPipeError):  # the second: who read what is shown has gone
            interrupted = True
            view.interrupt()
        finally:
            _end_group(driver)
            if in_containers:
                with contextlib.suppress(DeviceError):  # the engine has gone, and the containers with it
                    containers.end(folder)
            driver.stdout.close()
            view.close()
        summary = _summarize(folder, view, began, time.monotonic() - start, interrupted)
        summary.save(folder.summary_file)
    return summary


@contextlib.contextmanager
def _locked(folder: RunFolder) -> Iterator[IO[bytes]]:
    """Holds a run's folder, so that no second process trains into the same checkpoints."""
    with folder.lock_file.open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(f"{folder.path} is being run by another process; wait for it, or end it.") from error
        yield lock


@contextlib.contextmanager
def _signals_interrupt() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP end the run as Ctrl-C does; a second one does not cut the end short."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def interrupt(number: int, frame: object) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    former = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, former, strict=True):
            signal.signal(number, handler)


def _end_group(driver: "subprocess.Popen[str]") -> None:
    """Ends the driver and the steps below it: asks, and after `GRACE_SECONDS` kills."""
    with contextlib.suppress(ProcessLookupError):  # raised once all of the group have ended
        os.killpg(driver.pid, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < deadline:
            driver.poll()
            os.killpg(driver.pid, 0)
            time.sleep(0.05)
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


def _summarize(folder: RunFolder, view: RunView, began: float, seconds: float, interrupted: bool) -> Summary:
    """Makes a run's summary from the steps' records, those of this try and of steps from the cache.

    A run has succeeded only if its export step says so, and is rejected only if its compare step says so.
    """
    records = {
        name: record
        for name, record in folder.records().items()
        if record["started"] >= began or view.steps[name].state == "CACHED"
    }
    for name, step in view.steps.items():  # KFP goes by the exit status alone
        if step.state == "SUCCEEDED" and records.get(name, {}).get("state") != "SUCCEEDED":
            step.state = "FAILED"
            folder.forget_steps()  # where KFP has put it as done
    failing = next((name for name, step in view.steps.items() if step.state in ("FAILED", "RUNNING")), None)
    error = fault = None
    state: State
    if interrupted:
        state = "INTERRUPTED"
    elif failing is None and records.get("export", {}).get("state") == "SUCCEEDED":
        state = "SUCCEEDED"
    elif failing is None and records.get("compare", {}).get("verdict") == "REJECTED":
        state = "REJECTED"
    else:
        state = "FAILED"
        error, fault = _failure(folder, failing, records)
    outputs = {name: uri for record in records.values() for name, uri in record["outputs"].items()}
    return Summary(
        state=state,
        seconds=round(seconds, 1),
        steps={name: _step_summary(step, failed=state == "FAILED") for name, step in view.steps.items()},
        metrics=records.get("evaluate", {}).get("metrics", {}),
        artifacts={name: outputs[name] for name in ("dataset", "model", "report", "export") if name in outputs},
        failing_step=failing if state == "FAILED" else None,
        error=error,
        fault=fault,
    )


def _step_summary(step: StepView, *, failed: bool) -> StepSummary:
    names = {"WAITING": "SKIPPED", "RUNNING": "FAILED" if failed else "INTERRUPTED"}
    return StepSummary(names.get(step.state, step.state), round(step.seconds, 1))


def _failure(folder: RunFolder, step: str | None, records: dict[str, dict[str, Any]]) -> tuple[str, str]:
    """Returns the error of a failed run and whose fault it is."""
    if step in records and records[step]["state"] == "FAILED":
        return records[step]["error"], records[step]["fault"]
    log = folder.log(step or "kfp")
    lines = log.read_text(encoding="utf-8").strip().splitlines() if log.exists() else []
    last = f"; its last line: {lines[-1].strip()}" if lines else ""
    if step:
        return f"The {step} step ended without a word, as a killed process does (out of memory?){last}", "ours"
    return f"The pipeline ended without an exported model{last}", "ours"
