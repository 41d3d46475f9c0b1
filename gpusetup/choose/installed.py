"""The installed torch as a build, whether it works on the host, and the packages installed with it.

Pure: the probe reads the environment. Companions are torchvision, torchaudio, and every installed
distribution whose METADATA names the torch that it takes (`Requires-Dist: torch==2.5.1`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress

from gpusetup.accelerators.makers import is_seen_only, maker_of
from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.companions import UNREAD, beside, default_backend
from gpusetup.catalog.kernels import readable
from gpusetup.catalog.rows import Name
from gpusetup.choose.constraints import why_driver_is_too_old, why_kernels_lack_a_gpu
from gpusetup.choose.host import BuildQuestion
from gpusetup.model.builds import FAMILY, TorchBuild
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Package, Snapshot, Torch
from gpusetup.model.versions import cuda_of
from gpusetup.readings.packages import normalised

COMPANIONS: tuple[Name, ...] = ("torchvision", "torchaudio")


def installed_packages(machine: Snapshot) -> dict[str, Package]:
    """All installed packages by normalised name."""
    packages: dict[str, Package] = {}
    for package in machine.packages or ():
        name = normalised(package.name)
        # Of two of one name Python imports the first.
        packages.setdefault(name, package)
    return packages


def installed_family(machine: Snapshot) -> tuple[str, ...]:
    """torch and its installed companions; torch is included even if it is not installed."""
    packages = installed_packages(machine)
    companions = [name for name in COMPANIONS if name in packages]
    # torch counts as a member even if it is yet to come.
    return ("torch", *companions)


# --- torch as a build -----------------------------------------------------------------------------


def public(version: str | None) -> str:
    """A version without its local label (such as `+cu124`); "" for None.

    >>> public("2.5.1+cu124")
    '2.5.1'
    """
    release, _, _ = (version or "").partition("+")
    return release


def backend_read(torch: Torch) -> str | None:
    """The backend of the installed torch: as read, or else from its label or CUDA version; None if
    neither tells."""
    if torch.backend:
        return torch.backend
    _, _, label = (torch.version or "").partition("+")
    label = label.lower()
    # A vendor's label (`+nv25.3`) names no backend.
    is_backend = label == "cpu" or cuda_of(label) or maker_of(label)
    if is_backend:
        return label
    if torch.cuda is None:
        return None
    major_and_minor = torch.cuda.split(".")[:2]
    return "cu" + "".join(major_and_minor)


def installed_backend(machine: Snapshot, catalog: Catalog) -> str:
    """The backend of the installed torch or, if nothing was read, the backend of the default
    index's build of this version.

    `UNREAD` if nothing tells.
    """
    torch, os = machine.torch, machine.os
    backend = backend_read(torch)
    if backend:
        return backend
    # A text shows no environment, so nothing is concluded from it; conda and a Jetson have torch
    # from elsewhere than the default index.
    is_from_elsewhere = os.jetson or torch.installer == "conda"
    if is_from_elsewhere or machine.origin == "report":
        return UNREAD
    version = torch.version or "0"
    usual = default_backend(catalog, version, os.family or "", os.machine or "")
    return usual or UNREAD


def installed_build(machine: Snapshot, question: BuildQuestion) -> TorchBuild | None:
    """The installed torch as a build, from the catalog or from what was read; None if no torch is
    installed or a report does not name its backend.

    A nightly, a vendor's or a build of one's own has no row: its companions are not known then.
    """
    torch, catalog, host = machine.torch, question.catalog, question.host
    if not torch.version or torch.installed is False:
        return None
    backend = installed_backend(machine, catalog)
    # What a text does not say of a torch leaves the answer to what the text asks for.
    if backend == UNREAD and machine.origin == "report":
        return None
    row = catalog.row_of(torch.version, backend, host.family, host.architecture)
    if row is None:
        build = build_as_read(torch, backend, question)
    else:
        build = replace(row, torchaudio=beside(catalog, "torchaudio", row))
    floor = None
    if build.cuda:
        # Another table than the row's on WSL, whose driver is that of Windows.
        floor = catalog.driver_floor(build.cuda, host.floors)
    return with_codes_read(replace(build, driver_floor=floor), torch)


def with_codes_read(build: TorchBuild, torch: Torch) -> TorchBuild:
    """The build with the kernels and PTX that were read from the installed files, or the catalog's
    if none were read."""
    codes = (*build.kernels, *build.ptx)
    if torch.kernels:
        codes = readable(torch.kernels)
    kernels = [code for code in codes if code.startswith("sm_")]
    ptx = [code for code in codes if code.startswith("compute_")]
    return replace(build, kernels=tuple(kernels), ptx=tuple(ptx))


def build_as_read(torch: Torch, backend: str, question: BuildQuestion) -> TorchBuild:
    """A build made from what was read, for a torch that is not in the catalog."""
    host = question.host
    # conda's torch has no label: the row of its release says which companions belong to it.
    release = question.catalog.release_of(torch.version or "")
    of_conda = release if torch.installer == "conda" else None
    return TorchBuild(
        torch=public(torch.version),
        backend=backend,
        cuda=torch.cuda or cuda_of(backend),
        os=host.family,  # type: ignore[arg-type]
        machine=host.architecture,
        pythons=(),
        kernels=(),
        labelled="+" in (torch.version or ""),
        torchvision=of_conda.torchvision if of_conda else None,
        torchaudio=of_conda.torchaudio if of_conda else None,
    )


def serves(build: TorchBuild, machine: Snapshot, question: BuildQuestion) -> bool:
    """Whether the installed build works on this machine; what is unknown does not count against it.

    An accelerator build on a machine without such a GPU serves nothing; a CPU build serves a
    machine that has no NVIDIA GPU; what is not known is not held against it.
    """
    host = question.host
    maker = maker_of(build.backend)
    has_codes = bool(build.kernels or build.ptx)
    covers = not has_codes or why_kernels_lack_a_gpu(build, question) is None
    # Its driver starts, which says nothing of its kernels.
    if machine.torch.cuda_available:
        return covers
    if build.backend == UNREAD:
        return True
    # Whether a GPU of AMD or Intel runs the build is nothing that we judge.
    if is_seen_only(maker):
        is_alone = host.presence != "some"
        return is_alone and maker in vendors_of(machine)
    if maker is None:
        return host.presence == "none" or host.family == "macos"
    if host.presence == "none":
        return False
    return covers and why_driver_is_too_old(build, question) is None


def vendors_of(machine: Snapshot) -> frozenset[str]:
    """The vendors of the devices on the PCI bus, and of other makers' GPUs that a report
    mentions."""
    vendors = set()
    for device in machine.pci_devices or ():
        vendors.add(device.vendor)
    for event in machine.events:
        if event.kind == "foreign-gpu":
            vendor = event.values.get("vendor", "")
            vendors.add(vendor)
    return frozenset(vendors)


def is_damaged(machine: Snapshot) -> bool:
    """Whether files of the installed torch are missing, or importing it failed."""
    # A file that is missing fails later, when it is needed.
    for package in machine.packages or ():
        if package.name == "torch" and package.intact is False:
            return True
    return machine.torch.import_error is not None


def is_of_conda(machine: Snapshot) -> bool:
    """Whether conda installed the torch on this machine."""
    installer = machine.torch.installer
    return installer == "conda"


# --- what stands on torch -------------------------------------------------------------------------


class Dependent(Frozen):
    """An installed package that requires another torch than the new one."""

    name: str
    version: str
    needs: str
    """The requirement that no longer holds."""
    can_follow: bool = True
    """Whether an index can be asked for another release of it by its name."""


def dependents(machine: Snapshot, build: TorchBuild) -> tuple[Dependent, ...]:
    """The installed packages, without torch's own, that require another torch than this build."""
    packages = installed_packages(machine)
    new_versions = build.family(installed_family(machine))
    broken = []
    for name, package in packages.items():
        need = None if name in FAMILY else broken_requirement(package, new_versions, machine)
        if need is None:
            continue
        # What came from a folder, or by conda, is under no such name on an index.
        is_on_an_index = not package.direct and package.installer not in ("conda", "develop")
        broken.append(
            Dependent(
                name=name,
                version=package.version,
                needs=need,
                can_follow=is_on_an_index and "@" not in need,
            )
        )
    return tuple(broken)


