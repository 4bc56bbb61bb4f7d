"""Geometry of the report's charts: where points, bars and ticks go. The template draws them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from components.evaluate.metrics import CalibrationBin, RocCurve

# The accuracy of fewer examples than this is drawn pale: its 95 % interval spans half of the scale or more.
FEW_EXAMPLES = 10


@dataclass(frozen=True)
class Tick:
    """A mark on an axis: its place in the drawing, and its text."""

    at: float
    text: str


@dataclass(frozen=True)
class Line:
    """One curve: its name, its CSS class, and its points in the drawing."""

    name: str
    style: str
    points: tuple[tuple[float, float], ...]

    @property
    def path(self) -> str:
        """The points as SVG writes them."""
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in self.points)


@dataclass(frozen=True)
class Frame:
    """A drawing of `width` by `height`, with room for the axes around its plot."""

    width: float
    height: float
    left: float = 46
    right: float = 14
    top: float = 12
    bottom: float = 38

    @property
    def plot_right(self) -> float:
        """The plot's right edge."""
        return self.width - self.right

    @property
    def plot_bottom(self) -> float:
        """The plot's lower edge."""
        return self.height - self.bottom

    def x(self, share: float) -> float:
        """Returns the place of a share of the plot's width, from the left."""
        return round(self.left + share * (self.plot_right - self.left), 2)

    def y(self, share: float) -> float:
        """Returns the place of a share of the plot's height, from the bottom."""
        return round(self.plot_bottom - share * (self.plot_bottom - self.top), 2)


