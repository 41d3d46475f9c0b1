"""`gpusetup fleet run --slurm`: asks sinfo which nodes are idle, and puts one job on each."""

from __future__ import annotations

import argparse
import os
import secrets
from typing import TYPE_CHECKING

from gpusetup.errors import Blocked
from gpusetup.fleet.engines.engine import Engine, needed, plan_of
from gpusetup.fleet.engines.slurm_run import (
    BUSY,
    NO_SUCH_ROOM,
    SINFO,
    SINFO_SECONDS,
    START_SECONDS,
    Chosen,
    Job,
    chosen,
    outside_a_job,
    scancel_words,
    slots,
    srun_words,
)
from gpusetup.model.frozen import replace
from gpusetup.system.processes import Output
from gpusetup.system.processes import run as start

if TYPE_CHECKING:
    from gpusetup.fleet.work import Work


def slurm_engine(options: argparse.Namespace, work: Work) -> Engine:
    """Slurm as `fleet run` asks it."""
    from gpusetup.fleet.work import script

    found = _chosen(options)
    name = f"gpusetup-{secrets.token_hex(4)}"
    job = Job(name=name, script=script(work), limit=work.limit, more=tuple(options.after))
    asking = _Asking(job, found)
    return Engine(
        f"Slurm gets an exclusive job ({name}) for each of",
        tuple(found.idle),
        asking.ask,
        plan_of(tuple(found.idle), asking.words),
        not_asked=found.not_asked,
        taken=taken,
        end=asking.end,
        more_seconds=asking.patience - job.limit,
    )


def _chosen(options: argparse.Namespace) -> Chosen:
    from gpusetup.fleet.names import expanded

    needed("sinfo")
    said = start(SINFO, timeout=SINFO_SECONDS)
    if not said.ok:
        lines = said.stderr.strip().splitlines() or [f"exit {said.exit}"]
        raise Blocked(
            f"Slurm does not say which nodes it has: sinfo: {said.problem or lines[-1]}",
            hint="`scontrol ping` shows whether slurmctld answers",
        )
    rows = slots(said.stdout)
    return chosen(rows, options.partition, expanded(options.nodes) if options.nodes else ())


def taken(said: Output) -> str:
    """Why a node got no job, where another one came first."""
    if said.exit and not said.stdout and any(words in said.stderr for words in BUSY):
        return "it is no longer idle"
    return ""


class _Asking:
    """The jobs of one run, each by an srun that says what the job says."""

    def __init__(self, job: Job, found: Chosen) -> None:
        self.job, self.found = job, found
        self.environment = outside_a_job(os.environ)
        self.patience = job.limit + min(START_SECONDS, job.limit)
        """Seconds from the submission of a job to its end."""

    def words(self, node: str) -> tuple[str, ...]:
        return srun_words(self.job, node, self.found.idle[node])

    def ask(self, node: str) -> Output:
        """Run a node's job to its end; one that does not end in time is cancelled."""
        room = self.found.idle[node]
        said = self._begun(srun_words(self.job, node, room))
        if said.exit and NO_SUCH_ROOM in said.stderr:
            said = self._begun(srun_words(self.job, node, replace(room, cpus="")))
        if said.exit is None:
            self.cancel(node)
        return said

    def _begun(self, words: tuple[str, ...]) -> Output:
        return start(words, timeout=self.patience, environment=self.environment)

    def end(self) -> None:
        """Nobody waits any more, and what is left of this run is cancelled."""
        self.cancel()

    def cancel(self, node: str | None = None) -> None:
        """Cancel one node's job, or all of them."""
        start(scancel_words(self.job, node), timeout=SINFO_SECONDS, environment=self.environment)
