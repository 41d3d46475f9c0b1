"""What a node of a kind should be like, as a TOML file: learnt from a sound node, read by people.

    schema = "gpusetup.profile/1"

    [expect]
    "gpus.count" = "8"                            # exactly this
    "disk.tmp_free_gib" = { at_least = 20 }       # a number, and no less

A fact that a node does not tell is unknown, and fails no node.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from gpusetup.errors import BadInput
from gpusetup.fleet.facts import PACKAGES, VARIABLES, WORDS, words_of
from gpusetup.fleet.nodes import Node, NodeFinding
from gpusetup.model.finding import Severity
from gpusetup.model.frozen import Frozen, replace

SCHEMA = "gpusetup.profile/1"
AT_LEAST = "at_least"
FREE_SHARE = 0.5
"""A learnt node's free disk is no promise of the others': half of it is asked for."""
MOST_BYTES = 1 << 20
NOT_LEARNT = {"gpus.pcie_width", "links.down", "os.kernel", "memory.memlock_bytes"}
"""Facts that an idle card, or an update without consequence, changes."""
SOUND: Mapping[str, tuple[str, ...]] = {
    "gpus.fabric_state": ("completed", "not_supported"),
    "gpus.lost": ("no",),
    "gpus.recovery_action": ("none",),
    "imex.channel": ("yes",),
    "imex.service": ("yes",),
}
"""What a sound node tells; anything else is no wish, however the node that was learnt from is."""
NO_LINK = "none"
OPEN_FAMILIES = (PACKAGES, VARIABLES, "links.", "disk.", "clock.", "imex.")
"""How the names of facts begin that `facts.WORDS` does not list."""
HEAD = """\
# What a node of this kind must be like; written by
# `gpusetup fleet check --learn`. Delete what may differ.
"""


class Expectation(Frozen):
    """What a profile asks of one fact."""

    field: str
    value: str
    at_least: bool = False
    """The value is a number, and a larger one will do."""

    @property
    def words(self) -> str:
        return f"at least {self.value}" if self.at_least else self.value

    def holds(self, found: str) -> bool:
        """Whether a node's value is what is asked for; `700 W` is what `700` asks for."""
        number = re.match(r"-?\d+(?:\.\d+)?", found)
        if self.at_least:
            return number is not None and float(number[0]) >= float(self.value)
        return self.value in (found, re.sub(r"^(\d+) [A-Za-z]+$", r"\1", found))


class Unmet(Frozen):
    """A fact that is not as the profile asks."""

    field: str
    value: str
    expected: str

    @property
    def words(self) -> str:
        return f"{words_of(self.field)} {self.value}, expected {self.expected}"


def faulty(facts: Mapping[str, str]) -> dict[str, str]:
    """The facts that no sound node has: a profile that asked for them would fail the sound ones.

    >>> faulty({"imex.service": "no", "gpus.lost": "no"})
    {'imex.service': 'no'}
    """
    found = {name: value for name, value in facts.items() if value not in SOUND.get(name, (value,))}
    if facts.get("links.active") == NO_LINK and facts.get("links.down", NO_LINK) != NO_LINK:
        found["links.active"] = f"{NO_LINK}, down: {facts['links.down']}"
    return found


def learnt(facts: Mapping[str, str]) -> str:
    """The profile of a sound node, as text; `faulty` facts are left out."""
    left_out = {*NOT_LEARNT, *faulty(facts)}
    expect: dict[str, Any] = {}
    for name in sorted(facts.keys() - left_out):
        if name.endswith("_free_gib"):
            expect[name] = {AT_LEAST: int(float(facts[name]) * FREE_SHARE)}
        elif facts[name] != NO_LINK or name != "links.active":
            expect[name] = facts[name]
    return HEAD + tomlkit.dumps({"schema": SCHEMA, "expect": expect})


def read(text: str, what: str) -> tuple[Expectation, ...]:
    """A profile's expectations; `BadInput` names what is wrong in the file."""
    try:
        document = tomlkit.parse(text).unwrap()
    except (TOMLKitError, RecursionError) as problem:
        raise BadInput(f"{what} is no TOML: {problem}") from problem
    schema, expect = document.get("schema"), document.get("expect")
    if schema != SCHEMA or not isinstance(expect, dict):
        raise BadInput(
            f"{what} is no profile: it lacks `schema = {SCHEMA!r}` or a table `[expect]`",
            hint="`gpusetup fleet check --learn > FILE` writes one on a sound node",
        )
    return tuple(_expectation(name, value, what) for name, value in _flat(expect).items())


def _flat(table: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """`a.b = 1` is a table `a` to TOML; here it is the name `a.b`."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict) and AT_LEAST not in value:
            found |= _flat(value, f"{before}{name}.")
        else:
            found[f"{before}{name}"] = value
    return found


def _expectation(name: str, value: Any, what: str) -> Expectation:
    if name not in WORDS and not name.startswith(OPEN_FAMILIES):
        raise BadInput(
            f"{what}: there is no fact `{name}`", hint="`--learn` prints those there are"
        )
    is_least = isinstance(value, dict) and value.keys() == {AT_LEAST}
    told = value[AT_LEAST] if is_least else value
    if isinstance(told, bool | str):
        if not is_least:
            words = told if isinstance(told, str) else "yes" if told else "no"
            return Expectation(field=name, value=words)
    elif isinstance(told, int | float) and isfinite(told):
        return Expectation(field=name, value=str(told), at_least=is_least)
    raise BadInput(f"{what}: `{name}` is neither a value nor `{{ {AT_LEAST} = NUMBER }}`")


def unmet(expected: tuple[Expectation, ...], facts: Mapping[str, str]) -> tuple[Unmet, ...]:
    """What a node tells otherwise than the profile asks.

    >>> unmet((Expectation(field="gpus.count", value="8"),), {"gpus.count": "7"})[0].words
    'number of GPUs 7, expected 8'
    """
    told = [one for one in expected if one.field in facts and not one.holds(facts[one.field])]
    return tuple(Unmet(field=one.field, value=facts[one.field], expected=one.words) for one in told)


def held_against(expected: tuple[Expectation, ...], node: Node) -> Node:
    """The node with what its profile does not allow among its findings."""
    known = {one.title for one in node.findings}
    wrong = [unlike(one.words) for one in unmet(expected, node.facts) if one.words not in known]
    return replace(node, findings=(*node.findings, *wrong))


def unlike(words: str) -> NodeFinding:
    return NodeFinding(id="unlike-profile", severity=Severity.ERROR, title=words)
