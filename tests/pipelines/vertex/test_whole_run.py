"""A submitted pipeline runs whole from its YAML alone, every artifact in gs://, training through Google's launcher."""

import json
import urllib.request

import pytest

from tests.pipelines.vertex.conftest import a_cloud
from tests.standins.edge import Faults

pytestmark = pytest.mark.slow

SETTINGS = ("training.epochs=3", "vertex.model_aliases=[champion]", "vertex.labels={team: ml}")
WAIT = ("--wait", "--poll", "0.5", "--job-id", "whole")


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A run with nothing in its way."""
    with a_cloud(tmp_path_factory.mktemp("good"), run_pipelines=True) as cloud:
        yield cloud, cloud.submit(*SETTINGS, options=WAIT, how=cloud.run)


def registered(cloud):
    """Returns the registered versions."""
    return [version for versions in cloud.service.models.versions.values() for version in versions]


def results(cloud):
    """Returns what the steps wrote and must be the same in every run, by its place below its step."""
    ends = (
        "/weights.h5",
        "/manifest.json",
        "/model.json",
        "/contract.json",
        ".tfrecord",
        "/labels.json",
        "/classification",
    )
    found = {}
    for name in cloud.storage.names("bucket", "runs/"):
        if name.endswith(ends):
            step, _, place = name.partition("/whole/")[2].partition("/")
            found[f"{step.partition('_')[0]}/{place}"] = cloud.storage.read("bucket", name)
    return found


def test_every_step_succeeds_and_says_so(good):
    cloud, result = good
    assert result.returncode == 0, result.stdout + result.stderr
    assert "run                       SUCCEEDED" in result.stdout
    records = cloud.records()
    assert {name: record["state"] for name, record in records.items()} == dict.fromkeys(
        (
            "fingerprint",
            "prepare",
            "lower",
            "preflight",
            "train",
            "evaluate",
            "compare",
            "export",
            "registration",
            "notify",
        ),
        "SUCCEEDED",
    )
    assert records["evaluate"]["metrics"]["accuracy"] > 0.7
    assert f"test accuracy  {records['evaluate']['metrics']['accuracy']:.4f}" in result.stdout
    assert all(uri.startswith("gs://bucket/runs/") for record in records.values() for uri in record["outputs"].values())
    assert cloud.network.unknown_hosts == {}


def test_training_was_a_custom_job_on_the_machine_of_the_config(good):
    cloud, _ = good
    (job,) = cloud.service.jobs
    assert job.state == "JOB_STATE_SUCCEEDED", job.log.lines
    assert job.message.display_name == "whole-train"
    (pool,) = job.message.job_spec.worker_pool_specs
    assert (pool.machine_spec.machine_type, pool.machine_spec.tpu_topology) == ("ct5lp-hightpu-4t", "2x2")
    assert pool.replica_count == 1
    base = job.message.job_spec.base_output_directory.output_uri_prefix
    assert base.startswith("gs://bucket/runs/")
    assert base.endswith("/model")
    checkpoints = f"{base.removeprefix('gs://bucket/')}/checkpoints/"
    assert any(name.endswith(".index") for name in cloud.storage.names("bucket", checkpoints))


def test_the_model_is_registered_with_its_evaluation(good):
    cloud, _ = good
    (model,) = registered(cloud)
    assert (model.display_name, model.version_id) == ("mnist-sample", "1")
    assert "champion" in model.version_aliases
    assert model.labels["team"] == "ml"
    assert model.artifact_uri.endswith("/exported")
    assert model.container_spec.image_uri.startswith("registry.example/golden/serving@sha256:")
    (evaluation,) = cloud.service.models.evaluations.all()
    assert "classification" in evaluation.metrics_schema_uri
    assert len(cloud.service.models.slices.all()) == 10, "a slice a digit"


def test_with_requests_failing_and_the_trainer_killed_the_result_is_the_same(good, tmp_path):
    healthy, _ = good

    def half_way(job):
        """Says when the first epoch's checkpoint is whole: the moment to kill the trainer."""
        return any(name.endswith("/checkpoints/checkpoint") for name in cloud.storage.names("bucket", "runs/"))

    with a_cloud(tmp_path, faults=Faults(every=20), run_pipelines=True, kill_first_try=half_way) as cloud:
        register_one(cloud, "mnist-sample")
        result = cloud.submit(*SETTINGS, options=WAIT, how=cloud.run)
        assert result.returncode == 0, result.stdout + result.stderr
        (job,) = cloud.service.jobs
        assert job.tries == [137, 0]
        assert any("resumed from gs://bucket/runs/" in line for line in job.log.lines), job.log.lines
        faults = cloud.network.faults
        assert {"unavailable", "reset", "slow"} <= set(faults), faults
        assert sum(faults.values()) >= 20
        metrics = [each.records()["evaluate"]["metrics"] for each in (healthy, cloud)]
        assert metrics[0] == metrics[1]
        good_results, bad_results = results(healthy), results(cloud)
        assert {"train/model/weights.h5", "prepare/dataset/manifest.json", "export/exported/contract.json"} <= set(
            good_results
        )
        assert good_results.keys() == bad_results.keys()
        differing = [name for name, content in good_results.items() if content != bad_results[name]]
        assert not differing, [(good_results[name][:2000], bad_results[name][:2000]) for name in differing]
        assert [(model.display_name, model.version_id) for model in registered(cloud)] == [
            ("mnist-sample", "1"),
            ("mnist-sample", "2"),
        ]


def register_one(cloud, name):
    body = {"model": {"displayName": name, "containerSpec": {"imageUri": "registry.example/other"}}}
    request = urllib.request.Request(
        f"{cloud.service.url}/v1/projects/test-project/locations/us-central1/models:upload",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    urllib.request.urlopen(request).close()


def test_a_model_below_its_floor_is_not_registered(cloud_with):
    cloud = cloud_with(run_pipelines=True)
    result = cloud.submit("evaluation.min_accuracy=0.999", options=WAIT)
    assert result.returncode == 3, result.stdout + result.stderr
    assert "REJECTED" in result.stdout
    assert registered(cloud) == []
