"""What Vertex AI would refuse, or would find out only when a machine is paid for: checked before anything is sent."""

import json
import os
import re
import secrets
import time
import zoneinfo
from collections.abc import Mapping
from typing import Any

from components.errors import ConfigError, did_you_mean
from pipelines.config import RunConfig, parameters, slug
from pipelines.vertex import custom_job

# Of components.models.registry and components.prepare.samples, which need TensorFlow; a test holds them together.
BUILDERS = ("image_classifier", "text_classifier")
SAMPLES = ("sample://mnist", "sample://bbc_news")
DISPLAY_NAME_LENGTH = 128
JOB_ID_LENGTH = DISPLAY_NAME_LENGTH - len(custom_job.display_name(""))  # Vertex AI's own limit is 128
# The inputs of a step travel as one argument of its command, which Linux limits to 131,072 bytes with its final NUL
# (MAX_ARG_STRLEN). Training's travel inside the launcher's payload, quoted once more, beside the step's source.
ARGUMENT_BYTES = 131_071
# The regions that the SDK knows, which would take seconds to import; a test holds the two together.
REGIONS = (
    *("africa-south1", "asia-east1", "asia-east2", "asia-northeast1", "asia-northeast2", "asia-northeast3"),
    *("asia-south1", "asia-south2", "asia-southeast1", "asia-southeast2", "australia-southeast1"),
    *("australia-southeast2", "europe-central2", "europe-north1", "europe-north2", "europe-southwest1"),
    *("europe-west1", "europe-west12", "europe-west2", "europe-west3", "europe-west4", "europe-west6"),
    *("europe-west8", "europe-west9", "me-central1", "me-central2", "me-west1", "northamerica-northeast1"),
    *("northamerica-northeast2", "southamerica-east1", "southamerica-west1", "us-central1", "us-east1"),
    *("us-east4", "us-east5", "us-east7", "us-south1", "us-west1", "us-west2", "us-west3", "us-west4", "us-west8"),
)
# Kept free beside the settings for the step's source (5 kB), the URIs of its artifacts and the names around them.
RESERVED_BYTES = 16_384

SCHEDULE = re.compile(r"projects/(?P<project>[^/]+)/locations/(?P<region>[^/]+)/schedules/(?P<id>[^/?]+)")
_CRON_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12), ("day of week", 0, 7))
_NAMES = "SUN|MON|TUE|WED|THU|FRI|SAT|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC"
_CRON_ITEM = rf"(\*|(\d+|{_NAMES})(-(\d+|{_NAMES}))?)(/\d+)?"
_CRON_FIELD = rf"{_CRON_ITEM}(,{_CRON_ITEM})*"
_CRON = re.compile(rf"((?:CRON_)?TZ=(?P<zone>\S+) )?{_CRON_FIELD}( {_CRON_FIELD}){{4}}")


def check(config: RunConfig) -> None:
    """Refuses a run that Vertex AI can't run.

    Raises:
        ConfigError: listing everything that is wrong, a sentence each.
    """
    faults = [
        *_missing(config),
        *_unknown(config),
        *_unknown_regions(config),
        *_unreachable(config),
        *_too_long(config),
    ]
    if config.machine.row.device == "gpu":
        faults.append(
            f"machine.name is {config.machine.name!r}; on Vertex AI training runs on a TPU, or on a CPU to rehearse."
        )
    if config.machine.tpu != "local":
        faults.append(f"machine.tpu is {config.machine.tpu!r}; on Vertex AI the TPU is attached: leave it local.")
    if faults:
        raise ConfigError("\n".join(faults))


def _missing(config: RunConfig) -> list[str]:
    advice = {"project": "the Google Cloud project", "pipeline_root": "a gs:// folder for the runs' artifacts"}
    return [
        f"vertex.{name} is empty; set it to {what}."
        for name, what in advice.items()
        if not getattr(config.vertex, name)
    ]


def _unknown(config: RunConfig) -> list[str]:
    """Returns names that only the paid machine would find out to be none."""
    faults, builder, source = [], config.model.builder, config.data.source
    if ":" not in builder and builder not in BUILDERS:
        faults.append(
            f"model.builder is {builder!r}, expected {', '.join(BUILDERS)} or my_package.my_module:build."
            f"{did_you_mean(builder, BUILDERS)}"
        )
    if source in ("gs://", "tfds://") or (source.startswith("sample://") and source not in SAMPLES):
        faults.append(
            f"data.source is {source!r}, expected a name after it; the samples are {', '.join(SAMPLES)}."
            f"{did_you_mean(source, SAMPLES)}"
        )
    if config.vertex.experiment == config.name:
        faults.append(f"vertex.experiment is {config.name!r}, the pipeline's own name; give another.")
    return faults


def _unknown_regions(config: RunConfig) -> list[str]:
    return [
        f"vertex.regions has {region!r}, expected one of {', '.join(REGIONS)}.{did_you_mean(region, REGIONS)}"
        for region in config.vertex.regions
        if region not in REGIONS
    ]


def _unreachable(config: RunConfig) -> list[str]:
    """Returns what names a folder of this machine, where a worker on Vertex AI can't read it."""
    rows: list[tuple[str, str, tuple[str, ...]]] = [
        ("data.source", config.data.source, ("gs://", "tfds://", "sample://")),
        ("data.tfds_data_dir", config.data.tfds_data_dir, ("gs://",)),
        ("model.pretrained", config.model.pretrained, ("gs://", "sample://")),
        ("training.checkpoint_dir", config.training.checkpoint_dir, ("gs://",)),
    ]
    return [
        f"{setting} is {value!r}, which a worker on Vertex AI can't reach; copy it to a bucket and give its gs:// URI."
        for setting, value, schemes in rows
        if value and not value.startswith(schemes) and not (setting == "model.pretrained" and _is_hub_name(value))
    ]


