"""The screen of `gpusetup guard`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gpusetup.render.language import (
    OK,
    Row,
    Screen,
    command,
    facts,
    remark,
    row,
    section,
    verdict,
)

if TYPE_CHECKING:
    from gpusetup.install.guard import GuardAnswer

ELSEWHERE = {
    "pip": "pip of this environment reads its own configuration. Another pip:",
    "uv": "`uv pip` reads UV_CONSTRAINT and the settings of the folder that it runs in:",
}
"""What is said of each setting."""


def guard_screen(answer: GuardAnswer, *, write: bool) -> Screen:
    """What is guarded, the lines that each file gets, and what they hold."""
    lines: list[str] = [*facts({"environment": answer.target, "guarded": _list(answer)})]
    for file in answer.files:
        lines += section(file.path, (row("  ", (f"+ {line}", "green")) for line in file.added))
    if not answer.files:
        lines += ["", "The guard is in place already."]
    lines += section("For another shell", _elsewhere(answer) if answer.settings else ())
    lines += ["", *_noted(answer)] if answer.notes else []
    if answer.files and not write:
        way = command("gpusetup guard --write")
        lines += section("Nothing was changed. To write these lines", [way])
    return Screen(lines)


def _elsewhere(answer: GuardAnswer) -> Iterable[Row]:
    for name, setting in answer.settings.items():
        yield Row(f"  {ELSEWHERE[name]}", hang=2)
        yield command(setting, 4)


def written(answer: GuardAnswer) -> Screen:
    """The last word of `--write`."""
    first = verdict(OK, "Guarded", f": {_list(answer)} in {answer.target}")
    return Screen((first, *_noted(answer)))


def undone(answer: GuardAnswer, paths: Iterable[str]) -> Screen:
    """The last word of `--undo`: what was removed, or that there was nothing."""
    there = ", ".join(paths)
    nothing = Row(f"{answer.target} has no file of the guard", hang=2)
    return Screen((verdict(OK, "Removed", f": {there}") if there else nothing,))


def _noted(answer: GuardAnswer) -> list[Row]:
    return [remark("note", note) for note in answer.notes]


def _list(answer: GuardAnswer) -> str:
    return ", ".join(f"{name} {version}" for name, version in answer.pins.items())
