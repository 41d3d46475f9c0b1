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
from gpusetup.model.resolution import Choice
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
    section,
    table,
    verdict,
)
from gpusetup.render.language import command as command_line

COLUMN = 9
"""Where what is said begins, beside its label."""


def told(label: str, *said: str | None, style: str = HEADING) -> list[Row]:
    """A label and what is said of it, each on a row; what is not known is left out."""
    known = [one for one in said if one]
    return [
        Row((f"{label if place == 0 else '':{COLUMN}}", style), one, hang=COLUMN)
        for place, one in enumerate(known)
    ]


def each(label: str, said: Iterable[str], style: str = HEADING) -> list[Row]:
    return [row for one in said for row in told(label, one, style=style)]


def versions(known: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in known.items())


def fallback(choices: Sequence[Choice]) -> str | None:
    rest = ", then ".join(one.backend for one in choices)
    return f"if an index has no such wheel: {rest}" if rest else None


def plan_text(plan: Plan, *, free_bytes: int | None) -> Screen:
    """What will be done."""
    passed_over = [f"passed over {name}: {why}" for name, why in plan.passed_over]
    breaks = (
        f"{name} {version}: it requires {need}; it stays, and may fail when it is used"
        for name, version, need in plan.breaks
    )
    return Screen(
        (
            *told("Target", f"{plan.target}{' (will be made)' if plan.venv else ''}"),
            *told("Install", _what(plan), plan.why, *passed_over, fallback(plan.fallbacks)),
            *section("Fetch", _wheels(plan)),
            "",
            *told("Disk", _disk(plan, free_bytes)),
            *each("Breaks", breaks, WARNING),
            *in_use(plan.used_by),
            *_steps(map(command, plan.steps), "Steps that gpusetup runs"),
            *each("Note", (*plan.notes, *unhashed(plan.wheels))),
        )
    )


def _steps(commands: Iterable[str], title: str = "Steps") -> list[Row]:
    steps = [command_line(one) for one in commands]
    return [heading(title), *steps] if steps else []


def _what(plan: Plan) -> str:
    """What comes from torch's index, and what of torch stays."""
    choice = plan.choice
    where = f"from {choice.backend} ({without_credentials(choice.index_url)})"
    if any(wheel.name == "torch" for wheel in plan.family) or not plan.pinned:
        return f"torch {choice.torch} {where} by uv"
    named = [wheel.name for wheel in plan.family]
    companions = f"{', '.join(named)} {where}" if named else ""
    wanted = without_logins(", ".join(filter(None, (companions, *plan.packages))))
    return f"{wanted} by uv; {_staying(plan.pinned)}"


def _staying(names: Sequence[str]) -> str:
    """
    >>> _staying(("torch==2.9.1",)), _staying(("torch==2.9.1", "torchvision==0.24.1"))
    ('torch==2.9.1 stays', 'torch==2.9.1, torchvision==0.24.1 stay')
    """
    return f"{', '.join(names)} {'stays' if len(names) == 1 else 'stay'}"


def in_use(users: Iterable[User]) -> list[Row]:
    """Who has torch of the target loaded."""
    said = "has its torch loaded, and may fail from then on"
    return each("In use", (f"{u.name} (process {u.pid}) {said}" for u in users), WARNING)


def command(step: Step) -> str:
    """A step as it can be typed."""
    return without_logins(own_line(*step.argv))


def _wheels(plan: Plan) -> list[Row]:
    rows = []
    for wheel in plan.wheels:
        was = plan.before.get(wheel.name)
        what = f"{wheel.name} {wheel.version}{f' (now {was})' if was else ''}"
        size = "?" if wheel.size_bytes is None else size_text(wheel.size_bytes)
        rows.append((what, size, (_source(wheel), DIM)))
    return table(("", "", ""), rows)[1:]


def _source(wheel: Wheel) -> str:
    if wheel.source == TORCH_INDEX:
        return without_credentials(wheel.url).rpartition("/")[0]
    return "your default index" if wheel.source == DEFAULT_INDEX else wheel.source


def _disk(plan: Plan, free_bytes: int | None) -> str:
    to_fetch = sum(w.size_bytes or 0 for w in plan.wheels)
    unknown = any(w.size_bytes is None for w in plan.wheels)
    free = "" if free_bytes is None else f", {size_text(free_bytes)} free in the target"
    return f"{'at least ' * unknown}{size_text(to_fetch)} to fetch, unless uv has it{free}"


