"""Compiled pipelines as templates in Artifact Registry, from which runs are started by address."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import requests
from google.api_core import exceptions
from google.auth.exceptions import DefaultCredentialsError
from kfp.registry import RegistryClient

from components.cloud import ServiceError, explained
from components.errors import ConfigError
from pipelines.vertex import compiled

_REPOSITORY = re.compile(r"https://[a-z0-9-]+-kfp\.pkg\.dev/[a-z][a-z0-9.:-]*/[a-z][a-z0-9-]*")
_TAG = re.compile(r"[A-Za-z0-9][\w.~-]{0,127}", re.ASCII)
_VERSION = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Template:
    """A pipeline in a registry.

    Attributes:
        repository: The registry's address.
        package: The pipeline's name.
        version: The digest of its content, `sha256:...`.
        tags: Other names of the version.
    """

    repository: str
    package: str
    version: str
    tags: tuple[str, ...] = ()

    @property
    def addresses(self) -> list[str]:
        """What `PipelineJob(template_path=...)` takes: by digest, then by each tag."""
        return [f"{self.repository}/{self.package}/{name}" for name in (self.version, *self.tags)]


def upload(pipeline: Path, repository: str, tags: Sequence[str] = ()) -> Template:
    """Puts a compiled pipeline into a registry, as a new version of the package of its name.

    Args:
        pipeline: The YAML.
        repository: A repository of the format Kubeflow Pipelines, `https://LOCATION-kfp.pkg.dev/PROJECT/REPOSITORY`.
        tags: Names that then mean this version; one that another version has moves to this one.

    Returns:
        The template, as it is named there.

    Raises:
        ConfigError: if the file is no pipeline, or the repository or a tag is none.
        AccessError: if the account may not.
        ServiceError: if there is no answer, or it is no registry's.
    """
    repository = repository.rstrip("/")
    if not _REPOSITORY.fullmatch(repository):
        raise ConfigError(
            f"{repository!r} is no repository of pipelines; expected https://LOCATION-kfp.pkg.dev/PROJECT/REPOSITORY."
        )
    for tag in tags:
        if not _TAG.fullmatch(tag):
            raise ConfigError(
                f"The tag {tag!r} is impossible; expected letters, digits and . _ ~ -, beginning with one of the first "
                "two, such as v1."
            )
    _, spec = compiled.read(pipeline)
    name = spec["pipelineInfo"]["name"]
    with explained(f"Upload of {name} to {repository}"):
        try:
            client = RegistryClient(host=repository)  # reads the credentials
        except AttributeError as error:  # what google.auth makes of a file of JSON that holds no object
            raise DefaultCredentialsError("the file of credentials holds none") from error
        try:
            package, version = client.upload_pipeline(str(pipeline), tags=list(tags))
        except requests.HTTPError as error:
            raise _as_googles(error.response) from error
        except ValueError as error:  # not of two parts
            raise _no_registry(repository) from error
    if not _VERSION.fullmatch(version):
        raise _no_registry(repository)
    return Template(repository, package, version, tuple(tags))


def _as_googles(response: requests.Response) -> exceptions.GoogleAPICallError:
    try:
        return exceptions.from_http_response(response)
    except AttributeError:  # JSON of another kind than Google's
        return exceptions.from_http_status(response.status_code, response.text)


def _no_registry(repository: str) -> ServiceError:
    return ServiceError(f"{repository} did not answer as a registry of pipelines does; check the network's proxies.")
