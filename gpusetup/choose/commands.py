"""Installers as step tables: a resolution becomes the commands of uv, pip or conda. Pure.

uv and pip take torch and its companions from torch's index, the rest from the user's own. conda has
the channel `pytorch` up to torch 2.5.1, conda-forge's `pytorch-gpu` after it: plain `pytorch` there
silently solves to a CPU build where no GPU is seen, so the metapackage and `cuda-version` say what
is meant.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpusetup.accelerators.makers import maker_of
from gpusetup.catalog.builds import INDEX_ROOT, index_url
from gpusetup.choose.choice import Choice
from gpusetup.errors import Unsatisfiable
from gpusetup.model.builds import FAMILY, TorchBuild
from gpusetup.model.frozen import Frozen
from gpusetup.model.steps import Step


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
    conda_name: str | None = None
    """The name of a new conda environment that is created first."""
    conda_python: str | None = None
    """The Python of that new environment: `3.11`, `3.13t`; None leaves it to conda."""


def started(python: str | None) -> tuple[str, ...]:
    """How an interpreter is started; a portable package's without its user's own packages.

    >>> started(None), started(r".\\python_embeded\\python.exe")[1:]
    (('python',), ('-s',))
    """
    own = ("-s",) if "python_embed" in (python or "") else ()
    return (python or "python", *own)


def chosen_build(choice: Choice) -> TorchBuild:
    """The wheel of a resolution that has one; Unsatisfiable for none, and for a conda build."""
    build = choice.build
    if build is None or build.channel != "pytorch":
        raise Unsatisfiable("No wheel of torch fits this machine")
    return build


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


# --- uv and pip -----------------------------------------------------------------------------------


def uv(choice: Choice, options: InstallerOptions) -> tuple[Step, ...]:
    """The two steps of uv. torch's own index stands before those of the user's configuration: uv
    stops at the first that has a project, and its `--index-url` yields to UV_DEFAULT_INDEX."""
    build = chosen_build(choice)
    target = ("--python", options.python) if options.python else ()
    url = index_url(build.backend, options.index_root)
    again = (f"--reinstall-package={name}" for name in to_reinstall(build, options))
    torch = ("--index", url, "--default-index", url, *again)
    return _steps(("uv", "pip", "install", *target), torch, build, options)


def pip(choice: Choice, options: InstallerOptions) -> tuple[Step, ...]:
    """The two steps of pip, by the target's own `python -m pip`."""
    build = chosen_build(choice)
    again = ("--force-reinstall",) if to_reinstall(build, options) else ()
    torch = (*again, "--index-url", index_url(build.backend, options.index_root))
    return _steps((*started(options.python), "-m", "pip", "install"), torch, build, options)


NEEDS_ITS_INDEX = ("amd", "intel")
"""The makers whose builds of torch need packages that only torch's own index has (their Triton)."""


def _steps(
    install: tuple[str, ...],
    torch: tuple[str, ...],
    build: TorchBuild,
    options: InstallerOptions,
) -> tuple[Step, ...]:
    exact = pins(build, options.packages)
    if exact and maker_of(build.backend) in NEEDS_ITS_INDEX:
        whole = Step(
            title=f"{', '.join(exact)} and what they need, from torch's own index",
            argv=(*install, *torch, *exact),
        )
        more = others(options.packages)
        beside = Step(title="the rest from your default index", argv=(*install, *exact, *more))
        return (whole, beside) if more else (whole,)
    family = Step(
        title=f"{', '.join(exact)} from torch's own index",
        argv=(*install, "--no-deps", *torch, *exact),
    )
    rest = Step(
        title="everything else from your default index",
        argv=(*install, *exact, *others(options.packages)),
    )
    return (family, rest) if exact else (rest,)


# --- conda ----------------------------------------------------------------------------------------

CHANNELS = {
    "conda-pytorch": ("pytorch", "nvidia", "conda-forge"),
    "conda-forge": ("conda-forge",),
}
"""The channels of each kind of build; the third of the first brings what torch needs."""

MKL = "mkl<2024.1"
"""The channel pytorch's Linux builds need a symbol that MKL 2024.1 took away
(https://github.com/pytorch/pytorch/issues/123097)."""