def followers(machine: Snapshot, build: TorchBuild) -> tuple[str, ...]:
    """The names of packages to install again, because their installed release needs another torch
    than this build."""
    names = []
    for package in dependents(machine, build):
        # The others stay, and a note says that they may fail.
        if package.can_follow:
            names.append(package.name)
    return tuple(names)


def moved_with(machine: Snapshot, build: TorchBuild | None) -> tuple[str, ...]:
    """The names of torch, its companions and the packages that change with it; all of torch's
    packages for a report."""
    # A text shows no whole environment: the whole family counts.
    if machine.packages is None or machine.origin == "report":
        return FAMILY
    family = installed_family(machine)
    if build is None:
        return family
    return (*family, *followers(machine, build))


def broken_requirement(
    package: Package, new_versions: Mapping[str, str], machine: Snapshot
) -> str | None:
    """The first requirement of a package that the new versions do not meet; None if all are met."""
    for text in package.requires:
        name = re.match(r"\s*([A-Za-z0-9._-]+)", text)
        version = new_versions.get(normalised(name[1])) if name else None
        if version is None:  # most are: their parser costs an import
            continue
        from packaging.requirements import InvalidRequirement, Requirement

        with suppress(InvalidRequirement):
            requirement = Requirement(text)
            marker = requirement.marker
            if marker and not marker.evaluate(marker_environment(machine)):
                continue
            address = requirement.url
            if address and f"{normalised(requirement.name)}-{version}" not in address:
                return text
            if not requirement.specifier.contains(version, prereleases=True):
                return text
    return None


SYSTEMS = {
    "linux": ("linux", "Linux"),
    "windows": ("win32", "Windows"),
    "macos": ("darwin", "Darwin"),
}
"""`sys_platform` and `platform_system` of a marker."""


def marker_environment(machine: Snapshot) -> dict[str, str]:
    """The known values of the variables in environment markers on this machine, with `extra`
    empty."""
    family = machine.os.family or ""
    platform, system = SYSTEMS.get(family, ("", ""))
    version = machine.python.version or ""
    major_and_minor = version.split(".")[:2]
    variables = {
        "python_version": ".".join(major_and_minor),
        "python_full_version": version,
        "sys_platform": platform,
        "platform_system": system,
        "platform_machine": machine.os.machine or "",
    }
    environment = {"extra": ""}
    for name, value in variables.items():
        # packaging itself knows those of this machine, which the others then are.
        if value:
            environment[name] = value
    return environment
