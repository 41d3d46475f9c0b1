"""tune --batch-size beside bisection; recovery from out of memory."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from acceptance.conftest import Work
from acceptance.processes import ROOT

CHILDREN = str(ROOT / "gpusetup" / "child_scripts")
LIMIT_GIB = 6
"""Of the card's memory: small enough for a search to end in seconds."""
NEAR = 0.05
"""By which part tune's size may be below the one found by hand (it keeps 2 % free)."""
MODELS = ["transformer", *(pytest.param(n, marks=pytest.mark.whole) for n in ("conv", "gpt2"))]
Fits = Callable[[int], bool]


@pytest.mark.claim("recover-exact")
def test_the_gradient_is_the_same_whole_and_in_micro_batches(work: Work) -> None:
    import torch

    from gpusetup.tune.recover import recover_from_oom

    torch.manual_seed(0)
    width, batch = (1024, 4096) if work.on_card else (32, 64)
    layers = (torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.Linear(width, 1))
    model = torch.nn.Sequential(*layers).double().to(work.device)
    data = torch.randn(batch, width, dtype=torch.float64).to(work.device)
    model(data).square().mean().backward()
    whole = [one.grad.clone() for one in model.parameters()]
    model.zero_grad(set_to_none=True)

    def loss(part: Any) -> Any:
        if len(part) > batch // 4:
            run_out(work)
        return model(part).square().mean()

    done = recover_from_oom(loss, data, model=model, say=lambda text: None)
    pairs = zip(whole, (one.grad for one in model.parameters()), strict=True)
    off = max(float((a - b).abs().max() / a.abs().max()) for a, b in pairs)
    work.found(f"micro-batch {done.micro_batch_size} of {batch}, gradient off by {off:.1e}")
    assert done.split and off < 1e-12


def run_out(work: Work) -> None:
    """Really on a card; on a CPU what its allocator says."""
    import torch

    if work.on_card:
        torch.empty(torch.cuda.mem_get_info()[1], dtype=torch.uint8, device=work.device)
    raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes.")


@pytest.mark.card
@pytest.mark.claim("oom-survived")
def test_computing_goes_on_after_memory_ran_out(work: Work) -> None:
    import torch

    with pytest.raises(RuntimeError, match="out of memory") as refused:
        run_out(work)
    ones = torch.ones(64, 64, device=work.device)
    is_right = bool((ones @ ones == 64).all())
    work.found(f"{str(refused.value)[:160]}; afterwards right: {is_right}")
    assert is_right


@pytest.mark.card
@pytest.mark.claim("doubt-15")
def test_the_optimizers_states_stand_after_the_warm_steps(work: Work) -> None:
    """What a trial says stands after its 2 warm steps, beside what stands after 14."""
    asked = {"steps": 1, "batch": 8, "seconds": 5, "amp": "fp16"}
    few, many = (bench(work, warm=warm, **asked)["static_bytes"] for warm in (2, 14))
    work.found(f"standing after 2 steps {few} bytes, after 14 steps {many}")
    assert few >= 0.99 * many


def bench(work: Work, **request: Any) -> dict[str, Any]:
    """The answer of one trial of tune."""
    asked = {"mode": "steps", "reference": "transformer", "device": work.device, **request}
    argv = (sys.executable, f"{CHILDREN}/bench.py")
    said = work.program(argv, limit=30, told=json.dumps(asked))
    assert said.document.get("status") == "ok", said.document.get("detail") or said.problem
    return dict(said.document)


@pytest.mark.claim("tune-batch")
@pytest.mark.parametrize("model", MODELS)
def test_tune_finds_the_size_that_bisection_finds(work: Work, model: str) -> None:
    size, top = (f"{LIMIT_GIB}GiB", 1 << 16) if work.on_card else ("1GiB", 8)
    words = ("tune", "--batch-size", "--reference", model, "--device", work.device)
    more = ("--gpu-mem", size, "--max", str(top), "--json")
    said = work.gpusetup(*words, *more, limit=120)
    found, trials = said.document["batch_size"], len(said.document["trials"])
    by_hand = largest(trial(work, model), top)
    work.row("batch sizes", model=model, tune=found, trials=trials, by_hand=by_hand)
    work.found(f"{model} {found / by_hand:.3f} of the size by hand")
    assert 1 - NEAR <= found / by_hand <= 1.01


def trial(work: Work, name: str) -> Fits:
    """Whether three steps of a size run within the limit, in this process.

    Its allocator refuses beyond it; no setting of the card.
    """
    import torch

    sys.path.insert(0, CHILDREN)
    make = __import__("bench_models").reference(name, {})
    if work.on_card:
        total = torch.cuda.mem_get_info()[1]
        torch.cuda.set_per_process_memory_fraction(min(1.0, LIMIT_GIB * 2**30 / total))

    def fits(batch: int) -> bool:
        try:
            three_steps(work, make(batch))
        except RuntimeError as problem:
            if "out of memory" not in str(problem):
                raise
            return False
        finally:
            gc.collect()
            if work.on_card:
                torch.cuda.empty_cache()
        return True

    return fits


def three_steps(work: Work, job: dict[str, Any]) -> None:
    import torch

    steps = __import__("trace_step")
    model = job["model"].to(work.device).train()
    data = tuple(part.to(work.device) for part in job["batch"])
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        steps.loss_of(model, data, None)[1].backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    if work.on_card:
        torch.cuda.synchronize()


def largest(fits: Fits, top: int) -> int:
    """Doubling, then halving the interval.

    >>> largest(lambda batch: batch <= 37, 1000), largest(lambda batch: True, 8)
    (37, 8)
    """
    low, high = 0, 1
    while high <= top and fits(high):
        low, high = high, high * 2
    high = min(high, top + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
