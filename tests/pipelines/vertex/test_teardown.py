"""`teardown` through the real SDK: it ends what a config's runs have left, in every region, and nothing else."""

import json
import os
import pty
import re
import select
import sys
import urllib.request
from types import SimpleNamespace
from unittest import mock

import pytest
import yaml
from google.cloud.aiplatform_v1 import PipelineState
from google_cloud_pipeline_components.types import artifact_types
from kfp import compiler, dsl
from rich.console import Console

from pipelines.config import Vertex, load
from pipelines.vertex.registration import register
from pipelines.vertex.teardown import teardown as end
from tests.pipelines.vertex.conftest import ROOT

pytestmark = pytest.mark.slow

REGIONS = "vertex.regions=[us-central1, us-east1]"
OPTIONS = ("--timeout", "30", "--poll", "0.2")


def teardown(cloud, *overrides, options=()):
    return cloud.submit(
        REGIONS,
        *overrides,
        command="teardown",
        how=lambda command, config, _, __, *words: cloud.call(command, config, *words, *OPTIONS, *options),
    )


def ask(cloud, method, path, body=None):
    """Asks the service itself, as somebody else in the project would."""
    request = urllib.request.Request(
        f"{cloud.service.url}/v1/projects/test-project/locations/{path}",
        json.dumps(body).encode() if body is not None else None,
        {"Content-Type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def names(cloud, path, field):
    return {item["name"] for item in ask(cloud, "GET", path).get(field, [])}


def states(cloud, region="us-central1"):
    found = ask(cloud, "GET", f"{region}/pipelineJobs")["pipelineJobs"]
    return {job["name"].rpartition("/")[2]: job["state"].removeprefix("PIPELINE_STATE_") for job in found}


def train(cloud, region, display_name):
    pool = {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": "1",
        "containerSpec": {"imageUri": "registry.example/x", "command": ["sleep", "120"]},
    }
    body = {"displayName": display_name, "jobSpec": {"workerPoolSpecs": [pool]}}
    return ask(cloud, "POST", f"{region}/customJobs", body)["name"]


def changes(cloud):
    """Returns what was asked of the service, but for looks and tokens."""
    return [
        f"{request.method} {request.path}"
        for request in cloud.service.requests
        if request.method != "GET" and request.path != "/token"
    ]


def test_runs_trainings_and_schedules_are_listed_and_then_ended_in_all_regions(cloud_with):
    cloud = cloud_with()
    assert cloud.submit(options=["--job-id", "first"]).returncode == 0
    assert cloud.submit("vertex.regions=[us-east1]", options=["--job-id", "second"]).returncode == 0
    assert cloud.submit("name=other", options=["--job-id", "others"]).returncode == 0
    assert cloud.submit("vertex.pipeline_root=gs://bucket/elsewhere", options=["--job-id", "far"]).returncode == 0
    for overrides in ((), ("name=other",)):
        made = cloud.submit(*overrides, command="schedule", options=["--cron", "0 3 * * 1"])
        assert made.returncode == 0, made.stderr
    mine, others = train(cloud, "us-east1", "second-train"), train(cloud, "us-central1", "someone-train")
    before = states(cloud)
    assert before == dict.fromkeys(("first", "others", "far"), "RUNNING")

    cloud.service.requests.clear()
    listed = teardown(cloud)
    assert listed.returncode == 0, listed.stdout + listed.stderr
    assert changes(cloud) == []
    ours, _, left = listed.stdout.partition("Left alone:")
    assert "pipelineJobs/first (mnist-sample): cancel" in ours
    assert "pipelineJobs/second (mnist-sample): cancel" in ours
    assert f"{mine} (second-train): cancel" in ours
    assert len(re.findall(r"schedules/\d+ \(mnist-sample\): delete", ours)) == 1
    assert "pipelineJobs/others (other): its pipeline is other" in left
    assert "pipelineJobs/far (mnist-sample): its artifacts are in gs://bucket/elsewhere" in left
    assert f"{others} (someone-train): no run of these settings started it" in left
    assert "Nothing was touched" in left

    ended = teardown(cloud, options=["--yes"])
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Nothing of these runs is left on Vertex AI that is billed." in ended.stdout
    assert states(cloud) == {"first": "CANCELLED", "others": "RUNNING", "far": "RUNNING"}
    assert states(cloud, "us-east1") == {"second": "CANCELLED"}
    jobs = {job.message.name: job.state for job in cloud.service.jobs}
    assert jobs == {mine: "JOB_STATE_CANCELLED", others: "JOB_STATE_RUNNING"}
    (schedule,) = ask(cloud, "GET", "us-central1/schedules")["schedules"]
    assert schedule["displayName"] == "other"

    cloud.service.requests.clear()
    again = teardown(cloud, options=["--yes"])
    assert again.returncode == 0
    assert changes(cloud) == []


def test_what_cannot_be_ended_is_reported_with_status_1(cloud_with):
    cloud = cloud_with()
    assert cloud.submit(options=["--job-id", "stuck"]).returncode == 0
    stuck = cloud.service.pipeline_jobs.store.get("projects/123456789012/locations/us-central1/pipelineJobs/stuck")
    stuck.state = PipelineState.PIPELINE_STATE_CANCELLING
    step = train(cloud, "us-central1", "caip_pipelines_1")  # as Vertex AI runs each step: in a job of its own
    stuck.job_detail.task_details.add().executor_detail.container_detail.main_job = step
    cloud.service.requests.clear()
    result = teardown(cloud, options=["--yes", "--timeout", "0.5"])
    assert result.returncode == 1, result.stdout + result.stderr
    _, _, still = result.stdout.partition("Still there, and maybe billed:")
    assert "pipelineJobs/stuck (mnist-sample): is being cancelled" in still
    assert f"step           {step} (caip_pipelines_1): ends with its run" in still
    assert changes(cloud) == []


def at_a_terminal(cloud, typed):
    """Runs `teardown` where somebody sits and types; returns whether all is well, and what was shown."""
    ours, theirs = pty.openpty()
    os.write(ours, typed.encode())
    settings = ["vertex.project=test-project", "vertex.pipeline_root=gs://bucket/runs"]
    config = load(ROOT / "configs" / "mnist_sample.yaml", settings)
    with (
        os.fdopen(theirs, "w") as screen,
        os.fdopen(os.dup(theirs)) as keyboard,
        mock.patch.object(sys, "stdin", keyboard),
        mock.patch.dict(os.environ, cloud.network.environment),
    ):
        console = Console(file=screen, highlight=False, width=200)
        well = end(config, console, yes=False, models=False, timeout=30, poll=0.2)
        screen.flush()
        shown = b""
        while select.select([ours], [], [], 0.5)[0]:  # a terminal hands out what was written in pieces
            shown += os.read(ours, 100_000)
    os.close(ours)
    return well, shown.decode()


def test_a_person_is_asked_before_anything_is_ended(cloud_with):
    cloud = cloud_with()
    assert cloud.submit(options=["--job-id", "first"]).returncode == 0
    cloud.service.requests.clear()
    for typed in ("n\n", "\n", "\x04"):  # the last is the end of what is typed: Ctrl+D
        well, shown = at_a_terminal(cloud, typed)
        assert not well
        assert "Remove these? [y/N]" in shown
        assert "Nothing was touched" in shown
    assert changes(cloud) == []
    well, shown = at_a_terminal(cloud, "y\n")
    assert well
    assert "Nothing of these runs is left on Vertex AI that is billed." in shown
    assert states(cloud) == {"first": "CANCELLED"}
    well, shown = at_a_terminal(cloud, "")
    assert well
    assert "Remove these?" not in shown, "there is nothing left to ask for"


def test_settings_that_name_no_place_are_refused_before_anything_is_asked(cloud_with):
    cloud = cloud_with()
    result = teardown(cloud, "vertex.project=", options=["--yes"])
    assert result.returncode == 2
    assert "vertex.project is empty" in result.stderr
    assert cloud.service.requests == []


def test_a_project_that_is_not_ours_is_one_sentence(cloud_with):
    result = teardown(cloud_with(), "vertex.project=someone-elses", options=["--yes"])
    assert result.returncode == 2, result.stdout + result.stderr
    assert "What is in us-central1: not allowed (403 Permission denied on project 'someone-elses')" in result.stderr
    assert "Traceback" not in result.stderr


@dsl.pipeline(name="mnist-sample")
def release(decision: str, parent: str = ""):
    """What every run does in the end, with a model and an evaluation that are there already."""

    def known(uri, kind, **metadata):
        return dsl.importer(artifact_uri=uri, artifact_class=kind, metadata=metadata).output

    serving = {"imageUri": "registry.example/serving"}
    outputs = {
        "candidate": known("gs://bucket/model", artifact_types.UnmanagedContainerModel, containerSpec=serving),
        "parent": known("https://example/model", artifact_types.VertexModel, resourceName=parent),
        "evaluation": known("gs://bucket/evaluation", artifact_types.ClassificationMetrics),
        "Output": decision,
    }
    register(SimpleNamespace(outputs=outputs), "mnist-sample", Vertex(deploy=True))


def run_release(cloud, job_id, **parameters):
    """Runs the end of a run: Google's operators register a version, and deploy it to an endpoint of its own."""
    path = cloud.folder / "release.yaml"
    compiler.Compiler().compile(release, str(path))
    evaluation = cloud.service.mount / "bucket" / "evaluation"
    evaluation.parent.mkdir(exist_ok=True)
    metrics = {"singleOutputSlicingSpec": {}, "metrics": {"classification": {"auPrc": 0.9}}}
    evaluation.write_text(json.dumps({"slicedMetrics": [metrics]}))
    body = {
        "pipelineSpec": yaml.safe_load(path.read_text()),
        "runtimeConfig": {"gcsOutputDirectory": "gs://bucket/runs", "parameterValues": parameters},
    }
    ask(cloud, "POST", f"us-central1/pipelineJobs?pipelineJobId={job_id}", body)
    job = cloud.service.wait(job_id)
    assert job.state == PipelineState.PIPELINE_STATE_SUCCEEDED, job.error


def endpoints(cloud):
    return names(cloud, "us-central1/endpoints", "endpoints")


def models(cloud):
    return names(cloud, "us-central1/models", "models")


def deployed(cloud, endpoint):
    """Returns the versions that an endpoint serves."""
    found = ask(cloud, "GET", endpoint.partition("/locations/")[2]).get("deployedModels", [])
    return [f"{item['model']}@{item['modelVersionId']}" for item in found]


def upload(cloud, **body):
    """Uploads a model, or a version of one, that no run has made."""
    model = {"displayName": "mnist-sample", "containerSpec": {"imageUri": "registry.example/other"}}
    ask(cloud, "POST", "us-central1/models:upload", {"model": model} | body)


def deploy(cloud, endpoint, model, **split):
    """Deploys a model; `split` is the traffic by deployed model, `_0` for this one. Returns the deployed model's id."""
    body = {
        "deployedModel": {
            "model": model,
            "displayName": "somebody's",
            "dedicatedResources": {"machineSpec": {"machineType": "n1-standard-4"}, "minReplicaCount": 1},
        },
        "trafficSplit": {name.removeprefix("_"): share for name, share in split.items()},
    }
    path = endpoint.partition("/locations/")[2]
    ask(cloud, "POST", f"{path}:deployModel", body)
    return ask(cloud, "GET", path)["deployedModels"][-1]["id"]


def test_what_a_run_deployed_is_undeployed_and_another_s_endpoint_of_that_name_is_not(cloud_with):
    cloud = cloud_with(run_pipelines=True)
    run_release(cloud, "first", decision="NEW")
    (created,), (registered,) = endpoints(cloud), models(cloud)
    upload(cloud)
    ask(cloud, "POST", "us-central1/endpoints", {"displayName": "mnist-sample"})
    (endpoint,), (model,) = endpoints(cloud) - {created}, models(cloud) - {registered}
    deploy(cloud, endpoint, model)
    deploy(cloud, endpoint, f"{registered}@1")

    listed = teardown(cloud)
    ours, _, left = listed.stdout.partition("Left alone:")
    assert ours.count(": undeploy") == 2, listed.stdout + listed.stderr
    assert f"{created} (mnist-sample): delete" in ours
    assert f"{endpoint} (mnist-sample): no run of these settings made it" in left
    assert "no run of these settings registered it" in left
    assert f"{registered} (mnist-sample, 1 versions): delete it with --models" in left

    ended = teardown(cloud, options=["--yes"])
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert endpoints(cloud) == {endpoint}
    assert deployed(cloud, endpoint) == [f"{model}@1"]
    assert models(cloud) == {registered, model}

    # All the traffic of another's endpoint goes to ours: it is theirs to say where it goes instead.
    ours = deploy(cloud, endpoint, f"{registered}@1", _0=100)
    theirs = deploy(cloud, endpoint, model, _0=0, **{f"_{ours}": 100})
    refused = teardown(cloud, options=["--yes"])
    assert refused.returncode == 1, refused.stdout + refused.stderr
    assert "would leave the remaining traffic split at 0%" in refused.stdout
    assert f"{endpoint} {ours} (somebody's on mnist-sample): undeploy" in refused.stdout.partition("Still there")[2]
    ask(cloud, "POST", f"{endpoint.partition('/locations/')[2]}:undeployModel", {"deployedModelId": theirs})

    assert teardown(cloud, options=["--yes", "--models"]).returncode == 0
    assert models(cloud) == {model}


def test_what_others_added_to_what_runs_made_stays_and_keeps_it(cloud_with):
    cloud = cloud_with(run_pipelines=True)
    run_release(cloud, "first", decision="NEW")
    (shared,), (registered,) = endpoints(cloud), models(cloud)
    run_release(cloud, "second", decision="VERSION", parent=registered)
    (alone,) = endpoints(cloud) - {shared}
    assert deployed(cloud, alone) == [f"{registered}@2"]
    upload(cloud, parentModel=registered)
    (ours,) = ask(cloud, "GET", shared.partition("/locations/")[2])["deployedModels"]
    deploy(cloud, shared, f"{registered}@3", _0=100, **{f"_{ours['id']}": 0})

    ended = teardown(cloud, options=["--yes", "--models"])
    assert ended.returncode == 0, ended.stdout + ended.stderr
    left = ended.stdout.partition("Left alone:")[2]
    assert f"{shared} (mnist-sample): it serves models of other origin" in left
    assert f"{registered} (mnist-sample, 3 versions): it has versions of other origin" in left
    assert endpoints(cloud) == {shared}
    assert deployed(cloud, shared) == [f"{registered}@3"]
    assert models(cloud) == {registered}
    assert len(ask(cloud, "GET", f"{registered.partition('/locations/')[2]}:listVersions")["models"]) == 3
