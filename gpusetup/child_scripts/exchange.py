"""Exchanges data with other ranks in pairs, as one rank of `gpusetup fleet sweep`. Runs in a child
process.

    exchange.py DEVICE      cpu:LOCAL, cuda:LOCAL or auto:LOCAL, with the place among a host's ranks
    exchange.py store       only the store where pairs meet: it computes nothing, and cannot hang

The first line of its output is {"said": "ready"} or, for a store, {"said": "store", "port": 41234}.
After that, each line on stdin is a request, which is answered with one line:

    {"do": "join", "address": "10.0.0.1", "port": 41234}
    {"said": "joined", "local": 0, "device": "NVIDIA H100 80GB HBM3"}     it is connected
    {"do": "exchange", "round": 4, "group": "4/0", "place": 0,
     "bytes": 33554432, "repeats": 8, "limit": 20.0, "address": "10.0.0.1", "port": 41234}
    {"said": "exchanged", "round": 4, "seconds": [0.0013, 0.0012]}
    {"said": "failed", "round": 4, "problem": "Connection reset by peer"}

Each pair forms a new process group for one round, so that a failed group leaves nothing behind.
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
# With PYTHONSAFEPATH or `-P`, Python leaves a script's own folder off the path.
if HERE not in sys.path:
    sys.path.insert(0, HERE)

import driver_answers  # type: ignore[import-not-found, unused-ignore]  # noqa: E402

Message = Dict[str, Any]

JOIN_SECONDS = 60.0


def say(**message: Any) -> None:
    driver_answers.say(message)


def main(device_argument: str) -> int:
    """Get ready, then carry out requests until there are no more."""
    driver_answers.separate_output()
    os.environ.setdefault(
        "TORCH_NCCL_BLOCKING_WAIT", "1"
    )  # if a collective exceeds its limit, raise
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")  # and do not end the process
    kind, _, local_text = device_argument.partition(":")
    local = 0
    try:
        import torch

        if device_argument == "store":
            return keep_store(torch)
        local = int(local_text or 0)
        device = device_of(torch, kind, local)
        # If torch cannot compute here, let it fail now and not later in a pair.
        numbers = torch.ones(8, device=device)
        numbers.sum().item()
    except Exception as problem:  # any error of a broken torch is this rank's answer
        say(said="broken", problem=first_line(problem))
        return 1
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else "cpu"
    own = {"device": name, "local": local}
    say(said="ready")
    for question in questions():
        answer_question(torch, device, question, own)
    return 0


def device_of(torch: Any, kind: str, local: int) -> str:
    """The device for this rank: the GPU with its local number, or the only visible one."""
    has_gpu = torch.cuda.is_available()
    if kind == "cpu" or (kind == "auto" and not has_gpu):
        # The ranks on a host share its cores.
        torch.set_num_threads(1)
        return "cpu"
    if not has_gpu:
        raise RuntimeError("its torch sees no GPU")
    number = local % torch.cuda.device_count()
    device = "cuda:%d" % number
    torch.cuda.set_device(device)
    return device


def keep_store(torch: Any) -> int:
    """Run the store until stdin is closed."""
    store = torch.distributed.TCPStore("localhost", 0, None, True, wait_for_workers=False)
    say(said="store", port=store.port)
    for _ in sys.stdin:
        pass
    return 0


JOINED: Dict[str, Any] = {}
"""The store that this rank is connected to. We keep the connection, because connecting takes
seconds if host names cannot be looked up."""


def join(torch: Any, place: Message, seconds: float) -> None:
    """Connect to the store through which pairs find each other."""
    address = str(place["address"])
    port = int(place["port"])
    limit = timedelta(seconds=seconds)
    # The store cannot know the number of ranks, because pairs come and go.
    JOINED["store"] = torch.distributed.TCPStore(
        address, port, None, False, timeout=limit, wait_for_workers=False
    )


def questions() -> Iterator[Message]:
    """The leader's requests, one per line."""
    for line in sys.stdin:
        # Ignore lines that are not requests.
        with contextlib.suppress(ValueError):
            message = json.loads(line)
            if isinstance(message, dict):
                yield message


def answer_question(torch: Any, device: str, question: Message, own: Message) -> None:
    """Carry out a request, and report how it ended."""
    number = question.get("round")
    try:
        if question["do"] == "join":
            join(torch, question, JOIN_SECONDS)
            say(said="joined", **own)
            return
        seconds = exchange_seconds(torch, device, question)
        say(said="exchanged", round=number, seconds=seconds)
    except Exception as problem:  # any error of a backend is this rank's answer
        say(said="failed", round=number, problem=first_line(problem))


LONGEST_LINE = 300
"""The greatest length of a backend's message, in characters; NCCL's messages have many lines."""


def first_line(problem: BaseException) -> str:
    """The first line of an error's message or, if it is empty, the error's class."""
    message = str(problem).strip()
    text = message or type(problem).__name__
    line = text.splitlines()[0]
    # The other lines are a trace of the backend's own code.
    return line[:LONGEST_LINE]


def seconds_of(torch: Any, device: str, run: Callable[[], Any]) -> float:
    """How many seconds one run takes."""
    began = time.perf_counter()
    run()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return max(time.perf_counter() - began, 1e-9)


def exchange_seconds(torch: Any, device: str, question: Message) -> List[float]:
    """The seconds of each all_reduce of the pair. A tiny all_reduce before each one synchronizes
    the ranks."""
    import torch.distributed as dist

    limit = timedelta(seconds=float(question["limit"]) / 2)  # once to meet, once to exchange
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
        dist.all_reduce(tensor)  # the first call sets up connections and buffers
        seconds = []
        for _ in range(int(question["repeats"])):
            seconds_of(torch, device, lambda: dist.all_reduce(step))
            seconds.append(seconds_of(torch, device, lambda: dist.all_reduce(tensor)))
        failed = False
        return seconds
    finally:
        if failed:
            JOINED.clear()  # a late answer may still be waiting in the connection
        leave_group(dist, device, failed)


def leave_group(dist: Any, device: str, failed: bool) -> None:
    """Leave the group. If its collective failed, abort it, if this torch can."""
    abort = getattr(dist.distributed_c10d, "_abort_process_group", None)
    if abort is not None and failed and device.startswith("cuda"):
        with contextlib.suppress(Exception):
            abort()
    with contextlib.suppress(Exception):
        dist.destroy_process_group()
    with contextlib.suppress(AttributeError):
        # After a failed start, torch's count of groups is too high. Reset it, because it is part of
        # the names by which ranks find each other.
        dist.distributed_c10d._world.group_count = 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
