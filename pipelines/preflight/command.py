"""What the command `preflight` does, and prints."""

import json
from dataclasses import dataclass

from rich.console import Console

from components.preflight.rows import FITS
from pipelines.config import RunConfig
from pipelines.machines import Machine
from pipelines.preflight import request
from pipelines.preflight.cache import Cache, Report
from pipelines.preflight.engine import Preflight
from pipelines.preflight.progress import Progress
from pipelines.preflight.search import Search, find_batch_size
from pipelines.preflight.show import show_machines, show_report, show_search


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What is to be found out.

    Attributes:
        machine: The slice, instead of the run's own.
        find_batch_size: Find the largest global batch that fits.
        every: Compare every machine.
        as_json: Print JSON.
    """

    machine: str = ""
    find_batch_size: bool = False
    every: bool = False
    as_json: bool = False


def run(config: RunConfig, wish: Wish, *, dataset: str = "", examples: int | None = None, fresh: bool = False) -> bool:
    """Finds out and prints; says whether something fits.

    Args:
        config: The run.
        wish: What is to be found out.
        dataset: A prepared data set, instead of a look at the run's source; empty for none.
        examples: Examples of the training split, instead of what the source says.
        fresh: Compile, even if the same was compiled before.

    Raises:
        TpuPipelinesError: if settings, data or model are at fault.
    """
    console, progress = Console(highlight=False), Progress(Console(stderr=True, highlight=False))
    with Preflight(Cache(fresh=fresh), progress, dataset=dataset, examples=examples) as preflight:
        if wish.every:
            reports = [_report_or_reason(preflight, config, machine) for machine in request.slices_for(config)]
            if wish.as_json:
                _print_json({"machines": reports})
            else:
                show_machines(config.name, reports, console)
            return any(report["verdict"] == FITS for report in reports)
        machine = request.machine_of(config, wish.machine)
        if wish.find_batch_size:
            search = _search(preflight, config, machine)
            if wish.as_json:
                _print_json(search.to_json())
            else:
                show_search(config.name, search, machine.name, console)
            return bool(search.largest)
        report = preflight.report(config, machine)
        if wish.as_json:
            _print_json(report)
        else:
            show_report(config.name, report, console)
        return bool(report["verdict"] == FITS)


def _report_or_reason(preflight: Preflight, config: RunConfig, machine: Machine) -> Report:
    """Returns a machine's report, or why the run's batch is none for it: the others are compared all the same."""
    if reason := request.uneven(config, machine):
        batch = config.training.global_batch_size
        return {"machine": machine.name, "global_batch_size": batch, "verdict": "uneven batch", "sentence": reason}
    return preflight.report(config, machine)


def _search(preflight: Preflight, config: RunConfig, machine: Machine) -> Search:
    def report(batch: int) -> Report:
        return preflight.report(request.with_batch(config, batch), machine)

    examples = preflight.describe(config, machine)["train_examples"]
    return find_batch_size(
        report, replicas=machine.replicas, start=config.training.global_batch_size, train_examples=examples
    )


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))
