"""Installation as text: the plan before it is run, and how it ended."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from gpusetup.answers import InstallAnswer
from gpusetup.install.conda_plan import Move
from gpusetup.install.inuse import User
from gpusetup.install.log import without_logins
from gpusetup.install.plan import Plan
from gpusetup.install.wheels import (
    DEFAULT_INDEX,
    TORCH_INDEX,
    Wheel,
    in_words,
    unhashed,
    without_credentials,
)
from gpusetup.model import Choice, Resolution, Step
from gpusetup.render.console import plain
from gpusetup.shell import shell_line
from gpusetup.value import Value


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
    if plan.rest is None:
        lines.append("  and what torch requires, from your default index (its wheel will tell;")
        lines.append("  asked again only where that moves what is installed)")
    lines.append("")
    lines += _room(plan, kept, free_bytes)
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
    wanted = ", ".join(filter(None, (companions, *plan.packages)))
    return f"Install  {wanted} by {plan.installer}; {', '.join(plan.pinned)} stays"


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
    return "?" if wheel.size_bytes is None else in_words(wheel.size_bytes)


def _source(wheel: Wheel) -> str:
    if wheel.source == TORCH_INDEX:
        return without_credentials(wheel.url).rpartition("/")[0]
    return "your default index" if wheel.source == DEFAULT_INDEX else wheel.source


def _room(plan: Plan, kept: frozenset[str], free_bytes: int | None) -> list[str]:
    to_fetch = sum(w.size_bytes or 0 for w in plan.wheels if w.filename not in kept)
    unknown = any(w.size_bytes is None for w in plan.wheels)
    free = "" if free_bytes is None else f", {in_words(free_bytes)} free in the target"
    return [f"Disk     {'at least ' if unknown else ''}{in_words(to_fetch)} to fetch{free}"]


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


class Beside(Value):
    """What is to come besides torch's own changes, for the line that says what is installed."""

    family: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    """What stays while that comes."""
    unlabelled: str | None = None
    """The backend of a torch whose version does not carry it."""


BESIDE_NOTHING = Beside()


def described_text(
    answer: InstallAnswer,
    steps: Iterable[Step],
    fallbacks: Iterable[Choice],
    notes: Iterable[str],
    family: str | None = None,
    beside: Beside = BESIDE_NOTHING,
) -> str:
    """The steps for a machine that is only described."""
    new = {n: v for n, v in answer.after.items() if answer.before.get(n) != v}
    named = beside.family if beside.pinned else tuple(new or answer.after)
    what = ", ".join(
        (
            *(f"{name} {answer.after[name]}" for name in named if name in answer.after),
            *beside.packages,
        )
    )
    what += f" from {beside.unlabelled}" if beside.unlabelled and what else ""
    what += f"; {', '.join(beside.pinned)} stays" if beside.pinned and what else ""
    was = ", ".join(f"{name} {version}" for name, version in answer.before.items())
    lines = [f"Target   {answer.target}", *([f"Install  {what}"] if what else ())]
    lines[-1] += f" (now {was})" if was else ""
    lines += [f"         {answer.why}"] if answer.why else []
    if rest := ", then ".join(one.backend for one in fallbacks):
        lines.append(f"         if an index has no such wheel: {rest}")
    lines += ["Steps", *(f"  {without_logins(shell_line(step.argv, family))}" for step in steps)]
    lines += [f"Note     {note}" for note in notes]
    return plain("\n".join(lines)) + "\n"


def steps_text(
    target: str,
    resolution: Resolution,
    steps: Iterable[Step],
    users: Iterable[User] = (),
    moves: Iterable[Move] | None = (),
) -> str:
    """The steps of an installer that plans for itself (conda); `moves` None: it did not say."""
    build = resolution.build
    what = f"torch {build.torch} ({build.backend}) from {build.channel}" if build else ""
    lines = [f"Target   {target}", f"Install  {what}", *_move_lines(moves), *in_use_lines(users)]
    lines += ["Steps", *(f"  {command(step)}" for step in steps)]
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
            f"{in_words(kept_bytes)} are kept for it, `--forget` frees them"
        )
    return "\n".join([*lines, plain(f"log: {answer.log}")]) + "\n"
