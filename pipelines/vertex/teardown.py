"""What a run's settings have left on Vertex AI that costs money: found in every region, and ended if asked.

Ours is what the settings can be shown to have made, and nothing else: a run has the pipeline's name and artifacts in
`vertex.pipeline_root`; a training job has the name that such a run gives it; endpoints and models are those that the
record of such a run names as its outputs. What only looks like ours is left alone, and said to be.
"""

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from google.cloud import aiplatform
from rich.console import Console
from rich.markup import escape

from components.cloud import explained
from components.errors import ConfigError, TpuPipelinesError, first_line
from pipelines.config import RunConfig
from pipelines.vertex import client, custom_job

_RUN_ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
_JOB_ENDED = ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED")


class Phase(IntEnum):
    """What is ended together; what comes later is ended when all before is gone, as a run may still deploy a model."""

    WORK = 0
    DEPLOYED = 1
    ENDPOINT = 2
    MODEL = 3


@dataclass(frozen=True)
class Thing:
    """Something of a run, or like it, on Vertex AI.

    Attributes:
        kind: What it is, such as `run`.
        name: Its resource name.
        shown: The name that the console shows.
        phase: When it is ended.
        how: How it is ended, in a word; of what is left alone, why it is.
        end: Ends it; None for what ends by itself, and for what is left alone.
    """

    kind: str
    name: str
    shown: str
    phase: Phase
    how: str
    end: Callable[[], object] | None = None


@dataclass
class Found:
    """What there is in a project's regions.

    Attributes:
        ours: What is to be ended.
        others: What is left alone.
        kept: Registered models of ours that stay.
    """

    ours: list[Thing] = field(default_factory=list)
    others: list[Thing] = field(default_factory=list)
    kept: list[Thing] = field(default_factory=list)

    def add(self, thing: Thing, why_not: str) -> None:
        """Adds a thing to what is ours; `why_not` says why it isn't, and is empty if it is."""
        if why_not:
            self.others.append(replace(thing, how=why_not, end=None))
        else:
            self.ours.append(thing)


def teardown(
    config: RunConfig, console: Console, *, yes: bool, models: bool, timeout: float = 900, poll: float = 10
) -> bool:
    """Lists what is left of a run's settings on Vertex AI, and ends it if told to.

    Args:
        config: The run.
        console: Where it is told.
        yes: End it without asking; otherwise a person at a terminal is asked, and elsewhere it is only listed.
        models: Registered models too.
        timeout: Seconds until what has not ended by then is only reported.
        poll: Seconds between two looks.

    Returns:
        Whether all is well: it was only to be listed, or nothing of it is left. Not so where a person said no.

    Raises:
        ConfigError: if the settings name no project or no pipeline root.
        TpuPipelinesError: if Vertex AI can't be asked.
    """
    for setting in ("project", "pipeline_root"):
        if not getattr(config.vertex, setting):
            raise ConfigError(f"vertex.{setting} is empty, so nothing can be told to be this run's; set it.")
    found = look(config, models=models)
    regions = ", ".join(config.vertex.regions)
    console.print(
        f"Runs of [bold]{config.name}[/] in {config.vertex.project} ({regions}), with artifacts in "
        f"{escape(config.vertex.pipeline_root)}:",
        soft_wrap=True,
    )
    _show(found.ours, console)
    asked = bool(found.ours) and not yes and console.is_terminal and sys.stdin.isatty()
    agreed = yes or (asked and _agrees(console))
    if agreed:
        found = _end_all(config, found, console, models=models, deadline=time.monotonic() + timeout, poll=poll)
    for heading, things in (("Left alone:", found.others), ("Kept, as models cost nothing here:", found.kept)):
        if things:
            console.print(heading)
            _show(things, console)
    if agreed and found.ours:
        console.print("[red]Still there, and maybe billed:[/]")
        _show(found.ours, console)
        console.print("Run this again in some minutes, or end them in the console.")
        return False
    if found.ours:
        console.print("Nothing was touched. To end what is listed first, say --yes.")
    else:
        console.print("Nothing of these runs is left on Vertex AI that is billed.")
    console.print("Buckets, images and accounts are Terraform's: docs/infra.md.")
    return not (asked and found.ours)


