"""tune --batch-size beside bisection by hand and other finders; recovery from out of memory."""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from acceptance.work import ROOT, Unanswered, Work, attempt

MODELS = ("conv", "transformer", "gpt2")
LIMIT_GIB = 6
"""Of the card's memory: small enough for a search to end in seconds."""
BIGGEST = 1 << 16
NEAR = 0.05
"""By which part tune's size may be below the one found by hand (it keeps 2 % free)."""
Fits = Callable[[int], bool]


def run(work: Work) -> None:
    attempt(work, "recover-exact", lambda: recovery(work))
    if work.on_card:
        attempt(work, "oom-survived", lambda: survival(work))
        attempt(work, "doubt-15", lambda: states_under_scaler(work))
    names = MODELS[1:2] if work.short else MODELS
    near: dict[str, float | None] = {}
    for name in names:
        near[name] = _model(work, name)
        _judged(work, near, len(names))


def _judged(work: Work, near: dict[str, float | None], every: int) -> None:
    """After each model, so that a killed part has said what it knew."""
    told = ", ".join(f"{name} {part or 0:.3f}" for name, part in near.items() if part is not None)
    unknown = [name for name, part in near.items() if part is None]
    fine = all(1 - NEAR <= part <= 1.01 for part in near.values() if part is not None)
    verdict = "fails" if not fine else "open" if unknown or len(near) < every else "holds"
    more = f"; no answer for {', '.join(unknown)}" if unknown else ""
    work.claim("tune-batch", verdict, f"of the size by hand: {told}{more}")


def _model(work: Work, name: str) -> float | None:
    """One row: tune's answer and the one by hand, trials and seconds; the part it reaches."""
    size = f"{LIMIT_GIB}GiB" if work.on_card else "1GiB"
    most = () if work.on_card else ("--max", "8")
    said = work.gpusetup(
        "tune", "--batch-size", "--reference", name, "--device", work.device, "--gpu-mem", size,
        "--steps", "3", "--seconds", "2", *most, "--json", name=f"tune-{name}", limit=120,
    )  # fmt: skip
    found, trials = said.document.get("batch_size"), said.document.get("trials", [])
    row: dict[str, Any] = {
        "model": name,
        "tune": found,
        "trials": len(trials),
        "seconds": round(said.seconds, 1),
    }
    if found is None:
        work.row("batch sizes", **row, problem=said.problem)
        return None
    row |= _found(work, name, "by hand", by_hand)
    work.row("batch sizes", **row)
    by = row["by hand"]
    return found / by if isinstance(by, int) and by else None


def _found(work: Work, name: str, finder: str, search: Callable[[Work, str], Any]) -> Any:
    """What a finder finds and its seconds; what it raises stands in place of a size."""
    began = time.monotonic()
    try:
        found = search(work, name)
    except Exception as problem:
        found = f"{type(problem).__name__}: {problem}"[:120]
    return {finder: found, f"{finder} seconds": round(time.monotonic() - began, 1)}


# --- by hand ---


def build(work: Work, name: str) -> Callable[[int], dict[str, Any]]:
    sys.path.insert(0, str(ROOT / "gpusetup" / "child_scripts"))
    made: Callable[[int], dict[str, Any]] = __import__("bench_models").reference(name, {})
    return made


def trial(work: Work, name: str) -> Fits:
    """Whether three steps of a size run within the limit, in this process."""
    make = build(work, name)

    def fits(batch: int) -> bool:
        try:
            three_steps(work, make(batch))
        except RuntimeError as problem:
            if "out of memory" not in str(problem):
                raise
            return False
        finally:
            emptied(work)
        return True

    return fits


def three_steps(work: Work, job: dict[str, Any]) -> None:
    import torch

    sys.path.insert(0, str(ROOT / "gpusetup" / "child_scripts"))
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


def limited(work: Work) -> None:
    """This process's allocator refuses beyond the limit; no setting of the card."""
    import torch

    if work.on_card:
        total = torch.cuda.mem_get_info()[1]
        torch.cuda.set_per_process_memory_fraction(min(1.0, LIMIT_GIB * 2**30 / total))


def emptied(work: Work) -> None:
    import torch

    gc.collect()
    if work.on_card:
        torch.cuda.empty_cache()


def by_hand(work: Work, name: str) -> int:
    """Doubling, then halving the interval, in one process; every size until one fails."""
    limited(work)
    return largest(trial(work, name), BIGGEST if work.on_card else 8)


def largest(fits: Fits, top: int) -> int:
    """
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


# --- out of memory ---


def survival(work: Work) -> None:
    """The driver refuses more than there is, and the next product is right."""
    import torch

    free, total = torch.cuda.mem_get_info()
    try:
        torch.empty(total, dtype=torch.uint8, device=work.device)
        refused = "not refused"
    except RuntimeError as problem:
        refused = str(problem).partition("\n")[0][:160]
    emptied(work)
    ones = torch.ones(64, 64, device=work.device)
    right = bool((ones @ ones == 64).all())
    told = f"free {free}, total {total}: {refused}; afterwards right: {right}"
    work.claim("oom-survived", right and "out of memory" in refused, told)


def recovery(work: Work) -> None:
    """The same gradient, whole and in micro-batches, in float64."""
    import torch

    from gpusetup.tune.recover import recover_from_oom

    torch.manual_seed(0)
    width, batch = (1024, 4096) if work.on_card else (32, 64)
    layers = [torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.Linear(width, 1)]
    model = torch.nn.Sequential(*layers).double().to(work.device)
    data = torch.randn(batch, width, dtype=torch.float64).to(work.device)
    model(data).square().mean().backward()
    whole = [one.grad.clone() for one in model.parameters()]
    model.zero_grad(set_to_none=True)

    def loss(part: Any) -> Any:
        if len(part) > batch // 4:
            refuse(work)
        return model(part).square().mean()

    done = recover_from_oom(loss, data, model=model, say=lambda text: None)
    emptied(work)
    pairs = zip(whole, (one.grad for one in model.parameters()), strict=True)
    off = max(float((a - b).abs().max() / a.abs().max()) for a, b in pairs)
    told = f"micro-batch {done.micro_batch_size} of {batch}, gradient off by {off:.1e}"
    work.claim("recover-exact", done.split and off < 1e-12, told)


def refuse(work: Work) -> None:
    """Really run out of memory on a card; on a CPU say what its allocator says."""
    import torch

    if work.on_card:
        torch.empty(torch.cuda.mem_get_info()[1], dtype=torch.uint8, device=work.device)
    raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes.")


def states_under_scaler(work: Work) -> None:
    """What a trial says stands after its 2 warm steps, beside what stands after 14."""
    found = []
    for warm in (2, 14):
        request = {"mode": "steps", "reference": "transformer", "device": work.device, "steps": 1,
                   "batch": 8, "seconds": 5, "amp": "fp16", "warm": warm}  # fmt: skip
        found.append(bench(work, request, limit=30)["static_bytes"])
    told = f"standing after 2 steps {found[0]} bytes, after 14 steps {found[1]}"
    work.claim("doubt-15", found[0] >= 0.99 * found[1], told)


def bench(work: Work, request: dict[str, Any], limit: float) -> dict[str, Any]:
    """The answer of one trial of tune, in a process of its own."""
    program = str(ROOT / "gpusetup" / "child_scripts" / "bench.py")
    said = work.program((sys.executable, program), limit, said_to=json.dumps(request))
    if said.exit is None:
        raise Unanswered(f"a trial did not end within {limit:.0f} s")
    if said.document.get("status") != "ok":
        raise RuntimeError(str(said.document.get("detail") or said.problem)[:300])
    return said.document
