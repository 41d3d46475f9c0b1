"""Installation as text: the plan before it is run, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpusetup.install.wheels import size_text
from gpusetup.model.builds import FAMILY, Fallback
from gpusetup.model.documents import InstallAnswer
from gpusetup.model.logins import without_logins
from gpusetup.model.shell import OWN_SYSTEM, own_line, shell_line
from gpusetup.render.screen import (
    BUT,
    DIM,
    NO,
    OK,
    Row,
    Screen,
    command,
    facts,
    heading,
    remark,
    section,
    table,
    verdict,
)
from gpusetup.uv.lock import DEFAULT_INDEX, TORCH_INDEX, Wheel

Words = Sequence[str]


def plan_screen(
    answer: InstallAnswer,
    told: Mapping[str, str | None],
    rows: Iterable[str] = (),
    *,
    notes: Words = (),
    system: str = OWN_SYSTEM,
) -> Screen:
    """What will be done: facts, `rows` below them, each step as it can be typed."""
    known = {"environment": answer.target, "change": changes(answer), "why": answer.why}
    steps = [command(without_logins(shell_line(step.argv, system))) for step in answer.steps]
    return Screen(
        (
            heading("Plan"),
            *facts({**known, **told}),
            *rows,
            *section("Commands", steps),
            *([""] if notes else []),
            *(remark("note", line) for line in notes),
        )
    )


def changes(answer: InstallAnswer) -> str:
    """What comes of torch's family, and what was there."""
    before, after = answer.before, answer.after
    new = [name for name in FAMILY if name in after and before.get(name) != after[name]]
    return ", ".join(f"{n} {before.get(n, '(none)')} → {after[n]}" for n in new)


def versions(known: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in known.items()) or "no torch"


def fallback(choices: Sequence[Fallback]) -> str:
    return ", then ".join(one.backend for one in choices)


def downloads(wheels: Sequence[Wheel]) -> Iterable[str]:
    """Each wheel with its size and where it comes from."""
    rows = []
    for wheel in wheels:
        size = "?" if wheel.size_bytes is None else size_text(wheel.size_bytes)
        rows.append((f"{wheel.name} {wheel.version}", size, (_source(wheel), DIM)))
    return section("Download", table(("", "", ""), rows)[1:])


def _source(wheel: Wheel) -> str:
    if wheel.source == TORCH_INDEX:
        return without_logins(wheel.url).rpartition("/")[0]
    if wheel.source != DEFAULT_INDEX:
        return wheel.source
    # The host of the file itself: an index may keep its files elsewhere.
    return f"your index: {wheel.host or 'a folder'}"


def disk(wheels: Sequence[Wheel], free_bytes: int) -> str:
    least = "at least " * any(wheel.size_bytes is None for wheel in wheels)
    size = size_text(sum(wheel.size_bytes or 0 for wheel in wheels))
    return f"{least}{size} to download, less what uv has; {size_text(free_bytes)} free"


# --- how it ended -------------------------------------------------------------------------------

ENDS = {
    "installed": (OK, "Installed"),
    "unchanged": (OK, "Nothing to do"),
    "restored": (NO, "The new packages failed their test, and the previous ones are back"),
    "undone": (OK, "Undone"),
    "unproven": (NO, "Installed, but it fails its test"),
    "other": (NO, "conda ended without an error, but not with the torch that was asked for"),
}


def end_screen(
    answer: InstallAnswer,
    how: str | None = None,
    *,
    notes: Words = (),
    undo: tuple[str, str] | None = None,
) -> Screen:
    """How it ended; `undo` is the command that restores the previous packages, and what it does."""
    mark, said = ENDS[how or answer.state]
    proof = proven(answer) if answer.verdict or answer.state == "installed" else ()
    told = {
        "why": answer.why if answer.state == "unchanged" else None,
        "undo": undo and f"`{undo[0]}`{undo[1]}",
        "receipt": answer.receipt,
    }
    first = verdict(mark, said, f": {answer.target} has {versions(answer.after)}")
    return Screen((first, *proof, *facts(told), *(remark("note", line) for line in notes)))


def proven(answer: InstallAnswer) -> list[Row]:
    """What verify found: its failures, or one line."""
    if answer.verdict is None:
        return [verdict(BUT, "not tested", " (`--no-verify`)")]
    checks = [one for one in answer.verdict.get("checks", ()) if one["status"] != "skipped"]
    failed = [
        verdict(NO, one["status"], f": {one['name']} {one['device']} {one.get('detail', '')}")
        for one in checks
        if one["status"] != "passed"
    ]
    return failed or [verdict(OK, "tested", f": {len(checks)} checks passed")]


def project_screen(answer: InstallAnswer, *, where: str | None = None, notes: Words = ()) -> Screen:
    """What to paste into a project's file or a script, and the commands after it."""
    then = [command(own_line(*step.argv)) for step in answer.steps]
    lines = (Row(line, whole=True) for line in answer.lines)
    remarks = [*([""] if notes else []), *(remark("note", line) for line in notes)]
    title = heading(f"Add to {where or answer.target}")
    return Screen((title, *lines, *section("Then", then), *remarks))
