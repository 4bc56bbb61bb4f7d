"""A component becomes a TPU CustomJob: by GCPC's helper, completed with what it lacks.

The helper (google-cloud-pipeline-components 2.22.0) can't ask for a TPU topology, without which there is no v5e, and
can't switch retries off. Both are put into the component that it returns: see `_complete`.
"""

from typing import Any

import yaml
from google.protobuf import json_format
from google_cloud_pipeline_components.v1.custom_job import create_custom_training_job_from_component
from kfp import components
from kfp.dsl.base_component import BaseComponent

from components.step import LOG_FORMAT_VARIABLE
from pipelines.config import Vertex
from pipelines.machines import Machine

# What every container of ours needs before its first import: see components/__init__.py, which sets the same for
# processes that start without a container. Logs as JSON become structured entries in Cloud Logging.
STEP_ENVIRONMENT = {"TF_USE_LEGACY_KERAS": "1", "FORCE_TF_AVAILABLE": "1", LOG_FORMAT_VARIABLE: "json"}

STRATEGIES = {"on-demand": "STANDARD", "spot": "SPOT", "reservation": "STANDARD"}


def display_name(run: str) -> str:
    """Returns the name of a run's training job, by which it is found again.

    Args:
        run: The run's id.
    """
    return f"{run}-train"


def custom_job(component: BaseComponent, *, output: str, machine: Machine, vertex: Vertex) -> BaseComponent:
    """Returns a component with the same inputs and outputs whose work is done by a CustomJob on a TPU.

    Everything that decides the machine is constant: a number that a pipeline puts into `worker_pool_specs` arrives as
    text. The job has one worker pool with one replica, as Vertex AI demands for TPUs. Its `base_output_directory` is
    the output artifact, so that Vertex AI's `AIP_CHECKPOINT_DIR` is `<artifact>/checkpoints/`: the same for every
    restart of the job, another for every run.

    Args:
        component: What to run.
        output: The component's output artifact below which checkpoints and TensorBoard's logs are kept.
        machine: The TPU slice; it must have one host.
        vertex: How Vertex AI runs it.
    """
    assert machine.device == "tpu"
    assert machine.hosts == 1
    environment = STEP_ENVIRONMENT | dict(machine.family.environment if machine.family else {})
    job = create_custom_training_job_from_component(
        component,
        machine_type=machine.machine_type,
        boot_disk_size_gb=vertex.boot_disk_gb,
        timeout=f"{round(vertex.train_timeout_hours * 3600)}s",
        service_account=vertex.trainer,
        network=vertex.network,
        tensorboard=vertex.tensorboard,
        labels=dict(vertex.labels),
        env=[{"name": key, "value": value} for key, value in environment.items()],
        strategy=STRATEGIES[vertex.capacity],
        # Without a default they would stand in the payload as they are, and that is no JSON.
        reserved_ip_ranges=[],
        psc_interface_config={},
    )
    spec = json_format.MessageToDict(job.pipeline_spec)
    _complete(spec, machine.spec(vertex.reservation), output=output, disable_retries=vertex.disable_retries)
    completed = components.load_component_from_text(yaml.safe_dump(spec))
    completed.component_spec.name = component.name
    completed.description = component.description
    return completed


def _complete(spec: dict[str, Any], machine_spec: dict[str, Any], *, output: str, disable_retries: bool) -> None:
    """Puts into a job's pipeline spec what the helper has no argument for."""
    (component,) = spec["components"].values()
    for definitions in (component["inputDefinitions"], spec["root"]["inputDefinitions"]):
        (pool,) = definitions["parameters"]["worker_pool_specs"]["defaultValue"]
        pool["machine_spec"] = machine_spec
    (executor,) = spec["deploymentSpec"]["executors"].values()
    arguments = executor["container"]["args"]
    payload = arguments.index("--payload") + 1
    # In the payload and not as inputs: an input that differs from run to run would keep the step out of the cache.
    edits = {
        "{{$.inputs.parameters['display_name']}}": display_name("{{$.pipeline_job_name}}"),
        "{{$.inputs.parameters['base_output_directory']}}": f"{{{{$.outputs.artifacts['{output}'].uri}}}}",
    }
    if disable_retries:
        edits['"scheduling": {'] = '"scheduling": {"disable_retries": true, '
    for old, new in edits.items():
        assert arguments[payload].count(old) == 1, f"GCPC's payload has changed: {old}"
        arguments[payload] = arguments[payload].replace(old, new)
