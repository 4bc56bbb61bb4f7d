"""The roofline's bounds, against figures worked out by hand."""

import pytest

from components.preflight.estimate import estimate
from components.preflight.hlo import Collective, Costs
from components.preflight.slices import Slice

SLICE = Slice(
    name="v5e-4",
    topology="v5e:2x2",
    host_bounds=(2, 2, 1),
    replicas=4,
    chips=4,
    usable_bytes=10**10,
    peak_flops=200e12,
    hbm_bandwidth=800e9,
    interconnect=400e9,
    usd_per_hour=4.8,
)


def bounds(*, flops=2 * 10**12, hbm_bytes=4 * 10**9, summed=10**9, slice_=SLICE, examples=72_000):
    collectives = (Collective("all-reduce", summed, 4),) if summed else ()
    costs = Costs(flops=flops, hbm_bytes=hbm_bytes, collectives=collectives)
    return estimate(costs, slice_, global_batch_size=200, epochs=5, train_examples=examples)


def test_a_step_that_computes_longer_than_it_moves_data():
    found = bounds()
    assert found.compute_seconds == pytest.approx(0.010)  # 2e12 / 200e12
    assert found.memory_seconds == pytest.approx(0.005)  # 4e9 / 800e9
    assert found.all_reduce_seconds == pytest.approx(0.0075)  # 2 * 3/4 * 1e9 / (400e9 / 2)
    assert found.step_seconds == pytest.approx(0.0175)
    assert found.examples_per_second == pytest.approx(200 / 0.0175)
    assert found.mfu_bound == pytest.approx(0.010 / 0.0175)
    assert found.steps == 1800  # 360 an epoch
    assert found.hours == pytest.approx(1800 * 0.0175 / 3600)
    assert found.usd == pytest.approx(4.8 * 1800 * 0.0175 / 3600)
    assert found.usd_per_epoch == pytest.approx(found.usd / 5)


def test_a_step_that_waits_for_memory():
    found = bounds(flops=10**9)
    assert found.step_seconds == pytest.approx(0.005 + 0.0075)
    assert found.mfu_bound == pytest.approx(5e-6 / 0.0125)


def test_the_cores_of_one_chip_need_no_interconnect():
    single = Slice(**{**vars(SLICE), "name": "v5e-1", "chips": 1, "interconnect": None})
    assert bounds(slice_=single).all_reduce_seconds == 0


@pytest.mark.parametrize("unknown", ["peak_flops", "hbm_bandwidth", "interconnect"])
def test_what_follows_from_an_unknown_rate_is_unknown(unknown):
    found = bounds(slice_=Slice(**{**vars(SLICE), unknown: None}))
    assert (found.step_seconds, found.hours, found.usd) == (None, None, None)
    assert found.steps == 1800


def test_an_unknown_price_or_number_of_examples_is_not_zero():
    assert bounds(slice_=Slice(**{**vars(SLICE), "usd_per_hour": None})).usd is None
    found = bounds(examples=None)
    assert (found.steps, found.hours, found.usd, found.usd_per_epoch) == (None, None, None, None)
    assert found.step_seconds == pytest.approx(0.0175)


def test_a_slice_is_the_same_after_a_pipelines_floats():
    floats = {"replicas": 4.0, "chips": 4.0, "host_bounds": [2.0, 2.0, 1.0], "usable_bytes": 1e10}
    assert Slice.from_json({**vars(SLICE), **floats}) == SLICE
