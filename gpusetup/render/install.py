"""Installation as text: the plan before it is run, and how it ended."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpusetup.install.conda.plan import CondaPlan, Move
from gpusetup.install.credentials import without_credentials, without_logins
from gpusetup.install.described import Described
from gpusetup.install.fetching.wheels import DEFAULT_INDEX, TORCH_INDEX, Wheel, size_text, unhashed
from gpusetup.install.plan import Plan
from gpusetup.install.target.in_use import User
from gpusetup.model.documents import InstallAnswer
from gpusetup.model.finding import Step
from gpusetup.model.shell import shell_line
from gpusetup.render.console import plain


def plan_text(plan: Plan, *, kept: frozenset[str], free_bytes: int | None) -> str:
    """What will be done. `kept` are the file names that need not be fetched."""
    lines = [
        f"Target   {plan.target}{' (will be made)' if plan.venv else ''}",
        _what(plan),
        *([f"         {plan.why}"] if plan.why else ()),
    ]
    lines += [f"         passed over {name}: {why}" for name, why in plan.passed_over]
    if plan.fallbacks:
        rest = ", then ".join(one.backend for one in plan.fallbacks)
        lines.append(f"         if an index has no such wheel: {rest}")
    lines += ["", "Fetch", *_wheel_lines(plan.wheels, plan.before, kept)]
    if plan.dependencies is None:
        lines.append("  and what torch requires, from your default index (its wheel will tell;")
        lines.append("  asked again only where that moves what is installed)")
    lines.append("")
    lines += _disk_lines(plan, kept, free_bytes)
    lines += [
        f"Breaks   {name} {version}: it requires {need}; it stays, and may fail when it is used"
        for name, version, need in plan.breaks
    ]
    lines += in_use_lines(plan.used_by)
    if plan.steps:
        lines += ["Steps", *(f"  {command(step)}" for step in plan.steps)]
    lines += [f"Note     {note}" for note in (*plan.notes, *unhashed(plan.wheels))]
    return plain("\n".join(lines)) + "\n"


def _what(plan: Plan) -> str:
    """What comes from torch's index, and what of torch stays."""
    choice = plan.choice
    where = f"from {choice.backend} ({without_credentials(choice.index_url)})"
    if any(wheel.name == "torch" for wheel in plan.family) or not plan.pinned:
        return f"Install  torch {choice.torch} {where} by {plan.installer}"
    named = [wheel.name for wheel in plan.family]
    companions = f"{', '.join(named)} {where}" if named else ""
    wanted = without_logins(", ".join(filter(None, (companions, *plan.packages))))
    return f"Install  {wanted} by {plan.installer}; {', '.join(plan.pinned)} {_stay(plan.pinned)}"


def unchanged_text(answer: InstallAnswer, notes: Iterable[str]) -> str:
    """Nothing was to be done: what is there, and what else would fit."""
    named = ", ".join(f"{name} {version}" for name, version in answer.before.items())
    first = f"Nothing to do: {answer.target} has {named}"
    proven = f"; {verdict_lines(answer.verdict)[0]}" if answer.verdict is not None else ""
    lines = [f"{first}{proven}", *([f"Why      {answer.why}"] if answer.why else ())]
    return plain("\n".join((*lines, *(f"Note     {note}" for note in notes)))) + "\n"


def in_use_lines(users: Iterable[User]) -> list[str]:
    """Who has torch of the target loaded."""
    return [
        f"In use   {user.name} (process {user.pid}) has its torch loaded, and may fail from then on"
        for user in users
    ]


def command(step: Step) -> str:
    """A step as it can be typed."""
    return without_logins(shlex.join(step.argv))


def _wheel_lines(
    wheels: Iterable[Wheel], before: Mapping[str, str], kept: frozenset[str]
) -> list[str]:
    rows = [(_change(wheel, before), _size(wheel, kept), _source(wheel)) for wheel in wheels]
    width = max((len(row[0]) for row in rows), default=0)
    return [f"  {what:{width}}  {size:>10}  {source}" for what, size, source in rows]


def _change(wheel: Wheel, before: Mapping[str, str]) -> str:
    was = before.get(wheel.name)
    return f"{wheel.name} {wheel.version}" + (f" (now {was})" if was else "")


def _size(wheel: Wheel, kept: frozenset[str]) -> str:
    if wheel.filename in kept:
        return "here"
    return "?" if wheel.size_bytes is None else size_text(wheel.size_bytes)


def _source(wheel: Wheel) -> str:
    if wheel.source == TORCH_INDEX:
        return without_credentials(wheel.url).rpartition("/")[0]
    return "your default index" if wheel.source == DEFAULT_INDEX else wheel.source


def _disk_lines(plan: Plan, kept: frozenset[str], free_bytes: int | None) -> list[str]:
    to_fetch = sum(w.size_bytes or 0 for w in plan.wheels if w.filename not in kept)
    unknown = any(w.size_bytes is None for w in plan.wheels)
    free = "" if free_bytes is None else f", {size_text(free_bytes)} free in the target"
    return [f"Disk     {'at least ' if unknown else ''}{size_text(to_fetch)} to fetch{free}"]


