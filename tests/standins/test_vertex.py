"""The stand-in of Vertex AI, asked by the real SDK, Google's launchers and the logging client."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest
import requests
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import aiplatform, logging_v2
from google_cloud_pipeline_components.types import artifact_types
from google_cloud_pipeline_components.v1.custom_job import create_custom_training_job_from_component
from google_cloud_pipeline_components.v1.model import ModelUploadOp
from kfp import compiler, dsl

from tests.standins.edge import edge
from tests.standins.vertex import vertex
from tests.standins.vertex.conditions import holds
from tests.standins.vertex.filters import matches
from tests.standins.vertex.placeholders import Resolver

REGION = "us-central1"
PLACE = f"/v1/projects/test-project/locations/{REGION}"

component = partial(dsl.component, install_kfp_package=False, base_image="python:3.11")


@component
def write(count: int, sizes: list, options: dict, word: str, data: dsl.Output[dsl.Dataset]) -> str:
    from pathlib import Path

    assert (count, sizes, options) == (3, [1, 2], {"a": 1}), (count, sizes, options)
    assert isinstance(count, int) and isinstance(sizes[0], int)
    Path(data.path).write_text(word)
    data.metadata["rows"] = 7
    return word


@component
def read(data: dsl.Input[dsl.Dataset], metrics: dsl.Output[dsl.Metrics]) -> str:
    from pathlib import Path

    metrics.log_metric("rows", data.metadata["rows"])
    return Path(data.path).read_text()


@component
def fail():
    raise ValueError("this one always fails")


@component
def fail_once(marker: str):
    from pathlib import Path

    if not Path(marker).exists():
        Path(marker).touch()
        raise ValueError("the first try fails")


@component
def tell(status: dsl.PipelineTaskFinalStatus, root: str, job: str, path: str):
    import json
    from pathlib import Path

    message = {"state": status.state, "error": status.error_message, "task": status.pipeline_task_name}
    message |= {"job": status.pipeline_job_resource_name, "root": root, "name": job}
    Path(path).write_text(json.dumps(message))


@dsl.pipeline(name="toy")
def toy(told: str, marker: str, word: str = "PASSED", count: int = 3):
    finished = tell(root=dsl.PIPELINE_ROOT_PLACEHOLDER, job=dsl.PIPELINE_JOB_NAME_PLACEHOLDER, path=told)
    with dsl.ExitHandler(finished):
        fail_once(marker=marker).set_retry(1, backoff_duration="3600s")
        written = write(count=count, sizes=[1, 2], options={"a": 1}, word=f"{word}")
        with dsl.If(written.outputs["Output"] == "PASSED"):
            read(data=written.outputs["data"])
        with dsl.Else():
            fail()


@dsl.container_component
def show(text: str, model: dsl.Input[dsl.Model], shown: dsl.OutputPath(str)):
    script = 'mkdir -p "$(dirname "$3")" && printf "%s %s" "$1" "$2" > "$3"'
    return dsl.ContainerSpec(
        image="bash",
        command=["sh", "-c", script, "show"],
        args=[text, model.metadata["kind"], shown],
    )


@dsl.pipeline
def inner(word: str) -> str:
    made = write(count=3, sizes=[1, 2], options={"a": 1}, word=word)
    return read(data=made.outputs["data"]).outputs["Output"]


@dsl.pipeline(name="nested")
def nested(word: str = "b"):
    with dsl.If(word == "a", name="is-a"):
        first = inner(word="from a")
    with dsl.Elif(word == "b", name="is-b"):
        second = inner(word="from b")
    with dsl.Else():
        third = inner(word="from c")
    chosen = dsl.OneOf(first.output, second.output, third.output)
    known = dsl.importer(artifact_uri="/nowhere/known", artifact_class=dsl.Model, metadata={"kind": "old"})
    show(text=chosen, model=known.output)


@dsl.container_component
def sleep(seconds: int):
    return dsl.ContainerSpec(image="bash", command=["sleep"], args=[seconds])


@dsl.pipeline(name="long")
def long(told: str):
    finished = tell(root="", job="", path=told)
    with dsl.ExitHandler(finished):
        sleep(seconds=600)


def connect(service):
    aiplatform.init(
        api_endpoint=service.url,
        api_transport="rest",
        credentials=AnonymousCredentials(),
        project=service.project,
        location=REGION,
    )


@pytest.fixture
def service(tmp_path, monkeypatch):
    with vertex(tmp_path / "vertex") as running:
        # The SDK looks for the root's bucket before it submits, and goes on when it is told that nobody knows.
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", running.url)
        connect(running)
        yield running


@pytest.fixture
def runner(tmp_path):
    with vertex(tmp_path / "vertex", run_pipelines=True, only_gs=False) as running:
        connect(running)
        yield running


def pipeline_job(pipeline, tmp_path, root="", job_id="toy-1", **parameters):
    template = tmp_path / "pipeline.yaml"
    compiler.Compiler().compile(pipeline, str(template))
    return aiplatform.PipelineJob(
        display_name="toy",
        template_path=str(template),
        job_id=job_id,
        pipeline_root=root or str(tmp_path / "root"),
        parameter_values=parameters,
        enable_caching=False,
        labels={"team": "tests"},
    )


def toy_job(tmp_path, **parameters):
    defaults = {"told": str(tmp_path / "told.json"), "marker": str(tmp_path / "marker")}
    return pipeline_job(toy, tmp_path, **{**defaults, **parameters})


def details(job):
    return {detail.task_name: detail for detail in job.job_detail.task_details}


def states(job):
    names = aiplatform.gapic.PipelineTaskDetail.State
    return {name: names(detail.state).name for name, detail in details(job).items()}


# Pipelines


def test_a_pipeline_runs_with_conditions_retry_artifacts_and_an_experiment(runner, tmp_path):
    job = toy_job(tmp_path)
    job.submit(experiment="tries")
    ended = runner.wait("toy-1")

    assert ended.state == aiplatform.gapic.PipelineState.PIPELINE_STATE_SUCCEEDED
    by_name = details(ended)
    found = {name: state for name, state in states(ended).items() if not name.startswith("condition")}
    assert found == dict.fromkeys(["toy-1", "exit-handler-1", "fail-once", "write", "read", "tell"], "SUCCEEDED")
    assert states(ended)["condition-4"] == "NOT_TRIGGERED"
    (artifact,) = by_name["write"].outputs["data"].artifacts
    assert artifact.uri == f"{tmp_path}/root/{runner.project_number}/toy-1/write_{by_name['write'].task_id}/data"
    assert Path(artifact.uri).read_text() == "PASSED"
    assert artifact.metadata["rows"] == 7
    assert by_name["read"].execution.metadata["output:Output"] == "PASSED"
    container = by_name["fail-once"].executor_detail.container_detail
    assert len(container.failed_main_jobs) == 1
    assert container.main_job.startswith(f"projects/{runner.project_number}/locations/{REGION}/customJobs/")
    assert json.loads((tmp_path / "told.json").read_text()) == {
        "state": "SUCCEEDED",
        "error": None,
        "task": "exit-handler-1",
        "job": ended.name,
        "root": str(tmp_path / "root"),
        "name": "toy-1",
    }
    row = aiplatform.get_experiment_df("tries").iloc[0]
    assert (row["run_name"], row["metric.rows"], row["param.word"]) == ("toy-1", 7, "PASSED")


def test_a_failed_task_fails_the_pipeline_and_the_exit_handler_hears_of_it(runner, tmp_path):
    job = toy_job(tmp_path, word="x")
    job.submit()
    ended = runner.wait("toy-1")

    with pytest.raises(
        RuntimeError, match=r"The DAG failed because some tasks failed. The failed tasks are: \[fail\]."
    ):
        job.wait()
    assert states(ended)["fail"] == "FAILED"
    assert "ValueError: this one always fails" in details(ended)["fail"].error.message
    assert states(ended)["tell"] == "SUCCEEDED"
    told = json.loads((tmp_path / "told.json").read_text())
    assert told["state"] == "FAILED"
    assert told["error"] == "The DAG failed because some tasks failed. The failed tasks are: [fail]."


def test_nested_pipelines_branches_importers_and_containers(runner, tmp_path):
    pipeline_job(nested, tmp_path, job_id="nested-1").submit()
    ended = runner.wait("nested-1")

    assert ended.error.message == ""
    assert details(ended)["show"].execution.metadata["output:shown"] == "from b old"


def test_a_cancelled_pipeline_stops_its_task_and_runs_the_exit_handler(runner, tmp_path):
    job = pipeline_job(long, tmp_path, job_id="long-1", told=str(tmp_path / "told.json"))
    job.submit()
    deadline = time.monotonic() + 60
    while states(runner.pipeline_job("long-1")).get("sleep") != "RUNNING":
        assert time.monotonic() < deadline, "the task was never started"
        time.sleep(0.02)
    job.cancel()
    ended = runner.wait("long-1")

    assert ended.state == aiplatform.gapic.PipelineState.PIPELINE_STATE_CANCELLED
    assert states(ended)["sleep"] == "CANCELLED"
    assert json.loads((tmp_path / "told.json").read_text())["state"] == "CANCELLED"


def test_a_job_id_is_taken_once(service, tmp_path):
    toy_job(tmp_path, root="gs://bucket/root").submit()

    with pytest.raises(exceptions.Conflict, match="toy-1"):
        toy_job(tmp_path, root="gs://bucket/root").submit()
    (held,) = aiplatform.PipelineJob.list(filter='display_name="toy" AND labels.team="tests"')
    assert held.state == aiplatform.gapic.PipelineState.PIPELINE_STATE_RUNNING
    assert aiplatform.PipelineJob.list(filter='display_name="other"') == []


def test_a_schedule_holds_what_the_job_would_be(service, tmp_path):
    schedule = toy_job(tmp_path, root="gs://bucket/root").create_schedule(
        cron="TZ=Europe/Paris 0 3 * * 1-5",
        display_name="nightly",
        service_account="trainer@test-project.iam.gserviceaccount.com",
        network="projects/1/global/networks/vpc",
    )

    (held,) = service.schedules.store.all()
    job = held.create_pipeline_job_request.pipeline_job
    assert dict(job.labels) == {"team": "tests"}
    assert (job.service_account, job.network) == (
        "trainer@test-project.iam.gserviceaccount.com",
        "projects/1/global/networks/vpc",
    )
    assert job.pipeline_spec["root"]["dag"]["tasks"]["tell"]["cachingOptions"]["enableCache"] is False
    assert job.display_name == "", "the SDK leaves it out"
    schedule.pause()
    assert held.state == aiplatform.gapic.Schedule.State.PAUSED
    schedule.resume()
    schedule.update(cron="0 4 * * *")
    (listed,) = aiplatform.PipelineJobSchedule.list(filter='display_name="nightly"')
    assert listed.cron == "0 4 * * *"
    with pytest.raises(exceptions.BadRequest, match=r"schedule\.cron"):
        schedule.update(cron="every day")
    schedule.delete()
    assert service.schedules.store.all() == []


# What is refused


def changed(body, path, value):
    """Returns a copy of the body with the value at the path, which has dots and the numbers of lists."""
    body = json.loads(json.dumps(body))
    *parents, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    target = body
    for part in parents:
        target = target[part] if isinstance(target, list) else target.setdefault(part, {})
    target[last] = value
    return body


GRAPH = json.loads(
    """
{"displayName": "x",
 "runtimeConfig": {"gcsOutputDirectory": "gs://bucket/root", "parameterValues": {"n": 3}},
 "pipelineSpec": {"schemaVersion": "2.1.0", "sdkVersion": "kfp-2.17.3", "pipelineInfo": {"name": "x"},
  "deploymentSpec": {"executors": {"exec-a": {"container": {"image": "i", "command": ["true"]}}}},
  "components": {"comp-a": {"executorLabel": "exec-a"}},
  "root": {"dag": {"tasks": {"a": {"taskInfo": {"name": "a"}, "componentRef": {"name": "comp-a"}}}},
   "inputDefinitions": {"parameters": {"n": {"parameterType": "NUMBER_INTEGER"}}}}}}
