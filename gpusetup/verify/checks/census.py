"""The census of operators as checks: one a family.

`standard` takes a share that the seed draws, `census` takes every sample.
"""

from __future__ import annotations

import functools
from typing import Any, Iterator, List, Tuple

from ..database.rules import SINCE
from ..device.importing import first_line
from ..judging.refusals import refuses
from ..judging.tolerance import Part, holds, judged
from ..operators.comparing import Sample, compared
from ..operators.releases import release
from ..operators.sampling import FAMILIES, drawn, every, layouts_of, row_of
from ..values import SKIPPED, Outcome, WrongQuestion, asked, sticky, working_on

SHARE = {
    "pointwise": 320,
    "lists": 180,
    "reductions": 285,
    "products": 220,
    "algebra": 60,
    "spectral": 40,
    "sparse": 30,
    "moving": 180,
    "indexing": 166,
    "sorting": 83,
    "convolutions": 100,
    "pools": 125,
    "norms": 100,
    "sequences": 230,
    "losses": 92,
}
"""How many samples of a family `standard` draws, those of `edges` aside: the whole census takes it
about a minute of one core."""
ENOUGH = 12
"""So many wrong samples are told; more say nothing new."""


def family(name: str, device: str) -> Outcome:
    """Each chosen sample of a family agrees with its definition."""
    import torch

    if device == "cpu" and release(torch) < SINCE:
        return Outcome(SKIPPED, "torch before 2.5 gives some of them wrong itself on a CPU")
    parts: List[Part] = []
    left_out: List[str] = []
    tried = bad = 0
    for sample in chosen(name):
        working_on(sample.name)
        try:
            parts += _compared(torch, device, name, sample)
        except Exception as problem:  # whatever an operator raises is its answer
            if sticky(problem):
                raise
            if refuses(problem) or not_in_this_torch(problem):
                left_out.append(f"{sample.operator} {sample.dtype}")
                continue
            parts.append(holds(sample.name, False, first_line(problem)))
        tried += 1
        parts, worst = kept(parts)
        bad = worst
        if bad >= ENOUGH:
            break
    if not tried:
        names = ", ".join(left_out[:4])
        return Outcome(SKIPPED, f"this torch computes none of them here: {names}")
    return _told(parts, tried, _unable(left_out), name, device)


def _unable(left_out: List[str]) -> str:
    """
    >>> _unable(["add int8", "add int8"])
    '; 1 combinations not in this torch'
    """
    return f"; {len(set(left_out))} combinations not in this torch" if left_out else ""


UNKNOWN_FORM = (
    "invalid combination of arguments",
    "unexpected keyword argument",
    "must be tuple of Tensors",
    "expected Tensor as element",
    "Expected a value of type 'Tensor' for argument",
    "is now removed",
)
"""What torch says of a call that it does not know; the last but one is torch 1.13's, of a number in
place of a tensor under a mode."""


def not_in_this_torch(problem: Exception) -> bool:
    """Whether an operator, or a form of it, came with a later torch, or went.

    >>> not_in_this_torch(AttributeError("module 'torch.special' has no attribute 'airy_ai'"))
    True
    """
    if isinstance(problem, (NotImplementedError, AttributeError)):
        return True
    called = isinstance(problem, (TypeError, RuntimeError))
    return called and any(words in str(problem) for words in UNKNOWN_FORM)


def _compared(torch: Any, device: str, name: str, sample: Sample) -> List[Part]:
    row = row_of(name, sample.operator)
    anew = sample.size != "edges" and sample.turn < len(FAMILIES[name])
    return compared(torch, device, row, sample, asked().seed, layouts_of(name), anew)


def kept(parts: List[Part]) -> Tuple[List[Part], int]:
    """What is wrong, and the nearest to its limit of what is right."""
    wrong = [part for part in parts if not part.worst <= 1]
    right = [part for part in parts if part.worst <= 1]
    return [*wrong, *([max(right, key=lambda part: part.worst)] if right else [])], len(wrong)


def _told(parts: List[Part], tried: int, unable: str, name: str, device: str) -> Outcome:
    hint = None
    bad = [part for part in parts if not part.worst <= 1]
    if bad:
        sample = bad[0].label.split(" ")[0]
        hint = (
            f"again: `--level {asked().level} --device {device} --seed {asked().seed}"
            f" --only census-{name}/{sample}`; where it fails again, another build or card"
        )
    found = judged(parts, "float64 by definition", hint)
    said = f"{tried} samples of {len(FAMILIES[name])} operators with seed {asked().seed}"
    if bad:
        return found._replace(detail=f"{found.detail} ({said}{unable})")
    nearest = max(parts, key=lambda part: part.worst)
    near = f", worst {nearest.label}" if nearest.allowed else ""
    return found._replace(detail=f"{said}{unable}, against float64 by definition{near}")


def chosen(name: str) -> Iterator[Sample]:
    """The samples that the level takes, or the one that was asked for."""
    only = dict(each.partition("/")[::2] for each in asked().only).get(f"census-{name}")
    if only:
        yield named(name, only)
    elif asked().level == "census":
        yield from every(name)
    else:
        yield from drawn(name, SHARE[name], asked().seed)


def named(family_name: str, text: str) -> Sample:
    """The sample of a name.

    >>> named("products", "mm/float32/strided/tile/7").size
    'tile'
    """
    words = text.split("/")
    known = {row.name.replace(" ", "_"): row.name for row in FAMILIES[family_name]}
    if len(words) != 5 or words[0] not in known or not words[4].isdigit():
        raise WrongQuestion(f"{text!r} names no sample of census-{family_name}")
    return Sample(known[words[0]], words[1], words[2], words[3], int(words[4]))


def _family(name: str) -> Any:
    return functools.partial(family, name)


pointwise, lists = map(_family, ("pointwise", "lists"))
reductions, products = map(_family, ("reductions", "products"))
spectral, sparse = map(_family, ("spectral", "sparse"))
algebra, moving, indexing = map(_family, ("algebra", "moving", "indexing"))
sorting, convolutions, pools = map(_family, ("sorting", "convolutions", "pools"))
norms, sequences, losses = map(_family, ("norms", "sequences", "losses"))