def _agrees(console: Console) -> bool:
    try:
        answer = console.input("Remove these? [y/N] ", markup=False)
    except EOFError:
        answer = ""
    return answer.strip().lower() in ("y", "yes")


def look(config: RunConfig, *, models: bool) -> Found:
    """Returns what there is in the run's regions.

    Args:
        config: The run.
        models: Whether registered models are to be ended too.

    Raises:
        TpuPipelinesError: if Vertex AI can't be asked.
    """
    found = Found()
    for region in config.vertex.regions:
        client.connect(config.vertex.project, region)
        root = config.vertex.root_in(region)
        with explained(f"What is in {region}"):
            _look_for_schedules(config, root, found)
            runs = _look_for_runs(config, root, found)
            _look_for_jobs(runs, found)
            registered = set(_outputs(runs, "model-upload", "model"))
            created = set(_outputs(runs, "endpoint-create", "endpoint")) - {config.vertex.endpoint}
            for endpoint in aiplatform.Endpoint.list():
                _look_at_endpoint(endpoint, registered, created, found)
            _look_for_models(registered, found, models=models)
    return found


def _look_for_schedules(config: RunConfig, root: str, found: Found) -> None:
    for schedule in aiplatform.PipelineJobSchedule.list(filter='state="ACTIVE" OR state="PAUSED"'):
        resource = schedule.gca_resource
        thing = Thing("schedule", resource.name, resource.display_name, Phase.WORK, "delete", schedule.delete)
        found.add(thing, _why_not_ours(resource.create_pipeline_job_request.pipeline_job, config, root))


def _look_for_runs(config: RunConfig, root: str, found: Found) -> list[Any]:
    """Adds the runs that have not ended; returns all of ours, as those that have ended made things."""
    ours = []
    unended = " AND ".join(f'state!="PIPELINE_STATE_{state}"' for state in _RUN_ENDED)
    named = aiplatform.PipelineJob.list(filter=f'pipeline_name="{config.name}"')
    jobs = {job.resource_name: job for job in [*named, *aiplatform.PipelineJob.list(filter=unended)]}
    for job in jobs.values():
        resource = job.gca_resource
        why_not = _why_not_ours(resource, config, root)
        if not why_not:
            ours.append(resource)
        state = resource.state.name.removeprefix("PIPELINE_STATE_")
        if state not in _RUN_ENDED:
            found.add(_work("run", job, state), why_not)
    return ours


def _look_for_jobs(runs: list[Any], found: Found) -> None:
    trainings = {custom_job.display_name(run.name.split("/")[-1]) for run in runs}
    steps = {task.executor_detail.container_detail.main_job for run in runs for task in run.job_detail.task_details}
    unended = " AND ".join(f'state!="JOB_STATE_{state}"' for state in _JOB_ENDED)
    for job in aiplatform.CustomJob.list(filter=unended):
        resource = job.gca_resource
        thing = _work("training job", job, resource.state.name.removeprefix("JOB_STATE_"))
        if resource.name in steps:
            found.add(replace(thing, kind="step", how="ends with its run", end=None), "")
        else:
            found.add(thing, "" if resource.display_name in trainings else "no run of these settings started it")


def _look_for_models(registered: set[str], found: Found, *, models: bool) -> None:
    names = {version.partition("@")[0] for version in registered}
    for model in aiplatform.Model.list():
        if model.resource_name not in names:
            continue
        versions = {f"{model.resource_name}@{v.version_id}" for v in model.versioning_registry.list_versions()}
        shown = f"{model.display_name}, {len(versions)} versions"
        thing = Thing("model", model.resource_name, shown, Phase.MODEL, "delete", model.delete)
        if models:
            found.add(thing, "it has versions of other origin" if versions - registered else "")
        else:
            found.kept.append(replace(thing, how="delete it with --models", end=None))


