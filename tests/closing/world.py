"""A machine on which commands are typed: its snapshot, and what a snapshot does not show."""

from __future__ import annotations

import re
from dataclasses import dataclass
from dataclasses import replace as with_fields
from typing import Any

from packaging.version import Version

from gpusetup.catalog.file import load_catalog
from gpusetup.catalog.gpus import rows_named
from gpusetup.catalog.kernels import served_by
from gpusetup.model.frozen import replace
from gpusetup.model.machine import CudaApi, DeviceNode, Driver, Gpu, Package, Snapshot, Torch

FAMILY = ("torch", "torchvision", "torchaudio")
CUDA_OF_BRANCH = {"535": "12.2", "550": "12.4", "570": "12.8", "580": "13.0", "595": "13.2"}
"""A driver's branch -> its CUDA, by NVIDIA's release notes."""
PCI_NAMES = {
    "2504": "NVIDIA GeForce RTX 3060",
    "2184": "NVIDIA GeForce GTX 1660",
    "2684": "NVIDIA GeForce RTX 4090",
    "26b9": "NVIDIA L40S",
    "20b0": "NVIDIA A100-SXM4-40GB",
}
"""GPUs that machines show on the bus before a driver names them, by their PCI id."""


@dataclass(frozen=True)
class World:
    snapshot: Snapshot
    hardware: tuple[Gpu, ...] = ()
    """The NVIDIA GPUs that are really there, whether a driver shows them or not."""
    on_disk: str | None = None
    """The version of the driver that is installed, loaded or not."""
    repositories: frozenset[str] = frozenset()
    """What the package tool was told of, beyond the distribution's own."""
    building: bool = False
    """Whether the kernel module on disk is still being built."""
    fabric_down: bool = False
    uvm_is_bad: bool = False
    stale_libcuda: str | None = None

    def having(self, **changes: Any) -> World:
        return with_fields(self, **changes)

    def showing(self, **changes: Any) -> World:
        """With other parts of its snapshot, without the readings of what was there before."""
        kept = tuple(
            one for one in self.snapshot.readings if one.subject.partition(".")[0] not in changes
        )
        return self.having(snapshot=replace(self.snapshot, **{"readings": kept, **changes}))

    def without_events(self, *kinds: str) -> World:
        events = tuple(event for event in self.snapshot.events if event.kind not in kinds)
        return self.having(snapshot=replace(self.snapshot, events=events))


def world_of(machine: Snapshot) -> World:
    """A machine as its snapshot shows it, and what must lie behind that."""
    code, driver = machine.cuda_api.init_code, machine.driver
    differ = driver.library_version != driver.version and not machine.os.wsl
    is_own = differ or machine.container.cuda_compat_path
    return World(
        snapshot=machine,
        hardware=hardware_of(machine),
        on_disk=driver.library_version or driver.module_version or driver.version,
        fabric_down=code == 802,
        uvm_is_bad=code == 999 and driver.uvm_loaded is not False and not lacks_uvm(machine),
        stale_libcuda=driver.libcuda_path if code == 803 and not is_own else None,
    )


def lacks_uvm(machine: Snapshot) -> bool:
    paths = {node.path for node in machine.devices or ()}
    return "/dev/nvidiactl" in paths and "/dev/nvidia-uvm" not in paths


def hardware_of(machine: Snapshot) -> tuple[Gpu, ...]:
    """What the driver lists; else what stands on the bus; a container's host has an L40S."""
    if machine.gpus:
        return tuple(map(healthy, machine.gpus))
    on_bus = [device for device in machine.pci_devices or () if device.vendor == "nvidia"]
    names = [device.name or PCI_NAMES[device.device_id or ""] for device in on_bus]
    if not names and machine.container.kind not in (None, "none"):
        names = ["NVIDIA L40S"]
    return tuple(gpu_named(name, index) for index, name in enumerate(names))


def gpu_named(name: str, index: int) -> Gpu:
    """A healthy GPU of the catalog's."""
    row = rows_named(name, load_catalog().gpus)[0]
    return Gpu(
        name=name,
        uuid=f"GPU-{index + 1:04d}",
        memory_total_bytes=8 << 30,
        memory_used_bytes=0,
        compute_capability=row.capability,
        nvml_index=index,
        cuda_index=index,
        pci_bus_id=f"0000:{index + 1:02x}:00.0",
        visible=True,
        compute_mode="Default",
        throttle_reasons=(),
    )


def healthy(gpu: Gpu) -> Gpu:
    """The same GPU after a power cycle: nothing lost, no error that a reset does not clear."""
    faults = {"lost": None, "ecc_uncorrected": 0, "retired_pending": False, "visible": True}
    cool = {"throttle_reasons": (), "temperature_celsius": 45, "memory_used_bytes": 0}
    return replace(gpu, **faults, **cool, fabric_state="completed" if gpu.fabric_state else None)


# --- what a fresh probe sees of the driver --------------------------------------------------------

SAID_BY_DRIVER = (
    *("xid", "gpu-fell-off-bus", "hardware-fault", "ecc-error", "nvml-mismatch", "child-failed"),
    *("driver-not-loaded", "nouveau-in-use", "nouveau-in-the-way", "hybrid-gpu-off"),
    *("uvm-missing", "cuda-error", "no-nvidia-driver"),
)
"""Events that the kernel or the driver said in this run of the machine; a fresh start is silent."""


