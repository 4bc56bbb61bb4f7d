import json
import logging

import pytest
from google.cloud.aiplatform import initializer
from google.cloud.aiplatform_v1.types import Model, ModelContainerSpec
from google_cloud_pipeline_components.container.v1.model.upload_model import remote_runner

from components.cloud import AccessError, ServiceError
from components.errors import ConfigError
from components.registration.registration import container_spec, find_parent, vertex_uri
from components.step import log


def find(name: str, project: str = "test-project", location: str = "us-central1") -> str:
    return find_parent(name, project=project, location=location)


@pytest.fixture
def logged(caplog, monkeypatch):
    monkeypatch.setattr(log, "propagate", True)
    caplog.set_level(logging.INFO, logger=log.name)
    return caplog


def test_a_name_that_is_not_registered(registry, logged):
    registry.add("1", "another", "2026-01-01T00:00:00Z")
    assert find("bbc news") == ""
    assert registry.filters == ['display_name="bbc news"']
    assert "'bbc news' is new to the registry" in logged.text


def test_a_registered_name(registry, logged):
    resource = registry.add("7", "bbc news", "2026-01-01T00:00:00Z", version="3")
    assert find("bbc news") == resource == "projects/123456/locations/us-central1/models/7"
    assert f"'bbc news' becomes a new version of {resource}" in logged.text
    assert not [record for record in logged.records if record.levelno >= logging.WARNING]


def test_of_several_the_newest_is_taken_and_all_are_named(registry, logged):
    resources = [
        registry.add(model, "digits", created)
        for model, created in (
            ("1", "2026-03-01T00:00:00Z"),
            ("2", "2026-03-03T00:00:00Z"),  # the newest, and on the first of two pages
            ("3", "2026-03-02T00:00:00Z"),
        )
    ]
    assert find("digits") == resources[1]
    (warning,) = [record.getMessage() for record in logged.records if record.levelno == logging.WARNING]
    assert warning.startswith("3 models are registered as 'digits': ")
    assert all(resource in warning for resource in resources)


def test_upper_and_lower_case_are_two_names(registry):
    registry.add("1", "Digits", "2026-03-01T00:00:00Z")
    assert find("digits") == ""


@pytest.mark.parametrize("name", ["modèle 1", "it's", "a & b = c?", "x" * 128])
def test_names_that_can_be_looked_for(registry, name):
    resource = registry.add("1", name, "2026-03-01T00:00:00Z")
    assert find(name) == resource


@pytest.mark.parametrize("name", ["", " ", 'a "b"', "a\\b", "a\nb", "a\x00", "x" * 129])
def test_names_that_can_not(name):
    with pytest.raises(ConfigError, match=r"release\.model_name is .*, expected 1 to 128 characters"):
        find(name)


@pytest.mark.parametrize(
    ("project", "location", "sentence"),
    [
        ("", "us-central1", r"vertex\.project is empty"),
        ("test-project", "", r"vertex\.regions is empty"),
        ("test-project", "mars-west1", r"'mars-west1': Unsupported region.*check vertex\.regions"),
    ],
)
def test_a_place_that_is_none(project, location, sentence):
    with pytest.raises(ConfigError, match=sentence):
        find("digits", project, location)


@pytest.mark.parametrize(
    ("code", "message", "kind", "sentence"),
    [
        (403, "Permission denied.", AccessError, r"not allowed \(403 Permission denied\); give the account the roles"),
        (401, "Expired.", AccessError, r"not allowed \(401 Expired\)"),
        (
            404,
            "No such project.",
            ConfigError,
            r"not found \(404 No such project\); check its name, project and region",
        ),
        (400, "Filter!", ConfigError, r"refused \(400 Filter!\); change that"),
        (501, "Not here.", ServiceError, r"it failed there \(501 Not here\); check the network"),
    ],
)
def test_a_registry_that_refuses_is_one_sentence(registry, code, message, kind, sentence):
    registry.refusal = (code, message)
    with pytest.raises(kind, match=r"The model registry of project 'test-project' in 'us-central1': ") as error:
        find("digits")
    assert error.match(sentence)
    assert "\n" not in str(error.value)


def test_no_credentials(tmp_path, monkeypatch):
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setattr(initializer.global_config, "_credentials", None)  # those of an earlier test
    with pytest.raises(AccessError, match=r"no credentials that work \(.*\); run `gcloud auth"):
        find("digits")


def test_no_network(registry, monkeypatch):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    with pytest.raises(ServiceError, match=r"it failed there \(\w+\); check the network"):
        find("digits")


@pytest.mark.parametrize("image", ["", "  "])
def test_an_image_is_needed(image):
    with pytest.raises(ConfigError, match="The serving image is empty"):
        container_spec(image)


def test_the_uploader_sends_what_the_registry_takes():
    """GCPC's own launcher makes the request from the artifact; the API's own types read it."""
    image = "europe-docker.pkg.dev/p/r/serving@sha256:0"
    artifact = {"uri": "gs://b/exported", "metadata": {"containerSpec": container_spec(image)}}
    given = {"inputs": {"artifacts": {"unmanaged_container_model": {"artifacts": [artifact]}}}}
    request = remote_runner.append_unmanaged_model_artifact_into_payload(json.dumps(given), {"display_name": "digits"})
    model = Model(Model.from_json(json.dumps(request)))
    assert model.artifact_uri == "gs://b/exported"
    assert model.container_spec == ModelContainerSpec(
        image_uri=image, predict_route="/predict", health_route="/health", ports=[{"container_port": 8080}]
    )


def test_the_address_of_a_resource():
    assert vertex_uri("projects/1/locations/us-east1/models/2", "us-east1") == (
        "https://us-east1-aiplatform.googleapis.com/v1/projects/1/locations/us-east1/models/2"
    )
