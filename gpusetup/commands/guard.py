"""`gpusetup guard`: no installer may swap torch, and what stands on it, unasked."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from gpusetup.commands.common import add_shared
from gpusetup.errors import UsageError
from gpusetup.model.frozen import replace
from gpusetup.render.console import Console

SUMMARY = """Keeps pip and uv from replacing torch and the packages that need it, by a constraints
file: an installation that would replace one of them fails. Without `--write` it only shows the
file; `--undo` removes it."""

EXAMPLES = (
    "gpusetup guard",
    "gpusetup guard --write",
    "gpusetup guard --undo",
)


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--write",
        action="store_true",
        help="write the constraints file and pip's setting into the environment",
    )
    parser.add_argument("--undo", action="store_true", help="remove the files that the guard wrote")
    add_shared(parser, "--python")


def run(options: Namespace, out: Console) -> int:
    from gpusetup.install import guard
    from gpusetup.install.switching.receipt import now
    from gpusetup.install.target.find import check_target, layout_of
    from gpusetup.install.target.layout import distributions, versions
    from gpusetup.probe.target import choose_target
    from gpusetup.render.guard import guard_screen, written
    from gpusetup.system.system import System

    if options.write and options.undo:
        raise UsageError("`--write` and `--undo` exclude each other", hint="name one of them")
    system = System()
    layout = layout_of(system, choose_target(system, options.python).python)
    prefix = Path(layout.prefix)
    if options.write or options.undo:
        check_target(layout)
    if options.undo:
        return _undo(prefix, out)
    pins = guard.guarded(versions(distributions(layout)))
    if options.write:
        guard.require_one_set(pins)
    files, notes = guard.planned(guard.places_of(prefix, pins), now())
    answer = guard.GuardAnswer(
        state="shown",
        target=str(prefix),
        pins=pins,
        files=files,
        settings=guard.settings_for(prefix),
        notes=notes,
    )
    if not answer.files:
        answer = replace(answer, state="unchanged")
    if not (options.write and answer.files):
        out.answer(answer, guard_screen(answer, write=options.write))
        return 0
    out.talk(guard_screen(answer, write=True))
    guard.write(answer.files)
    answer = replace(answer, state="written")
    out.answer(answer, written(answer))
    return 0


def _undo(prefix: Path, out: Console) -> int:
    from gpusetup.install import guard
    from gpusetup.render.guard import undone

    paths = guard.undo(prefix)
    state: guard.State = "restored" if paths else "unchanged"
    answer = guard.GuardAnswer(state=state, target=str(prefix))
    out.answer(answer, undone(answer, paths))
    return 0
