"""A decision -> the public answer: memory in GiB, settings, ladder, advice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

from gpusetup.model.documents import (
    ConfigRead,
    FewerGpus,
    PlanCell,
    PlanMemory,
    PlanSpeed,
    RunnerUp,
)
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.shell import setting, shell_for
from gpusetup.model.units import GIB
from gpusetup.plan.answer.choose import Option, candidates, host_holds, near_limit
from gpusetup.plan.answer.decide import Case, Decision, better, decide
from gpusetup.plan.answer.doubt import doubt
from gpusetup.plan.answer.helps import helps
from gpusetup.plan.answer.ladder import ladder
from gpusetup.plan.answer.measured import NONE, is_standard
from gpusetup.plan.answer.place import Place
from gpusetup.plan.answer.speed import speed
from gpusetup.plan.answer.unasked import Unasked, left_open
from gpusetup.plan.memory.states import host_bytes
from gpusetup.plan.model.named import model_of_size
from gpusetup.plan.model.workload import Recipe, Workload, samples_per_group, tokens_per_gpu

ALLOCATOR = "expandable_segments:True"
ENV = {"PYTORCH_CUDA_ALLOC_CONF": ALLOCATOR, "PYTORCH_ALLOC_CONF": ALLOCATOR}
"""The variable's old name, which every torch reads, and the new one (torch 2.9 and later)."""

YARN_FAMILIES = ("qwen2", "qwen3", "qwen2_moe", "qwen3_moe")
MEASURED_SOURCE = "measured: Trinity-RFT's GPU configuration guide"
FITTED_SOURCE = "predicted by the memory model, which was fitted to measured jobs of this kind"
MODEL_SOURCE = (
    "predicted by the memory model, which met published figures that it had not seen within "
    "12.1 % in the median"
)


class Asked(Frozen):
    """What the answer is about, beside the decision."""

    place: Place
    case: Case
    solved: Literal["context", "batch", "gpus"] | None = None
    notes: tuple[str, ...] = ()
    """What was assumed where nothing was said."""
    config: ConfigRead | None = None
    """What was read of a training config."""
    trainer: str | None = None
    accumulate: int = 1
    """Micro-batches a step."""
    unasked: tuple[Unasked, ...] = ()
    """What the answer hangs on that nobody said."""
    brief: bool = False
    """Leave the ladder away (a grid of many)."""


def answer(decision: Decision, asked: Asked) -> PlanCell:
    """The plan of one workload."""
    w = decision.fit.workload
    shown = decision.shown
    fewer = better(decision, asked.case)
    fits = decision.recipe is not None
    return PlanCell(
        fits=fits,
        recipe=str(decision.recipe) if fits else NONE,
        basis="measured" if decision.measured else "predicted",
        confidence=_confidence(decision, asked),
        near_percent=round(100 * near_limit(w)),
        memory_gib=_memory(shown, asked.place.capacity),
        margin_percent=round(100 * (1 - shown.parts.total / asked.place.capacity), 2),
        runner_up=_runner_up(decision, asked.case),
        better=FewerGpus(gpus=fewer.fit.workload.gpus, recipe=str(fewer.recipe)) if fewer else None,
        env=((ENV if shown.recipe.env else {}) | _visible(w, asked)) if fits else {},
        settings=settings(w, shown.recipe) if fits else {},
        ladder=() if asked.brief else ladder(w, shown.recipe, asked.case.limits, _c(asked)),
        helps=() if asked.brief else helps(decision, asked.case),
        advice=tuple(_advice(decision, asked, fewer)),
        model=w.shape.name,
        parameters=w.shape.parameters,
        active_parameters=w.shape.active,
        gpu=asked.place.gpu,
        gpus=w.gpus,
        context=w.context,
        batch=w.batch,
        strategy=w.strategy,
        source=_source(decision),
        solved=asked.solved,
        speed=_speed(decision, asked),
        config=asked.config,
    )


def _source(decision: Decision) -> str:
    if decision.measured:
        return MEASURED_SOURCE
    return FITTED_SOURCE if is_standard(decision.fit.workload) else MODEL_SOURCE


def _speed(decision: Decision, asked: Asked) -> PlanSpeed | None:
    if decision.recipe is None or asked.place.rates is None:
        return None
    return speed(decision.fit.workload, decision.recipe, asked.place.rates)


def _visible(w: Workload, asked: Asked) -> dict[str, str]:
    """Which GPUs to show the trainer, where the machine has more than the plan uses."""
    count = asked.place.count
    if count is None or count <= w.gpus:
        return {}
    return {"CUDA_VISIBLE_DEVICES": first_gpus(w.gpus)}


def first_gpus(count: int) -> str:
    """
    >>> first_gpus(3)
    '0,1,2'
    """
    return ",".join(map(str, range(count)))


def _c(asked: Asked) -> Any:
    return asked.case.constants


def _confidence(decision: Decision, asked: Asked) -> Literal["measured", "clear", "close"]:
    if decision.measured:
        return "measured"
    known = not left_open(decision, asked.case, asked.unasked)
    return "clear" if decision.fit.clear and known else "close"


