"""How a run on Vertex AI goes and went: its steps, and of a failure the step, its error and its last words."""

import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from google.api_core import exceptions
from google.auth.exceptions import GoogleAuthError
from google.cloud import aiplatform, storage
from google.cloud import logging as cloud_logging
from google.cloud.aiplatform_v1.types import PipelineState, PipelineTaskDetail
from rich.console import Console

from components.step import RECORD
from pipelines import custom_job
from pipelines.live import StepView, display
from pipelines.vertex.client import ServiceError, explained

POLL_SECONDS = 10.0
# Looks in a row that may fail: a run takes hours, and a network has bad minutes.
MISSES = 30
LOG_LINES = 15

_ENDED = {
    PipelineState.PIPELINE_STATE_SUCCEEDED: "SUCCEEDED",
    PipelineState.PIPELINE_STATE_FAILED: "FAILED",
    PipelineState.PIPELINE_STATE_CANCELLED: "CANCELLED",
}
_Task = PipelineTaskDetail.State
_STEP_STATES = {
    _Task.RUNNING: "RUNNING",
    _Task.CANCEL_PENDING: "RUNNING",
    _Task.CANCELLING: "RUNNING",
    _Task.SUCCEEDED: "SUCCEEDED",
    _Task.CANCELLED: "INTERRUPTED",
    _Task.FAILED: "FAILED",
    _Task.SKIPPED: "CACHED",  # Vertex AI's word for a step that it took from its cache
    _Task.NOT_TRIGGERED: "SKIPPED",  # its condition was false
}
# How Vertex AI words that there is no slice, or no quota for one, in a region.
_NO_CAPACITY = re.compile(
    r"resources are insufficient|stock.?out|out of capacity|RESOURCE_EXHAUSTED|quota", re.IGNORECASE
)
_JOB = re.compile(r"projects/[^/]+/locations/[^/]+/customJobs/(?P<id>[0-9]+)")


@dataclass(frozen=True)
class Outcome:
    """How a run stands or ended.

    Attributes:
        state: `RUNNING`, `SUCCEEDED`, `REJECTED` (the model is below its floor), `FAILED` or `CANCELLED`.
        steps: Each step's state and seconds.
        records: What each step wrote of itself, by its name, with `folder`, where it did.
        failing_step: The step that failed first.
        error: What it said, or the service says of it.
        fault: Whether it is the `user`'s to mend, or `ours`.
        log: The last lines of its log.
    """

    state: str
    steps: Mapping[str, StepView]
    records: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    failing_step: str | None = None
    error: str | None = None
    fault: str | None = None
    log: tuple[str, ...] = ()

    @property
    def no_capacity(self) -> bool:
        """Whether training failed for want of a slice in that region."""
        return self.failing_step == "train" and bool(_NO_CAPACITY.search(self.error or ""))

    @property
    def checkpoints(self) -> str:
        """Where training that began and did not end has its checkpoints, or an empty string."""
        record = self.records.get("train")
        return f"{record['folder']}/model/checkpoints" if record and record["state"] != "SUCCEEDED" else ""


def link(job: aiplatform.PipelineJob) -> str:
    """Returns the page of a run in the console."""
    return job._dashboard_uri()


def wait(job: aiplatform.PipelineJob, console: Console, poll_seconds: float = POLL_SECONDS) -> Outcome:
    """Shows a run until it ends; returns how it did."""
    steps = {name: StepView() for name in step_names(job.gca_resource.pipeline_spec)}
    misses = 0
    with display(steps, console) as show:
        while True:
            for name in _update(steps, job.gca_resource.job_detail.task_details):
                show(name)
            show(None)
            if job.gca_resource.state in _ENDED:
                break
            time.sleep(poll_seconds)
            misses = 0 if _refresh(job, last_chance=misses == MISSES) else misses + 1
    return examine(job)


def examine(job: aiplatform.PipelineJob) -> Outcome:
    """Returns how a run stands, with all that can be learnt of its failure."""
    resource = job.gca_resource
    steps = {name: StepView() for name in step_names(resource.pipeline_spec)}
    _update(steps, resource.job_detail.task_details)
    state = _ENDED.get(resource.state, "RUNNING")
    for view in steps.values():
        if view.state == "WAITING" and state != "RUNNING":
            view.state = "SKIPPED"
    records = _records(resource)
    if state == "SUCCEEDED" and records.get("compare", {}).get("verdict") == "REJECTED":
        state = "REJECTED"
    if state != "FAILED":
        return Outcome(state, steps, records)
    failed = [task for task in resource.job_detail.task_details if _is_failed_step(task, steps)]
    if not failed:
        return Outcome(state, steps, records, error=resource.error.message, fault="ours")
    task = min(failed, key=lambda task: task.end_time or datetime.now(UTC))
    job, jobs = _training_job(resource) if task.task_name == "train" else None, _jobs_of(task)
    record = records.get(task.task_name, {})
    error, fault = record.get("error"), record.get("fault", "ours")
    if not error:
        error = (job and job.error.message) or task.error.message or "It ended without a word."
    jobs = [job.resource_name] if job else jobs
    return Outcome(state, steps, records, task.task_name, error, fault, _last_lines(resource, jobs))


