"""Runs on Vertex AI, through google-cloud-aiplatform over REST, with application default credentials."""

import contextlib
import logging
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import google.auth
from google.api_core import exceptions
from google.auth.exceptions import GoogleAuthError
from google.cloud import aiplatform, storage

from components.errors import ConfigError, TpuPipelinesError, first_line
from pipelines.config import RunConfig
from pipelines.vertex.submission import Submission

# What happens we say ourselves. The SDK gives each of its modules' loggers a level of its own.
for _name in [name for name in logging.root.manager.loggerDict if name.startswith("google.cloud.aiplatform")]:
    logging.getLogger(_name).setLevel(logging.WARNING)

_RUN = re.compile(r"projects/(?P<project>[^/]+)/locations/(?P<region>[^/]+)/pipelineJobs/(?P<id>[^/?]+)")
_LINK = re.compile(r"locations/(?P<region>[^/]+)/pipelines/runs/(?P<id>[^/?]+)\?project=(?P<project>[^&#]+)")
_SCHEDULE = re.compile(r"projects/(?P<project>[^/]+)/locations/(?P<region>[^/]+)/schedules/(?P<id>[^/?]+)")


class ServiceError(TpuPipelinesError):
    """Google Cloud refused a call, or could not be reached."""


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Turns an error of Google's clients into one sentence that says what was tried and what to do."""
    try:
        yield
    except exceptions.Conflict as error:
        raise ConfigError(f"{what}: there is a run of this id already; give another --job-id, or none.") from error
    except exceptions.NotFound as error:
        raise ConfigError(f"{what}: not found ({_said(error)}); check its name, project and region.") from error
    except (exceptions.Forbidden, exceptions.Unauthorized) as error:
        raise ServiceError(
            f"{what}: not allowed ({_said(error)}); see docs/vertex.md for the roles that the account needs."
        ) from error
    except exceptions.BadRequest as error:
        raise ConfigError(f"{what}: refused ({_said(error)}).") from error
    except exceptions.GoogleAPICallError as error:
        raise ServiceError(f"{what}: {_said(error)}; try again, the service may be busy.") from error
    except (GoogleAuthError, OSError) as error:  # OSError: also what requests raises where nothing answers
        raise ServiceError(f"{what}: {first_line(error)}; check the network and the credentials.") from error


def _said(error: exceptions.GoogleAPICallError) -> str:
    """Returns the service's own words, without the address that the clients put in front of them."""
    return re.sub(r"^(\d+ )?[A-Z]+ https?://\S+: ", "", first_line(error)).rstrip(".")


def connect(project: str, region: str) -> None:
    """Makes project and region those of every call, with application default credentials.

    Raises:
        ServiceError: if there are no credentials.
    """
    try:
        credentials, _ = google.auth.default()
    except GoogleAuthError as error:
        raise ServiceError(
            "There are no application default credentials: run `gcloud auth application-default login`, or set "
            "GOOGLE_APPLICATION_CREDENTIALS to the file of a service account's key."
        ) from error
    aiplatform.init(project=project, location=region, credentials=credentials, api_transport="rest")


def check_bucket(config: RunConfig) -> str:
    """Looks whether the pipeline root's bucket is there and in the right region.

    Returns:
        A warning if it is in another region than the first, or can't be looked at; else an empty string.

    Raises:
        ConfigError: if there is no such bucket (the SDK would make one of that name), or it spans regions, which
            Vertex AI does not support for training.
    """
    name, region = config.vertex.pipeline_root.split("/")[2], config.vertex.regions[0]
    try:
        with explained(f"Bucket {name} of vertex.pipeline_root"):
            bucket = storage.Client(project=config.vertex.project).get_bucket(name)
    except ServiceError as error:
        return f"{error} Its region is unchecked."
    if (bucket.location_type or "region") != "region":
        raise ConfigError(
            f"vertex.pipeline_root is in {name}, a {bucket.location_type} bucket ({bucket.location}); training needs a "
            f"bucket of one region, such as {region}."
        )
    if bucket.location.lower() != region:
        return (
            f"Bucket {name} is in {bucket.location.lower()} and the run in {region}: each read and write of the TPU "
            "crosses regions, which is slow and costs."
        )
    return ""


def submit(run: Submission, region: str) -> aiplatform.PipelineJob:
    """Sends a run to a region and returns it, created."""
    job = _job(run, region)
    vertex = run.config.vertex
    with explained(f"Run {run.job_id} in {region}"):
        job.submit(
            service_account=vertex.service_account or None,
            network=vertex.network or None,
            experiment=vertex.experiment or None,
        )
    return job


def schedule(run: Submission, *, cron: str, max_runs: int | None) -> aiplatform.PipelineJobSchedule:
    """Schedules a run in its first region, one at a time, and returns the schedule, created."""
    vertex = run.config.vertex
    job = _job(run, vertex.regions[0])
    with explained(f"Schedule {run.display_name}"):
        return job.create_schedule(
            cron=cron,
            display_name=run.display_name,
            max_run_count=max_runs,
            max_concurrent_run_count=1,
            service_account=vertex.service_account or None,
            network=vertex.network or None,
        )


def _job(run: Submission, region: str) -> aiplatform.PipelineJob:
    """Returns the SDK's object of a run, the same for a submission and a schedule.

    Caching is the pipeline's own, step by step: the SDK's `enable_caching` would set all of them alike.
    """
    vertex = run.config.vertex
    connect(vertex.project, region)
    with tempfile.TemporaryDirectory() as folder:
        template = Path(folder, "pipeline.yaml")
        template.write_text(run.pipeline, encoding="utf-8")
        return aiplatform.PipelineJob(
            display_name=run.display_name,
            template_path=str(template),
            job_id=run.job_id,
            pipeline_root=vertex.pipeline_root.rstrip("/"),
            parameter_values=run.parameters,
            labels=dict(vertex.labels) or None,
        )


def find(name: str) -> aiplatform.PipelineJob:
    """Returns a run by its resource name or its link in the console.

    Raises:
        ConfigError: if the name is neither, or there is no such run.
    """
    match = _RUN.search(name) or _LINK.search(name)
    if not match:
        raise ConfigError(
            f"{name!r} is no run; give what submit printed: projects/P/locations/REGION/pipelineJobs/ID, or the link."
        )
    connect(match["project"], match["region"])
    with explained(f"Run {match['id']}"):
        return aiplatform.PipelineJob.get(
            f"projects/{match['project']}/locations/{match['region']}/pipelineJobs/{match['id']}"
        )


def find_schedule(name: str) -> aiplatform.PipelineJobSchedule | None:
    """Returns a schedule by its resource name, or None where the name is no schedule's."""
    match = _SCHEDULE.search(name)
    if not match:
        return None
    connect(match["project"], match["region"])
    with explained(f"Schedule {match['id']}"):
        return aiplatform.PipelineJobSchedule.get(match[0])
