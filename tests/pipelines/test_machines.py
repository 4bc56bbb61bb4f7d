"""The machines: names, replicas, and what Vertex AI is asked for."""

import pytest
from google.cloud.aiplatform_v1.types import MachineSpec

from components.errors import ConfigError
from pipelines import machines


@pytest.mark.parametrize(
    ("name", "replicas", "spec", "usd"),
    [
        ("v2-8", 8, {"machine_type": "cloud-tpu", "accelerator_type": "TPU_V2", "accelerator_count": 8}, 4.50),
        ("v3-8", 8, {"machine_type": "cloud-tpu", "accelerator_type": "TPU_V3", "accelerator_count": 8}, 8.00),
        ("v5e-1", 1, {"machine_type": "ct5lp-hightpu-1t", "tpu_topology": "1x1"}, 1.20),
        ("v5e-4", 4, {"machine_type": "ct5lp-hightpu-4t", "tpu_topology": "2x2"}, 4.80),
        ("v5e-8", 8, {"machine_type": "ct5lp-hightpu-8t", "tpu_topology": "2x4"}, 9.60),
        ("v6e-1", 1, {"machine_type": "ct6e-standard-1t", "tpu_topology": "1x1"}, 2.70),
        ("v6e-4", 4, {"machine_type": "ct6e-standard-4t", "tpu_topology": "2x2"}, 10.80),
        ("v6e-8", 8, {"machine_type": "ct6e-standard-8t", "tpu_topology": "2x4"}, 21.60),
    ],
)
def test_a_slice_and_what_asks_for_it(name, replicas, spec, usd):
    machine = machines.find(name, allow_unverified=True)
    assert machine.replicas == replicas
    assert machine.spec() == spec
    assert MachineSpec(machine.spec()).machine_type == spec["machine_type"]  # refuses a field or enum it doesn't know
    assert machine.usd_per_hour() == pytest.approx(usd)


@pytest.mark.parametrize("name", ["cpu-8", "gpu-2"])
def test_a_machine_of_ones_own_costs_nothing(name):
    assert machines.find(name).usd_per_hour() == 0.0


@pytest.mark.parametrize(
    ("name", "hosts", "chips", "machine_type"),
    [
        ("v2-32", 4, 16, "cloud-tpu"),
        ("v3-32", 4, 16, "cloud-tpu"),
        ("v5e-16", 4, 16, "ct5lp-hightpu-4t"),
        ("v5e-256", 64, 256, "ct5lp-hightpu-4t"),
        ("v6e-16", 4, 16, "ct6e-standard-4t"),
        ("7x-8", 2, 8, "tpu7x-standard-4t"),
        ("7x-1024", 256, 1024, "tpu7x-standard-4t"),
    ],
)
def test_slices_of_several_hosts_are_known_and_refused(name, hosts, chips, machine_type):
    row = machines.TPU_MACHINES[name]
    assert (row.hosts, row.chips, row.machine_type) == (hosts, chips, machine_type)
    with pytest.raises(ConfigError, match=f"{name!r}, but .*v5e-4"):
        machines.find(name, allow_unverified=True)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("v6e-4", "TensorFlow is not supported from v6e on.*allow_unverified"),
        ("7x-4", "Python 3.12 and JAX"),
        ("v5e-16", "4 hosts"),
        ("v4-8", "does not offer v4"),
        ("v5p-8", "does not offer v4 and v5p"),
        ("cpu-3", "expected one of cpu-1"),
        ("v5e4", "Did you mean 'v5e-4'"),
        ("", "expected one of"),
    ],
)
def test_what_can_not_be_had_is_refused_with_the_reason_and_the_valid_names(name, reason):
    with pytest.raises(ConfigError, match=reason) as caught:
        machines.find(name)
    assert "v5e-4" in str(caught.value)


@pytest.mark.parametrize("name", ["v2-8", "v6e-16", "7x-4"])
def test_only_what_the_pages_leave_open_is_let_through_unverified(name):
    row = machines.TPU_MACHINES[name]
    assert not row.unverified


# Every row with every capacity: whether it can be had so, worked out from FACTS: spot for one host, flex-start for GPUs
# alone, reservations (preview) where a slice is asked for by topology.
@pytest.mark.parametrize("capacity", ["on-demand", "spot", "flex-start", "reservation"])
@pytest.mark.parametrize("name", machines.TPU_MACHINES)
def test_every_row_with_every_capacity(name, capacity):
    generation, several_hosts = name.split("-")[0], int(name.split("-")[1]) > 8 or name == "7x-8"
    granted = {
        "on-demand": True,
        "spot": not several_hosts,
        "flex-start": False,
        "reservation": generation in ("v5e", "v6e", "7x"),
    }[capacity]
    row = machines.TPU_MACHINES[name]
    reservation = "projects/p/zones/us-central1-a/reservations/r" if capacity == "reservation" else ""
    order = (row, ("us-central1",), capacity, reservation)
    if not granted:
        with pytest.raises(ConfigError, match=f"vertex.capacity is '{capacity}', but .* can be had as on-demand"):
            machines.check_order(*order)
        return
    machines.check_order(*order)
    spec = row.spec(reservation)
    assert ("tpu_topology" in spec) != ("accelerator_type" in spec)
    assert ("reservation_affinity" in spec) == (capacity == "reservation")
    assert MachineSpec(spec)


@pytest.mark.parametrize(
    ("name", "region", "granted"),
    [
        ("v5e-4", "us-west4", True),
        ("v5e-4", "europe-west4", False),  # serves there, does not train
        ("v5e-4", "us-south1", False),
        ("v3-8", "europe-west4", True),
        ("v3-8", "us-east1", False),
        ("v2-8", "asia-east1", True),
        ("v2-8", "eu", False),
        ("cpu-8", "europe-north1", True),
    ],
)
def test_a_region_has_the_machine_or_is_refused(name, region, granted):
    row = machines.MACHINES[name]
    if granted:
        machines.check_order(row, (region,), "on-demand", "")
    else:
        with pytest.raises(ConfigError, match=f"'{region}', where Vertex AI does not train on {name}; it does in "):
            machines.check_order(row, (row.regions[0], region), "on-demand", "")


@pytest.mark.parametrize(
    ("capacity", "reservation"), [("reservation", ""), ("on-demand", "projects/p/zones/z/reservations/r")]
)
def test_a_reservation_and_its_name_go_together(capacity, reservation):
    with pytest.raises(ConfigError, match=r"vertex.reservation"):
        machines.check_order(machines.find("v5e-4"), ("us-central1",), capacity, reservation)


def test_prices_by_region_and_capacity():
    machine = machines.find("v3-8")
    assert machine.usd_per_hour("europe-west4") == pytest.approx(8.80)
    assert machine.usd_per_hour("us-central1", "spot") == pytest.approx(2.04)
    assert machines.TPU_MACHINES["7x-4"].usd_per_hour() is None


def test_v5e_and_later_reach_the_tpu_through_pjrt():
    assert machines.GENERATIONS["v5e"].environment == {
        "NEXT_PLUGGABLE_DEVICE_USE_C_API": "true",
        "TF_PLUGGABLE_DEVICE_LIBRARY_PATH": "/lib/libtpu.so",
    }
    assert machines.GENERATIONS["v3"].environment == {}


@pytest.mark.parametrize("regions", [("us-east1",), ("us-central1", "us-east1")])
def test_a_reservation_serves_its_own_region(regions):
    with pytest.raises(ConfigError, match=r"vertex.reservation is in us-central1"):
        machines.check_order(
            machines.find("v5e-4"), regions, "reservation", "projects/p/zones/us-central1-a/reservations/r"
        )
