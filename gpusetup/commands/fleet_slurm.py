"""`gpusetup fleet run --slurm`: asks sinfo which nodes are idle, and puts one job on each."""

from __future__ import annotations

import argparse
import os
import secrets
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.errors import Blocked
from gpusetup.fleet.engines.engine import Engine, needed, plan_of
from gpusetup.fleet.engines.slurm_run import (
    BUSY,
    END,
    ERRORS,
    NO_SUCH_ROOM,
    SINFO,
    SINFO_SECONDS,
    START_SECONDS,
    Chosen,
    Job,
    chosen,
    outside_a_job,
    sbatch_words,
    scancel_words,
    slots,
    srun_words,
)
from gpusetup.model.frozen import replace
from gpusetup.system.processes import Output, no_answer_in
from gpusetup.system.processes import run as start

if TYPE_CHECKING:
    from gpusetup.fleet.work import Work

MOST_BYTES = 64 << 20
"""Of what a job wrote; three records are some hundred kilobytes."""
LOOK_SECONDS = 0.5


def slurm_engine(options: argparse.Namespace, work: Work, into: Path) -> Engine:
    """Slurm as `fleet run` asks it."""
    from gpusetup.fleet.work import script

    found = _chosen(options)
    name = f"gpusetup-{secrets.token_hex(4)}"
    job = Job(name=name, script=script(work), limit=work.limit, more=tuple(options.after))
    asking = _Sharing(job, found, into) if options.shared else _Asking(job, found)
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
        self.over = threading.Event()

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
        self.over.set()
        self.cancel()

    def cancel(self, node: str | None = None) -> None:
        """Cancel one node's job, or all of them."""
        start(scancel_words(self.job, node), timeout=SINFO_SECONDS, environment=self.environment)


class _Sharing(_Asking):
    """The same by sbatch: each job writes into a folder that all nodes and this machine share.

    Slurm is asked once for each job; its end is seen in the folder.
    """

    def __init__(self, job: Job, found: Chosen, folder: Path) -> None:
        super().__init__(job, found)
        self.folder = folder

    def words(self, node: str) -> tuple[str, ...]:
        return sbatch_words(self.job, node, self.found.idle[node], str(self._file(node)))

    def _file(self, node: str, end: str = "") -> Path:
        return self.folder / f"{node}.out{end}"

    def ask(self, node: str) -> Output:
        began = time.monotonic()
        said = start(self.words(node), timeout=SINFO_SECONDS, environment=self.environment)
        if not said.ok:
            return said
        ended = self._wait(node, began + self.patience)
        if not ended and not self.over.is_set():
            self.cancel(node)
        return self._read(node, replace(said, seconds=time.monotonic() - began), ended)

    def _wait(self, node: str, until: float) -> bool:
        while not self._file(node, END).exists():
            if time.monotonic() > until or self.over.wait(LOOK_SECONDS):
                return False
        return True

    def _read(self, node: str, said: Output, ended: bool) -> Output:
        """What the job wrote; its files are then gone."""
        out, err = _text(self._file(node)), _text(self._file(node, ERRORS))
        for end in ("", ERRORS, END):
            self._file(node, end).unlink(missing_ok=True)
        problem = None if ended else no_answer_in(self.patience)
        return replace(said, stdout=out, stderr=err, problem=problem)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