def _is_hub_name(name: str) -> bool:
    return not name.startswith((".", "/", "~")) and not os.path.exists(name)  # noqa: PTH110 - Path raises if it is long


def _too_long(config: RunConfig) -> list[str]:
    values = parameters(config)
    quoted = json.dumps(json.dumps(values))
    if len(quoted.encode("utf-8")) <= ARGUMENT_BYTES - RESERVED_BYTES:
        return []
    longest = max(values, key=lambda name: len(json.dumps(values[name])))
    return [
        f"The run's settings are {len(quoted):,} bytes as JSON, most of them in {longest}; a step takes at most "
        f"{ARGUMENT_BYTES - RESERVED_BYTES:,}, as they are one argument of its command: put them in a file of a bucket."
    ]


def check_parameters(spec: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Refuses parameters that a compiled pipeline does not take, or not of that type.

    The SDK drops a missing one silently and takes 3.5 or true for a whole number.

    Args:
        spec: The pipeline spec.
        values: Parameters by name.

    Raises:
        ConfigError: listing all of them, a sentence each.
    """
    known = spec["root"].get("inputDefinitions", {}).get("parameters", {})
    faults = [
        f"The pipeline has no parameter {name!r}.{did_you_mean(name, known)}" for name in values if name not in known
    ]
    for name, definition in known.items():
        kind = definition["parameterType"]
        value = values.get(name)
        if value is None:
            if name in values or not (definition.get("isOptional") or "defaultValue" in definition):
                faults.append(f"The pipeline's parameter {name!r} has no value, expected {_KINDS[kind]}.")
        elif not _is_a(kind, value):
            faults.append(f"The pipeline's parameter {name!r} is {value!r}, expected {_KINDS[kind]}.")
    if faults:
        raise ConfigError("\n".join(faults))


_KINDS = {
    "STRING": "a text",
    "NUMBER_INTEGER": "a whole number",
    "NUMBER_DOUBLE": "a number",
    "BOOLEAN": "true or false",
    "LIST": "a list",
    "STRUCT": "values by name",
}


def _is_a(kind: str, value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match kind:
        case "STRING":
            return isinstance(value, str)
        case "NUMBER_INTEGER":
            return is_number and float(value).is_integer()
        case "NUMBER_DOUBLE":
            return is_number and value == value and abs(value) != float("inf")
        case "BOOLEAN":
            return isinstance(value, bool)
        case "LIST":
            return isinstance(value, list)
        case _:
            return isinstance(value, dict)


def display_name(name: str) -> str:
    """Returns the name under which the console shows a run, as it was given.

    Raises:
        ConfigError: if it is blank or too long.
    """
    if not name.strip() or len(name) > DISPLAY_NAME_LENGTH or not name.isprintable():
        raise ConfigError(
            f"The run's display name has {len(name.strip())} characters, expected 1 to {DISPLAY_NAME_LENGTH} that "
            "can be printed; give another --display-name."
        )
    return name


def new_job_id(name: str) -> str:
    """Returns an id for a new run: its name, the UTC time, and four digits that keep two runs of a second apart."""
    return f"{name}-{time.strftime('%Y%m%d%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"


def job_id(wish: str) -> str:
    """Returns the id nearest to a wish that Vertex AI takes: lower-case letters, digits and dashes, a letter first.

    Raises:
        ConfigError: if nothing of the wish is left, or it is too long.
    """
    fit = slug(wish)
    if not 1 <= len(fit) <= JOB_ID_LENGTH:
        raise ConfigError(f"--job-id is {wish!r}, expected 1 to {JOB_ID_LENGTH} lower-case letters, digits and dashes.")
    return fit


def check_schedule(config: RunConfig, cron: str) -> None:
    """Refuses a run that can't be scheduled.

    Args:
        config: The run.
        cron: When.

    Raises:
        ConfigError: if the run has an experiment, or `cron` is no cron expression.
    """
    check_cron(cron)
    if config.vertex.experiment:
        raise ConfigError("vertex.experiment can't go with a schedule; leave it out: --set vertex.experiment=")


def check_cron(cron: str) -> None:
    """Refuses what is no cron expression.

    Raises:
        ConfigError: saying what one is.
    """
    match = _CRON.fullmatch(cron)
    if not match:
        raise ConfigError(
            f"--cron is {cron!r}, expected minute, hour, day of month, month and day of week, such as '0 3 * * 1', "
            "with 'TZ=Europe/Berlin ' in front for a time that isn't UTC."
        )
    for (what, least, most), text in zip(_CRON_FIELDS, cron.split()[-5:], strict=True):
        numbers = [int(number) for number in re.findall(r"\d+", text.partition("/")[0])]
        if any(not least <= number <= most for number in numbers) or text.endswith("/0"):
            raise ConfigError(f"--cron has {text!r} for the {what}, expected {least} to {most}, *, or */N.")
    if (zone := match["zone"]) and zone not in zoneinfo.available_timezones():
        near = did_you_mean(zone, zoneinfo.available_timezones())
        raise ConfigError(f"--cron names the time zone {zone!r}, which there isn't.{near}")
