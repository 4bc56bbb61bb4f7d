"""The graph of a run: prepare, train, evaluate, compare, and export if the model is good enough; notify always."""

import inspect
import typing
from typing import Any

from kfp import dsl
from kfp.dsl.base_component import BaseComponent

from components.compare.component import compare
from components.evaluate.component import evaluate
from components.export.component import export
from components.notify.component import notify
from components.prepare.component import prepare
from components.train.component import train
from pipelines import machines
from pipelines.config import RunConfig, parameter_fields, parameters


def training_pipeline(config: RunConfig) -> BaseComponent:
    """Returns the pipeline of a run, its parameters' defaults being the run's settings.

    Args:
        config: The run. Its machine is fixed in the graph; the settings that are parameters can be changed when the
            pipeline is called or cloned.
    """
    machine = machines.find(config.machine.name)
    defaults = parameters(config)

    def graph(*values: Any) -> None:
        settings = dict(zip(defaults, values, strict=True))

        def of(component: BaseComponent) -> dict[str, Any]:
            """Returns the settings that a component takes, by their name in both."""
            return {name: settings[name] for name in component.component_spec.inputs or {} if name in settings}

        finished = notify(pipeline_root=dsl.PIPELINE_ROOT_PLACEHOLDER, job=dsl.PIPELINE_JOB_NAME_PLACEHOLDER)
        finished.set_caching_options(False)  # it tells of this run, not of another
        with dsl.ExitHandler(finished):
            dataset = prepare(**of(prepare)).outputs["dataset"]
            model = train(
                dataset=dataset,
                device=machine.device,
                replicas=machine.replicas,
                tpu=config.machine.tpu,
                **of(train),
            ).outputs["model"]
            metrics = evaluate(dataset=dataset, model=model, **of(evaluate)).outputs["metrics"]
            # Cheap, and their records are how the run ended: never from a cache.
            compared = compare(metrics=metrics, **of(compare)).set_caching_options(False)
            verdict = compared.outputs["Output"]
            with dsl.If(verdict == "PASSED"):
                export(dataset=dataset, model=model, **of(export))

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
