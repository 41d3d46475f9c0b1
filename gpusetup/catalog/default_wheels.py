"""Which backend a torch without a label is of: what the default package index has for each
platform."""

from __future__ import annotations

from gpusetup.catalog.builds import Catalog
from gpusetup.model.resolution import TorchBuild
from gpusetup.model.versions import cuda_of, parsed

UNREAD = "unknown"
"""The backend of an installed torch that nothing tells."""


def default_backend(catalog: Catalog, version: str, family: str, machine: str) -> str | None:
    """The backend of the default index's wheel; None for what that index never had.

    >>> from gpusetup.catalog.file import load_catalog as rows
    >>> default_backend(rows(), "2.5.1", "linux", "x86_64")
    'cu124'
    >>> default_backend(rows(), "2.10.0", "linux", "aarch64")
    'cpu'
    >>> default_backend(rows(), "2.5.1+mine", "linux", "x86_64")
    """
    own = parsed(version)
    if family != "macos" and (own.local or own.is_prerelease):
        return None
    known = [
        row
        for row in catalog.default_wheels
        if row.on in (family, f"{family}-{machine}") and parsed(row.from_torch) <= own
    ]
    return max(known, key=lambda row: parsed(row.from_torch)).backend if known else None


def usual_major(catalog: Catalog, build: TorchBuild) -> str:
    """The CUDA major of the default index's wheel of a build's torch; "" for one without CUDA."""
    backend = default_backend(catalog, build.torch, build.os, build.machine)
    return ((cuda_of(backend) if backend else None) or "").partition(".")[0]
