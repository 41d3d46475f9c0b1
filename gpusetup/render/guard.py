"""The screen of `gpusetup guard`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.render.language import GREEN, OK, Row, Screen, command, facts, notes, section, verdict

if TYPE_CHECKING:
    from gpusetup.install.guard import GuardAnswer

ELSEWHERE = {
    "pip": "pip of this environment reads its own configuration. Another pip:",
    "uv": "`uv pip` reads UV_CONSTRAINT alone:",
}
"""What is said of each setting."""


def guard_screen(answer: GuardAnswer) -> Screen:
    """What is guarded, the lines that each file gets, and what they hold; or how it ended."""
    pins = ", ".join(f"{name} {version}" for name, version in answer.pins.items())
    there = "the guard already" if pins else "no file of the guard"
    paths = ", ".join(file.path for file in answer.files)
    ends = {
        "written": ("Guarded", f": {pins} in {answer.target}"),
        "restored": ("Removed", f": {paths}"),
        "unchanged": ("Nothing to do", f": {answer.target} has {there}"),
    }
    if answer.state in ends:
        return Screen((verdict(OK, *ends[answer.state]), *notes(answer.notes)))
    lines: list[str] = [*facts({"environment": answer.target, "guarded": pins})]
    for file in answer.files:
        lines += section(
            file.path, (Row("  ", (f"+ {line}", GREEN), whole=True) for line in file.added)
        )
    shells = (
        line
        for name, setting in answer.settings.items()
        for line in (Row(f"  {ELSEWHERE[name]}", hang=2), command(setting, 4))
    )
    lines += section("For another shell", shells)
    way = [command("gpusetup guard --write")]
    return Screen(
        (
            *lines,
            *notes(answer.notes),
            *section("Nothing was changed. To write these lines", way),
        )
    )
