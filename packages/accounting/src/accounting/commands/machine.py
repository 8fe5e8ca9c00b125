"""The device that a command is about: one of the table, one whose rate was measured, or this machine, timed now."""

from __future__ import annotations

from accounting.hardware.devices import Device, device, measured_device

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def machine_of(options: argparse.Namespace) -> tuple[Device, str]:
    """The device that was named or measured, and whose peak is meant."""
    if options.device:
        return device(options.device), options.dtype or "bf16"
    dtype = options.dtype or "fp32"
    if options.measure:
        return timed(), dtype
    return measured_device("this machine", options.measured, dtype=dtype), dtype


def timed() -> Device:
    """This machine, by a measurement."""
    from accounting.hardware.measuring import this_machine  # here, because nothing else looks for torch

    return this_machine()
