"""The steps of a pipeline on Vertex AI: their names from its spec, their states from its tasks."""

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from google.cloud.aiplatform_v1.types import PipelineTaskDetail

from pipelines.live import StepView

TaskState = PipelineTaskDetail.State
_STATES = {
    TaskState.RUNNING: "RUNNING",
    TaskState.CANCEL_PENDING: "RUNNING",
    TaskState.CANCELLING: "RUNNING",
    TaskState.SUCCEEDED: "SUCCEEDED",
    TaskState.CANCELLED: "INTERRUPTED",
    TaskState.FAILED: "FAILED",
    TaskState.SKIPPED: "CACHED",  # Vertex AI's word for a step that it took from its cache
    TaskState.NOT_TRIGGERED: "SKIPPED",  # its condition was false
}


def step_names(spec: Mapping[str, Any]) -> list[str]:
    """Returns the tasks of a pipeline spec that run a container, those of inner parts included, as they stand there."""
    components = spec.get("components", {})

    def of(dag: Mapping[str, Any]) -> Iterable[str]:
        for name, task in _in_order(dag["tasks"]):
            component = components[task["componentRef"]["name"]]
            if "dag" in component:
                yield from of(component["dag"])
            else:
                yield name

    return list(of(spec["root"]["dag"])) if components else []


def _in_order(tasks: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Returns tasks so that each comes after those that it waits for."""
    ordered: dict[str, Any] = {}
    while len(ordered) < len(tasks):
        ready = [
            name for name in tasks if name not in ordered and set(tasks[name].get("dependentTasks", [])) <= set(ordered)
        ]
        ordered |= {name: tasks[name] for name in sorted(ready)}
    return list(ordered.items())


def update(steps: dict[str, StepView], tasks: Iterable[PipelineTaskDetail]) -> list[str]:
    """Brings the steps' views up to date; returns the names of those whose state changed."""
    changed = []
    for task in tasks:
        view, state = steps.get(task.task_name), _STATES.get(task.state)
        if view is None or state is None:
            continue
        now = datetime.now(UTC)
        seconds = ((task.end_time or now) - task.start_time).total_seconds() if task.start_time else 0.0
        if state != view.state:
            changed.append(task.task_name)
        view.state, view.seconds, view.started = state, seconds, time.monotonic() - seconds
        view.message = task.error.message if state == "FAILED" else ""
    return changed
