"""Commands about machines: list them, check this one."""

from typing import Annotated

import typer

from pipelines.cli.app import USERS_FAULT, app


@app.command()
def machines() -> None:
    """List the machines that machine.name can be."""
    from rich.console import Console

    from pipelines.show import show_machines

    show_machines(Console(highlight=False))


@app.command()
def doctor(
    replicas: Annotated[int, typer.Option(min=1, max=16, help="CPU replicas of the device check.")] = 8,
) -> None:
    """Check the installed versions, the devices, and that every replica computes."""
    from rich.console import Console

    from pipelines.doctor import examine

    if not examine(Console(highlight=False), replicas):
        raise typer.Exit(USERS_FAULT)
