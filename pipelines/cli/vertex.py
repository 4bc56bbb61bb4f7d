"""Commands for Vertex AI: compile, upload, submit and schedule a pipeline, follow it, end it, remove what it left."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.cli.app import INTERRUPTED, OURS, ConfigFile, Overrides, app, exit_status

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.vertex.submission import Submission

ImagesFile = Annotated[Path, typer.Option("--images", help="JSON with the digests of the images, from the build.")]
AllowTags = Annotated[bool, typer.Option("--allow-tags", help="Take images that are named by tag, or by no file.")]
RunName = Annotated[
    str, typer.Argument(help="A run's resource name or link, as submit printed it.", show_default=False)
]
CompiledFile = Annotated[
    Path | None, typer.Option(help="A pipeline compiled before, instead of compiling.", show_default=False)
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check and print the plan; send nothing.")]
DisplayName = Annotated[str, typer.Option(help="The name that the console shows; empty: the run's.")]


@app.command()
def compile(
    config: ConfigFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="The YAML to write.")] = Path("pipeline.yaml"),
    overrides: Overrides = None,
    images: ImagesFile = Path("images.json"),
    allow_tags: AllowTags = False,
    components: Annotated[
        Path | None, typer.Option(help="Folder for each component's own YAML too.", show_default=False)
    ] = None,
) -> None:
    """Compile a run's pipeline for Vertex AI: the same bytes for the same run and images."""
    from pipelines import images as image_files
    from pipelines.config import load
    from pipelines.vertex.compile import compile_components, compile_pipeline, write_text

    settings = load(config, overrides or ())
    chosen = image_files.load(images, allow_tags=allow_tags)
    written = {output: compile_pipeline(settings, chosen)}
    if components:
        written |= {components / name / "component.yaml": text for name, text in compile_components(chosen)}
    for path, text in written.items():
        write_text(path, text)
        print(path)


@app.command()
def upload(
    pipeline: Annotated[Path, typer.Argument(help="A compiled pipeline.", show_default=False)],
    repository: Annotated[
        str, typer.Option(help="https://LOCATION-kfp.pkg.dev/PROJECT/REPOSITORY, of the format Kubeflow Pipelines.")
    ],
    tags: Annotated[
        list[str] | None,
        typer.Option("--tag", help="A name for this version. May be given several times.", show_default=False),
    ] = None,
) -> None:
    """Put a compiled pipeline into Artifact Registry, as a template that runs can be started from."""
    from pipelines.vertex.upload import upload

    template = upload(pipeline, repository, tags or ())
    print(f"package: {template.package}\nversion: {template.version}")
    for address in template.addresses:
        print(f"template: {address}")


@app.command()
def submit(
    config: ConfigFile,
    overrides: Overrides = None,
    images: ImagesFile = Path("images.json"),
    allow_tags: AllowTags = False,
    pipeline: CompiledFile = None,
    display_name: DisplayName = "",
    job_id: Annotated[str, typer.Option(help="The run's id; one that exists is an error. Empty: a new one.")] = "",
    dry_run: DryRun = False,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the run to its end, through its regions.")] = False,
    poll: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between looks at the run.")] = 10.0,
) -> None:
    """Send a run to Vertex AI, after checking all that can be checked before.

    Exit status: 0 sent (with --wait: exported), 3 the model is below evaluation.min_accuracy, 2 a setting, the data or
    the machine is to blame, 1 a fault of ours or of the service, 130 interrupted: the run itself goes on.
    """
    from rich.console import Console

    console = Console(highlight=False)
    run = _submission(
        console,
        config,
        overrides,
        images=images,
        allow_tags=allow_tags,
        pipeline=pipeline,
        display_name=display_name,
        job_id=job_id,
    )
    if dry_run:
        console.print("Nothing was sent: --dry-run.")
        return
    from pipelines.vertex import sending
    from pipelines.vertex.show import show_end, show_how_to_follow

    sending.look_around(run, console)
    job = sending.send(run, run.config.vertex.regions[0], console)
    if not wait:
        show_how_to_follow(job.resource_name, console)
        return
    try:
        outcome = sending.wait(run, job, console, poll)
    except KeyboardInterrupt:
        console.print("No longer watched. The run goes on, and so does its cost: see status and cancel, with its name.")
        raise typer.Exit(INTERRUPTED) from None
    show_end(outcome, console)
    raise typer.Exit(exit_status(outcome.state, outcome.fault))


