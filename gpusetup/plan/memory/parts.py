"""The memory of one training step on the fullest GPU: every term a formula with its source.

All functions are pure and answer bytes. A term is an amount (parameters, tokens times width) times
bytes, which follow from dtypes, or are one of the fitted `Constants` where arithmetic alone cannot
say. At the end of the forward pass stand the states, what it kept, and the larger of two passing
things: the logits with their loss, or the layer whose backward pass begins.
"""

from __future__ import annotations

from gpusetup.model.frozen import Frozen, replace
from gpusetup.plan.memory.activations import (
    checkpoint_amount,
    exchange_amount,
    held_bytes,
    kept_bytes,
    layer_bytes,
)
from gpusetup.plan.memory.constants import Constants
from gpusetup.plan.memory.gaps import (
    OWN_STAY,
    gaps,
    idle_logits,
    keeps_gaps,
    own_segments,
    staying_share,
)
from gpusetup.plan.memory.loss import SHIFTED, loss_bytes
from gpusetup.plan.memory.runtime import runtime_bytes
from gpusetup.plan.memory.states import (
    QUANTIZED,
    alone_amount,
    base_bytes,
    cast_bytes,
    divisors,
    encoder_bytes,
    gradient_bytes,
    gradient_state_bytes,
    host_bytes,
    live_bytes,
    standing_bytes,
    unit_amount,
    unit_bytes,
    weight_bytes,
)
from gpusetup.plan.memory.step import step_bytes
from gpusetup.plan.model.workload import Recipe, Workload


class Parts(Frozen):
    """The memory of the fullest GPU by what it is for, in bytes, and the host's."""

    states: float
    """Parameters, gradients, optimizer states, and the FSDP unit that is gathered."""
    checkpoints: float
    """What the forward pass keeps for the backward pass."""
    logits: float
    """The logits and their loss; 0 where the backward pass of a layer is the larger."""
    fragmentation: float
    """Gaps that stay where the allocator needs the room."""
    other: float
    """CUDA context, NCCL, exchanges of sequence parallelism, a layer's backward pass."""
    runtime: float = 0.0
    """CUDA context and NCCL within `other`: what torch's allocator does not know of."""
    cached: float = 0.0
    """Gaps that the allocator gives back before it fails: reserved while there is room."""
    host: float = 0.0
    """What the machine's own memory holds for all GPUs."""
    moment: str = "step"
    """When that is: in a `step`, at the `loading` before it, or in an `evaluation`."""

    @property
    def total(self) -> float:
        """What the GPU must have: what is allocated, gaps that stay, and the runtime's."""
        return self.states + self.checkpoints + self.logits + self.fragmentation + self.other

    @property
    def reserved(self) -> float:
        """What `torch.cuda.max_memory_reserved` says on a GPU that has room."""
        return self.total - self.runtime + self.cached

    @property
    def allocated(self) -> float:
        """What `torch.cuda.max_memory_allocated` says: reserved memory without the gaps."""
        return self.total - self.runtime - self.fragmentation


class Terms(Frozen):
    """What stands or passes in a step on the fullest GPU, in bytes, whenever that is."""

    logits: float
    """The logits and all that stands with them."""
    layer: float
    """The backward pass of one layer."""
    kept: float
    """What the forward pass keeps."""
    gradients: float
    gathered: float
    """The unit that is gathered, or what stays gathered."""
    step: float
    """What the optimizer's step takes; less what is gathered, which is free by then."""

    @property
    def after(self) -> float:
        """What passes when gradients are there: a layer, or the optimizer's step."""
        return max(self.layer, self.step)

    @property
    def passing(self) -> float:
        """What passes at the end of the forward pass, beside what is gathered then."""
        return max(self.logits, self.layer)


def terms(w: Workload, r: Recipe, c: Constants) -> Terms:
    """All terms of a step, each by its formula."""
    checkpoint = c.checkpoint if w.batch is None else max(c.checkpoint, 2.0)
    unit = unit_amount(w) * unit_bytes(w, c.unit_offloaded if r.offload else c.unit)
    gathered = max(unit, live_bytes(w))
    return Terms(
        logits=loss_bytes(w, r, c),
        layer=layer_bytes(w, r) + held_bytes(w, r) + head_gradient_bytes(w, r),
        kept=checkpoint_amount(w, r) * checkpoint + kept_bytes(w, r) + cast_bytes(w),
        gradients=gradient_state_bytes(w, r),
        gathered=gathered,
        step=step_bytes(w, r) - (gathered if w.batch is not None else 0.0),
    )


class Highest(Frozen):
    """Which of a step's moments is the highest, and what stands there beside the states."""

    forward: bool
    """Whether it is the end of the forward pass."""
    by_logits: bool
    passing: float
    other: float
    """A layer's backward pass or the optimizer's step, where the logits are not the larger."""


def highest(w: Workload, t: Terms) -> Highest:
    """The end of the forward pass, the end of the backward pass, or the optimizer's step.

    Where gradients stay from one micro-batch to the next, that is the end of the forward pass.
    Otherwise gradients come while what was kept goes, and a later moment may be higher.
    """
    late = t.step if w.gradients_stay else t.gradients + t.after
    forward = w.batch is None or t.kept + t.passing >= late
    by_logits = forward and t.logits == t.passing
    return Highest(
        forward=forward,
        by_logits=by_logits,
        passing=t.passing,
        other=t.layer if forward else t.after,
    )


