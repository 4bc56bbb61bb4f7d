"""The machines a training step can run on: one row each, with the source of its figures.

Sources (read 2026-11-30): TPU machine types, topologies and regions from Vertex AI's "Configure compute resources for
serverless training" and "Locations"; spot and flex-start rules from its "Use Spot VMs" and "Schedule training jobs
based on resource availability"; memory and peak rates from Cloud TPU's page of each generation; prices from Cloud
TPU's list as collected by the SkyPilot catalog, in USD. Vertex AI adds a management fee that its pages don't state, so
a price here is a lower bound. None of these machines has been used by this project: see docs/machines.md.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from components.errors import ConfigError, did_you_mean

PRICES_AS_OF = "2026-11-30"

Device = Literal["cpu", "gpu", "tpu"]
Capacity = Literal["on-demand", "spot", "flex-start", "reservation"]


@dataclass(frozen=True)
class Rate:
    """List price of a chip hour in USD; None where no source was found."""

    on_demand: float | None = None
    spot: float | None = None


@dataclass(frozen=True)
class Generation:
    """What the slices of one TPU generation share.

    Attributes:
        cores_per_chip: TensorCores of a chip, each a replica.
        hbm_gib_per_chip: High-bandwidth memory of a chip, in GiB; None where no source was found.
        bf16_tflops_per_chip: Peak rate of a chip, in 10^12 bfloat16 operations a second; None likewise.
        rates: Where Vertex AI trains on it, and what a chip hour costs there.
        refusal: Why TensorFlow training is refused, or an empty string.
        unverified: Whether `machine.allow_unverified` may lift the refusal.
        takes_reservations: Whether a reservation can be named for it.
        environment: What the TPU runtime needs in the container.
    """

    cores_per_chip: int
    hbm_gib_per_chip: int | None
    bf16_tflops_per_chip: float | None
    rates: Mapping[str, Rate]
    refusal: str = ""
    unverified: bool = False
    takes_reservations: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def regions(self) -> tuple[str, ...]:
        """Where Vertex AI trains on it."""
        return tuple(self.rates)


# TensorFlow reaches v5e and later through the PJRT plug-in, v2 and v3 through the older runtime. The TPU image has
# libtpu at this path ("You must save libtpu.so in /lib": Vertex AI's "Train with a TPU VM").
_PJRT = {"NEXT_PLUGGABLE_DEVICE_USE_C_API": "true", "TF_PLUGGABLE_DEVICE_LIBRARY_PATH": "/lib/libtpu.so"}

GENERATIONS = {
    "v2": Generation(
        2,
        None,
        None,
        {
            "us-central1": Rate(1.125, 0.3375),
            "europe-west4": Rate(1.2375, 0.315),
            "asia-east1": Rate(1.305, 0.3925),
        },
        takes_reservations=False,
    ),
    "v3": Generation(
        2,
        32,
        123,
        {"us-central1": Rate(2.00, 0.51), "europe-west4": Rate(2.20, 0.56)},
        takes_reservations=False,
    ),
    "v5e": Generation(
        1,
        16,
        197,
        {
            "us-central1": Rate(1.20, 0.245),
            "us-east1": Rate(1.20, 0.245),
            "us-west1": Rate(1.20, 0.245),
            "us-west4": Rate(1.20, 0.48),
        },
        environment=_PJRT,
    ),
    "v6e": Generation(
        1,
        32,
        918,
        {
            "us-central1": Rate(2.70, 0.544),
            "us-east1": Rate(2.70, 0.544),
            "us-east5": Rate(2.70, 1.215),
            "us-south1": Rate(),
            "europe-west4": Rate(2.97, 1.04),
            "asia-northeast1": Rate(3.24, 0.94),
            "southamerica-west1": Rate(),
        },
        refusal="Vertex AI's pages say that TensorFlow is not supported from v6e on",
        unverified=True,
        environment=_PJRT,
    ),
    "7x": Generation(
        2,
        None,
        None,
        {"us-central1": Rate()},
        refusal="TPU7x needs Python 3.12 and JAX: TensorFlow has no runtime for it",
    ),
}


@dataclass(frozen=True)
class Machine:
    """One machine, by the name that `machine.name` takes.

    Attributes:
        name: The name, such as `v5e-4` or `cpu-8`.
        device: What the replicas are.
        replicas: How many replicas the distribution strategy has there.
        machine_type: Vertex AI's name of the machine, empty for machines that only run locally.
        chips: TPU chips.
        hosts: Virtual machines of the slice.
        topology: `machine_spec.tpu_topology`, where the machine is asked for by topology.
        accelerator: `machine_spec.accelerator_type`, where it is asked for by type and count.
        generation: Its key in `GENERATIONS`.
    """

    name: str
    device: Device
    replicas: int
    machine_type: str = ""
    chips: int = 0
    hosts: int = 1
    topology: str = ""
    accelerator: str = ""
    generation: str = ""

    @property
    def family(self) -> Generation | None:
        """What its generation's machines share; None for a CPU or GPU."""
        return GENERATIONS.get(self.generation)

    @property
    def regions(self) -> tuple[str, ...]:
        """Where Vertex AI trains on it; empty for a CPU or GPU, which are everywhere."""
        return self.family.regions if self.family else ()

    @property
    def refusal(self) -> str:
        """Why TensorFlow can't train there, or an empty string."""
        if self.family and self.family.refusal:
            return self.family.refusal
        if self.hosts > 1:
            return f"its {self.hosts} hosts would each need a TensorFlow worker, which this project does not start"
        return ""

    @property
    def unverified(self) -> bool:
        """Whether `machine.allow_unverified` lets it through although it is refused."""
        return bool(self.family and self.family.unverified and self.hosts == 1)

    def usd_per_hour(self, region: str = "", capacity: Capacity = "on-demand") -> float | None:
        """Returns the list price of an hour.

        Args:
            region: Where; empty for the cheapest region.
            capacity: How the machine is paid for; a reservation costs what on-demand does.

        Returns:
            USD, or None where no source was found. A machine that isn't a TPU costs nothing here.
        """
        if self.family is None:
            return 0.0
        rates = [self.family.rates[region]] if region else self.family.rates.values()
        prices = [rate.spot if capacity == "spot" else rate.on_demand for rate in rates]
        known = [price for price in prices if price is not None]
        return min(known) * self.chips if known else None

    def capacity_refusal(self, capacity: Capacity) -> str:
        """Returns why the machine can't be had with this capacity, or an empty string."""
        if self.device != "tpu":
            return ""  # the wish waits for a TPU: a run is rehearsed on a CPU with the settings that it will have
        match capacity:
            case "spot" if self.hosts > 1:
                return f"{self.name} has {self.hosts} hosts, and Vertex AI gives spot capacity to single hosts only"
            case "flex-start":
                return "Vertex AI documents flex-start for GPUs only"
            case "reservation" if self.family and not self.family.takes_reservations:
                return f"no page of Vertex AI names reservations for TPU {self.generation}"
            case _:
                return ""

    def capacities(self) -> tuple[Capacity, ...]:
        """Returns how the machine can be had."""
        every: tuple[Capacity, ...] = ("on-demand", "spot", "flex-start", "reservation")
        return tuple(capacity for capacity in every if not self.capacity_refusal(capacity))

    def spec(self, reservation: str = "") -> dict[str, Any]:
        """Returns the `machine_spec` that asks Vertex AI for this TPU.

        Args:
            reservation: Full resource name of the reservation to take it from, or empty.

        Returns:
            The message as `aiplatform_v1.MachineSpec` reads it: v2 and v3 by accelerator type and count of cores, later
            generations by topology and nothing else.
        """
        assert self.device == "tpu", f"{self.name} is no TPU"
        spec: dict[str, Any] = {"machine_type": self.machine_type}
        if self.topology:
            spec["tpu_topology"] = self.topology
        else:
            spec |= {"accelerator_type": self.accelerator, "accelerator_count": self.replicas}
        if reservation:
            spec["reservation_affinity"] = {
                "reservation_affinity_type": "SPECIFIC_RESERVATION",
                "key": "compute.googleapis.com/reservation-name",
                "values": [reservation],
            }
        return spec


