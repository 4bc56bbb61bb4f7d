"""Compiled pipelines, as files."""

from pathlib import Path
from typing import Any

import yaml
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

from components.errors import ConfigError

# What a file that is no pipeline, or none of ours, does to those who look into it.
ODD = (ValueError, LookupError, TypeError, AttributeError, RecursionError, yaml.YAMLError, json_format.Error)


def read(path: Path) -> tuple[str, dict[str, Any]]:
    """Returns a compiled pipeline's text and spec, which KFP's own types take.

    Raises:
        ConfigError: if the file can't be read, or is no pipeline.
    """
    try:
        text = path.read_text(encoding="utf-8")
        spec = yaml.safe_load(text)
        parsed = json_format.ParseDict(spec, pipeline_spec_pb2.PipelineSpec())
    except OSError as error:
        raise ConfigError(f"{path} can't be read ({error.strerror}); give a pipeline made with compile -o.") from error
    except ODD as error:
        raise refusal(path) from error
    named = "pipelineInfo" in spec and parsed.pipeline_info.name
    if not named or not parsed.root.WhichOneof("implementation"):
        raise refusal(path)
    return text, spec


def refusal(path: Path) -> ConfigError:
    """Returns the error of a file that is no pipeline of ours."""
    return ConfigError(f"{path} is no compiled pipeline; make it with `tpu-pipelines compile -o`.")