def parts(w: Workload, r: Recipe, c: Constants) -> Parts:
    """The memory of the fullest GPU at the highest moment of a run, part by part.

    A moment of the step, or the loading before it, or the evaluation between steps. Where the step
    reserves more than a moment that has more allocated, it is what `reserved` says.
    """
    t = terms(w, r, c)
    step = in_step(w, r, c, t)
    loading, evaluation = at_loading(w, c, step.host), at_evaluation(w, r, c, t)
    top = max((step, loading, evaluation), key=lambda one: one.total)
    return replace(top, cached=max(top.cached, step.total + step.cached - top.total))


def in_step(w: Workload, r: Recipe, c: Constants, t: Terms) -> Parts:
    """The memory at the highest moment of a step."""
    top = highest(w, t)
    runtime = runtime_bytes(w, c)
    standing = standing_bytes(w, r) + t.gathered
    staying = t.gradients if w.gradients_stay or not top.forward else 0.0
    held, stays = gaps_of(w, r, c, t, top)
    return Parts(
        states=standing + staying + (alone_amount(w, r) * c.alone if w.batch is None else 0.0),
        checkpoints=t.kept if top.forward else 0.0,
        logits=t.logits * top.by_logits,
        fragmentation=stays,
        other=runtime + exchange_amount(w, r) * c.exchange + (0.0 if top.by_logits else top.other),
        runtime=runtime,
        cached=held - stays + idle_logits(w, r, t.logits, at_peak=top.by_logits),
        host=host_bytes(w, r),
    )


def gaps_of(w: Workload, r: Recipe, c: Constants, t: Terms, top: Highest) -> tuple[float, float]:
    """All gaps on a GPU that has room, and those of them that stay where there is none.

    Logits come and go in pieces of one size, which are used again as they are: no gaps, but for
    expandable segments on a GPU that has room, where what is free is not kept by size.
    """
    even = top.by_logits and w.batch is not None and w.loss not in SHIFTED and not w.varied
    moving = t.kept + top.passing + (0.0 if w.gradients_stay else t.gradients)
    uneven = moving - (t.logits if even else 0.0)
    held = gaps(w, r, c, moving if r.env else uneven, top.passing)
    staying = uneven * staying_share(w, r) + OWN_STAY * own_segments(w, r, c)
    return held, held if w.batch is None or keeps_gaps(w, r) else min(held, staying)


def at_loading(w: Workload, c: Constants, host: float) -> Parts:
    """The memory before the first step, where every GPU gets the whole model first."""
    runtime = runtime_bytes(w, c)
    return Parts(states=loaded_bytes(w), checkpoints=0.0, logits=0.0, fragmentation=0.0,
                 other=runtime, runtime=runtime, host=host, moment="loading")  # fmt: skip


EVALUATED_LOGIT = {2: 10.0, 4: 8.0}
"""Bytes computed in -> bytes a logit of a loss without gradients: the logits, their 32-bit copy and
its log-softmax. Kernels that never hold the logits are for training alone: Liger's classes compute
logits where `self.training` is false."""


def at_evaluation(w: Workload, r: Recipe, c: Constants, t: Terms) -> Parts:
    """The memory of the trainer's own evaluation between steps, of `eval_batch` sequences.

    transformers' `per_device_eval_batch_size` is 8 unless it is said. Its Trainer keeps the logits
    of all batches on the GPU where metrics are computed; that is not counted.
    """
    runtime, rows = runtime_bytes(w, c), (w.eval_batch or 0) * w.length * w.written
    amount = rows * w.shape.vocabulary / w.tensor_parallel / (r.sp * w.context_parallel)
    states = standing_bytes(w, r) + t.gathered if rows else 0.0
    return Parts(states=states, checkpoints=0.0, fragmentation=0.0, other=runtime, runtime=runtime,
                 logits=amount * EVALUATED_LOGIT[w.compute_bytes], host=host_bytes(w, r),
                 moment="evaluation")  # fmt: skip


def head_gradient_bytes(w: Workload, r: Recipe) -> float:
    """The gradient of a trained head, which is there when the backward pass comes to the layers."""
    if w.gradients_stay or w.lora is not None or w.step == "backward" or r.offload:
        return 0.0
    head = w.shape.vocabulary * w.shape.hidden * w.trains_head / w.tensor_parallel
    return head * gradient_bytes(w) / divisors(w)[1]


def loaded_bytes(w: Workload) -> float:
    """Before the first step, where every GPU gets the whole model before it is divided.

    DeepSpeed's engine makes a model that was not built within `zero.Init` 16-bit where it trains
    so, and then moves it to the GPU (`_configure_distributed_model`): FLAN-T5 XXL ran out on V100s
    of 16 GB with its optimizer on the host (41.5 GiB in 32 bits), and fitted into 24 GB in bf16.
    A denoiser is loaded beside its encoders, where those are not left out.
    """
    whole = undivided_bytes(w) if w.load_whole else 0.0
    if w.encoders == "none":
        return whole
    return max(whole, base_bytes(w)) + encoder_bytes(w)


def undivided_bytes(w: Workload) -> float:
    """The weights of the whole model as they are loaded; a quantised base is so from the start."""
    if w.quantize in QUANTIZED:
        return base_bytes(replace(w, strategy="single"))
    return w.shape.parameters * weight_bytes(w)
