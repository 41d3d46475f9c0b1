"""GPUs from AMD, Intel and Apple on machines without NVIDIA GPUs, and the state of their driver."""

from __future__ import annotations

from gpusetup.accelerators.amd_devices import amd_device
from gpusetup.accelerators.makers import AMD, INTEL, judged_on, maker_of
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Gpu, MakerStack, PciDevice, Snapshot
from gpusetup.probe.amd import read_amd, rocm_version
from gpusetup.probe.apple import read_apple
from gpusetup.probe.intel import intel_gpu, read_intel
from gpusetup.readings.paths import join
from gpusetup.system.system import System, list_or_empty


def read_other_makers(system: System, found: Snapshot) -> Snapshot:
    """The GPUs of another maker; empty if the machine has NVIDIA GPUs. `found` contains what was
    read so far.

    A machine with GPUs of several makers is judged by its NVIDIA GPUs, because their driver has
    already been queried.
    """
    if found.gpus or judged_on(found.pci_devices) or found.driver.version:
        return Snapshot()
    if system.family == "macos":
        return read_apple(system)
    devices = found.pci_devices or ()
    of_amd = tuple(device for device in devices if device.vendor == AMD.id)
    of_intel = tuple(device for device in devices if device.vendor == INTEL.id)
    if system.family == "windows":
        return on_windows(of_amd, of_intel)
    # If the AMD device is only a CPU's graphics, an Intel card is the GPU that computes.
    if of_intel and not has_a_card(of_amd):
        snapshot = read_intel(system, of_intel)
        if snapshot.makers is not None:
            return snapshot
    return read_amd(system, of_amd) if of_amd else Snapshot()


def has_a_card(devices: tuple[PciDevice, ...]) -> bool:
    """Whether one of these AMD devices is in the table of known GPUs."""
    return any(amd_device(device.device_id, device.name) for device in devices)


def on_windows(of_amd: tuple[PciDevice, ...], of_intel: tuple[PciDevice, ...]) -> Snapshot:
    """The AMD or Intel GPUs that Windows lists by name; it is unknown whether their driver
    works."""
    gpus = []
    for device in of_amd:
        known = amd_device(device.device_id, device.name)
        name = device.name or (known.name if known else None)
        if name:
            target = known.target if known else None
            gpus.append(Gpu(name=name, maker=AMD.id, target=target))
    if gpus:
        return Snapshot(makers=MakerStack(maker=AMD.id, gpus=tuple(gpus)))
    of_xpu = [gpu for gpu in map(intel_gpu, of_intel) if gpu is not None]
    if of_xpu:
        return Snapshot(makers=MakerStack(maker=INTEL.id, gpus=tuple(of_xpu)))
    return Snapshot()


def is_rocm_in_wsl(snapshot: Snapshot) -> bool:
    """Whether torch is a ROCm build in WSL, and there is no NVIDIA GPU."""
    is_rocm = maker_of(snapshot.torch.backend) == AMD.id
    return bool(snapshot.os.wsl) and is_rocm and not snapshot.gpus


HIP_LIBRARY = "libamdhip64.so"


def with_torchs_runtime(system: System, snapshot: Snapshot) -> Snapshot:
    """The snapshot with a note of whether torch contains HIP itself, as PyTorch's own wheels do."""
    stack, torch = snapshot.makers, snapshot.torch
    if stack is None and is_rocm_in_wsl(snapshot):
        # In WSL, neither the PCI bus nor a device node shows an AMD GPU, but torch's build does.
        runtime = rocm_version(system)
        stack = MakerStack(maker=AMD.id, kernel_driver="dxg", runtime=runtime)
        return replace(snapshot, makers=stack)
    if stack is None or stack.maker != AMD.id or not torch.hip or not torch.location:
        return snapshot
    names = list_or_empty(system, join(torch.location, "torch", "lib"))
    # AMD's own wheels have ROCm in separate packages next to torch, which count as part of torch.
    beside = list_or_empty(system, torch.location)
    bundles = any(name.startswith(HIP_LIBRARY) for name in names)
    bundles = bundles or any(name.startswith("_rocm_sdk") for name in beside)
    known = bundles if names else None
    return replace(snapshot, makers=replace(stack, bundles_runtime=known))
