"""The installed torch as a build, whether it works on the host, and the packages installed with it.

Pure: the probe reads the environment. Companions are torchvision, torchaudio, and every installed
distribution whose METADATA names the torch version that it needs (`Requires-Dist: torch==2.5.1`).
"""

from __future__ import annotations

import re

from packaging.requirements import InvalidRequirement, Requirement

from gpusetup.accelerators.makers import is_seen_only, maker_of
from gpusetup.catalog.builds import Catalog, Name
from gpusetup.catalog.companions import UNREAD, companion_for, default_backend
from gpusetup.catalog.kernels import readable
from gpusetup.choose.constraints import in_scope, why_driver_is_too_old, why_kernels_lack_a_gpu
from gpusetup.choose.host import BuildQuestion
from gpusetup.model.builds import FAMILY, TorchBuild
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Package, Snapshot
from gpusetup.model.versions import cuda_of
from gpusetup.readings.packages import normalised

COMPANIONS: tuple[Name, ...] = ("torchvision", "torchaudio")


def installed_packages(machine: Snapshot) -> dict[str, Package]:
    """All installed packages, by normalised name."""
    packages: dict[str, Package] = {}
    for package in machine.packages or ():
        # If two packages have the same name, Python imports the first one.
        packages.setdefault(normalised(package.name), package)
    return packages


def installed_family(machine: Snapshot) -> tuple[str, ...]:
    """torch and its installed companions; torch is included even if it is not installed."""
    packages = installed_packages(machine)
    return ("torch", *(name for name in COMPANIONS if name in packages))


def is_conda_torch(machine: Snapshot) -> bool:
    """Whether conda must change this environment, because it installed torch there."""
    return machine.python.manager == "conda" and machine.torch.installer == "conda"


def public_version(version: str | None) -> str:
    """A version without its local label; "" for None.

    >>> public_version("2.5.1+cu124")
    '2.5.1'
    """
    return (version or "").partition("+")[0]


def installed_backend(machine: Snapshot, catalog: Catalog) -> str:
    """The backend of the installed torch: as it was read, otherwise from torch's label or CUDA
    version, otherwise that of the default index's build of this version. `UNREAD` if unknown."""
    torch, os = machine.torch, machine.os
    if torch.backend:
        return torch.backend
    label = (torch.version or "").partition("+")[2].lower()
    # A vendor's label (`+nv25.3`) does not name a backend.
    if label == "cpu" or maker_of(label):
        return label
    if torch.cuda:
        # `12.4.1` becomes `cu124`.
        return "cu" + "".join(torch.cuda.split(".")[:2])
    # Only a torch from the default index has that index's backend. With conda or on a Jetson, torch
    # comes from elsewhere, and a report may not show where it came from.
    if os.jetson or torch.installer == "conda" or machine.origin == "report":
        return UNREAD
    usual = default_backend(catalog, torch.version or "0", os.family or "", os.machine or "")
    return usual or UNREAD


def installed_build(machine: Snapshot, question: BuildQuestion) -> TorchBuild | None:
    """The installed torch as a build, from the catalog or, if it is not there, from what was read;
    None if no torch is installed or a report does not name its backend."""
    torch, catalog, host = machine.torch, question.catalog, question.host
    if not torch.version or torch.installed is False:
        return None
    backend = installed_backend(machine, catalog)
    # Without the backend, the build is chosen according to what the report asks for.
    if backend == UNREAD and machine.origin == "report":
        return None
    # The catalog's rows are for NVIDIA's GPUs and the CPU; other makers' builds are derived.
    if question.maker:
        same = (public_version(torch.version), backend)
        rows = (build for build in in_scope(question) if (build.torch, build.backend) == same)
        row = next(rows, None)
    else:
        row = catalog.row_of(torch.version, backend, host.family, host.architecture)
    if row is None:
        # A nightly, a vendor's build or a self-compiled torch.
        build = TorchBuild(
            torch=public_version(torch.version),
            backend=backend,
            cuda=torch.cuda or cuda_of(backend),
            os=host.family,  # type: ignore[arg-type]
            machine=host.architecture,
            pythons=(),
            kernels=(),
            labelled="+" in torch.version,
        )
    else:
        build = replace(row, torchaudio=row.torchaudio or companion_for(catalog, "torchaudio", row))
    # The codes that were read from the installed files count more than the catalog's.
    codes = readable(torch.kernels) if torch.kernels else (*build.kernels, *build.ptx)
    driver_floor = None
    # WSL uses the Windows driver, whose minimum version differs from the row's, and a Jetson's
    # driver has its own version numbers.
    if build.cuda and not host.board:
        driver_floor = catalog.driver_floor(build.cuda, host.driver_system)
    return replace(
        build,
        driver_floor=driver_floor,
        kernels=tuple(code for code in codes if code.startswith("sm_")),
        ptx=tuple(code for code in codes if code.startswith("compute_")),
    )


