"""Whether a world truly works, by facts of its own: what `pip check` and a first kernel would say.

An `ok` that stands above a world that does not work is a failure of the judgement.
"""

from __future__ import annotations

from functools import lru_cache

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from closing import facts
from closing.seen import backend_of
from closing.world import FAMILY, World, named, packages_of
from gpusetup.catalog.file import load_catalog
from gpusetup.catalog.kernels import served_by
from gpusetup.model.machine import Package


def torch_of(package: Package) -> str | None:
    """The torch that a distribution requires (its Requires-Dist), as a specifier."""
    return required_torch(package.name, package.version)


def required_torch(name: str, version: str) -> str | None:
    """
    >>> required_torch("torchvision", "0.20.1+cu124"), required_torch("numpy", "2.0.0")
    ('==2.5.1', None)
    """
    pins = facts.PINS.get(name, {})
    public = version.partition("+")[0]
    return f"=={pins[public]}" if public in pins else _family_requires(name, public)


@lru_cache(maxsize=512)
def _family_requires(name: str, public: str) -> str | None:
    for release in load_catalog().releases:
        if name == "torchvision" and release.torchvision == public:
            return release.torchvision_needs or f"=={release.torch}"
        if name == "torchaudio" and release.torchaudio == public:
            late = Version(public) >= Version("2.11")
            return ">=2.11" if late else f"=={release.torch}"
    return None


def broken(world: World) -> set[str]:
    """What is wrong with the packages beside torch, in words."""
    site = world.snapshot.python.site_packages
    # conda's own records are no distributions, where pip put another one in their place
    packages = [p for p in packages_of(world) if p.location in (site, None)]
    torches = named(packages, "torch", "pytorch")
    if not torches:
        return set()
    torch, found = torches[-1], set()
    own = backend_of(torch, world)
    for package in packages:
        needs = torch_of(package)
        release = torch.version.partition("+")[0]
        if needs and not SpecifierSet(needs).contains(release, prereleases=True):
            found.add(f"{package.name} {package.version} requires torch {needs}")
        elif package.name in FAMILY[1:] and _other_build(package, own):
            found.add(f"{package.name} {package.version} is not built for {own}")
    return found


def _other_build(package: Package, own: str | None) -> bool:
    label = package.version.partition("+")[2]
    if not label or own is None:
        return False
    # torchaudio of the stable ABI compares the CUDA of both at import; without CUDA it has none.
    if package.name == "torchaudio" and Version(package.version) >= Version("2.11"):
        return label not in ("cpu", own)
    return label != own


def trouble(world: World) -> set[str]:
    """What keeps this world's torch from its GPUs; empty where it computes."""
    machine = world.snapshot
    torch = machine.torch
    if torch.version and _for_the_other_maker(world):
        return set(broken(world))
    # Graphics that torch has no build for (an Intel UHD) are no GPU here.
    vendors = {device.vendor for device in machine.pci_devices or ()}
    has_no_gpu = not machine.gpus and machine.makers is None and not vendors & {"nvidia", "amd"}
    if torch.version and torch.backend == "cpu" and has_no_gpu:
        return set()  # a CPU build is the right one on a machine without a GPU
    if not torch.version or not torch.cuda:
        return {f"no CUDA build: torch {torch.version}"}
    found = set(broken(world))
    usable = [gpu for gpu in machine.gpus or () if gpu.visible is not False and not gpu.lost]
    if not usable:
        found.add("no GPU is visible")
    if machine.cuda_api.init_code:
        found.add(f"cuInit answers {machine.cuda_api.init_code}")
    if not _driver_reaches(world, torch.cuda):
        found.add(f"driver {machine.driver.version} does not serve CUDA {torch.cuda}")
    if not machine.os.jetson:
        found |= {f"no kernel for {gpu.name}" for gpu in usable if not _served(world, gpu)}
    return found


def _for_the_other_maker(world: World) -> bool:
    """ROCm's build beside AMD's GPU, XPU's beside Intel's, any on a Mac: no CUDA is to be there."""
    machine, backend = world.snapshot, world.snapshot.torch.backend or ""
    on_bus = {device.vendor for device in machine.pci_devices or ()}
    apple = machine.os.family == "macos" and machine.os.machine == "aarch64"
    amd = backend.startswith("rocm") and "amd" in on_bus
    return not machine.gpus and (apple or amd or (backend == "xpu" and "intel" in on_bus))


def _driver_reaches(world: World, cuda: str) -> bool:
    driver, family = world.snapshot.driver, "windows" if world.os.wsl else world.os.family
    if driver.cuda and Version(driver.cuda) >= Version(cuda):
        return True
    floor = facts.FLOOR_OF_MAJOR.get(cuda.partition(".")[0], {}).get(family or "linux")
    return bool(floor and driver.version and Version(driver.version).release >= floor)


def _served(world: World, gpu: object) -> bool:
    torch, on = world.snapshot.torch, world.os
    capability = gpu.compute_capability  # type: ignore[attr-defined]
    public = (torch.version or "").partition("+")[0]
    rows = [r for r in load_catalog().builds if (r.torch, r.backend) == (public, torch.backend)]
    by_conda = torch.installer == "conda"
    rows = [r for r in rows if (r.channel != "pytorch") is by_conda]
    here = [r for r in rows if (r.os, r.machine) == (on.family, on.machine)]
    if capability is None or not here:
        return True
    return any(served_by(row, capability, world.snapshot.driver.cuda) for row in here)
