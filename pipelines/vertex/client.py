"""Google's SDK: runs and schedules on Vertex AI, over REST, with application default credentials."""

import logging
import tempfile
from pathlib import Path

import google.auth
from google.api_core import exceptions
from google.auth.exceptions import DefaultCredentialsError
from google.cloud import aiplatform, storage

from components.cloud import AccessError, ServiceError, explained, find_run
from components.errors import ConfigError, first_line
from pipelines.config import RunConfig
from pipelines.vertex import rules
from pipelines.vertex.submission import Submission

log = logging.getLogger(__name__)


def connect(project: str, region: str) -> None:
    """Makes project and region those of every call.

    Args:
        project: The project's id or number.
        region: The region.

    Raises:
        AccessError: if there are no application default credentials.
        ConfigError: if there is no such region.
    """
    if region not in rules.REGIONS:
        raise ConfigError(f"{region!r} is no region of Vertex AI, such as us-central1.")
    with explained("Application default credentials"):
        try:
            credentials, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
        except AttributeError as error:  # what google.auth makes of a file of JSON that holds no object
            raise DefaultCredentialsError("the file of credentials holds none") from error
    aiplatform.init(project=project, location=region, credentials=credentials, api_transport="rest")
    # What happens is said by us. The SDK gives the logger of each of its modules a level of its own.
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("google.cloud.aiplatform"):
            logging.getLogger(name).setLevel(logging.WARNING)


def check_buckets(config: RunConfig) -> list[str]:
    """Looks whether the pipeline root's bucket of each region is there, and in that region.

    Args:
        config: The run.

    Returns:
        A warning for each that is in another region, or can't be looked at.

    Raises:
        ConfigError: if there is no such bucket (the SDK would make one of that name), or it spans regions, which
            Vertex AI does not support for training.
    """
    return [warning for region in config.vertex.regions if (warning := _check_bucket(config, region))]


def _check_bucket(config: RunConfig, region: str) -> str:
    name = config.vertex.root_in(region).split("/")[2]
    try:
        with explained(f"Bucket {name} of vertex.pipeline_root"):
            bucket = storage.Client(project=config.vertex.project).get_bucket(name)
    except (AccessError, ServiceError) as error:
        return f"{error} Its region is unchecked."
    if not bucket.location:
        return f"Bucket {name} does not say where it is. Its region is unchecked."
    if (bucket.location_type or "region") != "region":
        raise ConfigError(
            f"vertex.pipeline_root is in {name}, a {bucket.location_type} bucket ({bucket.location}); training needs a "
            f"bucket of one region, such as {region}."
        )
    if bucket.location.lower() != region:
        # "It must be in the same regional location as the service location": googleapis/python-aiplatform#885.
        return (
            f"Bucket {name} is in {bucket.location.lower()} and the run in {region}, which Vertex AI may refuse, and "
            "which costs; give each region a bucket of its own: vertex.pipeline_root gs://NAME-{region}/..."
        )
    return ""


def submit(run: Submission, region: str) -> aiplatform.PipelineJob:
    """Sends a run to a region and returns it, created.

    Args:
        run: The run.
        region: One of its regions.

    Raises:
        ConfigError: if there is a run of that id, or the service refuses it.
        AccessError: if the account may not.
        ServiceError: if there is no answer.
    """
    job, vertex = _job(run, region), run.config.vertex
    with explained(f"Run {run.job_id} in {region}"):
        try:
            job.submit(
                service_account=vertex.service_account or None,
                network=vertex.network or None,
                experiment=vertex.experiment or None,
            )
        except exceptions.Conflict as error:
            raise ConfigError(
                f"There is a run {run.job_id} in {region} already; give another --job-id, or none."
            ) from error
        except Exception as error:
            # After the run is created the SDK puts it into the experiment, and what fails there must not hide the run.
            if job.gca_resource.name:
                log.warning("The run was sent, but is not in the experiment %s (%s).", vertex.experiment, error)
            elif isinstance(error, RuntimeError | ValueError) and vertex.experiment:
                raise ConfigError(
                    f"vertex.experiment {vertex.experiment!r} can't be used ({first_line(error)}); give another name."
                ) from error
            else:
                raise
    return job


def schedule(run: Submission, *, cron: str, max_runs: int | None) -> aiplatform.PipelineJobSchedule:
    """Schedules a run in its first region, one at a time, and returns the schedule, created.

    Args:
        run: The run. It must have no experiment: a schedule can't carry one.
        cron: When, as `rules.check_cron` has it.
        max_runs: Runs after which the schedule ends; None for no end.

    Raises:
        TpuPipelinesError: as `submit`.
    """
    rules.check_schedule(run.config, cron)
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
            pipeline_root=vertex.root_in(region),
            parameter_values=run.parameters,
            labels=dict(vertex.labels) or None,
        )


def find(name: str) -> aiplatform.PipelineJob | aiplatform.PipelineJobSchedule:
    """Returns a run, by its resource name or its link in the console, or a schedule by its resource name.

    Args:
        name: The name.

    Raises:
        ConfigError: if the name is neither, or there is none of it.
        AccessError: if the account may not look.
        ServiceError: if there is no answer.
    """
    if run := find_run(name):
        connect(run.project, run.region)
        with explained(f"Run {run.id}"):
            return aiplatform.PipelineJob.get(run.name)
    if match := rules.SCHEDULE.search(name):
        connect(match["project"], match["region"])
        with explained(f"Schedule {match['id']}"):
            return aiplatform.PipelineJobSchedule.get(match[0])
    raise ConfigError(
        f"{name!r} is no run; give what submit printed: projects/P/locations/REGION/pipelineJobs/ID, or the link."
    )


def cancel(name: str) -> str:
    """Cancels a run, or deletes a schedule, whose runs go on; returns what was done.

    Args:
        name: As in `find`.

    Raises:
        TpuPipelinesError: as `find`.
    """
    found = find(name)
    with explained(f"Ending {found.resource_name}"):
        if isinstance(found, aiplatform.PipelineJobSchedule):
            found.delete()
            return f"Ended: {found.resource_name}"
        found.cancel()
    return f"Cancelled: {found.resource_name}. Its TPU is given back in some minutes; `status` shows when."
