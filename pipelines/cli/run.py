"""Commands for this machine: run a pipeline here, check a configuration."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from pipelines.cli.app import ConfigFile, Overrides, app, exit_status


@app.command()
def run(
    config: Annotated[Path | None, typer.Argument(help="A run's YAML file.", show_default=False)] = None,
    overrides: Overrides = None,
    runs: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs"),
    resume: Annotated[
        Path | None, typer.Option(help="Go on with this run's folder instead of a new run.", show_default=False)
    ] = None,
    runner: Annotated[
        Literal["subprocess", "docker"],
        typer.Option(help="What the steps run in: processes, or containers of the images that Vertex AI would use."),
    ] = "subprocess",
    images: Annotated[
        Path | None,
        typer.Option(help="JSON with the images of --runner docker, instead of those built here.", show_default=False),
    ] = None,
) -> None:
    """Run the pipeline on this machine: prepare, train, evaluate, compare, export.

    Exit status: 0 exported, 3 the model is below evaluation.min_accuracy, 2 a setting, the data or the machine is to
    blame, 1 a fault of ours, 130 interrupted.
    """
    from rich.console import Console
    from rich.markup import escape

    from components.errors import ConfigError
    from pipelines import images as image_files
    from pipelines.config import load
    from pipelines.local import folder as run_folders
    from pipelines.local import run as local
    from pipelines.show import show_run

    if (config is None) == (resume is None):
        raise ConfigError("Give a run's YAML file, or --resume with the folder of a run: one of them.")
    if resume is not None:
        if overrides or images or runner != "subprocess":
            raise ConfigError(
                "--set, --runner and --images can't change a run that is resumed; start a new run with them."
            )
        folder = run_folders.RunFolder(resume.resolve())
        settings = folder.config()
        local.check(settings, folder.images())
    else:
        assert config is not None
        settings = load(config, overrides or ())
        if images and runner != "docker":
            raise ConfigError(f"--images {images} has no meaning without --runner docker; give that too.")
        built_here = image_files.Images() if runner == "docker" else None
        chosen = image_files.load(images, allow_tags=True, required=True) if images else built_here
        local.check(settings, chosen)
        folder = run_folders.create(runs, settings, chosen)
    console = Console(highlight=False)
    console.print(f"[bold]{settings.name}[/] on {settings.machine.name}, in {escape(str(folder.path))}")
    summary = local.run(folder, console)
    show_run(summary, folder, console)
    raise typer.Exit(exit_status(summary.state, summary.fault))


@app.command()
def check(config: ConfigFile, overrides: Overrides = None) -> None:
    """Check a run's settings and print what would run."""
    from rich.console import Console

    from pipelines.config import load
    from pipelines.show import show_plan

    show_plan(load(config, overrides or ()), Console(highlight=False))