def conda(choice: Choice, options: InstallerOptions) -> tuple[Step, ...]:
    """conda's steps: one, or three where a new environment is asked for.

    Unsatisfiable where conda's channels have no build that fits.
    """
    if not {*FAMILY} & {*options.packages}:
        where = ("--prefix", options.conda_prefix) if options.conda_prefix else ()
        argv = ("conda", "install", "--yes", *where, "--freeze-installed", *options.packages)
        return (Step(title="from your channels, with the torch that stays", argv=argv),)
    build = choice.build
    if build is None or build.channel == "pytorch":  # then the one resolved beside the wheel
        build = choice.conda
    if build is None:
        raise Unsatisfiable("conda's channels have no torch build that fits this machine")
    channels = tuple(word for name in CHANNELS[build.channel] for word in ("--channel", name))
    wanted = (*specs(build, options.packages), *others(options.packages))
    created = new_conda_environment(options) if options.conda_name else ()
    install = Step(
        title=f"torch {build.torch} ({build.backend}) from {build.channel}",
        argv=(
            *("conda", "install", "--yes", *conda_target(options)),
            *("--override-channels", *channels, *wanted),
        ),
    )
    return (*created, install)


def conda_target(options: InstallerOptions) -> tuple[str, ...]:
    """The words that name the environment. The new one is named even though it is active by then:
    where `conda activate` fails, its packages must not go into another environment."""
    if options.conda_name:
        return ("--name", options.conda_name)
    return ("--prefix", options.conda_prefix) if options.conda_prefix else ()


def new_conda_environment(options: InstallerOptions) -> tuple[Step, ...]:
    """A new environment with its Python, and the step into it.

    Without `--yes`: conda asks before it removes an environment of that name. Python comes from
    conda-forge, which both kinds of channels take what torch needs from.
    """
    name = options.conda_name or ""
    version = options.conda_python
    python = f"python={version}" if version else "python"
    if version and version.endswith("t"):
        # conda-forge's name for the build without the global lock.
        python = f"python-freethreading={version.rstrip('t')}"
    source = ("--override-channels", "--channel", "conda-forge")
    create = ("conda", "create", "--name", name, *source, python)
    return (
        Step(title=f"the environment {name}", argv=create),
        Step(title="into it", argv=("conda", "activate", name)),
    )


def specs(build: TorchBuild, packages: tuple[str, ...]) -> tuple[str, ...]:
    """The match specs of the family.

    Companions are pinned on the channel `pytorch`; on conda-forge the solver takes those that
    were built for this torch.
    """
    companions = {n: v for n in FAMILY[1:] if n in packages and (v := getattr(build, n))}
    if build.channel == "conda-pytorch":
        exact = (f"pytorch::{name}=={version}" for name, version in companions.items())
        flavour = f"pytorch-cuda={build.cuda}" if build.cuda else "cpuonly"
        mkl = (MKL,) if build.os == "linux" else ()
        return (f"pytorch::pytorch=={build.torch}", *exact, flavour, *mkl)
    name = "pytorch-gpu" if build.cuda else "pytorch-cpu"
    cuda = (f"cuda-version={build.cuda}",) if build.cuda else ()
    return (f"{name}={build.torch}", *companions, *cuda)


# --- a tool of uv ---------------------------------------------------------------------------------

UV_BACKENDS = r"cpu|xpu|cu(?:118|12[0-9]|13[02])|rocm7\.[12]"
"""What `uv tool install --torch-backend` takes among the backends of torch's releases since 2.0, by
the help of uv 0.13.9; for others the index is named."""


def tool_command(
    packages: Sequence[str], torch: str, backend: str, index_url: str | None
) -> tuple[str, ...] | None:
    """How uv installs a tool with torch from its own index; None without a package.

    torch is pinned beside the tool, so that `uv tool upgrade` keeps it.

    >>> " ".join(tool_command(["whisperx==3.4"], "2.15.0", "cu130", None) or ())
    'uv tool install --torch-backend cu130 --with torch==2.15.0 whisperx==3.4'
    """
    if not packages:
        return None
    tool, *more = packages
    beside = tuple(word for package in (f"torch=={torch}", *more) for word in ("--with", package))
    if re.fullmatch(UV_BACKENDS, backend):
        return ("uv", "tool", "install", "--torch-backend", backend, *beside, tool)
    source = ("--index", index_url) if index_url else ()
    return ("uv", "tool", "install", *source, *beside, tool)


INSTALLERS = {"uv": uv, "pip": pip, "conda": conda}
"""Installer -> the steps it would take; pure, so that what is shown is what is run."""
