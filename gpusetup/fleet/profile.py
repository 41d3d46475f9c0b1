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
from gpusetup.fleet.facts import FACTS, PACKAGES, VARIABLES, known_part, words_of
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
"""How the names of facts begin that `facts.FACTS` does not list."""


class Expectation(Frozen):
    """What a profile asks of one fact."""

    field: str
    value: str | None = None
    at_least: float | None = None

    @property
    def words(self) -> str:
        return self.value if self.value is not None else f"at least {self.at_least:g}"

    def holds(self, found: str) -> bool:
        """Whether a node's value is what is asked for."""
        if self.at_least is None:
            return found == self.value or self._is_whole(found)
        number = re.match(r"-?\d+(?:\.\d+)?", found)
        return number is not None and float(number[0]) >= self.at_least

    def _is_whole(self, found: str) -> bool:
        """Whether a whole number is meant, and the node tells it with its unit: 700 is `700 W`."""
        value = self.value or ""
        return value.isdecimal() and re.fullmatch(rf"0*{value} [A-Za-z]+", found) is not None


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
    found = {n: v for n, v in facts.items() if n in SOUND and known_part(v) not in SOUND[n]}
    if _has_no_link(facts) and facts.get("links.down", NO_LINK) != NO_LINK:
        found["links.active"] = f"{NO_LINK}, down: {facts['links.down']}"
    return found


def _has_no_link(facts: Mapping[str, str]) -> bool:
    return facts.get("links.active") == NO_LINK


def learnt(facts: Mapping[str, str]) -> str:
    """The profile of a sound node, as text; `faulty` facts are left out."""
    document = tomlkit.document()
    document.add(tomlkit.comment("What a node of this kind must be like; written by"))
    document.add(tomlkit.comment("`gpusetup fleet check --learn`. Delete what may differ."))
    document.add("schema", tomlkit.item(SCHEMA))
    expect = tomlkit.table()
    left_out = {*NOT_LEARNT, *faulty(facts), *(("links.active",) if _has_no_link(facts) else ())}
    for name in sorted(facts.keys() - left_out):
        expect.add(name, _item(name, known_part(facts[name])))
    document.add("expect", expect)
    return tomlkit.dumps(document)


def _item(name: str, value: str) -> Any:
    if not name.endswith("_free_gib"):
        return tomlkit.item(value)
    asked = tomlkit.inline_table()
    asked.append(AT_LEAST, int(float(value) * FREE_SHARE))
    return asked


def read(text: str, what: str) -> tuple[Expectation, ...]:
    """A profile's expectations; `BadInput` names what is wrong in the file."""
    if len(text) > MOST_BYTES:
        raise BadInput(f"{what} is larger than {MOST_BYTES >> 20} MiB and so no profile")
    try:
        document = tomlkit.parse(text).unwrap()
    except (TOMLKitError, RecursionError) as problem:
        raise BadInput(f"{what} is no TOML: {problem}") from problem
    schema = document.get("schema")
    if schema != SCHEMA:
        raise BadInput(
            f"{what} is no profile: `schema` is {schema!r}, not {SCHEMA!r}",
            hint="`gpusetup fleet check --learn > FILE` writes one on a sound node",
        )
    expect = document.get("expect")
    if not isinstance(expect, dict):
        raise BadInput(f"{what} expects nothing: it has no table `[expect]`")
    return tuple(_expectation(name, value, what) for name, value in _flat(expect))


def _flat(table: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    """`a.b = 1` is a table `a` to TOML; here it is the name `a.b`."""
    found: list[tuple[str, Any]] = []
    for name, value in table.items():
        if isinstance(value, dict) and AT_LEAST not in value and value:
            found += _flat(value, f"{before}{name}.")
        else:
            found.append((f"{before}{name}", value))
    return found


def _expectation(name: str, value: Any, what: str) -> Expectation:
    if name not in FACTS and not name.startswith(OPEN_FAMILIES):
        raise BadInput(
            f"{what}: there is no fact `{name}`", hint="`--learn` prints those there are"
        )
    if isinstance(value, dict):
        least = value.get(AT_LEAST)
        if set(value) == {AT_LEAST} and isinstance(least, int | float) and isfinite(least):
            return Expectation(field=name, at_least=float(least))
    elif isinstance(value, bool):
        return Expectation(field=name, value="yes" if value else "no")
    elif isinstance(value, str) or (isinstance(value, int | float) and isfinite(value)):
        return Expectation(field=name, value=str(value))
    raise BadInput(f"{what}: `{name}` is neither a value nor `{{ {AT_LEAST} = NUMBER }}`")


def unmet(expected: tuple[Expectation, ...], facts: Mapping[str, str]) -> tuple[Unmet, ...]:
    """What a node tells otherwise than the profile asks.

    >>> unmet((Expectation(field="gpus.count", value="8"),), {"gpus.count": "7"})[0].words
    'number of GPUs 7, expected 8'
    """
    return tuple(
        Unmet(field=one.field, value=facts[one.field], expected=one.words)
        for one in expected
        if one.field in facts and not _is_met(one, known_part(facts[one.field]))
    )


def _is_met(asked: Expectation, found: str) -> bool:
    """A sound value is met too, where an unsound one was learnt by an earlier gpusetup."""
    return asked.holds(found) or found in SOUND.get(asked.field, ())


UNLIKE = "unlike-profile"
"""The id of a node's finding that a fact is not as the profile asks."""


def held_against(expected: tuple[Expectation, ...], node: Node) -> Node:
    """The node with what its profile does not allow among its findings."""
    known = {one.title for one in node.findings}
    wrong = (one.words for one in unmet(expected, node.facts))
    return replace(
        node, findings=(*node.findings, *map(unlike, (w for w in wrong if w not in known)))
    )


def unlike(words: str) -> NodeFinding:
    return NodeFinding(id=UNLIKE, severity=Severity.ERROR, title=words)


def unknown(expected: tuple[Expectation, ...], facts: Mapping[str, str]) -> tuple[str, ...]:
    """The facts that the profile asks for and the node does not tell."""
    return tuple(one.field for one in expected if one.field not in facts)
