"""All makers of GPUs, and the functions that find a GPU's maker (see the package's docstring)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from gpusetup.model.frozen import Frozen, Text, replace
from gpusetup.model.machine import Gpu, PciDevice


class Maker(Frozen):
    """A maker of GPUs, with what is needed to recognise its GPUs and torch's builds for them."""

    id: str
    """The maker's id in a snapshot: `nvidia`."""
    name: str
    device: str
    """The name of these GPUs' device type in torch."""
    pci: Text = None
    """The maker's vendor id on the PCI bus."""
    listed: Text = None
    """A pattern for the maker's name in the output of `lspci`."""
    words: tuple[str, ...] = ()
    """Words in the names of the maker's GPUs that no other maker uses."""
    models: Text = None
    """A pattern for the names of the maker's GPUs in a description."""
    index: Text = None
    """The index with torch's builds for these GPUs, which gpusetup does not test."""
    label: Text = None
    """The beginning of the labels of torch's builds for these GPUs; None if torch's ordinary build
    supports them."""
    label_form: Text = None
    """A pattern for a complete build label, such as `cu124`."""
    masks: tuple[str, ...] = ()
    """Environment variables that hide these GPUs from programs."""
    kernel_drivers: tuple[str, ...] = ()
    """The Linux drivers through which the maker's runtime reaches a GPU, the current one first."""


NVIDIA = Maker(
    id="nvidia",
    name="NVIDIA",
    pci="10de",
    listed=r"NVIDIA|\[10de:",
    label="cu",
    label_form=r"cu\d{2,3}",
    device="cuda",
    masks=("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"),
)
"""The only maker whose GPUs gpusetup judges: their driver, kernels and fitting build."""
AMD = Maker(
    id="amd",
    name="AMD",
    pci="1002",
    listed=r"Advanced Micro|AMD|ATI |\[1002:",
    words=("amd", "radeon", "instinct"),
    models=r"\b(amd|radeon|rx\s?\d{3,4}|instinct|mi\d{2,3}[ax]?|vega|firepro)\b",
    index="https://download.pytorch.org/whl/rocm7.2",
    label="rocm",
    label_form=r"rocm\d+(?:\.\d+)*",
    device="cuda",
    masks=("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    kernel_drivers=("amdgpu",),
)
INTEL = Maker(
    id="intel",
    name="Intel",
    pci="8086",
    listed=r"Intel|\[8086:",
    words=("intel", "arc"),
    # `Max 1550` and `A770` are names without a word of Intel's.
    models=r"\b(intel(?! gaudi)|arc|iris|uhd|hd graphics|core ultra \d|flex 1[47]0|max ?1[15][05]0|"
    r"[ab](3[18]0|5[78]0|770)m?)\b",
    index="https://download.pytorch.org/whl/xpu",
    label="xpu",
    label_form="xpu",
    device="xpu",
    kernel_drivers=("xe", "i915"),
)
APPLE = Maker(
    id="apple",
    name="Apple",
    words=("apple",),
    device="mps",
)
"""torch's ordinary build for macOS supports Apple's GPUs, so there is no label."""
MAKERS = (NVIDIA, AMD, INTEL, APPLE)
BY_ID = {maker.id: maker for maker in MAKERS}
BY_WORD = {word: maker.id for maker in MAKERS for word in maker.words}
LABEL = "|".join(("cpu", *(maker.label_form for maker in MAKERS if maker.label_form)))
"""A pattern for any label of torch's builds, without a group."""


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
    known = (maker.id for maker in MAKERS if maker.pci == vendor_id)
    return next(known, vendor_id or "unknown")


@lru_cache(maxsize=1024)
def other_maker(name: str) -> str | None:
    """The maker of a GPU, if its name contains a word of a maker other than NVIDIA.

    >>> other_maker("AMD Radeon RX 7900 XTX"), other_maker("NVIDIA A2")
    ('amd', None)
    """
    # `Intel(R) Arc(TM) A770`.
    words = name.lower().replace("(", " ").split()
    return next((BY_WORD[word] for word in words if word in BY_WORD), None)


def is_seen_only(maker: str | None) -> bool:
    """Whether gpusetup knows a maker but does not judge its GPUs. A device on the PCI bus may come
    from any maker, for example that of a network card.

    >>> is_seen_only("amd"), is_seen_only("nvidia"), is_seen_only("1a03"), is_seen_only(None)
    (True, False, False, False)
    """
    return maker in BY_ID and maker != NVIDIA.id


def judged_on(devices: Iterable[PciDevice] | None) -> tuple[PciDevice, ...]:
    """NVIDIA's devices on the PCI bus, which are the only ones that gpusetup judges."""
    return tuple(device for device in devices or () if device.vendor == NVIDIA.id)


def identified(gpu: Gpu) -> Gpu:
    """Add the maker and the target to a GPU, as far as its name and capability tell them.

    >>> from gpusetup.model.versions import Capability
    >>> a10 = identified(Gpu(name="NVIDIA A10", compute_capability=Capability(8, 6)))
    >>> a10.maker, a10.target, identified(Gpu(name="AMD Instinct MI300X")).maker
    ('nvidia', 'sm_86', 'amd')
    """
    # Only NVIDIA's driver is queried for GPUs, so a name without a maker's word is NVIDIA's.
    maker = gpu.maker or other_maker(gpu.name) or NVIDIA.id
    target = gpu.target
    if not target and maker == NVIDIA.id and gpu.compute_capability:
        target = gpu.compute_capability.sm
    return replace(gpu, maker=maker, target=target)
