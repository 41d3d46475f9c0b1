"""Of which generation the GPUs of a machine are, where nothing but the PCI bus speaks of them."""

from __future__ import annotations

from gpusetup.model import Capability

IDS_FROM = (
    (0x2900, Capability(10, 0)),
    (0x1E00, Capability(7, 5)),
    (0x1340, Capability(5, 0)),
    (0x0FC0, Capability(3, 0)),
)
"""PCI device id from which on NVIDIA's GPUs are of this generation or a later one: Blackwell,
Turing, Maxwell, Kepler (the tables of supported GPUs in the drivers' READMEs)."""


def generation_of(device_id: str | None) -> Capability | None:
    """None where an id says nothing.

    >>> generation_of("1b06"), generation_of("2684"), generation_of("2b85"), generation_of("?")
    (Capability(5, 0), Capability(7, 5), Capability(10, 0), None)
    """
    try:
        number = int(device_id or "", 16)
    except ValueError:
        return None
    return next((oldest for least, oldest in IDS_FROM if number >= least), None)
