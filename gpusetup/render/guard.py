"""The screen of `gpusetup guard`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.render.language import (
    OK,
    Row,
    Screen,
    command,
    diff_lines,
    labelled,
    remark,
    row,
    section,
    verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpusetup.install.guard_answer import GuardAnswer, GuardFile

COLUMN = 9


def guard_screen(answer: GuardAnswer, *, write: bool) -> Screen:
    """What is guarded, the lines that each file gets, and what they hold."""
    lines: list[str] = [_row("Target", answer.target), _row("Guarded", _list(answer))]
    for file in answer.files:
        lines += section(file.path, _added(file))
    if not answer.files:
        lines += ["", "Everything that the guard writes is there already."]
    lines += section("For another shell", _elsewhere(answer))
    lines += _notes(answer.notes)
    if answer.files and not write:
        lines += section("Nothing was changed. To write these files", [command(WRITE)])
    return Screen(lines)


WRITE = "gpusetup guard --write"


def _elsewhere(answer: GuardAnswer) -> Iterable[Row]:
    told = (
        ("pip of this environment reads its own configuration. Another pip:", ("pip",)),
        (
            "`uv pip` reads UV_CONSTRAINT, which only conda's activation sets, and the settings of "
            "the folder that it runs in. `uv pip install` from elsewhere reads neither; for such a "
            "shell, and for a uv project:",
            ("uv", "uv project"),
        ),
        (
            "ComfyUI-Manager puts back what its `pip_auto_fix.list` names, one a line:",
            ("ComfyUI-Manager",),
        ),
    )
    for said, names in told:
        yield Row(f"  {said}", hang=2)
        yield from (command(answer.settings[name], 4) for name in names)


def written(answer: GuardAnswer) -> Screen:
    """The last word of `--write`."""
    return Screen((_ended("Guarded", f": {_list(answer)} in {answer.target}"), *_noted(answer)))


def undone(answer: GuardAnswer, paths: Iterable[str], nothing: str) -> Screen:
    """The last word of `--undo`: what is as it was, or that there was nothing."""
    there = ", ".join(paths)
    first = _ended("As before", f": {there}") if there else Row(nothing, hang=2)
    return Screen((first, *_noted(answer)))


def project_guarded(answer: GuardAnswer, diff: str, *, locks: bool) -> Screen:
    """What a uv project's file gets; `locks`: `uv lock` reads it."""
    lock = "; `uv lock` checks it" if locks else ""
    head = {
        "unchanged": _ended("Nothing to do", f": {answer.target} says so already"),
        "written": _ended("Wrote", f" {answer.target}{lock}"),
    }.get(answer.state, Row(f"{answer.target} would become:", hang=2))
    lines: list[str] = [head, *(("", *diff_lines(diff)) if diff else ()), *_noted(answer)]
    if diff and answer.state == "shown":
        lines += ["", "Nothing was changed. To write it: add `--write`"]
    return Screen(lines)


def _row(label: str, said: str) -> Row:
    return labelled(label, said, COLUMN, indent=0)


def _ended(how: str, rest: str) -> Row:
    return verdict(OK, how, rest)


def _added(file: GuardFile) -> Iterable[Row]:
    return (row("  ", (f"+ {line}", "green")) for line in file.added)


def _noted(answer: GuardAnswer) -> tuple[Row, ...]:
    return tuple(remark("note", note) for note in answer.notes)


def _notes(notes: Iterable[str]) -> tuple[str, ...]:
    told = tuple(remark("note", note) for note in notes)
    return ("", *told) if told else ()


def _list(answer: GuardAnswer) -> str:
    return ", ".join(f"{name} {version}" for name, version in answer.pins.items())