def _memory(option: Option, capacity: float) -> PlanMemory:
    p = option.parts
    values = {name: getattr(p, name) for name in PARTS} | {"capacity": capacity}
    if p.total <= capacity:  # the allocator gives back what it only keeps for later
        values["reserved"] = min(p.reserved, capacity - p.runtime)
    return PlanMemory(**{name: round(value / GIB, 3) for name, value in values.items()})


PARTS = ("states", "checkpoints", "logits", "fragmentation", "other", "total", "host",
         "allocated", "reserved")  # fmt: skip


def _runner_up(decision: Decision, case: Case) -> RunnerUp | None:
    """The recipe before the chosen one, or the one that lacks least where none fits."""
    usable = case.limits.usable
    if decision.recipe is None:
        near = decision.shown
        return RunnerUp(recipe=str(near.recipe), short_gib=_short(near, usable))
    before = [o for o in decision.fit.options if o.recipe.rank < decision.recipe.rank]
    if not before:
        return None
    near = min(before, key=lambda option: option.parts.total)
    return RunnerUp(recipe=str(near.recipe), short_gib=_short(near, usable))


def _short(option: Option, usable: float) -> float | None:
    lacks = option.parts.total - usable
    return round(lacks / GIB, 3) if lacks > 0 else None


# --- settings -----------------------------------------------------------------------------------


EXTRA = (
    "lora", "lora_targets", "dora", "quantize", "selective", "attention", "compile", "step", "loss",
    "tensor_parallel", "pipeline_parallel", "sequence_parallel", "context_parallel",
    "expert_parallel", "offload_optimizer", "offload_checkpoints", "trained_embeddings",
    "load_whole", "reentrant", "reshard", "kept_inputs", "trained_layers", "reference", "varied",
    "encoders",
)  # fmt: skip
"""Settings that are named where they are not the usual ones."""
PLAIN = Workload(shape=model_of_size(10**9, text=True), context=1)


def settings(w: Workload, r: Recipe) -> dict[str, Any]:
    """What to write into the trainer's configuration."""
    found: dict[str, Any] = {
        "strategy": "fsdp2" if w.strategy == "fsdp" else w.strategy,
        "gpus": w.gpus,
        "cpu_offload": r.offload,
        "sequence_parallel_size": r.sp,
        "gradient_checkpointing": w.checkpointing,
        "optimizer": w.optimizer,
        "mixed_precision": w.amp or (w.dtype if w.autocast and w.compute_bytes < 4 else "none"),
        "param_dtype": w.dtype,
    }
    found |= {name: getattr(w, name) for name in EXTRA if getattr(w, name) != getattr(PLAIN, name)}
    if not w.shape.vocabulary:
        found.pop("loss", None)
    if w.batch is None:
        found["max_model_len"] = w.context
        found["max_token_len_per_gpu"] = tokens_per_gpu(w, r)
    else:
        found["batch_per_gpu"] = samples_per_group(w, r)
    rope = yarn(w)
    return found | ({"rope_scaling": rope} if rope else {})


def yarn(w: Workload) -> dict[str, Any] | None:
    """The YaRN block for contexts beyond the native one; None where it is not needed or known."""
    native = w.shape.native_context
    if native is None or w.context <= native or w.shape.kind not in YARN_FAMILIES:
        return None
    return {
        "rope_type": "yarn",
        "factor": round(w.context / native, 6),
        "original_max_position_embeddings": native,
    }


# --- advice -------------------------------------------------------------------------------------


class Told(Frozen):
    """What the lines of advice are made from."""

    decision: Decision
    asked: Asked
    fewer: Decision | None

    @property
    def w(self) -> Workload:
        return self.decision.fit.workload


def _advice(decision: Decision, asked: Asked, fewer: Decision | None) -> Iterator[str]:
    told = Told(decision=decision, asked=asked, fewer=fewer)
    yield from asked.notes
    for line in LINES:
        yield from line(told)


def _use_fewer(told: Told) -> Iterator[str]:
    if told.fewer is None:
        return
    few, recipe = told.fewer.fit.workload.gpus, told.fewer.recipe
    family = "windows" if told.asked.place.system == "windows" else "linux"
    shown = setting("CUDA_VISIBLE_DEVICES", first_gpus(few), shell_for(family))
    yield f"use {few} of your {told.w.gpus} GPUs: there `{recipe}` does (`{shown}`)"


def _several_pay(told: Told) -> Iterator[str]:
    """Where one GPU would do: how much faster several are, or that they are not."""
    w, rates = told.w, told.asked.place.rates
    if w.gpus == 1 or rates is None or told.decision.recipe is None or told.asked.brief:
        return
    one = alone(w)
    found = decide(one, told.asked.case)
    if found.recipe is None:
        return
    here, there = speed(w, told.decision.recipe, rates), speed(one, found.recipe, rates)
    times = (
        here.tokens_per_second_low / there.tokens_per_second_low,
        here.tokens_per_second_high / there.tokens_per_second_high,
    )
    about = " to ".join(dict.fromkeys(f"{each:.1f}" for each in sorted(times)))
    what = f"one GPU would do with `{found.recipe}`; {w.gpus} are about {about}"
    yield f"{what} times as fast (an estimate)"


