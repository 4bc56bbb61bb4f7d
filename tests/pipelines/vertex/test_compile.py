"""The compiled pipeline: the golden bytes, strict protos, typed parameters, and what each step gets on Vertex AI."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from google.cloud.aiplatform_v1.types import CustomJob
from google.protobuf import json_format
from kfp import components
from kfp.pipeline_spec import pipeline_spec_pb2

from components.lower.component import lower
from components.train.component import train
from pipelines.config import load, parameter_fields, parameters
from pipelines.images import Images
from pipelines.vertex.compile import compile_components, compile_pipeline
from tests.golden import golden
from tests.pipelines.payloads import payload

IMAGES = Images(*(f"registry.example/{name}@sha256:{'a' * 64}" for name in ("cpu", "tpu", "serving")))
CONFIG = Path("configs/mnist.yaml")


def spec(*overrides):
    return yaml.safe_load(compile_pipeline(load(CONFIG, overrides), IMAGES))


def tasks(spec):
    """Returns the tasks of every part of a pipeline by name."""
    parts = [spec["root"], *spec["components"].values()]
    return {name: task for part in parts for name, task in part.get("dag", {}).get("tasks", {}).items()}


@pytest.fixture(scope="module")
def mnist():
    return spec()


def test_the_golden_files_are_what_the_code_compiles():
    assert golden.differing() == [], "run `make golden` and review the diff"


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["0", "1"])
def test_the_bytes_do_not_depend_on_the_process(seed):
    command = [sys.executable, "tests/golden/golden.py", "--verify"]
    environment = {**os.environ, "PYTHONHASHSEED": seed, "TZ": "Asia/Tokyo"}
    subprocess.run(command, check=True, env=environment)


@pytest.mark.parametrize("name", golden.CONFIGS)
def test_golden_specs_and_payloads_parse_strictly(name):
    parsed = yaml.safe_load((golden.HERE / f"{name}.yaml").read_text())
    json_format.ParseDict(parsed, pipeline_spec_pb2.PipelineSpec())
    job = CustomJob(payload(parsed))
    pools = json.loads((golden.HERE / f"{name}.worker_pool_specs.json").read_text())
    assert len(job.job_spec.worker_pool_specs) == len(pools) == 1
    assert job.job_spec.worker_pool_specs[0].replica_count == 1


def test_every_setting_is_a_typed_parameter_with_a_description_and_its_default(mnist):
    found = mnist["root"]["inputDefinitions"]["parameters"]
    values = parameters(load(CONFIG))
    assert found.keys() == parameter_fields().keys()
    for name, parameter in found.items():
        assert parameter["description"] == parameter_fields()[name].description
        assert parameter["defaultValue"] == values[name]
        assert type(parameter["defaultValue"]) is type(values[name]), name


def test_defaults_that_are_false_zero_or_empty_are_there(mnist):
    found = mnist["root"]["inputDefinitions"]["parameters"]
    assert {found[name]["defaultValue"] for name in ("checkpoint_every_steps", "seed")} == {0}
    assert spec("data.try_gcs=false")["root"]["inputDefinitions"]["parameters"]["try_gcs"]["defaultValue"] is False
    assert found["pretrained"]["defaultValue"] == ""
    assert found["arguments"]["defaultValue"] == {}


def test_texts_go_through_unchanged():
    odd = "a\nb\t\"c\" 'd' $HOME ${x} {{$}} 🧪 ü\\n"
    config = load(CONFIG)
    config = config.model_copy(update={"data": config.data.model_copy(update={"text_column": odd})})
    text = compile_pipeline(config, IMAGES)
    assert yaml.safe_load(text)["root"]["inputDefinitions"]["parameters"]["text_column"]["defaultValue"] == odd


def test_each_step_has_its_image_by_digest(mnist):
    images = {name: e["container"]["image"] for name, e in mnist["deploymentSpec"]["executors"].items()}
    google = {name for name, image in images.items() if image.startswith("gcr.io/ml-pipeline/")}
    assert google == {"exec-train", "exec-model-upload", "exec-model-upload-2", "exec-model-evaluation-import"}
    assert images["exec-preflight"] == IMAGES.tpu  # the compiler that training will have
    assert {image for name, image in images.items() if name not in {*google, "exec-preflight"}} == {IMAGES.cpu}
    (pool,) = payload(mnist)["job_spec"]["worker_pool_specs"]
    assert pool["container_spec"]["image_uri"] == IMAGES.tpu


def test_training_waits_for_its_step_to_be_compiled(mnist):
    assert tasks(mnist)["train"]["dependentTasks"] == ["preflight", "prepare"]
    assert tasks(mnist)["preflight"]["dependentTasks"] == ["lower"]
    machine = tasks(mnist)["preflight"]["inputs"]["parameters"]["machine"]["runtimeValue"]["constant"]
    assert (machine["name"], machine["topology"], machine["replicas"]) == ("v5e-4", "v5e:2x2", 4)
    lowered = tasks(mnist)["lower"]["inputs"]["parameters"]
    assert lowered["replicas"]["runtimeValue"]["constant"] == 4
    assert lowered["global_batch_size"] == {"componentInputParameter": "pipelinechannel--global_batch_size"}


def test_preflight_can_be_left_out_and_a_cpu_needs_none():
    for settings in (["preflight.enabled=false"], ["machine.name=cpu-4"]):
        found = tasks(spec(*settings))
        assert not {"lower", "preflight"} & set(found)
        assert found["train"]["dependentTasks"] == ["prepare"]


def test_lower_gets_what_train_gets():
    train_inputs, lower_inputs = (component.component_spec.inputs for component in (train, lower))
    where = {"checkpoint_dir", "checkpoint_every_steps", "steps_per_execution", "device", "tpu"}
    assert train_inputs.keys() - lower_inputs.keys() == where  # none of which is part of the step
    assert all(lower_inputs[name].type == train_inputs[name].type for name in lower_inputs)


def test_resources_retries_and_environment_of_the_steps(mnist):
    executors = mnist["deploymentSpec"]["executors"]
    heavy, light = executors["exec-prepare"]["container"], executors["exec-compare"]["container"]
    assert (heavy["resources"]["resourceCpuLimit"], heavy["resources"]["resourceMemoryLimit"]) == ("8", "32G")
    assert (light["resources"]["resourceCpuLimit"], light["resources"]["resourceMemoryLimit"]) == ("2", "8G")
    assert {"name": "TPU_PIPELINES_LOG", "value": "json"} in heavy["env"]
    retries = {name: task.get("retryPolicy", {}).get("maxRetryCount") for name, task in tasks(mnist).items()}
    assert retries["preflight"] is None
    assert (retries["prepare"], retries["train"], retries["export"], retries["model-upload"]) == (2, 1, 2, None)
    assert tasks(mnist)["prepare"]["retryPolicy"] | {"maxRetryCount": 0} == {
        "maxRetryCount": 0,
        "backoffDuration": "60s",
        "backoffFactor": 2.0,
        "backoffMaxDuration": "600s",
    }


def cached(spec):
    return {name for name, task in tasks(spec).items() if task.get("cachingOptions", {}).get("enableCache")}


def test_what_looks_at_the_world_is_never_cached(mnist):
    assert cached(mnist) == {"prepare", "lower", "preflight", "train", "evaluate", "export"}
    assert cached(spec("vertex.caching=false")) == set()


def test_prepare_is_cached_by_the_fingerprint_of_the_data(mnist):
    source = tasks(mnist)["prepare"]["inputs"]["parameters"]["source_fingerprint"]
    assert source == {"taskOutputParameter": {"outputParameterKey": "Output", "producerTask": "fingerprint"}}
    assert tasks(mnist)["train"]["inputs"]["artifacts"]["dataset"]["taskOutputArtifact"]["producerTask"] == "prepare"


def test_retries_can_be_switched_off():
    assert all("retryPolicy" not in task for task in tasks(spec("vertex.retries=0")).values())


def test_a_job_that_must_not_be_tried_again_is_not():
    assert "retryPolicy" not in tasks(spec("vertex.disable_retries=true"))["train"]


def test_every_placeholder_in_the_job_has_a_value(mnist):
    """One without would stand in the payload as it is, and that is no JSON."""
    definitions = mnist["components"]["comp-train"]["inputDefinitions"]["parameters"]
    arguments = mnist["deploymentSpec"]["executors"]["exec-train"]["container"]["args"]
    for name in re.findall(r"inputs\.parameters\['(\w+)'\]", " ".join(arguments)):
        assert "defaultValue" in definitions[name], name


def test_on_a_cpu_training_is_a_step_like_the_others():
    rehearsal = spec("machine.name=cpu-4")
    train = rehearsal["deploymentSpec"]["executors"]["exec-train"]["container"]
    assert train["image"] == IMAGES.cpu
    assert train["resources"]["resourceCpuLimit"] == "8"


def test_registration_can_be_left_out_and_deployment_added():
    plain = tasks(spec("vertex.register_model=false"))
    assert "registration" not in plain
    assert "model-upload" not in plain
    deployed = tasks(spec("vertex.deploy=true"))
    assert {"endpoint-create", "model-deploy"} <= set(deployed)
    named = tasks(spec("vertex.deploy=true", "vertex.endpoint=projects/p/locations/us-central1/endpoints/5"))
    assert "importer" in named
    assert "endpoint-create" not in named


def test_mails_are_sent_by_an_outer_pipeline_with_the_same_parameters(mnist):
    mailed = spec("vertex.notify_emails=[a@example.com]")
    assert mailed["root"]["inputDefinitions"] == mnist["root"]["inputDefinitions"]
    assert mailed["pipelineInfo"] == mnist["pipelineInfo"]
    assert "vertex-pipelines-notification-email" in mailed["root"]["dag"]["tasks"]
    json_format.ParseDict(mailed, pipeline_spec_pb2.PipelineSpec())


def test_each_component_has_its_own_yaml():
    written = dict(compile_components(IMAGES))
    assert list(written) == [
        *(
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
        )
    ]
    for name, text in written.items():
        component = components.load_component_from_text(text)
        assert component.name == name
        ((_, executor),) = yaml.safe_load(text)["deploymentSpec"]["executors"].items()
        assert executor["container"]["image"] == (IMAGES.tpu if name == "train" else IMAGES.cpu)
