"""The rows of `data/catalog.json`: releases, drivers and GPUs."""

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
    """The torch versions that this torchvision accepts, if they are a range such as `>=2.14.0`;
    otherwise None."""
    torchaudio: str | None = None


class Floor(Frozen):
    """The oldest driver for a CUDA version (`12.4.1`) or a whole major version (`12`)."""

    cuda: str
    linux: str
    windows: str | None = None

    def on(self, family: str) -> str | None:
        """The driver version for an operating system; WSL uses the Windows driver."""
        if family == "windows":
            return self.windows
        return self.linux


class Branch(Frozen):
    """A driver branch and the CUDA version that its `nvidia-smi` shows."""

    branch: int
    cuda: str


class Retired(Frozen):
    """The last driver branch that supports an architecture. If `minor` is None, this applies to the
    whole major version."""

    major: int
    last_branch: int
    minor: int | None = None


class FirstDriver(Frozen):
    """The first driver that supports an architecture, or a product that needs a later driver than
    its architecture.

    A bare branch (`570`) means every driver of that branch, on Windows too.
    """

    capability: Capability
    linux: str
    windows: str | None = None
    gpu: str | None = None
    """The product's name, as words that its full name contains."""


class DefaultWheel(Frozen):
    """The first torch version for which the default package index has a backend on a platform."""

    on: str
    """The platform, such as `linux-x86_64`, or only a system."""
    from_torch: str
    backend: str


class Compiler(Frozen):
    """The first toolkit whose nvcc compiles for an architecture, and the first one that no longer
    does.

    None means that support began before the table's first toolkit, or has not ended yet.
    """

    sm: str
    from_cuda: str | None = None
    until_cuda: str | None = None


class OlderRelease(Frozen):
    """The last Python version for releases older than a certain one. The table of builds does not
    contain these releases."""

    before: str
    python: str


class OlderKernels(Frozen):
    """The oldest and the newest GPU that the wheels of releases older than a certain one
    support."""

    before: str
    oldest: Capability
    newest: Capability


class OtherMakers(Frozen):
    """The builds of one torch version for GPUs from makers other than NVIDIA."""

    torch: str
    seen: Mapping[str, str]
    """Maps a platform to its backends, such as `linux-x86_64` to `rocm7.1 rocm7.2 xpu`."""


class AmdRelease(Frozen):
    """A torch release on AMD's own index, whose extras choose the kernels for a target."""

    torch: str
    torchvision: str
    torchaudio: str
    rocm: str
    """The ROCm version, as in the label of the torch version: `10.0.0`."""
    pythons: str
    """The Python versions, such as `3.11 3.12`."""
    on: str
    """The platforms, such as `linux-x86_64 windows-x86_64`. On Windows, only Radeon and Ryzen are
    supported."""


class CompanionRelease(Frozen):
    """One release of torchvision or torchaudio, and the torch versions that it supports."""

    name: Name
    version: str
    torch: str
    """The torch versions that it supports, such as `>=2.11.0`."""
    cuda: Literal["label", "major", "release"] = "label"
    """What must match between this release and torch: the whole label, the CUDA major version, or
    the CUDA major and minor version."""
    built_with: str | None = None
    """The torch version whose platforms and backends this release was built for; None if no index
    was read."""
    seen: Mapping[str, str] = {}
    """Maps each platform whose index was read to the backends that list this release: `cpu cu130
    cu132`."""
    unlabelled: Mapping[str, str] = {}
    """Maps a platform to the backend of the wheel without a label."""
