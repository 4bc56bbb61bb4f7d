"""Where a pipeline runs, as its graph sees it."""

import copy
from collections.abc import Mapping
from typing import Any, Protocol

from kfp import dsl
from kfp.dsl.base_component import BaseComponent

# They look at the world or tell of this run, so their outputs of another run would be wrong.
NEVER_CACHED = ("fingerprint", "compare", "notify", "registration")


class MakeTask(Protocol):
    """Makes a task of a component, whose settings come from the pipeline's parameters."""

    def __call__(self, component: BaseComponent, **inputs: Any) -> dsl.PipelineTask:
        """Returns the task."""


class Platform(Protocol):
    """Where a pipeline runs.

    Attributes:
        webhook: Address that a run's notice is posted to; empty for none.
    """

    webhook: str

    def task(self, component: BaseComponent, inputs: Mapping[str, Any]) -> dsl.PipelineTask:
        """Returns the task of a component, fit to run there."""

    def preflight(self, task: MakeTask, *, dataset: Any) -> list[dsl.PipelineTask]:
        """Adds what must succeed before training starts; returns its tasks."""

    def release(self, task: MakeTask, *, exported: Any, metrics: Any, model_name: Any) -> None:
        """Adds what becomes of an exported model there."""


def in_image(component: BaseComponent, image: str) -> BaseComponent:
    """Returns a copy of a component that runs in an image."""
    copied = copy.deepcopy(component)
    copied.component_spec.implementation.container.image = image
    return copied
