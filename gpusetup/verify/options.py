"""The options, in one place for `python -m gpusetup.verify` and for `gpusetup verify`."""

from __future__ import annotations

import argparse
import re
from typing import List, NamedTuple, Optional, Sequence, Tuple

from .judging.expect import Expectation, contradiction, parse
from .streams import put
from .values import Asked, WrongQuestion

LEVELS = ("quick", "standard", "census", "stress")
FORMATS = ("text", "github")
SUMMARY = "Prove by computing that torch works on the GPUs of this interpreter."
EXAMPLES = (
    "gpusetup verify",
    "gpusetup verify --device cpu --json",
    "gpusetup verify --with all",
    'gpusetup verify --device none --expect "torch==2.5.*" "cuda==12.4" "arch>=8.6"',
)
_DEVICE = re.compile(r"(auto|cpu|cuda|none|cuda:\d{1,4})\Z")


class Options(NamedTuple):
    level: str
    device: str
    expect: Tuple[Expectation, ...]
    strict: bool
    json: bool
    output: Optional[str]
    verbose: bool
    asked: Asked = Asked()
    format: str = "text"
    junit: Optional[str] = None
    baseline: Optional[str] = None
    save_baseline: Optional[str] = None
    skip: Tuple[str, ...] = ()
    resume: Optional[str] = None
    timeout: Optional[float] = None
    beside: Tuple[str, ...] = ()
    """Companions that are tried too, by name; `all`: those that are installed."""


class Parser(argparse.ArgumentParser):
    """Complains by `WrongQuestion`, so that `--json` gets its complaint as JSON."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise WrongQuestion(message, f"`{self.prog} --help` shows what it takes")

    def _print_message(self, message, file=None):  # type: ignore[no-untyped-def]
        put(message)


MOST_LETTERS = 4096
"""Of a word, which may be a path."""


def device_named(text: str) -> str:
    """A device as people write it.

    >>> device_named("GPU"), device_named("GPU0"), device_named("1"), device_named("cuda0")
    ('cuda', 'cuda:0', 'cuda:1', 'cuda:0')
    """
    plain = text.strip().lower()
    found = re.match(r"(?:cuda|gpu|nvidia)?[\s:#-]*(\d*)\Z", plain)
    if found is None or not plain:
        return plain
    return "cuda:" + found.group(1) if found.group(1) else "cuda"


def add_options(parser: argparse.ArgumentParser) -> None:
    """What is particular to verify."""
    parser.add_argument(
        "--level",
        choices=LEVELS,
        default="quick",
        help="quick: about as long as `import torch`; standard: everything that training uses,"
        " about a minute and a half; census: standard with every sample of every operator,"
        " an hour; stress: --seconds under load, watched",
    )
    parser.add_argument(
        "--seconds", type=float, metavar="N", help="how long stress lasts (60 where not given)"
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="compute with other random numbers than usual"
    )
    parser.add_argument(
        "--only",
        action="append",
        nargs="+",
        default=[],
        metavar="CHECK",
        help="run these and what they need; CHECK/SAMPLE repeats one sample of the census",
    )
    parser.add_argument(
        "--skip", action="append", nargs="+", default=[], metavar="CHECK", help="leave these out"
    )
    parser.add_argument(
        "--with",
        dest="beside",
        action="append",
        nargs="+",
        default=[],
        metavar="PACKAGE",
        help="also import these and run the smallest real computation of each: flash-attn, "
        "torchvision, ...; all: whatever of them is installed",
    )
    parser.add_argument(
        "--resume",
        metavar="FILE",
        help="keep each result in FILE, and do not repeat those that an ended run left there",
    )
    parser.add_argument(
        "--timeout", type=float, metavar="N", help="end after N seconds, with what is known"
    )
    parser.add_argument(
        "--device",
        type=device_named,
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
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="github: failures and skips as annotations of a GitHub Actions job, then the text",
    )
    parser.add_argument("--junit", metavar="FILE", help="also write a JUnit XML report")
    parser.add_argument(
        "--save-baseline", metavar="FILE", help="keep this run to compare later ones with"
    )
    parser.add_argument(
        "--baseline",
        metavar="FILE",
        help="fail where a kept run was better: a check that passed, or a rate beyond its noise",
    )


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
    if any(len(word) > MOST_LETTERS for word in words):
        raise WrongQuestion(
            f"a word has more than {MOST_LETTERS} letters", "it was pasted by mistake"
        )
    return checked(parser.parse_args(list(words)))


def checked(found: argparse.Namespace) -> Options:
    """Typed options; WrongQuestion where values are malformed or contradict each other."""
    if not _DEVICE.match(found.device):
        several = "for several leave it out: every visible GPU is proven; " * ("," in found.device)
        raise WrongQuestion(
            f"--device {found.device!r} is no device",
            several + "one of auto, cpu, cuda, cuda:0, ..., none",
        )
    expectations = tuple(parse(text) for text in flat(found.expect))
    for each in expectations:
        trouble = contradiction(each, found.device)
        if trouble:
            raise WrongQuestion(trouble, "leave one of the two out")
    asked = asked_in(found)
    if found.json and found.format != "text":
        raise WrongQuestion(
            f"--json and --format {found.format} contradict each other", "leave one of the two out"
        )
    return Options(
        asked=asked,
        format=found.format,
        junit=found.junit,
        baseline=found.baseline,
        save_baseline=found.save_baseline,
        level=found.level,
        device=found.device,
        expect=expectations,
        strict=found.strict,
        json=found.json,
        output=found.output,
        verbose=found.verbose,
        skip=tuple(flat(found.skip)),
        resume=found.resume,
        timeout=found.timeout,
        beside=tuple(flat(found.beside)),
    )


def asked_in(found: argparse.Namespace) -> Asked:
    """What every check is told."""
    if found.seconds is not None and found.level != "stress":
        raise WrongQuestion(
            f"--seconds {found.seconds:g} is for the stress level, not for {found.level}",
            "add `--level stress`, or leave it out",
        )
    if found.seconds is not None and not 0 < found.seconds < float("inf"):
        raise WrongQuestion(f"--seconds {found.seconds:g} is no time", "a number above 0")
    if found.seed is not None and not 0 <= found.seed < 2**63:
        raise WrongQuestion(f"--seed {found.seed} is no seed", "a number from 0 to 2^63 - 1")
    if found.timeout is not None and not 0 < found.timeout < float("inf"):
        raise WrongQuestion(f"--timeout {found.timeout:g} is no time", "a number above 0")
    usual = Asked()
    return Asked(
        seed=usual.seed if found.seed is None else found.seed,
        seconds=usual.seconds if found.seconds is None else found.seconds,
        level=found.level,
        only=tuple(flat(found.only)),
    )


def flat(groups: Sequence[Sequence[str]]) -> List[str]:
    """`--expect a b --expect c` as one list."""
    return [text for group in groups for text in group]
