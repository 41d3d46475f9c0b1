"""Decides which packages work with a torch build, according to the companion table and the catalog.
Pure functions.

doctor, resolve and install use this module. The functions `why_...` return the reason why a package
does not work with a build, with its source. They return None if no reason is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from packaging.requirements import Requirement

from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.companion_table import (
    Pair,
    Project,
    companion_table,
    has_cuda,
    row_of,
    without,
)
from gpusetup.catalog.companions import UNREAD, serves_backend, serves_torch, usual_major
from gpusetup.choose.host import HostFacts
from gpusetup.choose.installed import COMPANIONS, dependents, installed_packages
from gpusetup.choose.wish import name_of
from gpusetup.model.builds import TorchBuild
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Package, Snapshot, Torch
from gpusetup.model.versions import allows, cuda_of, parsed
from gpusetup.readings.packages import normalised

EXACT = re.compile(r"===?([^*,]+)")
"""A requirement for exactly one version."""
CUDA_EXTRA = re.compile(r"cu(?:da)?_?(1\d)(?!\d)")
"""An extra such as in `jax[cuda12]`, which brings the libraries for one CUDA version."""


class CompanionQuestion(Frozen):
    """The required packages and the host to judge them for, and how far the companion table
    applies."""

    words: tuple[str, ...]
    host: HostFacts
    catalog: Catalog
    only_table: bool = False
    """Whether no index is asked. In that case the table also counts for packages that declare their
    torch themselves."""

    takes_torch_index: bool = True
    """Whether packages that torch's own index has for each CUDA version are installed from that
    index."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the required packages."""
        names = map(name_of, self.words)
        return tuple(names)

    @property
    def projects(self) -> tuple[Project, ...]:
        """The companion table's entries for the required packages; packages that it does not know
        are left out."""
        table = companion_table()
        projects = map(table.project, self.names)
        # Most packages are not in the table, because they work with any torch.
        return tuple(filter(None, projects))


# --- packages together with a build ---------------------------------------------------------------


def why_none_fits(companions: CompanionQuestion, build: TorchBuild) -> str | None:
    """The first reason why a package has no release for a build; None if every package has one."""
    for word in companions.words:
        reason = why_extra_differs(word, build)
        if reason:
            return reason
    for project in companions.projects:
        reason = why_not_on_host(project, build, companions.host)
        if reason:
            return reason
        reasons = []
        for row in rows_meant(companions, project):
            reasons.append(why_row_differs(companions, project, row, build))
        # One row that fits is enough, because the other rows are about older or newer releases.
        if reasons and all(reasons):
            return reasons[0]
    return None


def why_extra_differs(word: str, build: TorchBuild) -> str | None:
    """The reason why a requirement's extra (`jax[cuda12]`) does not match the build's CUDA version;
    None if it does."""
    # A CPU build loads no CUDA library whose version could differ.
    if build.cuda is None:
        return None
    majors = []
    for extra in Requirement(word).extras:
        cuda = CUDA_EXTRA.match(extra)
        if cuda:
            majors.append(cuda[1])
    if not majors or build.cuda_major in majors:
        return None
    built_for = " and ".join(majors)
    return f"{word} is built for CUDA {built_for}, torch for CUDA {build.cuda}"


def rows_meant(companions: CompanionQuestion, project: Project) -> tuple[Pair, ...]:
    """The table rows that matter for a package: those for the requested exact version, otherwise
    the general ones."""
    rows = rows_of_exact_release(companions, project)
    if not rows and not companions.only_table:
        # Leave out rows about a single release that was built differently, because such a row does
        # not apply to other releases.
        for row in project.rows:
            if not EXACT.fullmatch(row.versions):
                rows.append(row)
    rows = rows or [*project.rows]
    if companions.only_table:
        # Without an index, only rows that name their torch can be compared with the build.
        with_torch = [row for row in rows if row.torch]
        rows = with_torch or rows
    return tuple(rows)


