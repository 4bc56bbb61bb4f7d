"""Shows a run while it goes: a line per step."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

# Between two lines of progress where the output is no terminal.
PLAIN_PROGRESS_SECONDS = 15.0


@dataclass
class StepView:
    """What is known of a step while the pipeline runs."""

    state: str = "WAITING"
    started: float = 0.0
    seconds: float = 0.0
    message: str = ""


@contextlib.contextmanager
def display(steps: Mapping[str, StepView], console: Console) -> Iterator[Callable[[str | None], None]]:
    """Shows the run live: a line per step that moves on a terminal, lines that follow each other elsewhere."""
    if console.is_terminal:
        with Live(get_renderable=lambda: _lines(steps), console=console, refresh_per_second=4):
            yield lambda changed: None
        return
    shown, width = 0.0, _width(steps)

    def show(changed: str | None) -> None:
        nonlocal shown
        now = time.monotonic()
        running = next((name for name, step in steps.items() if step.state == "RUNNING"), None)
        if changed:
            console.print(_line(changed, steps[changed], width))
        elif running and now - shown >= PLAIN_PROGRESS_SECONDS:
            console.print(_line(running, steps[running], width))
        else:
            return
        shown = now

    yield show


def _lines(steps: Mapping[str, StepView]) -> Group:
    return Group(*(_line(name, step, _width(steps)) for name, step in steps.items()))


def _width(steps: Mapping[str, StepView]) -> int:
    return max(map(len, steps), default=0)


STYLES = {
    "WAITING": ("·", "dim"),
    "RUNNING": ("▶", "cyan"),
    "SUCCEEDED": ("✔", "green"),
    "CACHED": ("✔", "green"),
    "SKIPPED": ("-", "dim"),
    "FAILED": ("✘", "red"),
    "REJECTED": ("✘", "yellow"),
    "INTERRUPTED": ("■", "yellow"),
    "CANCELLED": ("■", "yellow"),
}


def step_style(state: str) -> str:
    """Returns the colour of a step's or run's state."""
    return STYLES[state][1]


def _line(name: str, step: StepView, width: int) -> Text:
    """Returns a step's line: sign, name, seconds, newest message, cut to the width of the terminal."""
    sign, style = STYLES[step.state]
    seconds = time.monotonic() - step.started if step.state == "RUNNING" else step.seconds
    time_text = f"{seconds:6.1f} s" if seconds else " " * 8
    text = Text(no_wrap=True, overflow="ellipsis")
    return text.append(f" {sign} {name:<{width}}", style).append(f"{time_text}  ", "dim").append(step.message)