@app.command()
def schedule(
    config: ConfigFile,
    cron: Annotated[str, typer.Option(help="When: '0 3 * * 1', with 'TZ=Europe/Berlin ' in front for local time.")],
    overrides: Overrides = None,
    images: ImagesFile = Path("images.json"),
    allow_tags: AllowTags = False,
    pipeline: CompiledFile = None,
    display_name: DisplayName = "",
    max_runs: Annotated[
        int | None, typer.Option(min=1, max=2**31 - 1, help="Runs after which it ends.", show_default=False)
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Let Vertex AI start a run again and again, one at a time."""
    from rich.console import Console

    from pipelines.vertex import rules

    rules.check_cron(cron)
    console = Console(highlight=False)
    run = _submission(
        console,
        config,
        overrides,
        images=images,
        allow_tags=allow_tags,
        pipeline=pipeline,
        display_name=display_name,
    )
    rules.check_schedule(run.config, cron)
    runs = "until it is ended" if max_runs is None else f"{max_runs} times"
    console.print(f"schedule: {cron}, {runs}, in {run.config.vertex.regions[0]}; each run gets an id of its own")
    if dry_run:
        console.print("Nothing was sent: --dry-run.")
        return
    from pipelines.vertex import client, sending

    sending.look_around(run, console)
    made = client.schedule(run, cron=cron, max_runs=max_runs)
    console.print(f"Scheduled: {made.resource_name}", soft_wrap=True)
    console.print(f"To end it: [bold]tpu-pipelines cancel {made.resource_name}[/]", soft_wrap=True)


@app.command()
def status(run: RunName) -> None:
    """Show how a run on Vertex AI stands or ended: steps, and of a failure the error and the last log lines.

    Exit status: 0 running or exported, 3 rejected, 2 or 1 failed as in submit, 130 cancelled.
    """
    from google.cloud import aiplatform
    from rich.console import Console

    from pipelines.vertex import client
    from pipelines.vertex.outcome import examine
    from pipelines.vertex.show import show_end, show_schedule

    console = Console(highlight=False)
    found = client.find(run)
    if isinstance(found, aiplatform.PipelineJobSchedule):
        show_schedule(found, console)
        return
    outcome = examine(found)
    show_end(outcome, console)
    raise typer.Exit(exit_status(outcome.state, outcome.fault))


@app.command()
def cancel(run: RunName) -> None:
    """End a run on Vertex AI, or a schedule (its runs go on)."""
    from pipelines.vertex import client

    print(client.cancel(run))


@app.command()
def teardown(
    config: ConfigFile,
    overrides: Overrides = None,
    yes: Annotated[bool, typer.Option("--yes", help="End what is listed without asking.")] = False,
    models: Annotated[bool, typer.Option("--models", help="Delete the registered models too.")] = False,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait until all has ended.")] = 900.0,
    poll: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between looks.")] = 10.0,
) -> None:
    """List what runs of these settings have left on Vertex AI that costs money, ask, and end it.

    Runs and training jobs are cancelled, schedules deleted, models undeployed, endpoints deleted, in every region of
    vertex.regions; what isn't these runs' is left alone. Without a terminal nothing is asked: it is listed, or ended
    with --yes. Exit status: 0 nothing is left, or it was only to be listed, 1 something is left, or you said no.
    """
    from rich.console import Console

    from pipelines.config import load
    from pipelines.vertex.teardown import teardown as end

    settings = load(config, overrides or ())
    if not end(settings, Console(highlight=False), yes=yes, models=models, timeout=timeout, poll=poll):
        raise typer.Exit(OURS)


def _submission(
    console: "Console",
    config: Path,
    overrides: list[str] | None,
    *,
    images: Path,
    allow_tags: bool,
    pipeline: Path | None,
    display_name: str,
    job_id: str = "",
) -> "Submission":
    """Returns what a submission or a schedule sends, after printing it."""
    from pipelines import images as image_files
    from pipelines.config import load
    from pipelines.images import Images
    from pipelines.vertex import submission
    from pipelines.vertex.plan import show_submission

    settings = load(config, overrides or ())
    chosen = Images() if pipeline else image_files.load(images, allow_tags=allow_tags)
    run = submission.make(settings, chosen, display_name=display_name, job_id=job_id, pipeline=pipeline)
    show_submission(run, console)
    return run
