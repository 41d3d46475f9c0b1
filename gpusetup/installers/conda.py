"""conda: the channel `pytorch` up to torch 2.5.1, conda-forge's `pytorch-gpu` after it.

On conda-forge plain `pytorch` silently solves to a CPU build where no GPU is seen, so the
metapackage and `cuda-version` say what is meant.
"""

from __future__ import annotations

from gpusetup.errors import Unsatisfiable
from gpusetup.installers.options import InstallerOptions, others
from gpusetup.model.resolution import FAMILY, Resolution, Step, TorchBuild

CHANNELS = {
    "conda-pytorch": ("pytorch", "nvidia", "conda-forge"),
    "conda-forge": ("conda-forge",),
}
"""The channels of each kind of build; the third of the first brings what torch needs."""

MKL = "mkl<2024.1"
"""The channel pytorch's Linux builds need a symbol that MKL 2024.1 took away
(https://github.com/pytorch/pytorch/issues/123097)."""


def conda(resolution: Resolution, options: InstallerOptions) -> tuple[Step, ...]:
    """The one step of conda; Unsatisfiable where its channels have no build that fits."""
    where = ("--prefix", options.conda_prefix) if options.conda_prefix else ()
    if not {*FAMILY} & {*options.packages}:
        argv = ("conda", "install", "--yes", *where, "--freeze-installed", *options.packages)
        return (Step(title="from your channels, with the torch that stays", argv=argv),)
    build = conda_build(resolution)
    channels = tuple(word for name in CHANNELS[build.channel] for word in ("--channel", name))
    wanted = (*specs(build, options.packages), *others(options.packages))
    return (
        Step(
            title=f"torch {build.torch} ({build.backend}) from {build.channel}",
            argv=("conda", "install", "--yes", *where, "--override-channels", *channels, *wanted),
        ),
    )


def conda_build(resolution: Resolution) -> TorchBuild:
    """What conda has for the resolution: its own build, or the one resolved beside the wheel."""
    build = resolution.build
    if build is not None and build.channel != "pytorch":
        return build
    if resolution.conda is None:
        raise Unsatisfiable("conda's channels have no torch build that fits this machine")
    return resolution.conda


def specs(build: TorchBuild, packages: tuple[str, ...]) -> tuple[str, ...]:
    """The match specs of the family.

    Companions are pinned on the channel `pytorch`; on conda-forge the solver takes those that
    were built for this torch.
    """
    if build.channel == "conda-pytorch":
        return _pytorch_channel(build, packages)
    name = "pytorch-gpu" if build.cuda else "pytorch-cpu"
    companions = tuple(
        p for p in ("torchvision", "torchaudio") if p in packages and getattr(build, p)
    )
    cuda = (f"cuda-version={build.cuda}",) if build.cuda else ()
    return (f"{name}={build.torch}", *companions, *cuda)


def _pytorch_channel(build: TorchBuild, packages: tuple[str, ...]) -> tuple[str, ...]:
    versions = {"torchvision": build.torchvision, "torchaudio": build.torchaudio}
    companions = tuple(
        f"pytorch::{name}=={v}" for name, v in versions.items() if name in packages and v
    )
    flavour = f"pytorch-cuda={build.cuda}" if build.cuda else "cpuonly"
    mkl = (MKL,) if build.os == "linux" else ()
    return (f"pytorch::pytorch=={build.torch}", *companions, flavour, *mkl)
