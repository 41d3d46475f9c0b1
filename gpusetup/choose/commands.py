"""Turns a choice into commands for uv, pip or conda. Pure functions.

uv and pip take torch and its companions from torch's index, the rest from the user's own. conda has
the channel `pytorch` up to torch 2.5.1, conda-forge's `pytorch-gpu` after it: plain `pytorch` there
silently solves to a CPU build where no GPU is seen, so the metapackage and `cuda-version` say what
is meant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gpusetup.accelerators.makers import maker_of
from gpusetup.catalog.builds import INDEX_ROOT, index_url
from gpusetup.choose.choice import Choice
from gpusetup.errors import Unsatisfiable
from gpusetup.model.builds import FAMILY, TorchBuild
from gpusetup.model.frozen import Frozen
from gpusetup.model.steps import Step

Words = tuple[str, ...]


class InstallerOptions(Frozen):
    """What an installer command should install, and where."""

    python: str | None = None
    """The target interpreter; None leaves it to the installer's own rule."""
    packages: Words = FAMILY
    """What is to be installed, companions without a release for this torch left out."""
    on_torch_index: Words = ()
    """Requirements besides torch's family that come from torch's own index:
    `torchcodec==0.17.0+cu126`."""
    index_root: str = INDEX_ROOT
    again: bool = False
    """The family is there at this version already, but not whole."""
    conda_prefix: str | None = None
    """The conda environment; None means the active one."""
    conda_name: str | None = None
    """The name of a new conda environment that is created first."""
    conda_python: str | None = None
    """The Python of that new environment: `3.11`, `3.13t`; None leaves it to conda."""

    @property
    def beside_torch(self) -> Words:
        """The packages to install other than torch, torchvision and torchaudio."""
        others = []
        for package in self.packages:
            # A word with a version is no member's name: torch's family comes by its names.
            if package not in FAMILY:
                others.append(package)
        return tuple(others)


def started(python: str | None) -> Words:
    """The command that starts a Python interpreter; a portable Python gets `-s`, which ignores the
    user's own packages.

    >>> started(None), started(r".\\python_embeded\\python.exe")[1:]
    (('python',), ('-s',))
    """
    executable = python or "python"
    is_portable = "python_embed" in executable
    # Such a package has everything in its folder; the user's site-packages would hide it.
    return (executable, "-s") if is_portable else (executable,)


# --- torch's family -------------------------------------------------------------------------------


def chosen_wheel(choice: Choice) -> TorchBuild:
    """The wheel of a choice. Raises Unsatisfiable if there is none, or if the build is conda's."""
    build = choice.build
    if build is None or build.channel != "pytorch":
        raise Unsatisfiable("No wheel of torch fits this machine")
    return build


def carries_label(build: TorchBuild, package: str) -> bool:
    """Whether the version of this package's wheel certainly ends in `+<backend>`."""
    if not build.labelled:
        return False
    # aarch64 companions did not for years and do now: without the label the requirement matches
    # both, and the step says to reinstall, so that a CPU build does not count as satisfied.
    return package == "torch" or build.machine == "x86_64"


def exact_family(build: TorchBuild, packages: Words) -> Words:
    """Exact requirements for torch and its companions, such as `torch==2.5.1+cu124`."""
    requirements = []
    for name, version in build.family(packages).items():
        requirement = f"{build.project(name)}=={version}"
        # Without the label another build of the same version would count as installed.
        if carries_label(build, name):
            requirement += f"+{build.backend}"
        requirements.append(requirement)
    return tuple(requirements)


def to_reinstall(build: TorchBuild, options: InstallerOptions) -> Words:
    """The packages that must be reinstalled, because an installer would wrongly take the installed
    build for the right one."""
    names = []
    for name in build.family(options.packages):
        if options.again or not carries_label(build, name):
            names.append(name)
    return tuple(names)


def limits_beside_torch(choice: Choice, options: InstallerOptions) -> Words:
    """Requirements that limit dependencies, such as `numpy<2` for torch before 2.3; empty if torch
    is installed alone."""
    companions = build_companions(choice, options)
    # torch alone brings no numpy, and does not need one.
    return choice.limits if companions or options.beside_torch else ()


