"""The search for the largest batch, over machines whose memory is a formula."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.preflight.search import LARGEST_BATCH, find_batch_size


def machine(peak, usable):
    """Returns a stand-in for the compiler: the report of a batch, from a formula of its memory."""

    def report(batch):
        taken = peak(batch)
        found = {"global_batch_size": batch, "verdict": "fits" if taken <= usable else "does not fit"}
        return found | (
            {"memory": {"peak": taken}, "usable_bytes": usable} if taken <= usable else {"needed_bytes": taken}
        )

    return report


def search(peak, usable, *, replicas=4, start=64, examples=None):
    return find_batch_size(machine(peak, usable), replicas=replicas, start=start, train_examples=examples)


def test_memory_in_a_line_is_found_in_a_few_tries():
    found = search(lambda batch: 1000 + 3 * batch, 40_000)  # 13,000 examples, of which 32 are tried at once
    assert found.largest == 12_992
    assert found.bounded == ""
    assert len(found.tries) <= 6
    assert found.predicted == found.largest


def test_every_batch_is_a_multiple_of_eight_a_replica_and_tried_once():
    found = search(lambda batch: 1000 + 3 * batch, 40_000, replicas=8)
    batches = [report["global_batch_size"] for report in found.tries]
    assert all(batch % 64 == 0 for batch in batches)
    assert len(set(batches)) == len(batches)


def test_nothing_fits():
    found = search(lambda batch: 10**9, 10)
    assert (found.largest, found.predicted) == (0, None)
    assert found.tries[-1]["global_batch_size"] == 32


def test_the_training_split_bounds_the_batch():
    found = search(lambda batch: batch, 10**9, examples=1000)
    assert found.largest == 992
    assert "training split" in found.bounded


def test_with_an_unknown_split_the_search_ends_too():
    found = search(lambda batch: 5, 10)
    assert found.largest == LARGEST_BATCH
    assert found.bounded


def test_a_split_that_fills_no_batch_is_not_tried():
    assert search(lambda batch: batch, 10, examples=31).tries == []


@given(
    usable=st.integers(1, 10**6),
    fixed=st.integers(0, 10**4),
    each=st.integers(1, 50),
    saving=st.integers(1, 10),
    start=st.integers(1, 10**5),
)
def test_the_largest_is_the_largest_whatever_the_memorys_form(usable, fixed, each, saving, start):
    def peak(batch):  # as where the compiler saves memory when there is little left: steps, and a bend
        taken = fixed + each * batch
        return taken if taken < usable * 0.8 else int(usable * 0.8 + (taken - usable * 0.8) / saving)

    found = search(peak, usable, start=start, examples=10**5)
    fits = itertools.takewhile(lambda batch: peak(batch) <= usable, range(32, 10**5 + 1, 32))
    assert found.largest == max(fits, default=0)
    assert len(found.tries) <= 30


def test_memory_that_does_not_grow_at_first_misleads_for_few_tries():
    found = search(
        lambda batch: max(500, batch), 50_000, start=192
    )  # as MNIST's on v5e-4, which takes 30 tries by line
    assert found.largest == 49_984
    assert len(found.tries) <= 8


@pytest.mark.parametrize("start", [1, 10**7])
def test_the_start_may_be_anything(start):
    assert search(lambda batch: batch, 1000, start=start, examples=5000).largest == 992


def test_a_step_that_does_not_compile_ends_it():
    refused = {"verdict": "does not compile", "sentence": "Where (model/x) makes ..."}
    found = find_batch_size(lambda batch: refused, replicas=4, start=64, train_examples=1000)
    assert (found.largest, found.tries) == (0, [refused])


def test_a_larger_batch_that_does_not_compile_bounds_it():
    fits = machine(lambda batch: batch, 10**9)

    def report(batch):
        too_large = {"verdict": "does not compile", "sentence": "Foo.", "global_batch_size": batch}
        return fits(batch) if batch <= 512 else too_large

    found = find_batch_size(report, replicas=4, start=128, train_examples=5000)
    assert (found.largest, found.bounded) == (512, "a larger one does not compile: Foo.")
