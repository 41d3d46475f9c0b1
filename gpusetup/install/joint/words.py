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
    """The words in the order of their names, one of each: an answer does not depend on how they
    were typed, nor on how often.

    >>> by_name(["torchao", "numpy>=2", "NumPy<3", "numpy>=2"])
    ('numpy<3,>=2', 'torchao')
    """
    free: dict[str, list[Requirement]] = {}
    exact = []
    for word in words:
        said = Requirement(word)
        if said.url or said.marker:
            exact.append(word)
        else:
            free.setdefault(canonicalize_name(said.name), []).append(said)
    return tuple(sorted((*dict.fromkeys(exact), *map(_as_one, free.values())), key=name_of))


def _as_one(words: Sequence[Requirement]) -> str:
    """Several requirements of one package as one."""
    if len(words) == 1:
        return str(words[0])
    extras = sorted({extra for one in words for extra in one.extras})
    limits = sorted({str(limit) for one in words for limit in one.specifier})
    more = f"[{','.join(extras)}]" if extras else ""
    return f"{words[0].name}{more}{','.join(limits)}"


def extras_of(words: Sequence[str], name: str) -> tuple[str, ...]:
    """The extras that were asked for with a package, by every word that names it."""
    named = (Requirement(word) for word in words if name_of(word) == name)
    return tuple(sorted({extra for word in named for extra in word.extras}))


def projects_of(names: Sequence[str], table: CompanionTable) -> tuple[Project, ...]:
    return tuple(filter(None, (table.project(name) for name in names)))
