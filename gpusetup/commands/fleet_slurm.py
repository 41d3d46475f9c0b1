"""`gpusetup fleet slurm`: the programs that Slurm calls on a node, and how they are set up."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from gpusetup.commands.fleet_check import expected_of, looked
from gpusetup.errors import BadInput, Blocked, ToolFailed, Unsatisfiable, UsageError
from gpusetup.render.console import Console
from gpusetup.render.language import plain
from gpusetup.system.refused import blocked_by_files

SUMMARY = (
    "`print` shows the prolog, the health program, and the lines of slurm.conf that name them; "
    "`install --prefix DIR` writes them. Nothing of Slurm's own is changed. The health program "
    "drains a node after two failed checks with the reason, and resumes only what it drained."
)
EXAMPLES = (
    "gpusetup fleet slurm print --profile /etc/gpusetup/h100x8.json",
    "gpusetup fleet slurm install --prefix /etc/slurm/gpusetup --profile /etc/gpusetup/h100x8.json",
)
PREFIX = "/etc/slurm/gpusetup"
STATE = "/var/lib/gpusetup"
MEMORY_FILE = "health.json"
SCONTROL_SECONDS = 15.0


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "what",
        choices=("print", "install", "prolog", "health"),
        help="print or install the files; prolog and health are what the files call",
    )
    parser.add_argument("--prefix", metavar="DIR", help=f"install: where to; print: {PREFIX}")
    parser.add_argument("--profile", metavar="FILE", help="a sound node's `fleet check --json`")
    parser.add_argument(
        "--state", metavar="DIR", default=STATE, help=f"what a node remembers ({STATE})"
    )


def run(options: Namespace, out: Console) -> int:
    actions = {"print": _print, "install": _install, "prolog": _prolog, "health": _health}
    return actions[options.what](options, out)


def _print(options: Namespace, out: Console) -> int:
    from gpusetup.fleet.slurm_health import files

    prefix = str(Path(options.prefix or PREFIX).absolute())
    for name, text in files(sys.executable, prefix, options.state, options.profile).items():
        out.text(f"# --- {prefix}/{name}\n{text}\n")
    return 0


def _install(options: Namespace, out: Console) -> int:
    from gpusetup.fleet.slurm_health import files
    from gpusetup.install.switching.files import write_safely

    if not options.prefix:
        raise UsageError(
            "`install` writes prolog.sh, health.sh and slurm.conf.gpusetup into the folder of "
            "`--prefix`, and none is named",
            hint=f"`gpusetup fleet slurm install --prefix {PREFIX}`; `print` shows them",
        )
    prefix = Path(options.prefix).absolute()
    written = files(sys.executable, str(prefix), options.state, options.profile)
    with blocked_by_files("Cannot write"):
        prefix.mkdir(parents=True, exist_ok=True)
        for name, text in written.items():
            write_safely(prefix / name, text)
            (prefix / name).chmod(0o755 if name.endswith(".sh") else 0o644)
            out.talk(f"wrote {prefix / name}")
    out.text(written["slurm.conf.gpusetup"])
    return 0


# --- what Slurm calls


def _prolog(options: Namespace, out: Console) -> int:
    """The GPUs that Slurm gives the job only, and no command of Slurm.

    What cannot be read of a profile or of a job's list of GPUs is said, and fails no job.
    """
    from gpusetup.fleet.node_check import numbers_of

    gpus = os.environ.get("SLURM_JOB_GPUS")
    if not gpus:
        return 0
    try:
        expected = expected_of(options.profile)
    except (UsageError, Blocked) as problem:
        expected = {}
        out.talk(f"passed over: {plain(problem.message)}")
    try:
        numbers_of(gpus)
    except UsageError as problem:
        gpus = None
        out.talk(f"passed over: {plain(problem.message)}")
    answer = looked(expected, gpus)
    if answer.ok:
        return 0
    out.talk(f"failed: {plain(answer.reason)}")
    return Unsatisfiable.exit_code


def _health(options: Namespace, out: Console) -> int:
    """Check the whole node, and tell slurmctld what follows from it."""
    from gpusetup.fleet.slurm_health import Memory, decide, node_state, scontrol_words
    from gpusetup.install.switching.files import read_json_object, write_safely
    from gpusetup.model.codec import from_plain, to_json
    from gpusetup.model.frozen import replace
    from gpusetup.probe.node import name_of_node

    memory_file = Path(options.state) / MEMORY_FILE
    node = os.environ.get("SLURMD_NODENAME") or name_of_node()
    state = node_state(_scontrol("scontrol", "show", "node", node))
    if state is None:
        raise ToolFailed(f"`scontrol show node {node}` tells no state: nothing is done")
    answer = looked(expected_of(options.profile), None, given_out=state.gpus)
    try:
        before = from_plain(read_json_object(memory_file) or {}, Memory, what=str(memory_file))
    except BadInput:
        before = Memory()
    action, memory = decide(answer.ok, answer.reason, state, before)
    with blocked_by_files(f"Cannot write {memory_file}", "name a `--state`"):
        memory_file.parent.mkdir(parents=True, exist_ok=True)
        if action.kind != "none":
            # What is kept before slurmctld obeys must not claim a drain that may not come.
            write_safely(memory_file, to_json(replace(memory, drained=before.drained)))
            _scontrol(*scontrol_words(action, node))
        write_safely(memory_file, to_json(memory))
    said = f"{action.kind} {action.reason}".rstrip()
    out.talk(f"{node}: {'ok' if answer.ok else 'failed'}: {plain(answer.reason)}; {plain(said)}")
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
