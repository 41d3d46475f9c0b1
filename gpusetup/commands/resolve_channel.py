"""`gpusetup resolve --torch nightly`: the newest build of a channel that fits, unproven."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
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

FAMILY = ("torch", "torchvision", "torchaudio")


def run_channel(
    options: argparse.Namespace,
    snapshot: Snapshot,
    request: Request,
    catalog: Catalog,
    root: str,
    out: Console,
) -> int:
    """The backend is that of the newest release that fits; the version is what its index has."""
    from gpusetup.install.credentials import without_credentials
    from gpusetup.install.fetching.channel import notes
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
    shown = without_credentials(index)
    version = None if options.offline else _newest(index, shown, snapshot, out)
    answer = ResolveAnswer(
        torch=version or channel,
        backend=build.backend,
        index_url=shown,
        commands=commands(shown, version),
        notes=notes(channel, version),
        catalog_as_of=str(catalog.as_of),
    )
    out.answer(answer, _text(answer, channel, snapshot, options.installer or "uv"))
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


def _newest(index: str, shown: str, snapshot: Snapshot, out: Console) -> str:
    from gpusetup.install.fetching.channel import newest, tags_of
    from gpusetup.install.fetching.fetch import Fetcher
    from gpusetup.install.settings.environment import logins

    out.talk(f"asked: {shown} (`--offline` asks nobody)")
    fetcher = Fetcher(lambda _: None, logins(os.environ, Path.home()))
    return newest(fetcher.text, index, tags_of(snapshot)).version


def commands(index: str, version: str | None) -> dict[str, tuple[tuple[str, ...], ...]]:
    """uv's and pip's line; the companions are those that the channel has beside it.

    >>> commands("https://mirror.example/nightly/cpu", "2.16.0.dev20261119+cpu")["pip"][0][5]
    'torch==2.16.0.dev20261119+cpu'
    """
    words = (f"torch=={version}" if version else "torch", *FAMILY[1:])
    pip = ("python", "-m", "pip", "install", "--pre", *words, "--index-url", index)
    uv = ("uv", "pip", "install", "--prerelease", "allow", *words, "--index-url", index)
    return {"uv": (uv,), "pip": (pip,)}


def _text(answer: ResolveAnswer, channel: str, snapshot: Snapshot, installer: str) -> Screen:
    from gpusetup.render.language import GOOD, Row, Screen, command, heading, remark

    argv = answer.commands[installer][0]
    return Screen(
        (
            Row((f"torch {answer.torch}", GOOD), f" from {channel}/{answer.backend}"),
            "",
            heading(f"With {installer}"),
            command(shell_line(argv, snapshot.os.family)),
            *(remark("note", note) for note in answer.notes),
        )
    )
