"""Finds out whether a model of a name is registered, and says how Vertex AI is to serve the next one."""

import re
from typing import Any

from components.cloud import explained
from components.errors import ConfigError, first_line
from components.step import log

# Where the serving container answers. Vertex AI tells it so as AIP_PREDICT_ROUTE, AIP_HEALTH_ROUTE and AIP_HTTP_PORT.
PREDICT_ROUTE = "/predict"
HEALTH_ROUTE = "/health"
HTTP_PORT = 8080
# The registry's own limit.
LONGEST_NAME = 128
# A filter, and the upload operator's JSON, put the name between quotes and escape nothing.
_UNSAFE = re.compile(r'["\\\x00-\x1f\x7f]')


def container_spec(image: str) -> dict[str, Any]:
    """Returns how Vertex AI runs the serving container, in the registry's own terms.

    Args:
        image: The container's image.

    Raises:
        ConfigError: if there is none.
    """
    if not image.strip():
        raise ConfigError("The serving image is empty, expected the image that serves a registered model, by digest.")
    return {
        "imageUri": image,
        "predictRoute": PREDICT_ROUTE,
        "healthRoute": HEALTH_ROUTE,
        "ports": [{"containerPort": HTTP_PORT}],
    }


def find_parent(name: str, *, project: str, location: str) -> str:
    """Returns the resource name of the registered model of a name, without a version; empty if there is none.

    Args:
        name: The model's name, as people see it in the registry.
        project: Google Cloud project of the registry.
        location: Region of the registry.

    Raises:
        ConfigError: if the name can't be looked for, or project or region is impossible.
        TpuPipelinesError: if the registry refuses to answer, or can't.
    """
    _check_name(name)
    for value, setting in ((project, "vertex.project"), (location, "vertex.regions")):
        if not value:  # the SDK would take what it finds on this machine
            raise ConfigError(f"{setting} is empty, so there is no model registry to ask; set it.")
    from google.cloud import aiplatform

    what = f"The model registry of project {project!r} in {location!r}"
    with explained(what):
        try:
            aiplatform.init(project=project, location=location, api_transport="rest")
        except ValueError as error:  # the SDK's own check of the region
            raise ConfigError(f"{what}: {first_line(error)[:200]}; check vertex.regions.") from error
        listed = aiplatform.Model.list(filter=f'display_name="{name}"')
    # The newest first; the SDK's filter is not relied upon to tell upper from lower case.
    same = sorted((model for model in listed if model.display_name == name), key=lambda m: m.create_time, reverse=True)
    names = [model.resource_name.partition("@")[0] for model in same]
    if len(names) > 1:
        log.warning(
            f"{len(names)} models are registered as {name!r}: {', '.join(names)}; the newest, {names[0]}, gets the "
            "version. Rename or delete the others."
        )
    log.info(f"{name!r} becomes a new version of {names[0]}" if names else f"{name!r} is new to the registry")
    return names[0] if names else ""


def vertex_uri(resource_name: str, location: str) -> str:
    """Returns the address that stands for a resource, as artifacts of Google's operators give it."""
    return f"https://{location}-aiplatform.googleapis.com/v1/{resource_name}"


def _check_name(name: str) -> None:
    if not name.strip() or len(name) > LONGEST_NAME or _UNSAFE.search(name):
        raise ConfigError(
            f"release.model_name is {name!r}, expected 1 to {LONGEST_NAME} characters without quotes, backslashes and "
            "line ends: the registry can't be asked for another."
        )
