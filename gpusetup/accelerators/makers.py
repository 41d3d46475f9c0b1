"""All makers, and how the maker of a GPU is found (see the package's docstring)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from gpusetup.model.frozen import Frozen, Text, replace
from gpusetup.model.machine import Gpu, PciDevice


class Maker(Frozen):
    """A maker of GPUs, with how its GPUs and torch's builds for them are recognised."""

    id: str
    """As in a snapshot: `nvidia`."""
    name: str
    judged: bool = False
    """Whether its GPUs are judged; otherwise they are only seen."""
    pci: Text = None
    """Its id on the PCI bus."""
    listed: Text = None
    """A pattern for its name in the lines of `lspci`."""
    words: tuple[str, ...] = ()
    """Words in the names of its GPUs that no other maker's GPUs have."""
    models: Text = None
    """A pattern for the names of its GPUs in a description."""
    index: Text = None
    """The index of torch's builds for it, which are not tested here."""
    label: Text = None
    """How the labels of its builds begin; None if torch's ordinary build works on it."""
    label_form: Text = None
    """A pattern for such a label."""
    device: str
    """The name of its device in torch."""
    masks: tuple[str, ...] = ()
    """Variables that hide its GPUs from programs."""
    noted: Text = None
    """What to add if a machine has only its GPUs and another build is chosen."""


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
"""torch's ordinary build for macOS works on its GPU."""
MAKERS = (NVIDIA, AMD, INTEL, APPLE)
BY_ID = {maker.id: maker for maker in MAKERS}
BY_PCI = {maker.pci: maker.id for maker in MAKERS if maker.pci}
BY_WORD = {word: maker.id for maker in MAKERS for word in maker.words}
LABELS = ("cpu", *(maker.label for maker in MAKERS if maker.label))
"""How the labels of torch's builds begin."""
LABEL = "|".join(("cpu", *(maker.label_form for maker in MAKERS if maker.label_form)))
"""Any of these labels, as a pattern without a group."""


def maker_of(backend: str | None) -> str | None:
    """The maker whose GPUs a backend supports; None for the CPU backend and for unknown backends.

    >>> maker_of("cu124"), maker_of("rocm6.4"), maker_of("xpu"), maker_of("cpu")
    ('nvidia', 'amd', 'intel', None)
    """
    label = (backend or "").lower()
    for maker in MAKERS:
        if maker.label and label.startswith(maker.label):
            return maker.id
    return None


def maker_on_bus(vendor_id: str) -> str:
    """The maker with a PCI vendor id; the id itself if it belongs to none of the known makers.

    >>> maker_on_bus("10de"), maker_on_bus("1a03"), maker_on_bus("")
    ('nvidia', '1a03', 'unknown')
    """
    maker_id = BY_PCI.get(vendor_id, vendor_id)
    return maker_id or "unknown"


@lru_cache(maxsize=1024)
def other_maker(name: str) -> str | None:
    """The maker of a GPU, if its name contains a word of a maker other than NVIDIA.

    >>> other_maker("AMD Radeon RX 7900 XTX"), other_maker("NVIDIA A2")
    ('amd', None)
    """
    # `Intel(R) Arc(TM) A770`.
    words = name.lower().replace("(", " ").split()
    for word in words:
        if word in BY_WORD:
            return BY_WORD[word]
    return None


def is_judged(maker: str | None) -> bool:
    """Whether gpusetup can judge if torch works on the GPUs of a maker."""
    row = BY_ID.get(maker or "")
    if row is None:
        return False
    return row.judged


def is_seen_only(maker: str | None) -> bool:
    """Whether gpusetup knows a maker but does not judge its GPUs.

    >>> is_seen_only("amd"), is_seen_only("nvidia"), is_seen_only("1a03"), is_seen_only(None)
    (True, False, False, False)
    """
    row = BY_ID.get(maker or "")
    # A device on the bus may be of any maker, a network card's for example.
    if row is None:
        return False
    return not row.judged


def judged_on(devices: Iterable[PciDevice] | None) -> tuple[PciDevice, ...]:
    """The devices on the PCI bus whose makers gpusetup judges."""
    judged = []
    for device in devices or ():
        if is_judged(device.vendor):
            judged.append(device)
    return tuple(judged)


def identified(gpu: Gpu) -> Gpu:
    """Add the maker and the target to a GPU, as far as its name and capability tell them.

    >>> from gpusetup.model.versions import Capability
    >>> a10 = identified(Gpu(name="NVIDIA A10", compute_capability=Capability(8, 6)))
    >>> a10.maker, a10.target, identified(Gpu(name="AMD Instinct MI300X")).maker
    ('nvidia', 'sm_86', 'amd')
    """
    # Only NVIDIA's driver is asked for GPUs, so a name without a maker is NVIDIA's.
    maker = gpu.maker or other_maker(gpu.name) or NVIDIA.id
    target = gpu.target
    if not target:
        target = None
        if maker == NVIDIA.id and gpu.compute_capability:
            target = gpu.compute_capability.sm
    # Most GPUs are complete, and a copy of each would cost time.
    if (maker, target) == (gpu.maker, gpu.target):
        return gpu
    return replace(gpu, maker=maker, target=target)
