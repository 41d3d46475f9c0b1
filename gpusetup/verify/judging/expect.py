"""`--expect`: what the user says must hold of this torch and these GPUs. Pure.

An expression is NAME OPERATOR VALUE. A name that has several values (memory of two GPUs) must
hold for each; `arch` must hold for one of the build's kernels, because a build carries many.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from ..values import FAILED, PASSED, Outcome, WrongQuestion

OPERATORS: Dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda found, wanted: bool(found == wanted),
    "!=": lambda found, wanted: bool(found != wanted),
    ">=": lambda found, wanted: bool(found >= wanted),
    "<=": lambda found, wanted: bool(found <= wanted),
    ">": lambda found, wanted: bool(found > wanted),
    "<": lambda found, wanted: bool(found < wanted),
}
NEAREST = {"=>": ">=", "=<": "<=", "=": "==", "===": "==", "<>": "!=", "~=": ">=", "!": "!="}
"""What people write -> what they mean."""

_SHAPE = re.compile(r"\s*([A-Za-z_]*)\s*([=!<>~]*)\s*(.*)\Z", re.DOTALL)
_VERSION = re.compile(
    r"v?(\d+(?:\.\d+)*)(?:[-_.]?(a|b|c|rc|alpha|beta|pre|preview)[-_.]?(\d*))?"
    r"(?:[-_.]?(post)(\d*))?(?:[-_.]?(dev)(\d*))?(?:\+([a-z0-9._-]+))?\Z",
    re.IGNORECASE,
)
_STAGES = {"alpha": "a", "beta": "b", "c": "rc", "pre": "rc", "preview": "rc"}
_LATEST = ("z", 0)


class Expectation(NamedTuple):
    text: str
    name: str
    operator: str
    wanted: Any


class Name(NamedTuple):
    """A row of the table of names."""

    read: Callable[[str], Any]
    """Value text -> comparable value; ValueError where it is none."""
    example: str
    needs: Tuple[str, ...]
    """The checks that learn it."""
    of: Callable[[Dict[str, Any]], List[Tuple[str, Any]]]
    """Facts -> (what to call it, comparable value) of each that must hold; [] where unknown."""


class Prefix(NamedTuple):
    """`2.5.*`: equal to every version that begins so."""

    release: Tuple[int, ...]


class Version(NamedTuple):
    """The order of versions as PEP 440 has it; `local` is compared only where it is asked for."""

    release: Tuple[int, ...]
    stage: Tuple[str, int]
    post: int
    dev: float
    local: str = ""


def read_version(text: str) -> Version:
    """The comparable form; trailing zeros of the release do not count.

    >>> read_version("2.6.0a0+nv25.01") < read_version("2.6.0") < read_version("2.6.0.post1")
    True
    """
    found = _VERSION.match(text.strip())
    if not found:
        raise ValueError(text)
    release, stage, stage_number, post, post_number, dev, dev_number, local = found.groups()
    only_dev = dev and not stage and not post
    stage = stage and stage.lower()
    return Version(
        _trimmed(tuple(int(part) for part in release.split("."))),
        (_STAGES.get(stage, stage), int(stage_number or 0))
        if stage
        else ("", 0)
        if only_dev
        else _LATEST,
        int(post_number or 0) if post else -1,
        int(dev_number or 0) if dev else float("inf"),
        (local or "").lower(),
    )


def read_wanted_version(text: str) -> Any:
    """A version, or a prefix (`2.5.*`)."""
    if text.endswith(".*"):
        return Prefix(tuple(int(part) for part in text[:-2].split(".")))
    return read_version(text)


def read_capability(text: str) -> Tuple[int, int]:
    """`8.6`, or `sm_86` and `compute_90` as torch writes them.

    >>> read_capability("8.6"), read_capability("sm_90a"), read_capability("compute_120")
    ((8, 6), (9, 0), (12, 0))
    """
    found = re.match(r"(?:(\d+)\.(\d)|(?:sm_|compute_)(\d+)(\d)[af]?)\Z", text.strip())
    if not found:
        raise ValueError(text)
    major, minor = (part for part in found.groups() if part is not None)
    return int(major), int(minor)


def read_count(text: str) -> int:
    if not re.match(r"\d+\Z", text):
        raise ValueError(text)
    return int(text)


def read_size(text: str) -> float:
    if not re.match(r"\d+(\.\d+)?\Z", text):
        raise ValueError(text)
    return float(text)


def _versions(key: str) -> Callable[[Dict[str, Any]], List[Tuple[str, Any]]]:
    def of(facts: Dict[str, Any]) -> List[Tuple[str, Any]]:
        return [(facts[key], read_version(facts[key]))] if facts.get(key) else []

    return of


def _gpus(facts: Dict[str, Any]) -> List[Tuple[str, Any]]:
    count = facts.get("gpus") or 0
    return [(str(count), count)]


def _memory(facts: Dict[str, Any]) -> List[Tuple[str, Any]]:
    sizes = [(row["device"], row["memory_total_bytes"] / 2**30) for row in facts["devices"]]
    return [(f"{size:.2f} on {device}", size) for device, size in sizes]


def _capabilities(facts: Dict[str, Any]) -> List[Tuple[str, Any]]:
    rows = [(row["device"], row["compute_capability"]) for row in facts["devices"]]
    return [(f"{shown} on {device}", read_capability(shown)) for device, shown in rows]


def _kernels(facts: Dict[str, Any]) -> List[Tuple[str, Any]]:
    kernels = [arch for arch in facts.get("arch") or () if arch.startswith("sm_")]
    return [(arch, read_capability(arch)) for arch in kernels]


NAMES: Dict[str, Name] = {
    "gpus": Name(read_count, "gpus>=2", ("import", "gpu"), _gpus),
    "torch": Name(read_wanted_version, "torch==2.5.*", ("import",), _versions("torch")),
    "cuda": Name(read_wanted_version, "cuda==12.4", ("import",), _versions("cuda")),
    "memory_gib": Name(read_size, "memory_gib>=3.5", ("import", "gpu", "properties"), _memory),
    "capability": Name(
        read_capability, "capability>=8.0", ("import", "gpu", "properties"), _capabilities
    ),
    "arch": Name(read_capability, "arch>=8.6", ("import",), _kernels),
}
ANY_SUFFICES = ("arch",)
"""Names of which one value that holds is enough (except under `!=`)."""


def parse(text: str) -> Expectation:
    """Read one expression; WrongQuestion says what is wrong with it and what is nearest.

    >>> parse("gpus >= 2")
    Expectation(text='gpus>=2', name='gpus', operator='>=', wanted=2)
    """
    name, operator, value = _SHAPE.match(text.strip()).groups()  # type: ignore[union-attr]
    if name not in NAMES:
        raise WrongQuestion(
            f"--expect {text!r}: there is no name {name!r}{_nearest_name(name)}",
            f"there are {', '.join(NAMES)}",
        )
    if not operator:
        raise WrongQuestion(
            f"--expect {text!r} has no operator",
            f"write it in quotes, the shell takes > for a file: --expect '{NAMES[name].example}'",
        )
    if operator not in OPERATORS:
        raise WrongQuestion(
            f"--expect {text!r}: there is no operator {operator!r}, the nearest is "
            f"{NEAREST.get(operator, '==')!r}",
            f"there are {' '.join(OPERATORS)}",
        )
    return Expectation(
        f"{name}{operator}{value}", name, operator, _value(text, name, operator, value)
    )


def _value(text: str, name: str, operator: str, value: str) -> Any:
    row = NAMES[name]
    try:
        wanted = row.read(value)
    except ValueError:
        raise WrongQuestion(
            f"--expect {text!r}: {value!r} is no value of {name}", f"write it like `{row.example}`"
        ) from None
    if isinstance(wanted, Prefix) and operator not in ("==", "!="):
        raise WrongQuestion(
            f"--expect {text!r}: `.*` goes with == and != only",
            f"`{name}{operator}{value[:-2]}` compares the version itself",
        )
    return wanted


def _nearest_name(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.5)
    return f", the nearest is {near[0]!r}" if near else ""


def judge(expectation: Expectation, facts: Dict[str, Any]) -> Outcome:
    """Whether the facts are as expected."""
    found = NAMES[expectation.name].of(facts)
    if not found:
        return Outcome(FAILED, f"{expectation.text}: {_why_unknown(expectation.name, facts)}")
    wrong = [text for text, value in found if not _holds(value, expectation)]
    one_suffices = expectation.name in ANY_SUFFICES and expectation.operator != "!="
    if not wrong or (one_suffices and len(wrong) < len(found)):
        return Outcome(PASSED, f"{expectation.text}: {', '.join(text for text, _ in found)}")
    return Outcome(FAILED, f"{expectation.text}: found {', '.join(wrong)}")


def _holds(found: Any, expectation: Expectation) -> bool:
    wanted = expectation.wanted
    if isinstance(wanted, Prefix):
        padded = found.release + (0,) * len(wanted.release)
        same = bool(padded[: len(wanted.release)] == wanted.release)
        return same == (expectation.operator == "==")
    if isinstance(wanted, Version) and not wanted.local:
        found = found._replace(local="")
    return OPERATORS[expectation.operator](found, wanted)


def _why_unknown(name: str, facts: Dict[str, Any]) -> str:
    if name in ("cuda", "arch"):
        return f"torch {facts.get('torch')} was built without CUDA"
    return "nothing is known of it"


def contradiction(expectation: Expectation, device: str) -> Optional[str]:
    """Why this cannot be asked under `--device`; None where it can."""
    if "gpu" in NAMES[expectation.name].needs and device in ("cpu", "none"):
        return f"--expect {expectation.text!r} needs a GPU, --device {device} looks at none"
    return None


def _trimmed(release: Tuple[int, ...]) -> Tuple[int, ...]:
    while len(release) > 1 and release[-1] == 0:
        release = release[:-1]
    return release
