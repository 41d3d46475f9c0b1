"""What a written configuration does not say: it is read back and compared with the plan."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.configs.config import read_config
from gpusetup.plan.answer.workload import workload_of
from gpusetup.plan.config.question import FromConfig, for_gpus, question_of
from gpusetup.plan.model.workload import Recipe, Workload, samples_per_group

VALUES: tuple[tuple[str, str], ...] = (
    ("context", "--context"),
    ("strategy", "--strategy"),
    ("optimizer", "--optimizer"),
    ("step", "--step"),
    ("dtype", "--dtype"),
    ("amp", "--amp"),
    ("lora", "--lora"),
    ("lora_targets", "--lora-targets"),
    ("quantize", "--quantize"),
    ("selective", "--selective"),
    ("loss", "--loss"),
    ("tensor_parallel", "--tp"),
    ("pipeline_parallel", "--pp"),
    ("context_parallel", "--cp"),
    ("expert_parallel", "--ep"),
    ("attention", "--attention"),
)
SWITCHES: tuple[tuple[str, str], ...] = (
    ("accumulation", "--accumulate"),
    ("dora", "--dora"),
    ("trained_embeddings", "--train-embeddings"),
    ("checkpointing", "--checkpointing"),
    ("fused_kernels", "--fused-kernels"),
    ("compile", "--compile"),
    ("sequence_parallel", "--tp-sp"),
    ("offload_optimizer", "--offload optimizer"),
    ("offload_checkpoints", "--offload checkpoints"),
)
SAME = {"sdpa": "flash"}
"""SDPA without a mask is flash attention's kernel."""
CHOOSES_STEP = ("adam", "adamw")
"""Optimizers that step in more than one way; the others' names say it."""


def unsaid(text: str, trainer: str, w: Workload, recipe: Recipe) -> tuple[str, ...]:
    """The conditions of a plan that `--from-config` does not find in the text, as flags."""
    found = question_of(read_config(text.encode(), "train.yaml"), trainer)
    read = workload_of(for_gpus(found, w.gpus), w.shape, w.gpus)
    return (*_differences(w, read), *_of_recipe(found, w, recipe))


def _differences(w: Workload, read: Workload) -> Iterator[str]:
    for name, flag in VALUES:
        mine, other = getattr(w, name), getattr(read, name)
        if name == "step" and w.optimizer not in CHOOSES_STEP:
            continue
        if SAME.get(mine, mine) != SAME.get(other, other):
            yield f"{flag} {'none' if mine is None else mine}"
    for name, flag in SWITCHES:
        mine, other = getattr(w, name), getattr(read, name)
        if name == "sequence_parallel" and w.tensor_parallel == 1:
            continue
        if mine and not other:
            yield flag
        elif other and not mine:
            yield f"{flag}: off"
    if w.frozen:
        yield f"--frozen {w.frozen:g}"
    if w.trained_layers not in (None, read.trained_layers):
        yield f"--trained-layers {w.trained_layers}"


def _of_recipe(found: FromConfig, w: Workload, recipe: Recipe) -> Iterator[str]:
    if recipe.sp != (found.question.sp or 1):
        yield f"--sp {recipe.sp}"
    if recipe.offload and not any("offloads parameters" in note for note in found.notes):
        yield "parameters on the host"
    if found.per_gpu is not None and found.per_gpu != samples_per_group(w, recipe):
        yield f"{samples_per_group(w, recipe)} sequences of a micro-batch"
