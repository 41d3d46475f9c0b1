"""`gpusetup resolve --torch nightly`: the command that takes the newest build of a channel."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from gpusetup.errors import Unsatisfiable, UsageError
from gpusetup.installers.options import FAMILY
from gpusetup.model.documents import ResolveAnswer

if TYPE_CHECKING:
    from gpusetup.resolver.joint import Asked

CHANNELS = {"nightly": "each day", "test": "soon"}
"""The channel -> when another build takes the place of its newest one."""


def channel_answer(channel: str, asked: Asked, root: str) -> ResolveAnswer:
    """The backend is that of the newest release that fits; nobody is asked."""
    from gpusetup.resolver import resolve
    from gpusetup.resolver.situation import python_tag

    build = resolve(asked.machine, asked.request, asked.catalog).build
    if build is None:
        raise Unsatisfiable(
            f"No backend fits this machine, so no {channel} build does",
            hint="`gpusetup resolve` says why not for each",
        )
    index = f"{root.rstrip('/')}/{channel}/{build.backend}"
    note = (
        f"unproven: a {channel} build has no row in the catalog, and another takes its place "
        f"{CHANNELS[channel]}; the command takes the newest that the index has when it runs; "
        "`gpusetup verify` proves it here"
    )
    uv = ("uv", "pip", "install", "--prerelease", "allow", *FAMILY, "--index-url", index)
    pip = ("python", "-m", "pip", "install", "--pre", *FAMILY, "--index-url", index)
    return ResolveAnswer(
        torch=channel,
        torchvision=channel,
        torchaudio=channel,
        python=python_tag(asked.machine),
        backend=build.backend,
        index_url=index,
        commands={"uv": (uv,), "pip": (pip,)},
        notes=(note,),
        catalog_as_of=str(asked.catalog.as_of),
    )


def refuse_more(options: Namespace, channel: str) -> None:
    """No package is fitted to a channel's build, and no file is written of one."""
    if options.packages:
        raise UsageError(
            f"Packages are released for releases of torch: none is fitted to a {channel} build",
            hint=f"`gpusetup resolve --torch {channel}` alone, then the package's own {channel} "
            "build, if it has one",
        )
    if options.format not in ("text", "command") or options.installer == "conda":
        raise UsageError(
            f"A {channel} build is gone after some weeks: no file is written of one",
            hint=f"`gpusetup resolve --torch {channel}` prints the command",
        )
