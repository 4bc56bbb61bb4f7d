"""The machines: names, replicas, what Vertex AI is asked for, and the figures of rates.yaml."""

import datetime
import io
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from google.cloud.aiplatform_v1.types import MachineSpec
from rich.console import Console

from components.errors import ConfigError
from pipelines import machines, rates
from pipelines.config import load
from pipelines.show import show_machines, show_plan

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def _our_rates(monkeypatch):
    monkeypatch.delenv(rates.OVERRIDE, raising=False)


@pytest.fixture
def override(tmp_path, monkeypatch):
    """A file of the user's, in force from here on."""

    def write(text):
        path = tmp_path / "mine.yaml"
        path.write_text(text, encoding="utf-8")
        monkeypatch.setenv(rates.OVERRIDE, str(path))
        return path

    return write


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


# By hand: a v2 chip's 16 GiB, 46 TFLOP/s and 700 GB/s are two cores'; a v5e chip is one core. The usable memory is what
# the compiler reserves off it: 530 MiB on v2 and v3, 258 MiB on v5e; on v6e it counts 31.5 GiB and reserves 260 MiB.
@pytest.mark.parametrize(
    ("name", "hbm", "usable", "flops", "bandwidth", "interconnect"),
    [
        ("v2-8", 8 * 2**30, (8192 - 530) * 2**20, 23e12, 350e9, 4 * 62e9),
        ("v3-8", 16 * 2**30, (16384 - 530) * 2**20, 61.5e12, 450e9, 4 * 82e9),
        ("v5e-1", 16 * 2**30, (16384 - 258) * 2**20, 197e12, 819e9, 200e9),
        ("v5e-8", 16 * 2**30, (16384 - 258) * 2**20, 197e12, 819e9, 200e9),
        ("v6e-4", 32 * 2**30, (32256 - 260) * 2**20, 918e12, 1638e9, 400e9),
        ("7x-4", 96 * 2**30, None, 1153.5e12, None, None),
        ("cpu-8", None, None, None, None, None),
    ],
)
def test_what_a_replica_has(name, hbm, usable, flops, bandwidth, interconnect):
    row = machines.MACHINES[name]
    assert (row.replica_hbm_bytes, row.replica_usable_hbm_bytes) == (hbm, usable)
    assert row.replica_peak_flops == (flops and pytest.approx(flops))
    assert row.replica_hbm_bandwidth == (bandwidth and pytest.approx(bandwidth))
    assert row.chip_interconnect == (interconnect and pytest.approx(interconnect))


@pytest.mark.parametrize(
    ("name", "topology", "bounds"),
    [
        ("v2-8", "v2:2x2", (2, 2, 1)),
        ("v3-8", "v3:2x2", (2, 2, 1)),
        ("v5e-1", "v5e:1x1", (1, 1, 1)),
        ("v5e-4", "v5e:2x2", (2, 2, 1)),
        ("v5e-8", "v5e:2x4", (2, 4, 1)),
        ("v6e-4", "v6e:2x2", (2, 2, 1)),
        ("v2-32", None, None),
        ("v5e-16", None, None),
        ("7x-4", None, None),
        ("cpu-8", None, None),
        ("gpu-1", None, None),
    ],
)
def test_what_the_compiler_calls_a_slice(name, topology, bounds):
    row = machines.MACHINES[name]
    assert (row.compiler_topology, row.chips_per_host_bounds) == (topology, bounds)


@pytest.mark.parametrize("name", machines.TPU_MACHINES)
def test_a_core_is_a_replica(name):
    row = machines.TPU_MACHINES[name]
    assert row.chips * row.family.cores_per_chip == row.replicas


def test_every_generation_has_figures_and_every_figure_its_day_and_source():
    current = rates.current()
    assert set(current.specs) == set(current.prices) == set(machines.GENERATIONS)
    figures = [figure for fields in current.specs.values() for figure in fields.values()]
    figures += [rate for regions in current.prices.values() for rate in regions.values()]
    assert all(figure.source and figure.date <= datetime.date.today() for figure in figures)
    assert not current.overridden
    assert machines.prices_as_of() == "2026-11-30"


PRICE = "{generation: v5e, region: us-west4, on_demand: 0.9, date: 2027-02-01, source: our contract}"


def test_a_users_price_replaces_ours_of_its_region_alone(override):
    path = override(f"prices: [{PRICE}]")
    machine = machines.find("v5e-4")
    assert machine.usd_per_hour("us-west4") == pytest.approx(3.60)
    assert machine.usd_per_hour("us-west4", "spot") is None  # the row has none: unknown, neither ours nor zero
    assert machine.usd_per_hour("us-central1", "spot") == pytest.approx(0.98)
    assert machine.usd_per_hour() == pytest.approx(3.60)
    assert machines.find("v3-8").usd_per_hour() == pytest.approx(8.00)
    assert machine.priced("us-west4") == "2027-02-01"
    assert machine.priced() == "2026-11-30 to 2027-02-01"
    assert machines.prices_as_of() == f"2026-11-30 to 2027-02-01, with the rows of {path}"


def test_a_users_figure_replaces_ours_field_by_field(override):
    override(
        "specs:\n"
        "- {generation: v5e, bf16_tflops_per_chip: 99.5, interconnect_gb_per_second: null, date: 2027-02-01, source: x}"
    )
    row = machines.find("v5e-4")
    assert row.replica_peak_flops == pytest.approx(99.5e12)
    assert row.chip_interconnect is None
    assert row.replica_hbm_bandwidth == pytest.approx(819e9)
    assert rates.current().specs["v5e"]["bf16_tflops_per_chip"].source == "x"


