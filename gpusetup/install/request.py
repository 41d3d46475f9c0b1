"""What the command line asks of an installation, and what that asks of the resolver."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from gpusetup.accelerators.makers import LABEL
from gpusetup.catalog.builds import INDEX_ROOT
from gpusetup.catalog.companions import releases_with
from gpusetup.catalog.file import load_catalog
from gpusetup.errors import UsageError
from gpusetup.install.packages import RequestedPackages, requested_packages
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Request
from gpusetup.resolver.companions import environment_of
from gpusetup.resolver.situation import specifier


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
        return index_root_of(self.index_root)


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


def torch_beside(beside: Sequence[tuple[str, str]], torch: str | None) -> str | None:
    """The torch that goes with the companions' versions that the words gave.

    UsageError if no torch has them, or not the one that is asked for.
    """
    if not beside:
        return torch
    fits = releases_with(load_catalog(), [(n, v.partition("+")[0]) for n, v in beside])
    wanted = specifier(torch)
    both = [one for one in fits if wanted is None or wanted.contains(one)]
    if not both:
        said = " ".join(f"{name}{version}" for name, version in beside)
        goes = f"torch {fits[-1]}, not with {torch}" if fits else "no torch"
        raise UsageError(
            f"{said} goes with {goes}",
            hint="do not name versions of its companions: they follow torch's",
        )
    label = next((f"+{v.partition('+')[2]}" for _, v in beside if "+" in v), "")
    if len(both) == 1:
        return torch if torch and "+" in torch else f"{both[0]}{label}"
    return f">={both[0]},<={both[-1]}"


URL = re.compile(r"https?://([^/@\s]*@)?(\[[\da-fA-F:.]+\]|[^\[\]/\s]+)(/\S*)?")


def index_root_of(named: str | None) -> str:
    """`--index`, else GPUSETUP_INDEX, else the usual one; UsageError for no URL.

    >>> index_root_of("https://mirror.example/whl/")
    'https://mirror.example/whl'
    """
    root = named or os.environ.get("GPUSETUP_INDEX") or INDEX_ROOT
    if not URL.fullmatch(root):
        raise UsageError(
            f"`--index {root}` is no http or https URL",
            hint="it is the part before the backend: `https://download.pytorch.org/whl`",
        )
    if found := re.fullmatch(rf"(.+?)/({LABEL})(/torch\w*)?/*", root, re.IGNORECASE):
        raise UsageError(
            f"`--index {root}` ends with a backend; the index is the part before it",
            hint=f"did you mean `--index {found[1]} --backend {found[2].lower()}`?",
        )
    return root.rstrip("/")
