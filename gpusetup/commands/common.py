"""What doctor, resolve, install, plan and tune share: naming the machine, and reading it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpusetup.errors import UsageError
from gpusetup.model.machine import Snapshot
from gpusetup.render.console import Console
from gpusetup.render.language import Screen, labelled
from gpusetup.render.terminal import terminal_of
from gpusetup.verify import streams

if TYPE_CHECKING:
    from gpusetup.system.system import System


class _ListMachines(argparse.Action):
    """`--from list` prints the example machines and ends the command, as `--version` does."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        if values != "list":
            setattr(namespace, self.dest, values)
            return
        width = terminal_of(sys.stdout).width
        streams.put(machine_list().shown(width=width, colour=False))
        parser.exit(0)


def machine_list() -> Screen:
    """The example machines, one a line, with what they are."""
    from gpusetup.probe.saved import example_machines, in_one_line, machine_named

    names = example_machines()
    width = max(map(len, names), default=0) + 2
    said = ((name, in_one_line(machine_named(name))) for name in names)
    return Screen(labelled(name, machine, width, indent=0) for name, machine in said)


def add_machine_options(group: argparse._ActionsContainer, *, python: bool = True) -> None:
    """`--from` and, where the command has a target, `--python`."""
    group.add_argument(
        "--from",
        dest="machine_from",
        metavar="MACHINE",
        action=_ListMachines,
        help="a snapshot file or an example machine instead of this one; `list` lists them",
    )
    if python:
        group.add_argument(
            "--python", metavar="PATH", help="the environment: its Python, or its folder"
        )


def add_backend_options(group: argparse._ActionsContainer) -> None:
    """`--backend`, by torch's label or by the CUDA version."""
    from gpusetup.resolver.spelled import backend_label

    group.add_argument(
        "--backend",
        default="auto",
        type=backend_label,
        metavar="NAME",
        help="auto, cpu, cu124 or 12.4, ... (default: auto)",
    )


def add_timeout(
    group: argparse._ActionsContainer,
    what: str = "how long the driver may take to answer (30)",
) -> None:
    """How long the driver may take to answer, all its libraries together."""
    group.add_argument(
        "--timeout",
        type=seconds_named,
        metavar="SECONDS",
        help=what,
    )


def add_limit(group: argparse._ActionsContainer, what: str) -> None:
    """How long a node or a round may take."""
    group.add_argument("--limit", type=_limit_named, metavar="SECONDS", help=what)


def seconds_named(text: str, least: float = 0.1, most: float = 3600) -> float:
    """A time in seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not least <= seconds <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is no time from {least:g} to {most} seconds")
    return seconds


def _limit_named(text: str) -> float:
    return seconds_named(text, 5, MOST_SECONDS)


MOST_SECONDS = 7 * 86400


def patience_of(options: argparse.Namespace) -> float:
    """The limit that was asked for, in seconds, else the usual one."""
    from gpusetup.probe.patience import LIMIT_SECONDS

    return getattr(options, "timeout", None) or LIMIT_SECONDS


def gather(
    options: argparse.Namespace, out: Console, *, deep: bool = False, need_target: bool = False
) -> Snapshot:
    """The machine that the options name: an example, a file, or this one.

    `need_target`: a machine without a target interpreter ends the command (`Blocked`, exit 3);
    without it, Python and torch are then unknown.
    """
    named, python = getattr(options, "machine_from", None), getattr(options, "python", None)
    if named and python:
        raise UsageError(
            "`--from` and `--python` exclude each other", hint="both name what is read"
        )
    if isinstance(named, Snapshot):
        return named
    if named:
        from gpusetup.probe.saved import machine_named

        machine = machine_named(named)
    else:
        limit = patience_of(options)
        machine = _live(out, python, deep=deep, need_target=need_target, limit=limit)
    if getattr(options, "command", "doctor") != "doctor":  # which finds it
        _tell_of_target(machine, out, ended=need_target)
    return machine


def _tell_of_target(machine: Snapshot, out: Console, *, ended: bool) -> None:
    """Before an answer about an environment that is between two states, or not the active one."""
    from gpusetup.probe.unfinished import unfinished
    from gpusetup.render.language import plain

    gone = [one.text for one in machine.events if one.kind == "stale-environment"]
    named = (f"VIRTUAL_ENV names {one}, which is no environment" for one in gone)
    for sentence in (*named, *(() if ended else unfinished(machine))):
        out.talk(plain(sentence))


def _live(
    out: Console, python: str | None, *, deep: bool, need_target: bool, limit: float
) -> Snapshot:
    from gpusetup.probe.machine import read_machine

    return read_machine(
        system_for(out),
        named=python,
        need_target=need_target,
        deep=deep,
        notify=out.talk,
        limit=limit,
    )


def system_for(out: Console) -> System:
    """This machine; under `-v` every question to it is shown."""
    from gpusetup.system.system import System
    from gpusetup.system.told import ToldSystem

    return ToldSystem(out.debug) if out.verbose else System()


def add_file_options(parser: argparse.ArgumentParser) -> None:
    """Where requirements are listed, beside those that the command line names."""
    parser.add_argument(
        "-r",
        "--requirements",
        metavar="FILE",
        action="append",
        default=[],
        help="a requirements.txt or pyproject.toml",
    )


def read_listed(options: argparse.Namespace, out: Console) -> None:
    """Add the requirements of the files to the words; a torch among them is told of by `--torch`
    where that is not given."""
    from gpusetup.errors import UsageError
    from gpusetup.install.listed_words import words_of_files
    from gpusetup.render.language import plain

    if not options.requirements:
        return
    listed = words_of_files(options.requirements)
    if listed.hashed and options.command == "install":
        raise UsageError(
            f"{listed.hashed} names hashes, and what is chosen here may be another file than those",
            hint="torch first, by `gpusetup install`; then `uv pip install --require-hashes -r` "
            "with the file as it is",
        )
    if listed.hashed:
        said = "what is chosen may be another file; `--format requirements` has its own"
        out.talk(plain(f"the hashes of {listed.hashed} are not taken: {said}"))
    for note in listed.notes:
        out.talk(plain(note))
    options.packages = [*options.packages, *listed.words]
