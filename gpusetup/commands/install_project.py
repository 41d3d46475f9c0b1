"""`gpusetup install --project`: pins and torch's index in a uv project's file."""

from __future__ import annotations

import difflib
from argparse import Namespace
from pathlib import Path

from gpusetup.catalog.file import load_catalog
from gpusetup.commands.common import gather
from gpusetup.commands.install_flow import agreed, request_of
from gpusetup.errors import UsageError
from gpusetup.install.answers import versions_after
from gpusetup.install.credentials import without_credentials
from gpusetup.install.project import (
    edited,
    parse,
    read_project,
    versions_named,
    write_project,
)
from gpusetup.install.request import question_of, resolved
from gpusetup.installers.options import FAMILY
from gpusetup.model.documents import InstallAnswer
from gpusetup.model.frozen import replace
from gpusetup.render.console import Console
from gpusetup.render.install import project_screen
from gpusetup.resolver.described import for_host

UNWRITTEN = (
    "The index's user name and password are not written: uv reads them from ~/.netrc, or from "
    "UV_INDEX_<NAME>_USERNAME and UV_INDEX_<NAME>_PASSWORD"
)


def edit_project(options: Namespace, out: Console) -> int:
    """Show the diff of the project file, ask, write it. Nothing else is changed."""
    if options.venv:
        raise UsageError("`--project` and `--venv` exclude each other: one is a file for uv")
    request, path = request_of(options), Path(options.project)
    text = read_project(path)
    machine = gather(options, out)
    if request.for_other_host:
        machine = for_host(machine, list(request.for_gpu), request.for_driver, load_catalog())
    question = question_of(request, machine, {}, by_conda=False)
    asked = question.asked
    if asked.packages:
        raise UsageError(
            f"`--project` pins the torch family only, not {', '.join(asked.packages)}",
            hint=f"`uv add {' '.join(asked.packages)}` adds the rest",
        )
    before = versions_named(parse(text))
    resolution = resolved(question)
    root = without_credentials(request.root)
    changed = edited(text, resolution, load_catalog(), packages=asked.family, root=root)
    if root != request.root:
        out.talk(UNWRITTEN)
    old, new = text.splitlines(keepends=True), changed.splitlines(keepends=True)
    diff = "".join(difflib.unified_diff(old, new, str(path), str(path)))
    there = versions_named(parse(changed))
    after = versions_after(resolution, asked)
    answer = InstallAnswer(
        state="planned" if diff else "unchanged",
        target=str(path),
        before=before,
        after={
            name: version for name, version in after.items() if name in FAMILY and name in there
        },
        steps=(),
        diff=diff,
    )
    if diff and not request.dry_run:
        if not request.yes:
            out.talk(project_screen(answer))
            if not agreed():
                out.talk("Nothing was changed.")
                return 1
        write_project(path, changed)
        answer = replace(answer, state="installed")
    return out.answer(answer, project_screen)
