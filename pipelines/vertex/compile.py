"""Compiles a run's pipeline into the YAML that Vertex AI runs: the same bytes for the same run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from google.protobuf import json_format
from kfp.dsl.base_component import BaseComponent

from components.compare.component import compare
from components.errors import ConfigError
from components.evaluate.component import evaluate
from components.export.component import export
from components.fingerprint.component import fingerprint
from components.lower.component import lower
from components.notify.component import notify
from components.preflight.component import preflight
from components.prepare.component import prepare
from components.registration.component import registration
from components.train.component import train
from pipelines.config import RunConfig
from pipelines.images import Images
from pipelines.platform import in_image
from pipelines.training import training_pipeline
from pipelines.vertex.emails import with_emails
from pipelines.vertex.platform import VertexAI

COMPONENTS = (fingerprint, prepare, lower, preflight, train, evaluate, compare, export, registration, notify)


def compile_pipeline(config: RunConfig, images: Images) -> str:
    """Returns a run's pipeline as YAML, to be submitted to Vertex AI.

    Args:
        config: The run; its settings are the defaults of the pipeline's parameters.
        images: The images of the steps.
    """
    pipeline = training_pipeline(config, VertexAI(config, images))
    if config.vertex.notify_emails:
        pipeline = with_emails(pipeline, config.vertex.notify_emails)
    return _compile(pipeline)


def compile_components(images: Images) -> Iterator[tuple[str, str]]:
    """Yields each component's name and its own YAML, for use in other pipelines."""
    for component in COMPONENTS:
        image = images.tpu if component is train else images.cpu
        yield component.name, _compile(in_image(component, image))


def write_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all, its folder too.

    Raises:
        ConfigError: if it can't be written there.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path} is no file that can be written anew; give the name of a file.")
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise ConfigError(f"{path} can't be written ({error.strerror}); give another place.") from error


def _compile(component: BaseComponent) -> str:
    # KFP's own writer heads the file with comments that a line end in a default value breaks out of.
    spec = json_format.MessageToDict(component.pipeline_spec)
    for definitions in (spec["root"], *spec["components"].values()):
        for parameter in definitions.get("inputDefinitions", {}).get("parameters", {}).values():
            if "defaultValue" in parameter and parameter["parameterType"] != "NUMBER_DOUBLE":
                parameter["defaultValue"] = whole_numbers(parameter["defaultValue"])
    return yaml.safe_dump(spec, sort_keys=True, allow_unicode=True, width=120)


def whole_numbers(value: Any) -> Any:
    """Returns a value with 8 for each 8.0: KFP's protos know floats only, and `accelerator_count` is no float."""
    match value:
        case dict():
            return {key: whole_numbers(item) for key, item in value.items()}
        case list():
            return [whole_numbers(item) for item in value]
        case float() if value.is_integer():
            return int(value)
        case _:
            return value
