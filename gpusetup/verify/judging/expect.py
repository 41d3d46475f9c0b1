"""The option `--expect`: the user's requirements for torch and the GPUs.

An expression is NAME OPERATOR VALUE. If a name has several values (such as the memory of two GPUs),
each value must meet the expectation. `arch` is the exception: one of the build's kernels is enough,
because a build contains many.
"""

from __future__ import annotations

import operator
import re
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from ..values import FAILED, PASSED, UNEXPECTED, Outcome, Row, WrongQuestion

OPERATORS: Dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
# Always matches, so that an error names the part that is wrong: `torch`, `==` and `2.5.*`.
_SHAPE = re.compile(r"\s*([A-Za-z_]*)\s*([=!<>~]*)\s*(.*)\Z", re.DOTALL)
# `2.6.0a0+nv25.01`: the release without trailing zeros, the suffixes, and the local label.
_VERSION = re.compile(
    r"(\d+(?:\.\d+)*?)(?:\.0)*((?:\.?(?:post|dev|rc|a|b)\d*)*)(?:\+([a-z0-9._-]+))?\Z"
)


class Expectation(NamedTuple):
    """One expression of `--expect`."""

    text: str
    name: str
    operator: str
    wanted: Any
    """The expected value. For a pattern such as `2.5.*`, it is the list of leading numbers."""


class Version(NamedTuple):
    """A version that can be compared. Trailing zeros in the release do not count."""

    release: Tuple[int, ...]
    is_released: bool
    """False for a version before its release (`2.6.0a0`, `2.6.0.dev20250101`)."""
    local: str = ""
    """The part after `+`, such as `cu124`. It is only compared if the expectation has one."""


def read_version(text: str) -> Any:
    """The version in a comparable form. For a pattern such as `2.5.*`, returns the list of
    leading numbers. Raises ValueError for other text.

    >>> read_version("2.6.0a0+nv25.01") < read_version("2.6") == read_version("2.6.0.post300")
    True
    """
    # A pattern matches many versions, so it cannot become a Version.
    if text.endswith(".*"):
        return [int(part) for part in text[:-2].split(".")]
    match = _VERSION.match(text.strip().lower())
    if match is None:
        raise ValueError(text)
    release, suffix, local = match.groups("")
    # conda-forge calls its builds of a release `2.1.0.post300`.
    is_released = not suffix or "post" in suffix
    return Version(tuple(map(int, release.split("."))), is_released, local)


def read_capability(text: str) -> Tuple[int, int]:
    """The compute capability for text such as `8.6` or `sm_90a`. Raises ValueError for other text.

    >>> read_capability("8.6"), read_capability("sm_90a"), read_capability("sm_120")
    ((8, 6), (9, 0), (12, 0))
    """
    # `sm_90a` and `sm_100f` are for one GPU or its family. Plain digits such as `86` could mean
    # something else.
    match = re.match(r"sm_(\d+)(\d)[af]?\Z|(\d+)\.(\d)\Z", text.strip())
    if match is None:
        raise ValueError(text)
    major, minor = filter(None, match.groups())
    return int(major), int(minor)


def read_number(text: str) -> float:
    """A number that is written without sign or exponent. Raises ValueError."""
    # Check the form first, because `float` also accepts `inf`, `nan` and `1e9`.
    if not re.match(r"\d+(\.\d+)?\Z", text):
        raise ValueError(text)
    return float(text)


class ExpectedName(NamedTuple):
    """A name that `--expect` accepts."""

    read: Callable[[str], Any]
    """Converts the text of a value into a comparable value. Raises ValueError for other text."""
    example: str
    of: Callable[[Row], List[Any]]
    """The actual values as text, some ending with ` on DEVICE`; empty or with None if unknown."""
    needs: Tuple[str, ...] = ("import",)
    """The checks that must run to find the actual value."""


def of_devices(facts: Row, field: str, text: Callable[[Any], str]) -> List[str]:
    """A field of each device as text, with the device's name. A device that does not report it is
    left out: the CPU has no compute capability, and an older torch tells no memory of Apple's."""
    known = [row for row in facts["devices"] if row.get(field) is not None]
    return [f"{text(row[field])} on {row['device']}" for row in known]


