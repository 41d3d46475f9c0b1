"""Shows an installation as text: the plan before it runs, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpusetup.model.builds import FAMILY
from gpusetup.model.documents import InstallAnswer
from gpusetup.model.logins import without_logins
from gpusetup.model.shell import OWN_SYSTEM, own_line, shell_line
from gpusetup.render.screen import (
    BUT,
    DIM,
    NO,
    OK,
    Screen,
    ScreenLine,
    command,
    facts,
    heading,
    marked,
    remark,
    section,
    table,
)
from gpusetup.render.screen import notes as notes_after_a_gap
from gpusetup.uv.question import Wheel, size_text


def plan_screen(
    answer: InstallAnswer,
    values: Mapping[str, str | None],
    lines: Iterable[str] = (),
    notes: Iterable[str] = (),
    *,
    system: str = OWN_SYSTEM,
) -> Screen:
    """The screen of a planned installation: labelled values, further lines, the commands of its
    steps for the shell of the operating system `system`, and notes. `values` come after the usual
    ones, or replace them; a value of None leaves its label out."""
    changes = []
    for name in FAMILY:
        before, after = answer.before.get(name), answer.after.get(name)
        if after not in (None, before):
            changes.append(f"{name} {before or '(none)'} → {after}")
    usual = {"environment": answer.target, "change": ", ".join(changes), "why": answer.why}
    steps = [command(without_logins(shell_line(step.argv, system))) for step in answer.steps]
    body = (*facts({**usual, **values}), *lines, *section("Commands", steps))
    return Screen((heading("Plan"), *body, *notes_after_a_gap(notes)))


def downloads(wheels: Sequence[Wheel]) -> Iterable[str]:
    """A section with each wheel to download, its size and its source; empty if there are none."""
    rows = []
    for wheel in wheels:
        # An index does not have to report file sizes.
        size = "?" if wheel.size_bytes is None else size_text(wheel.size_bytes)
        # Show the host of the file, because an index may keep its files elsewhere. A wheel on this
        # disk has no host.
        source = f"your index: {wheel.host}"
        if wheel.is_of_torch_index or not wheel.host:
            source = without_logins(wheel.url).rpartition("/")[0]
        rows.append((f"{wheel.name} {wheel.version}", size, (source, DIM)))
    return section("Download", table(("", "", ""), rows))


def disk(wheels: Sequence[Wheel], free_bytes: int) -> str:
    """A sentence with the size of the download and the free disk space."""
    sizes = [wheel.size_bytes for wheel in wheels]
    # An index does not have to report file sizes.
    at_least = "at least " if None in sizes else ""
    download = size_text(sum(filter(None, sizes)))
    return (
        f"{at_least}{download} to download, minus what uv has cached; {size_text(free_bytes)} free"
    )


# --- how it ended -------------------------------------------------------------------------------

ENDS = {
    "installed": (OK, "Installed"),
    "unchanged": (OK, "Nothing to do"),
    "restored": (NO, "The new packages failed their test, so the previous ones were restored"),
    "undone": (OK, "Undone"),
}
"""Maps each possible end of an installation to its mark and a sentence."""


def end_screen(
    answer: InstallAnswer,
    how: str | None = None,
    *,
    notes: Iterable[str] = (),
    undo: str | None = None,
) -> Screen:
    """The screen at the end of an installation: the result, the test's result, and the
    command that restores the previous packages (`undo`). `how` is a key of ENDS, by default the
    result's state."""
    mark, sentence = ENDS[how or answer.state]
    has = ", ".join(f"{name} {version}" for name, version in answer.after.items()) or "no torch"
    lines = [marked(mark, sentence, f": {answer.target} has {has}")]
    if answer.verdict is not None or answer.state == "installed":
        lines += proven(answer)
    # If something changed, the plan's screen already says why.
    why = answer.why if answer.state == "unchanged" else None
    lines += facts({"why": why, "undo": undo})
    return Screen((*lines, *(remark("note", note) for note in notes)))


def proven(answer: InstallAnswer) -> list[ScreenLine]:
    """Lines with verify's result after an installation: one line per failure, or a single line if
    all checks passed or nothing was tested."""
    if answer.verdict is None:
        return [marked(BUT, "not tested", " (`--no-verify`)")]
    checks = [check for check in answer.verdict.get("checks", ()) if check["status"] != "skipped"]
    failures = []
    for check in checks:
        if check["status"] != "passed":
            what = f": {check['name']} {check['device']} {check.get('detail', '')}"
            failures.append(marked(NO, check["status"], what))
    if answer.verdict.get("problem") == "not repeatable":
        text = ": the failure did not occur again in a new process, so the new torch stays"
        failures.append(marked(BUT, "not repeatable", text))
    return failures or [marked(OK, "tested", f": {len(checks)} checks passed")]


def project_screen(answer: InstallAnswer, *, notes: Iterable[str] = ()) -> Screen:
    """The screen with the lines to paste into a project's file, and the commands to run afterwards,
    or with the commands alone if no line has to be pasted."""
    lines: list[str] = []
    if answer.lines:
        lines.append(heading(f"Add to {answer.target}"))
    # Lines of TOML are pasted as they are, so they are never broken.
    lines += [ScreenLine(line, whole=True) for line in answer.lines]
    commands = [command(own_line(*step.argv)) for step in answer.steps]
    lines += section("Then" if answer.lines else "Run", commands)
    return Screen((*lines, *notes_after_a_gap(notes)))
