"""Turns a choice into commands for uv, pip or conda, and into the public document. Pure functions.

uv and pip install torch and its companions from torch's index and everything else from the user's
own index. conda uses the channel `pytorch` up to torch 2.5.1 and conda-forge's `pytorch-gpu` for
later versions. On conda-forge, plain `pytorch` silently becomes a CPU build if no GPU is visible.
So the metapackage and `cuda-version` state which build is wanted.
"""

from __future__ import annotations

import re

from gpusetup.accelerators.makers import maker_of
from gpusetup.catalog.builds import INDEX_ROOT, index_url
from gpusetup.choose.choice import Choice, index_of
from gpusetup.choose.compatibility import numpy_limits
from gpusetup.choose.host import python_tag
from gpusetup.errors import Unsatisfiable
from gpusetup.model.builds import FAMILY, Fallback
from gpusetup.model.documents import ResolveAnswer
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.steps import Step

Words = tuple[str, ...]


def shown_installer(machine: Snapshot) -> str:
    """The installer whose commands are shown: `uv`, `pip` or `conda`.

    In a uv project it is uv, otherwise the installer that installed torch; if that is unknown, the
    one that created the environment; failing that, pip, or uv if there is no pip."""
    manager, torch = machine.python.manager, machine.torch
    installed_by = (torch.installer or "").lower()
    # `uv sync` removes what pip installed, but not what conda did.
    if manager == "uv project" and installed_by != "conda":
        return "uv"
    if installed_by in ("uv", "pip", "conda"):
        return installed_by
    # A report may not show who installed torch. If its version has a label or is unknown, it may be
    # pip's, and conda's torch over pip's would mix both. conda's own has no label.
    is_unlabelled = torch.version is not None and "+" not in torch.version
    if manager == "conda" and machine.origin == "report" and not is_unlabelled:
        return "pip"
    if manager in ("uv", "conda"):
        return manager
    return "uv" if machine.python.has_pip is False else "pip"


def python_command(python: str | None) -> Words:
    """The command that starts a Python interpreter. A portable Python gets `-s`, so that packages
    in the user's home folder do not hide those in its own folder.

    >>> python_command(None), python_command(r".\\python_embeded\\python.exe")[1:]
    (('python',), ('-s',))
    """
    executable = python or "python"
    return (executable, "-s") if "python_embed" in executable else (executable,)


# --- uv and pip -----------------------------------------------------------------------------------

NEEDS_ITS_INDEX = ("amd", "intel")
"""The makers whose torch builds need packages that only torch's own index has (their Triton)."""


