"""What the command line prints of runs that were sent to Vertex AI."""

from typing import Any

from rich.console import Console
from rich.markup import escape

from pipelines.show import steps_table
from pipelines.vertex.outcome import Outcome


def show_how_to_follow(name: str, console: Console) -> None:
    """Prints the commands that follow and end a run."""
    console.print(f"To see how it stands: [bold]tpu-pipelines status {name}[/]", soft_wrap=True)
    console.print(f"To end it: [bold]tpu-pipelines cancel {name}[/]", soft_wrap=True)


def show_end(outcome: Outcome, console: Console) -> None:
    """Prints how a run stands or ended: each step, the test figures, and of a failure what is known."""
    console.print(steps_table(outcome.steps, outcome.state))
    if outcome.warning:
        console.print(f"[yellow]warning:[/] {escape(outcome.warning)}", soft_wrap=True)
    if metrics := outcome.records.get("evaluate", {}).get("metrics"):
        console.print(f"  test accuracy  {metrics['accuracy']:.4f}\n  test loss      {metrics['loss']:.4f}")
    for step in ("evaluate", "export"):
        for name, uri in outcome.records.get(step, {}).get("outputs", {}).items():
            if name in ("report", "export"):
                console.print(f"  {name:<14} {escape(uri)}", soft_wrap=True)
    if not outcome.error:
        return
    if outcome.log:
        console.print(f"\nThe last {len(outcome.log)} lines of its log:", style="dim")
        for line in outcome.log:
            console.print(f"  {escape(line)}", style="dim", soft_wrap=True)
    console.print(f"\n[red]{outcome.failing_step or 'The pipeline'} failed:[/] {escape(outcome.error)}", soft_wrap=True)
    if outcome.checkpoints:
        console.print(
            f"Training's checkpoints are kept; to go on from them, submit again with\n"
            f"  [bold]--set training.checkpoint_dir={escape(outcome.checkpoints)}[/]",
            soft_wrap=True,
        )


def show_schedule(schedule: Any, console: Console) -> None:
    """Prints how a schedule stands."""
    resource = schedule.gca_resource
    console.print(
        f"{escape(resource.display_name)}: {resource.state.name}, cron {escape(resource.cron)}, "
        f"{resource.started_run_count} runs started, next at {resource.next_run_time or 'no time'}",
        soft_wrap=True,
    )
