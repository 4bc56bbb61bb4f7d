"""Sends a run to Vertex AI, and to its next region where there is no TPU to be had."""

from google.cloud import aiplatform
from rich.console import Console
from rich.markup import escape

from components.cloud import find_run
from pipelines.vertex import client, follow
from pipelines.vertex.outcome import Outcome
from pipelines.vertex.submission import Submission


def look_around(run: Submission, console: Console) -> None:
    """Checks credentials and buckets before anything is sent; what may be well is a warning.

    Args:
        run: The run.
        console: Where warnings are shown.

    Raises:
        TpuPipelinesError: if there are no credentials, or a bucket can't serve.
    """
    client.connect(run.config.vertex.project, run.config.vertex.regions[0])
    for warning in client.check_buckets(run.config):
        console.print(f"[yellow]warning:[/] {escape(warning)}", soft_wrap=True)


def send(run: Submission, region: str, console: Console) -> aiplatform.PipelineJob:
    """Sends a run to a region, says where it can be seen, and returns it.

    Raises:
        TpuPipelinesError: as `client.submit`.
    """
    job = client.submit(run, region)
    sent = find_run(job.resource_name)
    assert sent
    console.print(f"Sent: {sent.name}\n  {sent.link}", soft_wrap=True)
    return job


def wait(run: Submission, job: aiplatform.PipelineJob, console: Console, poll_seconds: float) -> Outcome:
    """Waits for a run's end; where training finds no TPU in a region, the run is sent to the next.

    A run in another region has the same id, and training goes on from the checkpoints of the last one.

    Args:
        run: The run.
        job: The run, as sent to its first region.
        console: Where it is shown.
        poll_seconds: Seconds between looks at it.

    Returns:
        How it ended in the last region that was tried.

    Raises:
        TpuPipelinesError: as `client.submit` and `follow.wait`.
    """
    tried: list[str] = []
    for region, following in zip(run.config.vertex.regions, [*run.config.vertex.regions[1:], None], strict=True):
        outcome = follow.wait(job, console, poll_seconds)
        tried.append(f"{region}: {outcome.error or outcome.state}")
        if not outcome.no_capacity or following is None:
            break
        console.print(f"[yellow]No TPU in {region}:[/] {escape(outcome.error or '')}", soft_wrap=True)
        if outcome.checkpoints:
            run = run.with_parameters(checkpoint_dir=outcome.checkpoints)
        job = send(run, following, console)
    if len(tried) > 1:
        console.print("Tried: " + "; ".join(map(escape, tried)), soft_wrap=True)
    return outcome
