"""The command that compiles a training step for a TPU on this machine."""

from typing import Annotated

import typer

from pipelines.cli.app import INTERRUPTED, REJECTED, ConfigFile, Overrides, app


@app.command()
def preflight(
    config: ConfigFile,
    overrides: Overrides = None,
    machine: Annotated[str, typer.Option(help="The slice to compile for, instead of machine.name.")] = "",
    find_batch_size: Annotated[
        bool, typer.Option("--find-batch-size", help="Find the largest global batch that fits, and show every try.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="Compare every machine that TensorFlow can train on.")] = False,
    dataset: Annotated[
        str, typer.Option(help="Folder or gs:// URI of a prepared data set, instead of a look at the source.")
    ] = "",
    examples: Annotated[
        int | None,
        typer.Option(
            min=1, help="Examples of the training split, instead of what the source says.", show_default=False
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Compile, even if the same was compiled before.")] = False,
) -> None:
    """Compile the training step by the TPU's own compiler, on this machine: does it fit, how long, how much?

    Exit status: 0 it fits (with --all: some machine), 3 it does not fit or compile, 2 a setting or the data is to
    blame, 1 a fault of ours, 130 interrupted.
    """
    from components.errors import ConfigError
    from pipelines.config import load
    from pipelines.preflight.command import Wish, run

    if every and (find_batch_size or machine):
        raise ConfigError("--all compares machines at the run's own batch; leave out --machine and --find-batch-size.")
    wish = Wish(machine=machine, find_batch_size=find_batch_size, every=every, as_json=as_json)
    try:
        fits = run(load(config, overrides or ()), wish, dataset=dataset, examples=examples, fresh=fresh)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    if not fits:
        raise typer.Exit(REJECTED)
