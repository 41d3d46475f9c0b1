"""`gpusetup guard`: no installer may swap torch, and what stands on it, unasked."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.errors import UsageError
from gpusetup.render.console import Console

if TYPE_CHECKING:
    from gpusetup.install.guard import Change
    from gpusetup.install.guard_answer import GuardAnswer, GuardFile, GuardState
    from gpusetup.install.target.layout import Layout

SUMMARY = """Show a constraints file that pins the installed torch and the packages that need it,
and what makes pip and uv read it. With it, an installation that would replace one of them fails.
Nothing is changed without `--write`; `--undo` puts back what was there."""

EXAMPLES = (
    "gpusetup guard",
    "gpusetup guard --write",
    "gpusetup guard --undo",
    "gpusetup guard --project --write",
    "gpusetup guard --project --undo",
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--write",
        action="store_true",
        help="write the constraints file and pip's setting into the environment",
    )
    parser.add_argument(
        "--undo", action="store_true", help="put back what was there before the first `--write`"
    )
    parser.add_argument(
        "--project",
        metavar="FILE",
        nargs="?",
        const="pyproject.toml",
        help="the constraints of a uv project instead: of its pyproject.toml, the default, or of "
        "a uv.toml",
    )
    parser.add_argument(
        "--python", metavar="PATH", help="the target interpreter, or its environment's folder"
    )


def run(options: argparse.Namespace, out: Console) -> int:
    from gpusetup.install.target.find import check_target, layout_of
    from gpusetup.probe.target import choose_target
    from gpusetup.system.system import System

    if options.write and options.undo:
        raise UsageError("`--write` and `--undo` exclude each other", hint="name one of them")
    if options.project and options.undo:
        return _undo_project(Path(options.project), out)
    system = System()
    layout = layout_of(system, choose_target(system, options.python).python)
    if options.project:
        return _project(layout, Path(options.project), out, write=options.write)
    if options.write or options.undo:
        from gpusetup.install.leftovers import OF_THE_GUARD, sweep

        check_target(layout)
        sweep(Path(layout.prefix), OF_THE_GUARD)
    return _undo(layout, out) if options.undo else _guard(layout, out, write=options.write)


def _guard(layout: Layout, out: Console, *, write: bool) -> int:
    import os

    from gpusetup.install import guard
    from gpusetup.install.settings.pip_config import pip_settings
    from gpusetup.install.switching.receipt import now
    from gpusetup.install.target.layout import distributions, versions

    prefix = Path(layout.prefix)
    pins = guard.guarded(versions(distributions(layout)))
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")}
    former = pip_settings(environ, Path.home(), layout.prefix).get("constraint", "")
    wanted = guard.changes(prefix, pins, former, now())
    if write:
        _refuse_what_does_not_go_together(pins)
    answer = _answer(prefix, pins, wanted, "shown" if wanted else "unchanged")
    from gpusetup.render.guard import guard_screen, written

    if not write or not wanted:
        out.answer(answer, guard_screen(answer, write=write))
        return 0
    out.talk(guard_screen(answer, write=write))
    guard.write(prefix, wanted)
    done = _answer(prefix, pins, wanted, "written")
    out.answer(done, written(done))
    return 0


def _refuse_what_does_not_go_together(pins: dict[str, str]) -> None:
    """A guard would keep a set as it is: one that is known to be broken is no set to keep."""
    from gpusetup.errors import Unsatisfiable
    from gpusetup.install.guard import strangers

    if wrong := strangers(pins):
        names = " ".join(wrong)
        raise Unsatisfiable(
            f"{', '.join(f'{n} {pins[n]}' for n in wrong)} does not go with torch {pins['torch']}: "
            "a guard would keep it so",
            hint=f"nothing was changed; `gpusetup install {names}` brings what does",
        )


def _project(layout: Layout, path: Path, out: Console, *, write: bool) -> int:
    """The pins of the environment among the constraints of a uv project."""
    import difflib

    from gpusetup.install import guard
    from gpusetup.install.guard_answer import GuardAnswer, GuardFile
    from gpusetup.install.guard_notes import hidden_by_uv_toml
    from gpusetup.install.project_file import read_project, write_project
    from gpusetup.install.project_guard import constrained, stronger
    from gpusetup.install.project_undo import remember
    from gpusetup.install.target.layout import distributions, versions

    text, pins = read_project(path), guard.guarded(versions(distributions(layout)))
    if write:
        _refuse_what_does_not_go_together(pins)
    own = path.name == "uv.toml"
    after = constrained(text, pins, own=own)
    notes = (*stronger(text, pins, own=own), *hidden_by_uv_toml(path))
    rows = (text.splitlines(keepends=True), after.splitlines(keepends=True))
    diff = "".join(difflib.unified_diff(*rows, str(path), str(path)))
    if diff and write:
        remember(path, text, after)
        write_project(path, after)
    state: GuardState = "unchanged" if not diff else "written" if write else "shown"
    files = (GuardFile(path=str(path), text=after),) if diff else ()
    answer = GuardAnswer(state=state, target=str(path), pins=pins, files=files, notes=notes)
    from gpusetup.render.guard import project_guarded

    out.answer(answer, project_guarded(answer, diff, locks=not own))
    return 0


def _undo_project(path: Path, out: Console) -> int:
    from gpusetup.install.project_undo import take_back

    return _undone(str(path), [str(path)] if take_back(path) else [], " of ours", out)


def _undo(layout: Layout, out: Console) -> int:
    from gpusetup.install import guard

    return _undone(layout.prefix, guard.undo(Path(layout.prefix)), "", out)


def _undone(target: str, paths: Sequence[str], whose: str, out: Console) -> int:
    from gpusetup.install.guard_answer import GuardAnswer
    from gpusetup.render.guard import undone

    state: GuardState = "restored" if paths else "unchanged"
    answer = GuardAnswer(state=state, target=target, pins={}, files=())
    out.answer(answer, undone(answer, paths, f"{target} has no guard{whose}"))
    return 0


def _answer(
    prefix: Path, pins: dict[str, str], wanted: tuple[Change, ...], state: GuardState
) -> GuardAnswer:

    from gpusetup.install.guard import CONSTRAINTS, named_in_pip
    from gpusetup.install.guard_answer import GuardAnswer
    from gpusetup.install.guard_notes import notes, reach
    from gpusetup.model.shell import OWN_SYSTEM, own_line, setting, shell_for

    shell = shell_for(OWN_SYSTEM)
    path = named_in_pip(prefix / CONSTRAINTS)
    settings = {
        "pip": setting("PIP_CONSTRAINT", path, shell),
        "uv": setting("UV_CONSTRAINT", path, shell),
        "uv project": own_line("gpusetup", "guard", "--project", *reach(prefix), "--write"),
        "ComfyUI-Manager": " ".join(f"{name}=={version}" for name, version in pins.items()),
    }
    return GuardAnswer(
        state=state,
        target=str(prefix),
        pins=pins,
        files=tuple(map(_file, wanted)),
        settings=settings if pins else {},
        notes=tuple(notes(prefix, path, state, wanted, pins)),
    )


def _file(change: Change) -> GuardFile:
    from difflib import ndiff

    from gpusetup.install.guard_answer import GuardFile

    before, after = (
        (raw or b"").decode("utf-8", "replace") for raw in (change.before, change.after)
    )
    rows = ndiff(before.splitlines(), after.splitlines())
    added = tuple(row[2:] for row in rows if row.startswith("+ "))
    return GuardFile(path=str(change.path), text=after, added=added)
