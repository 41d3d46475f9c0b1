"""The memory of `torch.nn.DataParallel`, which uses one process and needs the most memory on the
first GPU.

In each step the first GPU copies the weights to the others, and every GPU computes its share of the
batch. The outputs and gradients then go back to the first GPU, which is the only one with optimizer
states (torch/nn/parallel/data_parallel.py, replicate.py, gather in scatter_gather.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.plan.forward_memory import activations, layer_backward
from gpusetup.plan.job import Recipe, TrainingJob, samples, tokens
from gpusetup.plan.memory import memory, runtime
from gpusetup.plan.states import gradient_bytes, model_weights


def other_gpu_bytes(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes on each GPU other than the first: a copy of the weights, and gradients and
    activations for this GPU's share of the batch."""
    shape = job.shape
    logits = shape.vocabulary * tokens(job, recipe)
    outputs = logits + shape.classes * samples(job, recipe)
    # Each GPU holds its outputs and their gradient. Count no loss, because the first GPU computes
    # it.
    output_bytes = 2 * outputs * job.compute_bytes
    end_of_forward = activations(job, recipe) + output_bytes
    gradients = job.trained_parameters * gradient_bytes(job)
    end_of_backward = layer_backward(job, recipe) + gradients
    # The backward pass frees activations while it creates gradients, so the peak is the larger of
    # the two moments, not their sum.
    peak = max(end_of_forward, end_of_backward)
    return model_weights(job) + peak + runtime(job, recipe)


def data_parallel_notes(job: TrainingJob, recipe: Recipe) -> Iterator[str]:
    """Sentences of advice for a user of DataParallel: what each GPU holds, and why
    DistributedDataParallel is better."""
    first_gib = memory(job, recipe).total / GIB
    other_gib = other_gpu_bytes(job, recipe) / GIB
    distributed_job = replace(job, strategy="ddp")
    distributed_gib = memory(distributed_job, recipe).total / GIB
    yield (
        f"DataParallel: the first GPU holds most, {first_gib:.1f} GiB (weights, gradients, the "
        f"optimizer's states and the outputs of the whole batch); each other GPU holds "
        f"{other_gib:.1f} GiB (a copy of the weights, its gradients and activations)"
    )
    yield (
        f"use DistributedDataParallel instead (`--strategy ddp`): every GPU then needs "
        f"{distributed_gib:.1f} GiB, each has its own process, and none waits for the first. "
        f"Start it with `torchrun --nproc-per-node {job.gpus} train.py`"
    )
    # A data loader cannot be given a token budget as its batch size.
    if not job.fills_token_budget:
        yield (
            f"give DataParallel's loader the whole batch of {job.sequences:,}: it divides the "
            f"batch among the GPUs itself ({samples(job, recipe):,} each)"
        )
