"""Numbers in the place of the long random ones that Vertex gives its resources; the same in every run."""

import itertools
import threading


class Ids:
    """Gives out numbers of 19 digits."""

    def __init__(self) -> None:
        self._counter, self._lock = itertools.count(1), threading.Lock()

    def new(self) -> str:
        with self._lock:
            return str(1_000_000_000_000_000_000 + 7_919_000_000_007 * next(self._counter))
