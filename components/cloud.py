"""Google Cloud's words: names of runs, links to them, and errors of its clients as one sentence."""

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from components.errors import ConfigError, TpuPipelinesError, first_line


class AccessError(TpuPipelinesError):
    """Google Cloud does not let this account do what was asked, or does not know it."""


class ServiceError(TpuPipelinesError):
    """Google Cloud gave no answer."""

    fault = "ours"


@dataclass(frozen=True)
class Run:
    """A pipeline's run on Vertex AI.

    Attributes:
        project: The project's id or number.
        region: Where it runs.
        id: Its id.
    """

    project: str
    region: str
    id: str

    @property
    def name(self) -> str:
        """Its resource name."""
        return f"projects/{self.project}/locations/{self.region}/pipelineJobs/{self.id}"

    @property
    def link(self) -> str:
        """Its page in the console."""
        return (
            f"https://console.cloud.google.com/vertex-ai/locations/{self.region}/pipelines/runs/{self.id}"
            f"?project={self.project}"
        )


_PROJECT, _REGION, _ID = r"(?P<project>[-a-z0-9.:]+)", r"(?P<region>[-a-z0-9]+)", r"(?P<id>[-a-z0-9]+)"
_NAME = re.compile(rf"projects/{_PROJECT}/locations/{_REGION}/pipelineJobs/{_ID}\b")
_LINK = re.compile(rf"locations/{_REGION}/pipelines/runs/{_ID}\?project={_PROJECT}")


def find_run(text: str) -> Run | None:
    """Returns the run that a text names by its resource name or its link; None where it names none."""
    match = _NAME.search(text) or _LINK.search(text)
    return Run(match["project"], match["region"], match["id"]) if match else None


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Turns an error of Google's clients into one sentence that says what was tried, what was said, and what to do.

    Args:
        what: What is asked of Google Cloud, to stand in front.

    Raises:
        ConfigError: if what was asked for is not there or refused: the user's to mend.
        AccessError: if the account may not ask, or there are no credentials.
        ServiceError: if the service or the network failed.
    """
    import requests
    from google.api_core import exceptions
    from google.auth.exceptions import GoogleAuthError, TransportError
    from google.protobuf.json_format import ParseError

    try:
        yield
    except exceptions.NotFound as error:
        raise ConfigError(f"{what}: not found ({_said(error)}); check its name, project and region.") from error
    except (exceptions.BadRequest, exceptions.Conflict) as error:
        raise ConfigError(f"{what}: refused ({_said(error)}); change that, and try again.") from error
    except (exceptions.Forbidden, exceptions.Unauthorized) as error:
        raise AccessError(
            f"{what}: not allowed ({_said(error)}); give the account the roles in docs/vertex.md, and enable the API."
        ) from error
    except exceptions.TooManyRequests as error:
        raise ServiceError(f"{what}: too much at once ({_said(error)}); try again later, or ask for quota.") from error
    except (TransportError, exceptions.GoogleAPIError, requests.RequestException) as error:
        raise ServiceError(
            f"{what}: it failed there ({_said(error)}); check the network, and try again later."
        ) from error
    except (ParseError, json.JSONDecodeError) as error:
        raise ServiceError(f"{what}: the answer is none of Google's; check the network and its proxies.") from error
    except (GoogleAuthError, OSError) as error:  # the second: a file of credentials that is none
        raise AccessError(
            f"{what}: no credentials that work ({first_line(error)}); run `gcloud auth application-default login`, or "
            "set GOOGLE_APPLICATION_CREDENTIALS to the file of a service account's key."
        ) from error


def _said(error: Exception) -> str:
    """Returns the service's own words, without the address that clients put among them."""
    if not hasattr(error, "message"):  # the network's fault, which requests tells at length
        return type(error).__name__
    return re.sub(r"[A-Z]+ https?://\S+: ", "", first_line(error)).rstrip(".")
