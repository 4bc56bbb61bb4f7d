"""Sends a run to Vertex AI, and to its next region where there is no TPU to be had."""

from google.cloud import aiplatform
from rich.console import Console
from rich.markup import escape

from pipelines.vertex import client, follow
from pipelines.vertex.follow import Outcome
from pipelines.vertex.submission import Submission


def look_around(run: Submission, console: Console) -> None:
    """Checks credentials and bucket before anything is sent; what may be well is a warning.

    Raises:
        TpuPipelinesError: if there are no credentials, or the bucket can't serve.
    """
    client.connect(run.config.vertex.project, run.config.vertex.regions[0])
    if warning := client.check_bucket(run.config):
        console.print(f"[yellow]warning:[/] {escape(warning)}", soft_wrap=True)


def send(run: Submission, console: Console) -> str:
    """Sends a run to its first region; returns its resource name."""
    region = run.config.vertex.regions[0]
    job = client.submit(run, region)
    _say_where(job, console)
    return job.resource_name


def send_and_wait(run: Submission, console: Console, poll_seconds: float) -> Outcome:
    """Sends a run and waits for its end; where training finds no TPU in a region, it is sent to the next.

    A run in another region has the same id and folder, and training goes on from the checkpoints of the last one.

    Returns:
        How it ended in the last region that was tried.
    """
    regions = run.config.vertex.regions
    tried: list[str] = []
    for region in regions:
        job = client.submit(run, region)
        _say_where(job, console)
        outcome = follow.wait(job, console, poll_seconds)
        tried.append(f"{region}: {outcome.error or outcome.state}")
        if not outcome.no_capacity or region == regions[-1]:
            break
        console.print(f"[yellow]No TPU in {region}:[/] {escape(outcome.error or '')}", soft_wrap=True)
        if outcome.checkpoints:
            run = run.with_parameters(checkpoint_dir=outcome.checkpoints)
    if len(tried) > 1:
        console.print("Tried: " + "; ".join(escape(text) for text in tried), soft_wrap=True)
    return outcome


def _say_where(job: aiplatform.PipelineJob, console: Console) -> None:
    console.print(f"Sent: {job.resource_name}", soft_wrap=True)
    console.print(f"  {follow.link(job)}", soft_wrap=True)
