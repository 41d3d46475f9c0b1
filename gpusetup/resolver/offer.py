"""A decision in the public documents: the newest next to the answer, and mirrors. Pure."""

from __future__ import annotations

import re

from gpusetup.catalog.builds import INDEX_ROOT, index_url
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Offer, Request, Resolution
from gpusetup.resolver.companions import family_there
from gpusetup.resolver.least import Decision, crosses


def newest_of(decision: Decision, machine: Snapshot) -> Offer | None:
    """The newest that `install --upgrade` would take; None if that would leave torch's maker.

    It is what conda's channels have, if conda has installed torch.
    """
    newest, held = decision.newest, decision.held
    theirs = machine.python.manager == "conda" and machine.torch.installer == "conda"
    if theirs and machine.origin != "report" and newest.conda is not None:
        newest = replace(newest, build=newest.conda, index_url=None)
    build = newest.build
    if build is None or (held is not None and crosses(held.backend, build.backend)):
        return None
    own = ("torch", "torchvision", "torchaudio", "backend", "driver_floor")
    return Offer(**{name: getattr(build, name) for name in own}, index_url=newest.index_url)


def at_root(resolution: Resolution, root: str) -> Resolution:
    """The resolution with a mirror's addresses instead of those of torch's own index."""
    build = resolution.build
    if root == INDEX_ROOT or build is None or build.channel != "pytorch":
        return resolution
    url = index_url(build.backend, root)
    fallbacks = (replace(c, index_url=index_url(c.backend, root)) for c in resolution.fallbacks)
    return replace(resolution, index_root=root, index_url=url, fallbacks=tuple(fallbacks))


def new_folder(machine: Snapshot, other: str = ".venv-gpu") -> str:
    """The folder of a new environment next to the target, which may be `.venv` itself."""
    python = machine.python
    inside = re.sub(r"[/\\](?:bin|Scripts)[/\\][^/\\]*$", "", python.executable or "")
    own = re.split(r"[/\\]", (python.prefix or inside).rstrip("/\\"))[-1]
    return other if own == ".venv" else ".venv"


def in_new_environment(
    decision: Decision, machine: Snapshot, request: Request | None = None
) -> tuple[str, ...]:
    """What `install --venv DIR` is told, to make there what is prescribed for this environment.

    A new one would get the newest by itself, and none of the companions that are here.
    """
    build = decision.resolution.build
    if build is None or not build.pythons:  # a build that no index is known to have
        return ()
    named: tuple[str, ...] = ("--torch", build.torch)
    if decision.how == "refused" or request not in (None, Request()):
        named = (*named, "--backend", build.backend)
    elif decision.how in ("first", "newest", "upgrade"):
        named = ()
    return (*named, *(name for name in family_there(machine)[1:] if name in build.family()))