def works_here(build: TorchBuild, machine: Snapshot, question: BuildQuestion) -> bool:
    """Whether the installed build works on this machine. Unknown facts do not count against it.

    A build for an accelerator does not work on a machine without such a GPU. A CPU build only
    counts as working on a machine without an NVIDIA GPU.
    """
    host, maker = question.host, maker_of(build.backend)
    # The question is about an AMD or Intel GPU: NVIDIA's driver says nothing about it.
    if question.maker:
        return maker == question.maker.id and why_kernels_lack_a_gpu(build, question) is None
    # A build without a known kernel list cannot be compared with the GPUs.
    is_comparable = bool(build.kernels or build.ptx)
    has_kernels = not is_comparable or why_kernels_lack_a_gpu(build, question) is None
    # If torch printed that CUDA is available, the driver works. Kernels may still be missing.
    if machine.torch.cuda_available:
        return has_kernels
    # Nothing is known against a build whose backend is unknown.
    if build.backend == UNREAD:
        return True
    # gpusetup does not judge whether a build runs on an AMD or Intel GPU. If there is an NVIDIA GPU
    # too, such a build counts as the wrong one.
    if is_seen_only(maker):
        return host.presence != "some" and maker in vendors_of(machine)
    # A build without a maker is a CPU build, and on a Mac the only one, for Apple's GPU too.
    if maker is None:
        return host.presence == "none" or host.family == "macos"
    has_driver = why_driver_is_too_old(build, question) is None
    return host.presence != "none" and has_kernels and has_driver


def vendors_of(machine: Snapshot) -> frozenset[str]:
    """The vendors of devices on the PCI bus, and of other makers' GPUs that a report mentions."""
    on_bus = {device.vendor for device in machine.pci_devices or ()}
    events = (event for event in machine.events if event.kind == "foreign-gpu")
    return frozenset(on_bus | {event.values.get("vendor", "") for event in events})


# --- packages that need a certain torch -----------------------------------------------------------


def may_have_release(package: Package) -> bool:
    """Whether an index may have a release of an installed package for another torch."""
    # A package that was installed from a folder or by conda may not exist on any index.
    return not (package.direct or package.installer in ("conda", "develop"))


def conflicts(machine: Snapshot, build: TorchBuild) -> dict[str, str]:
    """The requirements that conflict with this build of torch: of each installed package outside
    torch's family, the first one for another torch or companion, by the package's name."""
    new_versions = build.family(installed_family(machine))

    def is_broken(text: str) -> bool:
        """Whether a requirement is for torch or a companion, but not for its new version."""
        name = re.match(r"\s*([A-Za-z0-9._-]+)", text)
        new_version = new_versions.get(normalised(name[1])) if name else None
        if new_version is None:  # most requirements end here, before they are parsed
            return False
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            return False
        marker = requirement.marker
        if marker and not marker.evaluate(marker_environment(machine)):
            return False
        return not requirement.specifier.contains(new_version, prereleases=True)

    broken = {}
    for name, package in installed_packages(machine).items():
        requirement = next(filter(is_broken, package.requires), None)
        if requirement is not None and name not in FAMILY:
            broken[name] = requirement
    return broken


def dependents_to_reinstall(machine: Snapshot, build: TorchBuild) -> tuple[str, ...]:
    """The names of packages to install again, because their release needs another torch."""
    # The other packages stay as they are, and a note says that they may fail.
    packages = installed_packages(machine)
    return tuple(name for name in conflicts(machine, build) if may_have_release(packages[name]))


def changed_with_torch(machine: Snapshot, build: TorchBuild | None) -> tuple[str, ...]:
    """The names of torch, its companions and the packages that change with this build."""
    # If the packages are unknown, or not all, as in a report, assume that it has the companions.
    if machine.packages is None or machine.origin == "report":
        return FAMILY
    dependents = dependents_to_reinstall(machine, build) if build else ()
    return (*installed_family(machine), *dependents)


SYSTEMS = {
    "linux": ("linux", "Linux"),
    "windows": ("win32", "Windows"),
    "macos": ("darwin", "Darwin"),
}
"""The values of `sys_platform` and `platform_system` in a marker, for each system."""


def marker_environment(machine: Snapshot) -> dict[str, str]:
    """The values of environment markers on this machine, as far as known, with `extra` empty.
    packaging itself fills in the others, for the machine on which gpusetup runs."""
    platform, system = SYSTEMS.get(machine.os.family or "", ("", ""))
    version = machine.python.version or ""
    variables = {
        "python_version": ".".join(version.split(".")[:2]),
        "python_full_version": version,
        "sys_platform": platform,
        "platform_system": system,
        "platform_machine": machine.os.machine or "",
    }
    return {"extra": "", **{name: value for name, value in variables.items() if value}}