def _why_not_ours(job: Any, config: RunConfig, root: str) -> str:
    """Returns why a run, or what a schedule would start, is not of these settings; empty if it is."""
    pipeline = (job.pipeline_spec or {}).get("pipelineInfo", {}).get("name", "")
    if pipeline != config.name:
        return f"its pipeline is {pipeline or job.template_uri or 'unknown'}"
    written = job.runtime_config.gcs_output_directory.rstrip("/")
    return "" if written == root else f"its artifacts are in {written}"


def _work(kind: str, job: Any, state: str) -> Thing:
    resource = job.gca_resource
    thing = Thing(kind, resource.name, resource.display_name, Phase.WORK, "cancel", job.cancel)
    return replace(thing, how="is being cancelled", end=None) if state == "CANCELLING" else thing


def _outputs(runs: list[Any], task: str, output: str) -> Iterator[str]:
    """Yields the resource names of what Google's operators made in some runs; of models, with their version."""
    for run in runs:
        for detail in run.job_detail.task_details:
            # KFP numbers the tasks of one operator: model-upload, model-upload-2.
            if re.sub(r"-\d+$", "", detail.task_name) == task and output in detail.outputs:
                for artifact in detail.outputs[output].artifacts:
                    if name := (artifact.metadata or {}).get("resourceName"):
                        yield name


def _look_at_endpoint(endpoint: Any, registered: set[str], created: set[str], found: Found) -> None:
    resource = endpoint.gca_resource
    split: Mapping[str, int] = resource.traffic_split
    serves_others = False
    # The one with all the traffic last: before, it is refused.
    for deployed in sorted(resource.deployed_models, key=lambda model: split.get(model.id, 0)):
        name, shown = f"{resource.name} {deployed.id}", f"{deployed.display_name} on {resource.display_name}"

        def undeploy(identifier: str = deployed.id) -> None:
            aiplatform.Endpoint(resource.name).undeploy(identifier)

        is_ours = f"{deployed.model.partition('@')[0]}@{deployed.model_version_id}" in registered
        serves_others |= not is_ours
        thing = Thing("deployed model", name, shown, Phase.DEPLOYED, "undeploy", undeploy)
        found.add(thing, "" if is_ours else "no run of these settings registered it")
    thing = Thing("endpoint", resource.name, resource.display_name, Phase.ENDPOINT, "delete", endpoint.delete)
    why_not = "it serves models of other origin" if serves_others else ""
    found.add(thing, why_not if resource.name in created else "no run of these settings made it")


def _end_all(config: RunConfig, found: Found, console: Console, *, models: bool, deadline: float, poll: float) -> Found:
    """Ends what is ours, phase by phase, until nothing is left or time is up; returns what there is then."""
    asked: set[str] = set()
    refused: set[str] = set()
    while left := [thing for thing in found.ours if thing.name not in refused]:
        phase = min(thing.phase for thing in left)
        due = [thing for thing in left if thing.end and thing.phase == phase and thing.name not in asked]
        for thing in due:
            asked.add(thing.name)
            console.print(f"{thing.how}: {thing.kind} {escape(thing.name)}", soft_wrap=True)
            if warning := _end(thing):
                refused.add(thing.name)
                console.print(f"[yellow]warning:[/] {escape(warning)}", soft_wrap=True)
        if not due:
            if time.monotonic() >= deadline:
                break
            time.sleep(poll)
        found = look(config, models=models)
    return found


def _end(thing: Thing) -> str:
    """Ends a thing; returns why it could not, or nothing."""
    assert thing.end
    try:
        with explained(f"{thing.how.capitalize()} {thing.name}"):
            thing.end()
    except (TpuPipelinesError, ValueError) as error:  # the second: the SDK's own refusal
        return first_line(error)
    return ""


def _show(things: list[Thing], console: Console) -> None:
    for thing in things:
        console.print(f"  {thing.kind:<14} {escape(f'{thing.name} ({thing.shown}): {thing.how}')}", soft_wrap=True)
