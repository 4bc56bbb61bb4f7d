"""What Vertex AI documents of its requests: each rule refused with the name of the field that breaks it."""

import re
from typing import Any

from google.protobuf.message import Message
from kfp.pipeline_spec import pipeline_spec_pb2

from tests.standins.vertex import protos
from tests.standins.vertex.errors import ApiError, Findings
from tests.standins.vertex.machines import check_machine

JOB_ID = re.compile(r"[a-z][-a-z0-9]{0,127}")
LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
NETWORK = re.compile(r"projects/\d+/global/networks/[a-z]([-a-z0-9]*[a-z0-9])?")
SERVICE_ACCOUNT = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ALIAS = re.compile(r"[a-z][a-zA-Z0-9-]{0,126}[a-z0-9]")
CRON = re.compile(r"((CRON_)?TZ=\S+\s+)?([\d*/,-]+\s+){2}([\d*/,?-]+\s+)[\dA-Za-z*/,-]+\s+[\dA-Za-z*/,?-]+")
BOOT_DISKS = ("", "pd-ssd", "pd-standard", "hyperdisk-balanced")
WEEK_SECONDS = 7 * 24 * 3600


def check_labels(labels: Any, field: str, findings: Findings) -> None:
    findings.expect(len(labels) <= 64, field, f"There are {len(labels)} labels, at most 64 are allowed.")
    for key, value in labels.items():
        findings.expect(LABEL_KEY.fullmatch(key), field, f"Label key {key!r} does not match {LABEL_KEY.pattern}.")
        findings.expect(LABEL_VALUE.fullmatch(value), field, f"Label {key!r}: {value!r} must be {LABEL_VALUE.pattern}.")


def check_display_name(name: str, field: str, findings: Findings, *, required: bool = True) -> None:
    findings.expect(name or not required, field, "It must not be empty.")
    findings.expect(len(name) <= 128, field, f"It has {len(name)} characters, at most 128 are allowed.")


def check_place(message: Message, field: str, findings: Findings) -> None:
    """Checks what jobs and pipelines have alike: network and service account."""
    pattern = f"must match {NETWORK.pattern}"
    findings.expect(
        not message.network or NETWORK.fullmatch(message.network),
        f"{field}.network",
        f"{message.network!r} {pattern}: the project's number, not its id.",
    )
    findings.expect(
        not message.service_account or SERVICE_ACCOUNT.fullmatch(message.service_account),
        f"{field}.service_account",
        f"{message.service_account!r} is no e-mail address.",
    )


def check_uri(uri: str, field: str, findings: Findings, *, only_gs: bool) -> None:
    known = re.match(r"gs://[a-z0-9][a-z0-9._-]+(/|$)", uri) or (not only_gs and uri.startswith("/"))
    findings.expect(known, field, f"{uri!r} is no Cloud Storage URI (gs://bucket/folder).")


def check_pipeline_job(job: Message, job_id: str, *, only_gs: bool) -> None:
    """Refuses a PipelineJob that breaks a rule; an empty id is one that the service makes up."""
    findings = Findings()
    findings.expect(not job_id or JOB_ID.fullmatch(job_id), "pipeline_job_id", f"{job_id!r} must be {JOB_ID.pattern}.")
    check_display_name(job.display_name, "pipeline_job.display_name", findings, required=False)
    check_labels(job.labels, "pipeline_job.labels", findings)
    check_place(job, "pipeline_job", findings)
    spec = pipeline_spec(job)
    root = job.runtime_config.gcs_output_directory or spec.default_pipeline_root
    check_uri(root, "pipeline_job.runtime_config.gcs_output_directory", findings, only_gs=only_gs)
    findings.expect(spec.schema_version.startswith("2."), "pipeline_spec.schema_version", f"{spec.schema_version!r}")
    findings.expect(spec.root.HasField("dag"), "pipeline_spec.root", "It has no dag.")
    if spec.schema_version != "2.0.0":
        findings.expect(
            not job.runtime_config.parameters,
            "pipeline_job.runtime_config.parameters",
            "It is for schema version 2.0.0 only; use parameter_values.",
        )
    values = protos.to_dict(job.runtime_config).get("parameterValues", {})
    _check_parameters(values, spec.root.input_definitions.parameters, findings)
    findings.refuse()


def pipeline_spec(job: Message) -> Message:
    """Returns a job's pipeline spec, read strictly, its executors too."""
    content = protos.to_dict(job.pipeline_spec)
    if not content:
        raise ApiError("INVALID_ARGUMENT", "Field: pipeline_job.pipeline_spec; Message: It must not be empty.")
    spec = protos.parse(content, pipeline_spec_pb2.PipelineSpec())
    protos.parse(protos.to_dict(spec.deployment_spec), pipeline_spec_pb2.PipelineDeploymentConfig())
    return spec


_TYPES = {
    "STRING": lambda value: isinstance(value, str),
    "BOOLEAN": lambda value: isinstance(value, bool),
    "NUMBER_INTEGER": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "NUMBER_DOUBLE": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "LIST": lambda value: isinstance(value, list),
    "STRUCT": lambda value: isinstance(value, dict),
}


