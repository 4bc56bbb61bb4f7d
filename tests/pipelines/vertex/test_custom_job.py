"""The training step as a CustomJob: the payload that the launcher sends, read by the real protos."""

from pathlib import Path

import pytest
import yaml
from google.cloud.aiplatform_v1.types import CustomJob, Scheduling

from components.train.component import train
from pipelines import machines
from pipelines.config import Vertex, load
from pipelines.images import Images
from pipelines.vertex.compile import compile_pipeline
from pipelines.vertex.custom_job import custom_job
from tests.pipelines.payloads import payload


def sent(machine="v5e-4", *overrides):
    """Returns the payload in a compiled pipeline, and as the real proto reads it: strictly."""
    settings = [f"machine.name={machine}", "machine.allow_unverified=true", "training.global_batch_size=64", *overrides]
    text = compile_pipeline(load(Path("configs/mnist.yaml"), settings), Images())
    body = payload(yaml.safe_load(text))
    return body, CustomJob(body)


@pytest.mark.parametrize("machine", ["v2-8", "v3-8", "v5e-1", "v5e-4", "v5e-8", "v6e-1", "v6e-4", "v6e-8"])
def test_one_pool_one_replica_and_the_machine_s_own_words(machine):
    body, job = sent(machine)
    (pool,) = body["job_spec"]["worker_pool_specs"]
    assert pool["replica_count"] == 1
    assert pool["machine_spec"] == machines.TPU_MACHINES[machine].spec()
    assert job.job_spec.worker_pool_specs[0].machine_spec.machine_type == pool["machine_spec"]["machine_type"]
    assert job.display_name == "{{$.pipeline_job_name}}-train"


def test_numbers_are_integers():
    body, _ = sent("v3-8", "vertex.boot_disk_gb=200")
    (pool,) = body["job_spec"]["worker_pool_specs"]
    numbers = [pool["replica_count"], pool["machine_spec"]["accelerator_count"], pool["disk_spec"]["boot_disk_size_gb"]]
    assert [(type(number), number) for number in numbers] == [(int, 1), (int, 8), (int, 200)]


def test_training_runs_as_its_own_account_where_it_has_one():
    accounts = ("vertex.service_account=steps@p.iam.gserviceaccount.com",)
    assert sent("v5e-4", *accounts)[1].job_spec.service_account == "steps@p.iam.gserviceaccount.com"
    accounts += ("vertex.trainer_service_account=trainer@p.iam.gserviceaccount.com",)
    assert sent("v5e-4", *accounts)[1].job_spec.service_account == "trainer@p.iam.gserviceaccount.com"


def test_what_the_run_s_settings_become():
    account, board = "trainer@p.iam.gserviceaccount.com", "projects/p/locations/us-central1/tensorboards/7"
    _, job = sent(
        "v5e-4",
        *(f"vertex.service_account={account}", f"vertex.tensorboard={board}", "vertex.labels={team: ml}"),
        *("vertex.network=projects/12345/global/networks/main", "vertex.train_timeout_hours=1.5"),
        "vertex.capacity=spot",
    )
    spec = job.job_spec
    assert (spec.service_account, spec.tensorboard) == (account, board)
    assert spec.network == "projects/12345/global/networks/main"
    assert dict(job.labels) == {"team": "ml"}
    assert spec.scheduling.timeout.total_seconds() == 5400
    assert spec.scheduling.strategy == Scheduling.Strategy.SPOT
    assert not spec.scheduling.disable_retries


def test_retries_can_be_switched_off():
    _, job = sent("v5e-4", "vertex.disable_retries=true")
    assert job.job_spec.scheduling.disable_retries


def test_a_reservation_is_named():
    name = "projects/p/zones/us-central1-a/reservations/r"
    _, job = sent("v5e-4", "vertex.capacity=reservation", f"vertex.reservation={name}")
    affinity = job.job_spec.worker_pool_specs[0].machine_spec.reservation_affinity
    assert (affinity.reservation_affinity_type.name, list(affinity.values)) == ("SPECIFIC_RESERVATION", [name])
    assert affinity.key == "compute.googleapis.com/reservation-name"


@pytest.mark.parametrize(("machine", "needs_pjrt"), [("v3-8", False), ("v5e-4", True)])
def test_the_environment_that_the_tpu_needs(machine, needs_pjrt):
    _, job = sent(machine)
    environment = {each.name: each.value for each in job.job_spec.worker_pool_specs[0].container_spec.env}
    assert environment["TF_USE_LEGACY_KERAS"] == "1"
    assert environment["FORCE_TF_AVAILABLE"] == "1"
    assert ("NEXT_PLUGGABLE_DEVICE_USE_C_API" in environment) == needs_pjrt
    # Never on a TPU: the first hides it, and with the second TensorFlow aborts beside the plug-in's path.
    assert not {"TPU_SKIP_MDS_QUERY", "TPU_LOAD_LIBRARY"} & set(environment)


def test_checkpoints_lie_below_the_model_and_keep_the_step_in_the_cache():
    body, _ = sent()
    assert body["job_spec"]["base_output_directory"]["output_uri_prefix"] == "{{$.outputs.artifacts['model'].uri}}"


def test_inputs_and_outputs_stay_those_of_the_component():
    component = custom_job(train, output="model", machine=machines.find("v5e-4"), vertex=Vertex())
    assert component.component_spec.name == "train"
    assert set(train.component_spec.inputs) <= set(component.component_spec.inputs)
    assert set(component.component_spec.outputs) == {"model", "gcp_resources"}
