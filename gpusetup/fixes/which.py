"""Which GPUs a finding is about: how they are named in a sentence, and in a command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from gpusetup.catalog.pci_names import board
from gpusetup.evidence.context import RuleContext, chosen_by, gpus, nvidia_on_pci
from gpusetup.evidence.plausible import is_an_identifier
from gpusetup.model.machine import Event, Gpu, PciDevice

NAMED = 8
"""How many GPUs a sentence lists."""
UNNAMED = ("", "unknown")


def titled(context: RuleContext, concerned: Sequence[Gpu]) -> str:
    """The GPUs in a sentence: by name where there is one GPU, else with number and slot too."""
    if not concerned:
        return names(context)
    if not gpus(context) and len(concerned) > 1:
        slots = ", ".join(gpu.pci_bus_id or "?" for gpu in concerned[:NAMED])
        return f"{len(concerned)} NVIDIA GPUs ({slots})"
    if len(gpus(context)) < 2:
        return names(context) if concerned[0].name in UNNAMED else concerned[0].name
    kinds: dict[str, list[str]] = {}
    for gpu in concerned[:NAMED]:
        kinds.setdefault(gpu.name, []).append(placed(gpu))
    more = f" and {len(concerned) - NAMED} more" if len(concerned) > NAMED else ""
    return " and ".join(_of_a_kind(name, places) for name, places in kinds.items()) + more


def _of_a_kind(name: str, places: list[str]) -> str:
    listed = "; ".join(places)
    return listed if name in UNNAMED else f"{name} ({listed})"


def gpu_named(gpu: Gpu) -> str:
    """What `nvidia-smi -i` takes for a GPU."""
    named = chosen_by(gpu) or "0"
    return named if is_an_identifier(named) else "0"


def placed(gpu: Gpu) -> str:
    """A GPU's number and slot, as far as they are known.

    >>> placed(Gpu(name="T4", nvml_index=1, pci_bus_id="00000000:41:00.0"))
    'GPU 1, 00000000:41:00.0'
    """
    number = None if gpu.nvml_index is None else f"GPU {gpu.nvml_index}"
    slot = gpu.pci_bus_id if number else f"GPU {gpu.pci_bus_id}" if gpu.pci_bus_id else None
    return ", ".join(part for part in (number, slot) if part) or "GPU"


def selected(concerned: Iterable[Gpu]) -> str:
    """What `nvidia-smi -i` takes for all of them; "" where none can be named.

    Its manual page: one or more GPUs, divided by commas, by index, UUID or bus id.
    """
    return ",".join(dict.fromkeys(one for gpu in concerned if (one := _plain(gpu))))


def _plain(gpu: Gpu) -> str | None:
    named = chosen_by(gpu)
    return named if named and is_an_identifier(named) else None


def each(concerned: Iterable[Gpu]) -> tuple[str, ...]:
    """What `nvidia-smi -i` takes for each of them, where a command takes one GPU."""
    return tuple(dict.fromkeys(map(gpu_named, concerned)))


def are(concerned: Sequence[Gpu]) -> str:
    return "are" if len(concerned) > 1 else "is"


def have(concerned: Sequence[Gpu]) -> str:
    return "have" if len(concerned) > 1 else "has"


def at_slots(context: RuleContext, events: Iterable[Event]) -> tuple[Gpu, ...]:
    """The GPUs that events name by their slots; one that no source lists has its slot only."""
    slots = [slot for event in events for slot in _slots(event)]
    known = {short(gpu.pci_bus_id): gpu for gpu in gpus(context) if gpu.pci_bus_id}
    each_once = dict.fromkeys(map(short, slots))
    return tuple(known.get(slot) or Gpu(name="unknown", pci_bus_id=slot) for slot in each_once)


def _slots(event: Event) -> list[str]:
    named = event.values.get("bus_ids") or event.values.get("bus_id") or ""
    return [slot for slot in named.split() if ":" in slot]


def short(bus_id: str | None) -> str:
    """One writing for a slot: the kernel leaves the function out, nvidia-smi has a longer domain.

    >>> short("00000000:3B:00.0"), short("0000:3b:00")
    ('0000:3b:00.0', '0000:3b:00.0')
    """
    low = (bus_id or "").lower()
    whole = low if "." in low else f"{low}.0"
    domain, _, rest = whole.partition(":")
    return f"{domain[-4:].zfill(4)}:{rest}"


NO_MODEL = ("nvidia", "geforce", "graphics", "device", "quadro", "tesla", "rtx", "gtx")


def _is_telling(name: str) -> bool:
    """Whether a name says which model it is; nvidia-smi's narrow tables cut names.

    >>> _is_telling("NVIDIA GeForce ..."), _is_telling("GeForce RTX 208...")
    (False, True)
    """
    return any(word not in NO_MODEL for word in name.lower().replace(".", " ").split())


def _by_number(device: PciDevice) -> str:
    return f"the NVIDIA GPU (PCI 10de:{device.device_id})" if device.device_id else "the NVIDIA GPU"


def names(context: RuleContext) -> str:
    """What the NVIDIA GPUs of this machine are called."""
    listed = tuple(
        gpu.name for gpu in gpus(context) if gpu.name != "unknown" and _is_telling(gpu.name)
    )
    on_bus = tuple(map(on_the_bus, nvidia_on_pci(context)))
    return counted(listed or on_bus) or context.snapshot.os.jetson or "the NVIDIA GPU"


def on_the_bus(device: PciDevice) -> str:
    """What a GPU is called that only the PCI bus speaks of."""
    return device.name or board(device.device_id) or _by_number(device)


def counted(names: Sequence[str]) -> str:
    """Names in a sentence, each once; how many there are of each where they differ.

    >>> counted(("T4", "T4")), counted(("A100", "T4", "T4")), counted(())
    ('T4', 'A100, 2 x T4', '')
    """
    kinds = Counter(names)
    if len(kinds) < 2:
        return "".join(kinds)
    return ", ".join(f"{n} x {name}" if n > 1 else name for name, n in kinds.items())
