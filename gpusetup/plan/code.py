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


def overhead(asked: CodeAsked) -> float:
    nccl = NCCL_LINKED if asked.place.linked else NCCL
    return CONTEXT + nccl * (asked.request.gpus > 1)


def room(asked: CodeAsked) -> int:
    """The bytes that one GPU has for tensors: without CUDA's context and NCCL's buffers."""
    return round(asked.limits.capacity - overhead(asked))


def fragmentation(one: Traced, recipe: Recipe) -> float:
    """What a recipe leaves unusable, in bytes."""
    held = by_kind(one)
    return 0.0 if recipe.env else FRAGMENTATION * sum(held.get(kind, 0) for kind in PASSING)


def total(one: Traced, recipe: Recipe, asked: CodeAsked) -> float:
    return one.peak + fragmentation(one, recipe) + overhead(asked)


def best_batch(found: Trace, asked: CodeAsked) -> int | None:
    """The largest batch of one GPU with expandable segments if they work; None: none was found."""
    if len(found.traces) < 2:
        return None
    batch = largest_batch(found, round(room(asked) / (1 if asked.limits.env else 1.1)))
    return None if batch >= LARGEST - 1 else batch


def plan_of(found: Trace, asked: CodeAsked, best: int | None) -> PlanCell:
    """The answer. `best` is what `best_batch` said, of the trace that had several batches."""
    one, request, place = found.asked, asked.request, asked.place
    recipes = (Recipe(), Recipe(env=True))[: 1 + asked.limits.env]
    sizes = {recipe: total(one, recipe, asked) for recipe in recipes}
    capacity = asked.limits.capacity
    recipe = next((each for each in recipes if sizes[each] <= capacity), recipes[-1])
    fits = sizes[recipe] <= capacity
    tried = recipes[: recipes.index(recipe) + 1]
    close = any(abs(sizes[each] / capacity - 1) < CLEAR for each in tried)
    saves = round(fragmentation(one, recipe) / GIB, 3)
    return PlanCell(
        fits=fits,
        recipe=str(recipe) if fits else NONE,
        basis="predicted",
        confidence="close" if close else "clear",
        memory_gib=memory(one, recipe, asked),
        margin_percent=round(100 * (1 - sizes[recipe] / place.capacity), 2),
        env=ENV if fits and recipe.env else {},
        settings=settings(request, one) if fits else {},
        ladder=(Rung(step="Env", saves_gib=saves),) * (asked.limits.env and not recipe.env),
        advice=(*notes(found), *advice(found, asked, best, fits)),
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


def advice(found: Trace, asked: CodeAsked, best: int | None, fits: bool) -> tuple[str, ...]:
    """What would help where it does not fit, and what was not looked at."""
    request, strategy = asked.request, asked.request.strategy
    rows = (
        (best is None and len(found.traces) > 1,
         "memory does not grow with the batch: any batch fits, or none"),
        (not fits and best, f"a batch of {(best or 0) * request.gpus} would fit"),
        (not fits and not request.checkpointing,
         "`--checkpointing` keeps only the inputs of the repeated blocks"),
        (not fits and request.amp is None, "`--amp bf16` computes in 16 bits"),
        (not fits and strategy in ("ddp", "zero1"),
         "`--strategy fsdp` divides weights, gradients and states among the GPUs"),
        (fits and strategy == "zero1",
         "ZeRO 1 is reckoned from one GPU's step: states divided, gradients whole"),
    )  # fmt: skip
    return tuple(text for holds, text in rows if holds)
