"""A run that is ready to be sent to Vertex AI: checked and compiled. Google's SDK is not needed for it."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from components.errors import ConfigError
from pipelines.compile import compile_pipeline, spec_of
from pipelines.config import RunConfig, parameters
from pipelines.images import Images
from pipelines.vertex import rules


@dataclass(frozen=True)
class Submission:
    """A run, whole and checked, ready to be sent.

    Attributes:
        config: Its settings.
        pipeline: The compiled pipeline, as YAML.
        parameters: The pipeline's parameters by name.
        job_id: Its id, unique in project and region.
        display_name: The name that the console shows.
    """

    config: RunConfig
    pipeline: str
    parameters: dict[str, Any]
    job_id: str
    display_name: str

    def with_parameters(self, **values: Any) -> "Submission":
        """Returns the same run with other values of some parameters."""
        return replace(self, parameters=self.parameters | values)


def make(
    config: RunConfig,
    images: Images,
    *,
    display_name: str = "",
    job_id: str = "",
    pipeline: Path | None = None,
) -> Submission:
    """Returns a run ready to be sent, everything checked that can be checked on this machine.

    Args:
        config: The run.
        images: Of its steps.
        display_name: The name that the console shows; empty for the run's name.
        job_id: The id that is wished for; empty for a new one. A wish is made to fit Vertex AI's rules.
        pipeline: A pipeline compiled before, whose images stay its own; None to compile it now.

    Raises:
        ConfigError: listing what is wrong, a sentence each.
    """
    rules.check(config)
    text, values = compile_pipeline(config, images), parameters(config)
    if pipeline:
        compiled, text = spec_of(text), _read(pipeline)
        rules.check_parameters(spec_of(text), values)
        _check_fixed(pipeline, spec_of(text), compiled)
    return Submission(
        config=config,
        pipeline=text,
        parameters=values,
        job_id=rules.job_id(job_id) if job_id else rules.new_job_id(config.name),
        display_name=rules.display_name(display_name or config.name),
    )


def _check_fixed(path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Refuses a pipeline whose training job was compiled otherwise than the run's settings have it."""
    different = [name for name, value in _job_of(wanted).items() if _job_of(found).get(name) != value]
    if different:
        raise ConfigError(
            f"{path} was compiled with other settings of `machine` or `vertex` than the run has (its training job "
            f"differs in {', '.join(different)}); compile it again, or leave --pipeline out."
        )


def _job_of(spec: dict[str, Any]) -> dict[str, Any]:
    """Returns what is fixed of a pipeline's training job, by the names of GCPC, its image left out."""
    definitions = spec["components"].get("comp-train", {}).get("inputDefinitions", {}).get("parameters", {})
    fixed = {name: definition.get("defaultValue") for name, definition in definitions.items()}
    for pool in fixed.pop("worker_pool_specs", []):
        fixed |= {name: value for name, value in pool.items() if name != "container_spec"}
        fixed["env"] = pool["container_spec"]["env"]
    return fixed


def _read(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
        if "root" in spec_of(text):
            return text
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} can't be read as a compiled pipeline ({error}); make it with compile -o.") from error
    raise ConfigError(f"{path} is no compiled pipeline; make it with `tpu-pipelines compile -o`.")
