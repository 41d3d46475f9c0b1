#!/usr/bin/env python3
"""A worker of the trial: `child_scripts/exchange.py` with the faults that a file names.

    worker.py RANK FAULTS DEVICE

FAULTS is JSON, read anew before each question: `{"compute": {"3": 2}}` computes twice in rank 3;
`{"rate": 1e7, "slow": [[2, 5, 0.5]], "links": {"4": 0.5}}` makes exchanges last as long as links of
that rate in bytes/s would need, and slower by a share between two ranks or at one.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "gpusetup" / "child_scripts"))
exchange: Any = importlib.import_module("exchange")


def main(rank: str, faults: str, device: str) -> int:
    ask, product = exchange.answered, exchange.product
    planted: dict[str, Any] = {}

    def answered(torch: Any, device: str, asked: dict[str, Any]) -> None:
        planted.clear()
        planted.update(json.loads(Path(faults).read_text(encoding="utf-8")))
        planted["ranks"] = asked.get("ranks", [])
        if planted.get("rate"):
            slow_down(torch, planted)
        ask(torch, device, asked)

    def again(torch: Any, one: Any) -> Any:
        for _ in range(int(planted.get("compute", {}).get(rank, 1)) - 1):
            product(torch, one)
        return product(torch, one)

    exchange.answered, exchange.product = answered, again
    return int(exchange.main(device))


def slow_down(torch: Any, planted: dict[str, Any]) -> None:
    """An exchange lasts as long as the slowest link of its group makes it."""
    import torch.distributed as dist

    if hasattr(dist, "unhurried"):
        return
    dist.unhurried = dist.all_reduce

    def all_reduce(tensor: Any, *more: Any, **words: Any) -> Any:
        began = time.perf_counter()
        found = dist.unhurried(tensor, *more, **words)
        needed = tensor.numel() * tensor.element_size() / (planted["rate"] * share_of(planted))
        time.sleep(max(0.0, began + needed - time.perf_counter()))
        return found

    dist.all_reduce = all_reduce


def share_of(planted: dict[str, Any]) -> float:
    ranks = set(planted["ranks"])
    shares = [share for one, other, share in planted.get("slow", ()) if {one, other} <= ranks]
    shares += [share for rank, share in planted.get("links", {}).items() if int(rank) in ranks]
    return float(min(shares, default=1.0))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
