"""`gpusetup install --project`: the pins written into a project's file, no environment changed."""

from __future__ import annotations

import argparse
import difflib
import os
from pathlib import Path

from gpusetup.commands.common import gather
from gpusetup.commands.install_parts import after_of, agreed, request_of, resolved
from gpusetup.errors import BadInput, Blocked, UsageError
from gpusetup.render.console import Console, plain

UNWRITTEN = (
    "The index's user name and password are not written: uv takes them from ~/.netrc, or from "
    "UV_INDEX_<NAME>_USERNAME and UV_INDEX_<NAME>_PASSWORD"
)
LOCK = "`uv lock` fixes the rest, `uv sync` installs it"


def run_project(options: argparse.Namespace, out: Console) -> int:
    """Show the diff of the project file, ask, write it. Nothing else is changed."""
    from gpusetup.answers import InstallAnswer
    from gpusetup.catalog import INDEX_ROOT
    from gpusetup.catalog_file import load_catalog
    from gpusetup.install.plan import asked_for
    from gpusetup.install.prepare import index_root_of
    from gpusetup.install.project import edited, other_pins, parse, versions_named
    from gpusetup.install.wheels import without_credentials
    from gpusetup.install.words import FAMILY

    path = Path(options.project)
    if options.venv or options.installer in ("pip", "conda"):
        raise UsageError("`--project` writes a file for uv: no `--venv`, no other `--installer`")
    text = _read(path)
    asked = asked_for(options.packages, {})
    if asked.packages:
        raise UsageError(
            f"`--project` pins the torch family only, not {', '.join(asked.packages)}",
            hint=f"`uv add {' '.join(asked.packages)}` adds the rest",
        )
    before = versions_named(parse(text))
    resolution = resolved(gather(options, out), request_of(options, asked))
    named = index_root_of(options.index_root, os.environ, INDEX_ROOT)
    root = without_credentials(named)
    changed = edited(text, resolution, load_catalog(), packages=asked.family, root=root)
    for pin in other_pins(parse(text)):
        out.talk(plain(pin))
    if root != named:
        out.talk(UNWRITTEN)
    diff = "".join(
        difflib.unified_diff(
            text.splitlines(keepends=True), changed.splitlines(keepends=True), str(path), str(path)
        )
    )
    write = bool(diff) and not options.dry_run
    if write and not options.yes:
        out.talk(plain(diff))
        write = agreed()
        if not write:
            out.talk("Nothing was changed.")
            return 1
    if write:
        _write(path, changed)
    family = tuple(name for name in FAMILY if name in versions_named(parse(changed)))
    answer = InstallAnswer(
        state="unchanged" if not diff else "installed" if write else "planned",
        target=str(path),
        before=before,
        after={n: v for n, v in after_of(resolution, asked).items() if n in family},
        steps=(),
        diff=diff,
    )
    out.answer(answer, _said(str(path), diff, write))
    return 0


def _said(path: str, diff: str, written: bool) -> str:
    if not diff:
        return f"Nothing to do: {plain(path)} says so already\n"
    head = f"Wrote {plain(path)}: {LOCK}\n" if written else f"{plain(path)} would become:\n"
    return f"{head}\n{plain(diff)}"


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return file.read()
    except UnicodeDecodeError as problem:
        raise BadInput(f"{path} is not UTF-8 text") from problem
    except OSError as problem:
        raise BadInput(
            f"{path} cannot be read: {problem.strerror}",
            hint="name the project's file: `--project path/to/pyproject.toml`",
        ) from problem


def _write(path: Path, text: str) -> None:
    """The whole file or nothing: written beside it, then renamed over it.

    A symbolic link stays one (its file is written); so does a file of several names.
    """
    path = Path(os.path.realpath(path))
    beside = path.with_name(f".{path.name}.gpusetup")
    try:
        there = path.stat()
        if there.st_nlink > 1:
            path.write_bytes(text.encode())
            return
        with beside.open("x", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.chmod(there.st_mode)
        beside.replace(path)
    except FileExistsError as problem:
        raise Blocked(f"{beside} is there already", hint="delete it, then try again") from problem
    except OSError as problem:
        beside.unlink(missing_ok=True)
        raise Blocked(f"{path} cannot be written: {problem.strerror}") from problem
