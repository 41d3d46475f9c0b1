"""Which backend a torch without a label is of: what the default package index has had for each
platform. Dated rows, and what lies beside it says more."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpusetup.model import Package, parsed
from gpusetup.value import Value

AS_OF = "2026-11-20"
SOURCE = (
    "Requires-Dist of torch's own wheels on the default index (nvidia-cuda-runtime, cuda-toolkit)"
)

UNREAD = "unknown"
"""The backend of an installed torch that nothing tells."""


class DefaultWheel(Value):
    """From which torch on the default index has a backend for a platform."""

    on: str
    """`linux-x86_64`, or a system alone."""
    from_torch: str
    backend: str


ROWS = (
    DefaultWheel(on="linux-x86_64", from_torch="1.5", backend="cu102"),
    DefaultWheel(on="linux-x86_64", from_torch="1.13", backend="cu117"),
    DefaultWheel(on="linux-x86_64", from_torch="2.1", backend="cu121"),
    DefaultWheel(on="linux-x86_64", from_torch="2.5", backend="cu124"),
    DefaultWheel(on="linux-x86_64", from_torch="2.7", backend="cu126"),
    DefaultWheel(on="linux-x86_64", from_torch="2.8", backend="cu128"),
    DefaultWheel(on="linux-x86_64", from_torch="2.11", backend="cu130"),
    DefaultWheel(on="linux-x86_64", from_torch="2.15", backend="cu132"),
    DefaultWheel(on="linux-aarch64", from_torch="1.8", backend="cpu"),
    DefaultWheel(on="linux-aarch64", from_torch="2.11", backend="cu130"),
    DefaultWheel(on="linux-aarch64", from_torch="2.15", backend="cu132"),
    DefaultWheel(on="windows", from_torch="1.0", backend="cpu"),
    DefaultWheel(on="macos", from_torch="1.0", backend="cpu"),
)
"""aarch64 had CPU builds only until 2.10 (release notes of torch 2.11)."""


def default_backend(version: str, family: str, machine: str) -> str | None:
    """The backend of the default index's wheel; None for what that index never had.

    >>> default_backend("2.5.1", "linux", "x86_64"), default_backend("2.10.0", "linux", "aarch64")
    ('cu124', 'cpu')
    >>> default_backend("2.5.1", "windows", "x86_64")
    'cpu'
    >>> default_backend("2.5.1+mine", "linux", "x86_64")
    """
    own = parsed(version)
    if family != "macos" and (own.local or own.is_prerelease):
        return None
    known = [
        row
        for row in ROWS
        if row.on in (family, f"{family}-{machine}") and parsed(row.from_torch) <= own
    ]
    return max(known, key=lambda row: parsed(row.from_torch)).backend if known else None


RUNTIME = re.compile(r"nvidia-cuda-runtime(-cu1[12])?")


def backend_beside(packages: Iterable[Package]) -> str | None:
    """The backend that the CUDA runtime of the same environment is of: torch's wheel brings it.

    >>> backend_beside([Package(name="nvidia-cuda-runtime-cu12", version="12.4.127")])
    'cu124'
    """
    found = {
        "cu" + "".join(map(str, parsed(package.version).release[:2]))
        for package in packages
        if RUNTIME.fullmatch(package.name) and len(parsed(package.version).release) > 1
    }
    return found.pop() if len(found) == 1 else None
