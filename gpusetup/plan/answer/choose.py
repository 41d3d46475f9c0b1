"""The recipe: the first that fits, in the order that costs the least speed."""

from __future__ import annotations

from collections.abc import Sequence

from gpusetup.model.frozen import Frozen
from gpusetup.plan.answer.doubt import doubt
from gpusetup.plan.answer.measured import is_standard
from gpusetup.plan.memory.constants import Constants
from gpusetup.plan.memory.parts import Parts, parts
from gpusetup.plan.memory.states import SHARDED, WHOLE, host_bytes
from gpusetup.plan.model.workload import Recipe, Workload, takes_longest

SAFE = 0.01
"""The share of the memory that `--safe` leaves free."""

CLEAR = 0.03
"""A margin from which on an answer is clear, for the trainer that was measured."""
CLEAR_ELSEWHERE = 0.2
"""The same for other jobs, of which only published figures are known: of those said to fit from
here on 1 in 51 ran out of memory, of those said not to 1 in 59 fitted (`doubt.py`)."""


class Limits(Frozen):
    """What the machine gives and allows."""

    capacity: float
    """Bytes of one GPU as CUDA sees them."""
    env: bool = True
    """Whether expandable segments work there: not on Windows, WSL and Jetson."""
    linux: bool = True
    """Sequence parallelism and FSDP2 with CPU offload need Linux."""
    offload: bool = True
    """Whether the machine's memory is another than the GPU's."""
    host: float | None = None
    """Bytes of the machine's own memory; None where they are not known."""
    safe: bool = False
    sp: int | None = None
    """The only sequence parallelism that may be used."""

    @property
    def usable(self) -> float:
        return self.capacity * (1 - SAFE * self.safe)


class Option(Frozen):
    """A recipe and the memory it takes."""

    recipe: Recipe
    parts: Parts


class Fit(Frozen):
    """The options in order up to the first that fits; `chosen` is None where none does."""

    workload: Workload
    limits: Limits
    options: tuple[Option, ...]
    chosen: Option | None

    @property
    def nearest(self) -> Option:
        """The chosen option, or the one that lacks least."""
        return self.chosen or min(self.options, key=lambda o: o.parts.total)

    @property
    def clear(self) -> bool:
        """Whether no option that was looked at is near the limit.

        Nor is an answer that a run fits clear where runs of its kind ran out too often.
        """
        if self.chosen is not None and doubt(self.workload, self.chosen.recipe):
            return False
        near = near_limit(self.workload)
        return all(abs(o.parts.total / self.limits.usable - 1) >= near for o in self.options)


def near_limit(w: Workload) -> float:
    """The share of the limit within which an answer is close."""
    return CLEAR if is_standard(w) else CLEAR_ELSEWHERE


def choose(w: Workload, limits: Limits, c: Constants) -> Fit:
    """The first recipe that fits."""
    tried: list[Option] = []
    for recipe in candidates(w, limits):
        if not host_holds(w, recipe, limits):
            continue
        tried.append(Option(recipe=recipe, parts=parts(w, recipe, c)))
        if tried[-1].parts.total <= limits.usable and takes_longest(w, recipe.sp):
            return Fit(workload=w, limits=limits, options=tuple(tried), chosen=tried[-1])
    return Fit(workload=w, limits=limits, options=tuple(tried), chosen=None)


def host_holds(w: Workload, recipe: Recipe, limits: Limits) -> bool:
    """Whether the machine's own memory takes what a recipe keeps there; yes where unknown."""
    return limits.host is None or host_bytes(w, recipe) <= limits.host


def candidates(w: Workload, limits: Limits) -> Sequence[Recipe]:
    """The recipes that this workload may use here, in order.

    Offload is always used with Env where Env works, and so is a trainer that switches it on. A
    budget of tokens leaves the degrees that take the longest sequence; all where none does.
    """
    offloads = (False, True) if limits.linux and limits.offload else (False,)
    offloads = offloads if SHARDED[w.strategy][0] else (False,)
    every = sequence_degrees(w, limits)
    degrees = [sp for sp in every if takes_longest(w, sp)] or every
    found = []
    for offload in offloads:
        for sp in degrees:
            envs = (True,) if offload or w.expandable else (False, True)
            found += [Recipe(offload=offload, sp=sp, env=env and limits.env) for env in envs]
    return tuple(dict.fromkeys(found))


def sequence_degrees(w: Workload, limits: Limits) -> tuple[int, ...]:
    """The degrees of sequence parallelism: common divisors of the GPUs and the heads.

    They must divide the key-value heads, or be a multiple of them, which then are repeated (verl's
    Ulysses).

    >>> from gpusetup.plan.model.named import model_named
    >>> w = Workload(shape=model_named("qwen3-14b"), gpus=6, context=4096)
    >>> sequence_degrees(w, Limits(capacity=0))
    (1, 2)
    >>> from gpusetup.model.frozen import replace
    >>> sequence_degrees(replace(w, gpus=8), Limits(capacity=0))
    (1, 2, 4, 8)
    """
    if limits.sp is not None:
        return (limits.sp,)
    if not limits.linux or w.strategy in WHOLE:
        return (1,)
    heads = w.shape.heads // w.tensor_parallel
    bound = min(w.data_parallel, heads)
    shared = max(1, w.shape.key_value_heads // w.tensor_parallel)
    both = [n for n in range(1, bound + 1) if w.data_parallel % n == 0 and heads % n == 0]
    return tuple(n for n in both if shared % n == 0 or n % shared == 0)
