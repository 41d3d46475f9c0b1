"""monitor's verdict on workloads of known kind; as a program (NAME SECONDS), one of these."""

from __future__ import annotations

import sys
import time

import pytest
import torch

from acceptance.conftest import Work

KINDS = ("input-starved", "launch-bound", "memory-bound", "memory-tight", "good", "idle")


@pytest.mark.card
@pytest.mark.parametrize("name", KINDS)
def test_the_verdict_is_the_kind_of_the_workload(work: Work, name: str) -> None:
    command = (sys.executable, __file__, name, "6")
    said = work.gpusetup("monitor", "--json", "--interval", "0.5", "--", *command)
    verdict = said.document.get("verdict")
    if verdict is None:
        pytest.skip(said.problem)
    work.found(f"{name}: {verdict}")
    assert verdict == name


BLOCK = 1 << 30
PRODUCTS = {
    "input-starved": (4096, 0.05, 0.15),
    "good": (2048, 0.2, 0.0),
    "memory-tight": (2048, 0.2, 0.0),
    "idle": (16, 0.0, 0.2),
}
"""Name -> the side of the matrices that are multiplied, for how many seconds, and the pause."""


def step(name: str, tensor: torch.Tensor) -> None:
    """Some work for the card, which is waited for."""
    _, busy, pause = PRODUCTS.get(name, (0, 0.0, 0.0))
    ends = time.perf_counter() + busy
    if name == "launch-bound":
        for _ in range(2000):
            tensor.add_(1).mul_(0.5)
    elif name == "memory-bound":
        for _ in range(50):
            tensor.clone()
    while time.perf_counter() < ends:
        for _ in range(max(1, 400_000 // len(tensor))):
            tensor @ tensor
        torch.cuda.synchronize()
    time.sleep(pause)


def main(name: str, seconds: float) -> None:
    held = []
    if name == "memory-tight":  # all but one part in a hundred
        free, total = torch.cuda.mem_get_info()
        for _ in range((free - total // 100) // BLOCK):
            held.append(torch.empty(BLOCK, dtype=torch.uint8, device="cuda"))
    if name in PRODUCTS:
        side = PRODUCTS[name][0]
        tensor = torch.randn(side, side, device="cuda", dtype=torch.bfloat16)
    elif name == "launch-bound":
        tensor = torch.ones(16, device="cuda")
    else:
        tensor = torch.ones(BLOCK, device="cuda", dtype=torch.uint8)
    ends = time.monotonic() + seconds
    step(name, tensor)
    while time.monotonic() < ends:
        step(name, tensor)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
