"""Judge, paste the root's fix, judge again: until no error is left, or nothing can be pasted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from closing.consistent import broken, trouble
from closing.own import planned
from closing.shells import Refused
from closing.simulator import acts, paste
from closing.world import World
from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.model.documents import DoctorAnswer
from gpusetup.model.finding import Finding, Severity
from gpusetup.model.machine import Container

ROUNDS = 6

OF_TORCH = {
    "torch-cpu-build", "torch-missing", "torch-half-installed", "two-torch-installs",
    "mixed-conda-pip", "arch-too-new-for-wheel", "arch-too-old-for-wheel", "torchvision-mismatch",
    "torchaudio-mismatch", "rocm-wheel-on-nvidia", "jetson-wrong-wheel",
    "numpy-abi-mismatch", "cuda-lib-missing", "mkl-version-mismatch",
}  # fmt: skip
"""What may come to light with a GPU that was not seen before, where torch was not touched."""


@dataclass
class Outcome:
    """What came of one machine."""

    cured: tuple[str, ...] = ()
    """The causes, in the order in which they were cured."""
    ends: str = ""
    """`ok`, or the cause at which only words, or another place, help."""
    failure: str | None = None
    typed: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    world: World | None = None


def closing(world: World) -> Outcome:
    """All rounds of one machine."""
    outcome = Outcome(world=world)
    before = judged(world)
    for _ in range(ROUNDS):
        root = root_of(before)
        if root is None or not commands_of(root):
            return _ended(outcome, before, world)
        outcome.typed.append((root.id, commands_of(root)))
        try:
            after = pasted_there(world, root)
        except Refused as problem:
            return _failed(outcome, root.id, f"a command fails: {problem}")
        judged_after = judged(after)
        problem_left = left_behind(root, before, judged_after, world, after)
        if problem_left and not _settled(root, judged_after, world, after):
            return _failed(outcome, root.id, problem_left)
        outcome.cured = (*outcome.cured, root.id)
        world, before, outcome.world = after, judged_after, after
    return _failed(outcome, before.cause, f"no end after {ROUNDS} rounds: {outcome.cured}")


OUTSIDE: dict[str, str] = {
    "no-nvidia-gpu": "no GPU is there: the CPU build is what can be installed",
    "amd-gpu": "the GPU is another maker's",
    "intel-gpu": "the GPU is another maker's",
    "apple-silicon": "there is no CUDA for it",
    "no-wheel-for-platform": "another system, or image, is needed",
    "power-thermal-throttle": "cooling, power supply or cables",
    "container-nvml-lost": "its host starts the container again, under a name that it knows",
}
"""Causes that no command on this machine ends, and why."""

IN_WORDS: dict[str, str] = {
    "unknown": "no environment was named: there is no torch to judge",
    "driver-missing": "no package of this distribution serves the GPU: NVIDIA's download page",
    "uvm-missing": "the host of a container loads the module and hands on its node",
}
"""Where a fix has no commands to paste here, and why."""


def _settled(root: Finding, after: DoctorAnswer, old: World, new: World) -> bool:
    """A fixed point: the cause lies outside, what could be done was done, and nothing else came."""
    others = errors(after).keys() <= errors(judged(old)).keys()
    return root.id in OUTSIDE and others and not broken(new) - broken(old)


def judged(world: World) -> DoctorAnswer:
    return diagnose(world.snapshot, load_catalog())


def root_of(diagnosis: DoctorAnswer) -> Finding | None:
    return next((finding for finding in diagnosis.findings if finding.root), None)


def errors(diagnosis: DoctorAnswer) -> dict[str, str]:
    return {f.id: f.title for f in diagnosis.findings if f.severity is Severity.ERROR}


def commands_of(finding: Finding) -> tuple[str, ...]:
    """What changes something; a fix that only looks is no way to paste, but words."""
    commands = finding.fix.commands or on_its_host(finding) if finding.fix else ()
    return commands if any(map(acts, commands)) else ()


def on_its_host(finding: Finding) -> tuple[str, ...]:
    """The way of a container that is pasted on its host."""
    ways = finding.fix.alternatives if finding.fix else ()
    return next((way.commands for way in ways if way.title.startswith("on the host")), ())


def pasted_there(world: World, root: Finding) -> World:
    here = bool(root.fix and root.fix.commands)
    return paste(world, commands_of(root)) if here else of_the_host(world, commands_of(root))


def of_the_host(world: World, commands: Sequence[str]) -> World:
    """A container's world after a block that was pasted on its host."""
    inside = world.snapshot.container
    after = paste(world.showing(container=Container(kind="none")), commands)
    return after.showing(container=inside)


def left_behind(
    root: Finding, before: DoctorAnswer, after: DoctorAnswer, old: World, new: World
) -> str | None:
    """What speaks against a fix: its cause is still there, another has come, or it broke some."""
    still = next((f for f in after.findings if f.id == root.id and f.root), None)
    if still is not None:
        return f"not cured: {still.title}"
    allowed = errors(before).keys() | (OF_TORCH if _same_packages(old, new) else set())
    come = {id: title for id, title in errors(after).items() if id not in allowed}
    if come:
        return f"a new error: {come}"
    worse = broken(new) - broken(old)
    return f"packages that do not fit: {sorted(worse)}" if worse else None


def moved_again(world: World) -> list[str]:
    """What `gpusetup install` would still change on a machine that works: nothing."""
    try:
        answer = planned(world, ())
    except Refused as problem:
        return [f"install on a machine that works: {problem}"]
    if answer["state"] == "unchanged":
        return []
    return [f"install moves a torch that serves: {answer['before']} -> {answer['after']}"]


def _same_packages(old: World, new: World) -> bool:
    return old.snapshot.packages == new.snapshot.packages


def alternatives_of(finding: Finding) -> Sequence[tuple[str, tuple[str, ...]]]:
    """The titled other ways of a fix."""
    found = getattr(finding.fix, "alternatives", ()) if finding.fix else ()
    return [(way.title, tuple(way.commands)) for way in found]


def alternatives_hold(world: World) -> list[str]:
    """What speaks against the other ways of the root's fix, each pasted into the same machine."""
    before = judged(world)
    root = root_of(before)
    found = []
    for title, commands in alternatives_of(root) if root else ():
        try:
            there = of_the_host if title.startswith("on the host") else paste
            after = there(world, commands)
        except Refused as problem:
            found.append(f"{title}: a command fails: {problem}")
            continue
        problem_left = left_behind(root, before, judged(after), world, after) if root else None
        if root and root.id in OUTSIDE and _settled(root, judged(after), world, after):
            continue
        if any(map(acts, commands)) and problem_left:
            found.append(f"{title}: {problem_left}")
    return found


def _ended(outcome: Outcome, last: DoctorAnswer, world: World) -> Outcome:
    outcome.ends = last.cause
    wrong = trouble(world) if last.cause == "ok" else set()
    if wrong:
        outcome.failure = f"`ok` above a machine that does not work: {sorted(wrong)}"
    return outcome


def _failed(outcome: Outcome, cause: str, why: str) -> Outcome:
    outcome.ends, outcome.failure = cause, why
    return outcome