def build_companions(choice: Choice, options: InstallerOptions) -> Words:
    """The companions (torchvision and torchaudio) that are to be installed."""
    build = choice.build
    if build is None:
        return ()
    family = build.family(options.packages)
    # They bring numpy, which torch alone does not.
    family.pop("torch", None)
    return tuple(family)


# --- uv and pip -----------------------------------------------------------------------------------


def uv(choice: Choice, options: InstallerOptions) -> tuple[Step, ...]:
    """The steps for uv: torch from its own index, then everything else from the default index.

    torch's own index stands before those of the user's configuration: uv stops at the first that
    has a project, and its `--index-url` yields to UV_DEFAULT_INDEX.
    """
    build = chosen_wheel(choice)
    url = build.index or index_url(build.backend, options.index_root)
    target = ("--python", options.python) if options.python else ()
    again = [f"--reinstall-package={name}" for name in to_reinstall(build, options)]
    return _steps(
        ("uv", "pip", "install", *target),
        ("--index", url, "--default-index", url, *again),
        choice,
        options,
    )


def pip(choice: Choice, options: InstallerOptions) -> tuple[Step, ...]:
    """The steps for pip, run as `python -m pip` of the environment: torch from its own index, then
    everything else."""
    build = chosen_wheel(choice)
    url = build.index or index_url(build.backend, options.index_root)
    again = ("--force-reinstall",) if to_reinstall(build, options) else ()
    return _steps(
        (*started(options.python), "-m", "pip", "install"),
        (*again, "--index-url", url),
        choice,
        options,
    )


NEEDS_ITS_INDEX = ("amd", "intel")
"""The makers whose builds of torch need packages that only torch's own index has (their Triton)."""


def _steps(
    install: Words, from_torch_index: Words, choice: Choice, options: InstallerOptions
) -> tuple[Step, ...]:
    """The steps: torch's packages from their own index (without dependencies, except for AMD and
    Intel), then everything else from the default index."""
    build = chosen_wheel(choice)
    exact = (*exact_family(build, options.packages), *options.on_torch_index)
    limits = limits_beside_torch(choice, options)
    everything = (*install, *exact, *options.beside_torch, *limits)
    from_default_index = Step(title="everything else from your default index", argv=everything)
    if not exact:
        return (from_default_index,)
    if maker_of(build.backend) in NEEDS_ITS_INDEX:
        whole_family = Step(
            title=f"{', '.join(exact)} and what they need, from torch's own index",
            argv=(*install, *from_torch_index, *exact),
        )
        # Everything that torch needs is there by then.
        is_all = not options.beside_torch
        rest_step = Step(title="the rest from your default index", argv=everything)
        return (whole_family,) if is_all else (whole_family, rest_step)
    family_alone = Step(
        title=f"{', '.join(exact)} from torch's own index",
        argv=(*install, "--no-deps", *from_torch_index, *exact),
    )
    return (family_alone, from_default_index)


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
    """The steps for conda: one, or three if a new environment is created.

    Unsatisfiable where conda's channels have no build that fits.
    """
    if not {*FAMILY} & {*options.packages}:
        return (beside_torch_that_stays(options),)
    build = choice.build
    if build is None or build.channel == "pytorch":
        # Beside each wheel the build of conda's channels is chosen, too.
        build = choice.conda
    if build is None:
        raise Unsatisfiable("conda's channels have no torch build that fits this machine")
    channels: list[str] = []
    for channel in CHANNELS[build.channel]:
        channels += ("--channel", channel)
    specs = (*conda_specs(build, options.packages), *options.beside_torch)
    # conda-forge's torch says itself which numpy it takes; the channel pytorch's does not.
    is_limited = build.channel == "conda-pytorch" and choice.limits_torch(build.torch)
    limits = choice.limits if is_limited else ()
    install = Step(
        title=f"torch {build.torch} ({build.backend}) from {build.channel}",
        argv=(
            *("conda", "install", "--yes", *conda_target(options)),
            *("--override-channels", *channels, *specs, *limits),
        ),
    )
    return (*new_conda_environment(options), install)


