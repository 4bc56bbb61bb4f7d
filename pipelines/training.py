"""The graph of a run: prepare, train, evaluate, compare, and export if the model is good enough; notify always.

One graph for this machine and for Vertex AI. On Vertex AI the steps run in images, training is a CustomJob on the TPU
that starts once its step has been compiled for that, and an accepted model is registered.
"""

import inspect
import typing
from typing import Any

from kfp import dsl
from kfp.dsl.base_component import BaseComponent

from components.compare.component import compare
from components.evaluate.component import evaluate
from components.export.component import export
from components.fingerprint.component import fingerprint
from components.notify.component import notify
from components.prepare.component import prepare
from components.train.component import train
from pipelines.config import RunConfig, parameter_fields, parameters
from pipelines.platform import Platform


def training_pipeline(config: RunConfig, platform: Platform) -> BaseComponent:
    """Returns the pipeline of a run, its parameters' defaults being the run's settings.

    Args:
        config: The run. Its machine is fixed in the graph; the settings that are parameters can be changed when the
            pipeline is called or cloned.
        platform: Where it is to run.
    """
    defaults = parameters(config)

    def graph(*values: Any) -> None:
        settings = dict(zip(defaults, values, strict=True))

        def task(component: BaseComponent, **inputs: Any) -> dsl.PipelineTask:
            """Makes a task of a component: its settings come from the parameters of the same name."""
            names = component.component_spec.inputs or {}
            return platform.task(component, {name: settings[name] for name in names if name in settings} | inputs)

        finished = task(
            notify,
            pipeline_root=dsl.PIPELINE_ROOT_PLACEHOLDER,
            job=dsl.PIPELINE_JOB_NAME_PLACEHOLDER,
            webhook=platform.webhook,
        )
        with dsl.ExitHandler(finished):
            seen = task(fingerprint)
            dataset = task(prepare, source_fingerprint=seen.outputs["Output"]).outputs["dataset"]
            machine = config.machine.row
            trained = task(
                train, dataset=dataset, device=machine.device, replicas=machine.replicas, tpu=config.machine.tpu
            )
            trained.after(*platform.preflight(task, dataset=dataset))
            model = trained.outputs["model"]
            metrics = task(evaluate, dataset=dataset, model=model).outputs["metrics"]
            verdict = task(compare, metrics=metrics).outputs["Output"]
            with dsl.If(verdict == "PASSED"):
                exported = task(export, dataset=dataset, model=model).outputs["exported"]
                platform.release(task, exported=exported, metrics=metrics, model_name=settings["model_name"])

    # KFP reads a pipeline's parameters from its signature, and their descriptions from its docstring. Both come from
    # RunConfig here, so that no list of parameters is kept in step by hand.
    graph.__signature__ = _signature(defaults)  # type: ignore[attr-defined]
    graph.__doc__ = _docstring()
    return dsl.pipeline(name=config.name)(graph)


def _signature(defaults: dict[str, Any]) -> inspect.Signature:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature(
        [
            inspect.Parameter(name, kind, annotation=kfp_type(field.annotation), default=defaults[name])
            for name, field in parameter_fields().items()
        ]
    )


def kfp_type(annotation: Any) -> type:
    """Returns the type that KFP knows for a setting's type: a choice of words is a text, a mapping a dict."""
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return str
    return origin or annotation


def _docstring() -> str:
    arguments = "\n".join(f"    {name}: {field.description}" for name, field in parameter_fields().items())
    return f"Prepares data, trains, evaluates, and exports the model if it is good enough.\n\nArgs:\n{arguments}\n"
