"""The command-line options, shared by `python -m gpusetup.verify` and `gpusetup verify`."""

from __future__ import annotations

import argparse
import re
from typing import Any, Sequence

from .checks.table import LEVELS
from .judging.expect import parse
from .values import RunOptions, WrongQuestion

SUMMARY = "Tests that torch works on your GPUs, by computing with it and checking the results."
EXAMPLES = (
    "gpusetup verify",
    "gpusetup verify --device cpu --json",
    'gpusetup verify --device none --expect "torch==2.5.*" "cuda==12.4" "arch>=8.6"',
)
Options = argparse.Namespace
_DEVICE = re.compile(r"(auto|cpu|none|mps|(cuda|xpu)(:\d{1,4})?)\Z")


class Parser(argparse.ArgumentParser):
    """A parser that raises WrongQuestion for errors, so that `--json` can report them as JSON."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise WrongQuestion(message, f"`{self.prog} --help` shows the options")


def seconds(text: str) -> float:
    """Convert an option's text to a number of seconds above 0."""
    number = float(text)
    # This refuses NaN too, because all comparisons with NaN are false.
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(
            f"{text} is not a valid time: give a number of seconds above 0"
        )
    return number


def seed(text: str) -> int:
    """Convert an option's text to a seed from 0 to 2^63 - 1."""
    number = int(text)
    # torch accepts no larger seed.
    if not 0 <= number < 2**63:
        raise argparse.ArgumentTypeError(f"{text} is not a seed: a number from 0 to 2^63 - 1")
    return number


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of verify to a parser."""
    add: Any = parser.add_argument
    add(
        "--level",
        choices=tuple(LEVELS),
        default="quick",
        help="quick: takes about as long as `import torch`; standard: tests everything that"
        " training uses, and measures how much faster the GPU is than the CPU (about a minute);"
        " census: runs standard, then compares the GPU with the CPU for every operator of"
        " torch's tests, for bringing up a new platform;"
        " stress: keeps the GPU busy for --seconds and watches for errors, heat and low clocks."
        " Default: quick",
    )
    add(
        "--seconds",
        type=seconds,
        default=RunOptions().seconds,
        metavar="N",
        help="how long stress runs (default: 60)",
    )
    add(
        "--seed",
        type=seed,
        default=RunOptions().seed,
        metavar="N",
        help="seed for the random numbers used in the checks",
    )
    many = {"action": "extend", "nargs": "+", "default": []}
    only = "run only these checks, whatever their level, and those that they depend on"
    add("--only", **many, metavar="CHECK", help=only)
    add("--skip", **many, metavar="CHECK", help="skip these checks")
    add(
        "--timeout",
        type=seconds,
        metavar="N",
        help="stop after N seconds, and report the results so far",
    )
    add(
        "--device",
        type=str.lower,
        default="auto",
        metavar="auto|cpu|cuda|cuda:N|xpu|mps|none",
        help="auto: every GPU, at least one; cpu; cuda: NVIDIA's or AMD's GPUs; cuda:0: only this "
        "one; xpu: Intel's GPUs; mps: Apple's GPU; none: no device, for building an image",
    )
    add(
        "--expect",
        **many,
        metavar="EXPR",
        help="fail unless all of these conditions are true, e.g. 'gpus>=2' 'torch==2.5.*' "
        "'cuda==12.4' 'memory_gib>=3.5' 'capability>=8.0' 'arch>=8.6' (a kernel for "
        "8.6 or newer)",
    )
    add("--strict", action="store_true", help="count a skipped check as failed")
    add("--junit", metavar="FILE", help="also write a JUnit XML report")


def read_options(words: Sequence[str]) -> Options:
    """Read and check the options of `python -m gpusetup.verify`."""
    parser = Parser(
        prog="python -m gpusetup.verify",
        description=SUMMARY,
        epilog="\n  ".join(("examples:", *EXAMPLES)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_options(parser)
    parser.add_argument("--json", action="store_true", help="print exactly one JSON document")
    parser.add_argument("--output", metavar="FILE", help="write the output to this file")
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="also show how long each check took, and where errors occurred",
    )
    return checked(parser.parse_args(list(words)))


def checked(parsed: Options) -> Options:
    """Check the options' values, parse `--expect`, and collect what the checks read in
    `for_checks`. Raises WrongQuestion."""
    if not _DEVICE.match(parsed.device):
        hint = "use one of auto (every visible GPU), cpu, cuda, cuda:0, ..., xpu, mps, none"
        raise WrongQuestion(f"--device {parsed.device!r} is not a device", hint)
    parsed.for_checks = RunOptions(
        parsed.seed, parsed.seconds, parsed.level, only=tuple(parsed.only)
    )
    parsed.expect = [parse(text) for text in parsed.expect]
    return parsed
