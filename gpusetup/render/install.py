"""Installation as text: the plan before it is run, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpusetup.install.conda import CondaPlan
from gpusetup.install.credentials import without_credentials, without_logins
from gpusetup.install.described import Described
from gpusetup.install.fetching.wheels import DEFAULT_INDEX, TORCH_INDEX, Wheel, size_text, unhashed
from gpusetup.install.plan import Plan
from gpusetup.install.target.in_use import User
from gpusetup.model.documents import InstallAnswer
from gpusetup.model.finding import Step
from gpusetup.model.shell import OWN_SYSTEM, own_line, shell_line
from gpusetup.render.language import (
    BUT,
    DIM,
    HEADING,
    NO,
    OK,
    WARNING,
    Row,
    Screen,
    diff_lines,
    heading,
    labelled,
    plain,
    verdict,
)
from gpusetup.render.language import command as command_line


def plan_text(plan: Plan, *, free_bytes: int | None) -> Screen:
    """What will be done."""
    lines: list[str] = [
        _row("Target", f"{plan.target}{' (will be made)' if plan.venv else ''}"),
        _row("Install", _what(plan)),
        *([_row("", plan.why)] if plan.why else ()),
    ]
    lines += [_row("", f"passed over {name}: {why}") for name, why in plan.passed_over]
    if plan.fallbacks:
        rest = ", then ".join(one.backend for one in plan.fallbacks)
        lines.append(_row("", f"if an index has no such wheel: {rest}"))
    lines += ["", heading("Fetch"), *_wheel_lines(plan.wheels, plan.before)]
    lines += ["", *_disk_lines(plan, free_bytes)]
    lines += [
        _row("Breaks", f"{name} {version}: it requires {need}; {LEFT}", WARNING)
        for name, version, need in plan.breaks
    ]
    lines += in_use_lines(plan.used_by)
    lines += _steps(map(command, plan.steps))
    lines += _notes((*plan.notes, *unhashed(plan.wheels)))
    return Screen(lines)


LEFT = "it stays, and may fail when it is used"
COLUMN = 9
"""Where what is said begins, beside its label."""


def _row(label: str, said: str, style: str = HEADING) -> Row:
    """A label and what it is about; without a label, what belongs to the row above."""
    return Row((f"{label:{COLUMN}}", style), said, hang=COLUMN)


def _steps(commands: Iterable[str]) -> list[Row]:
    steps = [command_line(one) for one in commands]
    return [heading("Steps that gpusetup runs"), *steps] if steps else []


def _notes(notes: Iterable[str]) -> list[Row]:
    return [_row("Note", note) for note in notes]


def _what(plan: Plan) -> str:
    """What comes from torch's index, and what of torch stays."""
    choice = plan.choice
    where = f"from {choice.backend} ({without_credentials(choice.index_url)})"
    if any(wheel.name == "torch" for wheel in plan.family) or not plan.pinned:
        return f"torch {choice.torch} {where} by uv"
    named = [wheel.name for wheel in plan.family]
    companions = f"{', '.join(named)} {where}" if named else ""
    wanted = without_logins(", ".join(filter(None, (companions, *plan.packages))))
    return f"{wanted} by uv; {', '.join(plan.pinned)} {_stay(plan.pinned)}"


def unchanged_text(answer: InstallAnswer, notes: Iterable[str]) -> Screen:
    """Nothing was to be done: what is there, and what else would fit."""
    named = ", ".join(f"{name} {version}" for name, version in answer.before.items())
    proven = f"; verified{_passed(answer.verdict)}" if answer.verdict is not None else ""
    first = verdict(OK, "Nothing to do", f": {answer.target} has {named}{proven}")
    why = [_row("Why", answer.why)] if answer.why else []
    return Screen((first, *why, *_notes(notes)))


def in_use_lines(users: Iterable[User]) -> list[Row]:
    """Who has torch of the target loaded."""
    said = "has its torch loaded, and may fail from then on"
    return [_row("In use", f"{user.name} (process {user.pid}) {said}", WARNING) for user in users]


def command(step: Step) -> str:
    """A step as it can be typed."""
    return without_logins(own_line(*step.argv))


def _wheel_lines(wheels: Iterable[Wheel], before: Mapping[str, str]) -> list[Row]:
    rows = [(_change(wheel, before), _size(wheel), _source(wheel)) for wheel in wheels]
    width = max((len(row[0]) for row in rows), default=0)
    return [
        Row(head := f"  {what:{width}}  {size:>10}  ", (source, DIM), hang=len(head))
        for what, size, source in rows
    ]


def _change(wheel: Wheel, before: Mapping[str, str]) -> str:
    was = before.get(wheel.name)
    return f"{wheel.name} {wheel.version}" + (f" (now {was})" if was else "")


def _size(wheel: Wheel) -> str:
    return "?" if wheel.size_bytes is None else size_text(wheel.size_bytes)


def _source(wheel: Wheel) -> str:
    if wheel.source == TORCH_INDEX:
        return without_credentials(wheel.url).rpartition("/")[0]
    return "your default index" if wheel.source == DEFAULT_INDEX else wheel.source


def _disk_lines(plan: Plan, free_bytes: int | None) -> list[Row]:
    to_fetch = sum(w.size_bytes or 0 for w in plan.wheels)
    unknown = any(w.size_bytes is None for w in plan.wheels)
    free = "" if free_bytes is None else f", {size_text(free_bytes)} free in the target"
    fetched = f"{'at least ' if unknown else ''}{size_text(to_fetch)} to fetch"
    return [_row("Disk", f"{fetched}, unless uv has it{free}")]


