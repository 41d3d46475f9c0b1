"""`gpusetup verify`: runs the folder `verify/` by path with the target's interpreter.

What it prints and its exit code are passed through, so that the proof is about the target's torch
and not about ours.
"""

from __future__ import annotations

import argparse

from gpusetup.errors import Blocked, UsageError
from gpusetup.render.console import Console, plain
from gpusetup.verify.options import EXAMPLES, SUMMARY, add_options, checked, flat
from gpusetup.verify.values import WrongQuestion

__all__ = ["EXAMPLES", "SUMMARY", "configure", "run", "words"]


PASSED_ON = (
    "output",
    "seconds",
    "seed",
    "format",
    "junit",
    "baseline",
    "save_baseline",
    "resume",
    "timeout",
)
"""Options with one value, which the folder's own program takes by the same names."""
LISTED = {"only": "only", "skip": "skip", "with": "beside"}
"""Options with several values, and where they are kept."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--python", metavar="PATH", help="the interpreter whose torch is proven")
    add_options(parser)


def run(options: argparse.Namespace, out: Console) -> int:
    from gpusetup.probe.target import choose_target
    from gpusetup.system.system import LiveSystem
    from gpusetup.verify.child import start_by_path

    try:
        checked(options)
    except WrongQuestion as wrong:
        raise UsageError(wrong.message, wrong.hint) from wrong
    target = choose_target(LiveSystem(), options.python)
    out.talk(f"target: {plain(target.python)} ({plain(target.chosen_by)})")
    try:
        return start_by_path(target.python, words(options))
    except OSError as problem:
        raise Blocked(f"Cannot start {target.python}: {problem.strerror}") from problem


def words(options: argparse.Namespace) -> list[str]:
    """The same options, as the folder's own program takes them."""
    flags = {"--strict": options.strict, "--json": options.json, "--verbose": options.verbose}
    said = ["--level", options.level, "--device", options.device]
    for expression in flat(options.expect):
        said += ["--expect", expression]
    for name in PASSED_ON:
        value = getattr(options, name)
        if value is not None:
            said += [f"--{name.replace('_', '-')}", str(value)]
    for name, kept in LISTED.items():
        for each in flat(getattr(options, kept)):
            said += [f"--{name}", each]
    return said + [flag for flag, given in flags.items() if given]
