"""Turns a choice into the public document, with the commands for each installer and the newest
build on offer."""

from __future__ import annotations

import re

from gpusetup.catalog.builds import INDEX_ROOT
from gpusetup.choose.choice import Choice, crosses
from gpusetup.choose.commands import INSTALLERS, InstallerOptions
from gpusetup.choose.host import python_tag
from gpusetup.choose.installed import installed_family, is_of_conda
from gpusetup.errors import Unsatisfiable
from gpusetup.model.builds import FAMILY, Offer, TorchBuild
from gpusetup.model.documents import ResolveAnswer
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot


def answer_of(
    choice: Choice,
    machine: Snapshot,
    packages: tuple[str, ...] = FAMILY,
    conda_name: str | None = None,
) -> ResolveAnswer:
    """The public document of a choice, with the commands for each installer.

    `packages` are torch and the packages to install together with it. `conda_name` names a new
    environment for conda's commands.
    """
    build = choice.build
    answer = ResolveAnswer(
        torch=None,
        index_url=choice.index_url,
        python=python_tag(machine),
        served=choice.served,
        fallbacks=choice.alternatives,
        rejections=choice.rejections,
        advice=choice.advice,
        notes=choice.notes,
        catalog_as_of=choice.catalog_as_of,
    )
    if build is None:
        return answer
    is_conda = machine.python.manager == "conda"
    options = InstallerOptions(
        index_root=choice.index_root or INDEX_ROOT,
        python=machine.python.executable,
        packages=packages,
        on_torch_index=requirements_on_torch_index(choice),
        conda_prefix=machine.python.prefix if is_conda else None,
        conda_name=conda_name,
        conda_python=python_tag(machine),
    )
    return with_build(replace(answer, commands=commands_of(choice, options)), build)


def requirements_on_torch_index(choice: Choice) -> tuple[str, ...]:
    """The packages in the chosen set that come from torch's own index, without torch and its
    companions."""
    # A package has an `index_url` only if it comes from torch's own index.
    return tuple(
        package.requirement
        for package in choice.packages
        if package.index_url and package.name not in FAMILY
    )


def with_build(answer: ResolveAnswer, build: TorchBuild) -> ResolveAnswer:
    """The answer with the facts about a build."""
    return replace(
        answer,
        torch=build.torch,
        torchvision=build.torchvision,
        torchaudio=build.torchaudio,
        backend=build.backend,
        driver_floor=build.driver_floor,
    )


def commands_of(
    choice: Choice, options: InstallerOptions
) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Maps each installer to its commands; there are none if the installer has no build that
    fits."""
    # Only torch and its companions come from conda, so conda's commands omit the other packages.
    family = tuple(package for package in options.packages if package in FAMILY)
    commands: dict[str, tuple[tuple[str, ...], ...]] = {}
    for name, steps_of in INSTALLERS.items():
        try:
            steps = steps_of(
                choice, replace(options, packages=family) if name == "conda" else options
            )
        except Unsatisfiable:
            steps = ()
        commands[name] = tuple(step.argv for step in steps)
    return commands


def offer_of(choice: Choice, machine: Snapshot) -> Offer | None:
    """The newest build, which `install --upgrade` would install. None if there is none, or if it is
    for another maker's GPUs."""
    newest, installed = choice.newest, choice.installed
    build, index_url = (newest.build, newest.index_url) if newest else (None, None)
    # If conda installed torch, the offer comes from conda's channels: a wheel over it would mix the
    # two.
    by_conda = machine.python.manager == "conda" and is_of_conda(machine)
    if newest and newest.conda and by_conda and machine.origin != "report":
        build, index_url = newest.conda, None
    if build is None or (installed and crosses(installed.backend, build.backend)):
        return None
    return Offer(
        torch=build.torch,
        torchvision=build.torchvision,
        torchaudio=build.torchaudio,
        backend=build.backend,
        index_url=index_url,
        driver_floor=build.driver_floor,
    )


# --- another environment --------------------------------------------------------------------------


def new_folder(machine: Snapshot, second: str = ".venv-gpu") -> str:
    """The folder name for a new environment: `.venv`, or `second` if the current environment has
    that name."""
    # `.venv/bin/python` and `.venv\Scripts\python.exe` are in `.venv`.
    executable = machine.python.executable or ""
    of_python = re.sub(r"[/\\](?:bin|Scripts)[/\\][^/\\]*$", "", executable)
    folder = (machine.python.prefix or of_python).rstrip("/\\")
    return second if re.split(r"[/\\]", folder)[-1] == ".venv" else ".venv"


def options_of_new_environment(choice: Choice, machine: Snapshot) -> tuple[str, ...]:
    """The options for `install --venv DIR` that install the recommended torch and companions; empty
    if no known index has the build.

    Without options, a new environment would get the newest torch and none of the companions of this
    environment.
    """
    build, wish = choice.build, choice.wish
    if build is None or not build.pythons:  # no known index has this build
        return ()
    companions = tuple(name for name in installed_family(machine)[1:] if name in build.family())
    if choice.action == "refused" or wish.names_build or wish.installer != "auto":
        return ("--torch", build.torch, "--backend", build.backend, *companions)
    # A new environment gets the newest torch without any option.
    if choice.action in ("first", "newest", "upgrade"):
        return companions
    return ("--torch", build.torch, *companions)
