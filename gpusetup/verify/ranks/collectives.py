"""The checks of the collectives: each in all its forms, formats, sizes, groups and modes."""

from __future__ import annotations

import time
import warnings
from typing import Any, List, NamedTuple, Set, Tuple

from ..values import FAILED, PASSED, SKIPPED, Outcome, asked
from .calls import (
    ALL_GATHER,
    ALL_REDUCE,
    BROADCAST,
    GATHER,
    REDUCE,
    REDUCE_SCATTER,
    SCATTER,
    Collective,
)
from .drawing import BIG, Call, drawn, large
from .exchanges import ALL_TO_ALL, SEND_RECV
from .group import GAVE_NOTHING, Group, begin, goes_on, together
from .scene import groups_of, performed

SECONDS = {"quick": 3.0, "standard": 6.0, "stress": 3.0, "census": 14.0}
"""Level -> how long one check may draw calls."""
ROUNDS = {"quick": 1, "standard": 2, "stress": 1, "census": 8}
BLOCK = 32
"""So many calls are made before the ranks ask each other whether there is time for more."""
REFUSALS = (
    *("not support", "Cannot use", "No backend type", "not impl", "Invalid scalar type"),
    *("must be contiguous", "Unconvertible NCCL type", "has no attribute", "unexpected keyword"),
    *("only supports", "Unsupported"),
)
"""What torch and the backends say of a call that they do not offer, before anything is sent."""
BASE = ("float32-sum", "float32")
"""A refusal of these is a failure where the collective takes anything at all."""


class Tried(NamedTuple):
    """What a check found on this rank."""

    calls: int
    wrong: List[str]
    refused: Set[str]


def all_reduce(device: str) -> Outcome:
    """Reductions over all ranks, to all."""
    return together("all_reduce", lambda group: _tried(group, "all_reduce", ALL_REDUCE))


def reduce(device: str) -> Outcome:
    """Reductions over all ranks, to one."""
    return together("reduce", lambda group: _tried(group, "reduce", REDUCE))


def broadcast(device: str) -> Outcome:
    """One rank's values on every rank."""
    return together("broadcast", lambda group: _tried(group, "broadcast", BROADCAST))


def all_gather(device: str) -> Outcome:
    """Every rank's part, in the order of the ranks, on all."""
    return together("all_gather", lambda group: _tried(group, "all_gather", ALL_GATHER))


def gather(device: str) -> Outcome:
    """Every rank's part on one."""
    return together("gather", lambda group: _tried(group, "gather", GATHER))


def scatter(device: str) -> Outcome:
    """One rank's parts, each on its rank."""
    return together("scatter", lambda group: _tried(group, "scatter", SCATTER))


def reduce_scatter(device: str) -> Outcome:
    """Each rank's part of the reduction."""
    return together("reduce_scatter", lambda group: _tried(group, "reduce_scatter", REDUCE_SCATTER))


def all_to_all(device: str) -> Outcome:
    """From every rank the part meant for this one, even and uneven."""
    return together("all_to_all", lambda group: _tried(group, "all_to_all", ALL_TO_ALL))


def send_recv(device: str) -> Outcome:
    """From one rank to another, around the ring, blocking and with handles."""
    return together("send_recv", lambda group: _tried(group, "send_recv", SEND_RECV))


def planned(op: str, collective: Collective, level: str, seed: int, group: Group) -> List[Call]:
    """The calls of a check in their order, the same on every rank."""
    forms, kinds = tuple(collective.forms), _offered(collective.kinds, group.world)
    rounds = ROUNDS[level] * (3 if kinds[0][1] == "bits" else 1)
    calls = drawn(op, forms, kinds, seed, collective.transposed, rounds)
    share = group.world if collective.whole else 1
    big = [size for size in BIG if 16 * size <= group.most_bytes]
    calls += large(op, forms, kinds, seed, big)
    elements = [each // 4 // share + 3 for each in _bytes(level, group.most_bytes)]
    heaviest = [(dtype, how) for dtype, how in kinds if dtype in ("float32", "int32")]
    calls += large(f"{op} whole", forms, heaviest, seed, elements)
    return [call._replace(op=op) for call in calls]


def _bytes(level: str, most: int) -> Tuple[int, ...]:
    """Bytes of the largest messages."""
    wanted = (1 << 23, 1 << 25) if level in ("quick", "stress") else (1 << 23, 1 << 26, 1 << 28)
    return tuple(sorted({min(each, most) for each in wanted}))


def _offered(kinds: Tuple[Tuple[str, str], ...], world: int) -> Tuple[Tuple[str, str], ...]:
    """Without those in which the sum over so many ranks is not exact."""
    narrow = [
        name for name, most in (("bfloat16", 11), ("int8", 100), ("float16", 40)) if world > most
    ]
    return tuple(kind for kind in kinds if kind[0] not in narrow or kind[1] == "bits")


def _tried(group: Group, op: str, collective: Collective) -> Outcome:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of forms that torch advises against and still offers
        tried = _made(torch, group, op, collective)
    return _judged(group, op, tried)


def _wanted(op: str, calls: List[Call]) -> List[Call]:
    """Those that `--only op/NAME` names, or all."""
    names = {name.partition("/")[2] for name in asked().only if name.startswith(op + "/")}
    return [call for call in calls if not names or call.name in names]


def _made(torch: Any, group: Group, op: str, collective: Collective) -> Tried:
    level, seed = asked().level, asked().seed
    calls = _wanted(op, planned(op, collective, level, seed, group))
    groups = groups_of(group)
    until = time.monotonic() + SECONDS[level]
    wrong: List[str] = []
    refused: Set[str] = set()
    for place, call in enumerate(calls):
        if place % BLOCK == 0 and not goes_on(group, f"{op}/{place}", until):
            return Tried(place, wrong, refused)
        begin(f"{op}/{call.name}")
        try:
            make = collective.forms[call.form]
            said = performed(torch, group, groups.of(call.group), call, seed, make)
        except (
            RuntimeError,
            ValueError,
            TypeError,
            NotImplementedError,
            AttributeError,
        ) as problem:
            if GAVE_NOTHING in str(problem) or not any(x in str(problem) for x in REFUSALS):
                raise
            how = "" if call.how == "bits" else f"-{call.how}"
            refused.add(
                f"{call.form} {call.dtype}{how}{' transposed' * (call.layout == 'transposed')}"
            )
            continue
        if said:
            wrong.append(f"{op}/{call.name}: {said}")
    return Tried(len(calls), wrong, refused)


def _judged(group: Group, op: str, tried: Tried) -> Outcome:
    """The outcome of a check on this rank; the ranks must have refused the same."""
    group.store.set(f"{op}/refused/{group.rank}", repr(sorted(tried.refused)))
    if tried.wrong:
        more = f" ({len(tried.wrong)} of {tried.calls} calls are wrong)"
        return Outcome(FAILED, f"rank {group.rank}: {tried.wrong[0]}{more}")
    said = group.store.get(f"{op}/refused/{(group.rank + 1) % group.world}").decode()
    if said != repr(sorted(tried.refused)):
        return Outcome(FAILED, f"rank {group.rank}: the ranks do not offer the same calls")
    if any(name in (f"plain {base}", f"even {base}") for name in tried.refused for base in BASE):
        return Outcome(SKIPPED, f"{group.backend} has none in this torch")
    told = f"; not offered: {', '.join(sorted(tried.refused)[:3])}" if tried.refused else ""
    return Outcome(PASSED, f"{tried.calls} calls exact on {group.world} ranks{told}")
