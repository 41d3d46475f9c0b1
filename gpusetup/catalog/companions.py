"""What a torchvision or torchaudio serves: which torch, and which CUDA beside it.

Most of them serve the one torch that they were released with. Those built on torch's stable ABI
serve every later one too, and have a row of their own: what their METADATA declares, and which
CUDA their own check accepts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from gpusetup.accelerators.makers import LABELS
from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.kernels import release
from gpusetup.catalog.rows import Companion, Name
from gpusetup.model.builds import TorchBuild
from gpusetup.model.versions import allows, cuda_of, parsed


@lru_cache(maxsize=16)
def rows_of(catalog: Catalog, name: Name) -> tuple[Companion, ...]:
    """Every release of a companion: those with a row, then those of one torch, the oldest first; a
    torchaudio serves the patches of its torch too."""
    rows = [row for row in catalog.companions if row.name == name]
    for one in catalog.releases:
        minor = ".".join(one.torch.split(".")[:2])
        if name == "torchaudio" and one.torchaudio:
            rows.append(Companion(name=name, version=one.torchaudio, torch=f"=={minor}.*"))
        if name == "torchvision" and one.torchvision:
            needs = one.torchvision_needs or f"=={one.torch}"
            rows.append(Companion(name=name, version=one.torchvision, torch=needs))
    return tuple(rows)


def companion(catalog: Catalog, name: Name, version: str) -> Companion | None:
    """The row of a companion; None if the catalog does not know its version."""
    public = version.partition("+")[0]
    return next((row for row in rows_of(catalog, name) if row.version == public), None)


def serves_torch(catalog: Catalog, name: Name, version: str, torch: str) -> bool | None:
    """Whether a companion serves a torch; None if the catalog does not know it."""
    row = companion(catalog, name, version)
    return None if row is None else allows(row.torch, torch.partition("+")[0])


def serves_backend(
    catalog: Catalog, name: Name, version: str, backend: str, platform: str | None = None
) -> bool | None:
    """Whether a companion serves a torch of this backend; None if nothing tells.

    Without a label of its own it is the wheel that `platform` gets from the default index.
    """
    row, label = companion(catalog, name, version), version.partition("+")[2]
    label = label.partition(".")[0] if label.startswith("cu") else label
    by = row.cuda if row else "label"
    if row and not label:
        label = row.unlabelled.get(platform or "", "cpu").replace("cpu", "")
    elif label == "cpu" and name == "torchaudio" and by != "label":
        return True  # without CUDA of its own it compares nothing at import
    if not label.startswith(LABELS):
        return None
    ours, theirs = cuda_of(label), cuda_of(backend)
    if by == "major" and ours and theirs:
        return release(ours)[0] == release(theirs)[0]
    return label == backend


def beside(
    catalog: Catalog, name: Name, build: TorchBuild, python: str | None = None
) -> str | None:
    """The companion to install beside a build; None if no index is known to have one."""
    own = getattr(catalog.release_of(build.torch), name, None)
    rows = (row for row in catalog.companions if row.name == name)
    built = (row.version for row in rows if _is_built(catalog, row, build, python))
    return own or max(built, key=parsed, default=None)


def _is_built(catalog: Catalog, row: Companion, build: TorchBuild, python: str | None) -> bool:
    """Whether a companion that serves this torch was built for its platform and backend."""
    if build.channel != "pytorch" or not allows(row.torch, build.torch):
        return False
    if build.backend in row.seen.get(f"{build.os}-{build.machine}", "").split():
        return True
    sibling = catalog.row_of(row.built_with or "", build.backend, build.os, build.machine)
    return sibling is not None and (python is None or python in sibling.pythons)


def releases_with(catalog: Catalog, wanted: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The releases of torch whose companions are as specified, oldest first."""

    def has(torch: str, name: str, text: str) -> bool:
        own = getattr(catalog.release_of(torch), name, None)
        rows = (row for row in catalog.companions if row.name == name and allows(row.torch, torch))
        own = own or max((row.version for row in rows), key=parsed, default=None)
        return own is not None and allows(text, own)

    releases = (row.torch for row in catalog.releases)
    return tuple(one for one in releases if all(has(one, *pair) for pair in wanted))


# --- the default index ---

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