"""
)


@pytest.mark.parametrize(
    ("job_id", "path", "value", "named"),
    [
        ("1a", "displayName", "x", "pipeline_job_id"),
        ("a" * 129, "displayName", "x", "pipeline_job_id"),
        ("a_b", "displayName", "x", "pipeline_job_id"),
        ("a", "displayName", "x" * 129, "display_name"),
        ("a", "labels", {"Team": "a"}, "labels"),
        ("a", "labels", {"team": "A"}, "labels"),
        ("a", "labels", {"team": "a" * 64}, "labels"),
        ("a", "labels", {f"k{i}": "" for i in range(65)}, "labels"),
        ("a", "network", "projects/test-project/global/networks/vpc", "network"),
        ("a", "serviceAccount", "me", "service_account"),
        ("a", "runtimeConfig/gcsOutputDirectory", "/tmp/root", "gcs_output_directory"),
        ("a", "runtimeConfig/parameterValues", {}, "'n' is missing"),
        ("a", "runtimeConfig/parameterValues", {"n": 3, "m": 1}, "'m' is not an input"),
        ("a", "runtimeConfig/parameterValues/n", "3", "NUMBER_INTEGER"),
        ("a", "runtimeConfig/parameterValues/n", 3.5, "NUMBER_INTEGER"),
        ("a", "runtimeConfig/parameterValues/n", True, "NUMBER_INTEGER"),
        ("a", "runtimeConfig/failurePolicy", "FASTER", "failurePolicy"),
        ("a", "pipelineSpec/steps", [], "steps"),
        ("a", "pipelineSpec/root/dag/tasks/a/dependsOn", ["b"], "dependsOn"),
        ("a", "pipelineSpec/deploymentSpec/executors/exec-a/container/cmd", ["b"], "cmd"),
        ("a", "pipelineSpec", {}, "pipeline_spec"),
        ("a", "display", "x", "display"),
    ],
)
def test_a_pipeline_job_that_breaks_a_rule_is_refused(service, job_id, path, value, named):
    url = f"{service.url}{PLACE}/pipelineJobs?pipelineJobId={job_id}"
    answer = requests.post(url, json=changed(GRAPH, path, value), timeout=10)

    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["status"] == "INVALID_ARGUMENT"
    assert named in answer.json()["error"]["message"]
    assert service.pipeline_jobs.store.all() == []


def test_a_pipeline_job_within_the_rules_is_taken(service):
    url = f"{service.url}{PLACE}/pipelineJobs?pipelineJobId=a"
    assert requests.post(url, json=GRAPH, timeout=10).status_code == 200
    url = url.replace("test-project", "other")
    assert requests.post(url, json=GRAPH, timeout=10).json()["error"]["status"] == "PERMISSION_DENIED"


def custom_job(machine, command=("true",), **fields):
    pool = {
        "machineSpec": machine,
        "replicaCount": 1,
        "containerSpec": {"imageUri": "image", "command": list(command)},
    }
    return {"displayName": "x", "jobSpec": {"workerPoolSpecs": [pool], **fields}}


V5E = {"machineType": "ct5lp-hightpu-4t", "tpuTopology": "2x2"}
V3 = {"machineType": "cloud-tpu", "acceleratorType": "TPU_V3", "acceleratorCount": 8}
POOL = "jobSpec/workerPoolSpecs/0"


@pytest.mark.parametrize(
    ("machine", "region"),
    [
        (V5E, "us-west4"),
        ({"machineType": "ct5lp-hightpu-1t", "tpuTopology": "1x1"}, "us-central1"),
        ({"machineType": "ct5lp-hightpu-8t", "tpuTopology": "2x4"}, "us-east1"),
        ({"machineType": "ct5lp-hightpu-4t", "tpuTopology": "4x4"}, "us-west1"),
        (V3, "europe-west4"),
        ({**V3, "acceleratorType": 6}, "asia-east1"),
        ({**V3, "acceleratorCount": 64}, "europe-west4"),
        ({"machineType": "ct6e-standard-4t", "tpuTopology": "2x2"}, "us-east5"),
        ({"machineType": "n1-standard-4"}, "us-east1"),
    ],
)
def test_a_machine_that_vertex_has_is_taken(service, machine, region):
    url = f"{service.url}{PLACE.replace(REGION, region)}/customJobs"
    assert requests.post(url, json=custom_job(machine), timeout=10).status_code == 200


@pytest.mark.parametrize(
    ("machine", "path", "value", "named"),
    [
        (V5E, f"{POOL}/machineSpec/tpuTopology", "2x4x1", "tpu_topology"),
        (V5E, f"{POOL}/machineSpec/tpuTopology", "", "tpu_topology"),
        (V5E, f"{POOL}/machineSpec/machineType", "ct5lp-hightpu-8t", "tpu_topology"),
        (V5E, f"{POOL}/machineSpec/machineType", "ct5p-hightpu-4t", "machine_type"),
        (V5E, f"{POOL}/machineSpec/acceleratorType", "TPU_V5_LITEPOD", "accelerator_type"),
        (V5E, f"{POOL}/machineSpec/acceleratorCount", 4, "accelerator_count"),
        (V5E, f"{POOL}/machineSpec/acceleratorType", "TPU_V9", "acceleratorType"),
        (V5E, f"{POOL}/replicaCount", 2, "replica_count"),
        (V5E, f"{POOL}/replicaCount", "two", "replicaCount"),
        (V3, f"{POOL}/machineSpec/acceleratorCount", 4, "accelerator_count"),
        (V3, f"{POOL}/machineSpec/acceleratorCount", 16, "accelerator_count"),
        (V3, f"{POOL}/machineSpec/acceleratorType", "NVIDIA_TESLA_T4", "accelerator_type"),
        (V3, f"{POOL}/machineSpec/tpuTopology", "2x2", "tpu_topology"),
        (V3, "jobSpec/scheduling", {"strategy": "FLEX_START"}, "strategy"),
        (V3, "jobSpec/scheduling", {"maxWaitDuration": "60s"}, "max_wait_duration"),
        (V3, "jobSpec/scheduling", {"timeout": "0s"}, "timeout"),
        (V3, "jobSpec/scheduling", {"timeout": "604801s"}, "timeout"),
        (V3, "jobSpec/scheduling", {"timeout": "1 hour"}, "timeout"),
        ({**V3, "acceleratorCount": 32}, "jobSpec/scheduling", {"strategy": "SPOT"}, "strategy"),
        ({**V5E, "tpuTopology": "4x4"}, "jobSpec/scheduling", {"strategy": "SPOT"}, "strategy"),
        (V3, "jobSpec/workerPoolSpecs", [], "worker_pool_specs"),
        (V3, "jobSpec/workerPoolSpecs", custom_job(V3)["jobSpec"]["workerPoolSpecs"] * 2, "worker_pool_specs"),
        (V3, "jobSpec/baseOutputDirectory", {"outputUriPrefix": "/gcs/bucket"}, "base_output_directory"),
        (V3, "jobSpec/network", "default", "network"),
        (V3, "jobSpec/tensorboard", f"projects/1/locations/{REGION}/tensorboards/2", "service_account"),
        (V3, "jobSpec/tensorboard", "projects/1/locations/us-west1/tensorboards/2", "tensorboard"),
        (V3, f"{POOL}/containerSpec/env", [{"name": "a-b", "value": ""}], "env"),
        (V3, f"{POOL}/containerSpec/env", [{"name": "a"}, {"name": "a"}], "env"),
        (V3, f"{POOL}/containerSpec/imageUri", "", "image_uri"),
        (V3, f"{POOL}/containerSpec/args", [1], "args"),
        (V3, f"{POOL}/diskSpec", {"bootDiskSizeGb": 50}, "boot_disk_size_gb"),
        (V3, f"{POOL}/diskSpec", {"bootDiskType": "ssd"}, "boot_disk_type"),
        (V3, "labels", {"a b": "c"}, "labels"),
        (V3, "displayName", "", "display_name"),
        (V3, "jobSpec/tpuTopology", "2x2", "tpuTopology"),
    ],
)
def test_a_custom_job_that_breaks_a_rule_is_refused(service, machine, path, value, named):
    body = changed(custom_job(machine), path, value)
    answer = requests.post(f"{service.url}{PLACE}/customJobs", json=body, timeout=10)

    assert answer.status_code == 400, answer.text
    assert named in answer.json()["error"]["message"]
    assert service.jobs == []


@pytest.mark.parametrize(
    ("machine", "region"),
    [(V5E, "us-east5"), (V5E, "europe-west4"), (V3, "asia-east1"), ({**V3, "acceleratorType": "TPU_V2"}, "us-west1")],
)
def test_a_region_without_the_generation_is_refused(service, machine, region):
    url = f"{service.url}{PLACE.replace(REGION, region)}/customJobs"
    answer = requests.post(url, json=custom_job(machine), timeout=10)
    assert f"not offered in {region}" in answer.json()["error"]["message"]


# Custom jobs


def test_a_custom_job_runs_with_vertexs_environment_and_without_the_tpus(service):
    names = "AIP_MODEL_DIR AIP_CHECKPOINT_DIR AIP_TENSORBOARD_LOG_DIR CLOUD_ML_PROJECT_ID MINE"
    script = f'for n in {names} TF_PLUGGABLE_DEVICE_LIBRARY_PATH; do eval "echo $n=\\$$n"; done; echo "$1"'
    executor_input = {"inputs": {"parameterValues": {"device": "tpu", "replicas": 4}}}
    body = custom_job(
        V5E,
        ["sh", "-c", script, "sh", json.dumps(executor_input)],
        baseOutputDirectory={"outputUriPrefix": "gs://bucket/out"},
    )
    env = [{"name": "MINE", "value": "1"}, {"name": "TF_PLUGGABLE_DEVICE_LIBRARY_PATH", "value": "/lib/libtpu.so"}]
    requests.post(f"{service.url}{PLACE}/customJobs", json=changed(body, f"{POOL}/containerSpec/env", env), timeout=10)

    (job,) = service.jobs
    assert job.ended.wait(30)
    assert job.state == "JOB_STATE_SUCCEEDED"
    assert job.log.lines[:-1] == [
        "AIP_MODEL_DIR=gs://bucket/out/model/",
        "AIP_CHECKPOINT_DIR=gs://bucket/out/checkpoints/",
        "AIP_TENSORBOARD_LOG_DIR=gs://bucket/out/logs/",
        f"CLOUD_ML_PROJECT_ID={service.project_number}",
        "MINE=1",
        "TF_PLUGGABLE_DEVICE_LIBRARY_PATH=",
    ]
    assert json.loads(job.log.lines[-1])["inputs"]["parameterValues"] == {"device": "cpu", "replicas": 4}


def test_a_failed_custom_job_says_so_with_its_last_lines(tmp_path):
    with vertex(tmp_path, restarts=1) as service:
        connect(service)
        pool = custom_job({"machineType": "n1-standard-4"}, ["sh", "-c", "echo oh no; exit 3"])
        name = requests.post(f"{service.url}{PLACE}/customJobs", json=pool, timeout=10).json()["name"]
        (job,) = service.jobs
        assert job.ended.wait(30)
        assert job.tries == [3, 3]
        got = aiplatform.CustomJob.get(name)
        assert (got.error.code, got.state.name) == (3, "JOB_STATE_FAILED")
        assert "The replica workerpool0-0 exited with a non-zero status of 3." in got.error.message
        assert "oh no" in got.error.message


def test_a_region_out_of_tpus(tmp_path):
    with vertex(tmp_path, stockout={REGION}) as service:
        for machine in (V5E, {"machineType": "n1-standard-4"}):
            requests.post(f"{service.url}{PLACE}/customJobs", json=custom_job(machine), timeout=10)
        tpu, cpu = service.jobs
        assert tpu.ended.wait(30) and cpu.ended.wait(30)
        assert tpu.message.error.code == 8
        assert tpu.message.error.message == (
            "Resources are insufficient in region: us-central1. Please try a different region."
        )
        assert cpu.state == "JOB_STATE_SUCCEEDED"


def test_stopping_kills_what_runs(tmp_path):
    with vertex(tmp_path) as service:
        body = custom_job({"machineType": "n1-standard-4"}, ["sh", "-c", "echo $$; sleep 600"])
        requests.post(f"{service.url}{PLACE}/customJobs", json=body, timeout=10)
        (job,) = service.jobs
        until(lambda: job.log.lines)
    assert job.ended.wait(10)
    assert job.tries == [137]
    assert not Path(f"/proc/{job.log.lines[0]}").exists()


def until(condition, seconds=30):
    pause = threading.Event()
    for _ in range(seconds * 50):
        if condition():
            return
        pause.wait(0.02)
    raise TimeoutError


# Google's launchers


@pytest.fixture
def network(tmp_path):
    """Starts a stand-in behind the edge, where Google's host names are those of this machine."""
    with contextlib.ExitStack() as stack:

        def start(**options):
            service = stack.enter_context(vertex(tmp_path / "vertex", **options))
            network = stack.enter_context(edge(service.routes, tmp_path / "edge"))
            return service, {**os.environ, **network.environment, **service.environment}

        yield start


