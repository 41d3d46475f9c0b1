"""`gpusetup fleet slurm`: the programs that Slurm calls on a node, and how they are set up."""

from __future__ import annotations

import argparse
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gpusetup.commands.fleet_check import expected_of, looked
from gpusetup.errors import Blocked, ToolFailed, Unsatisfiable, UsageError
from gpusetup.render.console import Console
from gpusetup.render.language import plain
from gpusetup.system.refused import blocked_by_files

if TYPE_CHECKING:
    from gpusetup.fleet.engines.slurm import Action, Memory
    from gpusetup.fleet.node_check import Job, NodeCheckAnswer
    from gpusetup.fleet.profile import Expectation

T = TypeVar("T")
SUMMARY = (
    "`print` shows the prolog, the health program, and the lines of slurm.conf that name them; "
    "`install --prefix DIR` writes them. Nothing of Slurm's own is changed. The health program "
    "drains a node after two failed checks with the reason, and resumes only what it drained."
)
EXAMPLES = (
    "gpusetup fleet slurm print --profile /etc/gpusetup/h100x8.toml",
    "gpusetup fleet slurm install --prefix /etc/slurm/gpusetup --profile /etc/gpusetup/h100x8.toml",
)
PREFIX = "/etc/slurm/gpusetup"
STATE = "/var/lib/gpusetup"
SLURM_CONF = "/etc/slurm/slurm.conf"
SCONTROL_SECONDS = 15.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        choices=("print", "install", "prolog", "health"),
        help="print or install the files; prolog and health are what the files call",
    )
    parser.add_argument("--prefix", metavar="DIR", help=f"install: where to; print: {PREFIX}")
    parser.add_argument("--profile", metavar="FILE", help="what every node must be like, as TOML")
    parser.add_argument(
        "--state", metavar="DIR", default=STATE, help=f"what a node remembers ({STATE})"
    )


def run(options: argparse.Namespace, out: Console) -> int:
    actions = {"print": _print, "install": _install, "prolog": _prolog, "health": _health}
    return actions[options.what](options, out)


def _print(options: argparse.Namespace, out: Console) -> int:
    from gpusetup.fleet.engines.slurm import files

    prefix = str(Path(options.prefix or PREFIX).absolute())
    for file in files(sys.executable, prefix, options.state, options.profile):
        out.text(f"# --- {prefix}/{file.path}\n{file.text}\n")
    return 0


def _install(options: argparse.Namespace, out: Console) -> int:
    from gpusetup.fleet.engines.slurm import NAMES, files

    if not options.prefix:
        raise UsageError(
            f"`install` writes {', '.join(NAMES)} into the folder of `--prefix`, and none is named",
            hint=f"`gpusetup fleet slurm install --prefix {PREFIX}`; `print` shows them",
        )
    prefix = Path(options.prefix).absolute()
    written = files(sys.executable, str(prefix), options.state, options.profile)
    with blocked_by_files("Cannot write"):
        prefix.mkdir(parents=True, exist_ok=True)
        for file in written:
            _replace(prefix / file.path, file.text, 0o755 if file.executable else 0o644)
            out.talk(f"wrote {prefix / file.path}")
    out.text(written[-1].text)
    return 0


# --- what Slurm calls


def _prolog(options: argparse.Namespace, out: Console) -> int:
    """The job's GPUs only, and no command of Slurm; a failure leaves its reason on the node.

    What cannot be read of a profile or of a job's list of GPUs is said, and fails no job.
    """
    from gpusetup.fleet.engines.slurm import REASON_FILE

    gpus = os.environ.get("SLURM_JOB_GPUS")
    if not gpus and _gives_gpus_out(options.state):
        return 0  # and gave this job none
    nothing: tuple[Expectation, ...] = ()
    expected = _or_said(lambda: expected_of(options.profile), nothing, out)
    answer, _ = _of_a_job(gpus, expected, out)
    if answer.ok:
        return 0
    out.talk(f"failed: {plain(answer.reason)}")
    _or_said(lambda: _write(Path(options.state) / REASON_FILE, answer.reason), None, out)
    return Unsatisfiable.exit_code


def _of_a_job(
    gpus: str | None, expected: tuple[Expectation, ...], out: Console
) -> tuple[NodeCheckAnswer, Job]:
    """The node as the job sees it; of a list that cannot be read, all GPUs are meant."""
    from gpusetup.fleet.node_check import only
    from gpusetup.model.machine import Snapshot

    given_out = None if gpus else 0
    readable = _or_said(lambda: only(Snapshot(), (), gpus), None, out)
    return looked(expected, gpus if readable else None, given_out=given_out)


def _gives_gpus_out(state: str) -> bool:
    """Whether Slurm gives the node's GPUs out, without asking it: by what the health program
    remembers, and before it ran first by slurm.conf."""
    from gpusetup.fleet.engines.slurm import MEMORY_FILE, names_gpus
    from gpusetup.named_file import read_text

    memory = _memory(Path(state) / MEMORY_FILE)
    if memory.held or memory.failed:
        return bool(memory.gres)
    try:
        return names_gpus(read_text(os.environ.get("SLURM_CONF", SLURM_CONF)))
    except UsageError:
        return False


def _or_said(ask: Callable[[], T], otherwise: T, out: Console) -> T:
    """An answer, else what stops it is said and something else taken."""
    try:
        return ask()
    except (UsageError, Blocked) as problem:
        out.talk(f"passed over: {plain(problem.message)}")
        return otherwise


def _health(options: argparse.Namespace, out: Console) -> int:
    """Check the whole node, and tell slurmctld what follows from it."""
    from gpusetup.fleet.engines.slurm import (
        IN_A_ROW,
        MEMORY_FILE,
        REASON_FILE,
        decide,
        has_state,
        node_state,
    )
    from gpusetup.model.frozen import replace
    from gpusetup.probe.node import name_of_node

    state = Path(options.state)
    node = os.environ.get("SLURMD_NODENAME") or name_of_node()
    said = _scontrol("scontrol", "show", "node", node)
    if not has_state(said):
        raise ToolFailed(f"`scontrol show node {node}` tells no state: nothing is done")
    found = node_state(said)
    answer, _ = looked(expected_of(options.profile), None, given_out=found.gres or 0)
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


def _replace(path: Path, text: str, mode: int | None = None) -> None:
    """Write a file beside and rename it: whole or not at all, and through no link.

    Raises OSError. Two checks may run at once.
    """
    from gpusetup.install.switching.files import open_new

    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    try:
        with open_new(beside) as file:
            file.write(text)
        if mode is not None:
            beside.chmod(mode)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _write(path: Path, text: str) -> None:
    with blocked_by_files(f"Cannot write {path}", "name a `--state`"):
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, text)
