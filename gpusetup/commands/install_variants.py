"""The other ways of `gpusetup install`: for a described machine, into a folder, into a project."""

from __future__ import annotations

import argparse
import difflib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from gpusetup.catalog.file import load_catalog
from gpusetup.commands.install_asking import is_refused, plan_screen, talk_of
from gpusetup.errors import UsageError
from gpusetup.install.answers import plan_answer, versions_after
from gpusetup.install.conda import conda_program
from gpusetup.install.credentials import without_credentials
from gpusetup.install.described import Described, describe
from gpusetup.install.download import (
    fetch_into_folder,
    plan_download,
    use_wheelhouse,
)
from gpusetup.install.job import Job
from gpusetup.install.packages import RequestedPackages, requested_packages
from gpusetup.install.project import edited, overrides, parse, read_project, versions_named
from gpusetup.install.project import write_project as write_file
from gpusetup.install.request import InstallRequest, resolved, resolver_request
from gpusetup.install.target.find import Target
from gpusetup.installers.options import FAMILY
from gpusetup.model.documents import InstallAnswer
from gpusetup.model.machine import Snapshot
from gpusetup.render.console import Console
from gpusetup.render.install import described_text, project_text, unchanged_text
from gpusetup.render.language import Screen, diff_lines, plain

__all__ = ["use_wheelhouse"]

Variant = Callable[[InstallRequest, Console, Job, Target, Snapshot, RequestedPackages], int]


def variant_of(request: InstallRequest, machine: Snapshot) -> Variant | None:
    """Another way to go on from here: by conda, or only into a folder."""
    theirs = machine.python.manager == "conda" and machine.torch.installer == "conda"
    program = conda_program(os.environ)
    if theirs and program and not (request.wheelhouse or request.venv):
        from gpusetup.commands.install_conda import install_by_conda

        return partial(install_by_conda, program=program)  # another would leave two in one place
    return download if request.download else None


# --- into a folder -------------------------------------------------------------------------------


def download(
    request: InstallRequest,
    out: Console,
    job: Job,
    target: Target,
    machine: Snapshot,
    asked: RequestedPackages,
) -> int:
    """Fetch all that a new environment needs into a folder, with a manifest; change nothing."""
    target.require_changeable()
    wanted = resolver_request(request, asked)
    resolution = resolved(machine, wanted, job.talk, request.index_root)
    plan = plan_download(request, job, target, resolution, asked, machine)
    out.talk(plan_screen(plan))
    if request.dry_run:
        out.answer(plan_answer(job, plan, None), "")
        return 0
    if is_refused(request, out, "fetched"):
        return 1
    text = fetch_into_folder(job, plan)
    out.answer(plan_answer(job, plan, None), plain(f"{text}\n"))
    return 0


# --- for a machine that is only described --------------------------------------------------------


def show_described(request: InstallRequest, machine: Snapshot, out: Console) -> int:
    """The steps as one would type them on the machine that is described; nothing is asked."""
    described = describe(request, talk_of(out), machine)
    out.answer(described.answer, _described_text(described))
    return 0


def _described_text(described: Described) -> str:
    if described.answer.state == "unchanged":
        return unchanged_text(described.answer, described.notes)
    return described_text(described)


# --- into a project ------------------------------------------------------------------------------

UNWRITTEN = (
    "The index's user name and password are not written: uv takes them from ~/.netrc, or from "
    "UV_INDEX_<NAME>_USERNAME and UV_INDEX_<NAME>_PASSWORD"
)


def write_project(
    options: argparse.Namespace,
    request: InstallRequest,
    gather: Callable[[], Snapshot],
    out: Console,
) -> int:
    """Show the diff of the project file, ask, write it. Nothing else is changed."""
    path, text = Path(options.project), _project_text(options)
    asked = requested_packages(request.packages, {})
    if asked.packages:
        raise UsageError(
            f"`--project` pins the torch family only, not {', '.join(asked.packages)}",
            hint=f"`uv add {' '.join(asked.packages)}` adds the rest",
        )
    before = versions_named(parse(text))
    machine, wanted = gather(), resolver_request(request, asked)
    resolution = resolved(machine, wanted)
    root = without_credentials(request.root)
    changed = edited(text, resolution, load_catalog(), packages=asked.family, root=root)
    for pin in overrides(parse(text)):
        out.talk(plain(pin))
    if root != request.root:
        out.talk(UNWRITTEN)
    diff = _diff(path, text, changed)
    write = bool(diff) and not request.dry_run
    if write and not request.yes:
        out.talk(Screen(diff_lines(diff)))
        if is_refused(request, out):
            return 1
    if write:
        write_file(path, changed)
    family = tuple(name for name in FAMILY if name in versions_named(parse(changed)))
    after = versions_after(resolution, asked)
    answer = InstallAnswer(
        state="unchanged" if not diff else "installed" if write else "planned",
        target=str(path),
        before=before,
        after={name: version for name, version in after.items() if name in family},
        steps=(),
        diff=diff,
    )
    out.answer(answer, project_text(answer))
    return 0


def _project_text(options: argparse.Namespace) -> str:
    if options.venv:
        raise UsageError("`--project` and `--venv` exclude each other: one is a file for uv")
    return read_project(Path(options.project))


def _diff(path: Path, before: str, after: str) -> str:
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    return "".join(difflib.unified_diff(old, new, str(path), str(path)))
