"""The options, in one place for `python -m gpusetup.verify` and for `gpusetup verify`."""

from __future__ import annotations

import argparse
import re
from typing import List, NamedTuple, Optional, Sequence, Tuple

from .expect import Expectation, contradiction, parse
from .values import WrongQuestion

LEVELS = ("quick",)
SUMMARY = "Prove by computing that torch works on the GPUs of this interpreter."
EXAMPLES = (
    "gpusetup verify",
    "gpusetup verify --device cpu --json",
    "gpusetup verify --device none --expect 'torch==2.5.*' 'cuda==12.4' 'arch>=8.6'",
)
_DEVICE = re.compile(r"(auto|cpu|cuda|none|cuda:\d+)\Z")


class Options(NamedTuple):
    level: str
    device: str
    expect: Tuple[Expectation, ...]
    strict: bool
    json: bool
    output: Optional[str]
    verbose: bool


class Parser(argparse.ArgumentParser):
    """Complains by `WrongQuestion`, so that `--json` gets its complaint as JSON."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise WrongQuestion(message, f"`{self.prog} --help` shows what it takes")


def add_options(parser: argparse.ArgumentParser) -> None:
    """What is particular to verify."""
    parser.add_argument(
        "--level", choices=LEVELS, default="quick", help="quick: about as long as `import torch`"
    )
    parser.add_argument(
        "--device",
        default="auto",
        metavar="auto|cpu|cuda|cuda:N|none",
        help="auto (every GPU, and there must be one), cpu, one GPU, or none: an image build",
    )
    parser.add_argument(
        "--expect",
        action="append",
        nargs="+",
        default=[],
        metavar="EXPR",
        help="must hold too: 'gpus>=2' 'torch==2.5.*' 'cuda==12.4' 'memory_gib>=3.5'"
        " 'capability>=8.0' 'arch>=8.6' (a kernel in the build)",
    )
    parser.add_argument("--strict", action="store_true", help="a skipped check counts as no")


def read_options(words: Sequence[str]) -> Options:
    """The options of `python -m gpusetup.verify`."""
    parser = Parser(
        prog="python -m gpusetup.verify",
        description=SUMMARY,
        epilog="examples:\n"
        + "\n".join("  " + line.replace("gpusetup ", "python -m gpusetup.") for line in EXAMPLES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_options(parser)
    parser.add_argument("--json", action="store_true", help="print exactly one JSON document")
    parser.add_argument("--output", metavar="FILE", help="write the answer there, not to stdout")
    parser.add_argument("--no-color", action="store_true", help="accepted; there is no colour")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="also the seconds, and where errors arose"
    )
    return checked(parser.parse_args(list(words)))


def checked(found: argparse.Namespace) -> Options:
    """Typed options; WrongQuestion where values are malformed or contradict each other."""
    if not _DEVICE.match(found.device):
        raise WrongQuestion(
            f"--device {found.device!r} is no device", "one of auto, cpu, cuda, cuda:0, ..., none"
        )
    expectations = tuple(parse(text) for text in flat(found.expect))
    for each in expectations:
        trouble = contradiction(each, found.device)
        if trouble:
            raise WrongQuestion(trouble, "leave one of the two out")
    return Options(
        level=found.level,
        device=found.device,
        expect=expectations,
        strict=found.strict,
        json=found.json,
        output=found.output,
        verbose=found.verbose,
    )


def flat(groups: Sequence[Sequence[str]]) -> List[str]:
    """`--expect a b --expect c` as one list."""
    return [text for group in groups for text in group]
