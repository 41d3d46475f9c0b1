"""What a fresh probe would see of a world: the driver that loads, what CUDA answers, which torch.

Facts of NVIDIA's own (branches, flavours) decide which GPUs a driver lists; none of the rules does.
"""

from __future__ import annotations

import re

from closing import facts
from closing.world import CONDA, DriverPackage, World, by_threshold, named, packages_of, pair
from gpusetup.model.frozen import replace
from gpusetup.model.machine import CudaApi, DeviceNode, Driver, Gpu, Package, Torch

KERNEL_SAID = (
    "xid", "gpu-fell-off-bus", "gsp-timeout", "hardware-fault", "sxid",
    "ecc-error", "gpu-init-failed", "no-devices-found", "gpu-not-supported-by-driver",
    "secure-boot-rejected", "driver-not-loaded", "nouveau-in-the-way", "nouveau-in-use",
    "module-not-found", "nvml-mismatch", "child-failed",
    "driver-does-not-answer", "no-nvidia-driver", "driver-build-failed", "uvm-missing",
    "cuda-version-err", "cuda-error", "hybrid-gpu-off",
)  # fmt: skip
"""Events that the kernel or the driver said in this run of the machine; a fresh start is silent."""


def loaded(world: World, package: DriverPackage | None = None) -> World:
    """The driver on disk, loaded into a kernel that has just started (or had none)."""
    package = package or world.on_disk
    assert package is not None, "a driver is on its disk"
    world = world.without_events(*KERNEL_SAID)
    served = tuple(gpu for gpu in world.hardware if serves(package, gpu))
    return _running(world, package, served)


def rejected(world: World, package: DriverPackage) -> bool:
    return bool(world.os.secure_boot) and not (package.signed or world.key_enrolled)


def serves(package: DriverPackage, gpu: Gpu) -> bool:
    """
    >>> from closing.world import gpu_named
    >>> serves(DriverPackage("550.163.01", True), gpu_named("NVIDIA GeForce RTX 5090"))
    False
    """
    branch, capability = int(package.version.partition(".")[0]), pair(gpu.compute_capability)
    first = by_threshold(facts.FIRST_BRANCH, capability)
    last = by_threshold(facts.LAST_BRANCH, capability)
    flavour = capability >= facts.OPEN_FROM if package.open else capability < facts.OPEN_ONLY_FROM
    return bool(first <= branch <= last and (flavour or branch < 500))


def _running(world: World, package: DriverPackage, served: tuple[Gpu, ...]) -> World:
    linux = world.os.family == "linux"
    driver = Driver(
        version=package.version,
        cuda=facts.CUDA_OF_BRANCH[package.version.partition(".")[0]],
        library_version=package.version,
        module_loaded=True if linux else None,
        module_version=package.version if linux else None,
        open_module=package.open if linux else None,
        uvm_loaded=True if linux else None,
        library_found=True,
        nouveau_loaded=False if linux else None,
        libcuda_path=f"/usr/lib/x86_64-linux-gnu/libcuda.so.{package.version}"
        if linux
        else "C:\\Windows\\System32\\nvcuda.dll",
        nvml_code=0,
        nvml_message="Success",
    )
    bus = tuple(
        replace(d, driver="nvidia") if d.vendor == "nvidia" else d
        for d in world.snapshot.pci_devices or ()
    )
    changes = {"driver": driver, "gpus": served}
    if linux:
        changes.update(pci_devices=bus, devices=nodes(len(served)))
    world = world.having(on_disk=package, uvm_is_bad=False).showing(**changes)
    return answering(world)