def rows_of_exact_release(companions: CompanionQuestion, project: Project) -> list[Pair]:
    """The table rows for a package that is requested with an exact version, such as `vllm==0.32.0`;
    empty if there are none."""
    rows = []
    for word in companions.words:
        if name_of(word) != project.name:
            continue
        exact = EXACT.fullmatch(str(Requirement(word).specifier))
        row = row_of(project, exact[1]) if exact else None
        if row:
            rows.append(row)
    return rows


def why_row_differs(
    companions: CompanionQuestion, project: Project, row: Pair, build: TorchBuild
) -> str | None:
    """The reason why the releases in a row do not work with a build; None if they do."""
    versions = row.versions.removeprefix("==")
    releases = f"{project.name} {versions}"
    if companions.only_table and not project.has_wheels(row):
        # If an index is asked, it reports a missing wheel itself.
        return f"no index has a wheel of {releases} ({row.source})"
    usual = usual_major(companions.catalog, build)
    is_for_each_cuda = companions.takes_torch_index and is_from_torch_index(project, build, usual)
    if not is_for_each_cuda and not has_cuda(project, row, build.cuda_major, usual):
        majors = " and ".join(row.cuda.split())
        built_for = majors.replace("default", usual)
        torch = f"this torch is {build.backend}'s"
        if build.cuda:
            torch = f"torch for CUDA {build.cuda}"
        return f"{releases} is built for CUDA {built_for}, {torch} ({row.source})"
    # An index reads a package's declared dependencies itself.
    table_counts = companions.only_table or not project.declares
    if not table_counts or not row.torch:
        return None
    if allows(row.torch, build.torch):
        return None
    return f"{releases} needs torch{row.torch} ({row.source})"


def is_from_torch_index(project: Project, build: TorchBuild, usual_cuda: str) -> bool:
    """Whether a package must come from torch's own index, because its release on the default index
    is for another CUDA version."""
    # The default index's release is built for another CUDA version.
    differs = build.cuda_major != usual_cuda
    return project.on_torch_index and differs


def names_on_torch_index(
    names: Iterable[str], build: TorchBuild, catalog: Catalog
) -> tuple[str, ...]:
    """Those of the given packages that come from torch's own index for this build."""
    usual = usual_major(catalog, build)
    matching = []
    for name in dict.fromkeys(names):
        project = companion_table().project(name)
        if project and is_from_torch_index(project, build, usual):
            matching.append(name)
    return tuple(matching)


def why_release_differs(
    companions: CompanionQuestion, name: str, version: str, build: TorchBuild
) -> str | None:
    """The reason why one release of a package does not work with a build; None if the table knows
    of none."""
    project = companion_table().project(name)
    if project is None:
        return None
    row = row_of(project, version)
    if row is None:
        return None
    # With this version in the row, the reason names only this release and not all versions in the
    # row.
    release_row = replace(row, versions=f"=={version}")
    return why_row_differs(companions, project, release_row, build)


def why_not_on_host(project: Project, build: TorchBuild, host: HostFacts) -> str | None:
    """The reason why a package has no release for this platform or these GPUs; None if it has
    one."""
    platform = f"{build.os}-{build.machine}"
    platforms = project.on.split()
    if platform not in platforms:
        return f"{project.name} has no build for {platform} (only {', '.join(platforms)})"
    return why_not_on_gpus(project, build, host)


def why_not_on_gpus(project: Project, build: TorchBuild, host: HostFacts) -> str | None:
    """The reason why a package cannot compute on this host's GPUs, even if it is built from source;
    None if it can."""
    # On a Mac, packages that need a GPU use Apple's.
    is_without_gpu = build.cuda is None and build.os != "macos"
    if project.gpu and is_without_gpu:
        return f"{project.name} computes on an NVIDIA GPU only, and none is here"
    oldest = project.capability
    for gpu in host.gpus:
        capability = gpu.compute_capability
        # If the GPU is unknown, it does not exclude a package.
        if capability is None or oldest is None:
            continue
        if capability < oldest:
            needs = f"{project.name} needs a GPU of compute capability {oldest}"
            return f"{needs}; {gpu.name} has {capability}"
    return None


