"""Units of sizes, and names of processor architectures."""

from __future__ import annotations

MIB = 1 << 20
GIB = 1 << 30
MACHINES = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}
"""Maps an operating system's name for an architecture to the name in wheels."""


def architecture_named(text: str) -> str:
    """The name of a processor architecture as wheels use it.

    >>> architecture_named("ARM64"), architecture_named("x86_64")
    ('aarch64', 'x86_64')
    """
    name = text.lower()
    return MACHINES.get(name, name)
