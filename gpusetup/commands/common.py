"""Options that several commands share, and a function that reads the machine which these options
name."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpusetup.commands.question import option, options
from gpusetup.model.machine import Snapshot
from gpusetup.render.console import Console

Machine = str | Path | Snapshot
"""An example machine's name, the path of a snapshot file, or a snapshot."""


def _backend(text: str) -> str:
    """The label of a backend, such as `cu124`; imported late, because few commands need it."""
    from gpusetup.choose.wish import backend_label

    return backend_label(text)


def _metrics_file(name: str) -> str:
    """The name of a file for node_exporter, which reads only files with its suffix."""
    from gpusetup.fleet.prometheus import FILE_SUFFIX

    if not name.endswith(FILE_SUFFIX):
        raise argparse.ArgumentTypeError(f"{name!r} does not end in {FILE_SUFFIX}")
    return name


HOUR_SECONDS = 3600
DAY_SECONDS = 24 * HOUR_SECONDS


def seconds_from(least: float, most: int, hint: str = "") -> Callable[[str], float]:
    """Returns a function that parses a number of seconds from `least` to `most` for argparse. The
    hint follows its error message."""

    def parse(text: str) -> float:
        with suppress(ValueError):
            seconds = float(text)
            if least <= seconds <= most:
                return seconds
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time from {least:g} to {most:,} seconds{hint}"
        )

    return parse


# --- options that several commands share ----------------------------------------------------------

FROM: Any = option(
    "use a snapshot file or an example machine (e.g. rtx3050-laptop) instead of this machine",
    "--from",
    metavar="MACHINE",
    one_of="machine",
    as_it_is=(Snapshot,),
)
PYTHON: Any = option(
    "the environment to use: its folder, or the path of its Python",
    "--python",
    metavar="PATH",
    one_of="machine",
)
GPU: Any = options(
    "assume a host with this GPU, given by name or as sm_86; repeatable",
    "--gpu",
    metavar="NAME",
)
DRIVER: Any = option(
    "assume a host with this NVIDIA driver version, e.g. 580.95.05",
    "--driver",
    metavar="VERSION",
)
TORCH: Any = option(
    "the torch version that you want, e.g. 2.5.1 or '>=2.6,<2.9'", "--torch", metavar="SPEC"
)
BACKEND: Any = option(
    "the torch build to install, e.g. auto, cpu or cu124 (12.4 also works); default: auto",
    "--backend",
    default="auto",
    metavar="NAME",
    parse=_backend,
)
INDEX: Any = option(
    "use this mirror of https://download.pytorch.org/whl (or set GPUSETUP_INDEX)",
    "--index",
    metavar="URL",
)
REQUIREMENTS: Any = options(
    "read the requirements in this file: requirements.txt, pyproject.toml, setup.py, "
    "environment.yml, Dockerfile or a lock file; repeatable",
    "-r",
    "--requirements",
    metavar="FILE",
)
TIMEOUT: Any = option(
    "how long to wait for the driver (default: 30)",
    "--timeout",
    metavar="SECONDS",
    parse=seconds_from(0.1, HOUR_SECONDS),
)
PROFILE: Any = option(
    "compare each node with FILE, the output of `fleet check --json` on a healthy node",
    "--profile",
    metavar="FILE",
)
PROMETHEUS: Any = option(
    "also write metrics for node_exporter's textfile collector; the file name must end in .prom",
    "--prometheus",
    metavar="FILE",
    parse=_metrics_file,
)


# --- the machine ----------------------------------------------------------------------------------


def gather(
    out: Console,
    named: Machine | None = None,
    python: str | None = None,
    timeout: float | None = None,
    *,
    need_target: bool = False,
) -> Snapshot:
    """Read the machine that the options name: an example, a snapshot file or a snapshot (`named`),
    or this machine with one of its environments (`python`), waiting `timeout` seconds for the
    driver. `need_target`: raise Blocked if there is no Python environment; otherwise its Python and
    torch are unknown."""
    if named:
        from gpusetup.probe.snapshot_files import machine_named

        return named if isinstance(named, Snapshot) else machine_named(str(named))
    from gpusetup.probe.deadline import LIMIT_SECONDS
    from gpusetup.probe.machine import read_machine
    from gpusetup.probe.own_files import interruptions
    from gpusetup.system.system import System

    machine = read_machine(
        System(),
        named=python,
        need_target=need_target,
        notify=out.talk,
        limit=timeout or LIMIT_SECONDS,
    )
    for event in machine.events:
        if event.kind == "stale-environment":
            out.talk(f"VIRTUAL_ENV is set to {event.text}, which is not an environment")
    # The two commands that need the target deal with an interrupted installation themselves:
    # doctor reports it as a finding, and install completes it first.
    if not need_target:
        for sentence in interruptions(machine):
            out.talk(sentence)
    return machine
