"""Watches a run on Vertex AI until it ends."""

import time

from google.cloud import aiplatform
from rich.console import Console

from components.cloud import ServiceError, explained
from pipelines.live import StepView, display
from pipelines.vertex.outcome import ENDED, Outcome, examine
from pipelines.vertex.steps import step_names, update

# How long nothing need be heard of a run before the watch is given up: runs take hours, and networks have bad minutes.
PATIENCE_SECONDS = 300.0


def wait(job: aiplatform.PipelineJob, console: Console, poll_seconds: float) -> Outcome:
    """Shows a run until it ends; returns how it did.

    Args:
        job: The run.
        console: Where it is shown.
        poll_seconds: Seconds between looks at it.

    Raises:
        ServiceError: if nothing was heard of it for `PATIENCE_SECONDS`. The run itself goes on.
    """
    steps = {name: StepView() for name in step_names(job.gca_resource.pipeline_spec)}
    heard = time.monotonic()
    with display(steps, console) as show:
        while True:
            for name in update(steps, job.gca_resource.job_detail.task_details):
                show(name)
            show(None)
            if job.gca_resource.state in ENDED:
                break
            time.sleep(poll_seconds)
            try:
                with explained(f"Run {job.resource_name}, which goes on, can't be watched"):
                    _ = job.state  # looks at the run anew
                heard = time.monotonic()
            except ServiceError:
                if time.monotonic() - heard > PATIENCE_SECONDS:
                    raise
    return examine(job)
