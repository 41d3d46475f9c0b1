"""Ranks that are forked from one process which has loaded torch: a fault costs no start.

Reads jobs as JSON lines: {"ranks", "port", "fault", "checks", "level", "seed"}; answers each with
{check: [the outcomes by rank]}, where a rank that gave none in time stands as null.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "tests" / "rank_faults"))

SECONDS = 60.0


def serve(job, rank, pipe):
    """One rank: the fault, then the checks."""
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(job["ranks"]),
        LOCAL_RANK=str(rank),
        LOCAL_WORLD_SIZE=str(job["ranks"]),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(job["port"]),
    )
    import torch
    from faults import put

    from gpusetup.verify.checks.table import function_of, named
    from gpusetup.verify.ranks import group
    from gpusetup.verify.values import RunOptions, set_for_checks

    torch.set_num_threads(1)
    group.COLLECTIVE_SECONDS = 8.0  # here nobody else computes
    set_for_checks(options=RunOptions(seed=job.get("seed", 1), level=job.get("level", "quick")))
    for name in job["checks"]:
        if name == job["checks"][1] and job["fault"]:
            put(job["fault"], rank)
        began = time.monotonic()
        try:
            found = function_of(named(name))("cpu")
            answer = [found.status, found.detail, time.monotonic() - began]
        except BaseException as problem:
            answer = ["failed", f"{type(problem).__name__}: {problem}", 0.0]
        os.write(pipe, (json.dumps([name, answer]) + "\n").encode())


def together(job):
    """Fork the ranks, and gather what they answer."""
    pipes, children = [], []
    for rank in range(job["ranks"]):
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(ours)
            try:
                serve(job, rank, theirs)
            finally:
                os.close(theirs)
                time.sleep(600)  # rank 0 holds the store: it ends with the others
        os.close(theirs)
        pipes.append(ours)
        children.append(child)
    said = gathered(pipes, job.get("seconds", SECONDS))
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    found = [dict(map(json.loads, text.decode().split("\n")[:-1])) for text in said]
    return {name: [each.get(name) for each in found] for name in job["checks"]}


def gathered(pipes, seconds):
    """What each rank says."""
    said = dict.fromkeys(pipes, b"")
    until, open_ones = time.monotonic() + seconds, set(pipes)
    while open_ones and time.monotonic() < until:
        ready, _, _ = select.select(list(open_ones), [], [], 1.0)
        for pipe in ready:
            part = os.read(pipe, 65536)
            said[pipe] += part
            if not part:
                open_ones.discard(pipe)
    for pipe in pipes:
        os.close(pipe)
    return [said[pipe] for pipe in pipes]


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from gpusetup.verify.ranks import (  # noqa: F401
        collectives,
        group,
        training,
    )

    for slow in ("torch._dynamo", "torch.fx.experimental.symbolic_shapes"):
        importlib.import_module(slow)
    importlib.import_module("torch.nn.parallel")
    for line in sys.stdin:
        print(json.dumps(together(json.loads(line))), flush=True)
