"""A Docker engine and the project's images in it, built from the working tree while the other tests run."""

import os
import shutil
import signal
import subprocess
import tempfile
from dataclasses import asdict
from functools import cache
from pathlib import Path

import pytest

from pipelines.images import Images

ROOT = Path(__file__).parents[2]
IMAGES = asdict(Images())  # by name, as they are called where no registry was given
BUILD = "tests/containers/build_images.sh"
NO_ENGINE = "no Docker engine answers here, or no docker command that builds with BuildKit"


@cache
def docker():
    """Returns the docker command that can build here, or None.

    BuildKit is in its plugin buildx, or, up to version 22, in the command itself.
    """
    for command in filter(None, (shutil.which("docker"), shutil.which("docker", path="/usr/bin"))):
        version = _output(command, "version", "--format", "{{.Client.Version}}")
        builds = _output(command, "buildx", "version") or (version and int(version.split(".")[0]) < 23)
        if builds and _output(command, "version", "--format", "{{.Server.Version}}"):
            return command
    return None


def _output(*words):
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    return result.stdout.strip() if result.returncode == 0 else ""


def run(*words, **options):
    """Runs a docker command and returns its result, with output and errors as text."""
    return subprocess.run([docker(), *words], capture_output=True, text=True, check=False, **options)


class Build:
    """The images' build, in a process of its own."""

    def __init__(self) -> None:
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by `stop`
        self._process = subprocess.Popen(
            [ROOT / BUILD, *IMAGES],
            env={**os.environ, "DOCKER": docker()},
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def wait(self):
        """Waits for the end of the build, which fails the test if it fails."""
        if self._process.wait():
            self._log.seek(0)
            pytest.fail("The images can't be built:\n" + self._log.read()[-4000:])

    def stop(self):
        """Ends a build that nobody waits for any more."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait()
        self._log.close()