def loaded(world: World) -> World:
    """The driver on disk, loaded into a kernel that has just started (or had none)."""
    version = world.on_disk
    assert version is not None, "a driver is on its disk"
    driver = Driver(
        version=version,
        cuda=CUDA_OF_BRANCH[version.partition(".")[0]],
        library_version=version,
        module_loaded=True,
        module_version=version,
        uvm_loaded=True,
        library_found=True,
        nouveau_loaded=False,
        libcuda_path=f"/usr/lib/x86_64-linux-gnu/libcuda.so.{version}",
        nvml_code=0,
        nvml_message="Success",
    )
    bus = tuple(
        replace(device, driver="nvidia") if device.vendor == "nvidia" else device
        for device in world.snapshot.pci_devices or ()
    )
    world = world.having(uvm_is_bad=False).without_events(*SAID_BY_DRIVER)
    nodes = tuple(map(open_node, (f"nvidia{n}" for n in range(len(world.hardware)))))
    nodes = (*nodes, *map(open_node, ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")))
    return answering(
        world.showing(driver=driver, gpus=world.hardware, pci_devices=bus, devices=nodes)
    )


def open_node(name: str) -> DeviceNode:
    return DeviceNode(path=f"/dev/{name}", mode="crw-rw-rw-", readable=True, writable=True)


def answering(world: World) -> World:
    """The world with its GPUs' visibility and the answer of cuInit as they now are."""
    machine = world.snapshot
    hidden = "CUDA_VISIBLE_DEVICES" in machine.environment
    gpus = tuple(
        replace(gpu, visible=None if gpu.lost else not hidden) for gpu in machine.gpus or ()
    )
    world = world.showing(gpus=gpus)
    code = cu_init(world)
    count = sum(bool(gpu.visible) for gpu in gpus) if code == 0 else None
    api = CudaApi(init_code=code, device_count=count, version=machine.driver.cuda)
    return world.showing(cuda_api=api)


def cu_init(world: World) -> int:
    """The code of `cuInit`, by what stands in its way: the nearest first."""
    machine = world.snapshot
    driver = machine.driver
    differ = not machine.os.wsl and driver.library_version not in (None, driver.version)
    closed = any(node.readable is False or node.writable is False for node in machine.devices or ())
    usable = [gpu for gpu in machine.gpus or () if gpu.visible is not False and not gpu.lost]
    sliced = usable and all(gpu.mig_enabled and not gpu.mig_instances for gpu in usable)
    obstacles = (
        (differ or world.stale_libcuda, 803),
        (machine.container.cuda_compat_path and machine.cuda_api.init_code == 804, 804),
        (closed, 304),
        (driver.uvm_loaded is False or lacks_uvm(machine) or world.uvm_is_bad, 999),
        (world.fabric_down, 802),
        (not usable or sliced, 100),
    )
    return next((code for stands, code in obstacles if stands), 0)


# --- which torch is imported, and whether it works ------------------------------------------------


def named(world: World, *names: str) -> list[Package]:
    return [package for package in world.snapshot.packages or () if package.name in names]


def importing(world: World) -> World:
    """The world with the torch that its packages make: of several the one installed last."""
    site = world.snapshot.python.site_packages
    found = [one for one in named(world, "torch") if one.location in (site, None)]
    if not found:
        return world.showing(torch=Torch(installed=False))
    last = found[-1]
    backend = last.channel or last.version.partition("+")[2] or "cpu"
    cuda = re.fullmatch(r"cu(\d+)(\d)", backend)
    torch = Torch(
        installed=True,
        version=last.version,
        backend=backend,
        cuda=f"{cuda[1]}.{cuda[2]}" if cuda else None,
        installer=last.installer,
        location=last.location or site,
    )
    return world.showing(torch=torch)


def broken(world: World) -> set[str]:
    """Companions that are made for another torch or another build than the installed one."""
    catalog, torches = load_catalog(), named(world, "torch")
    release = catalog.release_of(torches[-1].version.partition("+")[0]) if torches else None
    if release is None:
        return set()
    found = set()
    for package in named(world, "torchvision", "torchaudio"):
        public, _, label = package.version.partition("+")
        made = getattr(release, package.name)
        if made and public != made and Version(release.torch) < Version("2.11"):
            found.add(f"{package.name} {package.version} is not made for torch {release.torch}")
        if label not in ("", "cpu", torches[-1].channel or torches[-1].version.partition("+")[2]):
            found.add(f"{package.name} {package.version} is of another build")
    return found


def trouble(world: World) -> set[str]:
    """What keeps this world's torch from its NVIDIA GPUs, by facts of its own."""
    machine, found = world.snapshot, broken(world)
    torch = machine.torch
    if not machine.gpus:
        return found
    if not torch.cuda:
        return {f"no CUDA build: torch {torch.version}"}
    usable = [gpu for gpu in machine.gpus if gpu.visible is not False and not gpu.lost]
    if not usable or machine.cuda_api.init_code:
        found.add(f"no GPU is usable, cuInit answers {machine.cuda_api.init_code}")
    # From CUDA 11 on, a driver serves every minor version of its own major one.
    branch = (machine.driver.version or "").partition(".")[0]
    cuda = machine.driver.cuda or CUDA_OF_BRANCH.get(branch, "0")
    if int(cuda.partition(".")[0]) < int(torch.cuda.partition(".")[0]):
        found.add(f"driver {machine.driver.version} does not serve CUDA {torch.cuda}")
    rows = [
        row
        for row in load_catalog().builds
        if (row.torch, row.backend) == ((torch.version or "").partition("+")[0], torch.backend)
        and (row.os, row.machine) == (machine.os.family, machine.os.machine)
    ]
    for gpu in usable:
        capability = gpu.compute_capability
        if (
            rows
            and capability
            and not any(served_by(row, capability, machine.driver.cuda) for row in rows)
        ):
            found.add(f"no kernel for {gpu.name}")
    return found