def step_names(spec: Mapping[str, Any]) -> list[str]:
    """Returns the tasks of a pipeline spec that run a container, those of inner parts included, as they stand there."""
    components = spec["components"]

    def of(dag: Mapping[str, Any]) -> Iterable[str]:
        for name, task in _in_order(dag["tasks"]):
            component = components[task["componentRef"]["name"]]
            if "dag" in component:
                yield from of(component["dag"])
            else:
                yield name

    return list(of(spec["root"]["dag"]))


def _in_order(tasks: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Returns tasks so that each comes after those that it waits for."""
    ordered: dict[str, Any] = {}
    while len(ordered) < len(tasks):
        ready = [
            name for name in tasks if name not in ordered and set(tasks[name].get("dependentTasks", [])) <= set(ordered)
        ]
        ordered |= {name: tasks[name] for name in sorted(ready)}
    return list(ordered.items())


def _update(steps: dict[str, StepView], tasks: Iterable[PipelineTaskDetail]) -> list[str]:
    """Brings the steps' views up to date; returns the names of those whose state changed."""
    changed = []
    for task in tasks:
        view, state = steps.get(task.task_name), _STEP_STATES.get(task.state)
        if view is None or state is None:
            continue
        now = datetime.now(UTC)
        seconds = ((task.end_time or now) - task.start_time).total_seconds() if task.start_time else 0.0
        if state != view.state:
            changed.append(task.task_name)
        view.state, view.seconds, view.started = state, seconds, time.monotonic() - seconds
        view.message = task.error.message if state == "FAILED" else ""
    return changed


def _refresh(job: aiplatform.PipelineJob, *, last_chance: bool) -> bool:
    """Looks at the run again; says whether that worked, or, at the last chance, raises what went wrong."""
    try:
        with explained(f"Run {job.resource_name}, which goes on, can't be watched"):
            job._sync_gca_resource()
    except ServiceError:
        if last_chance:
            raise
        return False
    return True


def _is_failed_step(task: PipelineTaskDetail, steps: Mapping[str, StepView]) -> bool:
    return task.state == _Task.FAILED and task.task_name in steps


def _records(resource: Any) -> dict[str, dict[str, Any]]:
    """Returns the records that the steps left in the run's folder, by step; the newest of a step that ran twice."""
    root = resource.runtime_config.gcs_output_directory
    bucket, _, prefix = root.removeprefix("gs://").partition("/")
    _, project, *_, job = resource.name.split("/")
    folder = "/".join(filter(None, [prefix.rstrip("/"), project, job]))
    records: dict[str, dict[str, Any]] = {}
    try:
        for blob in storage.Client(project=project).list_blobs(bucket, prefix=f"{folder}/"):
            if not blob.name.endswith(f"/{RECORD}"):
                continue
            record = json.loads(blob.download_as_bytes())
            known = records.get(record["step"])
            if not known or record["started"] > known["started"]:
                records[record["step"]] = record | {"folder": f"gs://{bucket}/{blob.name.removesuffix(f'/{RECORD}')}"}
    except (exceptions.GoogleAPICallError, GoogleAuthError, OSError, ValueError, KeyError):
        return records  # they explain more than the service does; without them the service's word must do
    return records


def _training_job(resource: Any) -> aiplatform.CustomJob | None:
    """Returns the newest CustomJob of a run's training, which says more than the launcher; None where there is none."""
    name = custom_job.display_name(resource.name.split("/")[-1])
    try:
        jobs = aiplatform.CustomJob.list(filter=f'display_name="{name}"', order_by="create_time desc")
    except (exceptions.GoogleAPICallError, GoogleAuthError, OSError):
        return None
    return jobs[0] if jobs else None


def _jobs_of(task: PipelineTaskDetail) -> list[str]:
    """Returns the CustomJobs in which Vertex AI ran a task's container: their logs are the step's."""
    container = task.executor_detail.container_detail
    return [*filter(None, [container.main_job]), *container.failed_main_jobs]


def _last_lines(resource: Any, jobs: list[str]) -> tuple[str, ...]:
    ids = [match["id"] for job in jobs if (match := _JOB.search(job))]
    if not ids:
        return ()
    project = resource.name.split("/")[1]
    wanted = " OR ".join(f'resource.labels.job_id="{job}"' for job in ids)
    try:
        client = cloud_logging.Client(project=project, _use_grpc=False)
        entries = client.list_entries(
            filter_=f'resource.type="ml_job" AND ({wanted})', order_by=cloud_logging.DESCENDING, max_results=LOG_LINES
        )
        return tuple(reversed([_text(entry.payload) for entry in entries]))
    except (exceptions.GoogleAPICallError, GoogleAuthError, OSError):
        return ()


def _text(payload: Any) -> str:
    return str(payload.get("message", payload)) if isinstance(payload, Mapping) else str(payload)
