"""The command line, in the test's own process, where heavy packages need be imported once only."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

from pipelines import cli

ROOT = Path(__file__).parents[1]


def call(*words, environment):
    """Does what `tpu-pipelines WORDS` does, in the project's folder, and returns its status and what it printed."""
    out, err, status = io.StringIO(), io.StringIO(), 0
    out.reconfigure = lambda **_: None
    with (
        mock.patch.dict(os.environ, environment),
        mock.patch.object(sys, "argv", ["tpu-pipelines", *map(str, words)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.chdir(ROOT),
    ):
        try:
            cli.main()
        except SystemExit as ended:
            status = ended.code or 0
    return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())
