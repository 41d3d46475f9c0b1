"""What an installer is told besides the resolution, and the exact versions that follow."""

from __future__ import annotations

from gpusetup.catalog.builds import INDEX_ROOT
from gpusetup.errors import Unsatisfiable
from gpusetup.model.frozen import Frozen
from gpusetup.model.resolution import FAMILY, Resolution, TorchBuild


class InstallerOptions(Frozen):
    python: str | None = None
    """The target interpreter; None leaves it to the installer's own rule."""
    packages: tuple[str, ...] = FAMILY
    """What is to be installed, companions without a release for this torch left out."""
    index_root: str = INDEX_ROOT
    again: bool = False
    """The family is there at this version already, but not whole."""
    conda_prefix: str | None = None
    """The conda environment; None means the active one."""


def started(python: str | None) -> tuple[str, ...]:
    """How an interpreter is started; a portable package's without its user's own packages.

    >>> started(None), started(r".\\python_embeded\\python.exe")[1:]
    (('python',), ('-s',))
    """
    own = ("-s",) if "python_embed" in (python or "") else ()
    return (python or "python", *own)


def chosen_build(resolution: Resolution) -> TorchBuild:
    """The wheel of a resolution that has one; Unsatisfiable for none, and for a conda build."""
    if resolution.build is None:
        raise Unsatisfiable("No torch build fits this machine")
    if resolution.build.channel != "pytorch":
        raise Unsatisfiable(
            f"torch {resolution.build.torch} was resolved for conda, not for wheels"
        )
    return resolution.build


def carries_label(build: TorchBuild, package: str) -> bool:
    """Whether a wheel's version surely ends in `+<backend>`.

    aarch64 companions did not for years and do now: without the label the requirement matches
    both, and the step says to reinstall, so that a CPU build does not count as satisfied.
    """
    return build.labelled and (package == "torch" or build.machine == "x86_64")


def pins(build: TorchBuild, packages: tuple[str, ...]) -> tuple[str, ...]:
    """The exact requirements of the family: `torch==2.5.1+cu124`."""
    labels = {name: f"+{build.backend}" for name in FAMILY if carries_label(build, name)}
    family = build.family(packages)
    return tuple(f"{name}=={version}{labels.get(name, '')}" for name, version in family.items())


def to_reinstall(build: TorchBuild, options: InstallerOptions) -> tuple[str, ...]:
    """The family members that an installer would take for installed, and must not."""
    names = build.family(options.packages)
    return tuple(name for name in names if options.again or not carries_label(build, name))


def others(packages: tuple[str, ...]) -> tuple[str, ...]:
    """What was asked for besides the family."""
    return tuple(package for package in packages if package not in FAMILY)