def steps_of_wheels(
    installer: str, choice: Choice, python: str | None, packages: Words, root: str = INDEX_ROOT
) -> tuple[Step, ...]:
    """The steps for `uv` or `pip`: first torch's packages from their own index (without
    dependencies, except for AMD and Intel), then everything else from the default index.

    `python` is the target interpreter; None leaves the choice to the installer. `packages` are
    members of torch's family by name, without those that have no release for this torch, and
    requirements for other packages. Raises Unsatisfiable if no wheel fits.
    """
    build = choice.build
    # No index is known to have a build without Pythons, such as a vendor's.
    if build is None or build.channel != "pytorch" or not build.pythons:
        raise Unsatisfiable("No wheel of torch fits this machine")
    family = build.family(packages)
    exact, reinstalled = [], []
    for name, version in family.items():
        # On aarch64, older companions have no label and newer ones do. A requirement without a
        # label matches both. So such a package is reinstalled, because otherwise an installed CPU
        # build would satisfy the requirement. An index without labels has no `labelled` builds.
        is_labelled = build.labelled and (name == "torch" or build.machine == "x86_64")
        label = f"+{build.backend}" if is_labelled else ""
        exact.append(f"{build.project(name)}=={version}{label}")
        # "again": files of the same version are missing.
        if choice.action == "again" or not is_labelled:
            reinstalled.append(name)
    exact += requirements_on_torch_index(choice)
    url = build.index or index_url(build.backend, root)
    if installer == "uv":
        install: Words = ("uv", "pip", "install", *(("--python", python) if python else ()))
        # torch's own index comes before the indexes in the user's configuration, because uv uses
        # the first index that has a project. `--index-url` would not work here, because
        # UV_DEFAULT_INDEX overrides it. As the default index too, it replaces PyPI.
        reinstall = tuple(f"--reinstall-package={name}" for name in reinstalled)
        from_torch_index = ("--index", url, "--default-index", url, *reinstall)
    else:
        install = (*python_command(python), "-m", "pip", "install")
        # pip can only reinstall all packages of a command.
        reinstall = ("--force-reinstall",) if reinstalled else ()
        from_torch_index = (*reinstall, "--index-url", url)
    other_packages = [word for word in packages if word not in FAMILY]
    # torch by itself neither installs numpy nor needs it.
    needs_numpy = other_packages or any(name != "torch" for name in family)
    limits = numpy_limits(build.torch) if needs_numpy else ()
    # Torch's packages are named again, so that the other packages cannot replace them, and so that
    # what torch requires is installed.
    rest = Step(argv=(*install, *exact, *other_packages, *limits))
    # Without torch's packages, the default index has everything.
    if not exact:
        return (rest,)
    if maker_of(build.backend) in NEEDS_ITS_INDEX:
        # The first step also installs torch's dependencies, so only other packages need a second.
        whole_family = Step(argv=(*install, *from_torch_index, *exact))
        return (whole_family, rest) if other_packages else (whole_family,)
    return (Step(argv=(*install, "--no-deps", *from_torch_index, *exact)), rest)


def requirements_on_torch_index(choice: Choice) -> Words:
    """The packages in the chosen set that come from torch's own index, without torch and its
    companions: `torchcodec==0.17.0+cu126`."""
    # A package has an `index_url` only if it comes from torch's own index.
    return tuple(
        package.requirement
        for package in choice.packages
        if package.index_url and package.name not in FAMILY
    )


# --- conda ----------------------------------------------------------------------------------------

CHANNELS = {"conda-pytorch": ("pytorch", "nvidia", "conda-forge"), "conda-forge": ("conda-forge",)}
"""The conda channels for each kind of build. With the channel `pytorch`, conda-forge comes last and
provides torch's dependencies."""
MKL = "mkl<2024.1"
"""Builds of the channel `pytorch` for Linux need a symbol that MKL 2024.1 removed
(https://github.com/pytorch/pytorch/issues/123097)."""
NEW_NAME = "torch"
"""The name of a new environment if the user gives none."""


