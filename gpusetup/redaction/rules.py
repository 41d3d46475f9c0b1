"""Rules of redaction, a pattern and its replacement; and the words that no rule hides."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache

from gpusetup.model.frozen import fields

Found = re.Match[str]
Rule = tuple[str, str | Callable[[Found], str]]
compiled = cache(re.compile)
"""Each pattern is compiled when it is first tried."""


def apply(rules: Iterable[Rule], text: str) -> str:
    """The text after all rules, in their order.

    >>> apply((("a+", "b"), ("bb", lambda found: found[0].upper())), "caab")
    'cBB'
    """
    for pattern, instead in rules:
        text = compiled(pattern).sub(instead, text)
    return text


COMMON_NAMES = frozenset(
    "root user users admin administrator ubuntu debian fedora centos rocky "  # noqa: SIM905
    "nvidia jetson jovyan torch pytorch python cuda conda docker container host hostname "
    "localhost localdomain linux windows macos darwin gpu cpu system runner workspace home test "
    "app dev local default public none self venv nobody model data tmp var opt usr lib bin live "
    "report driver kernel module pip uv mamba pixi arch opensuse alpine".split()
)
"""Names that say nothing about a person, and whose replacement would spoil the record."""


@cache
def vocabulary() -> frozenset[str]:
    """Words that a record is made of: a host called `h100` or `triton` tells nothing."""
    from gpusetup.catalog.file import load_catalog
    from gpusetup.model.machine import Snapshot
    from gpusetup.readings.packages import CONDA_WATCHED, WATCHED

    models = " ".join(row.name for row in load_catalog().gpus)
    own = frozenset(part.name for part in fields(Snapshot))
    return COMMON_NAMES | own | WATCHED | CONDA_WATCHED | frozenset(models.lower().split())


def names_rule(names: Iterable[str], known: frozenset[str] = COMMON_NAMES) -> tuple[Rule, ...]:
    """The rule that finds the names as whole words, the longest first; none without any.

    >>> apply(names_rule(["root", "al", "alice"]), "alice alices root")
    '<private> alices root'
    """
    telling = {n for n in names if len(n) > 2 and n.lower() not in known and not n.isdigit()}
    words = "|".join(re.escape(name) for name in sorted(telling, key=len, reverse=True))
    found = rf"(?i)(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])"
    return ((found, "<private>"),) if telling else ()
