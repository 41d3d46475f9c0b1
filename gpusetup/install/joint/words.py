"""The words of a joint question: which packages they name, and what our table knows of them."""

from __future__ import annotations

from collections.abc import Sequence

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gpusetup.catalog.companion_table import CompanionTable, Project


def name_of(word: str) -> str:
    """
    >>> name_of("jax[cuda13]>=0.7")
    'jax'
    """
    return canonicalize_name(Requirement(word).name)


def by_name(words: Sequence[str]) -> tuple[str, ...]:
    """The words in the order of their names: an answer does not depend on how they were typed."""
    return tuple(sorted(words, key=name_of))


def extras_of(words: Sequence[str], name: str) -> tuple[str, ...]:
    """The extras that were asked for with a package, by every word that names it."""
    named = (Requirement(word) for word in words if name_of(word) == name)
    return tuple(sorted({extra for word in named for extra in word.extras}))


def projects_of(names: Sequence[str], table: CompanionTable) -> tuple[Project, ...]:
    return tuple(filter(None, (table.project(name) for name in names)))