def launch(module, environment, *arguments):
    command = [sys.executable, "-u", "-m", f"google_cloud_pipeline_components.container.v1.{module}.launcher"]
    return subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True, check=False)


def launch_custom_job(environment, folder, job_spec, **fields):
    payload = {"display_name": "train", "job_spec": job_spec, **fields}
    return launch(
        "custom_job",
        environment,
        *("--type", "CustomJob", "--project", "test-project", "--location", REGION),
        *("--payload", json.dumps(payload), "--gcp_resources", str(folder / "gcp_resources")),
    )


def job_spec(script):
    container = {"image_uri": "image", "command": ["sh", "-c", script]}
    machine = {"machine_type": "ct5lp-hightpu-4t", "tpu_topology": "2x2"}
    pool = {"machine_spec": machine, "replica_count": 1, "container_spec": container}
    return {"worker_pool_specs": [pool], "scheduling": {"timeout": "3600s", "strategy": "SPOT"}}


@pytest.mark.slow
def test_the_launcher_starts_a_job_which_is_killed_and_restarted(network, tmp_path):
    marker = tmp_path / "marker"
    service, environment = network(kill_first_try=lambda job: marker.exists())
    script = f"test -e {marker} && exit 0; touch {marker}; sleep 600"
    result = launch_custom_job(environment, tmp_path, job_spec(script), labels={"run": "a"})

    assert result.returncode == 0, result.stderr
    (job,) = service.jobs
    assert job.killed
    assert job.tries == [137, 0]
    assert dict(job.message.labels) == {"run": "a"}
    resources = json.loads((tmp_path / "gcp_resources").read_text())["resources"]
    assert resources[0]["resourceUri"].endswith(job.message.name)


