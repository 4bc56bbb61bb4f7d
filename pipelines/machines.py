"""The machines a training step can run on: one row each, with the source of its figures.

Sources (read 2026-11-30): TPU machine types and topologies from Vertex AI's "Configure compute resources for
serverless training"; spot and flex-start rules from its "Use Spot VMs" and "Schedule training jobs based on resource
availability". What a chip has, where it is and what it costs are rows of rates.yaml, which users can replace. Vertex AI
adds a management fee that its pages don't state, so a price here is a lower bound. None of these machines has been used
by this project: see docs/machines.md.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from components.errors import ConfigError, did_you_mean
from pipelines import rates
from pipelines.rates import Rate, Spec

GIB = 2**30
MIB = 2**20

Device = Literal["cpu", "gpu", "tpu"]
Capacity = Literal["on-demand", "spot", "flex-start", "reservation"]


@dataclass(frozen=True)
class Generation:
    """What the slices of one TPU generation share.

    Attributes:
        name: Its key in `GENERATIONS` and in rates.yaml.
        refusal: Why TensorFlow training is refused, or an empty string.
        unverified: Whether `machine.allow_unverified` may lift the refusal.
        takes_reservations: Whether a reservation can be named for it.
        environment: What the TPU runtime needs in the container.
    """

    name: str
    refusal: str = ""
    unverified: bool = False
    takes_reservations: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def rates(self) -> Mapping[str, Rate]:
        """What a chip hour costs, by region: everywhere that Vertex AI trains on it."""
        return rates.current().prices[self.name]

    @property
    def regions(self) -> tuple[str, ...]:
        """Where Vertex AI trains on it."""
        return tuple(self.rates)

    @property
    def cores_per_chip(self) -> int:
        """TensorCores of a chip, each a replica."""
        cores = self._figure("cores_per_chip")
        assert cores, f"rates.yaml has no cores_per_chip of {self.name}"
        return int(cores)

    @property
    def hbm_gib_per_chip(self) -> float | None:
        """High-bandwidth memory of a chip, in GiB; None where no source was found, as in all that follow."""
        return self._figure("hbm_gib_per_chip")

    @property
    def hbm_usable_bytes(self) -> int | None:
        """What the compiler lets a program use of a core's memory, in bytes.

        Arguments, temporaries and the program itself; the compiler counts no output, and one that shares no argument's
        memory needs room besides.
        """
        mib = self._figure("hbm_usable_mib_per_core")
        return None if mib is None else round(mib * MIB)

    @property
    def bf16_tflops_per_chip(self) -> float | None:
        """Peak rate of a chip, in 10^12 bfloat16 operations a second."""
        return self._figure("bf16_tflops_per_chip")

    @property
    def hbm_bandwidth(self) -> float | None:
        """Bandwidth of a chip's memory, in bytes a second."""
        return _times(self._figure("hbm_gb_per_second"), 1e9)

    @property
    def interconnect(self) -> float | None:
        """What a chip can send over all its links at once, in bytes a second; what it receives is not counted."""
        return _times(self._figure("interconnect_gb_per_second"), 1e9)

    def _figure(self, field: Spec) -> float | None:
        figure = rates.current().specs[self.name].get(field)
        return figure.value if figure else None


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


# TensorFlow reaches v5e and later through the PJRT plug-in, v2 and v3 through the older runtime. The TPU image has
# libtpu at this path ("You must save libtpu.so in /lib": Vertex AI's "Train with a TPU VM").
_PJRT = {"NEXT_PLUGGABLE_DEVICE_USE_C_API": "true", "TF_PLUGGABLE_DEVICE_LIBRARY_PATH": "/lib/libtpu.so"}

