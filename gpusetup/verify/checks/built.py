"""torch's own databases of modules and of optimizers as checks: `census` takes all."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, Iterator, NamedTuple

from ..database import loading
from ..database import modules as of_modules
from ..database import optimizers as of_optimizers
from ..database.calls import exact_products
from ..database.comparing import compared
from ..database.rules import SINCE
from ..operators.releases import release
from ..values import SKIPPED, Outcome, asked, sticky, working_on
from .census import ENOUGH
from .database import Found


class Kind(NamedTuple):
    """One of the two databases."""

    name: str
    load: Callable[[Any], Any]
    entries: Callable[[Any], Dict[str, Any]]
    every: Callable[..., Iterator[Any]]
    named: Callable[..., Any]

    @property
    def check(self) -> str:
        return f"census-{self.name}"


KINDS = {
    "modules": Kind(
        "modules",
        loading.modules,
        of_modules.entries,
        of_modules.every,
        of_modules.named,
    ),
    "optimizers": Kind(
        "optimizers",
        loading.optimizers,
        of_optimizers.entries,
        of_optimizers.every,
        of_optimizers.named,
    ),
}


@functools.lru_cache(maxsize=None)
def known_to(torch: Any, name: str) -> Dict[str, Any]:
    """The entries of this torch, read once a process. Raises NoDatabase."""
    return KINDS[name].entries(KINDS[name].load(torch))


def built(name: str, device: str) -> Outcome:
    """Each sample agrees with float64 on the CPU."""
    import torch

    kind = KINDS[name]
    if release(torch) < SINCE:
        return Outcome(SKIPPED, "the database of this torch has samples that it gives wrong itself")
    try:
        known = known_to(torch, name)
    except loading.NoDatabase as problem:
        return Outcome(SKIPPED, f"torch's own database of {name} cannot be loaded: {problem}")
    found = Found(kind.check)
    with exact_products(torch):
        for sample, row, call in chosen(torch, kind, known, found):
            working_on(sample.name)
            words = f"{asked().seed}:{sample.name}"
            try:
                parts = compared(torch, device, row, call, sample.dtype, words)
            except Exception as problem:  # whatever a kernel raises is its answer
                parts = found.raised(problem)
            found.take(sample.entry, sample.name, parts)
            if found.bad >= ENOUGH:
                break
    return found.told(device)


def chosen(torch: Any, kind: Kind, known: Dict[str, Any], found: Found) -> Iterator[Any]:
    """All samples, or the one that was asked for."""
    only = dict(each.partition("/")[::2] for each in asked().only).get(kind.check)
    if only:
        yield kind.named(torch, known, only, asked().seed)
        return
    for entry in known.values():
        try:
            yield from kind.every(torch, entry, asked().seed)
        except Exception as problem:  # the database's own code: private, and other in each torch
            if sticky(problem):
                raise
            found.unread.append(entry.name)


modules = functools.partial(built, "modules")
optimizers = functools.partial(built, "optimizers")
