"""Compute and exchange in groups, as one rank of `gpusetup fleet sweep`. Runs in a child.

    exchange.py DEVICE ["cpu" or "cuda:N"]

The first line it says is {"said": "ready", "port": 41234, "device": "NVIDIA H100 80GB HBM3",
"torch": "2.9.0"}: on that port its own store listens, where groups that it leads meet.
Then each line on stdin is a question, and one line answers it:

    {"do": "compute", "round": 3}
    {"said": "computed", "round": 3, "rate": 512.3}                       runs per second
    {"do": "exchange", "round": 4, "group": "4/0", "place": 0, "size": 2, "address": "10.0.0.1",
     "port": 41234, "bytes": 33554432, "repeats": 8, "limit": 20.0}
    {"said": "here", "round": 4}                                          before it meets the others
    {"said": "exchanged", "round": 4, "seconds": [0.0013, 0.0012]}
    {"said": "failed", "round": 4, "problem": "Connection reset by peer"}

A group is a process group of its own for one round, so that one that fails leaves nothing behind.
Python 3.8 syntax; the standard library and torch.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import time
from datetime import timedelta
from typing import Any, Callable, Dict, Iterator, List

Message = Dict[str, Any]

CPU_SIDE, GPU_SIDE = 160, 4096
"""Rows of the square matrices that are multiplied: about half a millisecond on a core."""
CPU_RUNS, GPU_RUNS, GPU_WARM_SECONDS = 30, 30, 0.5
QUARTER = 4
"""A rate is that of the faster quarter of the runs: what disturbs one only makes it slower."""


def answers() -> Any:
    """`answers` beside this file, also under `-I`."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    try:
        return importlib.import_module("answers")
    finally:
        del sys.path[0]


ANSWERS = answers()


def say(**message: Any) -> None:
    ANSWERS.say(message)


def main(device: str) -> int:
    ANSWERS.keep_apart()
    os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")  # a collective past its limit raises
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")  # and does not end the process
    try:
        import torch

        store = prepared(torch, device)
    except Exception as problem:  # whatever a broken torch raises is this rank's answer
        say(said="broken", problem=first_line(problem))
        return 1
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else "cpu"
    say(said="ready", port=store.port, device=name, torch=str(torch.__version__))
    for asked in questions():
        answered(torch, device, asked)
    return 0


def prepared(torch: Any, device: str) -> Any:
    """The device is chosen and warm; the store of this rank listens."""
    import torch.distributed as dist

    if device.startswith("cuda"):
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    computed(torch, device)
    return dist.TCPStore(
        "localhost", 0, None, True, timeout=timedelta(seconds=60), wait_for_workers=False
    )


def questions() -> Iterator[Message]:
    for line in sys.stdin:
        with contextlib.suppress(ValueError):
            message = json.loads(line)
            if isinstance(message, dict):
                yield message


def answered(torch: Any, device: str, asked: Message) -> None:
    number = asked.get("round")
    try:
        if asked["do"] == "compute":
            say(said="computed", round=number, rate=computed(torch, device))
        else:
            say(said="here", round=number)
            say(said="exchanged", round=number, seconds=exchanged(torch, device, asked))
    except Exception as problem:  # whatever a backend raises is this rank's answer
        say(said="failed", round=number, problem=first_line(problem))


def first_line(problem: BaseException) -> str:
    text = str(problem).strip() or type(problem).__name__
    return text.splitlines()[0][:300]


# --- computing -----------------------------------------------------------------------------------


def computed(torch: Any, device: str) -> float:
    """Products of two matrices per second, by the faster quarter of the runs."""
    on_gpu = device.startswith("cuda")
    side, kind = (GPU_SIDE, torch.bfloat16) if on_gpu else (CPU_SIDE, torch.float32)
    one = torch.ones(side, side, device=device, dtype=kind)
    if on_gpu:
        until = time.monotonic() + GPU_WARM_SECONDS
        while time.monotonic() < until:  # clocks rise, and sink again where heat or power is short
            product(torch, one)
            torch.cuda.synchronize()
    took = timed(torch, device, lambda: product(torch, one), GPU_RUNS if on_gpu else CPU_RUNS)
    return 1.0 / sorted(took)[len(took) // QUARTER]


def product(torch: Any, one: Any) -> Any:
    return torch.mm(one, one)


def timed(torch: Any, device: str, run: Callable[[], Any], count: int) -> List[float]:
    """Seconds of each run."""
    if device.startswith("cuda"):
        return [on_gpu(torch, run) for _ in range(count)]
    found = []
    for _ in range(count):
        began = time.perf_counter()
        run()
        found.append(max(time.perf_counter() - began, 1e-9))
    return found


def on_gpu(torch: Any, run: Callable[[], Any]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    end.synchronize()
    return max(float(start.elapsed_time(end)) / 1e3, 1e-9)


# --- exchanging ----------------------------------------------------------------------------------


def exchanged(torch: Any, device: str, asked: Message) -> List[float]:
    """Seconds of each all_reduce in the group; a tiny one before each brings the ranks in step."""
    import torch.distributed as dist

    limit = timedelta(seconds=float(asked["limit"]) / 2)  # to meet, and again to exchange
    store = dist.TCPStore(
        asked["address"], int(asked["port"]), None, False, timeout=limit, wait_for_workers=False
    )
    dist.init_process_group(
        "nccl" if device.startswith("cuda") else "gloo",
        store=dist.PrefixStore(str(asked["group"]), store),
        rank=int(asked["place"]),
        world_size=int(asked["size"]),
        timeout=limit,
    )
    failed = True
    try:
        step = torch.ones(1, device=device)
        tensor = torch.zeros(max(1, int(asked["bytes"]) // 4), device=device)
        dist.all_reduce(tensor)  # the first call sets connections and buffers up
        found = []
        for _ in range(int(asked["repeats"])):
            dist.all_reduce(step)
            found += timed(torch, device, lambda: dist.all_reduce(tensor), 1)
        failed = False
        return found
    finally:
        leave(dist, device, failed)


def leave(dist: Any, device: str, failed: bool) -> None:
    """Give the group up; one whose collective failed is aborted, where this torch can."""
    abort = getattr(dist.distributed_c10d, "_abort_process_group", None)
    if abort is not None and failed and device.startswith("cuda"):
        with contextlib.suppress(Exception):
            abort()
    with contextlib.suppress(Exception):
        dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
