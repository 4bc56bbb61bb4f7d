"""Which machines Vertex AI trains on: its documented TPU slices and where it has them (read 2026-11-30).

Written from Vertex AI's pages, not from the project's own table of machines, which is among what is tested.
"""

import re
from dataclasses import dataclass

from google.cloud.aiplatform_v1 import AcceleratorType
from google.protobuf.message import Message

from tests.standins.vertex.errors import Findings

REGIONS = {
    "v2": ("us-central1", "europe-west4", "asia-east1"),
    "v3": ("us-central1", "europe-west4"),
    "v5e": ("us-central1", "us-east1", "us-west1", "us-west4"),
    "v6e": (
        "us-central1",
        "us-east1",
        "us-east5",
        "us-south1",
        "europe-west4",
        "asia-northeast1",
        "southamerica-west1",
    ),
}
OTHER_MACHINES = re.compile(r"(n1|n2|n2d|e2|c2|c2d|m1|a2|a3|g2)-[a-z]+-\d+g?")
PODS = ("2x4", "4x4", "4x8", "8x8", "8x16", "16x16")


@dataclass(frozen=True)
class Slices:
    """The slices that a machine type makes: the topology of one machine, and of several."""

    generation: str
    single: str
    multi: tuple[str, ...] = ()


BY_TOPOLOGY = {
    "ct5lp-hightpu-1t": Slices("v5e", "1x1"),
    "ct5lp-hightpu-4t": Slices("v5e", "2x2", PODS),
    "ct5lp-hightpu-8t": Slices("v5e", "2x4"),
    "ct6e-standard-1t": Slices("v6e", "1x1"),
    "ct6e-standard-4t": Slices("v6e", "2x2", PODS),
    "ct6e-standard-8t": Slices("v6e", "2x4"),
}
BY_ACCELERATOR = {AcceleratorType.TPU_V2: "v2", AcceleratorType.TPU_V3: "v3"}


def is_tpu(spec: Message) -> bool:
    """Says whether a CustomJobSpec asks for TPUs."""
    return any(
        pool.machine_spec.machine_type == "cloud-tpu" or pool.machine_spec.machine_type in BY_TOPOLOGY
        for pool in spec.worker_pool_specs
    )


def check_machine(spec: Message, location: str, findings: Findings) -> None:
    pools = spec.worker_pool_specs
    field = "job_spec.worker_pool_specs"
    if is_tpu(spec):
        findings.expect(len(pools) == 1, field, f"A TPU job has one worker pool, not {len(pools)}.")
    for index, pool in enumerate(pools):
        machine, at = pool.machine_spec, f"{field}[{index}].machine_spec"
        kind = machine.machine_type
        if kind == "cloud-tpu":
            generation, multi = _check_counted(machine, at, findings)
        elif kind in BY_TOPOLOGY:
            generation, multi = _check_shaped(machine, at, findings)
        else:
            findings.expect(OTHER_MACHINES.fullmatch(kind), f"{at}.machine_type", f"{kind!r} is not supported.")
            findings.expect(not machine.tpu_topology, f"{at}.tpu_topology", f"{kind!r} is no TPU machine.")
            findings.expect(pool.replica_count >= 1, f"{field}[{index}].replica_count", "It must be 1 or more.")
            continue
        count = pool.replica_count
        findings.expect(count == 1, f"{field}[{index}].replica_count", f"{count}: for TPUs it must be 1.")
        if generation:
            regions = REGIONS[generation]
            findings.expect(
                location in regions, f"{at}.machine_type", f"TPU {generation} is not offered in {location}: {regions}."
            )
        strategy = spec.scheduling.strategy
        findings.expect(
            not (multi and strategy == spec.scheduling.SPOT),
            "job_spec.scheduling.strategy",
            "SPOT is not supported for TPU slices of several machines.",
        )
        findings.expect(
            strategy != spec.scheduling.FLEX_START, "job_spec.scheduling.strategy", "FLEX_START is not for TPUs."
        )


def _check_counted(machine: Message, at: str, findings: Findings) -> tuple[str, bool]:
    """Checks a v2 or v3, which is asked for by the number of its cores."""
    generation = BY_ACCELERATOR.get(machine.accelerator_type, "")
    name = AcceleratorType(machine.accelerator_type).name if machine.accelerator_type else "none"
    findings.expect(generation, f"{at}.accelerator_type", f"cloud-tpu takes TPU_V2 or TPU_V3, not {name}.")
    count = machine.accelerator_count
    findings.expect(
        count == 8 or (count > 0 and count % 32 == 0),
        f"{at}.accelerator_count",
        f"{count} cores: it must be 8 or a multiple of 32.",
    )
    findings.expect(not machine.tpu_topology, f"{at}.tpu_topology", "cloud-tpu takes none.")
    return generation, count > 8


def _check_shaped(machine: Message, at: str, findings: Findings) -> tuple[str, bool]:
    """Checks a v5e or v6e, which is asked for by topology."""
    slices = BY_TOPOLOGY[machine.machine_type]
    shapes = (slices.single, *slices.multi)
    findings.expect(
        machine.tpu_topology in shapes,
        f"{at}.tpu_topology",
        f"{machine.tpu_topology!r}: {machine.machine_type} takes {', '.join(shapes)}.",
    )
    findings.expect(not machine.accelerator_type, f"{at}.accelerator_type", f"{machine.machine_type} takes none.")
    findings.expect(not machine.accelerator_count, f"{at}.accelerator_count", f"{machine.machine_type} takes none.")
    return slices.generation, machine.tpu_topology in slices.multi
