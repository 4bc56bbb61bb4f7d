"""Says what preflight is doing while it takes seconds or minutes, on standard error."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.live import Live
from rich.text import Text

from pipelines.live import PLAIN_PROGRESS_SECONDS


class Progress:
    """A line for each stage, with its seconds: one that moves on a terminal, elsewhere one each quarter of a minute.

    Args:
        console: Where to.
    """

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Shows a stage while the body runs."""
        start = time.monotonic()

        def line(sign: str = "▶") -> Text:
            return Text(f" {sign} {time.monotonic() - start:6.1f} s  {name}", style="dim")

        with self._moving(line) if self._console.is_terminal else self._repeated(line):
            yield
        self._console.print(line("✔"))

    @contextlib.contextmanager
    def _moving(self, line: Callable[[], Text]) -> Iterator[None]:
        with Live(get_renderable=line, console=self._console, refresh_per_second=4, transient=True):
            yield

    @contextlib.contextmanager
    def _repeated(self, line: Callable[[], Text]) -> Iterator[None]:
        ended = threading.Event()

        def repeat() -> None:
            while not ended.wait(PLAIN_PROGRESS_SECONDS):
                self._console.print(line())

        thread = threading.Thread(target=repeat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
