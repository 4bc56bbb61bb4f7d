"""This machine as a place where a pipeline runs: in processes, or in containers."""

from collections.abc import Mapping
from typing import Any

from kfp import dsl
from kfp.dsl.base_component import BaseComponent

from pipelines.images import Images
from pipelines.platform import NEVER_CACHED, MakeTask, in_image


class ThisMachine:
    """Processes on this machine: `kfp.local`."""

    webhook = ""

    def task(self, component: BaseComponent, inputs: Mapping[str, Any]) -> dsl.PipelineTask:
        """Returns the task of a component."""
        return component(**inputs).set_caching_options(component.name not in NEVER_CACHED)

    def preflight(self, task: MakeTask, *, dataset: Any) -> list[dsl.PipelineTask]:
        """Lets training start at once: no TPU is paid for here."""
        return []

    def release(self, task: MakeTask, *, exported: Any, metrics: Any, model_name: Any) -> None:
        """Leaves the exported model where it is."""


class Containers(ThisMachine):
    """Containers on this machine, in the images that Vertex AI would use for a run on a TPU.

    Args:
        images: The images.
    """

    def __init__(self, images: Images) -> None:
        self._images = images

    def task(self, component: BaseComponent, inputs: Mapping[str, Any]) -> dsl.PipelineTask:
        """Returns the task of a component in its image."""
        image = self._images.tpu if component.name == "train" else self._images.cpu
        return super().task(in_image(component, image), inputs)
