"""Turns a choice into commands for uv, pip or conda. Pure functions.

uv and pip install torch and its companions from torch's index and everything else from the user's
own index. conda uses the channel `pytorch` up to torch 2.5.1 and conda-forge's `pytorch-gpu` for
later versions. On conda-forge, plain `pytorch` silently becomes a CPU build if no GPU is visible.
So the metapackage and `cuda-version` state which build is wanted.
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

Words = tuple[str, ...]


class InstallerOptions(Frozen):
    """What an installer command should install, and where."""

    python: str | None = None
    """The target interpreter; None leaves the choice to the installer."""
    packages: Words = FAMILY
    """The packages to install, without companions that have no release for this torch."""
    on_torch_index: Words = ()
    """Requirements that come from torch's own index, besides torch and its companions:
    `torchcodec==0.17.0+cu126`."""
    index_root: str = INDEX_ROOT
    again: bool = False
    """Whether this version is already installed but incomplete, so that it must be reinstalled."""
    conda_prefix: str | None = None
    """The conda environment; None means the active one."""
    conda_name: str | None = None
    """The name of a new conda environment that is created first."""
    conda_python: str | None = None
    """The Python of that new environment, such as `3.11` or `3.13t`; None leaves the choice to
    conda."""

    @property
    def beside_torch(self) -> Words:
        """The packages to install other than torch, torchvision and torchaudio."""
        # torch and its companions are listed by name only, so an entry with a version is another
        # package.
        return tuple(package for package in self.packages if package not in FAMILY)


def started(python: str | None) -> Words:
    """The command that starts a Python interpreter. A portable Python gets `-s`, so that it ignores
    packages in the user's home folder.

    >>> started(None), started(r".\\python_embeded\\python.exe")[1:]
    (('python',), ('-s',))
    """
    executable = python or "python"
    # A portable Python has all its packages in its own folder, which the user's site-packages would
    # hide.
    return (executable, "-s") if "python_embed" in executable else (executable,)


# --- torch's family -------------------------------------------------------------------------------


def chosen_wheel(choice: Choice) -> TorchBuild:
    """The wheel of a choice. Raises Unsatisfiable if there is none, or if the build is conda's."""
    build = choice.build
    # No index is known to have a CUDA build without Pythons, such as a vendor's.
    if build is None or build.channel != "pytorch" or (build.cuda and not build.pythons):
        raise Unsatisfiable("No wheel of torch fits this machine")
    return build


def carries_label(build: TorchBuild, package: str) -> bool:
    """Whether the version of this package's wheel certainly ends in `+<backend>`."""
    if not build.labelled:
        return False
    # On aarch64, older companions have no label and newer ones do. A requirement without a label
    # matches both. So this package is reinstalled, because otherwise an installed CPU build would
    # satisfy the requirement.
    return package == "torch" or build.machine == "x86_64"


def exact_family(build: TorchBuild, packages: Words) -> Words:
    """Exact requirements for torch and its companions, such as `torch==2.5.1+cu124`."""
    requirements = []
    for name, version in build.family(packages).items():
        requirement = f"{build.project(name)}=={version}"
        # Without the label, an installed build of the same version for another backend would
        # satisfy the requirement.
        if carries_label(build, name):
            requirement += f"+{build.backend}"
        requirements.append(requirement)
    return tuple(requirements)


def to_reinstall(build: TorchBuild, options: InstallerOptions) -> Words:
    """The packages that must be reinstalled, because an installer would mistake the installed build
    for the right one."""
    family = build.family(options.packages)
    return tuple(name for name in family if options.again or not carries_label(build, name))


# --- uv and pip -----------------------------------------------------------------------------------


def uv(choice: Choice, options: InstallerOptions) -> tuple[Step, ...]:
    """The steps for uv: torch from its own index, then everything else from the default index.

    torch's own index comes before the indexes in the user's configuration, because uv uses the
    first index that has a project. `--index-url` would not work here, because UV_DEFAULT_INDEX
    overrides it.
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
    """The steps for pip, run as the environment's `python -m pip`: torch from its own index, then
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
"""The makers whose torch builds need packages that only torch's own index has (their Triton)."""


def _steps(
    install: Words, from_torch_index: Words, choice: Choice, options: InstallerOptions
) -> tuple[Step, ...]:
    """The steps: first torch's packages from their own index (without dependencies, except for AMD
    and Intel), then everything else from the default index."""
    build = chosen_wheel(choice)
    exact = (*exact_family(build, options.packages), *options.on_torch_index)
    # torch by itself neither installs numpy nor needs it.
    is_torch_alone = set(build.family(options.packages)) <= {"torch"} and not options.beside_torch
    limits = () if is_torch_alone else choice.limits
    everything = (*install, *exact, *options.beside_torch, *limits)
    from_default_index = Step(title="everything else from your default index", argv=everything)
    if not exact:
        return (from_default_index,)
    if maker_of(build.backend) in NEEDS_ITS_INDEX:
        whole_family = Step(
            title=f"{', '.join(exact)} and what they need, from torch's own index",
            argv=(*install, *from_torch_index, *exact),
        )
        # The first step also installs torch's dependencies, so only other packages need a second.
        rest = Step(title="the rest from your default index", argv=everything)
        return (whole_family, rest) if options.beside_torch else (whole_family,)
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
"""The conda channels for each kind of build. With the channel `pytorch`, conda-forge comes last and
provides torch's dependencies."""

