"""`--expect`: what the user says must hold of this torch and these GPUs. Pure.

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
"""The stages of a release: `2.6.0a0`, `2.6.0.dev20250101`; `2.6.0`; `2.6.0.post1`."""


class Expectation(NamedTuple):
    text: str
    name: str
    operator: str
    wanted: Any


class Version(NamedTuple):
    """In this order; trailing zeros of the release do not count."""

    release: Tuple[int, ...]
    stage: int
    local: str = ""
    """Compared only where it is asked for."""


def read_version(text: str) -> Any:
    """The comparable form; of `2.5.*` only the numbers that a version must begin with.

    >>> read_version("2.6.0a0+nv25.01") < read_version("2.6") < read_version("2.6.0.post1")
    True
    """
    if text.endswith(".*"):
        return [int(part) for part in text[:-2].split(".")]
    found = _VERSION.match(text.strip().lower())
    if not found:
        raise ValueError(text)
    release, stage, local = found.groups("")
    known = AFTER if stage.lstrip("-._").startswith("post") else BEFORE if stage else FINAL
    return Version(tuple(map(int, release.split("."))), known, local)


def read_capability(text: str) -> Tuple[int, int]:
    """`8.6`, or `sm_86` and `compute_90` as torch writes them.

    >>> read_capability("8.6"), read_capability("sm_90a"), read_capability("compute_120")
    ((8, 6), (9, 0), (12, 0))
    """
    found = re.match(r"(?:sm_|compute_)?(\d+?)\.?(\d)[af]?\Z", text.strip())
    if not found or ("." in text) == ("_" in text):
        raise ValueError(text)
    return int(found.group(1)), int(found.group(2))


def read_number(text: str) -> float:
    if not re.match(r"\d+(\.\d+)?\Z", text):
        raise ValueError(text)
    return float(text)


class Name(NamedTuple):
    """A row of the table of names."""

    read: Callable[[str], Any]
    """Value text -> comparable value; ValueError where it is none."""
    example: str
    needs: Tuple[str, ...]
    """The checks that learn it."""
    of: Callable[[Row], List[Any]]
    """Facts -> the texts of what must hold, each with ` on DEVICE` behind it or not; [] where
    unknown."""


BUILD, SEEN, ASKED = ("import",), ("import", "gpu"), ("import", "gpu", "properties")
NAMES: Dict[str, Name] = {
    "gpus": Name(read_number, "gpus>=2", SEEN, lambda facts: [str(facts.get("gpus", 0))]),
    "torch": Name(read_version, "torch==2.5.*", BUILD, lambda facts: [facts.get("torch")]),
    "cuda": Name(read_version, "cuda==12.4", BUILD, lambda facts: [facts.get("cuda")]),
    "memory_gib": Name(
        read_number,
        "memory_gib>=3.5",
        ASKED,
        lambda f: [f"{r['memory_total_bytes'] / 2**30:.2f} on {r['device']}" for r in f["devices"]],
    ),
    "capability": Name(
        read_capability,
        "capability>=8.0",
        ASKED,
        lambda facts: [f"{r['compute_capability']} on {r['device']}" for r in facts["devices"]],
    ),
    "arch": Name(
        read_capability,
        "arch>=8.6",
        BUILD,
        lambda facts: [kernel for kernel in facts.get("arch", ()) if kernel.startswith("sm_")],
    ),
}
ANY_SUFFICES = ("arch",)
"""Names of which one value that holds is enough (except under `!=`)."""


def parse(text: str) -> Expectation:
    """Read one expression; WrongQuestion says what is wrong with it.

    >>> parse("gpus >= 2")
    Expectation(text='gpus>=2', name='gpus', operator='>=', wanted=2.0)
    """
    name, sign, value = _SHAPE.match(text.strip()).groups()  # type: ignore[union-attr]
    row = NAMES.get(name)
    if row is None:
        wrong, hint = f"there is no name {name!r}", f"there are {', '.join(NAMES)}"
    elif not sign:
        wrong = "it has no operator"
        hint = f"quote it, because the shell reads > as output to a file: --expect '{row.example}'"
    elif sign not in OPERATORS:
        wrong, hint = f"there is no operator {sign!r}", f"there are {' '.join(OPERATORS)}"
    else:
        try:
            return Expectation(f"{name}{sign}{value}", name, sign, row.read(value))
        except ValueError:
            wrong, hint = f"{value!r} is no value of {name}", f"write it like `{row.example}`"
    raise WrongQuestion(f"--expect {text!r}: {wrong}", hint)


def judge(expectation: Expectation, facts: Row) -> Outcome:
    """Whether the facts are as expected."""
    text, name, sign, wanted = expectation
    row = NAMES[name]
    found = [each for each in row.of(facts) if each]
    if not found:
        built = f"torch {facts.get('torch')} was built without CUDA"
        why = built if name in ("cuda", "arch") else "nothing is known of it"
        return Outcome(FAILED, f"{text}: {why}")

    def holds(shown: str) -> bool:
        value = row.read(shown.partition(" on ")[0])
        if isinstance(wanted, list):  # zeros at the end count here
            value = [*value.release, *[0] * len(wanted)][: len(wanted)]
        elif isinstance(wanted, Version) and not wanted.local:
            value = value._replace(local="")
        return OPERATORS[sign](value, wanted)

    wrong = [shown for shown in found if not holds(shown)]
    one_suffices = name in ANY_SUFFICES and sign != "!="
    if not wrong or (one_suffices and len(wrong) < len(found)):
        return Outcome(PASSED, f"{text}: {', '.join(found)}")
    return Outcome(FAILED, f"{text}: found {', '.join(wrong)}")
