"""The rows of `data/catalog.json`: releases, drivers, GPUs, and which version changed what."""

from collections.abc import Mapping
from typing import Literal

from gpusetup.model.frozen import Frozen
from gpusetup.model.versions import Capability

Name = Literal["torchvision", "torchaudio"]


class TorchRelease(Frozen):
    """One torch release and the companions that belong to it."""

    torch: str
    released: str
    torchvision: str | None = None
    torchvision_needs: str | None = None
    """The torch that this torchvision accepts where that is a range: `>=2.14.0`."""
    torchaudio: str | None = None


class Floor(Frozen):
    """The oldest driver for a CUDA version (`12.4.1`) or a whole major version (`12`)."""

    cuda: str
    linux: str
    windows: str | None = None

    def on(self, family: str) -> str | None:
        """The driver's version for an operating system; WSL uses Windows' driver."""
        if family == "windows":
            return self.windows
        return self.linux


class Branch(Frozen):
    """A driver branch and the CUDA version that its `nvidia-smi` shows."""

    branch: int
    cuda: str


class Retired(Frozen):
    """The last driver branch that supports an architecture; `minor` None means the whole major
    version."""

    major: int
    last_branch: int
    minor: int | None = None


class FirstDriver(Frozen):
    """The first driver that supports an architecture, or a product that needs a later one.

    A branch alone (`570`) means every driver of it, on Windows too.
    """

    capability: Capability
    linux: str
    windows: str | None = None
    gpu: str | None = None
    """The product's name, in words that its full name holds."""


class DefaultWheel(Frozen):
    """The first torch from which the default package index has a backend for a platform."""

    on: str
    """`linux-x86_64`, or a system alone."""
    from_torch: str
    backend: str


class Compiler(Frozen):
    """The first toolkit whose nvcc compiles for an architecture, and the first that no longer does.

    None: older than the table, and still so.
    """

    sm: str
    from_cuda: str | None = None
    until_cuda: str | None = None


class OlderRelease(Frozen):
    """The last Python for releases before a certain one, for which the table has no builds."""

    before: str
    python: str


class OlderKernels(Frozen):
    """The oldest and the newest GPU that wheels before a certain release support."""

    before: str
    oldest: Capability
    newest: Capability


class OtherMakers(Frozen):
    """The builds of one torch for GPUs of makers other than NVIDIA."""

    torch: str
    seen: Mapping[str, str]
    """Platform -> the backends: `linux-x86_64` -> `rocm7.1 rocm7.2 xpu`."""


class AmdRelease(Frozen):
    """A torch on AMD's own index, whose extras choose the kernels for a target."""

    torch: str
    torchvision: str
    torchaudio: str
    rocm: str
    """As in the label of its version: `10.0.0`."""
    pythons: str
    """`3.11 3.12`."""
    on: str
    """The platforms: `linux-x86_64 windows-x86_64`. Windows has Radeon and Ryzen only."""


class Nightly(Frozen):
    """The backends that have nightly builds on a platform."""

    on: str
    """`linux-x86_64`."""
    backends: str
    """`cpu cu126 cu130`."""
    as_of: str


class Milestone(Frozen):
    """The version with which something changed."""

    name: str
    version: str


class CompanionRelease(Frozen):
    """One release of torchvision or torchaudio, and the torch versions that it supports."""

    name: Name
    version: str
    torch: str
    """The torch that it serves: `>=2.11.0`."""
    cuda: Literal["label", "major", "release"] = "label"
    """What must be torch's own: the whole label, CUDA's major, or its major and minor."""
    built_with: str | None = None
    """The torch whose platforms and backends it was built for; None where no index was read."""
    seen: Mapping[str, str] = {}
    """Platform -> the backends whose index lists it, where one was read: `cpu cu130 cu132`."""
    unlabelled: Mapping[str, str] = {}
    """Platform -> the backend of the wheel that carries no label."""
