"""How a report reads: units, small and large figures, and what isn't known."""

import pytest

from components.preflight import rows


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (rows.gib, 16126 * 2**20, "15.75 GiB"),
        (rows.gib, 13 * 2**20, "13.0 MiB"),
        (rows.gib, None, "?"),
        (rows.seconds, 0.00731, "7.31 ms"),
        (rows.seconds, 1.38e-5, "13.8 µs"),
        (rows.seconds, 2.5, "2.5 s"),
        (rows.seconds, 0, "0 µs"),
        (rows.hours, 2.0666, "2 h 04 min"),
        (rows.hours, 0.001, "3.6 s"),
        (rows.hours, None, "?"),
        (rows.usd, 12.5, "12.50 USD"),
        (rows.usd, 0.0032, "0.0032 USD"),
        (rows.usd, 2.9e-7, "< 0.0001 USD"),
        (rows.usd, 0, "0 USD"),
        (rows.usd, None, "? USD"),
    ],
)
def test_a_figure(function, value, text):
    assert function(value) == text


def test_an_amount_has_a_prefix():
    assert [rows.scaled(amount, "B") for amount in (0, 999, 1.53e9, 2e18)] == ["0 B", "999 B", "1.53 GB", "2e+03 PB"]


def test_a_report_without_counts_says_nothing_of_work():
    unknown = dict.fromkeys(
        (
            *("compute_seconds", "memory_seconds", "all_reduce_seconds", "step_seconds", "examples_per_second"),
            *("mfu_bound", "steps", "hours", "usd", "usd_per_epoch"),
        )
    )
    memory = {"arguments": 1, "outputs": 1, "aliases": 1, "temporaries": 1, "code": 1, "peak": 3}
    report = {
        "memory": memory,
        "usable_bytes": None,
        "parameters": 1,
        "work": None,
        "estimate": unknown,
        "padding": 0.5,
    }
    lines = [" ".join(row) for section in rows.sections(report) for row in section]
    assert not any("matrix products" in line for line in lines)
    assert "step, at best ? ? examples/s, MFU at most ?" in lines
    assert "padding 50% of the tokens: work that no example needs" in lines