def nodes(count: int) -> tuple[DeviceNode, ...]:
    names = (*(f"nvidia{n}" for n in range(count)), "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
    return tuple(
        DeviceNode(path=f"/dev/{name}", mode="crw-rw-rw-", readable=True, writable=True)
        for name in names
    )


# --- what CUDA answers --------------------------------------------------------------------------

NAMES = {0: "CUDA_SUCCESS", 100: "CUDA_ERROR_NO_DEVICE", 304: "CUDA_ERROR_OPERATING_SYSTEM",
         802: "CUDA_ERROR_SYSTEM_NOT_READY", 803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
         804: "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", 999: "CUDA_ERROR_UNKNOWN"}  # fmt: skip


def answering(world: World) -> World:
    """The world with its GPUs' visibility and the answer of cuInit as they now are."""
    machine = world.snapshot
    shown = _visible(machine.gpus or (), machine.environment.get("CUDA_VISIBLE_DEVICES"))
    world = world.showing(gpus=shown)
    code = cu_init(world)
    count = sum(bool(gpu.visible) for gpu in shown) if code == 0 else None
    cuda = machine.driver.cuda
    api = CudaApi(init_code=code, init_name=NAMES.get(code), device_count=count, version=cuda)
    return world.showing(cuda_api=api)


def _visible(gpus: tuple[Gpu, ...], variable: str | None) -> tuple[Gpu, ...]:
    """CUDA stops at the first entry that names no GPU (CUDA C++ programming guide)."""
    if variable is None:
        return tuple(replace(gpu, visible=None if gpu.lost else True) for gpu in gpus)
    chosen: set[int] = set()
    for entry in variable.split(","):
        if not entry.isdigit() or int(entry) >= len(gpus):
            break
        chosen.add(int(entry))
    return tuple(replace(gpu, visible=n in chosen) for n, gpu in enumerate(gpus))


def cu_init(world: World) -> int:
    """The code of `cuInit`, by what stands in its way: the nearest first."""
    machine = world.snapshot
    closed = any(node.readable is False or node.writable is False for node in machine.devices or ())
    usable = [g for g in machine.gpus or () if g.visible is not False and not g.lost]
    prohibited = usable and all((g.compute_mode or "") == "Prohibited" for g in usable)
    sliced = usable and all(g.mig_enabled and not g.mig_instances for g in usable)
    obstacles = (
        (_two_versions(world) or world.stale_libcuda, 803),
        (machine.container.cuda_compat_path and world.snapshot.cuda_api.init_code == 804, 804),
        (closed, 304),
        (machine.driver.uvm_loaded is False or _no_uvm_node(world) or world.uvm_is_bad, 999),
        (world.fabric_down, 802),
        (not usable or prohibited or sliced, 100),
    )
    return next((code for stands, code in obstacles if stands), 0)


def _two_versions(world: World) -> bool:
    driver = world.snapshot.driver
    return not world.os.wsl and driver.library_version not in (None, driver.version)


def _no_uvm_node(world: World) -> bool:
    paths = {node.path for node in world.snapshot.devices or ()}
    return "/dev/nvidiactl" in paths and "/dev/nvidia-uvm" not in paths


# --- which torch --------------------------------------------------------------------------------


def importing(world: World) -> World:
    """The world with the torch that its packages make: of several the one installed last."""
    site = world.snapshot.python.site_packages
    found = [p for p in named(packages_of(world), "torch") if p.location in (site, None)]
    if not found:
        return world.showing(torch=Torch(installed=False))
    last = found[-1]
    backend = backend_of(last, world)
    public = last.version.partition("+")[0]
    labelled = last.installer not in CONDA and world.os.family != "macos" and backend
    own = "+" in last.version or not labelled
    return world.showing(
        torch=Torch(
            installed=True,
            version=last.version if own else f"{public}+{backend}",
            backend=backend,
            cuda=cuda_of_label(backend),
            debug=False,
            installer=last.installer,
            location=last.location or world.snapshot.python.site_packages,
        )
    )


def cuda_of_label(backend: str | None) -> str | None:
    found = re.fullmatch(r"cu(\d+)(\d)", backend or "")
    return f"{found.group(1)}.{found.group(2)}" if found else None


def backend_of(package: Package, world: World) -> str | None:
    """By its label, conda's build string, or what it was taken from."""
    label = package.version.partition("+")[2]
    if label.startswith(BACKENDS):
        return label
    return package.channel if (package.channel or "").startswith(BACKENDS) else "cpu"


BACKENDS = ("cu1", "cpu", "rocm", "xpu")
