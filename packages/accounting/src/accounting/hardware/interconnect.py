"""How fast devices reach each other: inside a node and between nodes, each figure with its maker's document.

The table is devices.csv, beside the devices' own figures. Rates are of one device in one direction, in bytes a second:
half of NVIDIA's NVLink figures, which add both directions up. The network is that of the maker's own server, one
adapter a device. A device whose server is not listed has to be given both.
"""

from __future__ import annotations

from dataclasses import dataclass

from accounting.hardware.devices import ROWS
from accounting.shape import named, positive
from accounting.units import ByteRate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Interconnect:
    """What joins the devices of a cluster.

    Args:
        node_size: devices that the fast link joins.
        link: bytes/s that a device sends inside its node.
        network: bytes/s that a device sends to other nodes.
        source: the document that says so.
    """

    node_size: int
    link: ByteRate
    network: ByteRate
    source: str

    def __post_init__(self) -> None:
        positive("node_size", self.node_size)
        for name in ("link", "network"):
            if not 0 < float(getattr(self, name)) < float("inf"):
                raise ValueError(f"{name} must be above 0 bytes a second, and {float(getattr(self, name)):g} is not")


def _from_row(row: Mapping[str, str]) -> Interconnect:
    return Interconnect(
        node_size=int(row["node size"]),
        link=ByteRate(float(row["link GB/s"]) * 1e9),
        network=ByteRate(float(row["network Gb/s"]) * 1e9 / 8),
        source=row["interconnect source"],
    )


INTERCONNECTS: dict[str, Interconnect] = {row["name"]: _from_row(row) for row in ROWS if row["node size"]}


def interconnect(device_name: str) -> Interconnect:
    """What joins devices of this name in their maker's server.

    Raises:
        KeyError: no server of it is listed; the message names those that are.

    >>> interconnect("h100").node_size
    8
    """
    return named("server with a known interconnect", device_name, INTERCONNECTS)