@pytest.mark.slow
def test_the_launcher_fails_with_its_job(network, tmp_path):
    service, environment = network()
    result = launch_custom_job(environment, tmp_path, job_spec("exit 1"))

    assert result.returncode == 1
    assert "Job failed with value error in error state" in result.stderr
    assert service.jobs[0].state == "JOB_STATE_FAILED"


@pytest.mark.slow
def test_a_model_is_uploaded_twice_by_the_launcher(network, tmp_path):
    service, environment = network()

    def upload(name, aliases, *more):
        artifact = {
            "name": "a",
            "uri": "gs://bucket/model",
            "type": {"schemaTitle": "google.UnmanagedContainerModel"},
            "metadata": {"containerSpec": {"imageUri": "image:1"}},
        }
        output = {"name": "model", "uri": "", "type": {"schemaTitle": "google.VertexModel"}, "metadata": {}}
        executor_input = {
            "inputs": {"artifacts": {"unmanaged_container_model": {"artifacts": [artifact]}}},
            "outputs": {
                "artifacts": {"model": {"artifacts": [output]}},
                "outputFile": str(tmp_path / name / "executor_output.json"),
            },
        }
        payload = {"display_name": "reviews", "version_aliases": aliases, "labels": {"run": name}}
        result = launch(
            "model.upload_model",
            environment,
            *("--type", "UploadModel", "--project", "test-project", "--location", REGION),
            *("--payload", json.dumps(payload), "--gcp_resources", str(tmp_path / "gcp_resources")),
            *("--executor_input", json.dumps(executor_input), *more),
        )
        assert result.returncode == 0, result.stderr
        said = json.loads((tmp_path / name / "executor_output.json").read_text())
        return said["artifacts"]["model"]["artifacts"][0]["metadata"]["resourceName"]

    first = upload("one", ["champion"])
    assert first.endswith("@1")
    second = upload("two", ["champion", "candidate"], "--parent_model_name", first)
    assert second == first.replace("@1", "@2")
    connect(service)
    (model,) = aiplatform.Model.list(filter='display_name="reviews"')
    versions = model.versioning_registry.list_versions()
    aliases = {version.version_id: sorted(version.version_aliases) for version in versions}
    assert aliases == {"1": ["default"], "2": ["candidate", "champion"]}
    assert (model.uri, model.container_spec.image_uri) == ("gs://bucket/model", "image:1")
    third = upload("three", ["default"], "--parent_model_name", first)
    assert third.endswith("@3")
    assert aiplatform.Model(first.partition("@")[0]).version_id == "3"
    assert aiplatform.Model(f"{first.partition('@')[0]}@champion").version_id == "2"


