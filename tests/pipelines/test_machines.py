"""The machines: names, replicas and the figures that follow from a row."""

import pytest

from components.errors import ConfigError
from pipelines import machines


@pytest.mark.parametrize(
    ("name", "replicas", "machine_type", "topology", "accelerator", "usd"),
    [
        ("v2-8", 8, "cloud-tpu", "", "TPU_V2", 4.50),
        ("v3-8", 8, "cloud-tpu", "", "TPU_V3", 8.00),
        ("v5e-1", 1, "ct5lp-hightpu-1t", "1x1", "", 1.20),
        ("v5e-4", 4, "ct5lp-hightpu-4t", "2x2", "", 4.80),
        ("v5e-8", 8, "ct5lp-hightpu-8t", "2x4", "", 9.60),
        ("cpu-8", 8, "", "", "", 0.0),
        ("gpu-2", 2, "", "", "", 0.0),
    ],
)
def test_a_row(name, replicas, machine_type, topology, accelerator, usd):
    machine = machines.find(name)
    assert (machine.replicas, machine.machine_type, machine.topology) == (replicas, machine_type, topology)
    assert machine.accelerator == accelerator
    assert machine.usd_per_hour == pytest.approx(usd)


def test_a_tpu_is_asked_for_by_topology_or_by_accelerator_never_both():
    for machine in machines.TPU_MACHINES.values():
        assert bool(machine.topology) != bool(machine.accelerator), machine.name


@pytest.mark.parametrize("name", ["v6e-1", "v6e-4", "v6e-8", "v4-8", "v5e-16", "v5p-8", "cpu-3", ""])
def test_what_can_not_be_had_is_refused_with_the_valid_names(name):
    with pytest.raises(ConfigError, match="v5e-4"):
        machines.find(name)
