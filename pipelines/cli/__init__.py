"""The command line, `tpu-pipelines`. A command imports what it needs when it runs, so `--help` answers at once."""

import sys

# isort: off - each module registers its commands, and `--help` lists them in this order
from pipelines.cli import machines, preflight, run, vertex  # noqa: F401

# isort: on
from pipelines.cli.app import OURS, USERS_FAULT, app


def main() -> None:
    """Runs the command line; an error that a user can mend is one sentence and exit status 2."""
    from components.errors import TpuPipelinesError

    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal that has no ✔ gets a ?
    try:
        app()
    except TpuPipelinesError as error:
        for note in getattr(error, "__notes__", ()):  # the log of another process, to which the sentence refers
            sys.stderr.write(f"{note}\n")
        sys.stderr.write(f"{error}\n")
        sys.exit(USERS_FAULT if error.fault == "user" else OURS)