@component
def train(device: str, data: dsl.Input[dsl.Dataset], model: dsl.Output[dsl.Model]) -> str:
    import os
    from pathlib import Path

    Path(model.path).write_text(Path(data.path).read_text() + os.environ["WHO"])
    return device


TRAIN = create_custom_training_job_from_component(
    train,
    display_name="train",
    machine_type="cloud-tpu",
    accelerator_type="TPU_V3",
    accelerator_count=8,
    base_output_directory="gs://bucket/out",
    env=[{"name": "WHO", "value": " a quote ' and \\ are kept"}],
)


@dsl.pipeline(name="released")
def released(word: str = "reviews"):
    written = write(count=3, sizes=[1, 2], options={"a": 1}, word='say "hi"')
    trained = TRAIN(device="tpu", data=written.outputs["data"])
    known = dsl.importer(
        artifact_uri="gs://bucket/model",
        artifact_class=artifact_types.UnmanagedContainerModel,
        metadata={"containerSpec": {"imageUri": "image:1"}},
    ).after(trained)
    ModelUploadOp(
        display_name=f"model of {word}",
        unmanaged_container_model=known.output,
        location="{{$.pipeline_google_cloud_location}}",
        labels={"run": "a"},
        version_aliases=["champion"],
    )


@pytest.mark.slow
def test_a_pipeline_with_googles_launchers(network, tmp_path):
    service, environment = network(run_pipelines=True, only_gs=False)
    connect(service)
    service.process_environment.update(environment)
    pipeline_job(released, tmp_path, job_id="released-1").submit()
    ended = service.wait("released-1", 120)

    assert ended.error.message == "", details(ended)
    done = details(ended)["train"]
    assert done.execution.metadata["output:Output"] == "cpu"
    assert Path(done.outputs["model"].artifacts[0].uri).read_text() == 'say "hi" a quote \' and \\ are kept'
    (job,) = service.jobs
    resources = json.loads(done.execution.metadata["output:gcp_resources"])["resources"]
    assert resources[0]["resourceUri"].endswith(job.message.name)
    assert list(job.message.labels) == ["vertex-ai-pipelines-run-billing-id"]
    executor_input = json.loads(job.message.job_spec.worker_pool_specs[0].container_spec.args[1])
    assert executor_input["inputs"]["parameterValues"]["device"] == "tpu", "as it was asked for"
    (model,) = aiplatform.Model.list(filter='display_name="model of reviews"')
    assert (model.version_aliases, model.uri) == (["champion", "default"], "gs://bucket/model")


