"""By which letters a pattern is looked for."""

from typing import NamedTuple

from gpusetup.model.needed import needs_of

GATES = 3
"""How many needs are asked for before a pattern is tried."""
FORMS = 8
"""Of so many letters one is asked for: more take as long as the pattern."""
STARTS = 64
"""At so many places before its letters a match may begin; else the pattern is tried everywhere."""
SPREAD = 24
"""Letters beside these are asked for where their place is known to so many characters."""
RARE = 2
"""Fewer letters stand nearly everywhere."""


Near = tuple[tuple[str, int, int], ...]
"""Letters, and how far behind the start of a match they stand, at least and at most; every match
has one of these."""


class Plan(NamedTuple):
    """How a pattern is looked for."""

    every: tuple[str, ...] = ()
    """Letters that a text has to have,"""
    some: tuple[tuple[str, ...], ...] = ()
    """and of these some each."""
    near: Near = ()
    """Letters by which each match is found; () where it is tried everywhere."""
    beside: tuple[Near, ...] = ()
    """Other letters that stand so far behind the start of each match."""


def plan_of(pattern: str, ignore_case: bool) -> Plan:
    """How a pattern is looked for, its letters in lower case where the case does not count.

    >>> plan_of(r"nvrm: xid \\d+", True).every
    ('nvrm: xid ',)
    """
    needs = needs_of(pattern, ignore_case=ignore_case)
    near = next((one for one in needs if _is_near(one)), ())
    beside = tuple([one for one in needs if near and one is not near and _is_beside(one)])
    gates = [tuple(dict.fromkeys([place.letters for place in one])) for one in needs]
    gates = [gate for gate in gates if len(gate) <= FORMS][:GATES]
    return Plan(
        every=tuple([gate[0] for gate in gates if len(gate) == 1]),
        some=tuple([gate for gate in gates if len(gate) > 1]),
        near=near,
        beside=beside[:GATES],
    )


def _is_near(need: Near) -> bool:
    starts = sum([most - least + 1 for _, least, most in need])
    return starts <= STARTS and all(len(letters) >= RARE for letters, _, _ in need)


def _is_beside(need: Near) -> bool:
    return len(need) <= STARTS and all(most - least <= SPREAD for _, least, most in need)