def alone(w: Workload) -> Workload:
    """The same work a GPU on one of them."""
    strategy = "fsdp" if w.batch is None else "single"
    batch = None if w.batch is None else -(-w.batch // max(w.data_parallel, 1))
    return replace(
        w, gpus=1, strategy=strategy, batch=batch, tensor_parallel=1, pipeline_parallel=1,
        context_parallel=1, expert_parallel=1, shard=None, sequence_parallel=False,
    )  # fmt: skip


def _what_is_needed(told: Told) -> Iterator[str]:
    """Where nothing fits: what it would take as it is."""
    if told.decision.recipe is None and not told.asked.brief:
        need = told.decision.shown.parts.total / GIB
        yield f"as it is, {need:.1f} GiB a GPU are needed, with `{told.decision.shown.recipe}`"


def _host_memory(told: Told) -> Iterator[str]:
    """That Offload would take more of the machine's own memory than there is."""
    limits, w = told.asked.case.limits, told.w
    missed = next((r for r in candidates(w, limits) if not host_holds(w, r, limits)), None)
    if missed is not None and limits.host is not None and not _fits_without(told):
        need = host_bytes(w, missed) / GIB
        have = limits.host / GIB
        yield f"Offload would need {need:.0f} GiB of the machine's own memory, there are {have:.0f}"


def _fits_without(told: Told) -> bool:
    return told.decision.recipe is not None and not told.decision.recipe.offload


def _more_than_there_are(told: Told) -> Iterator[str]:
    count = told.asked.place.count
    if count is not None and told.w.gpus > count:
        yield f"this machine has {count} GPU{'s' * (count > 1)}, the plan is for {told.w.gpus}"


def _positions(told: Told) -> Iterator[str]:
    native = told.w.shape.native_context
    if native is None or told.w.context <= native or told.w.shape.tokens is not None:
        return
    beyond = f"{told.w.context:,} tokens are beyond the native {native:,}"
    if told.w.shape.kind in YARN_FAMILIES:
        yield f"{beyond}: YaRN with factor {told.w.context / native:g}"
    else:
        yield f"{beyond}: the model needs its positions extended"


def _data_parallel(told: Told) -> Iterator[str]:
    if told.w.strategy == "dp":
        yield (
            "DataParallel keeps gradients of all, the optimizer's states and all outputs on the "
            "first GPU, the one counted here: DDP is faster, FSDP smaller"
        )


def _system(told: Told) -> Iterator[str]:
    where = {"windows": "Windows", "wsl": "WSL", "jetson": "Jetson"}.get(told.asked.place.system)
    if where:
        yield f"expandable segments (Env) do not work on {where}"
    if told.asked.place.unified:
        yield "the GPU has no memory of its own: Offload gains nothing, other programs count"
    if told.asked.place.system == "windows" and told.w.strategy not in ("single", "dp"):
        yield "FSDP2 with CPU offload and sequence parallelism need Linux"


def _others(told: Told) -> Iterator[str]:
    used = told.asked.place.used_bytes
    if used > 0.5 * GIB:
        yield f"other programs hold {used / GIB:.1f} GiB of the GPU now; the plan counts it as free"


def _estimate_differs(told: Told) -> Iterator[str]:
    """Where the measured recipe is one that the model would not have named."""
    fit = told.decision.fit
    model = fit.chosen.recipe if fit.chosen else None
    if told.decision.measured and model != told.decision.recipe:
        yield f"the model alone would say `{model if model else NONE}`: it is close to the limit"


MOMENTS = {
    "loading": "the highest moment is before the first step: every GPU holds the whole model",
    "evaluation": "the highest moment is the evaluation: a smaller `--eval-batch` lowers it",
}


def _moment(told: Told) -> Iterator[str]:
    """Which moment of the run decides, where it is none of a step."""
    line = MOMENTS.get(told.decision.shown.parts.moment)
    if line is not None:
        yield line


def _not_sure(told: Told) -> Iterator[str]:
    """Why a recipe with room to spare is not called clear."""
    decision = told.decision
    if decision.recipe is None or decision.measured or decision.fit.clear:
        return
    kind = doubt(decision.fit.workload, decision.recipe)
    yield from () if kind is None else (kind,)


def _unasked(told: Told) -> Iterator[str]:
    yield from left_open(told.decision, told.asked.case, told.asked.unasked)


LINES: tuple[Callable[[Told], Iterator[str]], ...] = (
    _use_fewer,
    _several_pay,
    _what_is_needed,
    _host_memory,
    _more_than_there_are,
    _positions,
    _data_parallel,
    _system,
    _others,
    _estimate_differs,
    _moment,
    _not_sure,
    _unasked,
)