OF_GPUS = ("import", "gpu", "properties")
NAMES: Dict[str, ExpectedName] = {
    "gpus": ExpectedName(
        read_number, "gpus>=2", lambda facts: [str(facts.get("gpus", 0))], ("import", "gpu")
    ),
    "torch": ExpectedName(read_version, "torch==2.5.*", lambda facts: [facts.get("torch")]),
    "cuda": ExpectedName(read_version, "cuda==12.4", lambda facts: [facts.get("cuda")]),
    "memory_gib": ExpectedName(
        *(read_number, "memory_gib>=3.5"),
        lambda facts: of_devices(facts, "memory_total_bytes", lambda size: f"{size / 2**30:.2f}"),
        OF_GPUS,
    ),
    "capability": ExpectedName(
        *(read_capability, "capability>=8.0"),
        lambda facts: of_devices(facts, "compute_capability", str),
        OF_GPUS,
    ),
    # Compiled kernels, not only PTX.
    "arch": ExpectedName(
        *(read_capability, "arch>=8.6"),
        lambda facts: [name for name in facts.get("arch", ()) if name.startswith("sm_")],
    ),
}
INSTALL_CUDA_BUILD = (
    "`gpusetup install` replaces the CPU build; on a machine without the GPU, add "
    "`--gpu NAME --driver VERSION`"
)


def parse(text: str) -> Expectation:
    """Parse one expression of `--expect`. Raises WrongQuestion with a message if it is not valid.

    >>> parse("gpus >= 2")
    Expectation(text='gpus>=2', name='gpus', operator='>=', wanted=2.0)
    """
    name, sign, value = _SHAPE.match(text.strip()).groups()  # type: ignore[union-attr]

    def wrong(problem: str, hint: str) -> WrongQuestion:
        return WrongQuestion(f"--expect {text!r}: {problem}", hint)

    row = NAMES.get(name)
    if row is None:
        raise wrong(f"there is no name {name!r}", f"use one of {', '.join(NAMES)}")
    if not sign:
        quote = "quote it, because the shell reads > as output to a file"
        raise wrong("it has no operator", f"{quote}: --expect '{row.example}'")
    if sign not in OPERATORS:
        raise wrong(f"there is no operator {sign!r}", f"use one of {' '.join(OPERATORS)}")
    try:
        return Expectation(f"{name}{sign}{value}", name, sign, row.read(value))
    except ValueError:
        hint = f"write it like `{row.example}`"
        raise wrong(f"{value!r} is not a value of {name}", hint) from None


def judge(expectation: Expectation, facts: Row) -> Outcome:
    """The outcome of an expectation; what is unknown is not met."""
    text, name = expectation.text, expectation.name
    values = [value for value in NAMES[name].of(facts) if value]
    if not values:
        # A CPU build has no CUDA version and no GPU kernels.
        if name in ("cuda", "arch"):
            reason = f"torch {facts.get('torch')} was built without CUDA"
            return Outcome(FAILED, f"{text}: {reason}", hint=INSTALL_CUDA_BUILD, problem=UNEXPECTED)
        return Outcome(FAILED, f"{text}: its value is unknown", problem=UNEXPECTED)
    wrong = [value for value in values if not is_as_expected(expectation, value)]
    # With `!=`, no kernel of the build may be the one named.
    one_is_enough = name == "arch" and expectation.operator != "!="
    if not wrong or (one_is_enough and len(wrong) < len(values)):
        return Outcome(PASSED, f"{text}: {', '.join(values)}")
    return Outcome(FAILED, f"{text}: found {', '.join(wrong)}", problem=UNEXPECTED)


def is_as_expected(expectation: Expectation, text: str) -> bool:
    """Whether one value meets the expectation. The device after ` on ` in its text is ignored."""
    value = NAMES[expectation.name].read(text.partition(" on ")[0])
    wanted = expectation.wanted
    # A pattern, such as `2.5.*`.
    if isinstance(wanted, list):
        # Pad with zeros, because the release 2.5 also matches `2.5.0.*`.
        value = [*value.release, *[0] * len(wanted)][: len(wanted)]
    elif isinstance(wanted, Version) and not wanted.local:
        value = value._replace(local="")
    return OPERATORS[expectation.operator](value, wanted)
