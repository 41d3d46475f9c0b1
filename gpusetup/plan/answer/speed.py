"""An estimate of the speed of a training: FLOP, memory bandwidth, what GPUs send one another.

A step takes at least the larger of computing and sending (they overlap), at most their sum. How
much of the peak a kernel reaches is the share that published runs reach. So the answer is a range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from gpusetup.catalog.gpus import GpuRow, tokens
from gpusetup.model.codec import from_json
from gpusetup.model.documents import PlanSpeed
from gpusetup.model.frozen import Frozen
from gpusetup.plan.memory.states import SHARDED, ZERO, kept_by_optimizer
from gpusetup.plan.model.workload import BYTES, Recipe, Workload, tokens_per_gpu

ROWS = Path(__file__).resolve().parents[2] / "data" / "plan" / "rates.json"


class Link(Frozen):
    gbs: float
    """10^9 bytes a second in one direction."""
    source: str


class Share(Frozen):
    low: float
    high: float
    source: str


class RateTable(Frozen):
    as_of: str
    links: Mapping[str, Link]
    by_name: tuple[tuple[str, str], ...]
    share_of_peak: Share


@lru_cache(maxsize=1)
def table() -> RateTable:
    """The rates of links, and what share of a peak is reached; dated."""
    return from_json(ROWS.read_bytes(), RateTable, what=ROWS.name)


class Rates(Frozen):
    """What one GPU does in a second."""

    flop: float
    """Of dense 16-bit matrix products."""
    memory: float
    """Bytes read or written."""
    link: float
    """Bytes sent to the others."""
    host: float
    """Bytes to or from the machine's own memory."""


def rates_of(name: str, rows: Sequence[GpuRow]) -> Rates | None:
    """The rates of a GPU by its name; None where the catalog has none.

    >>> from gpusetup.catalog.file import load_catalog
    >>> round(rates_of("NVIDIA A100-SXM4-80GB", load_catalog().gpus).flop / 1e12)
    312
    """
    hits = [one for one in rows if name == one.name or name in one.smi_names]
    hits = [one for one in hits or _named(name, rows) if one.memory_bandwidth_gbs]
    if not hits:
        return None
    row = min(hits, key=lambda one: one.memory_bandwidth_gbs or 0)
    peak = row.peak_tflops.get("bf16") or row.peak_tflops.get("fp16") or row.peak_tflops.get("fp32")
    if not peak:
        return None
    known = table()
    words = tokens(row.name)
    link = next((link for part, link in known.by_name if tokens(part) <= words), "pcie")
    return Rates(
        flop=peak * 1e12,
        memory=(row.memory_bandwidth_gbs or 0) * 1e9,
        link=known.links[link].gbs * 1e9,
        host=known.links["pcie"].gbs * 1e9,
    )


def _named(name: str, rows: Sequence[GpuRow]) -> Sequence[GpuRow]:
    """The rows that a person's name for a card means; the slowest of several is taken."""
    from gpusetup.catalog.gpus import rows_named
    from gpusetup.errors import UsageError

    try:
        return rows_named(name, rows)
    except UsageError:
        return ()


def speed(w: Workload, r: Recipe, rates: Rates) -> PlanSpeed:
    """Tokens (samples, where a sample has one token) a second of all GPUs together."""
    known = table().share_of_peak
    amount = tokens_per_gpu(w, r)
    work = flop_a_token(w) * amount / (w.tensor_parallel * w.pipeline_parallel)
    fixed = step_seconds(w, r, rates)
    sent = sent_bytes(w, r) / rates.link + offload_bytes(w, r) / rates.host
    fast = max(work / (rates.flop * known.high), sent) + fixed
    slow = work / (rates.flop * known.low) + sent + fixed
    groups = w.gpus / (w.tensor_parallel * w.stages)
    return PlanSpeed(
        tokens_per_second_low=round(amount * groups / slow, 1),
        tokens_per_second_high=round(amount * groups / fast, 1),
        sending_share=round(sent / (sent + work / (rates.flop * known.high)), 3),
    )


def flop_a_token(w: Workload) -> float:
    """Forward 2 for each parameter that a token uses, backward 4, of which 2 for trained ones only.

    Checkpointing computes the forward pass twice (Kaplan et al., arXiv 2001.08361; Korthikanti et
    al., arXiv 2205.05198). Attention: two products of queries with half of the sequence's keys and
    values.

    >>> from gpusetup.plan.model.named import model_named
    >>> w = Workload(shape=model_named("llama-3.1-8b"), context=1, checkpointing=False)
    >>> round(flop_a_token(w) / 1e9)
    48
    """
    passes = 2 + 2 + 2 * min(1.0, w.trained / max(w.shape.parameters, 1)) + 2 * w.checkpointing
    pairs = w.length / 2
    attention = 2 * pairs * w.shape.query * w.shape.layers
    return passes * w.shape.active + (6 + 2 * w.checkpointing) * attention


def sent_bytes(w: Workload, r: Recipe) -> float:
    """What a GPU sends in a step: gradients, sharded weights twice, SP's exchanges.

    A ring sends (n - 1) / n of a tensor for a gather or a reduction to shards, twice that for both.
    """
    n = w.data_parallel
    if n == 1:
        return 0.0
    ring = (n - 1) / n
    cut_weights, cut_gradients, _ = SHARDED[w.strategy]
    weights = w.shape.parameters * w.compute_bytes * 2 * cut_weights
    gradients = w.trained * (w.compute_bytes if w.strategy in ZERO else BYTES[w.dtype])
    exchange = 0.0
    if r.sp > 1:
        each = w.shape.layers * w.shape.hidden * tokens_per_gpu(w, r) * w.compute_bytes
        exchange = 8 * each * (r.sp - 1) / r.sp
    return ring * (weights + gradients * (1 if cut_gradients else 2)) + exchange


def offload_bytes(w: Workload, r: Recipe) -> float:
    """What goes to the machine's memory and back in a step."""
    if r.offload:
        return (2 * w.shape.parameters * w.compute_bytes + 2 * w.trained * BYTES[w.dtype]) / w.gpus
    if w.offload_optimizer:
        return w.trained * (BYTES[w.dtype] + w.compute_bytes) / w.gpus
    return 0.0


def step_seconds(w: Workload, r: Recipe, rates: Rates) -> float:
    """The optimizer reads and writes weights, gradients and states once; on the host at a tenth."""
    each = 3 * BYTES[w.dtype] + 2 * kept_by_optimizer(w)
    shared = w.data_parallel if SHARDED[w.strategy][2] else 1
    slower = 10 if r.offload or w.offload_optimizer else 1
    return w.trained * each / shared / rates.memory * slower