@pytest.mark.slow
def test_a_client_with_nothing_but_googles_host_names(network):
    service, environment = network()
    program = f"""
from google.cloud import aiplatform, logging, resourcemanager_v3

aiplatform.init(project="test-project", location="{REGION}")
project = resourcemanager_v3.ProjectsClient().get_project(name="projects/test-project")
print(project.name, aiplatform.Model.list(), list(logging.Client().list_entries(filter_='resource.type="ml_job"')))
"""
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert result.stdout.strip() == f"projects/{service.project_number} [] []", result.stderr


# Models and endpoints through the SDK


def test_a_model_has_evaluations_and_is_deployed(service):
    model = aiplatform.Model.upload(
        display_name="reviews", artifact_uri="gs://bucket/model", serving_container_image_uri="image:1"
    )
    evaluation = {
        "modelEvaluation": {
            "displayName": "test",
            "metricsSchemaUri": "gs://google-cloud-aiplatform/schema/modelevaluation/classification_metrics_1.0.0.yaml",
            "metrics": {"auPrc": 0.5},
        }
    }
    url = f"{service.url}/v1/{model.resource_name}/evaluations:import"
    assert requests.post(url, json=evaluation, timeout=10).status_code == 200
    (found,) = model.list_model_evaluations()
    assert found.metrics["auPrc"] == 0.5
    assert "metrics" in requests.post(url, json={"modelEvaluation": {}}, timeout=10).json()["error"]["message"]

    endpoint = aiplatform.Endpoint.create(display_name="reviews")
    endpoint.deploy(model, machine_type="n1-standard-4", traffic_percentage=100)
    (deployed,) = endpoint.list_models()
    assert (deployed.model, deployed.model_version_id) == (model.resource_name, "1")
    assert [item.name for item in aiplatform.Endpoint.list(filter='display_name="reviews"')] == [endpoint.name]


