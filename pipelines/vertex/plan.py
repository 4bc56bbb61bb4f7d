"""What the command line prints of a run before it is sent to Vertex AI."""

import json

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pipelines.show import show_plan
from pipelines.vertex.platform import train_retries
from pipelines.vertex.submission import Submission


def show_submission(run: Submission, console: Console) -> None:
    """Prints what would be sent: settings, machine, images, and what training costs at most."""
    show_plan(run.config, console)
    vertex, machine = run.config.vertex, run.config.machine.row
    rows = {
        "id": run.job_id,
        "display name": run.display_name,
        "project": vertex.project,
        "regions": ", ".join(vertex.regions),
        "artifacts": vertex.pipeline_root,
        "account": vertex.service_account or "Vertex AI's default (it has more rights than a run needs)",
        "training": "in the cpu image, no TPU",
        "cpu image": run.images.cpu,
    }
    if vertex.trainer_service_account:
        rows["training's account"] = vertex.trainer_service_account
    if machine.device == "tpu":
        rows["training"] = f"{json.dumps(machine.spec(vertex.reservation))}, {vertex.capacity}"
        rows["tpu image"] = run.images.tpu
    if vertex.register_model:
        rows["serving image"] = run.images.serving
    if len(vertex.regions) > 1 and "{region}" not in vertex.pipeline_root:
        rows["note"] = (
            "one bucket can't be in all these regions, and Vertex AI may refuse one of another region: put {region} "
            "into vertex.pipeline_root"
        )
    rows["cost"] = _cost(run)
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, escape(value))
    console.print(table)


def _cost(run: Submission) -> str:
    """Returns what an hour of training costs, and all the hours that it may take: nobody knows them before."""
    vertex, machine = run.config.vertex, run.config.machine.row
    if machine.device != "tpu":
        return "the steps' CPUs; no TPU"
    price = machine.usd_per_hour(vertex.regions[0], vertex.capacity)
    if price is None:
        return f"no list price of {machine.name} in {vertex.regions[0]} is known here"
    tries = 1 + train_retries(vertex)
    region = vertex.regions[0]
    return (
        f"{price:.2f} USD an hour of TPU ({region}, {vertex.capacity}, list price {machine.priced(region)}, "
        f"before Vertex AI's own fee); {price * vertex.train_timeout_hours * tries:,.2f} USD if it takes the whole "
        f"{vertex.train_timeout_hours:g} hours of vertex.train_timeout_hours"
        + (f", {tries} times" if tries > 1 else "")
    )