def _tpu_machines() -> Iterator[Machine]:
    for generation, accelerator in (("v2", "TPU_V2"), ("v3", "TPU_V3")):  # counted in cores
        yield Machine(f"{generation}-8", "tpu", 8, "cloud-tpu", 4, accelerator=accelerator, generation=generation)
        yield Machine(f"{generation}-32", "tpu", 32, "cloud-tpu", 16, 4, accelerator=accelerator, generation=generation)
    for generation, prefix in (("v5e", "ct5lp-hightpu"), ("v6e", "ct6e-standard")):
        for chips, topology in ((1, "1x1"), (4, "2x2"), (8, "2x4")):
            name, machine_type = f"{generation}-{chips}", f"{prefix}-{chips}t"
            yield Machine(name, "tpu", chips, machine_type, chips, topology=topology, generation=generation)
        for chips, topology in ((16, "4x4"), (32, "4x8"), (64, "8x8"), (128, "8x16"), (256, "16x16")):
            name = f"{generation}-{chips}"
            yield Machine(name, "tpu", chips, f"{prefix}-4t", chips, chips // 4, topology, generation=generation)
    for topology in ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "8x8x8", "8x8x16"):
        x, y, z = map(int, topology.split("x"))
        chips = x * y * z
        name, hosts = f"7x-{chips}", chips // 4
        yield Machine(name, "tpu", 2 * chips, "tpu7x-standard-4t", chips, hosts, topology, generation="7x")


