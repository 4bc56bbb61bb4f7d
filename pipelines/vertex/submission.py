"""A run that is ready to be sent to Vertex AI: checked and compiled. Google's SDK is not needed for it."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from components.errors import ConfigError
from pipelines.config import RunConfig, parameters
from pipelines.images import Images
from pipelines.vertex import compiled, rules
from pipelines.vertex.compile import compile_pipeline


@dataclass(frozen=True)
class Submission:
    """A run, whole and checked, ready to be sent.

    Attributes:
        config: Its settings.
        pipeline: The compiled pipeline, as YAML.
        images: The images in it.
        parameters: The pipeline's parameters by name.
        job_id: Its id, unique in project and region.
        display_name: The name that the console shows.
    """

    config: RunConfig
    pipeline: str
    images: Images
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
    values = parameters(config)
    if pipeline:
        text, given = compiled.read(pipeline)
        try:
            images = _images_of(given, images)
        except compiled.ODD as error:
            raise compiled.refusal(pipeline) from error
        own = yaml.safe_load(compile_pipeline(config, images))
        rules.check_parameters(given, values)
        if _without_defaults(given) != _without_defaults(own):
            raise ConfigError(
                f"{pipeline} was compiled with other settings of `machine` or `vertex`, or by another version, than "
                "this run's; compile it again, or leave --pipeline out."
            )
    else:
        text = compile_pipeline(config, images)
        rules.check_parameters(yaml.safe_load(text), values)
    return Submission(
        config=config,
        pipeline=text,
        images=images,
        parameters=values,
        job_id=rules.job_id(job_id) if job_id else rules.new_job_id(config.name),
        display_name=rules.display_name(display_name or config.name),
    )


def _without_defaults(spec: dict[str, Any]) -> dict[str, Any]:
    """Returns a pipeline's spec without what a run gives it anyway."""
    root, definitions = spec["root"], spec["root"].get("inputDefinitions", {})
    known = {name: value | {"defaultValue": None} for name, value in definitions.get("parameters", {}).items()}
    return spec | {"root": root | {"inputDefinitions": definitions | {"parameters": known}}}


def _images_of(spec: dict[str, Any], unnamed: Images) -> Images:
    """Returns the images that a compiled pipeline names; those of `unnamed` where it names none."""
    executors, parts = spec["deploymentSpec"]["executors"], spec["components"]
    cpu = executors.get("exec-prepare", {}).get("container", {}).get("image", unnamed.cpu)
    train = parts.get("comp-train", {}).get("inputDefinitions", {}).get("parameters", {})
    pools = train.get("worker_pool_specs", {}).get("defaultValue", [])
    tpu = pools[0]["container_spec"]["image_uri"] if pools else unnamed.tpu
    tasks = [part.get("dag", {}).get("tasks", {}).get("registration") for part in parts.values()]
    serving = [task["inputs"]["parameters"]["serving_image"]["runtimeValue"]["constant"] for task in tasks if task]
    return Images(cpu, tpu, serving[0] if serving else unnamed.serving)
