"""`gpusetup fleet sweep`: which rank, node or path is slow, broken or silent."""

from __future__ import annotations

import os
import time
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from gpusetup.commands.common import add_shared
from gpusetup.errors import Blocked, Unsatisfiable, UsageError
from gpusetup.render.console import Console

if TYPE_CHECKING:
    from gpusetup.verify.ranks.launch import Rank

LIMIT_SECONDS = 30.0
NO_LAUNCHER = "`fleet sweep` runs as one rank of several, and no launcher has set its number"
LAUNCHERS = (
    "start it with a launcher, one rank per GPU: `srun --ntasks-per-node=8 gpusetup fleet sweep`, "
    "or on each node `torchrun --nnodes=N --nproc-per-node=8 --rdzv-backend=c10d "
    "--rdzv-endpoint=HOST:29500 --no-python gpusetup fleet sweep`; under Ray in tasks that "
    "set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT"
)


SUMMARY = (
    "Start it with a launcher, as every rank: the ranks exchange data in pairs, and it names the "
    "rank, node or path that is slow, broken or silent. Exit 1 if one is."
)
EXAMPLES = (
    "srun --ntasks-per-node=8 gpusetup fleet sweep",
    "torchrun --nproc-per-node=8 --no-python gpusetup fleet sweep",
)


def configure(group: ArgumentParser) -> None:
    add_shared(group, "--device", "--python")
    add_shared(group, "--limit", help=f"for each round ({LIMIT_SECONDS:g})")


def run(options: Namespace, out: Console) -> int:
    """Take part as the rank that the launcher named; rank 0 shows the answer."""
    from gpusetup.verify.ranks.launch import rank_in
    from gpusetup.verify.values import Stop, WrongQuestion

    try:
        rank = rank_in(os.environ)
        if rank is None:
            raise UsageError(NO_LAUNCHER, hint=LAUNCHERS)
        return (_follow if rank.rank else _lead)(rank, options, out)
    except Stop as problem:
        kind = UsageError if isinstance(problem, WrongQuestion) else Blocked
        raise kind(problem.message, hint=problem.hint) from problem


def _worker(options: Namespace, device: str) -> tuple[str, ...]:
    from gpusetup.fleet.sweep.follower import SCRIPT
    from gpusetup.probe.target import choose_target
    from gpusetup.system.system import System

    python = choose_target(System(), options.python).python
    return python, str(SCRIPT), device


def _lead(rank: Rank, options: Namespace, out: Console) -> int:
    from gpusetup.fleet.sweep.answer import answer
    from gpusetup.fleet.sweep.leader import MEET_SECONDS, Leader
    from gpusetup.render.fleet import sweep_screen

    worker = _worker(options, f"{options.device}:{rank.local}")
    leader, code = Leader(rank, worker, _worker(options, "store")), 1
    try:
        out.talk(f"{rank.world} ranks; waiting for them at most {MEET_SECONDS:g} s")
        leader.meet()
        began = time.monotonic()
        sweep = leader.sweep(options.limit or LIMIT_SECONDS)
        hosts = {number: leader.host(number) for number in range(rank.world)}
        found = answer(sweep, leader.absent, hosts, time.monotonic() - began)
        code = out.answer(found, sweep_screen, yes=found.ok)
        return code
    finally:
        leader.end(code)


def _follow(rank: Rank, options: Namespace, out: Console) -> int:
    from gpusetup.fleet.sweep.follower import take_part
    from gpusetup.verify.ranks.gathering import Spoke

    spoke = Spoke(rank)
    worker = _worker(options, f"{options.device}:{rank.local}")
    end = take_part(spoke, worker)
    if not end:
        out.talk(
            f"error: rank {rank.rank} on {rank.host}: rank 0 at {rank.address} ended without a word"
        )
    return int(end.get("exit", Unsatisfiable.exit_code))
