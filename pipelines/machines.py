"""The machines a training step can run on: one row each, with the source of its figures.

Sources (read 2026-11-30): TPU machine types, topologies and regions from Vertex AI's "Configure compute resources for
serverless training" and "Locations"; memory and peak rates from Cloud TPU's page of each generation; prices from Cloud
TPU's list as collected by the SkyPilot catalog, in USD an hour, on demand. Vertex AI adds a management fee that its
pages don't state, so a price here is a lower bound. None of these machines has been used by this project: see
docs/machines.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from components.errors import ConfigError, did_you_mean

PRICES_AS_OF = "2026-11-30"

Device = Literal["cpu", "gpu", "tpu"]


@dataclass(frozen=True)
class Generation:
    """What the slices of one TPU generation share.

    Attributes:
        hbm_gib_per_chip: High-bandwidth memory of a chip, in GiB; None where no source was found.
        bf16_tflops_per_chip: Peak rate of a chip, in 10^12 bfloat16 operations a second; None likewise.
        usd_per_chip_hour: List price, on demand, in the cheapest region for training; None where it isn't known.
        regions: Where Vertex AI trains on it.
        refusal: Why TensorFlow training is refused, or an empty string.
    """

    hbm_gib_per_chip: int | None
    bf16_tflops_per_chip: float | None
    usd_per_chip_hour: float | None
    regions: tuple[str, ...]
    refusal: str = ""


GENERATIONS = {
    "v2": Generation(None, None, 1.125, ("us-central1", "europe-west4", "asia-east1")),
    "v3": Generation(32, 123, 2.00, ("us-central1", "europe-west4")),
    "v5e": Generation(16, 197, 1.20, ("us-central1", "us-east1", "us-west1", "us-west4")),
    "v6e": Generation(
        32,
        918,
        2.70,
        (
            "us-central1",
            "us-east1",
            "us-east5",
            "us-south1",
            "europe-west4",
            "asia-northeast1",
            "southamerica-west1",
        ),
        "Vertex AI's pages say that TensorFlow is not supported from v6e on",
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
        topology: `machine_spec.tpu_topology`, where the machine is asked for by topology.
        accelerator: `machine_spec.accelerator_type`, where it is asked for by type and count.
        generation: Its key in `GENERATIONS`.
    """

    name: str
    device: Device
    replicas: int
    machine_type: str = ""
    chips: int = 0
    topology: str = ""
    accelerator: str = ""
    generation: str = ""

    @property
    def family(self) -> Generation | None:
        """What its generation's machines share; None for a CPU or GPU."""
        return GENERATIONS.get(self.generation)

    @property
    def refusal(self) -> str:
        """Why TensorFlow can't train there, or an empty string."""
        return self.family.refusal if self.family else ""

    @property
    def usd_per_hour(self) -> float | None:
        """List price of an hour, where it is known; a local machine costs nothing."""
        if self.family is None:
            return 0.0
        price = self.family.usd_per_chip_hour
        return None if price is None else price * self.chips


def _tpu_machines() -> Iterator[Machine]:
    for generation, accelerator in (("v2", "TPU_V2"), ("v3", "TPU_V3")):  # counted in cores
        yield Machine(f"{generation}-8", "tpu", 8, "cloud-tpu", 4, "", accelerator, generation)
    for generation, prefix in (("v5e", "ct5lp-hightpu"), ("v6e", "ct6e-standard")):
        for chips, topology in ((1, "1x1"), (4, "2x2"), (8, "2x4")):
            name, machine_type = f"{generation}-{chips}", f"{prefix}-{chips}t"
            yield Machine(name, "tpu", chips, machine_type, chips, topology, "", generation)


TPU_MACHINES = {machine.name: machine for machine in _tpu_machines()}

# Logical CPU devices, each a replica: the rehearsal of a slice with as many cores. More than 16 helps nobody.
CPU_REPLICAS = (1, 2, 4, 8, 16)
GPU_REPLICAS = (1, 2, 4, 8)

MACHINES = {
    **{f"cpu-{count}": Machine(f"cpu-{count}", "cpu", count) for count in CPU_REPLICAS},
    **{f"gpu-{count}": Machine(f"gpu-{count}", "gpu", count) for count in GPU_REPLICAS},
    **TPU_MACHINES,
}


def find(name: str) -> Machine:
    """Returns the machine of that name.

    Raises:
        ConfigError: if there is none, or TensorFlow can't train there.
    """
    usable = [machine.name for machine in MACHINES.values() if not machine.refusal]
    if name not in MACHINES:
        raise ConfigError(
            f"machine.name is {name!r}, expected one of {', '.join(usable)}: multi-host slices are not supported, v4 "
            f"and v5p are not offered by Vertex AI, and TPU7x is for JAX only.{did_you_mean(name, usable)}"
        )
    machine = MACHINES[name]
    if machine.refusal:
        raise ConfigError(f"machine.name is {name!r}, but {machine.refusal}; use one of {', '.join(usable)}.")
    return machine
