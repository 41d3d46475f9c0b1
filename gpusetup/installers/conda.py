"""conda: conda-forge's `pytorch-gpu`. Its own channel `pytorch` ended with torch 2.5.1.

On conda-forge plain `pytorch` silently solves to a CPU build where no GPU is seen, so the
metapackage and `cuda-version` say what is meant.
"""

from __future__ import annotations

from gpusetup.errors import Unsatisfiable
from gpusetup.installers.options import InstallerOptions, others
from gpusetup.model.finding import Step
from gpusetup.model.resolution import FAMILY, Resolution, TorchBuild


def conda(resolution: Resolution, options: InstallerOptions) -> tuple[Step, ...]:
    """The one step of conda; Unsatisfiable where its channels have no build that fits."""
    where = ("--prefix", options.conda_prefix) if options.conda_prefix else ()
    if not {*FAMILY} & {*options.packages}:
        argv = ("conda", "install", "--yes", *where, "--freeze-installed", *options.packages)
        return (Step(title="from your channels, with the torch that stays", argv=argv),)
    build = conda_build(resolution)
    channel = ("--override-channels", "--channel", build.channel)
    wanted = (*specs(build, options.packages), *others(options.packages))
    return (
        Step(
            title=f"torch {build.torch} ({build.backend}) from {build.channel}",
            argv=("conda", "install", "--yes", *where, *channel, *wanted),
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
    """The match specs of the family; the solver takes companions that were built for this torch."""
    name = "pytorch-gpu" if build.cuda else "pytorch-cpu"
    companions = tuple(
        p for p in ("torchvision", "torchaudio") if p in packages and getattr(build, p)
    )
    cuda = (f"cuda-version={build.cuda}",) if build.cuda else ()
    return (f"{name}={build.torch}", *companions, *cuda)
