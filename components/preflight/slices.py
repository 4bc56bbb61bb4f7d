"""The slice that a program is compiled for: its name to the compiler, and the figures that an estimate needs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True, kw_only=True)
class Slice:
    """A TPU slice of one host. What isn't known is None, and what follows from it is unknown too.

    Attributes:
        name: The machine's name, such as `v5e-4`.
        topology: libtpu's name of it, such as `v5e:2x2`.
        host_bounds: Chips of the host in each direction.
        replicas: Replicas: cores of v2 and v3, chips of later generations.
        chips: Chips.
        usable_bytes: Memory of one replica that the compiler lets a program use.
        peak_flops: Peak rate of one replica, in bfloat16 operations a second.
        hbm_bandwidth: Bytes a second between one replica and its memory.
        interconnect: Bytes a second that one chip sends to the others, over all its links.
        usd_per_hour: List price of the slice, a lower bound.
    """

    name: str
    topology: str
    host_bounds: tuple[int, int, int]
    replicas: int
    chips: int
    usable_bytes: int | None = None
    peak_flops: float | None = None
    hbm_bandwidth: float | None = None
    interconnect: float | None = None
    usd_per_hour: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns it as JSON and KFP take it."""
        return asdict(self) | {"host_bounds": list(self.host_bounds)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Returns the slice that a mapping describes, whose whole numbers may have become floats on their way."""
        x, y, z = (int(size) for size in values["host_bounds"])
        whole = {name: int(values[name]) for name in ("replicas", "chips")}
        usable = values["usable_bytes"]
        return cls(
            **{
                **values,
                **whole,
                "host_bounds": (x, y, z),
                "usable_bytes": None if usable is None else int(usable),
            }
        )
