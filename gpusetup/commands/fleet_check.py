"""`gpusetup fleet check`: may this node take jobs, within seconds and while one runs."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from gpusetup.commands.common import add_shared
from gpusetup.render.console import Console

SUMMARY = (
    "Checks driver, GPUs, links, kernel log and disks of this node within 5 seconds, without "
    "torch and without CUDA, so it does not disturb a running job. With a profile (the record of "
    "a sound node) it also compares this node with the profile. Prints one line with the reason. "
    "Exit 0: ok; 1: not."
)
EXAMPLES = (
    "gpusetup fleet check",
    "gpusetup fleet check --json > h100x8.json",
    "gpusetup fleet check --profile h100x8.json",
)


def configure(parser: ArgumentParser) -> None:
    add_shared(parser, "--profile")
    add_shared(
        parser,
        "--timeout",
        help="seconds that the driver may take to answer (default and maximum: 3.5)",
    )


def run(options: Namespace, out: Console) -> int:
    from gpusetup.fleet.node_check import MOST_BYTES, check_node, read_profile
    from gpusetup.named_file import read_text
    from gpusetup.probe.node import LIMIT_SECONDS, name_of_node, read_node
    from gpusetup.render.screen import ERROR, GOOD, Row, Screen
    from gpusetup.system.system import System

    name = options.profile
    expected = read_profile(read_text(name, MOST_BYTES), name) if name else {}
    limit = min(options.timeout or LIMIT_SECONDS, LIMIT_SECONDS)
    record = read_node(System(), limit)
    answer = check_node(name_of_node(), record, expected)
    state = ("ok", GOOD) if answer.ok else ("failed", ERROR)
    screen = Screen((Row(state, f": {answer.reason}", hang=2),))
    return out.answer(answer, screen, yes=answer.ok)