@dataclass(frozen=True)
class LineChart:
    """Curves over epochs.

    Attributes:
        frame: The drawing.
        lines: The curves.
        x_ticks: Epochs.
        y_ticks: Values.
        marker: Place of the epoch whose weights were kept, if it is among those drawn.
    """

    frame: Frame
    lines: tuple[Line, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    marker: Tick | None


@dataclass(frozen=True)
class Bar:
    """A rectangle, its short label, its full meaning, and whether few examples stand behind it."""

    x: float
    y: float
    width: float
    height: float
    label: str
    title: str
    few: bool = False


@dataclass(frozen=True)
class ReliabilityChart:
    """Accuracy by confidence, and a histogram of the confidence.

    Attributes:
        frame: The drawing of the first.
        histogram: The drawing of the second.
        accuracy: A bar for each bin that has examples.
        confidence: Its mean confidence, as a short line at that height: x from, x to, y.
        counts: A bar of the number of examples for each bin.
        ticks: Shares, on both axes: of `x` for the horizontal one, of `y` for the vertical one.
    """

    frame: Frame
    histogram: Frame
    accuracy: tuple[Bar, ...]
    confidence: tuple[tuple[float, float, float], ...]
    counts: tuple[Bar, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]


def percent(share: float, digits: int = 1) -> str:
    """Returns a share as people read it: `97.4 %`, with a space that does not break.

    Only 1 is written as 100 %, and only 0 as 0 %: what would round to them is `> 99.9 %` or `< 0.1 %`.
    """
    least = 10.0**-digits
    text = f"{share * 100:.{digits}f}"
    if share < 1 and float(text) >= 100:
        text = f">\N{NO-BREAK SPACE}{100 - least:.{digits}f}"
    elif share > 0 and float(text) == 0:
        text = f"<\N{NO-BREAK SPACE}{least:.{digits}f}"
    return f"{text}\N{NO-BREAK SPACE}%"


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Returns about `count` round numbers, of which the first is at most `low` and the last at least `high`.

    They are 1, 2 or 5 times a power of ten apart.
    """
    if high <= low:
        high = low + (abs(low) or 1.0)
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [index * step for index in range(first, last + 1)]


def line_chart(
    epochs: Sequence[int],
    curves: Sequence[tuple[str, str, Sequence[float | None]]],
    *,
    as_percent: bool = False,
    kept: int | None = None,
) -> LineChart | None:
    """Lays out curves over epochs.

    Args:
        epochs: The epochs' numbers, rising.
        curves: Name, CSS class and values of each curve; a value that is None, NaN or infinite leaves a point out.
        as_percent: Write values as percentages; the axis then ends at 100 %.
        kept: The epoch whose weights were kept.

    Returns:
        The chart, or None if there is nothing to draw.
    """
    finite = [
        (name, style, [(epoch, value) for epoch, value in zip(epochs, values, strict=True)
                       if value is not None and math.isfinite(value)])
        for name, style, values in curves
    ]  # fmt: skip
    values = [value for _, _, points in finite for _, value in points]
    if not values:
        return None
    frame = Frame(500, 250)
    low, high = min(values), max(values)
    ticks = nice_ticks(low if as_percent else min(low, 0.0), high)
    if as_percent:
        ticks = [tick for tick in ticks if tick < 1 + 1e-9]
    bottom, top = ticks[0], ticks[-1]
    first, last = min(epochs), max(epochs)

    def place(epoch: int, value: float) -> tuple[float, float]:
        across = (epoch - first) / (last - first) if last > first else 0.5
        return frame.x(across), frame.y((value - bottom) / (top - bottom))

    digits = max(0, -math.floor(math.log10((ticks[1] - ticks[0]) * (100 if as_percent else 1)) + 1e-9))
    every = max(1, math.ceil((last - first) / 8))
    return LineChart(
        frame,
        tuple(Line(name, style, tuple(place(*point) for point in points)) for name, style, points in finite if points),
        tuple(Tick(place(epoch, 0)[0], str(epoch)) for epoch in range(first, last + 1, every)),
        tuple(Tick(place(first, t)[1], percent(t, digits) if as_percent else f"{t:.{digits}f}") for t in ticks),
        Tick(place(kept, 0)[0], str(kept)) if kept is not None and first <= kept <= last else None,
    )


def reliability_chart(bins: Sequence[CalibrationBin]) -> ReliabilityChart:
    """Lays out the reliability diagram of a classifier's confidence."""
    frame, histogram = Frame(500, 300), Frame(500, 300, top=22)
    shares = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    most = max(b.examples for b in bins)
    accuracy, confidence, counts = [], [], []
    for b in bins:
        left, width = frame.x(b.lower) + 1, frame.x(b.upper) - frame.x(b.lower) - 2
        height = histogram.plot_bottom - histogram.y(b.examples / most)
        span = f"confidence {percent(b.lower, 0)} to {percent(b.upper, 0)}: {b.examples:,} examples"
        counts.append(
            Bar(left, histogram.plot_bottom - height, width, height, f"{b.examples:,}" if b.examples else "", span)
        )
        if b.accuracy is None or b.confidence is None:
            continue
        top = frame.y(b.accuracy)
        title = f"{span}, {percent(b.accuracy)} right, mean confidence {percent(b.confidence)}"
        accuracy.append(Bar(left, top, width, frame.plot_bottom - top, "", title, b.examples < FEW_EXAMPLES))
        confidence.append((left - 1, left + width + 1, frame.y(b.confidence)))
    return ReliabilityChart(
        frame,
        histogram,
        tuple(accuracy),
        tuple(confidence),
        tuple(counts),
        tuple(Tick(frame.x(share), percent(share, 0)) for share in shares),
        tuple(Tick(frame.y(share), percent(share, 0)) for share in shares),
    )


def roc_chart(curve: RocCurve) -> LineChart:
    """Lays out a ROC curve."""
    frame = Frame(500, 300)
    shares = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    points = zip(curve.false_positive_rates, curve.true_positive_rates, strict=True)
    return LineChart(
        frame,
        (Line("ROC curve", "validation", tuple((frame.x(x), frame.y(y)) for x, y in points)),),
        tuple(Tick(frame.x(share), percent(share, 0)) for share in shares),
        tuple(Tick(frame.y(share), percent(share, 0)) for share in shares),
        None,
    )
