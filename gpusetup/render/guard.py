"""The screen of `gpusetup guard`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.render.language import (
    OK,
    Row,
    Screen,
    command,
    labelled,
    remark,
    row,
    section,
    verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpusetup.install.guard import GuardAnswer, GuardFile

COLUMN = 9


def guard_screen(answer: GuardAnswer, *, write: bool) -> Screen:
    """What is guarded, the lines that each file gets, and what they hold."""
    lines: list[str] = [_row("Target", answer.target), _row("Guarded", _list(answer))]
    for file in answer.files:
        lines += section(file.path, _added(file))
    if not answer.files:
        lines += ["", "Everything that the guard writes is there already."]
    if answer.settings:
        lines += section("For another shell", _elsewhere(answer))
    lines += [*([""] if answer.notes else ()), *_noted(answer)]
    if answer.files and not write:
        way = command("gpusetup guard --write")
        lines += section("Nothing was changed. To write these lines", [way])
    return Screen(lines)


def _elsewhere(answer: GuardAnswer) -> Iterable[Row]:
    told = (
        ("pip of this environment reads its own configuration. Another pip:", ("pip",)),
        (
            "`uv pip` reads UV_CONSTRAINT and the settings of the folder that it runs in. "
            "`uv pip install` from elsewhere reads neither; for such a shell, and each shell of a "
            "conda environment:",
            ("uv", "conda"),
        ),
        (
            "ComfyUI-Manager puts back what its `pip_auto_fix.list` names, one a line:",
            ("ComfyUI-Manager",),
        ),
    )
    for said, names in told:
        yield Row(f"  {said}", hang=2)
        yield from (command(answer.settings[n], 4) for n in names if n in answer.settings)


def written(answer: GuardAnswer) -> Screen:
    """The last word of `--write`."""
    return Screen((_ended("Guarded", f": {_list(answer)} in {answer.target}"), *_noted(answer)))


def undone(answer: GuardAnswer, paths: Iterable[str]) -> Screen:
    """The last word of `--undo`: what is as it was, or that there was nothing."""
    there = ", ".join(paths)
    nothing = Row(f"{answer.target} has no file of the guard", hang=2)
    return Screen((_ended("Removed", f": {there}") if there else nothing,))


def _row(label: str, said: str) -> Row:
    return labelled(label, said, COLUMN, indent=0)


def _ended(how: str, rest: str) -> Row:
    return verdict(OK, how, rest)


def _added(file: GuardFile) -> Iterable[Row]:
    return (row("  ", (f"+ {line}", "green")) for line in file.added)


def _noted(answer: GuardAnswer) -> tuple[Row, ...]:
    return tuple(remark("note", note) for note in answer.notes)


def _list(answer: GuardAnswer) -> str:
    return ", ".join(f"{name} {version}" for name, version in answer.pins.items())
