"""The options of `gpusetup resolve`."""

from __future__ import annotations

from typing import Literal

from gpusetup.choose.described import Description
from gpusetup.commands.common import (
    BACKEND,
    DRIVER,
    FROM,
    GPU,
    INDEX,
    REQUIREMENTS,
    TORCH,
    Machine,
    shared,
)
from gpusetup.commands.question import CommandQuestion, HelpGroup, arguments, option, switch
from gpusetup.model.units import architecture_named

ANOTHER_MACHINE = HelpGroup("another machine")
REQUEST = HelpGroup("request")


class ResolveQuestion(CommandQuestion):
    """The packages, the machine and the request for which to choose a build."""

    packages: tuple[str, ...] = arguments(
        "packages to install together with torch, such as `vllm` or 'jax[cuda13]'; gpusetup "
        "asks your package index, and chooses a torch that works with them",
        metavar="PACKAGE",
    )
    machine: Machine | None = shared(FROM, group=ANOTHER_MACHINE)
    driver: str | None = shared(DRIVER, group=ANOTHER_MACHINE)
    gpu: tuple[str, ...] = shared(GPU, group=ANOTHER_MACHINE)
    os: Literal["linux", "windows", "macos"] | None = option(
        "", choices=("linux", "windows", "macos"), group=ANOTHER_MACHINE
    )
    architecture: str | None = option(
        "",
        "--machine",
        choices=("x86_64", "aarch64"),
        parse=architecture_named,
        group=ANOTHER_MACHINE,
    )
    python: str | None = option(
        "Python version; a free-threaded one is written 3.13t",
        metavar="3.11",
        group=ANOTHER_MACHINE,
    )
    glibc: str | None = option(
        "version of the C library (Linux)", metavar="2.35", group=ANOTHER_MACHINE
    )
    requirements: tuple[str, ...] = shared(REQUIREMENTS, group=REQUEST)
    torch: str | None = shared(TORCH, group=REQUEST)
    backend: str = shared(BACKEND, group=REQUEST)
    index: str | None = shared(INDEX, group=REQUEST)
    installer: str | None = option(
        "print the commands for this installer; with `uv-tool`, a `uv tool install` command for "
        "PACKAGE",
        choices=("uv", "pip", "conda", "uv-tool"),
        group=REQUEST,
    )
    name: str | None = option(
        "print conda commands that create a new environment with this name",
        "-n",
        "--name",
        metavar="NAME",
        group=REQUEST,
    )
    explain: bool = switch("for each build that does not fit, list all reasons", group=REQUEST)
    refresh: bool = switch(
        "ask PyTorch's index for builds that are newer than gpusetup's table",
        group=REQUEST,
    )
    offline: bool = switch("with PACKAGE: use no network, only gpusetup's own table", group=REQUEST)

    def description(self) -> Description:
        """The parts of the machine that the options describe."""
        return Description(
            driver=self.driver,
            gpus=self.gpu,
            os=self.os,
            machine=self.architecture,
            python=self.python,
            glibc=self.glibc,
        )