def test_a_version_of_no_model_is_refused(service):
    body = {"parentModel": f"{PLACE[4:]}/models/7", "model": {"displayName": "x"}}
    answer = requests.post(f"{service.url}{PLACE}/models:upload", json=body, timeout=10)
    assert answer.json()["error"]["status"] == "NOT_FOUND"


# Logs


def test_the_logging_client_reads_the_lines_of_a_job(service):
    line = json.dumps({"severity": "WARNING", "message": "slow", "step": "train", "time": "2100-01-01T00:00:00Z"})
    for script in (f"echo one; echo two >&2; echo '{line}'", "echo of another job"):
        body = custom_job({"machineType": "n1-standard-4"}, ["sh", "-c", script])
        requests.post(f"{service.url}{PLACE}/customJobs", json=body, timeout=10)
    assert all(job.ended.wait(30) for job in service.jobs)

    client = logging_v2.Client(
        project=service.project,
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": service.url},
        _use_grpc=False,
    )
    wanted = f'resource.type="ml_job" AND resource.labels.job_id="{service.jobs[0].id}"'
    entries = list(client.list_entries(filter_=wanted, order_by=logging_v2.DESCENDING, page_size=2))

    assert entries[0].payload == {"message": "slow", "step": "train"}
    assert entries[0].severity == "WARNING"
    said = {entry.payload["message"]: entry.severity for entry in entries}
    assert said == {"slow": "WARNING", "one": "INFO", "two": "ERROR"}
    severe = client.list_entries(filter_=f"{wanted} AND severity>=ERROR")
    assert [entry.payload["message"] for entry in severe] == ["two"]