GENERATIONS = {
    generation.name: generation
    for generation in (
        Generation("v2", takes_reservations=False),
        Generation("v3", takes_reservations=False),
        Generation("v5e", environment=_PJRT),
        Generation(
            "v6e",
            refusal="Vertex AI's pages say that TensorFlow is not supported from v6e on",
            unverified=True,
            environment=_PJRT,
        ),
        Generation("7x", refusal="TPU7x needs Python 3.12 and JAX: TensorFlow has no runtime for it"),
    )
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

    @property
    def replica_hbm_bytes(self) -> int | None:
        """Memory of a replica, in bytes; a replica is a core. None where unknown, or no TPU, as in all that follow."""
        gib = self.family.hbm_gib_per_chip if self.family else None
        return None if self.family is None or gib is None else round(gib * GIB / self.family.cores_per_chip)

    @property
    def replica_usable_hbm_bytes(self) -> int | None:
        """What the compiler lets a program use of it, in bytes."""
        return self.family.hbm_usable_bytes if self.family else None

    @property
    def replica_peak_flops(self) -> float | None:
        """Peak rate of a replica, in bfloat16 operations a second."""
        return _times(self.family.bf16_tflops_per_chip, 1e12 / self.family.cores_per_chip) if self.family else None

    @property
    def replica_hbm_bandwidth(self) -> float | None:
        """Bandwidth of a replica's memory, in bytes a second: a core's share of its chip's."""
        return _times(self.family.hbm_bandwidth, 1 / self.family.cores_per_chip) if self.family else None

    @property
    def chip_interconnect(self) -> float | None:
        """What a chip can send over all its links at once, in bytes a second.

        A chip of a single host has neighbours on some of its four links only: two in a 2x2 slice, two or three in 2x4,
        none in 1x1, since an axis shorter than 16 chips does not wrap around (for v5e: the JAX scaling book,
        jax-ml.github.io/scaling-book/tpus). So such a slice reaches half of this, or three quarters.
        """
        return self.family.interconnect if self.family else None

    @property
    def compiler_topology(self) -> str | None:
        """The compiler's name of the slice, such as `v5e:2x4`; None for several hosts, TPU7x, and what is no TPU.

        libtpu 0.0.10 compiles for each of these: benchmarks/compiler_memory.py.
        """
        bounds = self.chips_per_host_bounds
        return f"{self.generation}:{bounds[0]}x{bounds[1]}" if bounds else None

    @property
    def chips_per_host_bounds(self) -> tuple[int, int, int] | None:
        """The compiler's extent of a host in chips, None likewise. v2 and v3 hosts are squares of four."""
        if self.device != "tpu" or self.hosts > 1 or self.generation == "7x":
            return None
        x, y = map(int, (self.topology or "2x2").split("x"))
        return (x, y, 1)

    def usd_per_hour(self, region: str = "", capacity: Capacity = "on-demand") -> float | None:
        """Returns the list price of an hour.

        Args:
            region: Where; empty for the cheapest region.
            capacity: How the machine is paid for; a reservation costs what on-demand does.

        Returns:
            USD, a lower bound; None where no source was found. A machine that isn't a TPU costs nothing here.
        """
        if self.family is None:
            return 0.0
        rates = [self.family.rates[region]] if region else self.family.rates.values()
        prices = [rate.spot if capacity == "spot" else rate.on_demand for rate in rates]
        known = [price for price in prices if price is not None]
        return min(known) * self.chips if known else None

    def priced(self, region: str = "") -> str:
        """Returns the day, or the first and the last, that its prices were read: there, or in all its regions."""
        if self.family is None:
            return ""
        return _days([self.family.rates[region]] if region else self.family.rates.values())

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


def prices_as_of() -> str:
    """Returns the day, or the first and the last, that the prices were read, and the user's file if it has some."""
    current = rates.current()
    days = _days(rate for regions in current.prices.values() for rate in regions.values())
    return f"{days}, with the rows of {current.overridden}" if current.overridden else days


def _days(rows: Iterable[Rate]) -> str:
    days = sorted({str(rate.date) for rate in rows})
    return " to ".join(dict.fromkeys((days[0], days[-1])))


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