def steps_of_conda(
    choice: Choice, machine: Snapshot, packages: Words, name: str | None
) -> tuple[Step, ...]:
    """The steps for conda: one, or three if a new environment with this name is created.

    On the channel `pytorch`, the companions' versions are pinned. On conda-forge, the solver picks
    those that were built for this torch. Of `packages`, only torch's companions count. Raises
    Unsatisfiable if conda's channels have no build that fits.
    """
    build = choice.build
    if build is None or build.channel == "pytorch":
        raise Unsatisfiable("conda's channels have no torch build that fits this machine")
    companions = build.family(tuple(one for one in packages if one != "torch"))
    if build.channel == "conda-pytorch":
        # This channel's last torch is 2.5.1. A metapackage selects the CUDA or the CPU build.
        specs = [f"pytorch::pytorch=={build.torch}"]
        specs += [f"pytorch::{one}=={release}" for one, release in companions.items()]
        specs.append(f"pytorch-cuda={build.cuda}" if build.cuda else "cpuonly")
        if build.os == "linux":
            specs.append(MKL)
    else:
        metapackage = "pytorch-gpu" if build.cuda else "pytorch-cpu"
        specs = [f"{metapackage}={build.torch}", *companions]
        if build.cuda:
            specs.append(f"cuda-version={build.cuda}")
    # Only conda-forge's torch declares which numpy it needs.
    limits = numpy_limits(build.torch) if build.channel == "conda-pytorch" else ()
    options = ["--override-channels"]
    for channel in CHANNELS[build.channel]:
        options += ["--channel", channel]
    # The new environment is named even though it should be active by then. If `conda activate`
    # fails, its packages must not go into another environment.
    target: Words = ("--name", name) if name else ()
    if machine.python.manager == "conda" and machine.python.prefix and not name:
        target = ("--prefix", machine.python.prefix)
    install = Step(argv=("conda", "install", "--yes", *target, *options, *specs, *limits))
    if not name:
        return (install,)
    version = python_tag(machine)
    python = f"python={version}" if version else "python"
    # Python comes from conda-forge, whichever channel torch comes from. Without `--yes`, conda asks
    # before it removes an environment of the same name.
    conda_forge = ("--override-channels", "--channel", "conda-forge")
    create = Step(argv=("conda", "create", "--name", name, *conda_forge, python))
    return create, Step(argv=("conda", "activate", name)), install


def new_environment(machine: Snapshot, name: str | None) -> str | None:
    """The name of the conda environment to create, by default `torch`; None to use the active one.

    torch does not belong in conda's base environment, because conda itself runs there. One broken
    package in it can break conda.
    """
    # Without a conda environment that is active, there is none to install into.
    if name is not None or machine.python.manager != "conda" or machine.python.prefix is None:
        return name or NEW_NAME
    # The base environment is in a folder that conda's installers call `miniconda3`, for example.
    folder = re.split(r"[/\\]", machine.python.prefix.rstrip("/\\"))[-1].lower()
    of_conda = r"(mini|ana)(conda|forge)\d?|(mamba|micromamba)(forge)?|conda"
    return NEW_NAME if re.fullmatch(of_conda, folder) else None


def answer_of(
    choice: Choice,
    machine: Snapshot,
    packages: Words = FAMILY,
    conda_name: str | None = None,
    root: str = INDEX_ROOT,
    conda_choice: Choice | None = None,
) -> ResolveAnswer:
    """The public document of a choice, with the commands for each installer; there are none if the
    installer has no build that fits.

    `packages` are torch and the packages to install together with it. `conda_name` names a new
    environment for conda's commands. `root` is the root URL of torch's index or a mirror.
    `conda_choice` is the choice among the builds of conda's channels, if `choice` is a wheel.
    """
    build = choice.build
    others = (
        Fallback(torch=one.torch, backend=one.backend, index_url=index_of(one, root) or one.channel)
        for one in choice.alternatives
    )
    answer = ResolveAnswer(
        torch=None,
        index_url=index_of(build, root),
        python=python_tag(machine),
        served=choice.served,
        fallbacks=tuple(others),
        rejections=choice.rejections,
        advice=choice.advice,
        notes=choice.notes,
        catalog_as_of=choice.catalog_as_of,
    )
    if build is None:
        return answer
    # Only torch and its companions come from conda, so conda's commands omit the other packages.
    family = tuple(name for name in packages if name in FAMILY)
    commands: dict[str, tuple[Words, ...]] = {}
    for name in ("uv", "pip", "conda"):
        try:
            if name == "conda":
                steps = steps_of_conda(conda_choice or choice, machine, family, conda_name)
            else:
                steps = steps_of_wheels(name, choice, machine.python.executable, packages, root)
        except Unsatisfiable:
            steps = ()
        commands[name] = tuple(step.argv for step in steps)
    return replace(
        answer,
        commands=commands,
        torch=build.torch,
        torchvision=build.torchvision,
        torchaudio=build.torchaudio,
        backend=build.backend,
        driver_floor=build.driver_floor,
    )
