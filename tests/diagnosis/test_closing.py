"""The advice holds: pasted into a simulated machine, a fix ends its cause and leaves no other."""

from __future__ import annotations

from pathlib import Path

from closing.shells import Refused
from closing.typed import acts, paste, planned
from closing.world import World, broken, trouble, world_of
from each_row import each
from machines_named import FOLDERS, snapshot_of

from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.model.documents import DoctorAnswer
from gpusetup.model.finding import Finding, Severity
from gpusetup.model.machine import Container

ENDS = {
    "ok": "",
    "no-wheel-for-platform": "another system, or image, is needed",
    "power-thermal-throttle": "cooling, power supply or cables",
    "unknown": "no environment was named: there is no torch to judge",
}
"""Where a machine may end, and why no command on it does more."""
ROUNDS = 6


@each("folder", FOLDERS)
def test_the_fix_of_every_recorded_machine_closes(folder: Path) -> None:
    """Judge, paste the root's fix, judge again; every other way of the first fix ends it too."""
    world = world_of(snapshot_of(folder))
    for commands in ways_of(root_of(judged(world))):
        assert closes(world, commands) == []
    for _ in range(ROUNDS):
        root = root_of(judged(world))
        ways = ways_of(root)[:1]
        if not ways:
            break
        assert closes(world, ways[0]) == []
        world = pasted(world, ways[0])
    answer = judged(world)
    assert answer.cause in ENDS
    if answer.cause == "ok":
        assert trouble(world) == set()
        assert planned(world, ())["state"] == "unchanged"


def judged(world: World) -> DoctorAnswer:
    return diagnose(world.snapshot, load_catalog())


def root_of(answer: DoctorAnswer) -> Finding | None:
    return next((finding for finding in answer.findings if finding.root), None)


def ways_of(root: Finding | None) -> list[tuple[str, ...]]:
    """The blocks of commands that end the cause, the main one first; what only looks is none."""
    if root is None or root.fix is None or root.id in ENDS:
        return []
    blocks = [root.fix.commands, *(way.commands for way in root.fix.alternatives)]
    return [block for block in blocks if any(map(acts, block))]


def pasted(world: World, commands: tuple[str, ...]) -> World:
    """The world after a block, which is pasted on the host if it starts a container."""
    inside = world.snapshot.container
    of_host = inside.kind in ("docker", "lxc") and not commands[0].startswith("export")
    if not of_host:
        return paste(world, commands)
    after = paste(world.showing(container=Container(kind="none")), commands)
    return after.showing(container=inside)


def closes(world: World, commands: tuple[str, ...]) -> list[str]:
    """What speaks against a fix: its cause is still there, another has come, or it broke some."""
    before = judged(world)
    root = root_of(before)
    assert root is not None
    try:
        after = pasted(world, commands)
    except Refused as problem:
        return [f"a command fails: {problem}"]
    answer = judged(after)
    said = [f"not cured: {one.title}" for one in answer.findings if one.id == root.id and one.root]
    # With a GPU that was not seen before, a torch that serves it not comes to light.
    of_torch = after.snapshot.packages == world.snapshot.packages
    known = {one.id for one in before.findings if one.severity is Severity.ERROR}
    said += [
        f"a new error: {one.title}"
        for one in answer.findings
        if one.severity is Severity.ERROR and one.id not in known and not of_torch
    ]
    return [*said, *(broken(after) - broken(world))]
