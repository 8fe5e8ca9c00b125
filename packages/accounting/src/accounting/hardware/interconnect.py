"""How fast devices reach each other: inside a node and between nodes, each figure with the maker's document it is from.

Rates are of one device in one direction, in bytes a second: half of NVIDIA's NVLink figures, which add both directions
up. The network is that of the maker's own server, one adapter a device. A device whose server is not listed has to be
given both.
"""

from __future__ import annotations

from dataclasses import dataclass

from accounting.shape import positive, unknown
from accounting.units import ByteRate


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


def _node(devices: int, link_gigabytes: float, network_gigabits: float, source: str) -> Interconnect:
    return Interconnect(devices, ByteRate(link_gigabytes * 1e9), ByteRate(network_gigabits * 1e9 / 8), source)


_DGX_A100 = _node(8, 300, 200, "NVIDIA DGX A100 datasheet: third-generation NVLink, eight 200 Gb/s adapters")
_DGX_H100 = _node(8, 450, 400, "NVIDIA DGX H100/H200 datasheet: fourth-generation NVLink, eight 400 Gb/s adapters")
_DGX_B200 = _node(8, 900, 400, "NVIDIA DGX B200 datasheet: fifth-generation NVLink, eight 400 Gb/s adapters")

INTERCONNECTS: dict[str, Interconnect] = {
    "v100-32gb": _node(8, 150, 100, "NVIDIA DGX-2 datasheet: second-generation NVLink, eight 100 Gb/s adapters"),
    "a100-40gb": _DGX_A100,
    "a100-80gb": _DGX_A100,
    "h100": _DGX_H100,
    "h200": _DGX_H100,
    "b200": _DGX_B200,
}


def interconnect(device_name: str) -> Interconnect:
    """What joins devices of this name in their maker's server.

    Raises:
        KeyError: no server of it is listed; the message names those that are.

    >>> interconnect("h100").node_size
    8
    """
    try:
        return INTERCONNECTS[device_name]
    except KeyError:
        raise unknown("server with a known interconnect", device_name, INTERCONNECTS) from None
