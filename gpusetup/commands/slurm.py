"""`gpusetup slurm`: the programs that Slurm calls on a node, and how they are set up."""

from __future__ import annotations

import argparse
import os
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.errors import Blocked, Unsatisfiable, UsageError
from gpusetup.render.console import Console, plain

if TYPE_CHECKING:
    from gpusetup.fleet.engines.slurm import Action, Memory
    from gpusetup.fleet.node_check import NodeCheckAnswer

JSON = "has no part in this command"
SUMMARY = (
    "`slurm print` shows the prolog, the health program, the epilog and the NHC check, and the "
    "lines of slurm.conf that name them; `slurm install --prefix DIR` writes them. Nothing of "
    "Slurm's own is changed. The health program drains a node after two failed checks with the "
    "reason, and resumes only what it drained."
)
EXAMPLES = (
    "gpusetup slurm print --profile /etc/gpusetup/h100x8.toml",
    "gpusetup slurm install --prefix /etc/slurm/gpusetup --profile /etc/gpusetup/h100x8.toml",
)
ACTIONS = ("print", "install", "prolog", "health", "epilog")
STATE = "/var/lib/gpusetup"
SCONTROL_SECONDS = 15.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=ACTIONS,
        help="print or install the files; prolog, health and epilog are what the files call",
    )
    parser.add_argument("--prefix", metavar="DIR", default="/etc/slurm/gpusetup", help="where to")
    parser.add_argument("--profile", metavar="FILE", help="what every node must be like, as TOML")
    parser.add_argument(
        "--state", metavar="DIR", default=STATE, help=f"what a node remembers ({STATE})"
    )


def run(options: argparse.Namespace, out: Console) -> int:
    if out.json:
        raise UsageError("`gpusetup slurm` has no JSON answer")
    return {
        "print": _print, "install": _install, "prolog": _prolog, "health": _health,
        "epilog": _epilog,
    }[options.action](options, out)  # fmt: skip


def _print(options: argparse.Namespace, out: Console) -> int:
    from gpusetup.fleet.engines.slurm import files

    prefix = options.prefix
    for file in files(sys.executable, prefix, options.state, options.profile):
        out.text(f"# --- {prefix}/{file.path}\n{file.text}\n")
    return 0


def _install(options: argparse.Namespace, out: Console) -> int:
    from gpusetup.fleet.engines.slurm import files

    prefix = Path(options.prefix).absolute()
    written = files(sys.executable, str(prefix), options.state, options.profile)
    try:
        prefix.mkdir(parents=True, exist_ok=True)
        for file in written:
            path = prefix / file.path
            path.write_text(file.text, encoding="utf-8")
            path.chmod(0o755 if file.executable else 0o644)
            out.talk(f"wrote {path}")
    except OSError as problem:
        raise Blocked(f"Cannot write {problem.filename}: {problem.strerror}") from problem
    out.text(written[-1].text)
    return 0


# --- what Slurm calls


def _prolog(options: argparse.Namespace, out: Console) -> int:
    """The job's GPUs only, and no command of Slurm; a failure leaves its reason on the node."""
    from gpusetup.fleet.engines.slurm import MEMORY_FILE, REASON_FILE

    gpus = os.environ.get("SLURM_JOB_GPUS")
    if not gpus and _memory(Path(options.state) / MEMORY_FILE).gres:
        return 0  # Slurm gives this node's GPUs out, and gave this job none
    answer = _checked(options, gpus)
    if answer.ok:
        return 0
    out.talk(f"failed: {plain(answer.reason)}")
    _write(Path(options.state) / REASON_FILE, answer.reason)
    return Unsatisfiable.exit_code


