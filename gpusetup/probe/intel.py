"""Intel GPUs on Linux, as i915 or xe show them in /sys and /dev. Opens no device."""

from __future__ import annotations

from gpusetup.accelerators.intel import KERNEL_DRIVERS, intel_device
from gpusetup.accelerators.makers import INTEL
from gpusetup.accelerators.other_gpus import has_xpu
from gpusetup.model.machine import Gpu, MakerStack, PciDevice, Snapshot
from gpusetup.probe.amd import compute_nodes, node_readings
from gpusetup.system.system import System


def read_intel(system: System, devices: tuple[PciDevice, ...]) -> Snapshot:
    """The Intel GPUs of a Linux machine that torch supports, with their driver and device nodes.

    The integrated graphics of older CPUs, which most machines have, do not count.
    """
    gpus = []
    drivers = set()
    for device in devices:
        gpu = intel_gpu(device)
        if gpu is not None:
            gpus.append(gpu)
            drivers.add(device.driver)
    if not gpus:
        return Snapshot()
    bound = [driver for driver in KERNEL_DRIVERS if driver in drivers]
    others = sorted(driver for driver in drivers if driver)
    nodes = compute_nodes(system)
    stack = MakerStack(
        maker=INTEL.id,
        gpus=tuple(gpus),
        kernel_driver=next(iter((*bound, *others)), None),
        nodes=nodes,
    )
    return Snapshot(makers=stack, readings=tuple(node_readings(nodes)))


def intel_gpu(device: PciDevice) -> Gpu | None:
    """The GPU if PyTorch's XPU builds support it; None for other Intel graphics."""
    known = intel_device(device.device_id, device.name)
    name = known.name if known else device.name
    # On Windows, the device has a name to judge by. A device without a name is only accepted if the
    # table knows its id.
    if name is None or not has_xpu(name):
        return None
    return Gpu(
        name=name if name.startswith("Intel") else f"Intel {name}",
        maker=INTEL.id,
        pci_bus_id=device.bus_id,
    )
