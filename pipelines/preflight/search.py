"""The largest global batch whose step fits a machine."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from components.preflight.rows import FITS, REFUSED
from pipelines.preflight.cache import Report

# Examples a replica: a TPU pads the batch to a multiple of eight (https://docs.cloud.google.com/tpu/docs/performance-guide).
REPLICA_STEP = 8
# Where the size of the training split isn't known.
LARGEST_BATCH = 1 << 20
# The next try is at most so many times the largest batch that fits: the time to compile grows with what doesn't.
FASTEST = 8


@dataclass
class Search:
    """A search's tries, in the order they were made, and what came of it.

    Attributes:
        step: Examples between two batches that are tried: 8 for each replica.
        tries: The report of each batch that was tried.
        largest: The largest batch that fits; 0 for none.
        bounded: Why the search ended where it did, if that was not the memory.
    """

    step: int
    tries: list[Report] = field(default_factory=list)
    largest: int = 0
    bounded: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns it as JSON."""
        return {
            "largest_global_batch_size": self.largest,
            "step": self.step,
            "predicted": self.predicted,
            "bounded": self.bounded,
            "tries": self.tries,
        }

    @property
    def fitting(self) -> list[Report]:
        """The tries that fit, the largest batch last."""
        return sorted((r for r in self.tries if r["verdict"] == FITS), key=lambda report: report["global_batch_size"])

    @property
    def predicted(self) -> int | None:
        """The largest batch that fits by the reports alone: the line through the two largest that fit, to the memory.

        None where fewer than two fit, or their memory does not grow.
        """
        if len(self.fitting) < 2:
            return None
        one, two = self.fitting[-2:]
        grown = two["memory"]["peak"] - one["memory"]["peak"]
        if grown <= 0 or two["usable_bytes"] is None:
            return None
        per_step = grown / ((two["global_batch_size"] - one["global_batch_size"]) / self.step)
        more = int((two["usable_bytes"] - two["memory"]["peak"]) / per_step)
        return int(two["global_batch_size"]) + more * self.step


def find_batch_size(
    report: Callable[[int], Report], *, replicas: int, start: int, train_examples: int | None
) -> Search:
    """Finds the largest global batch whose step fits.

    Memory grows with the batch nearly in a line, so a try is where a line meets the memory there is; where that did not
    halve what is left to search (the compiler saves memory where it is short, so the line has bends), the next is in
    the middle.

    Args:
        report: Returns the report of a global batch.
        replicas: Replicas of the machine.
        start: The batch to try first.
        train_examples: Examples of the training split; None where that is unknown. A larger batch has no step.

    Returns:
        The search. It ends at once where the step does not compile for another reason than its memory.
    """
    step = REPLICA_STEP * replicas
    search, whole = Search(step), (LARGEST_BATCH if train_examples is None else train_examples) // step
    fits: Report | None = None
    fails: Report | None = None
    low, high, believe, guess = 0, whole + 1, True, start // step
    while high - low > 1:
        guess = min(max(guess, low + 1), high - 1)
        found, before = report(guess * step), high - low
        search.tries.append(found)
        if found["verdict"] == REFUSED and fits is None:  # no batch mends that
            return search
        if found["verdict"] == FITS:
            low, fits = guess, found
        else:
            high, fails = guess, found
        search.largest = low * step
        believe = high - low <= before / 2 or not believe
        if fails is None:
            guess = min((search.predicted or 2 * low * step) // step, FASTEST * low)
        elif fits and believe and found["verdict"] != REFUSED and (line := _between(fits, fails)):
            guess = line // step
        else:
            guess = (low + high) // 2
    if fails and fails["verdict"] == REFUSED:
        search.bounded = f"a larger one does not compile: {fails['sentence']}"
    elif whole and low == whole:
        what = (
            f"{LARGEST_BATCH:,}, the most that is tried,"
            if train_examples is None
            else "the size of the training split,"
        )
        search.bounded = f"limited by {what} not by memory"
    return search


def _between(fits: Report, fails: Report) -> int | None:
    """Returns the batch where a line between a report that fits and one that doesn't meets the memory there is."""
    low, high, taken = fits["global_batch_size"], fails["global_batch_size"], fits["memory"]["peak"]
    needed, usable = fails.get("needed_bytes"), fits["usable_bytes"]
    if needed is None or usable is None or needed <= usable:
        return None
    return int(low + (high - low) * (usable - taken) / (needed - taken))
