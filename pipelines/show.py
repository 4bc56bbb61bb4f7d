"""What the command line prints: the plan of a run, how it went, and the machines."""

import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from components.preflight.rows import figure
from pipelines import machines
from pipelines.config import SECRETS, RunConfig, Section, hidden
from pipelines.live import StepView, step_style
from pipelines.local.folder import RunFolder, StepSummary, Summary


def show_run(summary: Summary, folder: RunFolder, console: Console) -> None:
    """Prints how a run went: each step, the test figures, where things are, or what failed and how to go on."""
    console.print(steps_table(summary.steps, summary.state, summary.seconds))
    for name, value in _results(summary, folder).items():
        console.print(f"  {name:<14} {escape(value)}", soft_wrap=True)
    if summary.error:
        culprit = summary.failing_step or "kfp"
        console.print(f"\n[red]{culprit} failed:[/] {escape(summary.error)}", soft_wrap=True)
        console.print(f"Its log: {escape(_short(folder.log(culprit)))}", soft_wrap=True)
    if summary.state in ("FAILED", "INTERRUPTED"):
        command = f"{_own_command()} run --resume {shlex.quote(_short(folder.path))}"
        console.print(f"To go on where it stopped, with the same settings: [bold]{escape(command)}[/]", soft_wrap=True)


def steps_table(steps: Mapping[str, StepSummary | StepView], state: str, seconds: float | None = None) -> Table:
    """Returns a table of a run's steps and, below, the run itself: states and seconds."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("step")
    table.add_column("state")
    table.add_column("seconds", justify="right")
    for name, step in steps.items():
        table.add_row(name, f"[{step_style(step.state)}]{step.state}[/]", f"{step.seconds:.1f}")
    table.add_section()
    run = f"{seconds:.1f}" if seconds is not None else ""
    table.add_row("run", f"[bold {step_style(state)}]{state}[/]", run)
    return table


def _results(summary: Summary, folder: RunFolder) -> dict[str, str]:
    results = {}
    if summary.metrics:
        results["test accuracy"] = f"{summary.metrics['accuracy']:.4f}"
        results["test loss"] = f"{summary.metrics['loss']:.4f}"
    if summary.state == "REJECTED":
        results["not exported"] = "the accuracy is below evaluation.min_accuracy"
    for name, title in (("export", "SavedModel"), ("report", "report")):
        if name in summary.artifacts:
            results[title] = _short(Path(summary.artifacts[name]))
    return {**results, "summary": _short(folder.summary_file)}


def _own_command() -> str:
    """Returns how this program can be called again from here: by its name if the shell finds it, else by its path."""
    name = Path(sys.argv[0]).name
    return name if shutil.which(name) else _short(Path(sys.argv[0]))


def _short(path: Path) -> str:
    """Returns a path relative to the current folder, where it lies below it."""
    path = path.absolute()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def show_plan(config: RunConfig, console: Console) -> None:
    """Prints every setting of a run, those that are defaults dimmed, and the machine."""
    console.print(f"[bold]{config.name}[/]: the settings are valid (dimmed: defaults)")
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("setting", no_wrap=True)
    table.add_column("value")
    for section_name, section in config:
        if not isinstance(section, Section):
            continue
        for name, value in section:
            style = "" if name in section.model_fields_set else "dim"
            shown = hidden(value) if name in SECRETS else _text(value)
            table.add_row(f"{section_name}.{name}", escape(shown), style=style)
        table.add_section()
    console.print(table)
    machine = config.machine.row
    vertex = config.vertex
    known = {region: price for region in vertex.regions if (price := machine.usd_per_hour(region, vertex.capacity))}
    cost = ""
    if known:
        cheapest = min(known, key=known.__getitem__)
        cost = f", at least {known[cheapest]:.2f} USD an hour ({vertex.capacity}, {machine.priced(cheapest)})"
    batch = config.training.global_batch_size // machine.replicas
    console.print(f"{machine.name}: {machine.replicas} replicas of {batch} examples a step{cost}")


def _text(value: Any) -> str:
    return "(empty)" if value in ("", {}, []) else str(value)


def show_machines(console: Console) -> None:
    """Prints the machines, and for each generation where and how it is had, or why TensorFlow can't use it."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("machine", no_wrap=True)
    table.add_column("Vertex AI's words", no_wrap=True)
    for title in ("replicas", "chips", "HBM\nGiB", "bf16\nTFLOP/s", "USD/h", "spot"):
        table.add_column(title, justify="right", no_wrap=True)
    single = [machine for machine in machines.TPU_MACHINES.values() if machine.hosts == 1]
    for machine in single:
        family = machines.GENERATIONS[machine.generation]
        memory, rate = family.hbm_gib_per_chip, family.bf16_tflops_per_chip
        table.add_row(
            machine.name,
            f"{machine.machine_type} {machine.topology or machine.accelerator}",
            str(machine.replicas),
            str(machine.chips),
            figure(memory and machine.chips * memory, ",.0f"),
            figure(rate and machine.chips * rate, ",.0f"),
            figure(machine.usd_per_hour(), ".2f"),
            figure(machine.usd_per_hour(capacity="spot"), ".2f"),
            style="dim" if machine.refusal else "",
        )
    console.print(table)
    for name, family in machines.GENERATIONS.items():
        one = next(machine for machine in single if machine.generation == name)
        where = f"{', '.join(one.capacities())} in {', '.join(family.regions)}."
        several = ", ".join(m.name for m in machines.TPU_MACHINES.values() if m.generation == name and m.hosts > 1)
        console.print(f"[bold]{name}[/]: {f'refused: {family.refusal}.' if family.refusal else where}")
        console.print(f"  Refused, as each has several hosts: {several}.", style="dim")
    local = [name for name in machines.MACHINES if name not in machines.TPU_MACHINES]
    console.print(f"Of this machine, where it has them: {', '.join(local)}.")
    console.print(
        "USD/h: Cloud TPU's list price on demand, and spot, in the cheapest region, "
        f"{escape(machines.prices_as_of())}, without Vertex AI's own fee; ? is unknown."
    )
