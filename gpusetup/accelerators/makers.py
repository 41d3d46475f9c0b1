"""All makers, and the ladder by which one is told (see the package's docstring)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from gpusetup.accelerators import amd, apple, intel, nvidia
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Gpu, PciDevice

MAKERS = (nvidia.MAKER, amd.MAKER, intel.MAKER, apple.MAKER)
BY_ID = {maker.id: maker for maker in MAKERS}
BY_PCI = {maker.pci: maker.id for maker in MAKERS if maker.pci}
BY_WORD = {word: maker.id for maker in MAKERS for word in maker.words}
LABELS = ("cpu", *(maker.label for maker in MAKERS if maker.label))
"""How the labels of torch's builds begin."""
LABEL = "|".join(("cpu", *(maker.label_form for maker in MAKERS if maker.label_form)))
"""Any of these labels, as a pattern without a group."""


def maker_of(backend: str | None) -> str | None:
    """Whose GPUs a backend is for; None for the CPU's and for what is unknown.

    >>> maker_of("cu124"), maker_of("rocm6.4"), maker_of("xpu"), maker_of("cpu")
    ('nvidia', 'amd', 'intel', None)
    """
    words = (backend or "").lower()
    starting = (maker for maker in MAKERS if maker.label and words.startswith(maker.label))
    return next((maker.id for maker in starting), None)


def maker_on_bus(vendor_id: str) -> str:
    """The maker by a PCI vendor id; the id itself where it is none of these.

    >>> maker_on_bus("10de"), maker_on_bus("1a03"), maker_on_bus("")
    ('nvidia', '1a03', 'unknown')
    """
    return BY_PCI.get(vendor_id, vendor_id or "unknown")


@lru_cache(maxsize=1024)
def other_maker(name: str) -> str | None:
    """The maker of a GPU whose name has a word of one that is not NVIDIA.

    >>> other_maker("AMD Radeon RX 7900 XTX"), other_maker("NVIDIA A2")
    ('amd', None)
    """
    words = name.lower().replace("(", " ").split()
    return next((BY_WORD[word] for word in words if word in BY_WORD), None)


def is_judged(maker: str | None) -> bool:
    return maker in BY_ID and BY_ID[maker].judged


def is_seen_only(maker: str | None) -> bool:
    """Whether a maker is known and its GPUs are not judged.

    >>> is_seen_only("amd"), is_seen_only("nvidia"), is_seen_only("1a03"), is_seen_only(None)
    (True, False, False, False)
    """
    return maker in BY_ID and not BY_ID[maker].judged


def judged_on(devices: Iterable[PciDevice] | None) -> tuple[PciDevice, ...]:
    """The devices on the bus that the rules judge."""
    return tuple(device for device in devices or () if is_judged(device.vendor))


def identified(gpu: Gpu) -> Gpu:
    """A GPU with its maker and its target, as far as they are told.

    >>> from gpusetup.model.versions import Capability
    >>> one = identified(Gpu(name="NVIDIA A10", compute_capability=Capability(8, 6)))
    >>> one.maker, one.target, identified(Gpu(name="AMD Instinct MI300X")).maker
    ('nvidia', 'sm_86', 'amd')
    """
    maker = gpu.maker or other_maker(gpu.name) or nvidia.MAKER.id
    ours = maker == nvidia.MAKER.id and gpu.compute_capability
    target = gpu.target or (ours.sm if ours else None)
    if (maker, target) == (gpu.maker, gpu.target):
        return gpu
    return replace(gpu, maker=maker, target=target)
