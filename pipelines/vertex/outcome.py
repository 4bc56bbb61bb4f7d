"""How a run on Vertex AI stands or ended: its steps, and of a failure the step, its error and its last words."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from google.cloud import aiplatform, storage
from google.cloud import logging as cloud_logging
from google.cloud.aiplatform_v1.types import PipelineState, PipelineTaskDetail

from components.cloud import explained
from components.errors import TpuPipelinesError
from components.step import RECORD
from pipelines.live import StepView
from pipelines.vertex import custom_job
from pipelines.vertex.steps import TaskState, step_names, update

LOG_LINES = 15

ENDED = {
    PipelineState.PIPELINE_STATE_SUCCEEDED: "SUCCEEDED",
    PipelineState.PIPELINE_STATE_FAILED: "FAILED",
    PipelineState.PIPELINE_STATE_CANCELLED: "CANCELLED",
}
# How Vertex AI words that a region has no slice (openreview/openreview-expertise#401; STOCKOUT: its page "Use Spot
# VMs") or the project no quota left there (GoogleCloudPlatform/vertex-ai-samples#3479).
_NO_CAPACITY = re.compile(r"resources are insufficient in region|STOCKOUT|quota metrics exceed quota limits", re.I)
_JOB = re.compile(r"projects/[^/]+/locations/[^/]+/customJobs/(?P<id>[0-9]+)")


@dataclass(frozen=True)
class Outcome:
    """How a run stands or ended.

    Attributes:
        state: `RUNNING`, `SUCCEEDED`, `REJECTED` (the model is below its floor), `FAILED` or `CANCELLED`.
        steps: Each step's state and seconds.
        records: What each step wrote of itself, by its name.
        warning: Why the records could not be read, or an empty string.
        failing_step: The step that failed first.
        error: What it said, or the service says of it.
        fault: Whether it is the `user`'s to mend, or `ours`.
        no_capacity: Whether training failed for want of a slice, or of quota for one, in that region.
        log: The last lines of its log.
        checkpoints: Where training that was cut off can be gone on from, or an empty string.
    """

    state: str
    steps: Mapping[str, StepView]
    records: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    warning: str = ""
    failing_step: str | None = None
    error: str | None = None
    fault: str | None = None
    no_capacity: bool = False
    log: tuple[str, ...] = ()
    checkpoints: str = ""


def examine(job: aiplatform.PipelineJob) -> Outcome:
    """Returns how a run stands, with all that can be learnt of its failure.

    Args:
        job: The run, as the SDK last saw it. Its records, its jobs and their logs are looked at; what can't be read
            there is left out.
    """
    resource = job.gca_resource
    state = ENDED.get(resource.state, "RUNNING")
    steps = {name: StepView() for name in step_names(resource.pipeline_spec)}
    update(steps, resource.job_detail.task_details)
    for view in steps.values():
        if view.state == "WAITING" and state != "RUNNING":
            view.state = "SKIPPED"
    # By the service's word, which is always there: a model is rejected by skipping its export.
    if state == "SUCCEEDED" and "export" in steps and steps["export"].state == "SKIPPED":
        state = "REJECTED"
    records, warning = _records(resource)
    if state != "FAILED":
        return Outcome(state, steps, records, warning)
    failed = [task for task in resource.job_detail.task_details if _is_failed_step(task, steps)]
    if not failed:
        error = resource.error.message or "It ended without a word; see its page in the console."
        return Outcome(state, steps, records, warning, error=error, fault="ours")
    task = min(failed, key=lambda task: task.end_time or datetime.now(UTC))
    record = records.get(task.task_name, {})
    trained = _training_job(resource) if task.task_name == "train" else None
    said = (trained and trained.error.message) or task.error.message or "It ended without a word."
    return Outcome(
        state,
        steps,
        records,
        warning,
        failing_step=task.task_name,
        error=record.get("error", said),
        fault=record.get("fault", "ours"),
        # Not by the step's own error: a model too large for the TPU's memory says RESOURCE_EXHAUSTED too.
        no_capacity=trained is not None and "error" not in record and bool(_NO_CAPACITY.search(said)),
        log=_last_lines(resource, [trained.resource_name] if trained else _jobs_of(task)),
        checkpoints=_checkpoints(records.get("train", {})),
    )


def _is_failed_step(task: PipelineTaskDetail, steps: Mapping[str, StepView]) -> bool:
    return task.state == TaskState.FAILED and task.task_name in steps


def _records(resource: Any) -> tuple[dict[str, dict[str, Any]], str]:
    """Returns the records that the steps left in the run's folder, and why they can't be read, if that is so.

    Of a step that ran twice, the newest record. The folder is `ROOT/PROJECT NUMBER/JOB`, as Vertex AI makes it.
    """
    bucket, _, prefix = resource.runtime_config.gcs_output_directory.removeprefix("gs://").partition("/")
    _, project, *_, job = resource.name.split("/")
    folder = "/".join(filter(None, [prefix.rstrip("/"), project, job]))
    records: dict[str, dict[str, Any]] = {}
    try:
        with explained("The steps' records"):
            blobs = storage.Client(project=project).list_blobs(bucket, match_glob=f"{folder}/*/{RECORD}")
            contents = [blob.download_as_bytes() for blob in blobs]
    except TpuPipelinesError as error:
        return {}, str(error)
    for content in contents:
        try:
            record = _checked(json.loads(content))
        except (ValueError, LookupError, TypeError, RecursionError):  # cut off, or not ours
            continue
        name = record["step"]
        if name not in records or record["started"] > records[name]["started"]:
            records[name] = record
    return records, ""


def _checked(record: Any) -> dict[str, Any]:
    """Returns a step's record, if what is read of it here is of the right types.

    Raises:
        TypeError: if not.
    """
    kinds = {"step": str, "started": int | float, "state": str, "outputs": dict, "error": str, "checkpoints": str}
    figures = record.get("metrics", {})
    uris = record.get("outputs", {})
    if (
        not all(isinstance(record[name], kind) for name, kind in kinds.items() if name in record)
        or not {"step", "started", "state"} <= record.keys()
        or not all(isinstance(uri, str) for uri in uris.values())
        or not all(isinstance(figures[name], int | float) for name in ("accuracy", "loss") if figures)
    ):
        raise TypeError
    return dict(record)


def _checkpoints(train: Mapping[str, Any]) -> str:
    """Returns the folder of training's checkpoints, if it holds a whole one and training has not ended well."""
    folder = train.get("checkpoints", "")
    bucket, _, name = folder.removeprefix("gs://").partition("/")
    if train.get("state") == "SUCCEEDED" or not name:
        return ""
    try:
        with explained("The checkpoints"):
            found = storage.Client().bucket(bucket).blob(f"{name}/checkpoint").exists()
    except TpuPipelinesError:
        return ""
    return folder if found else ""


def _training_job(resource: Any) -> aiplatform.CustomJob | None:
    """Returns the newest CustomJob of a run's training, which says more than the launcher; None where there is none."""
    name = custom_job.display_name(resource.name.split("/")[-1])
    try:
        with explained("The training job"):
            jobs = aiplatform.CustomJob.list(filter=f'display_name="{name}"', order_by="create_time desc")
    except (TpuPipelinesError, LookupError, TypeError, AttributeError):  # the last three: an answer that is none
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
    wanted = " OR ".join(f'resource.labels.job_id="{job}"' for job in ids)
    try:
        with explained("The step's log"):
            client = cloud_logging.Client(project=resource.name.split("/")[1], _use_grpc=False)
            entries = client.list_entries(
                filter_=f'resource.type="ml_job" AND ({wanted})',
                order_by=cloud_logging.DESCENDING,
                max_results=LOG_LINES,
            )
            return tuple(reversed([_text(entry.payload) for entry in entries]))
    except (TpuPipelinesError, LookupError, TypeError, AttributeError):  # the last three: an answer that is none
        return ()


def _text(payload: Any) -> str:
    return str(payload.get("message", payload)) if isinstance(payload, Mapping) else str(payload)
