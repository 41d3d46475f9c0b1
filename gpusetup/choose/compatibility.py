"""What goes together with a build of torch, by the table of companions and the catalog. Pure.

doctor, resolve and install ask here. A reason says what is wrong and where that is known from;
None means that nothing speaks against the two.
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
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Snapshot, Torch
from gpusetup.model.versions import allows, cuda_of, parsed

EXACT = re.compile(r"===?([^*,]+)")
"""One release by its version."""
CUDA_EXTRA = re.compile(r"cu(?:da)?_?(1\d)(?!\d)")
"""`jax[cuda12]`: an extra that brings the libraries of one CUDA."""


class Companionship(Frozen):
    """The words that are to go together with torch, on which host, by which table."""

    words: tuple[str, ...]
    host: HostFacts
    catalog: Catalog
    only_table: bool = False
    """Whether no index is asked: then what the table says of packages that declare their torch
    themselves counts too."""

    takes_torch_index: bool = True
    """Whether packages that torch's own index has for each CUDA are taken from there."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the packages."""
        return tuple(map(name_of, self.words))

    @property
    def projects(self) -> tuple[Project, ...]:
        """What the table knows of the packages."""
        projects = map(companion_table().project, self.names)
        return tuple(filter(None, projects))


# --- packages beside a build ----------------------------------------------------------------------


def why_none_fits(beside: Companionship, build: TorchBuild) -> str | None:
    """Why one of the packages has no release for a build; None if each has one."""
    for word in beside.words:
        reason = why_extra_differs(word, build)
        if reason:
            return reason
    for project in beside.projects:
        reason = why_not_on_host(project, build, beside.host)
        if reason:
            return reason
        rows = rows_meant(beside, project)
        reasons = [why_row_differs(beside, project, row, build) for row in rows]
        if reasons and all(reasons):
            return reasons[0]
    return None


def why_extra_differs(word: str, build: TorchBuild) -> str | None:
    """Why an extra of a package (`jax[cuda12]`) does not go with the CUDA of a build."""
    majors = []
    for extra in Requirement(word).extras:
        cuda = CUDA_EXTRA.match(extra)
        if cuda:
            majors.append(cuda[1])
    if not build.cuda or not majors or build.cuda_major in majors:
        return None
    return f"{word} is built for CUDA {' and '.join(majors)}, torch for CUDA {build.cuda}"


def rows_meant(beside: Companionship, project: Project) -> tuple[Pair, ...]:
    """The rows of the table that the wanted release may be of.

    One release that was built otherwise says nothing of the others: unless a release is wanted by
    its version, only spans of releases count.
    """
    exact = []
    for word in beside.words:
        version = EXACT.fullmatch(str(Requirement(word).specifier))
        if version and name_of(word) == project.name:
            exact.append(row_of(project, version[1]))
    rows = tuple(filter(None, exact))
    if not rows and not beside.only_table:
        rows = tuple(row for row in project.rows if not EXACT.fullmatch(row.versions))
    rows = rows or project.rows
    if beside.only_table:
        # Where nobody tells which torch a release takes, the table says it of some.
        rows = tuple(row for row in rows if row.torch) or rows
    return rows


def why_row_differs(
    beside: Companionship, project: Project, row: Pair, build: TorchBuild
) -> str | None:
    """Why the releases of a row do not go with a build."""
    releases = f"{project.name} {row.versions.removeprefix('==')}"
    if beside.only_table and not project.has_wheels(row):
        # An index that is asked says itself that it has no wheel.
        return f"{releases} has no wheel on an index ({row.source})"
    usual = usual_major(beside.catalog, build)
    is_for_each_cuda = beside.takes_torch_index and is_from_torch_index(project, build, usual)
    if not is_for_each_cuda and not has_cuda(project, row, build.cuda_major, usual):
        majors = " and ".join(row.cuda.split()).replace("default", usual)
        torch = f"torch for CUDA {build.cuda}" if build.cuda else f"this torch is {build.backend}'s"
        return f"{releases} is built for CUDA {majors}, {torch} ({row.source})"
    # An index reads itself what a package declares.
    table_counts = beside.only_table or not project.declares
    if not table_counts or not row.torch or allows(row.torch, build.torch):
        return None
    return f"{releases} needs torch{row.torch} ({row.source})"


def is_from_torch_index(project: Project, build: TorchBuild, usual_cuda: str) -> bool:
    """Whether a package comes from torch's own index beside a build: that of the default index is
    built for another CUDA."""
    return project.on_torch_index and build.cuda_major != usual_cuda


def names_on_torch_index(
    names: Iterable[str], build: TorchBuild, catalog: Catalog
) -> tuple[str, ...]:
    """Those of some packages that come from torch's own index beside a build."""
    usual = usual_major(catalog, build)
    matching = []
    for name in dict.fromkeys(names):
        project = companion_table().project(name)
        if project and is_from_torch_index(project, build, usual):
            matching.append(name)
    return tuple(matching)


def why_release_differs(
    beside: Companionship, name: str, version: str, build: TorchBuild
) -> str | None:
    """Why one release does not go with a build; None if nothing speaks against it."""
    project = companion_table().project(name)
    row = row_of(project, version) if project else None
    if project is None or row is None:
        return None
    reason = why_row_differs(beside, project, row, build)
    return reason.replace(row.versions.removeprefix("=="), version, 1) if reason else None


