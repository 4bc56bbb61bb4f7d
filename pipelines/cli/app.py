"""The `typer` application, and what several commands share. Importing it loads nothing heavy."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Train TensorFlow classifiers on Cloud TPUs; rehearse the whole pipeline on this machine first.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: rich takes three times as long to import as everything else
    context_settings={"help_option_names": ["-h", "--help"]},
)

USERS_FAULT, OURS, REJECTED, INTERRUPTED = 2, 1, 3, 130

ConfigFile = Annotated[Path, typer.Argument(help="A run's YAML file.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Replace a setting: section.key=value. May be given several times.",
        show_default=False,
    ),
]


def exit_status(state: str, fault: str | None) -> int:
    """Returns the exit status of a run that is in a state; `fault` says whose a failure is."""
    codes = {"SUCCEEDED": 0, "RUNNING": 0, "REJECTED": REJECTED, "INTERRUPTED": INTERRUPTED, "CANCELLED": INTERRUPTED}
    return codes.get(state, USERS_FAULT if fault == "user" else OURS)
