"""Estimates how many times faster several GPUs train than one: their number, reduced by the time
for exchanging gradients.

Each GPU computes different samples, so n GPUs do n times the work in a step. In each step they also
exchange gradients, and weights if these are sharded, which takes time that depends on the link. How
much of this time overlaps with computing is unknown, so the answer is a range.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpusetup.catalog.gpus import GpuRow, rows_or_none, tokens
from gpusetup.model.documents import Speed
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.plan.decide import Decision, decide
from gpusetup.plan.job import BYTES, SHARDED, Recipe, TrainingJob
from gpusetup.plan.job import tokens as tokens_of_gpu

PCIE_SPEED = 20e9
"""Bytes per second that programs reach in one direction over a PCIe 4.0 link with 16 lanes, which
can carry 32 GB/s."""
NVLINK_SPEEDS = {
    "V100 SXM2": 150e9, "A100 SXM4": 300e9, "H100 SXM5": 450e9, "H800 SXM5": 200e9,
    "H200 SXM": 450e9, "H20": 450e9, "B200": 900e9, "B300": 900e9,
}  # fmt: skip
"""Card that is always connected by NVLink in its machine -> bytes per second in one direction, half
of the sum in NVIDIA's datasheets. Cards that are only sometimes connected by an NVLink bridge count
as PCIe."""
SHARE_OF_PEAK = 0.4
"""The share of a GPU's peak speed that a training run reaches. Published runs reach 25 to 65 %
(tables of torchtitan and llm-foundry)."""


def speed_of_several(decision: Decision, rows: Sequence[GpuRow]) -> Speed | None:
    """How many times faster the job's GPUs are than one of them, as a range; None if one GPU is not
    enough for the job. `rows`: the catalog's GPUs, which give the card's peak speed and link.
    """
    job = decision.job
    if job.gpus == 1 or not decision.fits or not one_gpu_is_enough(decision):
        return None
    cards = rows_or_none(decision.place.gpu, rows)
    link, speed = "PCIe 4.0", PCIE_SPEED
    for name, nvlink_speed in NVLINK_SPEEDS.items():
        if cards and all(tokens(name) <= tokens(card.name) for card in cards):
            link, speed = "NVLink", nvlink_speed
            break
    sent_bytes = exchanged_bytes(job)
    sending = sent_bytes / speed
    # The slowest variant's peak, without sparsity; cards before Ampere only support fp16.
    tflops = [row.peak_tflops.get("bf16") or row.peak_tflops.get("fp16") for row in cards]
    peak = min(filter(None, tflops), default=None)
    # With an unknown peak, all is possible: the exchange dominates, or computing hides it.
    computing, lowest, highest = None, 1.0, float(job.gpus)
    if peak:
        computing = step_flop(job, decision.recipe) / (peak * 1e12 * SHARE_OF_PEAK)
        # The exchange runs either after computing or during it.
        lowest = job.gpus * computing / (computing + sending)
        highest = job.gpus * computing / max(computing, sending)
    return Speed(
        gpus=job.gpus,
        times_low=round(lowest, 1),
        times_high=round(highest, 1),
        exchanged_gib=round(sent_bytes / GIB, 2),
        sending_seconds=round(sending, 4),
        computing_seconds=round(computing, 4) if computing else None,
        link=link,
    )


def one_gpu_is_enough(decision: Decision) -> bool:
    """Whether a single GPU could train one GPU's share of the batch without offload; it would
    process the other shares later, with accumulated gradients."""
    job = decision.job
    if job.group_size > 1:
        return False
    alone = replace(job, gpus=1)
    if not job.fills_token_budget:
        alone = replace(alone, batch=max(job.sequences // job.gpus, 1))
    on_one = decide(alone, replace(decision.place, sp=None))
    return on_one.fits and not on_one.recipe.offload


def exchanged_bytes(job: TrainingJob) -> float:
    """The bytes that one GPU sends in a micro-step; with DataParallel, the bytes that the first GPU
    sends and receives.

    In a ring of n GPUs, each GPU sends (n - 1) / n of a tensor for an all-gather or a
    reduce-scatter, and twice that for an all-reduce. Sharded weights are gathered in the forward
    and in the backward pass.
    """
    weights, trained = job.shape.parameters, job.trained_parameters
    if job.strategy == "dp":
        # The first GPU sends the weights to each other GPU and receives its gradients.
        return (job.gpus - 1) * (weights + trained) * BYTES[job.dtype]
    sharded = SHARDED[job.strategy]
    times_gathered = 2 if "parameters" in sharded else 0
    times_reduced = 1 if "gradients" in sharded else 2
    gathered = weights * job.compute_bytes * times_gathered
    reduced = trained * job.trained_bytes * times_reduced
    return (job.gpus - 1) / job.gpus * (gathered + reduced)


def step_flop(job: TrainingJob, recipe: Recipe) -> float:
    """The floating-point operations that one GPU performs in a micro-step.

    Each parameter that a token uses costs 2 operations in the forward pass, 2 for the gradient of
    the input, and 2 for the gradient of a trained weight (Kaplan et al., arXiv 2001.08361).
    Checkpointing computes the forward pass twice. Attention adds two matrix products per token,
    with the keys and the values of half of the sequence on average; with the backward pass it costs
    three times as much.
    """
    shape = job.shape
    again = 1 if job.checkpointing else 0
    trained_share = min(1.0, job.trained_parameters / max(shape.parameters, 1))
    passes = 4 + 2 * trained_share + 2 * again
    attention = 2 * job.length * shape.query * shape.layers * (3 + again)
    return (passes * shape.active + attention) * tokens_of_gpu(job, recipe)