def described_text(described: Described) -> Screen:
    """The steps for a machine that is only described."""
    answer, asked = described.answer, described.asked
    new = [name for name, v in answer.after.items() if answer.before.get(name) != v]
    named = asked.family if asked.pinned else new or answer.after
    coming = [f"{name} {answer.after[name]}" for name in named if name in answer.after]
    what = without_logins(", ".join((*coming, *asked.packages)))
    if what:
        what += f" from {described.unlabelled}" if described.unlabelled else ""
        what += f"; {_staying(asked.pinned)}" if asked.pinned else ""
    now = f" (now {versions(answer.before)})" if answer.before else ""
    family = described.os_family or OWN_SYSTEM
    return Screen(
        (
            *told("Target", answer.target + ("" if what else now)),
            *told("Install" if what else "", what and what + now, answer.why),
            *told("", fallback(described.fallbacks)),
            *_steps(without_logins(shell_line(one.argv, family)) for one in described.steps),
            *each("Note", described.notes),
        )
    )


def conda_text(plan: CondaPlan, said: str) -> Screen:
    """The steps of conda, which plans for itself, and what it says of that."""
    resolution = plan.task.resolution
    build = resolution.build
    what = f"torch {build.torch} ({build.backend}) from {build.channel}" if build else ""
    return Screen(
        (
            *told("Target", plan.prefix),
            *told("Install", what),
            *section("conda says", [Row(plain(f"  {line}"), hang=4) for line in said.splitlines()]),
            *in_use(plan.used_by),
            *_steps(map(command, plan.steps)),
            *each("Note", resolution.notes),
        )
    )


def undo_text(target: str, change: str, steps: Iterable[Step], users: Iterable[User]) -> Screen:
    """What `--undo` will do: the step back, and the commands where another program takes it."""
    title = "Steps that gpusetup runs"
    before = (*told("Target", target), *told("Undo", change), *in_use(users))
    return Screen((*before, *_steps(map(command, steps), title)))


def project_text(answer: InstallAnswer) -> Screen:
    """What was written into a project's file, or would be."""
    path = answer.target
    if not answer.diff:
        return Screen((verdict(OK, "Nothing to do", f": {path} says so already"),))
    lock = "`uv lock` fixes the rest, `uv sync` installs it"
    wrote = verdict(OK, "Wrote", f" {path}: {lock}")
    head = wrote if answer.state == "installed" else Row(f"{path} would become:", hang=2)
    return Screen((head, "", *diff_lines(answer.diff)))


# --- how it ended -------------------------------------------------------------------------------


def unchanged_text(answer: InstallAnswer, notes: Iterable[str]) -> Screen:
    """Nothing was to be done: what is there, and what else would fit."""
    proven = f"; verified{_passed(answer.verdict)}" if answer.verdict is not None else ""
    there = f": {answer.target} has {versions(answer.before)}{proven}"
    first = verdict(OK, "Nothing to do", there)
    return Screen((first, *told("Why", answer.why), *each("Note", notes)))


def outcome_text(answer: InstallAnswer, kept_bytes: int | None = None) -> Screen:
    """How an installation ended, for people; `kept_bytes` is what an undo would bring back."""
    if answer.state == "installed":
        first = verdict(OK, "Installed", f" in {answer.target}: {versions(answer.after)}")
    else:
        before = versions(answer.before) or "nothing was there"
        as_it_was = f"; {answer.target} is as it was: {before}"
        first = verdict(NO, "The new state failed its proof", as_it_was)
    lines: list[str] = [first, *verdict_lines(answer.verdict)]
    lines += [labelled("receipt:", f"{answer.receipt}", 9, indent=0)] if answer.receipt else []
    if kept_bytes is not None:
        lines.append(
            f"`gpusetup install --undo --python {plain(answer.target)}` puts back what was there; "
            f"{size_text(kept_bytes)} are kept for it"
        )
    return Screen((*lines, labelled("log:", f"{answer.log}", 5, indent=0)))


def verdict_lines(proof: Mapping[str, Any] | None) -> list[Row]:
    """What verify found: its failures, or one line."""
    if proof is None:
        return [verdict(BUT, "not verified", " (`--no-verify`)")]
    bad = [one for one in proof.get("checks", ()) if one.get("status") in ("failed", "crashed")]
    failures = (
        (one["status"], f"{one.get('name')} {one.get('device') or ''} {one.get('detail')}")
        for one in bad
    )
    return [verdict(NO, how, f": {what}".rstrip()) for how, what in failures] or [
        verdict(OK, "verified", _passed(proof))
    ]


def _passed(proof: Mapping[str, Any]) -> str:
    passed = sum(check.get("status") == "passed" for check in proof.get("checks", ()))
    return f": {passed} checks passed"
