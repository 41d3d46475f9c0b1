"""`--expect`: the user's requirements on torch and the GPUs. Pure functions.

An expression is NAME OPERATOR VALUE. A name that has several values (memory of two GPUs) must
hold for each; `arch` must hold for one of the build's kernels, because a build carries many.
"""

from __future__ import annotations

import operator
import re
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from ..values import FAILED, PASSED, Outcome, Row, WrongQuestion

OPERATORS: Dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_SHAPE = re.compile(r"\s*([A-Za-z_]*)\s*([=!<>~]*)\s*(.*)\Z", re.DOTALL)
_VERSION = re.compile(
    r"v?(\d+(?:\.\d+)*?)(?:\.0)*"
    r"((?:[-._]?(?:alpha|beta|preview|post|dev|pre|rc|a|b|c)[-._]?\d*)*)(?:\+([a-z0-9._-]+))?\Z"
)
BEFORE, FINAL, AFTER = range(3)
"""The stages of a release, in order: before it (`2.6.0a0`, `2.6.0.dev20250101`), the release
(`2.6.0`), and after it (`2.6.0.post1`)."""


class Expectation(NamedTuple):
    """One expression of `--expect`."""

    text: str
    name: str
    operator: str
    wanted: Any
    """The value that the facts are compared with; a list for the beginning of a version."""


class Version(NamedTuple):
    """A version number that can be compared; trailing zeros of the release do not count."""

    release: Tuple[int, ...]
    stage: int
    local: str = ""
    """What follows `+`, such as `cu124`; it counts only if the expectation has one."""


def read_version(text: str) -> Any:
    """The version in comparable form; for a pattern such as `2.5.*` only the list of leading
    numbers. Raises ValueError.

    >>> read_version("2.6.0a0+nv25.01") < read_version("2.6") < read_version("2.6.0.post1")
    True
    """
    # A pattern is the beginning of many versions, so it is not a version itself.
    if text.endswith(".*"):
        return [int(part) for part in text[:-2].split(".")]
    match = _VERSION.match(text.strip().lower())
    if match is None:
        raise ValueError(text)
    release, suffix, local = match.groups("")
    stage = FINAL
    if suffix:
        stage = AFTER if suffix.lstrip("-._").startswith("post") else BEFORE
    numbers = tuple(int(number) for number in release.split("."))
    return Version(numbers, stage, local)


def read_capability(text: str) -> Tuple[int, int]:
    """A compute capability from text such as `8.6`, `sm_86` or `compute_90`. Raises ValueError.

    >>> read_capability("8.6"), read_capability("sm_90a"), read_capability("compute_120")
    ((8, 6), (9, 0), (12, 0))
    """
    match = re.match(r"(?:sm_|compute_)?(\d+?)\.?(\d)[af]?\Z", text.strip())
    has_point, has_prefix = "." in text, "_" in text
    # Plain digits such as `86` could be meant otherwise; `sm_8.6` mixes two spellings.
    if match is None or has_point == has_prefix:
        raise ValueError(text)
    major, minor = match.groups()
    return int(major), int(minor)


def read_number(text: str) -> float:
    """A number without sign or exponent. Raises ValueError."""
    # `float` also reads `inf`, `nan` and `1e9`.
    if not re.match(r"\d+(\.\d+)?\Z", text):
        raise ValueError(text)
    return float(text)


class ExpectedName(NamedTuple):
    """A name that `--expect` accepts: how to read its value, and where the facts are."""

    read: Callable[[str], Any]
    """Value text -> comparable value; raises ValueError for other text."""
    example: str
    needs: Tuple[str, ...]
    """The checks that find the value out."""
    of: Callable[[Row], List[Any]]
    """Facts -> the values as text; those of one device end in ` on DEVICE`. Empty if unknown."""


def gpu_counts(facts: Row) -> List[Any]:
    """The number of GPUs that torch sees."""
    return [str(facts.get("gpus", 0))]


def gpu_memories(facts: Row) -> List[Any]:
    """The memory of each device in GiB."""
    texts = []
    for row in facts["devices"]:
        gibibytes = row["memory_total_bytes"] / 2**30
        device = row["device"]
        texts.append(f"{gibibytes:.2f} on {device}")
    return texts


def gpu_capabilities(facts: Row) -> List[Any]:
    """The compute capability of each device."""
    texts = []
    for row in facts["devices"]:
        capability = row["compute_capability"]
        texts.append(f"{capability} on {row['device']}")
    return texts


