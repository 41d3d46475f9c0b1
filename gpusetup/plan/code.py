"""A trace of the user's code and a GPU -> the public answer of `plan --code`. Pure."""

from __future__ import annotations

from gpusetup.model.documents import CodePart, CodePlan, PlanCell, PlanMemory, Rung
from gpusetup.model.frozen import Frozen
from gpusetup.model.units import GIB
from gpusetup.plan.answer import ENV
from gpusetup.plan.decide import CLEAR, Limits
from gpusetup.plan.job import Recipe
from gpusetup.plan.measured import NONE
from gpusetup.plan.memory import CONTEXT, NCCL, NCCL_LINKED
from gpusetup.plan.place import Place
from gpusetup.plan.trace import (
    LARGEST,
    CodeRequest,
    Trace,
    Traced,
    at_batch,
    by_kind,
    by_module,
    largest_batch,
    notes,
)

SOURCE = "predicted by tracing one step of the code on tensors without values"
PASSING = ("activations", "backward", "step")
"""The kinds that come and go within a step, and leave gaps behind."""
FRAGMENTATION = 0.1
"""The share of what comes and goes that segments of fixed size may leave unusable: an assumption,
never compared with a GPU. Expandable segments (Env) leave none of note."""


class CodeAsked(Frozen):
    """What the answer is about, beside the trace."""

    request: CodeRequest
    place: Place
    limits: Limits
    solved: bool = False
    """Whether the largest batch was asked for."""


def room(asked: CodeAsked) -> int:
    """The bytes that one GPU has for tensors: without CUDA's context and NCCL's buffers."""
    return round(asked.limits.capacity - overhead(asked))


def overhead(asked: CodeAsked) -> float:
    nccl = NCCL_LINKED if asked.place.linked else NCCL
    return CONTEXT + nccl * (asked.request.gpus > 1)


def fragmentation(one: Traced, recipe: Recipe) -> float:
    """What a recipe leaves unusable, in bytes."""
    held = by_kind(one)
    return 0.0 if recipe.env else FRAGMENTATION * sum(held.get(kind, 0) for kind in PASSING)


def total(one: Traced, recipe: Recipe, asked: CodeAsked) -> float:
    return one.peak + fragmentation(one, recipe) + overhead(asked)


def recipes(limits: Limits) -> tuple[Recipe, ...]:
    """What a plain loop can switch on without other code, the cheapest first."""
    return (Recipe(), Recipe(env=True)) if limits.env else (Recipe(),)


def best_batch(found: Trace, asked: CodeAsked) -> int | None:
    """The largest batch of one GPU with the last of the recipes; None: none could be found.

    Where gaps must be reckoned with, they take their share of what grows.
    """
    if len(found.traces) < 2:
        return None
    limit = room(asked)
    if not recipes(asked.limits)[-1].env:
        near = min(found.traces, key=lambda one: abs(one.peak - limit))
        limit -= round(fragmentation(near, Recipe()) * min(1.0, limit / near.peak))
    batch = largest_batch(found, limit)
    return None if batch >= LARGEST - 1 else batch


def plan_of(found: Trace, asked: CodeAsked, best: int | None) -> PlanCell:
    """The answer. `best` is what `best_batch` said, of the trace that had several batches."""
    one, request, place = found.asked, asked.request, asked.place
    options = [(recipe, total(one, recipe, asked)) for recipe in recipes(asked.limits)]
    fitting = [option for option in options if option[1] <= asked.limits.capacity]
    recipe, size = fitting[0] if fitting else options[-1]
    tried = options[: options.index((recipe, size)) + 1]
    close = any(abs(need / asked.limits.capacity - 1) < CLEAR for _, need in tried)
    return PlanCell(
        fits=bool(fitting),
        recipe=str(recipe) if fitting else NONE,
        basis="predicted",
        confidence="close" if close else "clear",
        memory_gib=memory(one, recipe, asked),
        margin_percent=round(100 * (1 - size / place.capacity), 2),
        env=ENV if fitting and recipe.env else {},
        settings=settings(request, one) if fitting else {},
        ladder=ladder(found, recipe, asked),
        advice=(*notes(found), *advice(found, asked, best, bool(fitting))),
        model=request.code,
        parameters=one.parameters,
        active_parameters=one.parameters,
        gpu=place.gpu,
        gpus=request.gpus,
        context=0,
        batch=one.batch * request.gpus,
        strategy=request.strategy,
        source=SOURCE,
        solved="batch" if asked.solved else None,
        code=code_plan(found, asked, best),
    )


