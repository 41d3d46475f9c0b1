"""`gpusetup guard`: keeps installers from replacing torch and the packages that need it."""

from __future__ import annotations

from pathlib import Path

from gpusetup.commands.common import PYTHON, shared
from gpusetup.commands.question import CommandQuestion, switch
from gpusetup.commands.reply import Reply
from gpusetup.commands.reply import answer as reply
from gpusetup.install import guard
from gpusetup.install.switching.receipt import now
from gpusetup.install.target import check_target, distributions, layout_of, versions
from gpusetup.model.shell import own_setting
from gpusetup.probe.target import choose_target
from gpusetup.render.console import Console
from gpusetup.render.screen import (
    GREEN,
    OK,
    Screen,
    ScreenLine,
    command,
    facts,
    notes,
    section,
    verdict,
)
from gpusetup.system.system import System

SUMMARY = """Prevents pip and uv from replacing torch and the packages that need it. It
writes a constraints file, so that an installation fails if it would replace one of them. Without
`--write`, it only shows the file; `--undo` removes it."""

EXAMPLES = (
    "gpusetup guard",
    "gpusetup guard --write",
    "gpusetup guard --undo",
)


class GuardQuestion(CommandQuestion):
    """Whether to show, write or remove the guard, and in which environment."""

    write: bool = switch(
        "write the constraints file and pip's setting into the environment", one_of="what"
    )
    undo: bool = switch("remove the files that the guard wrote", one_of="what")
    python: str | None = shared(PYTHON)


QUESTION = GuardQuestion


def run(question: GuardQuestion, out: Console) -> Reply:
    state: guard.State = "unchanged"
    layout = layout_of(choose_target(System(), question.python).python)
    prefix = Path(layout.prefix)
    if question.write or question.undo:
        check_target(layout)
    if question.undo:
        files = tuple(guard.GuardFile(path=path, text="") for path in guard.undo(prefix))
        state = "restored" if files else state
        answer = guard.GuardAnswer(state=state, target=str(prefix), files=files)
    else:
        pins = guard.guarded(versions(distributions(layout)))
        files, notes = guard.planned(prefix, pins, now())
        if question.write:
            guard.write(files)
        if files:
            state = "written" if question.write else "shown"
        answer = guard.GuardAnswer(
            state=state,
            target=str(prefix),
            pins=pins,
            files=files,
            uv=own_setting("UV_CONSTRAINT", guard.named_in_lists(prefix / guard.CONSTRAINTS)),
            notes=notes,
        )
    return reply(answer, guard_screen)


def guard_screen(answer: guard.GuardAnswer) -> Screen:
    """The screen for a guard's answer: the lines to add to each file, or the files that were
    written or removed."""
    pins = ", ".join(f"{name} {version}" for name, version in answer.pins.items())
    present_files = "the guard already" if pins else "no file of the guard"
    paths = ", ".join(file.path for file in answer.files)
    ends = {
        "written": ("Guarded", f": {pins} in {answer.target}"),
        "restored": ("Removed", f": {paths}"),
        "unchanged": ("Nothing to do", f": {answer.target} has {present_files}"),
    }
    if answer.state in ends:
        return Screen((verdict(OK, *ends[answer.state]), *notes(answer.notes)))
    lines: list[str] = [*facts({"environment": answer.target, "guarded": pins})]
    for file in answer.files:
        # Leave out the first and the last line, which only mark where the guard's lines begin and
        # end.
        added_lines = file.text.splitlines()[1:-1]
        rows = [ScreenLine("  ", (f"+ {line}", GREEN), whole=True) for line in added_lines]
        lines += section(file.path, rows)
    if answer.uv:
        lines += section("`uv pip` reads only UV_CONSTRAINT", [command(answer.uv)])
    next_step = section(
        "Nothing was changed. To write these lines", [command("gpusetup guard --write")]
    )
    return Screen((*lines, *notes(answer.notes), *next_step))
