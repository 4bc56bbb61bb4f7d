"""What is asked of the compiler: a run on a machine, as settings and figures that a worker understands."""

from typing import Any

from components.errors import ConfigError
from components.preflight.slices import Slice
from pipelines import machines
from pipelines.config import RunConfig, Vertex, parameters
from pipelines.machines import Machine


def machine_of(config: RunConfig, name: str = "") -> Machine:
    """Returns the slice to compile for: the named one, else the run's own.

    Raises:
        ConfigError: if it is none that TensorFlow can train on, or no TPU.
    """
    machine = machines.find(name, allow_unverified=config.machine.allow_unverified) if name else config.machine.row
    if machine.compiler_topology is None:
        slices = ", ".join(slice_.name for slice_ in slices_for(config))
        raise ConfigError(
            f"machine.name is {machine.name!r}, which the TPU's compiler does not compile for; name a slice: "
            f"--machine with one of {slices}."
        )
    return machine


def slices_for(config: RunConfig) -> list[Machine]:
    """Returns every slice that a run's step can be compiled for, and TensorFlow can train on."""
    return [
        machine
        for machine in machines.TPU_MACHINES.values()
        if machine.compiler_topology
        and (not machine.refusal or (config.machine.allow_unverified and machine.unverified))
    ]


def slice_of(machine: Machine, vertex: Vertex | None = None) -> Slice:
    """Returns a machine as the compiler takes it.

    Its price is that of the run's capacity in the first of its regions that has the machine, else in the cheapest.
    """
    vertex = vertex or Vertex()
    region = next((region for region in vertex.regions if region in machine.regions), "")
    assert machine.compiler_topology is not None
    assert machine.chips_per_host_bounds is not None
    return Slice(
        name=machine.name,
        topology=machine.compiler_topology,
        host_bounds=machine.chips_per_host_bounds,
        replicas=machine.replicas,
        chips=machine.chips,
        usable_bytes=machine.replica_usable_hbm_bytes,
        peak_flops=machine.replica_peak_flops,
        hbm_bandwidth=machine.replica_hbm_bandwidth,
        interconnect=machine.chip_interconnect,
        usd_per_hour=machine.usd_per_hour(region, vertex.capacity),
    )


def uneven(config: RunConfig, machine: Machine) -> str:
    """Returns why a machine's replicas can't share the run's batch, or an empty string."""
    batch = config.training.global_batch_size
    if not batch % machine.replicas:
        return ""
    return (
        f"training.global_batch_size is {batch}, expected a multiple of the {machine.replicas} replicas of "
        f"{machine.name}, so that each gets the same number of examples."
    )


def with_batch(config: RunConfig, global_batch_size: int) -> RunConfig:
    """Returns a run with another batch."""
    training = config.training.model_copy(update={"global_batch_size": global_batch_size})
    return config.model_copy(update={"training": training})


def settings(config: RunConfig, machine: Machine) -> dict[str, Any]:
    """Returns all settings that prepare and train have on a machine. A worker takes those that it knows."""
    return parameters(config) | {"device": machine.device, "replicas": machine.replicas, "tpu": config.machine.tpu}
