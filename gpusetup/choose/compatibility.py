"""Decides which packages work with a torch build, according to the companion table and the catalog.
Pure functions.

doctor, resolve and install use this module. The functions `why_...` return the reason why a package
does not work with a build, with its source; None if no reason is known. torchvision and torchaudio
are judged by the catalog's rows, all other packages by the companion table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.companion_table import Pair, Project, companion_table, has_cuda, row_of
from gpusetup.catalog.companions import UNREAD, serves_backend, serves_torch, usual_major
from gpusetup.choose.host import HostFacts
from gpusetup.choose.installed import COMPANIONS, conflicts, installed_packages, may_have_release
from gpusetup.choose.wish import name_of
from gpusetup.model.builds import TorchBuild
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.versions import allows, parsed

CUDA_EXTRA = re.compile(r"cu(?:da)?_?(1\d)(?!\d)")
"""An extra such as in `jax[cuda12]`, which brings the libraries for one CUDA version."""
USES_TORCH = frozenset(
    "accelerate diffusers kornia lightning open-clip-torch peft pytorch-lightning "  # noqa: SIM905
    "sentence-transformers timm torchmetrics transformers ultralytics".split()
)
"""Well-known packages that compute with torch, besides those of the companion table."""


def uses_torch(name: str) -> bool:
    """Whether a package is known to compute with torch."""
    return name in USES_TORCH or companion_table().project(name) is not None


def why_no_release_works(
    word: str, build: TorchBuild, host: HostFacts, catalog: Catalog, *, by_table: bool = False
) -> str | None:
    """The reason why no release that a requirement allows works with a build; None if one may work.

    `by_table` means that no index is asked. Then the table also counts for releases that declare
    their torch themselves, and for wheels that no index has.
    """
    requirement = Requirement(word)
    cuda_extras = map(CUDA_EXTRA.match, requirement.extras)
    cuda_majors = [extra[1] for extra in cuda_extras if extra]
    # A CPU build loads no CUDA library whose version could differ.
    if cuda_majors and build.cuda and build.cuda_major not in cuda_majors:
        return f"{word} needs CUDA {' and '.join(cuda_majors)}, but torch has CUDA {build.cuda}"
    project = companion_table().project(name_of(word))
    if project is None:
        return None
    reason = why_not_on_host(project, build, host)
    if reason:
        return reason
    rows = rows_allowed(project, requirement.specifier, by_table=by_table)
    # An index knows releases that the table lacks, so only those for this torch are judged. But the
    # table knows the torch of an exact release, whether it declares it or not.
    is_exact = exact_version(requirement.specifier) is not None
    if project.declares and not by_table and not is_exact:
        rows = tuple(row for row in rows if is_for_torch(row, build))
    reasons = [why_row_differs(project, row, build, catalog, by_table=by_table) for row in rows]
    # One row that fits (None) is enough: the other rows are about older or newer releases. Without
    # any row, nothing is known against a release.
    return None if None in reasons or not reasons else reasons[0]


def exact_version(specifier: SpecifierSet) -> str | None:
    """The version that a specifier pins, such as `0.0.30`; None if it allows several.

    >>> exact_version(SpecifierSet("==0.0.30")), exact_version(SpecifierSet("==0.16.*"))
    ('0.0.30', None)
    """
    pinned = re.fullmatch(r"===?([^*,]+)", str(specifier))
    return pinned[1] if pinned else None


def rows_allowed(
    project: Project, specifier: SpecifierSet, *, by_table: bool = False
) -> tuple[Pair, ...]:
    """The table's rows about the releases that a requirement allows, newest first. If no index is
    asked (`by_table`), those that name their torch, or all if none does."""
    exact = exact_version(specifier)
    if exact:
        row = row_of(project, exact)
        return (row,) if row else ()
    rows = []
    for row in project.rows:
        # `==0.16.*` gives 0.16, and `==1.2.post1` gives 1.2.post1. A range gives none, and counts.
        release = re.match(r"==([\d.]+?(?:\.?(?:post|rc|b|a)\d+)?)(?:\.\*)?$", row.versions)
        # The last patch of a series (`==0.16.*`) may be allowed even if its first one is not. Its
        # number is unknown, so assume a high one.
        patches = ("", ".9999") if row.versions.endswith(".*") else ("",)
        if not release or any(specifier.contains(release[1] + patch) for patch in patches):
            rows.append(row)
    # Only these can be compared with a build.
    with_torch = [row for row in rows if row.torch]
    return tuple(with_torch if by_table and with_torch else rows)


def is_for_torch(row: Pair, build: TorchBuild) -> bool:
    """Whether the releases in a row support the torch version of a build."""
    return row.torch is None or allows(row.torch, build.torch)


def why_row_differs(
    project: Project,
    row: Pair,
    build: TorchBuild,
    catalog: Catalog,
    *,
    by_table: bool = False,
    of_torch_index: bool = True,
) -> str | None:
    """The reason why the releases in a row do not work with a build; None if they do.

    `by_table` also rejects releases without a wheel. With `of_torch_index`, a package that torch's
    own index has for each CUDA version is installed from there, so its CUDA version always matches.
    """
    releases = f"{project.name} {row.versions.removeprefix('==')}"
    if by_table and not project.has_wheels(row):
        # If an index is asked, it reports a missing wheel itself.
        return f"no package index has a wheel for {releases} (see {row.source})"
    if not is_for_torch(row, build):
        return f"{releases} needs torch{row.torch} ({row.source})"
    default_major = usual_major(catalog, build)
    # A package for the default CUDA version comes from the default index, so it is compared.
    if of_torch_index and project.on_torch_index and build.cuda_major != default_major:
        return None
    if has_cuda(project, row, build.cuda_major, default_major):
        return None
    # The table writes `default` for the CUDA version of PyPI's torch.
    built_for = " and ".join(row.cuda.split()).replace("default", default_major)
    torch = f"torch for CUDA {build.cuda}" if build.cuda else f"this is a {build.backend} torch"
    return f"{releases} is built for CUDA {built_for}, but {torch} ({row.source})"


def why_release_differs(name: str, version: str, build: TorchBuild, catalog: Catalog) -> str | None:
    """The reason why a release on the default index does not work with a build; None if unknown."""
    project = companion_table().project(name)
    row = row_of(project, version) if project else None
    if project is None or row is None:
        return None
    # With this version in the row, the reason names only this release.
    of_release = replace(row, versions=f"=={version}")
    return why_row_differs(project, of_release, build, catalog, of_torch_index=False)


def names_on_torch_index(
    names: Iterable[str], build: TorchBuild, catalog: Catalog
) -> tuple[str, ...]:
    """Those of the given packages that must come from torch's own index, because their release on
    the default index is for another CUDA version; none if the build's is the default version."""
    if build.cuda_major == usual_major(catalog, build):
        return ()
    projects = map(companion_table().project, dict.fromkeys(names))
    return tuple(project.name for project in projects if project and project.on_torch_index)


