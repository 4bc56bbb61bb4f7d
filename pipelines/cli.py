"""The command line: `tpu-pipelines`. Each command imports what it needs, so that `--help` answers at once."""

import sys
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


@app.command()
def run(
    config: Annotated[Path | None, typer.Argument(help="A run's YAML file.", show_default=False)] = None,
    overrides: Overrides = None,
    runs: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs"),
    resume: Annotated[
        Path | None, typer.Option(help="Go on with this run's folder instead of a new run.", show_default=False)
    ] = None,
) -> None:
    """Run the pipeline on this machine: prepare, train, evaluate, compare, export.

    Exit status: 0 exported, 3 the model is below evaluation.min_accuracy, 2 a setting, the data or the machine is to
    blame, 1 a fault of ours, 130 interrupted.
    """
    from rich.console import Console
    from rich.markup import escape

    from components.errors import ConfigError
    from pipelines import local
    from pipelines import runs as run_folders
    from pipelines.config import load
    from pipelines.show import show_run

    if (config is None) == (resume is None):
        raise ConfigError("Give a run's YAML file, or --resume with the folder of a run: one of them.")
    if resume is not None:
        if overrides:
            raise ConfigError("--set can't change a run that is resumed; start a new run with it.")
        folder = run_folders.RunFolder(resume.resolve())
        settings = folder.config()
        local.check(settings)
    else:
        assert config is not None
        settings = load(config, overrides or ())
        local.check(settings)
        folder = run_folders.create(runs, settings)
    console = Console(highlight=False)
    console.print(f"[bold]{settings.name}[/] on {settings.machine.name}, in {escape(str(folder.path))}")
    summary = local.run(folder, console)
    show_run(summary, folder, console)
    codes = {"SUCCEEDED": 0, "REJECTED": REJECTED, "INTERRUPTED": INTERRUPTED}
    raise typer.Exit(codes.get(summary.state, USERS_FAULT if summary.fault == "user" else OURS))


@app.command()
def check(config: ConfigFile, overrides: Overrides = None) -> None:
    """Check a run's settings and print what would run."""
    from rich.console import Console

    from pipelines.config import load
    from pipelines.show import show_plan

    show_plan(load(config, overrides or ()), Console(highlight=False))


@app.command()
def machines() -> None:
    """List the machines that machine.name can be."""
    from rich.console import Console

    from pipelines.show import show_machines

    show_machines(Console(highlight=False))


@app.command()
def doctor(
    replicas: Annotated[int, typer.Option(min=1, max=16, help="CPU replicas of the device check.")] = 8,
) -> None:
    """Check the installed versions, the devices, and that every replica computes."""
    from rich.console import Console

    from pipelines.doctor import examine

    if not examine(Console(highlight=False), replicas):
        raise typer.Exit(USERS_FAULT)


def main() -> None:
    """Runs the command line; an error that a user can mend is one sentence and exit status 2."""
    from components.errors import TpuPipelinesError

    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal that has no ✔ gets a ?
    try:
        app()
    except TpuPipelinesError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(USERS_FAULT)


if __name__ == "__main__":
    main()
