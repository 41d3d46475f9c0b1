"""Shows an installation as text: the plan before it runs, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

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
    Screen,
    ScreenLine,
    command,
    facts,
    heading,
    remark,
    section,
    table,
    verdict,
)
from gpusetup.render.screen import notes as notes_after_a_gap
from gpusetup.uv.lock import Wheel

Words = Sequence[str]


def plan_screen(
    answer: InstallAnswer,
    values: Mapping[str, str | None],
    lines: Iterable[str] = (),
    *,
    system: str = OWN_SYSTEM,
) -> Screen:
    """The screen of a planned installation: labelled values, further lines, and the commands of its
    steps.

    `system` is the operating system whose shell the commands are for.
    """
    usual_values = {
        "environment": answer.target,
        "change": changes(answer),
        "why": answer.why,
    }
    steps = []
    for step in answer.steps:
        line = shell_line(step.argv, system)
        steps.append(command(without_logins(line)))
    all_facts = facts({**usual_values, **values})
    return Screen((heading("Plan"), *all_facts, *lines, *section("Commands", steps)))


def with_notes(screen: Screen, texts: Words) -> Screen:
    """The screen with notes added at its end, after an empty line."""
    lines: list[str] = [*screen.lines]
    lines += notes_after_a_gap(texts)
    return Screen(lines)


def changes(answer: InstallAnswer) -> str:
    """The version changes of torch's packages as text, such as `torch 2.6.0 → 2.9.1`; "" if there
    are none."""
    parts = []
    for package in FAMILY:
        version_before = answer.before.get(package)
        version_after = answer.after.get(package)
        if version_after is not None and version_after != version_before:
            parts.append(f"{package} {version_before or '(none)'} → {version_after}")
    return ", ".join(parts)


def versions(packages: Mapping[str, str]) -> str:
    """Packages and their versions as text, such as `torch 2.9.1, torchvision 0.24.1`; `no torch` if
    there are none."""
    texts = []
    for name, version in packages.items():
        texts.append(f"{name} {version}")
    return ", ".join(texts) or "no torch"


def fallback(choices: Sequence[Fallback]) -> str:
    """The backends to try next if the first build fails its test, as text."""
    backends = [choice.backend for choice in choices]
    return ", then ".join(backends)


def downloads(wheels: Sequence[Wheel]) -> Iterable[str]:
    """A section with each wheel to download, its size and its source; empty if there are none."""
    rows = []
    for wheel in wheels:
        package = f"{wheel.name} {wheel.version}"
        # An index does not have to report file sizes.
        size = "?"
        if wheel.size_bytes is not None:
            size = size_text(wheel.size_bytes)
        source = (_source(wheel), DIM)
        rows.append((package, size, source))
    _titles, *lines = table(("", "", ""), rows)
    return section("Download", lines)


def _source(wheel: Wheel) -> str:
    """The source of a wheel as text: the folder on PyTorch's index, your index with its host, or
    another source."""
    if wheel.is_of_torch_index or not wheel.host:
        return without_logins(wheel.url).rpartition("/")[0]
    # Show the host of the file, not of the index, because an index may keep its files elsewhere.
    return f"your index: {wheel.host}"


def disk(wheels: Sequence[Wheel], free_bytes: int) -> str:
    """A sentence with the size of the download and the free disk space."""
    total_bytes = 0
    at_least = ""
    for wheel in wheels:
        if wheel.size_bytes is None:
            # An index does not have to report file sizes.
            at_least = "at least "
        else:
            total_bytes += wheel.size_bytes
    download = f"{at_least}{size_text(total_bytes)} to download, minus what uv has in its cache"
    return f"{download}; {size_text(free_bytes)} free"


# --- how it ended -------------------------------------------------------------------------------

ENDS = {
    "installed": (OK, "Installed"),
    "unchanged": (OK, "Nothing to do"),
    "restored": (NO, "The new packages failed their test, so the previous ones were restored"),
    "undone": (OK, "Undone"),
    "unproven": (NO, "Installed, but it fails its test"),
    "other": (NO, "conda reported no error, but did not install the torch that was asked for"),
}
"""Maps each possible end of an installation to its mark and a sentence."""


def end_screen(
    answer: InstallAnswer,
    how: str | None = None,
    *,
    notes: Words = (),
    undo: tuple[str, str] | None = None,
) -> Screen:
    """The screen at the end of an installation: the result, the test's result, the undo command and
    the receipt.

    `how` is a key of ENDS, by default the result's state. `undo` is the command that restores the
    previous packages, with a text about what it does.
    """
    mark, sentence = ENDS[how or answer.state]
    result = verdict(mark, sentence, f": {answer.target} has {versions(answer.after)}")

    was_tested = answer.verdict is not None or answer.state == "installed"
    undo_command = None
    if undo is not None:
        line, effect = undo
        undo_command = f"`{line}`{effect}"
    values = {
        "why": answer.why if answer.state == "unchanged" else None,
        "undo": undo_command,
        "receipt": answer.receipt,
    }

    lines = [result]
    if was_tested:
        lines += proven(answer)
    lines += facts(values)
    lines += [remark("note", note) for note in notes]
    return Screen(lines)


def proven(answer: InstallAnswer) -> list[ScreenLine]:
    """Lines with verify's result after an installation: one line per failure, or a single line if
    all checks passed or nothing was tested."""
    if answer.verdict is None:
        return [verdict(BUT, "not tested", " (`--no-verify`)")]
    checks = []
    for check in answer.verdict.get("checks", ()):
        if check["status"] != "skipped":
            checks.append(check)
    failures = [*_failures(checks)]
    if answer.verdict.get("problem") == "not repeatable":
        text = ": the failure was not seen again in a new process, so the new torch stays"
        failures.append(verdict(BUT, "not repeatable", text))
    if failures:
        return failures
    count = f": {len(checks)} checks passed"
    return [verdict(OK, "tested", count)]


def _failures(checks: Iterable[Mapping[str, Any]]) -> Iterator[ScreenLine]:
    """Yields a line for each check of verify that did not pass."""
    for check in checks:
        status = check["status"]
        if status != "passed":
            detail = check.get("detail", "")
            yield verdict(NO, status, f": {check['name']} {check['device']} {detail}")


def project_screen(answer: InstallAnswer, *, where: str | None = None, notes: Words = ()) -> Screen:
    """The screen with the lines to paste into a project's file or script (`where`), and the
    commands to run afterwards."""
    lines: list[str] = []
    if answer.lines:
        lines.append(heading(f"Add to {where or answer.target}"))
    for line in answer.lines:
        # Lines of TOML are pasted as they are, so they are never broken.
        lines.append(ScreenLine(line, whole=True))

    commands = []
    for step in answer.steps:
        commands.append(command(own_line(*step.argv)))
    lines += section("Then" if answer.lines else "Run", commands)
    lines += notes_after_a_gap(notes)
    return Screen(lines)