def test_everybody_gets_a_token(service):
    assert requests.post(f"{service.url}/token", timeout=10).json()["token_type"] == "Bearer"


# The small languages


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("inputs.parameter_values['a-b'] == 'x && !y'", True),
        ("inputs.parameter_values['a-b'] != 'x'", True),
        ("!(inputs.parameter_values['n'] == 3) || inputs.parameter_values['b'] == true", True),
        ("!(inputs.parameter_values['n'] == 3) && inputs.parameter_values['b'] == true", False),
        ("int(inputs.parameter_values['n']) > 2", True),
    ],
)
def test_conditions(condition, expected):
    assert holds(condition, {"a-b": "x && !y", "n": 3, "b": True}) is expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("", True),
        ('name="a b" AND labels.x:"y"', True),
        ('name="b" OR (name="a b" AND NOT labels.x:*)', False),
        ('name=("b" OR "a b")', True),
        ('in_context("c")', True),
    ],
)
def test_filters(expression, expected):
    values = {"name": "a b", "labels.x": ["y"], "in_context": {"c"}}
    assert matches(expression, values.get) is expected


def test_placeholders():
    artifact = {"uri": "gs://bucket/a", "metadata": {"size": 3}}
    executor_input = {
        "inputs": {
            "parameterValues": {"n": 8, "pools": [{"args": ["{{$.json_escape[1]}}"]}], "text": "{{$}}"},
            "artifacts": {"data": {"artifacts": [artifact]}},
        },
        "outputs": {"parameters": {"out": {"outputFile": "/x/out"}}, "artifacts": {}, "outputFile": "/x/o.json"},
    }
    resolver = Resolver({"pipeline_root": "gs://r"}, executor_input, "/mount")

    assert resolver.command(
        [
            "{{$.pipeline_root}}/{{$.inputs.parameters['n']}}",
            "{{$.inputs.artifacts['data'].uri}} {{$.inputs.artifacts['data'].path}}",
            "{{$.inputs.artifacts['data'].metadata['size']}}",
            "{{$.outputs.parameters['out'].output_file}}",
            '{"IfPresent": {"InputName": "data", "Then": ["--data", "1"], "Else": ["none"]}}',
            '{"IfPresent": {"InputName": "other", "Then": ["--data", "1"]}}',
            '{"Concat": ["{", "\\"n\\": ", "{{$.inputs.parameters[\'n\']}}", "}"]}',
        ]
    ) == ["gs://r/8", "gs://bucket/a /mount/bucket/a", "3", "/x/out", "--data", "1", '{"n": 8}']
    assert json.loads(resolver.text("{{$}}")) == executor_input
    pools = json.loads(resolver.text("{{$.inputs.parameters['pools']}}"))
    assert json.loads(pools[0]["args"][0]) == executor_input
    with pytest.raises(ValueError, match="unknown"):
        resolver.text("{{$.nobody}}")