def why_not_on_host(project: Project, build: TorchBuild, host: HostFacts) -> str | None:
    """Why a package has nothing for this host, whatever its release."""
    platform, platforms = f"{build.os}-{build.machine}", project.on.split()
    if platform not in platforms:
        return f"{project.name} has no build for {platform} (only {', '.join(platforms)})"
    if project.gpu and build.cuda is None and build.os != "macos":
        return f"{project.name} computes on an NVIDIA GPU only, and none is here"
    oldest = project.capability
    for gpu in host.gpus:
        capability = gpu.compute_capability
        if capability and oldest and capability < oldest:
            needs = f"{project.name} needs a GPU of compute capability {oldest}"
            return f"{needs}; {gpu.name} has {capability}"
    return None


NUMPY_1 = "numpy<2"
"""The numpy whose ABI the torches before 2.3 were built against."""


def numpy_beside(torch: str, catalog: Catalog) -> str | None:
    """The numpy that a torch needs: `numpy<2` for one that was built before numpy 2; None if it
    takes any."""
    first = catalog.milestone("torch for numpy 1 and 2")
    return NUMPY_1 if parsed(torch.partition("+")[0]) < parsed(first) else None


def takes_numpy(torch: str, numpy: str, catalog: Catalog) -> bool:
    """Whether a torch works with an installed numpy."""
    return numpy_beside(torch, catalog) is None or parsed(numpy).major < 2


def limits_beside(
    host: HostFacts, catalog: Catalog, build: TorchBuild, on_torch_index: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """What to forbid beside a build, as an installer's constraints: `torchcodec!=0.9.*`."""
    numpy = numpy_beside(build.torch, catalog)
    companions = limits_of_table(host, catalog, build, on_torch_index)
    return (*companions, numpy) if numpy else companions


def limits_of_table(
    host: HostFacts, catalog: Catalog, build: TorchBuild, on_torch_index: tuple[str, ...]
) -> tuple[str, ...]:
    """The releases that the table of companions does not take beside a build."""
    limits: list[str] = []
    for project in companion_table().projects:
        # What is not named comes from the default index, whatever requires it.
        is_named = project.name in on_torch_index
        beside = Companionship(words=(), host=host, catalog=catalog, takes_torch_index=is_named)
        rows = [row for row in project.rows if why_row_differs(beside, project, row, build)]
        limits += without(project, rows)
    return tuple(limits)


# --- what is installed beside a build that comes --------------------------------------------------


def companions_of_another(
    machine: Snapshot, torch: str, backend: str | None, catalog: Catalog
) -> tuple[str, ...]:
    """The installed torchvision and torchaudio that are known not to belong to a torch."""
    packages = installed_packages(machine)
    platform = f"{machine.os.family}-{machine.os.machine}"
    misfits = []
    for name in COMPANIONS:
        if name not in packages:
            continue
        package = packages[name]
        fits = serves_torch(catalog, name, package.version, torch)
        if backend not in (None, UNREAD) and fits is not False:
            # conda's are not the default index's wheels, whose CUDA the platform tells.
            where = None if package.installer == "conda" else platform
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
    """What does not belong to a torch that comes, and what becomes of it."""
    packages = installed_packages(machine)
    new_torch = f"torch {build.torch} ({build.backend})"
    named = set()
    for package in dependents(machine, build):
        named.add(package.name)
        way = "it stays"
        if package.can_follow:
            way = f"without a release for {new_torch} it stays"
        yield f"{package.name} {package.version} requires {package.needs}: {way}, and may fail"
    for name in companions_of_another(machine, build.torch, build.backend, catalog):
        if name not in build.family():
            version = packages[name].version
            yield f"{name} {version} has no release for {new_torch}: it stays, and may fail"
    for name in build.family(tuple(packages)):
        if packages[name].direct and packages[name].installer != "conda":
            source = "came from a folder or a file (or is editable)"
            version = packages[name].version
            yield f"{name} {version} {source}: the wheel of the index replaces it"
    for name in sorted(COMPILED & packages.keys() - named):
        version, torch = packages[name].version, machine.torch
        is_of_another_cuda = differs_in_cuda(torch, build)
        if is_of_another_cuda or is_compiled_for_another(version, torch.version, build):
            again = f"install or build it again for {new_torch}, before that it may fail"
            project = companion_table().project(name)
            way = project.instead.get("CUDA", "") if project and is_of_another_cuda else ""
            note = f"{name} {version} was compiled against torch {torch.version or ''}: {again}"
            yield f"{note}; {way}" if way else note


def differs_in_cuda(torch: Torch, build: TorchBuild) -> bool:
    """Whether an installed torch and a build are for two majors of CUDA: what links the libraries
    of one does not load beside the other."""
    installed = torch.cuda or cuda_of(torch.backend or "") or ""
    major = installed.partition(".")[0]
    return bool(major and build.cuda_major) and major != build.cuda_major


def is_compiled_for_another(version: str, torch: str | None, build: TorchBuild) -> bool:
    """Whether a package that is compiled against the installed torch fails beside a build."""
    label = re.search(r"\+.*?(cpu|cu\d{2,3})(?!\w)", version)
    if label and label[1] != build.backend:
        return True
    # Two patches of one release line have the same ABI.
    return bool(torch) and parsed(torch).release[:2] != parsed(build.torch).release[:2]


def notes_on_other_wheels(beside: Companionship, newest: TorchBuild) -> Iterator[str]:
    """Where a package has wheels for this CUDA whose newest release on the default index is built
    for another one."""
    usual = usual_major(beside.catalog, newest)
    for project in beside.projects:
        way = project.instead.get("CUDA")
        if not way or not project.rows or is_from_torch_index(project, newest, usual):
            continue
        if newest.cuda and not has_cuda(project, project.rows[0], newest.cuda_major, usual):
            yield f"{project.name} for CUDA {newest.cuda_major}: {way}"