def built_kernels(facts: Row) -> List[Any]:
    """The GPU architectures for which the build has a kernel, not only PTX."""
    architectures = facts.get("arch", ())
    return [name for name in architectures if name.startswith("sm_")]


# The checks that must run to know the build, the number of GPUs, and the properties of each GPU.
BUILD = ("import",)
SEEN = (*BUILD, "gpu")
ASKED = (*SEEN, "properties")
NAMES: Dict[str, ExpectedName] = {
    "gpus": ExpectedName(read_number, "gpus>=2", SEEN, gpu_counts),
    "torch": ExpectedName(read_version, "torch==2.5.*", BUILD, lambda facts: [facts.get("torch")]),
    "cuda": ExpectedName(read_version, "cuda==12.4", BUILD, lambda facts: [facts.get("cuda")]),
    "memory_gib": ExpectedName(read_number, "memory_gib>=3.5", ASKED, gpu_memories),
    "capability": ExpectedName(read_capability, "capability>=8.0", ASKED, gpu_capabilities),
    "arch": ExpectedName(read_capability, "arch>=8.6", BUILD, built_kernels),
}
ANY_SUFFICES = ("arch",)
"""The names for which one value that meets the expectation is enough (except with `!=`)."""


def parse(text: str) -> Expectation:
    """Read one expression of `--expect`. Raises WrongQuestion, which says what is wrong with it.

    >>> parse("gpus >= 2")
    Expectation(text='gpus>=2', name='gpus', operator='>=', wanted=2.0)
    """
    name, sign, value = _SHAPE.match(text.strip()).groups()  # type: ignore[union-attr]

    def wrong(problem: str, hint: str) -> WrongQuestion:
        return WrongQuestion(f"--expect {text!r}: {problem}", hint)

    row = NAMES.get(name)
    if row is None:
        names = ", ".join(NAMES)
        raise wrong(f"there is no name {name!r}", f"there are {names}")
    if not sign:
        quote = "quote it, because the shell reads > as output to a file"
        raise wrong("it has no operator", f"{quote}: --expect '{row.example}'")
    if sign not in OPERATORS:
        signs = " ".join(OPERATORS)
        raise wrong(f"there is no operator {sign!r}", f"there are {signs}")
    try:
        wanted_value = row.read(value)
    except ValueError:
        hint = f"write it like `{row.example}`"
        raise wrong(f"{value!r} is no value of {name}", hint) from None
    return Expectation(f"{name}{sign}{value}", name, sign, wanted_value)


def judge(expectation: Expectation, facts: Row) -> Outcome:
    """The outcome of an expectation: passed if the facts meet it, failed if they do not or are
    unknown."""
    text, name = expectation.text, expectation.name
    values = NAMES[name].of(facts)
    shown_values = [value for value in values if value]
    if not shown_values:
        reason = "nothing is known of it"
        # A CPU build has neither a CUDA version nor kernels.
        if name in ("cuda", "arch"):
            reason = f"torch {facts.get('torch')} was built without CUDA"
        return Outcome(FAILED, f"{text}: {reason}")
    wrong_values = []
    for value in shown_values:
        if not is_as_expected(expectation, value):
            wrong_values.append(value)
    one_suffices = name in ANY_SUFFICES and expectation.operator != "!="
    one_is_right = len(wrong_values) < len(shown_values)
    if not wrong_values or (one_suffices and one_is_right):
        shown = ", ".join(shown_values)
        return Outcome(PASSED, f"{text}: {shown}")
    shown = ", ".join(wrong_values)
    return Outcome(FAILED, f"{text}: found {shown}")


def is_as_expected(expectation: Expectation, shown: str) -> bool:
    """Whether one value meets the expectation; the text after ` on ` in `shown` is ignored."""
    value = NAMES[expectation.name].read(shown.partition(" on ")[0])
    wanted_value = expectation.wanted
    if isinstance(wanted_value, list):
        # `2.5.0.*` also asks for the zero, which a release of `2.5` does not write.
        length = len(wanted_value)
        padded = [*value.release, *[0] * length]
        value = padded[:length]
    elif isinstance(wanted_value, Version) and not wanted_value.local:
        value = value._replace(local="")
    return OPERATORS[expectation.operator](value, wanted_value)