def verdict_lines(verdict: Mapping[str, Any] | None) -> list[str]:
    """What verify found: its failures, or one line."""
    if verdict is None:
        return ["not verified (`--no-verify`)"]
    checks = verdict.get("checks", ())
    bad = [check for check in checks if check.get("status") in ("failed", "crashed")]
    if not bad:
        passed = sum(check.get("status") == "passed" for check in checks)
        return [f"verified: {passed} checks passed"]
    return [
        plain(
            f"{c.get('status')}: {c.get('name')} {c.get('device') or ''} {c.get('detail')}".strip()
        )
        for c in bad
    ]


def described_text(described: Described) -> str:
    """The steps for a machine that is only described."""
    answer, family = described.answer, described.os_family
    what = without_logins(", ".join((*_coming(described), *described.asked.packages)))
    if what:
        what += f" from {described.unlabelled}" if described.unlabelled else ""
        pinned = described.asked.pinned
        what += f"; {', '.join(pinned)} {_stay(pinned)}" if pinned else ""
    was = ", ".join(f"{name} {version}" for name, version in answer.before.items())
    lines = [f"Target   {answer.target}", *([f"Install  {what}"] if what else ())]
    lines[-1] += f" (now {was})" if was else ""
    lines += [f"         {answer.why}"] if answer.why else []
    if backends := ", then ".join(one.backend for one in described.fallbacks):
        lines.append(f"         if an index has no such wheel: {backends}")
    steps = (without_logins(shell_line(step.argv, family)) for step in described.steps)
    lines += ["Steps", *(f"  {step}" for step in steps)]
    lines += [f"Note     {note}" for note in described.notes]
    return plain("\n".join(lines)) + "\n"


def _coming(described: Described) -> list[str]:
    """The torch family's members that change: `torch 2.5.1+cu124`."""
    answer, asked = described.answer, described.asked
    new = [n for n, v in answer.after.items() if answer.before.get(n) != v]
    named = asked.family if asked.pinned else new or answer.after
    return [f"{name} {answer.after[name]}" for name in named if name in answer.after]


def project_text(answer: InstallAnswer) -> str:
    """What was written into a project's file, or would be."""
    path = plain(answer.target)
    if not answer.diff:
        return f"Nothing to do: {path} says so already\n"
    lock = "`uv lock` fixes the rest, `uv sync` installs it"
    head = f"Wrote {path}: {lock}" if answer.state == "installed" else f"{path} would become:"
    return f"{head}\n\n{plain(answer.diff)}"


def conda_text(plan: CondaPlan, moves: Iterable[Move] | None) -> str:
    """The steps of conda, which plans for itself; `moves` None: it did not say."""
    resolution = plan.task.resolution
    build = resolution.build
    what = f"torch {build.torch} ({build.backend}) from {build.channel}" if build else ""
    lines = [f"Target   {plan.prefix}", f"Install  {what}", *_move_lines(moves)]
    lines += in_use_lines(plan.used_by)
    lines += ["Steps", *(f"  {command(step)}" for step in plan.steps)]
    lines += [f"Note     {note}" for note in resolution.notes]
    return plain("\n".join(lines)) + "\n"


def _move_lines(moves: Iterable[Move] | None) -> list[str]:
    """What conda would move: each change of what is there, then what comes in addition."""
    if moves is None:
        return ["Moves    conda did not say which versions move; its own log will"]
    known = tuple(moves)
    changed = [f"  {m.name} {m.then or 'is removed'} (now {m.now})" for m in known if m.now]
    added = ", ".join(f"{m.name} {(m.then or '').partition(' ')[0]}" for m in known if not m.now)
    lines = changed + ([f"  in addition: {added}"] if added else [])
    return ["Moves", *lines] if lines else []


ENDINGS = {
    "installed": "Installed in {target}: {after}",
    "restored": "The new state failed its proof; {target} is as it was: {before}",
}


def outcome_text(answer: InstallAnswer, kept_bytes: int | None = None) -> str:
    """How an installation ended, for people; `kept_bytes` is what an undo would bring back."""
    after = ", ".join(f"{name} {version}" for name, version in answer.after.items())
    before = ", ".join(f"{name} {version}" for name, version in answer.before.items())
    ending = ENDINGS[answer.state].format(
        target=answer.target, after=after, before=before or "nothing was there"
    )
    lines = [plain(ending), *verdict_lines(answer.verdict)]
    lines += [plain(f"receipt: {answer.receipt}")] if answer.receipt else []
    if kept_bytes is not None:
        lines.append(
            f"`gpusetup install --undo --python {plain(answer.target)}` puts back what was there; "
            f"{size_text(kept_bytes)} are kept for it, `--forget` frees them"
        )
    return "\n".join([*lines, plain(f"log: {answer.log}")]) + "\n"


def _stay(names: Sequence[str]) -> str:
    """
    >>> _stay(("torch==2.9.1",)), _stay(("torch==2.9.1", "torchvision==0.24.1"))
    ('stays', 'stay')
    """
    return "stays" if len(names) == 1 else "stay"
