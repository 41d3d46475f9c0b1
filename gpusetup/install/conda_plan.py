"""What conda itself would change, asked before anybody is: its own plan, read from its JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from gpusetup.model import Step
from gpusetup.run import run
from gpusetup.value import Value

SOLVE_SECONDS = 600.0
"""conda's solver takes minutes on a slow disk with a fresh channel."""


class Move(Value):
    """One package: the version that is there, and the one to come; None where there is none."""

    name: str
    now: str | None = None
    then: str | None = None


def moves_of(steps: Iterable[Step], environment: Mapping[str, str]) -> tuple[Move, ...] | None:
    """What the steps would move in the environment; None where conda does not say."""
    found: dict[str, Move] = {}
    for step in steps:
        argv = (*step.argv, "--dry-run", "--json")
        said = run(argv, timeout=SOLVE_SECONDS, environment=environment)
        moves = planned_moves(said.stdout)
        if moves is None:
            return None
        found.update({move.name: move for move in moves})
    return tuple(found.values())


def planned_moves(text: str) -> tuple[Move, ...] | None:
    """conda's, mamba's and micromamba's plan: what is unlinked and what is linked.

    >>> text = '{"actions": {"UNLINK": [{"name": "a", "version": "1"}],'
    >>> planned_moves(text + ' "LINK": [{"name": "a", "version": "2"}]}}')
    (Move(name='a', now='1', then='2'),)
    >>> planned_moves("Killed") is None, planned_moves('{"success": true}')
    (True, ())
    """
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(answer, dict) or "error" in answer or answer.get("success") is False:
        return None
    leaving, coming = _versions(answer, "UNLINK"), _versions(answer, "LINK")
    names = dict.fromkeys((*leaving, *coming))
    moves = (Move(name=n, now=leaving.get(n), then=coming.get(n)) for n in names)
    return tuple(move for move in moves if move.now != move.then)


def _versions(answer: Mapping[str, Any], kind: str) -> dict[str, str]:
    """Name -> version (and build, which tells a CUDA build from a CPU one) of one list."""
    actions = answer.get("actions")
    rows = actions.get(kind) if isinstance(actions, dict) else None
    found = {}
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and isinstance(row.get("name"), str):
            build = row.get("build_string") or row.get("build") or ""
            found[row["name"]] = f"{row.get('version')} {build}".strip()
    return found