def beside_torch_that_stays(options: InstallerOptions) -> Step:
    """The conda step that installs packages without changing what is already installed."""
    where = ("--prefix", options.conda_prefix) if options.conda_prefix else ()
    return Step(
        title="from your channels, with the torch that stays",
        argv=("conda", "install", "--yes", *where, "--freeze-installed", *options.packages),
    )


def conda_target(options: InstallerOptions) -> Words:
    """The conda options that name the environment; empty for the active one."""
    # The new one is named even though it is active by then: where `conda activate` fails, its
    # packages must not go into another environment.
    if options.conda_name:
        return ("--name", options.conda_name)
    if options.conda_prefix:
        return ("--prefix", options.conda_prefix)
    return ()


def new_conda_environment(options: InstallerOptions) -> tuple[Step, ...]:
    """The steps that create and activate a new conda environment with its Python; empty if none was
    requested.

    Without `--yes`: conda asks before it removes an environment of that name.
    """
    name, version = options.conda_name, options.conda_python
    if not name:
        return ()
    python = f"python={version}" if version else "python"
    if version and version.endswith("t"):
        # conda-forge's name for the build without the global lock.
        python = f"python-freethreading={version.rstrip('t')}"
    # Both kinds of channels take Python, and what torch needs, from conda-forge.
    source = ("--override-channels", "--channel", "conda-forge")
    create = ("conda", "create", "--name", name, *source, python)
    return (
        Step(title=f"the environment {name}", argv=create),
        Step(title="into it", argv=("conda", "activate", name)),
    )


def conda_specs(build: TorchBuild, packages: Words) -> Words:
    """The conda match specs for torch and its companions.

    Companions are pinned on the channel `pytorch`; on conda-forge the solver takes those that
    were built for this torch.
    """
    companions = build.family(packages)
    companions.pop("torch", None)
    if build.channel == "conda-pytorch":
        return specs_of_channel_pytorch(build, companions)
    # Plain `pytorch` solves to a CPU build where no GPU is seen.
    metapackage = "pytorch-gpu" if build.cuda else "pytorch-cpu"
    specs = [f"{metapackage}={build.torch}", *companions]
    if build.cuda:
        specs.append(f"cuda-version={build.cuda}")
    return tuple(specs)


def specs_of_channel_pytorch(build: TorchBuild, companions: Mapping[str, str]) -> Words:
    """The match specs for conda's channel `pytorch`, whose last torch is 2.5.1."""
    specs = [f"pytorch::pytorch=={build.torch}"]
    for name, version in companions.items():
        specs.append(f"pytorch::{name}=={version}")
    # Which of two builds is meant says a metapackage.
    flavour = f"pytorch-cuda={build.cuda}" if build.cuda else "cpuonly"
    specs.append(flavour)
    if build.os == "linux":
        specs.append(MKL)
    return tuple(specs)


# --- a tool of uv ---------------------------------------------------------------------------------

UV_BACKENDS = r"cpu|xpu|cu(?:118|12[0-9]|13[02])|rocm7\.[12]"
"""What `uv tool install --torch-backend` takes among the backends of torch's releases since 2.0, by
the help of uv 0.13.9; for others the index is named."""


def tool_command(
    packages: Sequence[str], torch: str, backend: str, torch_index: str | None
) -> Words | None:
    """The uv command that installs a tool together with torch from its own index; None if no
    package is given.

    torch is pinned beside the tool, so that `uv tool upgrade` keeps it.

    >>> " ".join(tool_command(["whisperx==3.4"], "2.15.0", "cu130", None) or ())
    'uv tool install --torch-backend cu130 --with torch==2.15.0 whisperx==3.4'
    """
    if not packages:
        return None
    tool, *libraries = packages
    extra_packages: list[str] = []
    for package in (f"torch=={torch}", *libraries):
        extra_packages += ("--with", package)
    if re.fullmatch(UV_BACKENDS, backend):
        return ("uv", "tool", "install", "--torch-backend", backend, *extra_packages, tool)
    source = ("--index", torch_index) if torch_index else ()
    return ("uv", "tool", "install", *source, *extra_packages, tool)


INSTALLERS = {"uv": uv, "pip": pip, "conda": conda}
"""Installer -> the steps it would take; pure, so that what is shown is what is run."""
