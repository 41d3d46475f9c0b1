"""The workload that a question asks about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpusetup.errors import UsageError
from gpusetup.model.frozen import replace
from gpusetup.plan.answer.excluded import check
from gpusetup.plan.answer.question import MOST, Question
from gpusetup.plan.memory.loss import SAME_AS
from gpusetup.plan.memory.states import QUANTIZED
from gpusetup.plan.model.named import (
    count,
    model_named,
    model_of_size,
    with_classes,
    with_masked_head,
    with_tables,
)
from gpusetup.plan.model.sample import of_size
from gpusetup.plan.model.shape import Shape
from gpusetup.plan.model.trainers import (
    attention_of,
    base_of,
    prepared,
    trainer_settings,
    with_masters,
)
from gpusetup.plan.model.workload import BYTES, Strategy, Workload

SAME_NAME = (
    "strategy", "optimizer", "dtype", "quantize", "selective", "attention", "fused_kernels",
    "compile", "step", "lora_targets", "dora", "trained_embeddings", "sequence_parallel",
    "context_parallel", "expert_parallel", "checkpointing", "load_whole",
    "reentrant", "reshard", "trained_layers", "eval_batch", "varied", "beside", "encoders",
)  # fmt: skip
"""What a question says about a workload under the workload's own name."""


def workload_of(
    question: Question, shape: Shape, gpus: int, *, linux: bool = True, linked: bool = False
) -> Workload:
    """The workload of a question on a number of GPUs; UsageError where it contradicts itself.

    What was said comes before what the trainer does by default, and that before our own defaults.
    """
    by_batch = counts_samples(question, shape)
    how = usual(question, by_batch=by_batch, linux=linux, gpus=gpus)
    how |= trainer_settings(question.trainer, gpus) if question.trainer else {}
    how |= attention_of(shape.kind, question.trainer)
    said = {n: getattr(question, n) for n in SAME_NAME if getattr(question, n) is not None}
    how |= prepared(how | said)
    computed = {"lora": question.lora, "amp": question.amp or how.get("amp")}
    how |= base_of(computed, question.trainer)
    how |= said
    how |= {f"offload_{what}": True for what in question.offload}
    if question.amp is not None:
        how["autocast"] = question.amp != "none"
    how["reference"] = how["dtype"] if question.reference else None
    if question.amp is None and question.lora is None:
        loaded = how["dtype"]
        how = with_masters(how, question.trainer, said=question.dtype is not None)
        how["frozen_dtype"] = loaded if how["dtype"] != loaded else None
    if question.selective:
        how["checkpointing"] = True
    elif question.checkpointing is not None:
        how["selective"] = None
    if question.loss:
        how["loss"] = SAME_AS.get(question.loss, question.loss)
    w = Workload(
        **how | {"amp": _amp(question, how, by_batch=by_batch)},
        shape=shape,
        gpus=gpus,
        linked=linked,
        context=_context(question, shape),
        batch=_batch(question, shape, gpus) if by_batch else None,
        tokens=question.tokens,
        accumulation=(question.accumulate or 1) > 1,
        tensor_parallel=question.tensor_parallel,
        pipeline_parallel=question.pipeline_parallel,
        micro_batches=question.accumulate if question.pipeline_parallel > 1 else None,
        shard=question.shard,
        lora=question.lora,
        frozen=question.frozen,
    )
    check(w, question)
    return w


def counts_samples(question: Question, shape: Shape) -> bool:
    """Whether a step is a number of samples; else a budget of tokens, as RL trainers fill it.

    Those train decoders of text: images, videos, encoders and classifiers come by the batch.
    """
    if question.batch is not None or question.solve == "batch":
        return True
    if question.tokens is not None or question.trainer == "trinity":
        return False
    return question.trainer is not None or not shape.writes_text


def usual(question: Question, *, by_batch: bool, linux: bool, gpus: int) -> dict[str, Any]:
    """Our own defaults: a plain loop, or the trainer of the measured cells.

    A frozen base is kept as people do, in bf16.
    """
    alone = question.lora is not None or question.quantize in QUANTIZED
    return {
        "strategy": default_strategy(by_batch=by_batch or not linux, gpus=gpus),
        "optimizer": "adamw",
        "dtype": "bf16" if alone else "fp32",
        "checkpointing": not by_batch,
        "loss": "eager" if by_batch else "trainer",
    }


def default_strategy(*, by_batch: bool, gpus: int) -> Strategy:
    """The trainer of the measured cells is FSDP2, on Linux; a plain loop is one GPU, or DDP."""
    if not by_batch:
        return "fsdp"
    return "ddp" if gpus > 1 else "single"


def shape_of_question(question: Question) -> Shape:
    """The model that is meant: by name, file or size, with its embedding tables.

    Raises UsageError where it is not said, unknown, or a number is out of range.
    """
    _in_range(question)
    if (question.model is None) == (question.params is None):
        raise UsageError(
            "One of `--model`, `--params` and `--code` says what is trained",
            hint='`gpusetup plan --model qwen3-8b --context 32768 --gpu "A100 80GB" --gpus 4`',
        )
    if question.model is not None:
        shape = model_named(question.model)
    else:
        text = question.context is not None or question.solve == "context" or question.grid
        shape = model_of_size(count(question.params or ""), text=text)
    shape = of_size(shape, question.frames, question.size)
    if question.yarn and question.yarn[1]:
        shape = replace(shape, native_context=question.yarn[1])
    rows = (question.users or 0) + (question.items or 0)
    shape = with_masked_head(shape) if question.mlm else shape
    shape = with_classes(shape, question.classes) if question.classes else shape
    return with_tables(shape, rows, question.embedding_dim) if rows else shape


# --- parts of it ---------------------------------------------------------------------------------


def _in_range(question: Question) -> None:
    for name, most in MOST.items():
        value: Any = getattr(question, name)
        if value is not None and not 1 <= value <= most:
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"`{flag} {value}` is out of range", hint=f"1 to {most:,}")
    if question.beside is not None and not 0 <= question.beside < 10**4:
        raise UsageError(f"`--beside {question.beside:g}` is out of range", hint="GiB: 8")
    if not 0 <= question.frozen <= 1:
        raise UsageError(f"`--frozen {question.frozen}` is no share", hint="0 to 1")


def _batch(question: Question, shape: Shape, gpus: int) -> int:
    """Samples of all GPUs: one each where nobody says how many, and none is looked for."""
    each = question.trainer or not shape.writes_text
    return question.batch or (gpus if each else 1)


def _context(question: Question, shape: Shape) -> int:
    if question.context is not None:
        return question.context
    if shape.tokens is not None:
        return shape.tokens
    # A number of samples, or of table rows, says that samples are counted and not tokens.
    samples = question.batch or question.solve == "batch" or question.users or question.items
    tables = question.users or question.items
    if question.grid or question.solve == "context" or tables or (samples and question.params):
        return 1
    if shape.encoder and shape.native_context is not None:
        return shape.native_context
    images = ", those of its images among them" * bool(shape.tower)
    raise UsageError(
        f"`--context` is missing: how many tokens the longest sequence has{images}",
        hint="`--context 4096`; `--max-context` finds the longest that fits",
    )


def _amp(question: Question, how: Mapping[str, Any], *, by_batch: bool) -> str | None:
    """Mixed precision is the trainer's default; a plain loop has it where it is asked for."""
    default = how.get("amp") or ("none" if by_batch or how["dtype"] != "fp32" else "bf16")
    said = question.amp or default
    return None if said == "none" or BYTES[said] >= BYTES[how["dtype"]] else said
