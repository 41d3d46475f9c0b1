"""What commands share: options of one meaning, and reading the machine that they name."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from gpusetup.errors import UsageError
from gpusetup.model.machine import Snapshot
from gpusetup.render.console import Console


def _backend(text: str) -> str:
    from gpusetup.choose.wish import backend_label

    return backend_label(text)


def seconds(least: float, most: float) -> Callable[[str], float]:
    """What reads a time in seconds."""

    def read(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = -1.0
        if not least <= found <= most:
            problem = f"{text!r} is no time from {least:g} to {most} seconds"
            raise argparse.ArgumentTypeError(problem)
        return found

    return read


SHARED: Mapping[str, Mapping[str, Any]] = {
    "--from": {
        "dest": "machine_from",
        "metavar": "MACHINE",
        "help": "read a snapshot file or an example machine (rtx3050-laptop) instead of this "
        "machine",
    },
    "--python": {"metavar": "PATH", "help": "the environment to use: its Python, or its folder"},
    "--gpu": {
        "metavar": "NAME",
        "action": "append",
        "default": [],
        "help": "for a host with this GPU (a name, or sm_86); repeatable",
    },
    "--driver": {"metavar": "VERSION", "help": "for a host with this NVIDIA driver: 580.95.05"},
    "--torch": {
        "metavar": "SPEC",
        "help": "the torch that you want: 2.5.1, or '>=2.6,<2.9'",
    },
    "--backend": {
        "metavar": "NAME",
        "type": _backend,
        "default": "auto",
        "help": "auto, cpu, cu124 or 12.4, ... (default: auto)",
    },
    "--index": {
        "dest": "index_root",
        "metavar": "URL",
        "help": "a mirror of https://download.pytorch.org/whl (or GPUSETUP_INDEX)",
    },
    "-r --requirements": {
        "metavar": "FILE",
        "action": "append",
        "default": [],
        "help": "a requirements.txt",
    },
    "--timeout": {
        "metavar": "SECONDS",
        "type": seconds(0.1, 3600),
        "help": "seconds that the driver may take to answer (default: 30)",
    },
    "--limit": {"metavar": "SECONDS", "type": seconds(5, 7 * 86400)},
    "--device": {"metavar": "NAME", "default": "auto", "help": "as for `gpusetup verify`"},
    "--profile": {"metavar": "FILE", "help": "the output of `fleet check --json` on a sound node"},
    "--prometheus": {
        "metavar": "FILE",
        "help": "also write metrics for node_exporter's textfile collector: a name that ends in "
        ".prom",
    },
    "--history": {
        "metavar": "DIR",
        "help": "keep there since when this node has each finding (NODE.history.json)",
    },
    "--keep-private": {
        "action": "store_true",
        "help": "do not hide names of users, hosts and folders, or UUIDs",
    },
}
"""Options that mean the same wherever they are taken."""


def add_shared(group: argparse._ActionsContainer, *names: str, **other: Any) -> None:
    """Options of `SHARED`; `other` is what one of them has otherwise here."""
    for name in names:
        group.add_argument(*name.split(), **{**SHARED[name], **other})


def timeout_of(options: argparse.Namespace) -> float:
    """The limit that was asked for, in seconds, else the usual one."""
    from gpusetup.probe.deadline import LIMIT_SECONDS

    return getattr(options, "timeout", None) or LIMIT_SECONDS


def gather(options: argparse.Namespace, out: Console, *, need_target: bool = False) -> Snapshot:
    """The machine that the options name: an example, a file, or this one.

    `need_target`: a machine without a target interpreter ends the command (`Blocked`, exit 3);
    without it, Python and torch are then unknown.
    """
    named, python = options.machine_from, getattr(options, "python", None)
    if named and python:
        raise UsageError(
            "`--from` and `--python` exclude each other",
            hint="each of them names the machine to read; give only one",
        )
    if isinstance(named, Snapshot):
        return named
    if named:
        from gpusetup.probe.snapshot_files import machine_named

        machine = machine_named(named)
    else:
        from gpusetup.probe.machine import read_machine
        from gpusetup.system.system import System

        machine = read_machine(
            System(),
            named=python,
            need_target=need_target,
            notify=out.talk,
            limit=timeout_of(options),
        )
    if options.command != "doctor":  # which finds it
        _tell_of_target(machine, out, ended=need_target)
    return machine


def _tell_of_target(machine: Snapshot, out: Console, *, ended: bool) -> None:
    """Before an answer about an environment that is between two states, or not the active one."""
    from gpusetup.probe.own_files import interruptions

    gone = [one.text for one in machine.events if one.kind == "stale-environment"]
    named = (f"VIRTUAL_ENV names {one}, which is no environment" for one in gone)
    for sentence in (*named, *(() if ended else interruptions(machine))):
        out.talk(sentence)


def read_listed(options: argparse.Namespace, out: Console) -> None:
    """Add the requirements of the files to the words; a torch among them is told of by `--torch`
    where that is not given."""
    from gpusetup.commands.words import words_of_files

    installs = options.command == "install"
    words = words_of_files(options.requirements, out.talk, installs=installs)
    options.packages = [*options.packages, *words]
