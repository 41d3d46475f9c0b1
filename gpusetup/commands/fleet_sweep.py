"""`gpusetup fleet sweep`: finds ranks, nodes and links that are slow, broken or do not respond."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from gpusetup.commands.common import DEVICE, LIMIT, PYTHON, shared
from gpusetup.commands.question import CommandQuestion
from gpusetup.commands.reply import Reply
from gpusetup.commands.reply import answer as reply
from gpusetup.errors import Blocked, Unsatisfiable, UsageError
from gpusetup.render.console import Console

if TYPE_CHECKING:
    from gpusetup.verify.ranks.launch import Rank

LIMIT_SECONDS = 30.0
NO_LAUNCHER = "`fleet sweep` must run as one of several ranks, but no launcher has set its rank"
LAUNCHERS = (
    "start it with a launcher, one rank per GPU: `srun --ntasks-per-node=8 gpusetup fleet sweep`, "
    "or on each node `torchrun --nnodes=N --nproc-per-node=8 --rdzv-backend=c10d "
    "--rdzv-endpoint=HOST:29500 --no-python gpusetup fleet sweep`; under Ray in tasks that "
    "set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT"
)


SUMMARY = """Finds slow links between GPUs. Start the command with a launcher, once for each
rank. The ranks exchange data in pairs, and the output names each rank, node or path that is slow,
broken or does not respond. Exit code 1: at least one rank, node or path has such a problem."""
EXAMPLES = (
    "srun --ntasks-per-node=8 gpusetup fleet sweep",
    "torchrun --nproc-per-node=8 --no-python gpusetup fleet sweep",
)


class FleetSweepQuestion(CommandQuestion):
    """The device with which a rank exchanges data, and the time limit of a round."""

    device: str = shared(DEVICE)
    python: str | None = shared(PYTHON)
    limit: float | None = shared(
        LIMIT, help=f"time limit for each round (default: {LIMIT_SECONDS:g})"
    )


QUESTION = FleetSweepQuestion


def run(question: FleetSweepQuestion, out: Console) -> Reply:
    """Take part as the rank that the launcher assigned; rank 0 returns the result."""
    from gpusetup.verify.ranks.launch import rank_in
    from gpusetup.verify.values import Stop, WrongQuestion

    try:
        rank = rank_in(os.environ)
        if rank is None:
            raise UsageError(NO_LAUNCHER, hint=LAUNCHERS)
        return _follow(rank, question, out) if rank.rank else _lead(rank, question, out)
    except Stop as problem:
        kind = UsageError if isinstance(problem, WrongQuestion) else Blocked
        raise kind(problem.message, hint=problem.hint) from problem


def _worker(question: FleetSweepQuestion, device: str) -> tuple[str, ...]:
    from gpusetup.fleet.sweep.follower import SCRIPT
    from gpusetup.probe.target import choose_target
    from gpusetup.system.system import System

    python = choose_target(System(), question.python).python
    return python, str(SCRIPT), device


def _lead(rank: Rank, question: FleetSweepQuestion, out: Console) -> Reply:
    from gpusetup.fleet.sweep.answer import answer
    from gpusetup.fleet.sweep.leader import MEET_SECONDS, Leader
    from gpusetup.render.fleet import sweep_screen

    worker = _worker(question, f"{question.device}:{rank.local}")
    leader = Leader(rank, worker, _worker(question, "store"))
    code = Unsatisfiable.exit_code
    try:
        out.talk(f"{rank.world} ranks; waiting for them at most {MEET_SECONDS:g} s")
        leader.meet()
        began = time.monotonic()
        sweep = leader.sweep(question.limit or LIMIT_SECONDS)
        hosts = {number: leader.host(number) for number in range(rank.world)}
        sweep_answer = answer(sweep, leader.absent, hosts, time.monotonic() - began)
        answer_with_screen = reply(sweep_answer, sweep_screen, yes=sweep_answer.ok)
        code = answer_with_screen.exit_code
        return answer_with_screen
    finally:
        leader.end(code)


def _follow(rank: Rank, question: FleetSweepQuestion, out: Console) -> Reply:
    from gpusetup.fleet.sweep.follower import take_part
    from gpusetup.verify.ranks.gathering import Spoke

    spoke = Spoke(rank)
    worker = _worker(question, f"{question.device}:{rank.local}")
    end = take_part(spoke, worker)
    if not end:
        out.talk(
            f"error: rank {rank.rank} on {rank.host}: rank 0 at {rank.address} ended without a word"
        )
    return Reply(exit_code=int(end.get("exit", Unsatisfiable.exit_code)))
