"""`gpusetup resolve --torch nightly`: the command that takes the newest build of a channel."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gpusetup.errors import Unsatisfiable, UsageError
from gpusetup.model.documents import ResolveAnswer
from gpusetup.model.frozen import replace
from gpusetup.model.shell import shell_line
from gpusetup.render.console import Console

if TYPE_CHECKING:
    from gpusetup.catalog.builds import Catalog
    from gpusetup.model.machine import Snapshot
    from gpusetup.model.resolution import Request
    from gpusetup.render.language import Screen

CHANNELS = {"nightly": "each day", "test": "soon"}
"""The channel -> when another build takes the place of its newest one."""
FAMILY = ("torch", "torchvision", "torchaudio")


def run_channel(
    options: argparse.Namespace,
    snapshot: Snapshot,
    request: Request,
    catalog: Catalog,
    root: str,
    out: Console,
) -> int:
    """The backend is that of the newest release that fits; nobody is asked."""
    from gpusetup.resolver import resolve

    channel = options.torch
    _refuse_more(options, channel)
    build = resolve(snapshot, replace(request, torch=None), catalog).build
    if build is None:
        raise Unsatisfiable(
            f"No backend fits this machine, so no {channel} build does",
            hint="`gpusetup resolve` says what stands against each",
        )
    index = f"{root.rstrip('/')}/{channel}/{build.backend}"
    note = (
        f"unproven: a {channel} build has no row in the catalog, and another takes its place "
        f"{CHANNELS[channel]}; the command takes the newest that the index has when it runs; "
        "`gpusetup verify` proves it here"
    )
    answer = ResolveAnswer(
        torch=channel,
        backend=build.backend,
        index_url=index,
        commands={
            "uv": (
                ("uv", "pip", "install", "--prerelease", "allow", *FAMILY, "--index-url", index),
            ),
            "pip": (("python", "-m", "pip", "install", "--pre", *FAMILY, "--index-url", index),),
        },
        notes=(note,),
        catalog_as_of=str(catalog.as_of),
    )
    out.answer(answer, _text(answer, snapshot, options.installer or "uv"))
    return 0


def _refuse_more(options: argparse.Namespace, channel: str) -> None:
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


def _text(answer: ResolveAnswer, snapshot: Snapshot, installer: str) -> Screen:
    from gpusetup.render.language import GOOD, Row, Screen, command, heading, remark

    argv = answer.commands[installer][0]
    return Screen(
        (
            Row((f"torch {answer.torch}", GOOD), f" from {answer.torch}/{answer.backend}"),
            "",
            heading(f"With {installer}"),
            command(shell_line(argv, snapshot.os.family)),
            *(remark("note", note) for note in answer.notes),
        )
    )
