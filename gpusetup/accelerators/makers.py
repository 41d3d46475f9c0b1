"""All makers, and the ladder by which one is told (see the package's docstring)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from gpusetup.model.frozen import Frozen, Text, replace
from gpusetup.model.machine import Gpu, PciDevice


class Maker(Frozen):
    id: str
    """As in a snapshot: `nvidia`."""
    name: str
    judged: bool = False
    """Whether its GPUs are judged; else they are seen only."""
    pci: Text = None
    """Its id on the PCI bus."""
    listed: Text = None
    """What the lines of `lspci` say of it, as a pattern."""
    words: tuple[str, ...] = ()
    """Words in the names of its GPUs that no other maker's have."""
    models: Text = None
    """What its GPUs are called, as a pattern over a whole description."""
    index: Text = None
    """Where torch's builds for it are, which are not proven here."""
    label: Text = None
    """How the labels of its builds begin; None where torch's ordinary build serves it."""
    label_form: Text = None
    """Such a label, as a pattern."""
    device: str
    """What torch calls its device."""
    masks: tuple[str, ...] = ()
    """Variables that hide its GPUs from programs."""
    noted: Text = None
    """What to add where only its GPUs are there and another build is chosen."""


NVIDIA = Maker(
    id="nvidia",
    name="NVIDIA",
    judged=True,
    pci="10de",
    listed=r"NVIDIA|\[10de:",
    label="cu",
    label_form=r"cu\d{2,3}",
    device="cuda",
    masks=("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"),
)
"""The maker whose GPUs are judged."""
AMD = Maker(
    id="amd",
    name="AMD",
    pci="1002",
    listed=r"Advanced Micro|AMD|ATI |\[1002:",
    words=("amd", "radeon", "instinct"),
    models=r"\b(amd|radeon|rx\s?\d{3,4}|instinct|mi\d{2,3}[ax]?|vega|firepro)\b",
    index="https://download.pytorch.org/whl/rocm7.2",
    label="rocm",
    label_form=r"rocm\d[\d.]*",
    device="cuda",
    masks=("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    noted="torch's ROCm builds exist",
)
INTEL = Maker(
    id="intel",
    name="Intel",
    pci="8086",
    listed=r"Intel|\[8086:",
    words=("intel", "arc"),
    models=r"\b(intel(?! gaudi)|arc|iris|uhd)\b",
    index="https://download.pytorch.org/whl/xpu",
    label="xpu",
    label_form="xpu",
    device="xpu",
    masks=("ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR"),
)
APPLE = Maker(
    id="apple",
    name="Apple",
    words=("apple",),
    device="mps",
)
"""torch's ordinary build for macOS serves its GPU."""
MAKERS = (NVIDIA, AMD, INTEL, APPLE)
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
    maker = gpu.maker or other_maker(gpu.name) or NVIDIA.id
    ours = maker == NVIDIA.id and gpu.compute_capability
    target = gpu.target or (ours.sm if ours else None)
    if (maker, target) == (gpu.maker, gpu.target):
        return gpu
    return replace(gpu, maker=maker, target=target)