TPU_MACHINES = {machine.name: machine for machine in _tpu_machines()}

# Logical CPU devices, each a replica: the rehearsal of a slice with as many cores. More than 16 helps nobody.
CPU_REPLICAS = (1, 2, 4, 8, 16)
GPU_REPLICAS = (1, 2, 4, 8)

MACHINES = {
    **{f"cpu-{count}": Machine(f"cpu-{count}", "cpu", count) for count in CPU_REPLICAS},
    **{f"gpu-{count}": Machine(f"gpu-{count}", "gpu", count) for count in GPU_REPLICAS},
    **TPU_MACHINES,
}

_NOT_OFFERED = re.compile(r"v4|v5p")


def find(name: str, *, allow_unverified: bool = False) -> Machine:
    """Returns the machine of that name.

    Args:
        name: What `machine.name` says.
        allow_unverified: Let a machine through that Vertex AI's pages refuse for TensorFlow and others have used.

    Raises:
        ConfigError: if there is none, or TensorFlow can't train there.
    """
    usable = [machine.name for machine in MACHINES.values() if not machine.refusal]
    expected = f"expected one of {', '.join(usable)}"
    if name not in MACHINES:
        why = ": Vertex AI does not offer v4 and v5p for training" if _NOT_OFFERED.match(name) else ""
        raise ConfigError(f"machine.name is {name!r}, {expected}{why}.{did_you_mean(name, usable)}")
    machine = MACHINES[name]
    if machine.refusal and not (allow_unverified and machine.unverified):
        lifted = "; machine.allow_unverified lets it through at your own risk" if machine.unverified else ""
        raise ConfigError(f"machine.name is {name!r}, but {machine.refusal}; {expected}{lifted}.")
    return machine


def check_order(machine: Machine, regions: tuple[str, ...], capacity: Capacity, reservation: str) -> None:
    """Refuses a wish that Vertex AI would refuse, or could never grant.

    Args:
        machine: The machine.
        regions: Where it may be, in order of preference.
        capacity: How it is to be had.
        reservation: The reservation to take it from.

    Raises:
        ConfigError: naming the settings and the valid choices.
    """
    if refusal := machine.capacity_refusal(capacity):
        raise ConfigError(
            f"vertex.capacity is {capacity!r}, but {refusal}; {machine.name} can be had as "
            f"{' or '.join(machine.capacities())}."
        )
    if (capacity == "reservation") != bool(reservation):
        raise ConfigError(
            f"vertex.capacity is {capacity!r} and vertex.reservation {reservation!r}; capacity reservation needs the "
            "reservation's full name, and no other capacity takes one."
        )
    if reservation and regions != (home := reservation.split("/")[3].rpartition("-")[0],):
        raise ConfigError(
            f"vertex.reservation is in {home}, vertex.regions has {', '.join(regions)}; a reservation serves its own "
            "region only."
        )
    without = [repr(region) for region in regions if machine.regions and region not in machine.regions]
    if without:
        raise ConfigError(
            f"vertex.regions has {', '.join(without)}, where Vertex AI does not train on {machine.name}; it does in "
            f"{', '.join(machine.regions)}."
        )