NUMPY_1 = "numpy<2"
"""The numpy versions with the ABI that torch before 2.3 was built for."""


def numpy_beside(torch: str, catalog: Catalog) -> str | None:
    """The numpy requirement of a torch version: `numpy<2` if it was built before numpy 2; None if
    any numpy works."""
    first = catalog.milestone("torch for numpy 1 and 2")
    version = parsed(torch.partition("+")[0])
    is_before = version < parsed(first)
    return NUMPY_1 if is_before else None


def takes_numpy(torch: str, numpy: str, catalog: Catalog) -> bool:
    """Whether this torch works with this version of numpy."""
    needs_numpy_1 = numpy_beside(torch, catalog) is not None
    is_numpy_1 = parsed(numpy).major < 2
    # numpy 2 changed its C interface, but a torch that was built for numpy 2 also runs with numpy
    # 1.
    return is_numpy_1 or not needs_numpy_1


def limits_beside(
    host: HostFacts, catalog: Catalog, build: TorchBuild, on_torch_index: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Constraints that make an installer skip releases which do not work with a build, such as
    `torchcodec!=0.9.*`."""
    limits = [*limits_of_table(host, catalog, build, on_torch_index)]
    numpy = numpy_beside(build.torch, catalog)
    # torch's wheels do not declare which numpy they need.
    if numpy:
        limits.append(numpy)
    return tuple(limits)


def limits_of_table(
    host: HostFacts, catalog: Catalog, build: TorchBuild, on_torch_index: tuple[str, ...]
) -> tuple[str, ...]:
    """The releases that the companion table excludes for a build, as constraints for an installer,
    such as `torchcodec!=0.9.*`.

    `on_torch_index` contains the packages that will be installed from torch's own index.
    """
    limits: list[str] = []
    for project in companion_table().projects:
        companions = CompanionQuestion(
            words=(),
            host=host,
            catalog=catalog,
            # Any other package comes from the default index, even as a dependency.
            takes_torch_index=project.name in on_torch_index,
        )
        rows = []
        for row in project.rows:
            if why_row_differs(companions, project, row, build):
                rows.append(row)
        limits += without(project, rows)
    return tuple(limits)


# --- notes on installed packages ------------------------------------------------------------------


def companions_of_another(
    machine: Snapshot, torch: str, backend: str | None, catalog: Catalog
) -> tuple[str, ...]:
    """The installed companions (torchvision, torchaudio) that are known not to match this torch
    version and backend."""
    packages = installed_packages(machine)
    platform = f"{machine.os.family}-{machine.os.machine}"
    misfits = []
    for name in COMPANIONS:
        package = packages.get(name)
        if package is None:
            continue
        fits = serves_torch(catalog, name, package.version, torch)
        # If the backend of torch or of the companion is unknown, the two cannot be compared.
        is_known = backend is not None and backend != UNREAD
        if is_known and fits is not False:
            # A conda package is not the default index's wheel, whose CUDA version follows from the
            # platform.
            is_wheel = package.installer != "conda"
            where = platform if is_wheel else None
            fits = serves_backend(catalog, name, package.version, backend or "", where)
        if fits is False:
            misfits.append(name)
    return tuple(misfits)


COMPILED = frozenset(
    "apex auto-gptq autoawq detectron2 exllamav2 flash-attn flash-attn-3 mmcv natten pyg-lib "  # noqa: SIM905
    "sgl-kernel torch-cluster torch-scatter torch-sparse torchcodec torchtext transformer-engine "
    "vllm xformers".split()
)
"""Distributions whose libraries are compiled against one minor version of torch."""


def notes_on_installed(machine: Snapshot, build: TorchBuild, catalog: Catalog) -> Iterator[str]:
    """Yields notes on installed packages that may fail with the new torch."""
    new_torch = f"torch {build.torch} ({build.backend})"
    dependent_packages = dependents(machine, build)
    for package in dependent_packages:
        fate = "it stays"
        if package.can_follow:
            fate = f"without a release for {new_torch} it stays"
        yield f"{package.name} {package.version} requires {package.needs}: {fate}, and may fail"
    yield from notes_on_companions(machine, build, catalog)
    # Skip packages that declare which torch they need, because the notes above already name them.
    declared = {package.name for package in dependent_packages}
    packages = installed_packages(machine)
    for name in sorted(COMPILED & packages.keys() - declared):
        note = note_on_compiled(packages[name], machine.torch, build)
        if note:
            yield note


def notes_on_companions(machine: Snapshot, build: TorchBuild, catalog: Catalog) -> Iterator[str]:
    """Yields notes on companions that have no release for the new torch, or that were installed
    from a folder and will be replaced."""
    packages = installed_packages(machine)
    new_torch = f"torch {build.torch} ({build.backend})"
    new_versions = build.family(tuple(packages))
    for name in companions_of_another(machine, build.torch, build.backend, catalog):
        if name not in build.family():
            version = packages[name].version
            yield f"{name} {version} has no release for {new_torch}: it stays, and may fail"
    for name in new_versions:
        package = packages[name]
        # conda records a folder for every package, so this only counts for other installers.
        if package.direct and package.installer != "conda":
            source = "came from a folder or a file (or is editable)"
            yield f"{name} {package.version} {source}: the wheel of the index replaces it"


def note_on_compiled(package: Package, torch: Torch, build: TorchBuild) -> str | None:
    """A note that a package was compiled against the installed torch and must be built again; None
    if it need not."""
    differs = differs_in_cuda(torch, build)
    if not differs and not is_compiled_for_another(package.version, torch.version, build):
        return None
    new_torch = f"torch {build.torch} ({build.backend})"
    note = (
        f"{package.name} {package.version} was compiled against torch {torch.version or ''}: "
        f"install or build it again for {new_torch}, before that it may fail"
    )
    project = companion_table().project(normalised(package.name))
    source = project.instead.get("CUDA") if project and differs else None
    return f"{note}; {source}" if source else note


def differs_in_cuda(torch: Torch, build: TorchBuild) -> bool:
    """Whether the installed torch and a build are for different CUDA major versions; false if
    either has none."""
    of_backend = cuda_of(torch.backend or "")
    cuda = torch.cuda or of_backend or ""
    installed_major = cuda.partition(".")[0]
    # A change between a CPU build and a CUDA build is not a change of the CUDA version.
    if not installed_major or not build.cuda_major:
        return False
    return installed_major != build.cuda_major


def is_compiled_for_another(version: str, torch: str | None, build: TorchBuild) -> bool:
    """Whether a package was compiled for another torch than this build, judging by its label or the
    installed torch's version."""
    label = re.search(r"\+.*?(cpu|cu\d{2,3})(?!\w)", version)
    if label and label[1] != build.backend:
        return True
    if not torch:
        return False
    # Two patch releases of one minor version have the same ABI.
    installed_line = parsed(torch).release[:2]
    new_line = parsed(build.torch).release[:2]
    return installed_line != new_line


def notes_on_other_wheels(companions: CompanionQuestion, newest: TorchBuild) -> Iterator[str]:
    """Yields notes on where to find a package's wheels for this CUDA version, if the default index
    has them for another one."""
    if newest.cuda is None:
        return
    usual = usual_major(companions.catalog, newest)
    for project in companions.projects:
        source = project.instead.get("CUDA")
        # If the package comes from torch's own index, the installer gets the right wheel without
        # help.
        is_taken = is_from_torch_index(project, newest, usual)
        if not source or not project.rows or is_taken:
            continue
        newest_row = project.rows[0]
        if not has_cuda(project, newest_row, newest.cuda_major, usual):
            yield f"{project.name} for CUDA {newest.cuda_major}: {source}"