def why_not_on_host(project: Project, build: TorchBuild, host: HostFacts) -> str | None:
    """The reason why a package has no release for this platform or these GPUs; None if it has."""
    platform, platforms = f"{build.os}-{build.machine}", project.on.split()
    if platform not in platforms:
        return f"{project.name} has no build for {platform} (only {', '.join(platforms)})"
    return why_not_on_gpus(project, build, host)


def why_not_on_gpus(project: Project, build: TorchBuild, host: HostFacts) -> str | None:
    """The reason why even a package built from source cannot compute on these GPUs, if any."""
    # On a Mac, packages that need a GPU use Apple's.
    if project.gpu and build.cuda is None and build.os != "macos":
        return f"{project.name} needs an NVIDIA GPU, and this machine has none"
    oldest = project.capability
    for gpu in host.gpus:
        capability = gpu.compute_capability
        # If the GPU is unknown, it does not exclude a package.
        if capability and oldest and capability < oldest:
            needs = f"{project.name} needs a GPU of compute capability {oldest}"
            return f"{needs}; {gpu.name} has {capability}"
    return None


NUMPY_1, FIRST_FOR_NUMPY_2 = "numpy<2", "2.3.0"
"""The numpy versions with the ABI that torch before 2.3 was built for (torch's release notes)."""


