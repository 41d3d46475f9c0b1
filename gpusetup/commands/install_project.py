"""`gpusetup install --project`: pins and torch's index in a uv project's file."""

from __future__ import annotations

import difflib
import os
from argparse import Namespace
from pathlib import Path

from gpusetup import named_file
from gpusetup.catalog.builds import index_url
from gpusetup.catalog.file import load_catalog
from gpusetup.commands.common import gather
from gpusetup.commands.install_flow import agreed, request_of
from gpusetup.errors import UsageError
from gpusetup.install.credentials import without_logins
from gpusetup.install.project import markers_of, parsed_project, pin, versions_named
from gpusetup.install.request import question_of, resolved
from gpusetup.install.switching.files import write_safely
from gpusetup.installers.options import chosen_build
from gpusetup.model.documents import InstallAnswer
from gpusetup.model.frozen import replace
from gpusetup.render.console import Console
from gpusetup.render.install import project_screen
from gpusetup.resolver.described import for_host
from gpusetup.system.refusals import blocked_by_files

UNWRITTEN = (
    "The index's user name and password are not written: uv reads them from ~/.netrc, or from "
    "UV_INDEX_PYTORCH_USERNAME and UV_INDEX_PYTORCH_PASSWORD"
)


def edit_project(options: Namespace, out: Console) -> int:
    """Show the diff of the project file, ask, write it. Nothing else is changed."""
    if options.venv:
        raise UsageError("`--project` and `--venv` exclude each other: one is a file for uv")
    request, path, catalog = request_of(options), Path(options.project), load_catalog()
    text = named_file.read_text(path)
    document = parsed_project(text)
    machine = gather(options, out)
    if request.for_other_host:
        machine = for_host(machine, list(request.for_gpu), request.for_driver, catalog)
    question = question_of(request, machine, {}, by_conda=False)
    asked, before = question.asked, versions_named(document)
    if asked.packages:
        raise UsageError(
            f"`--project` pins the torch family only, not {', '.join(asked.packages)}",
            hint=f"`uv add {' '.join(asked.packages)}` adds the rest",
        )
    build, root = chosen_build(resolved(question)), without_logins(request.root)
    pins = build.family({*asked.family, *before})
    pin(document, pins, index_url(build.backend, root), markers_of(build, catalog))
    changed = document.as_string()
    if root != request.root:
        out.talk(UNWRITTEN)
    old, new = text.splitlines(keepends=True), changed.splitlines(keepends=True)
    diff = "".join(difflib.unified_diff(old, new, str(path), str(path)))
    answer = InstallAnswer(
        state="planned" if diff else "unchanged",
        target=str(path),
        before=before,
        after=pins,
        steps=(),
        diff=diff,
    )
    if diff and not request.dry_run:
        if not request.yes:
            out.talk(project_screen(answer))
            if not agreed():
                out.talk("Nothing was changed.")
                return 1
        with blocked_by_files(f"{path} cannot be written"):  # a symbolic link stays one
            write_safely(Path(os.path.realpath(path)), changed)
        answer = replace(answer, state="installed")
    return out.answer(answer, project_screen)
