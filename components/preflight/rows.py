"""How a report reads: the same words in the terminal and in the pipeline."""

from collections.abc import Mapping
from typing import Any

from components.step import duration

# The verdicts.
FITS, TOO_LARGE, REFUSED = "fits", "does not fit", "does not compile"
UNKNOWN = "?"
ESTIMATES = "Times and prices are bounds by formula, not measurements: docs/preflight.md has the formulas and sources."
Row = tuple[str, str, str]


def sections(report: Mapping[str, Any]) -> tuple[list[Row], ...]:
    """Returns what a report says of a step that compiles, row by row: its memory, its work, the run that follows.

    Each row is a name, a figure with its unit, and what it means.
    """
    return _memory(report), *([_work(report)] if report["work"] else []), _run(report)


def footnote(report: Mapping[str, Any]) -> str:
    """Returns what stands below the rows: whose verdict it is, and what the figures are not."""
    return f"Compiled by {report['compiler']}. {ESTIMATES}"


def _memory(report: Mapping[str, Any]) -> list[Row]:
    memory, usable = report["memory"], report["usable_bytes"]
    own_outputs = memory["outputs"] - memory["aliases"]
    room = "" if usable is None else f"of {gib(usable)}: {1 - memory['peak'] / usable:.0%} free"
    return [
        ("weights, optimizer, batch", gib(memory["arguments"]), f"{report['parameters']:,} parameters"),
        ("activations, gradients", gib(memory["temporaries"]), "at their peak"),
        ("program, outputs", gib(memory["code"] + own_outputs), ""),
        ("memory", gib(memory["peak"]), room),
    ]


def _work(report: Mapping[str, Any]) -> list[Row]:
    work, bounds = report["work"], report["estimate"]
    compute, traffic, summing = (seconds(bounds[f"{name}_seconds"]) for name in ("compute", "memory", "all_reduce"))
    return [
        ("matrix products", scaled(work["flops"], "FLOP"), f"{compute} at the peak rate"),
        ("memory traffic", scaled(work["hbm_bytes"], "B"), f"{traffic} at the full bandwidth"),
        ("sums over replicas", scaled(work["all_reduce_bytes"], "B"), f"{summing} on the interconnect"),
    ]


def _run(report: Mapping[str, Any]) -> list[Row]:
    bounds = report["estimate"]
    rate, share = figure(bounds["examples_per_second"], ",.0f"), figure(bounds["mfu_bound"], ".0%")
    steps, price, epoch = figure(bounds["steps"], ","), usd(bounds["usd"]), usd(bounds["usd_per_epoch"])
    rows = [
        ("step, at best", seconds(bounds["step_seconds"]), f"{rate} examples/s, MFU at most {share}"),
        ("run, at best", hours(bounds["hours"]), f"{steps} steps, {price}, {epoch} an epoch"),
    ]
    if report["padding"] is not None:
        rows.append(("padding", f"{report['padding']:.0%}", "of the tokens: work that no example needs"))
    return rows


def figure(value: float | None, form: str) -> str:
    """Returns a number in a form of Python's, or a question mark for what isn't known."""
    return UNKNOWN if value is None else format(value, form)


def gib(count: float | None) -> str:
    """Returns bytes as `15.75 GiB`, few as `12.6 MiB`."""
    if count is None:
        return UNKNOWN
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 / 10 else f"{count / 2**20:.1f} MiB"


def scaled(amount: float, unit: str) -> str:
    """Returns an amount with a prefix of thousands: `1.23 TFLOP`."""
    for prefix in ("", "k", "M", "G", "T"):
        if amount < 1000:
            return f"{amount:.3g} {prefix}{unit}"
        amount /= 1000
    return f"{amount:.3g} P{unit}"


def seconds(value: float | None) -> str:
    """Returns a short time as `7.31 ms`."""
    if value is None:
        return UNKNOWN
    for unit, size in (("s", 1), ("ms", 1e-3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e6:.3g} µs"


def hours(value: float | None) -> str:
    """Returns a length of time, given in hours, as `2 h 04 min`."""
    if value is None or value * 3600 < 10:
        return seconds(value and value * 3600)
    return duration(value * 3600)


def usd(value: float | None) -> str:
    """Returns a price as `12.50 USD`, a small one as `0.0032 USD`."""
    if value is None:
        return f"{UNKNOWN} USD"
    if value < 1e-4:
        return "0 USD" if not value else "< 0.0001 USD"
    return f"{value:.2f} USD" if value >= 1 else f"{value:.2g} USD"