def test_our_own_file_is_in_the_form_that_a_users_has(override):
    override(rates.OURS.read_text(encoding="utf-8"))
    ours = rates._ours()
    assert (rates.current().specs, rates.current().prices) == (ours.specs, ours.prices)


def test_a_free_hour_is_zero_and_not_unknown(override):
    override("prices: [{generation: v3, region: us-central1, on_demand: 0, date: 2027-02-01, source: a grant}]")
    assert machines.find("v3-8").usd_per_hour("us-central1") == 0.0


def test_the_users_prices_are_what_is_shown(override):
    override(f"prices: [{PRICE}]")
    shown = io.StringIO()
    console = Console(file=shown, width=200)
    show_machines(console)
    show_plan(load(ROOT / "configs/mnist.yaml", ["vertex.regions=[us-west4]"]), console)
    words = " ".join(shown.getvalue().split())
    assert "v5e-4 ct5lp-hightpu-4t 2x2 4 4 64 788 3.60 0.98" in words
    assert "2026-11-30 to 2027-02-01, with the rows of " in words
    assert "at least 3.60 USD an hour (on-demand, 2027-02-01)" in words


ROW = {"generation": "v5e", "region": "us-west4", "on_demand": 0.9, "date": datetime.date(2027, 2, 1), "source": "us"}
CHIP = {"generation": "v5e", "date": datetime.date(2027, 2, 1), "source": "us"}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"prices": [{**ROW, "spot": -0.1}]}, r"row 1 of prices has spot -0.1, expected USD a chip hour, 0 or more"),
        ({"prices": [{**ROW, "spot": "0.1 USD"}]}, r"has spot '0.1 USD', expected USD"),
        ({"prices": [{**ROW, "spot": True}]}, r"has spot True, expected USD"),
        ({"prices": [{**ROW, "spot": float("nan")}]}, r"has spot nan, expected USD"),
        ({"prices": [{**ROW, "spots": 1}]}, r"has the unknown key 'spots', .* Did you mean 'spot'\?"),
        (
            {"prices": [{**ROW, "region": "us-west3"}]},
            r"has region 'us-west3', expected one of us-central1, .*us-west4",
        ),
        ({"prices": [{**ROW, "generation": "v5p"}]}, r"has generation 'v5p', expected one of v2, v3, v5e, v6e, 7x"),
        ({"prices": [{**ROW, "date": None}]}, r"has date None, expected the day"),
        ({"prices": [{**ROW, "date": "soon"}]}, r"has date 'soon', expected the day"),
        ({"prices": [{**ROW, "source": " "}]}, r"has source ' ', expected a text"),
        ({"prices": [{key: ROW[key] for key in ROW if key != "date"}]}, r"has no date, expected the day"),
        ({"prices": [{key: ROW[key] for key in ROW if key != "source"}]}, r"has no source, expected a text"),
        ({"prices": [{key: ROW[key] for key in ROW if key != "region"}]}, r"has no region, expected a text"),
        ({"prices": [ROW, ROW]}, r"row 2 of prices is of v5e us-west4, as is row 1; keep one of them"),
        ({"prices": ["v5e"]}, r"row 1 of prices is 'v5e', expected fields"),
        ({"prices": {"v5e": 1}}, r"prices is \{'v5e': 1\}, expected a list of rows"),
        (
            {"specs": [{**CHIP, "hbm_gib_per_chip": 0}]},
            r"row 1 of specs has hbm_gib_per_chip 0, expected a number above 0",
        ),
        ({"specs": [{**CHIP, "hbm_gib_per_chip": "16"}]}, r"has hbm_gib_per_chip '16', expected a number above 0"),
        ({"specs": [{**CHIP, "cores_per_chip": 2}]}, r"has cores_per_chip 2, expected 1: the machines' names"),
        ({"specs": [{**CHIP, "region": "us-west4"}]}, r"has the unknown key 'region'"),
        ({"specs": [{**CHIP, "generation": "v4"}]}, r"has generation 'v4', expected one of v2"),
        ({"price": [ROW]}, r"has price, expected specs and prices"),
        ([], r"has no sections, expected specs and prices"),
        (None, r"has no sections"),
    ],
)
def test_what_is_no_rate_is_refused_naming_file_row_and_what_is_expected(override, content, sentence):
    path = override(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match=sentence) as caught:
        rates.current()
    assert str(path) in str(caught.value)


def test_a_file_that_can_not_be_read_is_named_with_the_variable(override, tmp_path, monkeypatch):
    override("prices: [")
    with pytest.raises(ConfigError, match=r"TPU_PIPELINES_RATES is '.*mine.yaml', which is no YAML"):
        rates.current()
    monkeypatch.setenv(rates.OVERRIDE, str(tmp_path / "nowhere.yaml"))
    with pytest.raises(ConfigError, match=r"TPU_PIPELINES_RATES is '.*nowhere.yaml', which can't be read .*rates.yaml"):
        rates.current()


@pytest.mark.parametrize("words", [["machines"], ["check", "configs/mnist.yaml"]], ids=lambda words: words[0])
def test_a_wrong_rates_file_is_the_users_fault_and_a_sentence(override, words):
    override("prices: [{generation: v5e}]")
    command = [str(Path(sys.executable).with_name("tpu-pipelines")), *words]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert result.returncode == 2
    assert "row 1 of prices has no region, expected a text." in result.stderr
    assert "Traceback" not in result.stderr
