"""Which parts of a workload exclude each other: one rule each, with the way out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.errors import UsageError
from gpusetup.model.frozen import replace
from gpusetup.plan.memory.loss import LOSSES, SAME_AS
from gpusetup.plan.memory.optimizers import OPTIMIZERS
from gpusetup.plan.memory.states import QUANTIZED, SHARDED, WHOLE
from gpusetup.plan.model.workload import Workload, least_tokens, takes_longest

if TYPE_CHECKING:
    from gpusetup.plan.answer.question import Question


def check(w: Workload, question: Question) -> None:
    """Raise UsageError where the parts of a workload exclude each other."""
    for rule in RULES:
        rule(w, question)


def _one_gpu_is_one(w: Workload, question: Question) -> None:
    if w.strategy == "single" and w.gpus > 1:
        raise UsageError(
            f"`--strategy single` uses one GPU, `--gpus {w.gpus}` names {w.gpus}",
            hint="leave one of them out, or name ddp or fsdp",
        )


def _parallel_divides(w: Workload, question: Question) -> None:
    tp, pp, cp = w.tensor_parallel, w.pipeline_parallel, w.context_parallel
    if w.gpus % (tp * pp * cp):
        if cp > 1:
            raise UsageError(
                f"`--tp {tp}` times `--pp {pp}` times `--cp {cp}` does not divide {w.gpus} GPUs"
            )
        raise UsageError(
            f"`--tp {tp}` times `--pp {pp}` does not divide {w.gpus} GPUs",
            hint=f"{tp * pp} or a multiple of it is needed",
        )
    if w.shape.heads % tp:
        raise UsageError(f"`--tp {tp}` does not divide the {w.shape.heads} heads of the model")
    if pp > w.shape.layers:
        raise UsageError(f"`--pp {pp}` is more than the {w.shape.layers} layers of the model")
    if tp * pp > 1 and w.strategy in ("single", "dp", "device-map"):
        raise UsageError(f"`--strategy {w.strategy}` has neither tensor nor pipeline parallelism")


def _shard_divides(w: Workload, question: Question) -> None:
    if (w.shard is not None) != (w.strategy == "hsdp"):
        raise UsageError("`--strategy hsdp` and `--shard N` go together")
    if w.shard is not None and w.data_parallel % w.shard:
        raise UsageError(f"`--shard {w.shard}` does not divide {w.data_parallel} GPUs")


def _sp_divides(w: Workload, question: Question) -> None:
    sp = question.sp
    if sp is None or sp == 1:
        return
    if w.strategy in WHOLE:
        raise UsageError(
            f"`--sp {sp}` needs a sharded strategy, not {w.strategy}", hint="`--strategy fsdp`"
        )
    from gpusetup.plan.answer.choose import Limits, sequence_degrees

    goes = sequence_degrees(w, Limits(capacity=0))
    if sp not in goes:
        raise UsageError(
            f"`--sp {sp}` must divide both the {w.data_parallel} GPUs and the "
            f"{w.shape.heads // w.tensor_parallel} heads, and go into the "
            f"{w.shape.key_value_heads} key-value heads",
            hint=f"with these: {', '.join(map(str, goes))}",
        )


def _sharding_is_for_steps(w: Workload, question: Question) -> None:
    if w.batch is not None and w.tokens is not None:
        raise UsageError("`--batch` and `--max-tokens` exclude each other")


def _budget_takes_longest(w: Workload, question: Question) -> None:
    if w.tokens is None:
        return
    from gpusetup.plan.answer.choose import Limits, sequence_degrees

    enough = w.shape.heads * w.pipeline_parallel
    wide = replace(w, gpus=enough) if question.solve == "gpus" else w
    degrees = sequence_degrees(wide, Limits(capacity=0, sp=question.sp))
    if takes_longest(w, degrees[-1]):
        return
    least = [f"{least_tokens(w, sp):,}" + f" with SP={sp}" * (sp > 1) for sp in degrees]
    raise UsageError(
        f"{w.tokens:,} tokens a GPU (`--max-tokens`, `max_token_len_per_gpu`) are too few for a "
        f"sequence of {w.length:,}: the trainer refuses them",
        hint=f"at least {', '.join(least)}",
    )


def _adapters_or_frozen(w: Workload, question: Question) -> None:
    if w.lora is not None and w.frozen:
        raise UsageError("`--lora` and `--frozen` exclude each other", hint="LoRA freezes it all")
    if w.trained_layers is not None and (w.lora is not None or w.frozen):
        other = "--frozen" if w.frozen else "--lora"
        raise UsageError(
            f"`--trained-layers` and `{other}` exclude each other", hint="each says what is frozen"
        )


def _last_layers_are_there(w: Workload, question: Question) -> None:
    last = w.trained_layers
    if last is not None and last > w.shape.layers:
        raise UsageError(
            f"`--trained-layers {last}` is more than the {w.shape.layers} layers of the model"
        )
    if last is not None and w.pipeline_parallel > 1:
        raise UsageError(
            "`--trained-layers` and `--pp` exclude each other",
            hint="the last layers are all of one stage",
        )


def _quantised_is_frozen(w: Workload, question: Question) -> None:
    if w.quantize in QUANTIZED and w.lora is None and w.frozen < 1:
        raise UsageError(
            f"Weights in {w.quantize} are not trained themselves", hint="add `--lora 16`"
        )


def _selective_is_known(w: Workload, question: Question) -> None:
    said = w.selective
    if said not in (None, "op") and not (said.isdecimal() and 1 <= int(said) <= 1000):
        raise UsageError(
            f"`--selective {said}` is neither `op` nor every how many layers",
            hint="`op`, or `2`: every second layer",
        )


def _loss_is_known(w: Workload, question: Question) -> None:
    if w.loss not in LOSSES:
        raise UsageError(
            f"No loss is called {w.loss!r}", hint=f"one of: {', '.join((*LOSSES, *SAME_AS))}"
        )


def _optimizer_is_known(w: Workload, question: Question) -> None:
    if w.optimizer not in OPTIMIZERS or w.strategy not in SHARDED:
        raise UsageError(f"No optimizer {w.optimizer!r}", hint=f"one of: {', '.join(OPTIMIZERS)}")


def _unknown_is_unsaid(w: Workload, question: Question) -> None:
    if question.solve and getattr(question, question.solve) is not None:
        flags = {"gpus": "--gpus-needed"}
        flag = flags.get(question.solve, f"--max-{question.solve}")
        raise UsageError(f"`{flag}` looks for what `--{question.solve}` gives: leave one out")
    if question.solve == "context" and w.shape.fixed_tokens:
        raise UsageError(f"A sample of {w.shape.name} always has {w.shape.fixed_tokens} tokens")


def _encoders_are_a_denoisers(w: Workload, question: Question) -> None:
    if w.encoders != "none" and not (w.shape.sample and w.shape.sample.vae):
        raise UsageError(
            f"`--encoders` stand beside a denoiser of video, which {w.shape.name} is not",
            hint="`--beside GIB` says what else is on the GPU",
        )


RULES = (
    _encoders_are_a_denoisers,
    _one_gpu_is_one,
    _parallel_divides,
    _shard_divides,
    _sp_divides,
    _sharding_is_for_steps,
    _budget_takes_longest,
    _adapters_or_frozen,
    _last_layers_are_there,
    _quantised_is_frozen,
    _selective_is_known,
    _loss_is_known,
    _optimizer_is_known,
    _unknown_is_unsaid,
)
