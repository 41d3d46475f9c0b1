"""What the command line asks of an installation, and what that asks of the resolver."""

from __future__ import annotations

import os
from collections.abc import Mapping

from gpusetup.catalog.builds import INDEX_ROOT
from gpusetup.catalog.file import load_catalog
from gpusetup.errors import UsageError
from gpusetup.install.packages import RequestedPackages, requested_packages
from gpusetup.install.settings.index_root import index_root_of
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Request, Resolution
from gpusetup.resolver import check_request, resolve
from gpusetup.resolver.beside import torch_beside
from gpusetup.resolver.companions import environment_of
from gpusetup.resolver.decide import nothing_fits


class InstallRequest(Frozen):
    """The options of `gpusetup install` that the phases of an installation read."""

    packages: tuple[str, ...] = ()
    torch: str | None = None
    backend: str = "auto"
    python: str | None = None
    venv: str | None = None
    index_root: str | None = None
    download: str | None = None
    wheelhouse: str | None = None
    machine_from: str | None = None
    for_gpu: tuple[str, ...] = ()
    for_driver: str | None = None
    upgrade: bool = False
    dry_run: bool = False
    yes: bool = False
    no_verify: bool = False

    @property
    def for_other_host(self) -> bool:
        """Whether it is installed for a machine that is not this one."""
        return bool(self.for_gpu or self.for_driver)

    @property
    def root(self) -> str:
        """The root of torch's indexes."""
        return index_root_of(self.index_root, os.environ, INDEX_ROOT)


class Question(Frozen):
    """What is asked of an installation, in its words and as the resolver is asked, and of which
    machine."""

    request: InstallRequest
    asked: RequestedPackages
    wanted: Request
    machine: Snapshot

    @property
    def is_named(self) -> bool:
        """Whether a torch or a backend was asked for."""
        named = self.wanted.torch is not None or self.wanted.backend != "auto"
        return self.request.upgrade or named


def question_of(
    request: InstallRequest, machine: Snapshot, installed: Mapping[str, str], *, by_conda: bool
) -> Question:
    """UsageError where two words name two versions of torch."""
    asked = requested_packages(request.packages, installed, environment_of(machine))
    if request.torch and asked.torch and request.torch != asked.torch:
        raise UsageError(
            f"`--torch {request.torch}` and torch {asked.torch} among the packages both name a "
            "version",
            hint="give one of them",
        )
    wanted = Request(
        torch=torch_beside(asked.beside, request.torch or asked.torch),
        backend=request.backend,
        installer="conda" if by_conda else "auto",
    )
    return Question(request=request, asked=asked, wanted=wanted, machine=machine)


def resolved(question: Question) -> Resolution:
    """What fits, by the catalog."""
    catalog = load_catalog()
    check_request(question.wanted, catalog)
    resolution = resolve(question.machine, question.wanted, catalog)
    if resolution.build is None:
        raise nothing_fits(resolution)
    return resolution
