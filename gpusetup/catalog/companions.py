"""What a torchvision or torchaudio serves: which torch, and which CUDA beside it.

Most of them serve the one torch that they were released with. Those built on torch's stable ABI
serve every later one too, and have a row of their own: what their METADATA declares, and which
CUDA their own check accepts.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpusetup.accelerators.makers import LABELS
from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.kernels import release
from gpusetup.catalog.rows import Companion, Name
from gpusetup.model.resolution import TorchBuild
from gpusetup.model.versions import allows, cuda_of, parsed


def companion(catalog: Catalog, name: Name, version: str) -> Companion | None:
    """The row of a companion; None where the catalog does not know its version."""
    public = version.partition("+")[0]
    rows = (row for row in catalog.companions if (row.name, row.version) == (name, public))
    return next(rows, None) or _pinned(catalog, name, public)


def _pinned(catalog: Catalog, name: Name, public: str) -> Companion | None:
    """A companion that was released with one torch; a torchaudio serves its patches too."""
    for row in catalog.releases:
        own = row.torchvision if name == "torchvision" else row.torchaudio
        if own and name == "torchvision" and own == public:
            needs = row.torchvision_needs or f"=={row.torch}"
            return Companion(name=name, version=public, torch=needs)
        if own and name == "torchaudio" and parsed(own).release[:2] == parsed(public).release[:2]:
            major, minor = parsed(row.torch).release[:2]
            return Companion(name=name, version=public, torch=f"=={major}.{minor}.*")
    return None


def serves_torch(catalog: Catalog, name: Name, version: str, torch: str) -> bool | None:
    """Whether a companion serves a torch; None where the catalog does not know it."""
    row = companion(catalog, name, version)
    return None if row is None else allows(row.torch, torch.partition("+")[0])


def serves_backend(
    catalog: Catalog, name: Name, version: str, backend: str, platform: str | None = None
) -> bool | None:
    """Whether a companion serves a torch of this backend; None where nothing tells.

    Without a label of its own it is the wheel that `platform` gets from the default index.
    """
    row, label = companion(catalog, name, version), label_in(version)
    assumed = row.unlabelled.get(platform or "", "") if row and not label else ""
    if not (label or assumed).startswith(LABELS) or (assumed and assumed == "cpu"):
        return None
    if name == "torchaudio" and label == "cpu" and row and row.cuda != "label":
        return True  # without CUDA of its own it compares nothing at import
    return _same_cuda(label or assumed, backend, row.cuda if row else "label")


def label_in(version: str) -> str:
    """The backend in a version's local label.

    >>> label_in("0.26.0+cu130.build2"), label_in("0.26.0+rocm6.4"), label_in("0.26.0")
    ('cu130', 'rocm6.4', '')
    """
    label = version.partition("+")[2]
    return label.partition(".")[0] if label.startswith("cu") else label


def _same_cuda(label: str, backend: str, by: str) -> bool:
    """
    >>> _same_cuda("cu130", "cu132", "major"), _same_cuda("cu130", "cu132", "release")
    (True, False)
    """

    ours, theirs = cuda_of(label), cuda_of(backend)
    if by == "major" and ours and theirs:
        return release(ours)[0] == release(theirs)[0]
    return label == backend


def beside(
    catalog: Catalog, name: Name, build: TorchBuild, python: str | None = None
) -> str | None:
    """The companion to install beside a build; None where no index is known to have one."""
    own = catalog.release_of(build.torch)
    if own and (version := own.torchvision if name == "torchvision" else own.torchaudio):
        return version
    rows = (row for row in catalog.companions if row.name == name)
    fitting = [row.version for row in rows if _is_built(catalog, row, build, python)]
    return max(fitting, key=parsed) if len(fitting) > 1 else next(iter(fitting), None)


def with_companion(catalog: Catalog, name: Name, here: TorchBuild) -> TorchBuild | None:
    """The same torch on the nearest CUDA of the same major that has a companion."""
    if here.cuda is None:
        return None
    fitting = (
        row
        for row in catalog.builds
        if (row.torch, row.os, row.machine, row.channel)
        == (here.torch, here.os, here.machine, here.channel)
        and row.cuda
        and release(row.cuda)[0] == release(here.cuda)[0]
        and beside(catalog, name, row)
    )
    return max(fitting, key=lambda row: release(row.cuda or "0"), default=None)


def _is_built(catalog: Catalog, row: Companion, build: TorchBuild, python: str | None) -> bool:
    """Whether a companion that serves this torch was built for its platform and backend."""
    if build.channel != "pytorch" or not serves_torch(catalog, row.name, row.version, build.torch):
        return False
    if build.backend in row.seen.get(f"{build.os}-{build.machine}", "").split():
        return True
    sibling = catalog.row_of(row.built_with or "", build.backend, build.os, build.machine)
    return sibling is not None and (python is None or python in sibling.pythons)


def releases_with(catalog: Catalog, wanted: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The releases of torch whose companions are as specified, oldest first."""
    return tuple(
        row.torch
        for row in catalog.releases
        if all(_own(catalog, row.torch, name, text) for name, text in wanted)
    )


def _own(catalog: Catalog, torch: str, name: str, wanted: str) -> bool:
    """Whether the companion that belongs to a torch is allowed; a label is set aside."""
    row = catalog.release_of(torch)
    own = getattr(row, name, None)
    if own is None:
        serving = (
            one.version
            for one in catalog.companions
            if one.name == name and allows(one.torch, torch)
        )
        own = max(serving, key=parsed, default=None)
    return own is not None and allows(wanted, own)
