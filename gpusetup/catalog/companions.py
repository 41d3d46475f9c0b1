"""Which torch version a torchvision or torchaudio needs, and for which CUDA version that torch must
be built.

Most releases work with the one torch that they were released with. Those built on torch's stable
ABI also work with every later torch. Each of these releases has a row, with the torch versions in
its METADATA and the CUDA versions that it accepts when it is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from gpusetup.accelerators.makers import maker_of
from gpusetup.catalog.builds import Catalog, CompanionRelease, Name
from gpusetup.catalog.kernels import release as cuda_release
from gpusetup.model.builds import TorchBuild
from gpusetup.model.versions import allows, cuda_of, parsed


@lru_cache(maxsize=16)
def rows_of(catalog: Catalog, name: Name) -> tuple[CompanionRelease, ...]:
    """All releases of a companion: first those with their own row, then those that belong to one
    torch version."""
    rows = [row for row in catalog.companions if row.name == name]
    for release in catalog.releases:
        if name == "torchaudio" and release.torchaudio:
            # A torchaudio also works with the patch releases of its torch.
            major_minor = ".".join(release.torch.split(".")[:2])
            needs = f"=={major_minor}.*"
            rows.append(CompanionRelease(name=name, version=release.torchaudio, torch=needs))
        if name == "torchvision" and release.torchvision:
            needs = release.torchvision_needs or f"=={release.torch}"
            rows.append(CompanionRelease(name=name, version=release.torchvision, torch=needs))
    return tuple(rows)


def release_of(catalog: Catalog, name: Name, version: str) -> CompanionRelease | None:
    """The row for a companion's version; None if the catalog does not contain it."""
    public = version.partition("+")[0]
    return next((row for row in rows_of(catalog, name) if row.version == public), None)


def serves_torch(catalog: Catalog, name: Name, version: str, torch: str) -> bool | None:
    """Whether a companion works with a torch version; None if the catalog does not contain it."""
    row = release_of(catalog, name, version)
    return allows(row.torch, torch.partition("+")[0]) if row else None


def serves_backend(
    catalog: Catalog, name: Name, version: str, backend: str, platform: str | None = None
) -> bool | None:
    """Whether a companion works with a torch of this backend; None if that is unknown.

    A companion without a label is assumed to be the default index's wheel for `platform`.
    """
    row = release_of(catalog, name, version)
    label = version.partition("+")[2]
    # What the companion compares with torch when it is imported: the whole label, the CUDA release,
    # or only its major version.
    compared_by = row.cuda if row else "label"
    # A torchaudio without CUDA does not compare CUDA versions when it is imported.
    if label == "cpu" and name == "torchaudio" and compared_by != "label":
        return True
    if label.startswith("cu"):
        # `cu128.post1` is a rebuild of the same wheel.
        label = label.partition(".")[0]
    elif row and not label:
        label = row.unlabelled.get(platform or "", "cpu")
        # Without CUDA and without a label, nothing shows which torch build the wheel belongs to.
        if label == "cpu":
            return None
    # The label names no known backend, or is missing without a row that tells what that means.
    if label != "cpu" and maker_of(label) is None:
        return None

    own_cuda, torch_cuda = cuda_of(label), cuda_of(backend)
    if compared_by == "major" and own_cuda and torch_cuda:
        own_major, _ = cuda_release(own_cuda)
        torch_major, _ = cuda_release(torch_cuda)
        return own_major == torch_major
    return label == backend


def companion_for(
    catalog: Catalog, name: Name, build: TorchBuild, python: str | None = None
) -> str | None:
    """The companion to install together with a build; None if no known index has one."""
    return _companion(
        catalog, build.torch, name, lambda row: _is_built(catalog, row, build, python)
    )


def _companion(
    catalog: Catalog, torch: str, name: str, fits: Callable[[CompanionRelease], bool]
) -> str | None:
    """The companion that was released with a torch version, otherwise the newest that fits."""
    release = catalog.release_of(torch)
    released_with_torch: str | None = getattr(release, name) if release else None
    if released_with_torch:
        return released_with_torch
    versions = (row.version for row in catalog.companions if row.name == name and fits(row))
    return max(versions, key=parsed, default=None)


def _is_built(
    catalog: Catalog, row: CompanionRelease, build: TorchBuild, python: str | None
) -> bool:
    """Whether an index has a companion's release that works with a build on its platform."""
    # conda's companions are in its own channels.
    if build.channel != "pytorch" or not allows(row.torch, build.torch):
        return False
    listed_backends = row.seen.get(f"{build.os}-{build.machine}", "").split()
    if build.backend in listed_backends:
        return True
    # A companion exists for the same platforms as the torch that it was built with.
    sibling = catalog.row_of(row.built_with or "", build.backend, build.os, build.machine)
    if sibling is None:
        return False
    return python is None or python in sibling.pythons


def releases_with(catalog: Catalog, companions: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The torch releases whose companions match the given versions, oldest first.

    `companions` are pairs of a name and a specifier, such as `("torchvision", "==0.20.*")`.
    """

    def has(torch: str, name: str, specifier: str) -> bool:
        version = _companion(catalog, torch, name, lambda row: allows(row.torch, torch))
        return version is not None and allows(specifier, version)

    return tuple(
        release.torch
        for release in catalog.releases
        if all(has(release.torch, name, specifier) for name, specifier in companions)
    )


# --- the default index ----------------------------------------------------------------------------

UNREAD = "unknown"
"""The backend of an installed torch, if no source shows which one it is."""


def default_backend(catalog: Catalog, version: str, family: str, machine: str) -> str | None:
    """The backend of the wheel on the default index; None if that index has never had this version.

    >>> from gpusetup.catalog.file import load_catalog
    >>> catalog = load_catalog()
    >>> default_backend(catalog, "2.5.1", "linux", "x86_64")
    'cu124'
    >>> default_backend(catalog, "2.10.0", "linux", "aarch64")
    'cpu'
    >>> default_backend(catalog, "2.5.1+mine", "linux", "x86_64")
    """
    torch = parsed(version)
    # PyPI accepts no labels, and torch publishes no pre-releases there. But on macOS, wheels from
    # every index have the backend `cpu`.
    if (torch.local or torch.is_prerelease) and family != "macos":
        return None
    rows = [
        row
        for row in catalog.default_wheels
        if row.on in (family, f"{family}-{machine}") and parsed(row.from_torch) <= torch
    ]
    return max(rows, key=lambda row: parsed(row.from_torch)).backend if rows else None


def usual_major(catalog: Catalog, build: TorchBuild) -> str:
    """The CUDA major version of the default index's wheel for a torch version; "" if it has no
    CUDA."""
    backend = default_backend(catalog, build.torch, build.os, build.machine)
    return (cuda_of(backend or "") or "").partition(".")[0]