MKL = "mkl<2024.1"
"""Builds of the channel `pytorch` for Linux need a symbol that MKL 2024.1 removed
(https://github.com/pytorch/pytorch/issues/123097)."""


def conda(choice: Choice, options: InstallerOptions) -> tuple[Step, ...]:
    """The steps for conda: one, or three if a new environment is created.

    Raises Unsatisfiable if conda's channels have no build that fits.
    """
    # The new environment is named even though it should be active by then. If `conda activate`
    # fails, its packages must not go into another environment.
    target: Words = ("--name", options.conda_name) if options.conda_name else ()
    if options.conda_prefix and not options.conda_name:
        target = ("--prefix", options.conda_prefix)
    if not {*FAMILY} & {*options.packages}:
        step = Step(
            title="from your channels, with the torch that stays",
            argv=("conda", "install", "--yes", *target, "--freeze-installed", *options.packages),
        )
        return (step,)
    build = choice.build
    if build is None or build.channel == "pytorch":
        # For each wheel, the matching build from conda's channels is chosen too.
        build = choice.conda
    if build is None:
        raise Unsatisfiable("conda's channels have no torch build that fits this machine")
    channels: list[str] = []
    for channel in CHANNELS[build.channel]:
        channels += ("--channel", channel)
    specs = (*conda_specs(build, options.packages), *options.beside_torch)
    # The torch on conda-forge declares which numpy it needs, but the one on the channel `pytorch`
    # does not. The limits are for the chosen torch, which may be another one.
    is_chosen = choice.build is not None and choice.build.torch == build.torch
    limits = choice.limits if build.channel == "conda-pytorch" and is_chosen else ()
    install = Step(
        title=f"torch {build.torch} ({build.backend}) from {build.channel}",
        argv=(
            *("conda", "install", "--yes", *target),
            *("--override-channels", *channels, *specs, *limits),
        ),
    )
    return (*new_conda_environment(options), install)


def new_conda_environment(options: InstallerOptions) -> tuple[Step, ...]:
    """The steps that create and activate a new conda environment with its Python; empty if none was
    requested.

    The commands omit `--yes`, so that conda asks before it removes an environment of the same name.
    """
    name, version = options.conda_name, options.conda_python
    if not name:
        return ()
    python = f"python={version}" if version else "python"
    if version and version.endswith("t"):
        # On conda-forge, the free-threaded Python is a separate package.
        python = f"python-freethreading={version.rstrip('t')}"
    # Python comes from conda-forge, whichever channel torch comes from.
    source = ("--override-channels", "--channel", "conda-forge")
    create = ("conda", "create", "--name", name, *source, python)
    return (
        Step(title=f"the environment {name}", argv=create),
        Step(title="into it", argv=("conda", "activate", name)),
    )


def conda_specs(build: TorchBuild, packages: Words) -> Words:
    """The conda match specs for torch and its companions.

    On the channel `pytorch`, the companions' versions are pinned. On conda-forge, the solver picks
    the companions that were built for this torch.
    """
    companions = build.family(packages)
    companions.pop("torch", None)
    if build.channel == "conda-pytorch":
        # This channel's last torch is 2.5.1. A metapackage selects the CUDA or the CPU build.
        flavour = f"pytorch-cuda={build.cuda}" if build.cuda else "cpuonly"
        return (
            f"pytorch::pytorch=={build.torch}",
            *(f"pytorch::{name}=={version}" for name, version in companions.items()),
            flavour,
            *((MKL,) if build.os == "linux" else ()),
        )
    # Plain `pytorch` becomes a CPU build if no GPU is visible.
    metapackage = "pytorch-gpu" if build.cuda else "pytorch-cpu"
    cuda = (f"cuda-version={build.cuda}",) if build.cuda else ()
    return (f"{metapackage}={build.torch}", *companions, *cuda)


# --- a tool of uv ---------------------------------------------------------------------------------

UV_BACKENDS = r"cpu|xpu|cu(?:118|12[0-9]|13[02])|rocm7\.[12]"
"""The backends of torch releases since 2.0 that `uv tool install --torch-backend` accepts,
according to the help of uv 0.13.9. For other backends the command names the index."""


def tool_command(
    packages: Sequence[str], torch: str, backend: str, torch_index: str | None
) -> Words | None:
    """The uv command that installs a tool together with torch from its own index; None if no
    package is given.

    torch is installed with an exact version, so that `uv tool upgrade` does not replace it.

    >>> " ".join(tool_command(["whisperx==3.4"], "2.15.0", "cu130", None) or ())
    'uv tool install --torch-backend cu130 --with torch==2.15.0 whisperx==3.4'
    """
    if not packages:
        return None
    tool, *libraries = packages
    beside = [word for one in (f"torch=={torch}", *libraries) for word in ("--with", one)]
    source = ("--index", torch_index) if torch_index else ()
    if re.fullmatch(UV_BACKENDS, backend):
        source = ("--torch-backend", backend)
    return ("uv", "tool", "install", *source, *beside, tool)


INSTALLERS = {"uv": uv, "pip": pip, "conda": conda}
"""Maps an installer to the function that returns its steps. These are pure functions, so the
commands that are shown are also those that are run."""
