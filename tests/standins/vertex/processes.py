"""Child processes in the place of containers."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from tests.standins.vertex.logs import JobLog

# Puts what `sitecustomize.py` there patches in front of every Python that a child starts.
CHILD_PATH = Path(__file__).with_name("child")
GRACE_SECONDS = 5


class Process:
    """One process with its children, whose output goes into a job's log."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], folder: Path, log: JobLog) -> None:
        self._popen = subprocess.Popen(
            list(command),
            cwd=folder,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        streams = {"stdout": self._popen.stdout, "stderr": self._popen.stderr}
        self._readers = [threading.Thread(target=_read, args=(pipe, log, name)) for name, pipe in streams.items()]
        for reader in self._readers:
            reader.start()

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    def wait(self) -> int:
        """Returns the exit status, as a shell would put it (137 for a SIGKILL), after the last line was read."""
        status = self._popen.wait()
        self.signal(signal.SIGKILL)  # children that it left behind
        for reader in self._readers:
            reader.join()
        return status if status >= 0 else 128 - status

    def stop(self) -> None:
        """Asks it to end, and makes it end if it has not done so after a while."""
        self.signal(signal.SIGTERM)
        try:
            self._popen.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, number)


def _read(pipe: IO[str], log: JobLog, stream: str) -> None:
    with pipe:
        for line in pipe:
            log.add(line.rstrip("\n"), stream)


class Processes:
    """Starts processes, and ends those that are left.

    Args:
        folder: Where each gets a folder of its own to run in.
        environment: What every process finds in its environment.
        mount: The folder that plays `/gcs`.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str], mount: Path) -> None:
        self.environment = dict(environment)
        self._folder, self._mount = folder, mount
        self._running: set[Process] = set()
        self._lock, self._closed = threading.Lock(), False

    def run(
        self,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str],
        log: JobLog,
        on_start: Callable[[Process], None] = lambda _: None,
    ) -> int:
        """Runs a command to its end and returns its exit status; one that can't be started has status 127."""
        folder = self._folder / name
        folder.mkdir(parents=True, exist_ok=True)
        with self._lock:
            if self._closed:
                return 128 + signal.SIGKILL
            try:
                process = Process(command, self._with_defaults(env, folder), folder, log)
            except OSError as error:
                log.add(f"{command[:1]}: {error}", "stderr")
                return 127
            self._running.add(process)
        try:
            on_start(process)
            return process.wait()
        finally:
            with self._lock:
                self._running.discard(process)

    def close(self) -> None:
        with self._lock:
            self._closed, running = True, list(self._running)
        for process in running:
            process.signal(signal.SIGKILL)

    def _with_defaults(self, env: Mapping[str, str], folder: Path) -> dict[str, str]:
        given = {**self.environment, **env}
        python_path = [str(CHILD_PATH), *filter(None, [given.get("PYTHONPATH")])]
        return {
            "HOME": str(folder),
            "TMPDIR": str(self._folder),
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            "VERTEX_STANDIN_GCS": f"{self._mount}/",
            **given,
            "PATH": f"{Path(sys.executable).parent}:{given.get('PATH', os.environ['PATH'])}",
            "PYTHONPATH": os.pathsep.join(python_path),
        }


def without_tpu(arguments: Sequence[str]) -> list[str]:
    """Returns a command whose KFP component is told of CPUs where it was told of TPUs.

    The one place where the job's own words are changed: no TPU is here, so `device` of the executor input says `cpu`,
    and the component trains on as many logical CPU devices as the slice has replicas.
    """
    return [_on_cpu(argument) for argument in arguments]


def _on_cpu(argument: str) -> str:
    if not argument.startswith("{"):
        return argument
    try:
        content = json.loads(argument)
        values = content["inputs"]["parameterValues"]
    except (ValueError, KeyError, TypeError):
        return argument
    if values.get("device") != "tpu":
        return argument
    values["device"] = "cpu"
    return json.dumps(content)