def _health(options: argparse.Namespace, out: Console) -> int:
    """Check the whole node, and tell slurmctld what follows from it."""
    from gpusetup.fleet.engines.slurm import (
        IN_A_ROW,
        MEMORY_FILE,
        REASON_FILE,
        decide,
        node_state,
    )
    from gpusetup.model.frozen import replace

    state = Path(options.state)
    node = os.environ.get("SLURMD_NODENAME") or _own_name()
    found = node_state(_scontrol("scontrol", "show", "node", node))
    answer = _checked(options, None, found.gres or 0)
    before, prolog = _memory(state / MEMORY_FILE), _read(state / REASON_FILE)
    action, memory = decide(answer.ok, answer.reason, found, before, prolog)
    if action.kind != "none":
        _keep(state / MEMORY_FILE, replace(memory, drained=before.drained))
        _do(action, node, out)
    _keep(state / MEMORY_FILE, memory)
    if action.kind != "none" or memory.held >= IN_A_ROW:
        (state / REASON_FILE).unlink(missing_ok=True)
    out.talk(f"{'ok' if answer.ok else 'failed'}: {plain(answer.reason)}; {action.kind}")
    return 0 if answer.ok else Unsatisfiable.exit_code


def _epilog(options: argparse.Namespace, out: Console) -> int:
    """What a job left on its GPUs is said in slurmd's log; nothing is ended, no GPU reset."""
    answer = _checked(options, os.environ.get("SLURM_JOB_GPUS"))
    if not answer.ok:
        out.talk(f"after job {os.environ.get('SLURM_JOB_ID', '?')}: {plain(answer.reason)}")
    return 0


def _checked(
    options: argparse.Namespace, gpus: str | None, given_out: int | None = None
) -> NodeCheckAnswer:
    """`given_out`: how many GPUs Slurm gives out on this node, where it was asked."""
    from gpusetup.catalog.file import load_catalog
    from gpusetup.commands.node_check import expected_of
    from gpusetup.fleet.node_check import checked, only
    from gpusetup.probe.node import read_node
    from gpusetup.system.system import LiveSystem

    expected = expected_of(options.profile) if options.profile else ()
    began = time.monotonic()
    record = read_node(LiveSystem())
    job = only(record.snapshot, expected, gpus)
    seconds = time.monotonic() - began
    return checked(
        _own_name(), job.snapshot, record.facts, job.expected, load_catalog(), seconds,
        absent=job.absent, given_out=given_out, alone=job.alone,
    )  # fmt: skip


def _own_name() -> str:
    from gpusetup.probe.node import name_of_node

    return name_of_node()


def _scontrol(*words: str) -> str:
    from gpusetup.system.processes import run as start

    said = start(words, timeout=SCONTROL_SECONDS)
    if not said.ok:
        raise Blocked(
            f"{' '.join(words)}: {said.problem or said.stderr.strip() or f'exit {said.exit}'}",
            hint="the health program runs as root or as SlurmUser, with Slurm's commands on PATH",
        )
    return said.stdout


def _do(action: Action, node: str, out: Console) -> None:
    from gpusetup.fleet.engines.slurm import asked

    _scontrol(*asked(action, node))
    out.talk(f"{node}: {action.kind} {action.reason}".rstrip())


# --- what a node remembers


def _memory(path: Path) -> Memory:
    from gpusetup.errors import BadInput
    from gpusetup.fleet.engines.slurm import Memory
    from gpusetup.model.codec import from_json

    try:
        return from_json(_read(path) or "{}", Memory, what=str(path))
    except BadInput:
        return Memory()


def _keep(path: Path, memory: Memory) -> None:
    from gpusetup.model.codec import to_json

    _write(path, to_json(memory))


def _read(path: Path) -> str:
    """What a file of ours says; nothing of a link, a pipe or a device that lies in its place."""
    from gpusetup.install.switching.files import no_link

    try:
        with open(path, "rb", opener=no_link) as file:
            own = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            return file.read(4096).decode() if own else ""
    except (OSError, UnicodeDecodeError):
        return ""


def _write(path: Path, text: str) -> None:
    """Whole or not at all: two checks may run at once."""
    from gpusetup.install.switching.files import open_new

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}.{os.getpid()}")
        beside.unlink(missing_ok=True)
        with open_new(beside) as file:
            file.write(text)
        beside.replace(path)
    except OSError as problem:
        raise Blocked(
            f"Cannot write {path}: {problem.strerror}", hint="name a `--state`"
        ) from problem
