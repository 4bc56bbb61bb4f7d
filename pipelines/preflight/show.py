"""Prints what preflight found: one report, a search, or a table of machines."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from components.preflight.rows import ESTIMATES, FITS, REFUSED, figure, footnote, gib, seconds, sections, usd
from pipelines.preflight.cache import Report
from pipelines.preflight.search import Search


def show_report(name: str, report: Report, console: Console) -> None:
    """Prints one report: the verdict, memory, work, and what follows for time and money."""
    batch = f"{report['global_batch_size']:,} examples a step"
    console.print(f"[bold]{escape(name)}[/] on {report['machine']}, {batch}: [bold]{_verdict(report)}[/]")
    if report["sentence"]:
        console.print(escape(report["sentence"]), soft_wrap=True)
    if "memory" not in report:
        return
    console.print(f"Of each of its {report['replicas']} replicas, in {report['precision']}:", style="dim")
    table = Table(box=box.SIMPLE, pad_edge=False, show_header=False)
    for justify in ("left", "right", "left"):
        table.add_column(justify=justify)
    for section in sections(report):
        for row in section:
            table.add_row(*row)
        table.add_section()
    console.print(table)
    console.print(footnote(report), style="dim")


def show_search(name: str, search: Search, machine: str, console: Console) -> None:
    """Prints every try of a search, and what it found."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("try", justify="right")
    table.add_column("global batch", justify="right")
    table.add_column("")
    table.add_column("memory a replica", justify="right")
    for number, report in enumerate(search.tries, start=1):
        table.add_row(str(number), f"{report['global_batch_size']:,}", _verdict(report), _taken(report))
    console.print(table)
    if search.largest:
        why = f" ({search.bounded})" if search.bounded else ""
        console.print(
            f"[bold]{escape(name)}[/] on {machine}: the largest global batch is [bold]{search.largest:,}[/]{why}"
        )
        return
    last = search.tries[-1] if search.tries else {"verdict": "", "sentence": "The training split has fewer examples."}
    least = f"not even {search.step:,} examples a step, 8 a replica, are possible"
    console.print(f"[bold]{escape(name)}[/] on {machine}: {REFUSED if last['verdict'] == REFUSED else least}")
    console.print(escape(last["sentence"]), soft_wrap=True)


def show_machines(name: str, reports: Sequence[Report], console: Console) -> None:
    """Prints a row for each machine, the cheapest epoch first."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("machine", no_wrap=True)
    table.add_column("", no_wrap=True)
    for title in (
        "memory\na replica",
        "step\nat best",
        "examples/s\nat most",
        "MFU\nat most",
        "USD an epoch\nat least",
    ):
        table.add_column(title, justify="right", no_wrap=True)
    for report in sorted(reports, key=_price):
        bounds = report.get("estimate", {})
        table.add_row(
            report["machine"],
            _verdict(report),
            _taken(report),
            *(seconds(bounds.get("step_seconds")), figure(bounds.get("examples_per_second"), ",.0f")),
            *(figure(bounds.get("mfu_bound"), ".0%"), usd(bounds.get("usd_per_epoch")).removesuffix(" USD")),
        )
    console.print(f"[bold]{escape(name)}[/] on every machine that TensorFlow can train on")
    console.print(table)
    for report in reports:
        if report["sentence"]:
            console.print(f"{report['machine']}: {escape(report['sentence'])}", soft_wrap=True)
    console.print(ESTIMATES, style="dim")


def _verdict(report: Report) -> str:
    return f"[{'green' if report['verdict'] == FITS else 'red'}]{report['verdict']}[/]"


def _taken(report: Report) -> str:
    if "memory" in report:
        return f"{gib(report['memory']['peak'])} / {gib(report['usable_bytes'])}"
    needed = report.get("needed_bytes")
    return "" if needed is None else f"over {gib(needed)}"


def _price(report: Report) -> tuple[bool, float, str]:
    price = report.get("estimate", {}).get("usd_per_epoch")
    return report["verdict"] != FITS, price if price is not None else float("inf"), report["machine"]
