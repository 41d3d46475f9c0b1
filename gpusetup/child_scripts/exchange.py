"""Exchange in pairs, as one rank of `gpusetup fleet sweep`. Runs in a child.

    exchange.py DEVICE      cpu:LOCAL, cuda:LOCAL or auto:LOCAL, with the place among a host's ranks
    exchange.py store       only the store where pairs meet: it computes nothing, and cannot hang

The first line it says is {"said": "ready"}, that of a store {"said": "store", "port": 41234}.
Then each line on stdin is a question, and one line answers it:

    {"do": "join", "address": "10.0.0.1", "port": 41234}
    {"said": "joined", "local": 0, "device": "NVIDIA H100 80GB HBM3"}     it is connected
    {"do": "exchange", "round": 4, "group": "4/0", "place": 0,
     "bytes": 33554432, "repeats": 8, "limit": 20.0, "address": "10.0.0.1", "port": 41234}
    {"said": "exchanged", "round": 4, "seconds": [0.0013, 0.0012]}
    {"said": "failed", "round": 4, "problem": "Connection reset by peer"}

A pair is a process group of its own for one round, so that one that fails leaves nothing behind.
Python 3.8 syntax; the standard library and torch.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from datetime import timedelta
from typing import Any, Callable, Dict, Iterator, List

HERE = os.path.dirname(os.path.abspath(__file__))
# Python leaves a script's own folder off the path under PYTHONSAFEPATH or `-P`.
if HERE not in sys.path:
    sys.path.insert(0, HERE)

import driver_answers  # type: ignore[import-not-found, unused-ignore]  # noqa: E402

Message = Dict[str, Any]

JOIN_SECONDS = 60.0


def say(**message: Any) -> None:
    driver_answers.say(message)


def main(device_argument: str) -> int:
    driver_answers.separate_output()
    os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")  # a collective past its limit raises
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")  # and does not end the process
    try:
        import torch

        if device_argument == "store":
            return keep_store(torch)
        kind, _, local = device_argument.partition(":")
        device = device_of(torch, kind, int(local or 0))
        torch.ones(8, device=device).sum().item()
    except Exception as problem:  # whatever a broken torch raises is this rank's answer
        say(said="broken", problem=first_line(problem))
        return 1
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else "cpu"
    say(said="ready")
    for question in questions():
        answer_question(torch, device, question, {"device": name, "local": int(local or 0)})
    return 0


def device_of(torch: Any, kind: str, local: int) -> str:
    """The device of this rank; where it sees one GPU alone, that one."""
    if kind == "cpu" or (kind == "auto" and not torch.cuda.is_available()):
        torch.set_num_threads(1)
        return "cpu"
    if not torch.cuda.is_available():
        raise RuntimeError("its torch sees no GPU")
    device = "cuda:%d" % (local % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def keep_store(torch: Any) -> int:
    """Listen until nobody asks any more."""
    store = torch.distributed.TCPStore("localhost", 0, None, True, wait_for_workers=False)
    say(said="store", port=store.port)
    for _ in sys.stdin:
        pass
    return 0


JOINED: Dict[str, Any] = {}
"""The store that this rank is connected to: a connection may cost seconds where names are looked up
in vain, so that it is kept."""


def join(torch: Any, place: Message, seconds: float) -> None:
    address, port, limit = str(place["address"]), int(place["port"]), timedelta(seconds=seconds)
    JOINED["store"] = torch.distributed.TCPStore(
        address, port, None, False, timeout=limit, wait_for_workers=False
    )


def questions() -> Iterator[Message]:
    for line in sys.stdin:
        with contextlib.suppress(ValueError):
            message = json.loads(line)
            if isinstance(message, dict):
                yield message


def answer_question(torch: Any, device: str, question: Message, own: Message) -> None:
    number = question.get("round")
    try:
        if question["do"] == "join":
            join(torch, question, JOIN_SECONDS)
            say(said="joined", **own)
        else:
            say(said="exchanged", round=number, seconds=exchange_seconds(torch, device, question))
    except Exception as problem:  # whatever a backend raises is this rank's answer
        say(said="failed", round=number, problem=first_line(problem))


def first_line(problem: BaseException) -> str:
    text = str(problem).strip() or type(problem).__name__
    return text.splitlines()[0][:300]


def seconds_of(torch: Any, device: str, run: Callable[[], Any]) -> float:
    """Seconds of one run."""
    began = time.perf_counter()
    run()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return max(time.perf_counter() - began, 1e-9)


def exchange_seconds(torch: Any, device: str, question: Message) -> List[float]:
    """Seconds of each all_reduce of the pair; a tiny one before each brings the ranks in step."""
    import torch.distributed as dist

    limit = timedelta(seconds=float(question["limit"]) / 2)  # to meet, and again to exchange
    if not JOINED:
        join(torch, question, limit.total_seconds())
    JOINED["store"].set_timeout(limit)
    failed = True
    try:
        dist.init_process_group(
            "nccl" if device.startswith("cuda") else "gloo",
            store=dist.PrefixStore(str(question["group"]), JOINED["store"]),
            rank=int(question["place"]),
            world_size=2,
            timeout=limit,
        )
        step = torch.ones(1, device=device)
        tensor = torch.zeros(max(1, int(question["bytes"]) // 4), device=device)
        dist.all_reduce(tensor)  # the first call sets connections and buffers up
        seconds = []
        for _ in range(int(question["repeats"])):
            seconds_of(torch, device, lambda: dist.all_reduce(step))
            seconds.append(seconds_of(torch, device, lambda: dist.all_reduce(tensor)))
        failed = False
        return seconds
    finally:
        if failed:
            JOINED.clear()  # an answer that came too late may stand in its connection
        leave_group(dist, device, failed)


def leave_group(dist: Any, device: str, failed: bool) -> None:
    """Give the group up; one whose collective failed is aborted, where this torch can."""
    abort = getattr(dist.distributed_c10d, "_abort_process_group", None)
    if abort is not None and failed and device.startswith("cuda"):
        with contextlib.suppress(Exception):
            abort()
    with contextlib.suppress(Exception):
        dist.destroy_process_group()
    with contextlib.suppress(AttributeError):
        # A failed start leaves this count, which is part of the names that ranks meet by, raised.
        dist.distributed_c10d._world.group_count = 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
