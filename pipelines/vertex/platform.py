"""What a task needs to run on Vertex AI: an image, resources, retries, and for training a TPU."""

from collections.abc import Mapping
from typing import Any

# GCPC's own names of the run's project and region, as its operators have them in the defaults of their inputs.
from google_cloud_pipeline_components import _placeholders as placeholders
from kfp import dsl
from kfp.dsl.base_component import BaseComponent

from components.lower.component import lower
from components.preflight.component import preflight
from components.registration.component import registration
from pipelines.config import RunConfig, Vertex
from pipelines.images import Images
from pipelines.platform import NEVER_CACHED, MakeTask, in_image
from pipelines.preflight.request import slice_of
from pipelines.vertex.custom_job import STEP_ENVIRONMENT, custom_job
from pipelines.vertex.registration import register

# Steps that hold models or data; the others get LIGHT_CPUS and LIGHT_MEMORY.
HEAVY = ("prepare", "lower", "preflight", "train", "evaluate", "export")
LIGHT_CPUS, LIGHT_MEMORY = "2", "8G"
# A second try of training costs a TPU, and the job itself is restarted by Vertex AI when its machine is taken away.
TRAIN_RETRIES = 1
# Seconds before a second try, doubled for each further one.
BACKOFF, LONGEST_BACKOFF = "60s", "600s"


class VertexAI:
    """Containers on Vertex AI, training in a CustomJob on the run's TPU."""

    def __init__(self, config: RunConfig, images: Images) -> None:
        self._config, self._vertex, self._images = config, config.vertex, images
        self.webhook = config.vertex.notify_webhook

    def task(self, component: BaseComponent, inputs: Mapping[str, Any]) -> dsl.PipelineTask:
        """Returns the task of a component in its image, with resources, retries and caching."""
        name, machine = component.name, self._config.machine.row
        on_tpu = name == "train" and machine.device == "tpu"
        component = in_image(component, self._images.tpu if on_tpu or name == "preflight" else self._images.cpu)
        if on_tpu:
            job = custom_job(component, output="model", machine=machine, vertex=self._vertex)
            task = job(**inputs)  # its resources are the job's, and these the launcher's
        else:
            task = component(**inputs)
            heavy = name in HEAVY
            task.set_cpu_limit(str(self._vertex.step_cpus) if heavy else LIGHT_CPUS)
            task.set_memory_limit(f"{self._vertex.step_memory_gb}G" if heavy else LIGHT_MEMORY)
            for key, value in STEP_ENVIRONMENT.items():
                task.set_env_variable(key, value)
        # A verdict of the compiler is the same however often it is asked for.
        retries = {"train": train_retries(self._vertex), "preflight": 0}.get(name, self._vertex.retries)
        if retries:
            task.set_retry(
                num_retries=retries, backoff_duration=BACKOFF, backoff_factor=2, backoff_max_duration=LONGEST_BACKOFF
            )
        return task.set_caching_options(self._vertex.caching and name not in NEVER_CACHED)

    def preflight(self, task: MakeTask, *, dataset: Any) -> list[dsl.PipelineTask]:
        """Compiles the step that training will run by the compiler in its image, on a CPU."""
        machine = self._config.machine.row
        if machine.device != "tpu" or not self._config.preflight.enabled:
            return []
        lowered = task(lower, dataset=dataset, replicas=machine.replicas)
        checked = task(preflight, program=lowered.outputs["program"], machine=slice_of(machine, self._vertex).to_json())
        # The image's TensorFlow, which reads gs://, would ask the metadata server for the TPU that isn't there.
        checked.set_env_variable("TPU_SKIP_MDS_QUERY", "1")
        return [checked]

    def release(self, task: MakeTask, *, exported: Any, metrics: Any, model_name: Any) -> None:
        """Registers the exported model, and deploys it where asked."""
        if not self._vertex.register_model:
            return
        prepared = task(
            registration,
            exported=exported,
            evaluated=metrics,
            serving_image=self._images.serving,
            project=placeholders.PROJECT_ID_PLACEHOLDER,
            location=placeholders.LOCATION_PLACEHOLDER,
        )
        register(prepared, model_name, self._vertex)


def train_retries(vertex: Vertex) -> int:
    """Returns how often a failed training step is tried again."""
    return 0 if vertex.disable_retries else min(vertex.retries, TRAIN_RETRIES)
