"""GPUs from AMD, Intel and Apple on machines without NVIDIA GPUs, and the state of their driver.

Sources: Linux, drivers/gpu/drm/amd/amdkfd/kfd_topology.c (the properties of a node), and amdgpu's
documentation of sysfs (mem_info_vram_total).
"""

from __future__ import annotations

import re

from gpusetup.accelerators.amd import amd_name, amd_target, target_of_version
from gpusetup.accelerators.apple import metal_bytes
from gpusetup.accelerators.intel import name_with_xpu
from gpusetup.accelerators.makers import AMD, APPLE, INTEL, Maker, judged_on
from gpusetup.model.frozen import replace
from gpusetup.model.machine import DeviceNode, Gpu, MakerStack, PciDevice, Reading, Snapshot
from gpusetup.probe.driver_files import node_at
from gpusetup.probe.pci import FOLDER
from gpusetup.readings.sources import missing
from gpusetup.system.system import System, exists, list_or_empty, read_or_none, unless_refused


def read_other_makers(system: System, read_before: Snapshot) -> Snapshot:
    """The GPUs of another maker; empty if the machine has NVIDIA GPUs, according to the sources
    that were read before.

    A machine with GPUs of several makers is judged by its NVIDIA GPUs, because their driver has
    already been queried.
    """
    if read_before.gpus or judged_on(read_before.pci_devices) or read_before.driver.version:
        return Snapshot()
    if system.family == "macos":
        return read_apple(system)
    devices = read_before.pci_devices or ()
    of_amd = tuple(device for device in devices if device.vendor == AMD.id)
    of_intel = tuple(device for device in devices if device.vendor == INTEL.id)
    if system.family == "windows":
        return on_windows(of_amd, of_intel)
    # If the AMD device is only a CPU's graphics, an Intel card is the GPU that computes.
    has_a_card = any(amd_target(device.device_id, device.name) for device in of_amd)
    # The integrated graphics of older Intel CPUs, which most machines have, do not count.
    for_xpu = tuple(device for device in of_intel if intel_gpu(device))
    if for_xpu and not has_a_card:
        gpus = tuple(gpu for gpu in map(intel_gpu, for_xpu) if gpu)
        return on_linux(system, INTEL, gpus, for_xpu)
    if not of_amd:
        return Snapshot()
    targets = topology_targets(system)
    gpus = tuple(gpu_of(system, device, targets) for device in of_amd)
    return on_linux(system, AMD, gpus, of_amd)


def on_windows(of_amd: tuple[PciDevice, ...], of_intel: tuple[PciDevice, ...]) -> Snapshot:
    """The AMD GPUs that Windows lists or, if there is none with a name, the Intel GPUs that torch
    supports; whether their driver works is unknown."""
    gpus = []
    for device in of_amd:
        if name := device.name or amd_name(device.device_id):
            target = amd_target(device.device_id, device.name)
            gpus.append(Gpu(name=name, maker=AMD.id, target=target))
    maker = AMD if gpus else INTEL
    gpus = gpus or [gpu for gpu in map(intel_gpu, of_intel) if gpu is not None]
    return Snapshot(makers=MakerStack(maker=maker.id, gpus=tuple(gpus)) if gpus else None)


# --- AMD: files need no rights and no ROCm tools; no device is opened -----------------------------

TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"
KFD = "/dev/kfd"
RENDER_FOLDER = "/dev/dri"
MODULE_VERSION = "/sys/module/amdgpu/version"
"""The version file of AMD's own driver package. The driver in the Linux kernel has no version."""
ROCM_VERSION_FILES = ("/opt/rocm/.info/version", "/opt/rocm/core/.info/version")
MOST_NODES = 128
"""The most topology nodes that are read: a server has 8 GPUs, or up to 64 partitions."""


def on_linux(
    system: System, maker: Maker, gpus: tuple[Gpu, ...], devices: tuple[PciDevice, ...]
) -> Snapshot:
    """A maker's GPUs on a Linux machine, with their driver and device nodes. `devices` are these
    GPUs on the PCI bus."""
    bound = sorted({device.driver for device in devices if device.driver})
    kernel_driver = bound[0] if bound else None
    stack = MakerStack(maker=maker.id, gpus=gpus, kernel_driver=kernel_driver)
    if maker is AMD:
        source = TOPOLOGY
        module_version = (read_or_none(system, MODULE_VERSION) or "").strip() or None
        rocm, nodes = rocm_version(system), compute_nodes(system, KFD)
        stack = replace(stack, driver_version=module_version, runtime=rocm, nodes=nodes)
    else:
        source = FOLDER
        stack = replace(stack, nodes=compute_nodes(system))
    names = ", ".join(gpu.target or gpu.name for gpu in gpus)
    gpus_read = Reading(subject="makers.gpus", source=source, value=names)
    nodes_read = Reading(subject="makers.nodes", source="/dev", value="device nodes")
    return Snapshot(makers=stack, readings=(gpus_read, nodes_read))


def topology_targets(system: System) -> dict[str, str]:
    """The target of each GPU that KFD lists, by PCI address: `gfx1100` for `0000:03:00.0`."""
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
    name = device.name or amd_name(device.device_id) or f"GPU {device.device_id}"
    memory = read_or_none(system, f"{FOLDER}/{address}/mem_info_vram_total") or ""
    return Gpu(
        name=name if name.startswith("AMD") else f"AMD {name}",
        maker=AMD.id,
        target=targets.get(address) or amd_target(device.device_id, device.name),
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
    nodes = (node_at(system, path) for path in paths)
    # A node without a mode vanished meanwhile.
    return tuple(node for node in nodes if node.mode)


def intel_gpu(device: PciDevice) -> Gpu | None:
    """The GPU if PyTorch's XPU builds support it; None for other Intel graphics."""
    name = name_with_xpu(device.device_id, device.name)
    if name is None:
        return None
    return Gpu(
        name=name if name.startswith("Intel") else f"Intel {name}",
        maker=INTEL.id,
        pci_bus_id=device.bus_id,
    )


# --- Apple: `sysctl` answers at once and needs no rights, `system_profiler` would take seconds ----

SYSCTL = ("sysctl", "machdep.cpu.brand_string", "hw.memsize", "hw.optional.arm64")
"""An Intel Mac lacks some of these keys; sysctl then exits with 1, but still prints the others."""
SYSCTL_SECONDS = 5.0


def read_apple(system: System) -> Snapshot:
    """The Apple chip and how much of its memory torch can use; empty on an Intel Mac."""
    output = system.run(SYSCTL, SYSCTL_SECONDS)
    values = dict(re.findall(r"^([\w.]{1,60}): (.{1,120})$", output.stdout, re.MULTILINE))
    if not values:
        return missing("makers.gpus", "sysctl", output.problem or f"exit {output.exit}")
    brand = values.get("machdep.cpu.brand_string", "")
    readings = (Reading(subject="makers.gpus", source="sysctl", value=brand or "unknown chip"),)
    is_named = brand.startswith("Apple")
    # Under Rosetta the chip is called `VirtualApple`, but the CPU's own flag is right.
    if not is_named and values.get("hw.optional.arm64") != "1":
        return Snapshot(readings=readings)
    memory = values.get("hw.memsize", "")
    gpu = Gpu(
        name=brand if is_named else "Apple M-series",
        maker=APPLE.id,
        memory_total_bytes=metal_bytes(int(memory)) if memory.isdecimal() else None,
    )
    translated = str(system.facts().get("machine") or "") == "x86_64"
    stack = MakerStack(maker=APPLE.id, gpus=(gpu,), translated=translated)
    return Snapshot(makers=stack, readings=readings)
