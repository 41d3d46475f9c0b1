"""Units of sizes, and the architectures of computers."""

from __future__ import annotations

MIB = 1 << 20
GIB = 1 << 30
MACHINES = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}
"""What the systems call one architecture -> what wheels call it."""


def architecture_named(text: str) -> str:
    """
    >>> architecture_named("ARM64"), architecture_named("x86_64")
    ('aarch64', 'x86_64')
    """
    return MACHINES.get(text.lower(), text.lower())
