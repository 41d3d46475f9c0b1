"""`gpusetup` as a command of a fix: its own answer for the snapshot, whose steps are then typed.

`install --from MACHINE --dry-run --json` is the public promise of what `install` would run.
"""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from closing.shells import Refused, Typed
from closing.surroundings import must_have_room, new_environment
from closing.world import World
from gpusetup.cli import main
from gpusetup.probe.snapshot_files import dump_snapshot

TypedIn = Callable[[World, Typed], World]

SHOW_ONLY = ("verify", "resolve", "doctor", "monitor", "snapshot", "guard")


def gpusetup(world: World, words: Sequence[str], typed_in: TypedIn) -> World:
    if words[0] != "install":
        raise Refused(f"gpusetup has no {words[0]}")
    world = world.without_events("install-unfinished")  # which it ends first
    world, rest = _target(world, list(words[1:]))
    must_have_room(world)
    answer = planned(world, rest)
    for step in answer["steps"]:
        world = typed_in(world, Typed(tuple(step["argv"])))
    return world


def _target(world: World, words: list[str]) -> tuple[World, list[str]]:
    """The environment that is named, made where it is new; and the other words."""
    for option in ("--python", "--venv"):
        if option not in words:
            continue
        place = words.index(option)
        value = words[place + 1]
        words = words[:place] + words[place + 2 :]
        if option == "--venv" and value not in world.shells:
            return new_environment(world, value, None, by="uv"), words
        if option == "--python" and value != world.snapshot.python.executable:
            raise Refused(f"{value} is not the judged interpreter")
    return world, words


def planned(world: World, words: Sequence[str]) -> dict[str, Any]:
    """The answer of `install --dry-run` about this machine; Refused where it is no."""
    with tempfile.TemporaryDirectory() as folder:
        machine, answer = Path(folder) / "machine.json", Path(folder) / "answer.json"
        machine.write_text(dump_snapshot(world.snapshot), encoding="utf-8")
        argv = ["install", *words, "--from", str(machine), "--dry-run", "--json"]
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = main([*argv, "--output", str(answer)])
        if code != 0:
            raise Refused(f"gpusetup install ends with exit {code}: {said.getvalue()[:400]}")
        found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    return found
