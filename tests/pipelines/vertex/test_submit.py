"""Submission through the real SDK: what is sent, what is refused before, how a run is followed and sent elsewhere."""

import itertools
import json
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

NAME = re.compile(r"projects/\d+/locations/[a-z0-9-]+/pipelineJobs/[a-z0-9-]+")


def posted(cloud, what):
    """Returns the bodies that were posted to a collection."""
    return [
        json.loads(request.body)
        for request in cloud.service.requests
        if request.method == "POST" and request.path.partition("?")[0].endswith(f"/{what}")
    ]


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["data.source=/data/x.csv", "model.builder=mine:build"], "can't reach"),
        (["vertex.regions=[eu]"], "does not train on v5e-4"),
        (["vertex.labels={Team: ML Ops}"], "vertex.labels has the key"),
        (["training.epoch=3", "training.epochs=3.5"], "Did you mean 'epochs'"),
        (["vertex.tensorboard=projects/p/locations/us-central1/tensorboards/1"], "needs vertex.service_account"),
        (["machine.accelerator_type=TPU_V3"], "machine.name alone decides"),
        (["vertex.pipeline_root="], "vertex.pipeline_root is empty"),
        (["vertex.capacity=flex-start"], "documents flex-start for GPUs only"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_sent(cloud_with, overrides, sentence):
    cloud = cloud_with()
    result = cloud.submit(*overrides)
    assert result.returncode == 2, result.stdout + result.stderr
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr
    assert cloud.service.requests == []
    assert cloud.network.requests == []


def test_a_dry_run_sends_nothing(cloud_with):
    cloud = cloud_with()
    result = cloud.submit(options=["--dry-run"])
    assert result.returncode == 0, result.stderr
    assert '"tpu_topology": "2x2"' in result.stdout
    assert "4.80 USD an hour" in result.stdout
    assert cloud.network.requests == []


def test_a_run_is_sent_once_with_all_that_the_config_says(cloud_with):
    cloud = cloud_with()
    board = cloud.service.add_tensorboard("us-central1", "7")
    overrides = [
        "vertex.service_account=trainer@test-project.iam.gserviceaccount.com",
        "vertex.network=projects/12345/global/networks/main",
        "vertex.labels={team: ml, n: 1}",
        f"vertex.tensorboard={board}",
        "vertex.experiment=digits",
    ]
    options = ["--display-name", "My Run Ünïcode", "--job-id", "My_Run 1"]
    result = cloud.submit(*overrides, options=options)
    assert result.returncode == 0, result.stdout + result.stderr
    assert NAME.search(result.stdout)[0].endswith("/my-run-1")
    assert "pipelines/runs/my-run-1?project=" in result.stdout
    (body,) = posted(cloud, "pipelineJobs")
    assert body["displayName"] == "My Run Ünïcode"
    assert body["serviceAccount"] == "trainer@test-project.iam.gserviceaccount.com"
    assert body["network"] == "projects/12345/global/networks/main"
    assert body["labels"].items() >= {"team": "ml", "n": "1"}.items()
    assert body["runtimeConfig"]["gcsOutputDirectory"] == "gs://bucket/runs"
    assert body["runtimeConfig"]["parameterValues"]["epochs"] == 1
    train = body["pipelineSpec"]["components"]["comp-train"]["inputDefinitions"]["parameters"]
    assert train["service_account"]["defaultValue"] == "trainer@test-project.iam.gserviceaccount.com"
    assert train["tensorboard"]["defaultValue"] == board

    again = cloud.submit(*overrides, options=options)
    assert again.returncode == 2
    assert "There is a run my-run-1 in us-central1 already" in again.stderr

    scheduled = cloud.submit(
        *overrides, "vertex.experiment=", command="schedule", options=["--cron", "TZ=Europe/Berlin 0 3 * * 1"]
    )
    assert scheduled.returncode == 0, scheduled.stderr
    (schedule,) = posted(cloud, "schedules")
    assert schedule["cron"] == "TZ=Europe/Berlin 0 3 * * 1"
    sent = schedule["createPipelineJobRequest"]["pipelineJob"]
    for field in ("serviceAccount", "network", "pipelineSpec", "runtimeConfig"):
        assert sent[field] == body[field], field
    assert sent["labels"].items() >= {"team": "ml", "n": "1"}.items()

    refused = cloud.submit(*overrides, command="schedule", options=["--cron", "0 3 * * 1"])
    assert refused.returncode == 2
    assert "vertex.experiment can't go with a schedule" in refused.stderr

    name = re.search(r"projects/\S+/schedules/\d+", scheduled.stdout)[0]
    assert "cron TZ=Europe/Berlin" in cloud.call("status", name).stdout
    assert cloud.call("cancel", name).returncode == 0
    assert cloud.call("status", name).returncode == 2


def test_a_bucket_that_is_not_there_is_refused(cloud_with):
    cloud = cloud_with()
    result = cloud.submit("vertex.pipeline_root=gs://no-such-bucket/runs")
    assert result.returncode == 2, result.stdout + result.stderr
    assert "Bucket no-such-bucket of vertex.pipeline_root: not found" in result.stderr
    assert posted(cloud, "pipelineJobs") == []


def test_without_credentials_one_sentence_says_how_to_get_them(cloud_with):
    cloud = cloud_with()
    cloud.network.environment |= {"GOOGLE_APPLICATION_CREDENTIALS": "", "CLOUDSDK_CONFIG": str(cloud.folder)}
    result = cloud.submit(options=["--wait"])
    assert result.returncode == 2
    assert "gcloud auth application-default login" in result.stderr


def test_status_and_cancel(cloud_with):
    cloud = cloud_with()
    name = NAME.search(cloud.submit().stdout)[0]
    status = cloud.call("status", name)
    assert status.returncode == 0, status.stderr
    assert "RUNNING" in status.stdout
    assert cloud.call("cancel", name).returncode == 0
    assert "CANCELLED" in cloud.call("status", name).stdout
    unknown = cloud.call("status", name + "-x")
    assert unknown.returncode == 2
    assert "not found" in unknown.stderr
    assert cloud.call("status", "mnist").returncode == 2


def test_a_failed_step_is_shown_and_its_own_want_of_memory_is_no_want_of_machines(cloud_with):
    cloud = cloud_with(run_pipelines=True)
    Path(cloud.folder, "greedy.py").write_text(
        "def build(**arguments):\n    raise RuntimeError('RESOURCE_EXHAUSTED: Ran out of memory in hbm')\n"
    )
    cloud.service.process_environment["PYTHONPATH"] = str(cloud.folder)
    looks = itertools.count()
    # A minute in which the service answers no look at the run, once it has begun.
    cloud.service.busy = lambda request: bool(NAME.search(request.path)) and 2 <= next(looks) < 6
    result = cloud.submit(
        *("model.builder=greedy:build", "vertex.regions=[us-central1, us-east1]", "vertex.retries=0"),
        "preflight.enabled=false",  # which would have failed before
        options=["--wait", "--poll", "0.5"],
    )
    assert result.returncode == 2, result.stdout + result.stderr
    assert re.search("train failed: .*RESOURCE_EXHAUSTED: Ran out of memory in hbm", result.stdout)
    assert "lines of its log" in result.stdout
    assert "us-east1/" not in result.stdout
    assert len(posted(cloud, "pipelineJobs")) == 1
    assert "checkpoint_dir=" not in result.stdout.partition("last 15 lines")[2], "there is nothing to go on from"
    cloud.service.busy = None
    status = cloud.call("status", NAME.search(result.stdout)[0])
    assert status.returncode == 2
    assert "RESOURCE_EXHAUSTED" in status.stdout


def test_the_next_region_is_tried_and_training_goes_on_there(cloud_with):
    def second_has_begun(job):
        names = cloud.storage.names("bucket", "runs/") if job.location == "us-east1" else []
        return any(name.endswith("/checkpoints/checkpoint") for name in names)

    cloud = cloud_with(run_pipelines=True, stockout=["us-central1"], kill_first_try=second_has_begun)
    cloud.service.custom_jobs.preempted.add("us-east1")
    result = cloud.submit(
        "vertex.regions=[us-central1, us-east1, us-west4]",
        *("vertex.retries=0", "vertex.register_model=false", "training.epochs=3"),
        options=["--wait", "--poll", "0.5"],
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "No TPU in us-central1: Resources are insufficient in region: us-central1" in result.stdout
    assert "No TPU in us-east1: STOCKOUT" in result.stdout
    assert re.search("Tried: us-central1: .*us-east1: .*us-west4: SUCCEEDED", result.stdout)
    first, second, third = cloud.service.jobs
    assert [job.location for job in (first, second, third)] == ["us-central1", "us-east1", "us-west4"]
    assert any(f"resumed from {cloud.records()['train']['checkpoints']}" in line for line in third.log.lines)
    assert second.message.job_spec.base_output_directory.output_uri_prefix in cloud.records()["train"]["checkpoints"]


def test_a_region_without_stock_is_all_there_is(cloud_with):
    cloud = cloud_with(run_pipelines=True, stockout=["us-central1"])
    result = cloud.submit("vertex.retries=0", options=["--wait", "--poll", "0.5"])
    assert result.returncode == 1
    assert "train failed: Resources are insufficient in region: us-central1" in result.stdout
