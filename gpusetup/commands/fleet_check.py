"""`gpusetup fleet check`: tells within seconds whether this node can take jobs, without disturbing
a running job."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.commands.common import PROFILE, PROMETHEUS
from gpusetup.commands.question import CommandQuestion
from gpusetup.commands.reply import Reply
from gpusetup.render.console import Console

if TYPE_CHECKING:
    from gpusetup.fleet.node_check import NodeCheckAnswer

SUMMARY = """Checks this node's driver, GPUs, links, kernel log and disks within 5 seconds. It uses
neither torch nor CUDA, so it does not disturb a running job. With a profile (the record of a
healthy node) it also reports how this node differs from the profile. It prints one line: the
verdict and the reason for it. The exit code is 0 if the node can take jobs, and 1 if it cannot."""
EXAMPLES = (
    "gpusetup fleet check",
    "gpusetup fleet check --json > h100x8.json",
    "gpusetup fleet check --profile h100x8.json",
    "gpusetup fleet check --prometheus /var/lib/node_exporter/gpusetup.prom",
)


class Question(CommandQuestion):
    profile: str | None = PROFILE
    prometheus: str | None = PROMETHEUS


def run(question: Question, out: Console) -> Reply:
    """Check this node, compare it with the profile, and print the verdict, then a hint."""
    from gpusetup.fleet.node_check import MOST_BYTES, check_node, read_profile
    from gpusetup.named_file import read_text
    from gpusetup.probe.node import name_of_node, read_node
    from gpusetup.render.screen import ERROR, GOOD, Screen, ScreenLine
    from gpusetup.system.system import System

    profile = question.profile
    expected = read_profile(read_text(profile, MOST_BYTES), profile) if profile else {}
    snapshot = read_node(System())
    answer = check_node(name_of_node(), snapshot, expected)
    if question.prometheus:
        _write_metrics(question.prometheus, answer, out)
    state = ("ok", GOOD) if answer.ok else ("failed", ERROR)
    out.answer(answer, Screen((ScreenLine(state, f": {answer.reason}", hang=2),)))
    if not answer.ok:
        out.talk("hint: run `gpusetup doctor` for the evidence and the fix")
    return Reply(exit_code=0 if answer.ok else 1)


def _write_metrics(name: str, answer: NodeCheckAnswer, out: Console) -> None:
    """Replace the file of metrics atomically and make it readable for all users, because
    node_exporter runs as another user. If it cannot be written, for example on a full disk, this
    only prints a warning, because the command's purpose is to report the node's health."""
    from gpusetup.fleet.prometheus import metrics
    from gpusetup.install.switching.files import write_safely

    file = Path(name)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_safely(file, metrics(answer, int(time.time())))
        file.chmod(0o644)
    except OSError as problem:
        out.talk(f"warning: cannot write {file}: {problem.strerror or problem}")
