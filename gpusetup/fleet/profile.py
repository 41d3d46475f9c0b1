"""What a node of a kind should be like: the record that `fleet check --json` writes on a sound one.

A person deletes from its `facts` what may differ between nodes. A fact that a node does not tell is
unknown, and fails no node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from gpusetup.errors import BadInput
from gpusetup.fleet.facts import words_of
from gpusetup.fleet.nodes import NodeFinding
from gpusetup.model.codec import from_json
from gpusetup.model.finding import Severity
from gpusetup.model.frozen import Frozen

FREE = "_free_gib"
"""How the facts of free disk end: half of what the sound node has is enough."""
MOST_BYTES = 1 << 20
MAY_DIFFER = {"gpus.pcie_width", "links.down", "os.kernel", "memory.memlock_bytes"}
"""Facts that an idle card, or an update without consequence, changes."""


class Profile(Frozen):
    """The part of a record that other nodes are compared with."""

    schema: Literal["gpusetup.node-check/1"]
    ok: bool
    reason: str
    facts: Mapping[str, str]


def read(text: str, what: str) -> dict[str, str]:
    """The facts of a sound node; `BadInput` names what is wrong in the file."""
    try:
        found = from_json(text, Profile, what=what)
    except BadInput as problem:
        hint = "`gpusetup fleet check --json > FILE` writes one on a sound node"
        raise BadInput(problem.message, hint=hint) from problem
    if not found.ok:
        raise BadInput(f"{what} is the record of a node that failed: {found.reason}")
    return {name: value for name, value in found.facts.items() if name not in MAY_DIFFER}


def unmet(expected: Mapping[str, str], facts: Mapping[str, str]) -> tuple[NodeFinding, ...]:
    """What a node tells otherwise than the profile asks.

    >>> unmet({"gpus.count": "8", "disk.tmp_free_gib": "90"}, {"gpus.count": "7"})[0].title
    'number of GPUs 7, expected 8'
    >>> unmet({"disk.tmp_free_gib": "90"}, {"disk.tmp_free_gib": "40"})[0].title
    'disk.tmp_free_gib 40, expected at least 45'
    """
    found = []
    for name, value in expected.items():
        told = facts.get(name, value)
        wrong = told != value
        if name.endswith(FREE) and value.isdecimal() and told.isdecimal():
            least = int(value) // 2
            wrong, value = int(told) < least, f"at least {least}"
        if wrong:
            title = f"{words_of(name)} {told}, expected {value}"
            found.append(NodeFinding(id="unlike-profile", severity=Severity.ERROR, title=title))
    return tuple(found)