def verdict_lines(proof: Mapping[str, Any] | None) -> list[Row]:
    """What verify found: its failures, or one line."""
    if proof is None:
        return [verdict(BUT, "not verified", " (`--no-verify`)")]
    states = ("failed", "crashed")
    bad = [check for check in proof.get("checks", ()) if check.get("status") in states]
    return [_failure(check) for check in bad] or [verdict(OK, "verified", _passed(proof))]


def _passed(proof: Mapping[str, Any]) -> str:
    passed = sum(check.get("status") == "passed" for check in proof.get("checks", ()))
    return f": {passed} checks passed"


def _failure(check: Mapping[str, Any]) -> Row:
    name, device = check.get("name"), check.get("device") or ""
    rest = f": {name} {device} {check.get('detail')}".rstrip()
    return verdict(NO, f"{check.get('status')}", rest)


def described_text(described: Described) -> Screen:
    """The steps for a machine that is only described."""
    answer, family = described.answer, described.os_family or OWN_SYSTEM
    what = without_logins(", ".join((*_coming(described), *described.asked.packages)))
    if what:
        what += f" from {described.unlabelled}" if described.unlabelled else ""
        pinned = described.asked.pinned
        what += f"; {', '.join(pinned)} {_stay(pinned)}" if pinned else ""
    was = ", ".join(f"{name} {version}" for name, version in answer.before.items())
    now = f" (now {was})" if was else ""
    lines = [_row("Target", answer.target + ("" if what else now))]
    lines += [_row("Install", what + now)] if what else []
    lines += [_row("", answer.why)] if answer.why else []
    if backends := ", then ".join(one.backend for one in described.fallbacks):
        lines.append(_row("", f"if an index has no such wheel: {backends}"))
    steps = [without_logins(shell_line(step.argv, family)) for step in described.steps]
    lines += [heading("Steps"), *map(command_line, steps)]
    return Screen((*lines, *_notes(described.notes)))


def _coming(described: Described) -> list[str]:
    """The torch family's members that change: `torch 2.5.1+cu124`."""
    answer, asked = described.answer, described.asked
    new = [n for n, v in answer.after.items() if answer.before.get(n) != v]
    named = asked.family if asked.pinned else new or answer.after
    return [f"{name} {answer.after[name]}" for name in named if name in answer.after]


def project_text(answer: InstallAnswer) -> Screen:
    """What was written into a project's file, or would be."""
    path = answer.target
    if not answer.diff:
        return Screen((verdict(OK, "Nothing to do", f": {path} says so already"),))
    lock = "`uv lock` fixes the rest, `uv sync` installs it"
    wrote = verdict(OK, "Wrote", f" {path}: {lock}")
    head = wrote if answer.state == "installed" else Row(f"{path} would become:", hang=2)
    return Screen((head, "", *diff_lines(answer.diff)))


def conda_text(plan: CondaPlan, said: str) -> Screen:
    """The steps of conda, which plans for itself, and what it says of that."""
    resolution = plan.task.resolution
    build = resolution.build
    what = f"torch {build.torch} ({build.backend}) from {build.channel}" if build else ""
    lines = [_row("Target", plan.prefix), _row("Install", what)]
    rows = [Row(plain(f"  {line}"), hang=4) for line in said.splitlines()]
    lines += [heading("conda says"), *rows] if rows else []
    lines += in_use_lines(plan.used_by)
    lines += [heading("Steps"), *(command_line(command(step)) for step in plan.steps)]
    return Screen((*lines, *_notes(resolution.notes)))


ENDINGS = {
    "installed": (OK, "Installed", " in {target}: {after}"),
    "restored": (NO, "The new state failed its proof", "; {target} is as it was: {before}"),
}


def outcome_text(answer: InstallAnswer, kept_bytes: int | None = None) -> Screen:
    """How an installation ended, for people; `kept_bytes` is what an undo would bring back."""
    after = ", ".join(f"{name} {version}" for name, version in answer.after.items())
    before = ", ".join(f"{name} {version}" for name, version in answer.before.items())
    mark, how, rest = ENDINGS[answer.state]
    rest = rest.format(target=answer.target, after=after, before=before or "nothing was there")
    lines: list[str] = [verdict(mark, how, rest), *verdict_lines(answer.verdict)]
    lines += [labelled("receipt:", f"{answer.receipt}", 9, indent=0)] if answer.receipt else []
    if kept_bytes is not None:
        lines.append(
            f"`gpusetup install --undo --python {plain(answer.target)}` puts back what was there; "
            f"{size_text(kept_bytes)} are kept for it"
        )
    return Screen((*lines, labelled("log:", f"{answer.log}", 5, indent=0)))


def undo_text(target: str, change: str, steps: Iterable[Step], users: Iterable[User]) -> Screen:
    """What `--undo` will do: the step back, and the commands where another program takes it."""
    lines = [_row("Target", target), _row("Undo", change), *in_use_lines(users)]
    return Screen((*lines, *_steps(map(command, steps))))


def _stay(names: Sequence[str]) -> str:
    """
    >>> _stay(("torch==2.9.1",)), _stay(("torch==2.9.1", "torchvision==0.24.1"))
    ('stays', 'stay')
    """
    return "stays" if len(names) == 1 else "stay"
