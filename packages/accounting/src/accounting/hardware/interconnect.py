"""Rates between devices, inside a node and between nodes, each figure with its maker's document.

The table is devices.csv. Rates are of one device in one direction, half of NVIDIA's NVLink figures, which add both up.
The network is that of the maker's own server, one adapter a device. Collectives do not reach these rates: `reached` is
a measured one where somebody published it, and else 80% of the datasheet's, which ml-engineering (Bekman, 2026) finds
usual. A collective also waits for each hop of its ring, with the latencies that NCCL plans with (src/graph/tuning.cc,
ring, simple protocol). A torus has no ring of all its devices, and its hops are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from accounting.checks import named, positive
from accounting.hardware.devices import ROWS
from accounting.units import ByteRate

UNKNOWN = ByteRate(0.0)
COLLECTIVE = 0.8  # of a datasheet's rate that collectives reach, where no measurement is published
LINK_HOP, NETWORK_HOP = 3.4e-6, 9.6e-6  # seconds of one hop of a ring
LARGEST_RING = 72  # devices that one switch joins: larger nodes are tori


@dataclass(frozen=True)
class Interconnect:
    """Links between the devices of a cluster.

    Args:
        node_size: devices that the fast link joins.
        link: bytes/s that a device sends inside its node, by the datasheet.
        network: bytes/s that a device sends to other nodes, by the datasheet.
        source: the document of these figures.
        measured: bytes/s that collectives were measured to reach inside a node, 0 if nobody published one.
    """

    node_size: int
    link: ByteRate
    network: ByteRate
    source: str
    measured: ByteRate = UNKNOWN

    def __post_init__(self) -> None:
        positive("node_size", self.node_size)
        for name in ("link", "network"):
            if not 0 < float(getattr(self, name)) < float("inf"):
                raise ValueError(f"expected {name} above 0 bytes a second, got {float(getattr(self, name)):g}")

    @property
    def reached(self) -> float:
        """Bytes/s that a collective reaches inside a node."""
        return float(self.measured) or COLLECTIVE * float(self.link)

    @property
    def network_reached(self) -> float:
        """Bytes/s that a collective reaches between nodes."""
        return COLLECTIVE * float(self.network)

    def latency(self, devices: int, in_node: int) -> float:
        """Seconds that one pass round a ring of devices, in_node of them to a node, waits for its hops."""
        if self.node_size > LARGEST_RING:
            return 0.0
        nodes = -(-devices // in_node)
        return (devices - nodes) * LINK_HOP + (nodes - 1) * NETWORK_HOP


def _from_row(row: Mapping[str, str]) -> Interconnect:
    return Interconnect(
        node_size=int(row["node size"]),
        link=ByteRate(float(row["link GB/s"]) * 1e9),
        network=ByteRate(float(row["network Gb/s"]) * 1e9 / 8),
        source="; measured: ".join(filter(None, (row["interconnect source"], row["link measured source"]))),
        measured=ByteRate(float(row["link measured GB/s"] or 0) * 1e9),
    )


ALONE = Interconnect(1, ByteRate(1.0), ByteRate(1.0), "a device alone sends nothing")
INTERCONNECTS: dict[str, Interconnect] = {row["name"]: _from_row(row) for row in ROWS if row["node size"]}


def interconnect(device_name: str) -> Interconnect:
    """Links of the devices of this name in their maker's server; KeyError with the listed ones for others."""
    return named("server with a known interconnect", device_name, INTERCONNECTS)
