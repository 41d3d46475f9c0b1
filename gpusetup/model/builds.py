"""torch builds, and the records about builds and companion packages that answers contain."""

from __future__ import annotations

from collections.abc import Container
from typing import Literal

from gpusetup.model.frozen import Frozen, Text
from gpusetup.model.versions import Capability

FAMILY = ("torch", "torchvision", "torchaudio")
"""The packages from torch's own index; all others come from the user's default index."""


class TorchBuild(Frozen):
    """One row of the catalog: a torch version for a backend and a platform."""

    torch: str
    backend: str
    cuda: Text
    os: Literal["linux", "windows", "macos"]
    machine: str
    """`x86_64` or `aarch64` (macOS' arm64 is `aarch64`)."""
    pythons: tuple[str, ...]
    """The Python versions: `3.11`, or `3.13t` for free-threaded Python; () if no known index has
    the build."""
    kernels: tuple[str, ...]
    """The architectures that the build has kernels for, such as `sm_80`; () for CPU builds."""
    ptx: tuple[str, ...] = ()
    """The PTX in the build, such as `compute_90`."""
    driver_floor: Text = None
    glibc: Text = None
    macos: Text = None
    torchvision: Text = None
    torchaudio: Text = None
    released: Text = None
    channel: Literal["pytorch", "conda-pytorch", "conda-forge"] = "pytorch"
    labelled: bool = True
    """Whether its version ends with the backend (`2.5.1+cu124`); on macOS it does not."""

    index: Text = None
    """The page that lists the build, if it is not on PyTorch's own index (but on AMD's, for
    example)."""

    device_extras: tuple[str, ...] = ()
    """The extras of torch and torchvision that install the kernels for the GPUs, on AMD's index:
    `device-gfx1151`."""

    def family(self, names: Container[str] = FAMILY) -> dict[str, str]:
        """The versions of torch, torchvision and torchaudio in this build, for the given names."""
        versions = {
            "torch": self.torch,
            "torchvision": self.torchvision,
            "torchaudio": self.torchaudio,
        }
        return {name: version for name, version in versions.items() if name in names and version}

    def project(self, name: str) -> str:
        """The name of torch or a companion as a requirement without a version: `torchvision`, or
        `torch[device-gfx1151]` on AMD's index.

        torchaudio has no kernels of its own, so it has no extras.
        """
        if not self.device_extras or name == "torchaudio":
            return name
        return f"{name}[{','.join(self.device_extras)}]"

    def labelled_version(self, version: str) -> str:
        """A version of torch or a companion as this build's index has it: `2.9.1+cu128`."""
        public = version.partition("+")[0]
        return f"{public}+{self.backend}" if self.labelled else public

    @property
    def cuda_major(self) -> str:
        """The CUDA major version, e.g. `12`; empty if the build does not use CUDA."""
        return (self.cuda or "").partition(".")[0]


class Rejection(Frozen):
    """A build that does not fit, and why."""

    torch: str
    backend: str
    reason: str


class Served(Frozen):
    """How the chosen build supports one GPU."""

    gpu: str
    compute_capability: Capability
    by: str
    """The kernel (`sm_86`) that the GPU runs, or the PTX (`compute_90`) that the driver compiles
    for it."""


class Fallback(Frozen):
    """Another build of the same torch, for an index that lacks the chosen one."""

    torch: str
    backend: str
    index_url: str


class Advice(Frozen):
    """The other driver or Python that would help most."""

    change: Literal["driver", "python"]
    to: str
    gives: str


class JointPackage(Frozen):
    """One package in a set of packages that work together."""

    name: str
    version: Text
    """The chosen version; null if no index was read, but only the table of companions."""
    limits: Text = None
    """The versions that work here (`>=1.19`), if the table contains them and no index was read."""
    index_url: Text = None
    """The index of the package; null if it is in the user's own folder, or if no index was read."""
    asked: bool = False
    """Whether the user requested this package by name."""
    extras: tuple[str, ...] = ()
    """The requested extras: `cuda13` in `jax[cuda13]`."""

    @property
    def requirement(self) -> str:
        """The package as a requirement, e.g. `vllm==0.32.0` or `jax[cuda13]==0.12.0`."""
        name = f"{self.name}[{','.join(self.extras)}]" if self.extras else self.name
        return f"{name}=={self.version}" if self.version else f"{name}{self.limits or ''}"


class Offer(Frozen):
    """The newest build that fits, offered in addition to the answer."""

    command: str
    """The command that installs it."""
    torch: str
    torchvision: Text = None
    torchaudio: Text = None
    backend: str
    index_url: Text = None
    driver_floor: Text = None