def memory(one: Traced, recipe: Recipe, asked: CodeAsked) -> PlanMemory:
    """The peak by what it is for; logits are activations like others here."""
    held = by_kind(one)
    states = sum(held.get(k, 0) for k in ("parameters", "gradients", "optimizer", "gathered"))
    kept = held.get("activations", 0)
    values = {
        "states": states,
        "checkpoints": kept,
        "logits": 0,
        "fragmentation": fragmentation(one, recipe),
        "other": one.peak - states - kept + overhead(asked),
        "total": total(one, recipe, asked),
        "allocated": one.peak,
        "reserved": total(one, recipe, asked) - overhead(asked),
        "capacity": asked.place.capacity,
    }
    return PlanMemory(**{name: round(value / GIB, 3) for name, value in values.items()})


def code_plan(found: Trace, asked: CodeAsked, best: int | None) -> CodePlan:
    one = found.asked
    return CodePlan(
        torch=found.torch,
        phases_gib={phase: round(size / GIB, 3) for phase, size in one.phases.items()},
        peak_phase=one.peak_phase,
        standing=tuple(
            CodePart(kind=row.kind, module=row.module, gib=round(row.bytes / GIB, 3))
            for row in by_module(one)
        ),
        largest_batch=None if best is None else best * asked.request.gpus,
    )


def settings(request: CodeRequest, one: Traced) -> dict[str, object]:
    """What the code must do so that the answer holds."""
    return {
        "strategy": "fsdp2" if request.strategy in ("fsdp", "zero3") else request.strategy,
        "gpus": request.gpus,
        "batch_per_gpu": one.batch,
        "mixed_precision": request.amp or "none",
        "gradient_checkpointing": request.checkpointing,
        **({"accumulate": request.accumulate} if request.accumulate > 1 else {}),
    }


def ladder(found: Trace, recipe: Recipe, asked: CodeAsked) -> tuple[Rung, ...]:
    """What saves how much, the mildest first; what another trace would have to say is left out."""
    one = found.asked
    rungs = []
    if not recipe.env and asked.limits.env:
        rungs.append(Rung(step="Env", saves_gib=round(fragmentation(one, recipe) / GIB, 3)))
    if one.batch > 1 and len(found.traces) > 1:
        half = one.batch // 2
        smaller = at_batch(found, half, one.peak)
        rungs.append(
            Rung(
                step=f"batch {half * asked.request.gpus}, twice as many steps of accumulation",
                saves_gib=round(max(0.0, one.peak - smaller) / GIB, 3),
            )
        )
    return tuple(rungs)


def advice(found: Trace, asked: CodeAsked, best: int | None, fits: bool) -> tuple[str, ...]:
    """What would help where it does not fit, and what was not looked at."""
    request = asked.request
    said = []
    if best is None and len(found.traces) > 1:
        said.append("memory does not grow with the batch: any batch fits, or none")
    if not fits and best:
        said.append(f"a batch of {best * request.gpus} would fit")
    if not fits and not request.checkpointing:
        said.append("`--checkpointing` keeps only the inputs of the repeated blocks")
    if not fits and request.amp is None:
        said.append("`--amp bf16` computes in 16 bits")
    if not fits and request.strategy in ("ddp", "zero1"):
        said.append("`--strategy fsdp` divides weights, gradients and states among the GPUs")
    if fits and request.strategy == "zero1":
        said.append("ZeRO 1 is reckoned from one GPU's step: states divided, gradients whole")
    return tuple(said)
