"""How long a step takes at best, and what a run costs at least: a roofline over the compiled program.

Williams, Waterman & Patterson, "Roofline: an insightful visual performance model for multicore architectures", CACM
2009: a program takes as long as its arithmetic at the peak rate, or its memory traffic at the full bandwidth, whichever
is longer. Everything here is a bound, not a measurement: docs/preflight.md has the formulas.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from components.preflight.hlo import Collective, Costs
from components.preflight.slices import Slice

# The chips of one host are a mesh without wrap-around, 2x2 or 2x4: a chip at its corner has two of its four links.
CORNER_LINKS = 2 / 4


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Bounds of one step of one replica, and of a run. None is unknown.

    Attributes:
        compute_seconds: The step's multiply-adds at the peak rate.
        memory_seconds: Its bytes of memory traffic at the full bandwidth.
        all_reduce_seconds: Its sums over the replicas, on the interconnect.
        step_seconds: The longer of the first two, then the third.
        examples_per_second: Over all replicas.
        mfu_bound: Share of the peak rate that the step reaches at best (model FLOPs utilisation), from 0 to 1.
        steps: Optimizer steps of the run.
        hours: Of all steps; without the start, input that lags behind, validation and checkpoints.
        usd: Of those hours.
        usd_per_epoch: Of one epoch.
    """

    compute_seconds: float | None = None
    memory_seconds: float | None = None
    all_reduce_seconds: float | None = None
    step_seconds: float | None = None
    examples_per_second: float | None = None
    mfu_bound: float | None = None
    steps: int | None = None
    hours: float | None = None
    usd: float | None = None
    usd_per_epoch: float | None = None


def estimate(
    costs: Costs, slice_: Slice, *, global_batch_size: int, epochs: int, train_examples: int | None
) -> Estimate:
    """Returns the bounds of a program on a slice.

    Args:
        costs: What the program does in one step of one replica.
        slice_: The slice.
        global_batch_size: Examples of one step, over all replicas.
        epochs: Passes over the training split.
        train_examples: Examples of the training split.
    """
    compute = _over(costs.flops, slice_.peak_flops)
    memory = _over(costs.hbm_bytes, slice_.hbm_bandwidth)
    summing = all_reduce_seconds(costs.collectives, slice_)
    step = _step(compute, memory, summing)
    steps_per_epoch = None if train_examples is None else train_examples // global_batch_size
    epoch_hours = _times(step, steps_per_epoch, 1 / 3600)
    return Estimate(
        compute_seconds=compute,
        memory_seconds=memory,
        all_reduce_seconds=summing,
        step_seconds=step,
        examples_per_second=_over(global_batch_size, step),
        mfu_bound=_over(compute, step),
        steps=None if steps_per_epoch is None else steps_per_epoch * epochs,
        hours=_times(epoch_hours, epochs),
        usd=_times(epoch_hours, epochs, slice_.usd_per_hour),
        usd_per_epoch=_times(epoch_hours, slice_.usd_per_hour),
    )


def all_reduce_seconds(collectives: Sequence[Collective], slice_: Slice) -> float | None:
    """Returns the time that the replicas' sums take on the interconnect; 0 on one chip, None where its rate is unknown.

    An all-reduce of b bytes over c chips sends at least 2 (c - 1) / c * b from each (Patarasuk & Yuan, "Bandwidth
    optimal all-reduce algorithms for clusters of workstations", 2009). The cores of one chip first add up in its own
    memory, whose time is left out.
    """
    chips = slice_.chips
    # What is not added up on every replica, as a gathering, is sent once at most.
    sent = sum((1 + (c.kind == "all-reduce")) * (chips - 1) / chips * c.bytes for c in collectives)
    return 0.0 if not sent else _over(sent, _times(slice_.interconnect, CORNER_LINKS))


def _step(compute: float | None, memory: float | None, summing: float | None) -> float | None:
    return None if compute is None or memory is None or summing is None else max(compute, memory) + summing


def _over(amount: float | None, rate: float | None) -> float | None:
    return None if amount is None or not rate else amount / rate


def _times(*factors: float | None) -> float | None:
    result = 1.0
    for factor in factors:
        if factor is None:
            return None
        result *= factor
    return result
