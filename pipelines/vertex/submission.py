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
        pipeline: A pipeline compiled before; None to compile it now.

    Raises:
        ConfigError: listing what is wrong, a sentence each.
    """
    rules.check(config)
    text = _read(pipeline) if pipeline else compile_pipeline(config, images)
    values = parameters(config)
    rules.check_parameters(spec_of(text), values)
    return Submission(
        config=config,
        pipeline=text,
        parameters=values,
        job_id=rules.job_id(job_id) if job_id else rules.new_job_id(config.name),
        display_name=rules.display_name(display_name or config.name),
    )


def _read(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
        if "root" in spec_of(text):
            return text
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} can't be read as a compiled pipeline ({error}); make it with compile -o.") from error
    raise ConfigError(f"{path} is no compiled pipeline; make it with `tpu-pipelines compile -o`.")
