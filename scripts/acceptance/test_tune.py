"""tune --batch-size next to sizes that were run by hand; recovery from out of memory."""

from __future__ import annotations

import gc
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from acceptance.conftest import NoAnswer, Work
from acceptance.processes import ROOT

CHILDREN = str(ROOT / "gpusetup" / "child_scripts")
LIMIT_GIB = 6
"""Of the card's memory: small enough for a search to end in seconds."""
NEAR = 0.1
"""By which part, and one, tune's size may be below the largest that runs. It keeps 300 MiB free:
5 % of this limit, 7 % of what the weights of the larger models leave of it."""
MORE_STEPS = 20
MODELS = ["transformer", *(pytest.param(n, marks=pytest.mark.whole) for n in ("conv", "gpt2"))]


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
    assert done.micro_batch_size < done.batch_size and off < 1e-12


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

    with pytest.raises(RuntimeError, match="out of memory"):
        run_out(work)
    ones = torch.ones(64, 64, device=work.device)
    assert bool((ones @ ones == 64).all())


@pytest.mark.card
@pytest.mark.claim("doubt-15")
def test_the_optimizers_states_are_there_after_the_warm_steps(work: Work) -> None:
    """What a trial says is resident after its 2 warm steps, and after 14."""
    asked = {"steps": 1, "batch": 8, "seconds": 5, "amp": "fp16"}
    few, many = (bench(work, warm=warm, **asked)["static_bytes"] for warm in (2, 14))
    work.found(f"after 2 steps {few} bytes, after 14 steps {many}")
    assert few >= 0.99 * many


def training(name: str) -> str:
    return f"{Path(__file__).with_name('trainings.py')}:{name}"


def bench(work: Work, **request: Any) -> dict[str, Any]:
    """The answer of one trial of tune."""
    code = training("transformer")
    asked = {"mode": "steps", "code": code, "device": work.device, **request}
    said = work.program((sys.executable, f"{CHILDREN}/bench.py"), told=json.dumps(asked))
    if said.document.get("status") != "ok":
        raise NoAnswer(said.document.get("detail") or said.problem)
    return said.document


found_by_tune: dict[str, int] = {}
"""Training -> the size that `tune --batch-size` answered."""


@pytest.mark.claim("tune-batch")
@pytest.mark.parametrize("model", MODELS)
def test_tune_finds_a_size_that_runs_and_a_tenth_more_does_not(work: Work, model: str) -> None:
    size, top = (f"{LIMIT_GIB}GiB", 1 << 16) if work.on_card else ("4GiB", 8)
    words = ("tune", "--batch-size", "--code", training(model), "--device", work.device)
    document = work.gpusetup(*words, "--gpu-mem", size, "--max", str(top), "--json").document
    found, trials = document["batch_size"] or 0, len(document["trials"])
    found_by_tune[model] = found
    larger = math.ceil(found * (1 + NEAR)) + 1
    runs = found > 0 and fits(work, model, found)
    larger_runs = found < top and fits(work, model, larger)
    work.row("batch sizes", model=model, tune=found, trials=trials, runs=runs, larger=larger,
             larger_runs=larger_runs)  # fmt: skip
    told = {True: "runs", False: "does not run"}
    beyond = f"{larger} {told[larger_runs]}" if found < top else "which is the most that was asked"
    work.found(f"{model}: {found} {told[runs]}, {beyond}")
    assert runs and not larger_runs


@pytest.mark.card
@pytest.mark.claim("doubt-28")
@pytest.mark.parametrize("model", MODELS)
def test_a_new_process_trains_on_with_the_size_that_tune_found(work: Work, model: str) -> None:
    """What tune relies on: a size fits if it ran under the allocator's limit.

    The allocator reserves more than is allocated while there is room (8 % for a GPT-2 of batch 4
    on an H100), and gives it back at the limit: the share says nothing, steps that run do.
    """
    if not found_by_tune.get(model):
        pytest.skip("tune found no size")
    words = (training(model), str(found_by_tune[model]), str(MORE_STEPS))
    said = work.program((sys.executable, str(Path(__file__)), work.device, *words))
    told = said.document or {"ran": False, "problem": said.problem}
    work.row("training on", model=model, batch=found_by_tune[model], **told)
    work.found(f"{model}: {told}")
    assert told["ran"] and told["reserved_bytes"] <= LIMIT_GIB * 2**30


def train_on(device: str, code: str, batch: int, count: int) -> dict[str, Any]:
    """What so many steps took of the allocator, whose limit is that of the search."""
    import torch

    torch.cuda.set_per_process_memory_fraction(LIMIT_GIB * 2**30 / torch.cuda.mem_get_info()[1])
    try:
        steps_of(device, code, batch, count)
    except torch.cuda.OutOfMemoryError as problem:
        return {"ran": False, "problem": str(problem)[:200]}
    reserved, allocated = torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated()
    retries = torch.cuda.memory_stats()["num_alloc_retries"]
    sizes = {"reserved_bytes": reserved, "allocated_bytes": allocated, "retries": retries}
    return {"ran": True, **sizes}


def steps_of(device: str, code: str, batch: int, count: int) -> None:
    """Train: AdamW, in float32."""
    import torch

    sys.path[:0] = [] if CHILDREN in sys.path else [CHILDREN]
    steps = __import__("trace_step")
    job = steps.job_for(steps.function_named(code), batch)
    model = job.model.to(device).train()
    data = tuple(part.to(device) for part in job.batch)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(count):
        steps.loss_of(model, data, None)[1].backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def fits(work: Work, name: str, batch: int) -> bool:
    """Whether three steps of a size run within the limit, in this process.

    Its allocator refuses beyond it; no setting of the card.
    """
    import torch

    if work.on_card:
        gc.collect()  # what the previous size left
        torch.cuda.empty_cache()
        total = torch.cuda.mem_get_info()[1]
        torch.cuda.set_per_process_memory_fraction(min(1.0, LIMIT_GIB * 2**30 / total))
    try:
        steps_of(work.device, training(name), batch, 3)
    except RuntimeError as problem:
        if "out of memory" not in str(problem):
            raise
        return False
    return True


if __name__ == "__main__":
    device, code, batch, count = sys.argv[1:]
    print(json.dumps(train_on(device, code, int(batch), int(count))))