def numpy_limits(torch: str) -> tuple[str, ...]:
    """`numpy<2` for a torch that was built before numpy 2 (its wheels do not declare it), or ()."""
    is_older = parsed(torch.partition("+")[0]) < parsed(FIRST_FOR_NUMPY_2)
    return (NUMPY_1,) if is_older else ()


def works_with_numpy(torch: str, numpy: str) -> bool:
    """Whether this torch works with this version of numpy."""
    # A torch that was built for numpy 2 also runs with numpy 1.
    return parsed(numpy).major < 2 or not numpy_limits(torch)


def limits_for_build(
    catalog: Catalog, build: TorchBuild, on_torch_index: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Constraints that make an installer skip newer releases which do not work with a build, such
    as `torchcodec<0.14`.

    `on_torch_index` contains the packages that will be installed from torch's own index. Any other
    package comes from the default index, even as a dependency.
    """
    limits = [
        limit_of(project, build, catalog, of_torch_index=project.name in on_torch_index)
        for project in companion_table().projects
    ]
    return (*filter(None, limits), *numpy_limits(build.torch))


def limit_of(
    project: Project, build: TorchBuild, catalog: Catalog, *, of_torch_index: bool
) -> str | None:
    """The constraint for one package, `of_torch_index` or not; None if it needs none."""
    oldest_too_new = None
    # The table is sorted from new to old. An installer takes the newest release below the limit, so
    # only the rows that are newer than the first fitting one matter.
    for row in project.rows:
        if not why_row_differs(project, row, build, catalog, of_torch_index=of_torch_index):
            break
        # If a package declares the torch that it needs, the installer reads that itself.
        if is_for_torch(row, build) or not project.declares:
            oldest_too_new = row
    if oldest_too_new is None:
        return None
    # A row without a first release (`<0.19`) is about all older ones: none is left, so `<0`.
    first_release = re.match(r"[>=]=([\w.]+?)(?:\.\*|,|$)", oldest_too_new.versions)
    return f"{project.name}<{first_release[1] if first_release else 0}"


# --- notes on installed packages ------------------------------------------------------------------


def mismatched_companions(
    machine: Snapshot, torch: str, backend: str | None, catalog: Catalog
) -> tuple[str, ...]:
    """The installed torchvision and torchaudio that are known not to match this torch."""
    packages = installed_packages(machine)
    misfits = []
    for name in COMPANIONS:
        package = packages.get(name)
        if package is None:
            continue
        fits = serves_torch(catalog, name, package.version, torch)
        # If the backend of torch is unknown, it cannot be compared with the companion's.
        if backend and backend != UNREAD and fits is not False:
            # The platform tells the CUDA version of a wheel without a label, from the default
            # index, but not that of a conda package.
            is_wheel = package.installer != "conda"
            platform = f"{machine.os.family}-{machine.os.machine}" if is_wheel else None
            fits = serves_backend(catalog, name, package.version, backend, platform)
        # None means that it is unknown whether they match.
        if fits is False:
            misfits.append(name)
    return tuple(misfits)


def notes_on_installed(machine: Snapshot, build: TorchBuild, catalog: Catalog) -> Iterator[str]:
    """Yields notes on installed packages that may fail with the new torch, or will be replaced."""
    packages, new_torch = installed_packages(machine), f"torch {build.torch} ({build.backend})"
    for name, requirement in conflicts(machine, build).items():
        stays = "it is kept, and may fail"
        if may_have_release(packages[name]):
            stays = f"without a release for {new_torch} {stays}"
        yield f"{name} {packages[name].version} requires {requirement}: {stays}"
    for name in mismatched_companions(machine, build.torch, build.backend, catalog):
        # A companion that the build's release has is replaced together with torch.
        if name not in build.family():
            version = packages[name].version
            yield f"{name} {version} has no release for {new_torch}: it is kept, and may fail"
    for name in build.family(tuple(packages)):
        # conda records a folder for every package, so this only counts for other installers.
        if packages[name].direct and packages[name].installer != "conda":
            source = "came from a folder or a file (or is editable)"
            yield f"{name} {packages[name].version} {source}: a wheel from the index replaces it"
