"""Google Cloud's words: runs by name and link, and its clients' errors as one sentence."""

import pytest
import requests
from google.api_core import exceptions
from google.auth.exceptions import DefaultCredentialsError, TransportError
from google.protobuf.json_format import ParseError

from components.cloud import AccessError, Run, ServiceError, explained, find_run
from components.errors import ConfigError

RUN = Run("12345", "us-central1", "digits-1")


def test_a_run_is_found_by_its_name_and_its_link():
    assert RUN.name == "projects/12345/locations/us-central1/pipelineJobs/digits-1"
    assert RUN.link == (
        "https://console.cloud.google.com/vertex-ai/locations/us-central1/pipelines/runs/digits-1?project=12345"
    )
    for text in (RUN.name, RUN.link, f"https://example.com/v1/{RUN.name}?x=y", f"see {RUN.link}&tab=1#top"):
        assert find_run(text) == RUN


@pytest.mark.parametrize("text", ["", "digits-1", "projects/p/locations/r/schedules/1", "projects//locations/r"])
def test_what_names_no_run(text):
    assert find_run(text) is None


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (
            exceptions.NotFound("GET https://x.example/v1: No such bucket."),
            ConfigError,
            "X: not found (404 No such bucket)",
        ),
        (exceptions.BadRequest("Bad label"), ConfigError, "X: refused (400 Bad label); change that, and try again."),
        (exceptions.AlreadyExists("There"), ConfigError, "X: refused (409 There)"),
        (
            exceptions.Forbidden("No"),
            AccessError,
            "X: not allowed (403 No); give the account the roles in docs/vertex.md",
        ),
        (exceptions.Unauthenticated("Who"), AccessError, "X: not allowed (401 Who)"),
        (DefaultCredentialsError("none"), AccessError, "X: no credentials that work (none); run `gcloud auth"),
        (exceptions.ServiceUnavailable("Busy"), ServiceError, "X: it failed there (503 Busy); check the network"),
        (exceptions.RetryError("Deadline", cause=None), ServiceError, "X: it failed there (Deadline"),
        (
            exceptions.TooManyRequests("Quota of jobs"),
            ServiceError,
            "X: too much at once (429 Quota of jobs)",
        ),
        (TransportError("reset"), ServiceError, "X: it failed there"),
        (ParseError("<html>"), ServiceError, "X: the answer is none of Google's"),
        (IsADirectoryError("key.json"), AccessError, "X: no credentials that work"),
        (requests.ConnectionError("a long story"), ServiceError, "X: it failed there (ConnectionError)"),
    ],
)
def test_an_error_is_one_sentence(error, kind, sentence):
    with pytest.raises(kind) as raised, explained("X"):
        raise error
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def test_whose_fault_it_is():
    assert (ServiceError.fault, AccessError.fault, ConfigError.fault) == ("ours", "user", "user")


def test_our_own_errors_pass():
    with pytest.raises(ConfigError, match=r"^ours$"), explained("X"):
        raise ConfigError("ours")
