"""Redaction rules (a pattern and its replacement), and the words that no rule hides."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache

from gpusetup.model.frozen import fields

Match = re.Match[str]
Rule = tuple[str, str | Callable[[Match], str]]
"""A pattern, and the replacement for its matches: a template, or a function of the match."""
compiled = cache(re.compile)
"""Compiles a pattern when it is first used, because most records need only a few of them."""


def apply(rules: Iterable[Rule], text: str) -> str:
    """The text after applying all rules in order.

    >>> apply((("a+", "b"), ("bb", lambda match: match[0].upper())), "caab")
    'cBB'
    """
    for pattern, replacement in rules:
        text = compiled(pattern).sub(replacement, text)
    return text


COMMON_NAMES = frozenset(
    "root user users admin administrator ubuntu debian fedora centos rocky "  # noqa: SIM905
    "nvidia jetson jovyan torch pytorch python cuda conda docker container host hostname "
    "localhost localdomain linux windows macos darwin gpu cpu system runner workspace home test "
    "app dev local default public none self venv nobody model data tmp var opt usr lib bin live "
    "report driver kernel module pip uv mamba pixi arch opensuse alpine".split()
)
"""Names that reveal nothing about a person. Replacing them would make the record useless."""


@cache
def vocabulary() -> frozenset[str]:
    """The common words in records. They are not hidden, even if a host has such a name: a host
    called `h100` or `triton` reveals nothing."""
    # Imported here, because these modules are only needed when a record is redacted.
    from gpusetup.catalog.file import load_catalog
    from gpusetup.model.machine import Snapshot
    from gpusetup.readings.packages import CONDA_WATCHED, WATCHED

    words: set[str] = set()
    for row in load_catalog().gpus:
        words.update(row.name.lower().split())
    field_names = {field.name for field in fields(Snapshot)}
    return COMMON_NAMES | field_names | WATCHED | CONDA_WATCHED | words


def names_rule(names: Iterable[str], public: frozenset[str] = COMMON_NAMES) -> tuple[Rule, ...]:
    """The rule that finds names as whole words, the longest first. Without names, there is no rule.

    >>> apply(names_rule(["root", "al", "alice"]), "alice alices root")
    '<private> alices root'
    """
    private_names = set()
    for name in names:
        # Skip names of one or two letters and numbers: they occur in every record, so hiding them
        # would make the record useless.
        is_telling = len(name) > 2 and not name.isdigit()
        if is_telling and name.lower() not in public:
            private_names.add(name)
    if not private_names:
        return ()
    # A regular expression takes the first alternative that matches, so `alice` must come before
    # `al`.
    longest_first = sorted(private_names, key=len, reverse=True)
    alternatives = "|".join(re.escape(name) for name in longest_first)
    pattern = rf"(?i)(?<![A-Za-z0-9])(?:{alternatives})(?![A-Za-z0-9])"
    return ((pattern, "<private>"),)
