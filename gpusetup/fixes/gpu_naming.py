"""How the GPUs of a finding are named in a sentence and in a command."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpusetup.evidence.command_values import is_an_identifier
from gpusetup.evidence.context import RuleContext, gpus, nvidia_on_pci
from gpusetup.model.machine import Event, Gpu
from gpusetup.readings.sources import bus_key

MAX_NAMED = 8
"""The most GPUs that a sentence lists."""


def gpu_in_full(gpu: Gpu) -> str:
    """A GPU with its number, address and name, as far as they are known.

    >>> gpu_in_full(Gpu(name="NVIDIA L4", nvml_index=1, pci_bus_id="00000000:0F:00.0"))
    'GPU 1 (00000000:0F:00.0, NVIDIA L4)'
    >>> gpu_in_full(Gpu(name="unknown", nvml_index=1))
    'GPU 1'
    """
    index = gpu.nvml_index if gpu.nvml_index is not None else gpu.cuda_index
    number = "GPU" if index is None else f"GPU {index}"
    details = []
    if gpu.pci_bus_id:
        details.append(gpu.pci_bus_id)
    if gpu.name.lower() not in ("", "unknown"):
        details.append(gpu.name)
    return f"{number} ({', '.join(details)})" if details else number


def smi_index(gpu: Gpu) -> str | None:
    """The argument of `nvidia-smi -i` for one GPU; None if it cannot be named."""
    return gpu.pci_bus_id if gpu.nvml_index is None else str(gpu.nvml_index)


def gpus_in_title(context: RuleContext, concerned: Sequence[Gpu]) -> str:
    """The GPUs for a sentence: with number and slot, or only all names if the machine has a single
    GPU or `concerned` is empty."""
    if not concerned or len(gpus(context)) < 2:
        return gpu_names(context)
    names = ", ".join(map(gpu_in_full, concerned[:MAX_NAMED]))
    not_named = len(concerned) - MAX_NAMED
    return f"{names} and {not_named} more" if not_named > 0 else names


def smi_list(concerned: Iterable[Gpu]) -> str:
    """One argument of `nvidia-smi -i` for all of these GPUs that can be named; "" if none can."""
    named = (smi_index(gpu) for gpu in concerned)
    return ",".join(dict.fromkeys(index for index in named if index and is_an_identifier(index)))


def gpus_at_slots(context: RuleContext, events: Iterable[Event]) -> tuple[Gpu, ...]:
    """The GPUs in the PCI slots of events. A GPU that no source lists has only its slot."""
    by_slot = {slot_key(gpu.pci_bus_id): gpu for gpu in gpus(context) if gpu.pci_bus_id}
    addresses = (event.values.get("bus_id", "") for event in events)
    # An event without an address names no slot.
    slots = dict.fromkeys(slot_key(address) for address in addresses if ":" in address)
    return tuple(by_slot.get(slot) or Gpu(name="unknown", pci_bus_id=slot) for slot in slots)


def slot_key(bus_id: str | None) -> str:
    """A PCI slot in one spelling: the kernel leaves the function out, and nvidia-smi writes a
    longer domain.

    >>> slot_key("00000000:3B:00.0"), slot_key("0000:3b:00")
    ('0000:3b:00.0', '0000:3b:00.0')
    """
    whole = bus_id or ""
    return bus_key(whole if "." in whole else f"{whole}.0") or ""


def gpu_names(context: RuleContext) -> str:
    """The names of this machine's NVIDIA GPUs, for a sentence: from the driver's list, the PCI bus
    or the name of a Jetson board."""
    listed = [gpu.name for gpu in gpus(context) if gpu.name != "unknown"]
    on_bus = [
        device.name
        or context.catalog.name_on_pci(device.device_id)
        # 10de is NVIDIA's PCI vendor id.
        or f"the NVIDIA GPU (PCI 10de:{device.device_id})"
        for device in nvidia_on_pci(context)
    ]
    return ", ".join(dict.fromkeys(listed or on_bus)) or context.os.jetson or "the NVIDIA GPU"
