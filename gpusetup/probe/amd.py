"""AMD GPUs on Linux, as amdgpu and its compute driver (KFD) show them in /sys and /dev.

Files need no rights and no ROCm tools. No function here opens a device.

Sources: Linux, drivers/gpu/drm/amd/amdkfd/kfd_topology.c (the properties of a node), and amdgpu's
documentation of sysfs (mem_info_vram_total).
"""

from __future__ import annotations

import re

from gpusetup.accelerators.amd import target_of_version
from gpusetup.accelerators.amd_devices import amd_device
from gpusetup.accelerators.makers import AMD
from gpusetup.model.machine import DeviceNode, Gpu, MakerStack, PciDevice, Reading, Snapshot
from gpusetup.probe.driver_files import node_at
from gpusetup.probe.pci import FOLDER
from gpusetup.system.system import System, exists, list_or_empty, read_or_none, unless_refused

TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"
KFD = "/dev/kfd"
RENDER_FOLDER = "/dev/dri"
MODULE_VERSION = "/sys/module/amdgpu/version"
"""The version file of AMD's own driver package. The driver in the Linux kernel has no version."""
ROCM_VERSION_FILES = ("/opt/rocm/.info/version", "/opt/rocm/core/.info/version")
NODES_READ = Reading(subject="makers.nodes", source="/dev", value="device nodes")
MOST_NODES = 128
"""The maximum number of topology nodes that are read: a server has 8 GPUs, or up to 64 partitions
of them."""


def read_amd(system: System, devices: tuple[PciDevice, ...]) -> Snapshot:
    """The AMD GPUs of a Linux machine, with their driver and device nodes. `devices` are the AMD
    devices on the PCI bus."""
    targets = topology_targets(system)
    drivers = sorted({device.driver for device in devices if device.driver})
    stack = MakerStack(
        maker=AMD.id,
        gpus=tuple(gpu_of(system, device, targets) for device in devices),
        kernel_driver="amdgpu" if "amdgpu" in drivers else next(iter(drivers), None),
        driver_version=(read_or_none(system, MODULE_VERSION) or "").strip() or None,
        runtime=rocm_version(system),
        nodes=compute_nodes(system, KFD),
    )
    readings = (
        Reading(subject="makers.gpus", source=TOPOLOGY, value=", ".join(targets.values()) or None),
        NODES_READ,
    )
    return Snapshot(makers=stack, readings=readings)


def topology_targets(system: System) -> dict[str, str]:
    """The target of each GPU that KFD lists, by PCI address, such as `gfx1100` for
    `0000:03:00.0`."""
    targets: dict[str, str] = {}
    for name in list_or_empty(system, TOPOLOGY)[:MOST_NODES]:
        text = read_or_none(system, f"{TOPOLOGY}/{name}/properties") or ""
        rows = re.findall(r"^(\w{1,40}) (\d{1,20})$", text, re.MULTILINE)
        properties = {field: int(digits) for field, digits in rows}
        # A CPU is a node too, but its `gfx_target_version` is 0.
        if target := target_of_version(properties.get("gfx_target_version", 0)):
            # The location contains bus, device and function in 8, 5 and 3 bits.
            location = properties.get("location_id", 0)
            bus, device, function = location >> 8 & 0xFF, location >> 3 & 0x1F, location & 7
            domain = properties.get("domain", 0)
            targets[f"{domain:04x}:{bus:02x}:{device:02x}.{function:x}"] = target
    return targets


def gpu_of(system: System, device: PciDevice, targets: dict[str, str]) -> Gpu:
    """An AMD GPU: its target comes from KFD or from its PCI id, its memory from amdgpu."""
    address = device.bus_id or ""
    known = amd_device(device.device_id, device.name)
    name = device.name or (known.name if known else f"GPU {device.device_id}")
    memory = read_or_none(system, f"{FOLDER}/{address}/mem_info_vram_total") or ""
    return Gpu(
        name=name if name.startswith("AMD") else f"AMD {name}",
        maker=AMD.id,
        target=targets.get(address) or (known.target if known else None),
        pci_bus_id=address or None,
        memory_total_bytes=int(memory) if memory.strip().isdecimal() else None,
    )


def rocm_version(system: System) -> str | None:
    """The version of the ROCm installation, such as `6.4.1`; None if there is none."""
    # The file contains the build number too, as in `6.4.1-83`.
    texts = (read_or_none(system, file) or "" for file in ROCM_VERSION_FILES)
    versions = (re.match(r"\d{1,3}(\.\d{1,3}){1,2}", text) for text in texts)
    return next((version[0] for version in versions if version), None)


def compute_nodes(system: System, *others: str) -> tuple[DeviceNode, ...] | None:
    """The render nodes and the given device nodes, with this user's permissions; None if /dev
    cannot be listed."""
    if unless_refused(system.list, "/dev") is None:
        return None
    names = list_or_empty(system, RENDER_FOLDER)
    paths = [path for path in others if exists(system, path)]
    paths += [f"{RENDER_FOLDER}/{name}" for name in names if re.fullmatch(r"renderD\d{1,4}", name)]
    return tuple(node for node in (node_at(system, path) for path in paths) if node.mode)