def _check_parameters(values: dict[str, Any], definitions: Any, findings: Findings) -> None:
    field = "pipeline_job.runtime_config.parameter_values"
    for name, value in values.items():
        if name not in definitions:
            findings.expect(False, field, f"{name!r} is not an input of the pipeline: {sorted(definitions)}.")
            continue
        kind = pipeline_spec_pb2.ParameterType.ParameterTypeEnum.Name(definitions[name].parameter_type)
        findings.expect(_TYPES[kind](value), field, f"{name!r} is {value!r}, expected {kind}.")
    for name, definition in definitions.items():
        optional = definition.is_optional or definition.HasField("default_value")
        findings.expect(name in values or optional, field, f"The required input {name!r} is missing.")


def check_schedule(schedule: Message, *, only_gs: bool) -> None:
    findings = Findings()
    check_display_name(schedule.display_name, "schedule.display_name", findings)
    findings.expect(CRON.fullmatch(schedule.cron), "schedule.cron", f"{schedule.cron!r} is no cron expression.")
    findings.expect(schedule.max_concurrent_run_count > 0, "schedule.max_concurrent_run_count", "It must be 1 or more.")
    request = schedule.create_pipeline_job_request
    findings.expect(
        schedule.HasField("create_pipeline_job_request"), "schedule.create_pipeline_job_request", "It is missing."
    )
    findings.expect(
        re.fullmatch(r"projects/[^/]+/locations/[^/]+", request.parent),
        "schedule.create_pipeline_job_request.parent",
        f"{request.parent!r} is no location.",
    )
    findings.expect(
        not request.pipeline_job_id,
        "schedule.create_pipeline_job_request.pipeline_job_id",
        "Each run gets an id of its own.",
    )
    findings.refuse()
    check_pipeline_job(request.pipeline_job, "", only_gs=only_gs)


def check_custom_job(job: Message, location: str, *, only_gs: bool) -> None:
    findings = Findings()
    spec = job.job_spec
    check_display_name(job.display_name, "custom_job.display_name", findings)
    check_labels(job.labels, "custom_job.labels", findings)
    check_place(spec, "custom_job.job_spec", findings)
    if spec.HasField("base_output_directory"):
        uri = spec.base_output_directory.output_uri_prefix
        check_uri(uri, "job_spec.base_output_directory.output_uri_prefix", findings, only_gs=only_gs)
    if spec.tensorboard:
        findings.expect(
            re.fullmatch(rf"projects/[^/]+/locations/{location}/tensorboards/[^/]+", spec.tensorboard),
            "job_spec.tensorboard",
            f"{spec.tensorboard!r} is no tensorboard of {location}.",
        )
        findings.expect(spec.service_account, "job_spec.service_account", "It is required along with a tensorboard.")
    _check_scheduling(spec.scheduling, findings)
    pools = spec.worker_pool_specs
    findings.expect(len(pools) > 0, "job_spec.worker_pool_specs", "It must not be empty.")
    for index, pool in enumerate(pools):
        _check_pool(pool, f"job_spec.worker_pool_specs[{index}]", findings)
    check_machine(spec, location, findings)
    findings.refuse()


def _check_scheduling(scheduling: Message, findings: Findings) -> None:
    if scheduling.HasField("timeout"):
        seconds = scheduling.timeout.seconds
        findings.expect(
            0 < seconds <= WEEK_SECONDS, "job_spec.scheduling.timeout", f"{seconds} s is not within a week."
        )
    if scheduling.HasField("max_wait_duration"):
        findings.expect(
            scheduling.strategy == scheduling.FLEX_START,
            "job_spec.scheduling.max_wait_duration",
            "It is for the strategy FLEX_START only.",
        )


def _check_pool(pool: Message, field: str, findings: Findings) -> None:
    findings.expect(pool.HasField("container_spec"), f"{field}.container_spec", "It is missing.")
    findings.expect(pool.container_spec.image_uri, f"{field}.container_spec.image_uri", "It must not be empty.")
    names = [variable.name for variable in pool.container_spec.env]
    for name in names:
        findings.expect(ENV_NAME.fullmatch(name), f"{field}.container_spec.env", f"{name!r} is no variable's name.")
    findings.expect(len(names) == len(set(names)), f"{field}.container_spec.env", "A name stands there twice.")
    disk = pool.disk_spec
    findings.expect(
        disk.boot_disk_type in BOOT_DISKS, f"{field}.disk_spec.boot_disk_type", f"{disk.boot_disk_type!r} is unknown."
    )
    if disk.boot_disk_size_gb:
        size = disk.boot_disk_size_gb
        findings.expect(
            100 <= size <= 64000, f"{field}.disk_spec.boot_disk_size_gb", f"{size} is not between 100 and 64000."
        )


def check_model(request: Message, *, only_gs: bool) -> None:
    findings = Findings()
    model = request.model
    check_display_name(model.display_name, "model.display_name", findings)
    check_labels(model.labels, "model.labels", findings)
    if model.artifact_uri:
        check_uri(model.artifact_uri, "model.artifact_uri", findings, only_gs=only_gs)
    for alias in model.version_aliases:
        findings.expect(ALIAS.fullmatch(alias), "model.version_aliases", f"{alias!r} does not match {ALIAS.pattern}.")
    findings.expect(
        model.container_spec.image_uri or not model.HasField("container_spec"),
        "model.container_spec.image_uri",
        "It must not be empty.",
    )
    findings.refuse()
