"""Wheel variants: several builds of one version, told apart by a label in the file's name and by
the properties that `{name}-{version}-variants.json` beside it gives for each label
(https://peps.python.org/pep-0825/, which splits the format from PEP 817).

Pure. Which values of a property a machine takes is said by no standard yet; `nvidia` is read as
NVIDIA's provider has it (https://github.com/wheelnext/nvidia-variant-provider).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpusetup.install.fetching.wheels import Wheel, parsed_name
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Snapshot

LABEL = re.compile(r"[0-9a-z_.]{1,16}")
PART, VALUE = re.compile(r"[a-z0-9_]{1,100}"), re.compile(r"[a-z0-9_.]{1,100}")
KNOWN_FORMATS = re.compile(r"/v0\.0\.[1-3]\.json$")
"""The drafts that are read; a file of another format counts as none."""
MOST = 500
"""Labels of a file, and values of a feature."""
Properties = Mapping[str, Mapping[str, Sequence[str]]]


class Variants(Frozen):
    """What a file says: the order of namespaces, features and values, and each label's
    properties."""

    namespaces: tuple[str, ...]
    features: Mapping[str, tuple[str, ...]] = {}
    values: Mapping[str, Mapping[str, tuple[str, ...]]] = {}
    labels: Mapping[str, Mapping[str, Mapping[str, tuple[str, ...]]]] = {}


class Judged(Frozen):
    """One variant of a wheel and what stands against it here."""

    label: str
    filename: str
    url: str
    sha256: str | None = None
    properties: tuple[str, ...] = ()
    """`nvidia :: cuda_version_lower_bound :: 12.8`."""
    reason: str | None = None
    """Why it does not fit; null where it does."""


def variant_of(wheel_file: str) -> tuple[str, str] | None:
    """The name of the same wheel without its label, and the label; None for any other file.

    >>> variant_of("torch-2.9.0-cp312-cp312-manylinux_2_28_x86_64-cu130.whl")
    ('torch-2.9.0-cp312-cp312-manylinux_2_28_x86_64.whl', 'cu130')
    >>> variant_of("torch-2.9.0-1-cp312-cp312-manylinux_2_28_x86_64.whl")
    """
    stem, _, label = wheel_file.removesuffix(".whl").rpartition("-")
    plain = f"{stem}.whl"
    if parsed_name(wheel_file) is not None or parsed_name(plain) is None:
        return None
    return (plain, label) if LABEL.fullmatch(label) else None


def parse_variants(text: str) -> Variants:
    """What a `…-variants.json` says; ValueError where it is none, or of an unknown format."""
    try:
        said = json.loads(text)
    except RecursionError as problem:
        raise ValueError("it is nested too deeply") from problem
    if not isinstance(said, dict) or not KNOWN_FORMATS.search(str(said.get("$schema", ""))):
        raise ValueError("its format is not known here")
    order = said.get("default-priorities")
    order = order if isinstance(order, dict) else {}
    labels = _table(said.get("variants"))
    return Variants(
        namespaces=_words(order.get("namespace"), PART),
        features={n: _words(row, PART) for n, row in _table(order.get("feature", {})).items()},
        values={name: _lists(row) for name, row in _table(order.get("property", {})).items()},
        labels={
            label: {space: _lists(rows) for space, rows in _table(spaces).items()}
            for label, spaces in list(labels.items())[:MOST]
            if LABEL.fullmatch(label)
        },
    )


def _table(said: Any) -> dict[str, Any]:
    if not isinstance(said, dict):
        raise ValueError("a table is missing")
    return said


def _lists(said: Any) -> dict[str, tuple[str, ...]]:
    return {name: _words(row, VALUE) for name, row in _table(said).items() if PART.fullmatch(name)}


def _words(said: Any, pattern: re.Pattern[str]) -> tuple[str, ...]:
    rows = said if isinstance(said, list) else []
    words = tuple(row for row in rows[:MOST] if isinstance(row, str) and pattern.fullmatch(row))
    if len(words) != len(rows):
        raise ValueError("a list holds what is no name")
    return words


# --- what fits ------------------------------------------------------------------------------------


def judged(wheels: Sequence[Wheel], said: Variants | None, machine: Snapshot) -> tuple[Judged, ...]:
    """The variants of one version, those that fit first and in the order that the file gives; that
    without properties is the last of them.

    `wheels` are named with their label. Without a file none fits.
    """
    rows = [_judged(wheel, said, machine) for wheel in wheels]

    def place(row: Judged) -> tuple[Any, ...]:
        return row.reason is not None, _key(row.label, said, machine), row.label, row.filename

    return tuple(sorted(rows, key=place))


def _judged(wheel: Wheel, said: Variants | None, machine: Snapshot) -> Judged:
    found = variant_of(wheel.filename)
    label = found[1] if found else ""
    properties = said.labels.get(label) if said else None
    against: str | None
    if properties is None:
        against = "no file of the index says what this label means"
    else:
        against = next(_against(properties, machine), None)
    return Judged(
        label=label,
        filename=wheel.filename,
        url=wheel.url,
        sha256=wheel.sha256,
        properties=tuple(
            f"{space} :: {feature} :: {value}"
            for space, features in (properties or {}).items()
            for feature, values in features.items()
            for value in values
        ),
        reason=against,
    )


def _against(properties: Properties, machine: Snapshot) -> Iterator[str]:
    """What stands against a variant: a feature none of whose values this machine takes."""
    for space, features in properties.items():
        for feature, values in features.items():
            taken = TAKES.get((space, feature))
            if taken is None:
                yield f"{space} :: {feature} is a property that is not judged here"
            elif not taken(values, machine):
                wanted = ", ".join(values[:4]) + (" …" if len(values) > 4 else "")
                yield f"{space} :: {feature} :: {wanted} is not met here"


def _key(label: str, said: Variants | None, machine: Snapshot) -> tuple[Any, ...]:
    """What a variant is sorted by: the best value of each of its features, the most important
    first; more features before fewer."""
    rows = said.labels.get(label, {}) if said else {}
    if said is None or any((space, name) not in TAKES for space in rows for name in rows[space]):
        return ()
    keys = sorted(
        (
            _at(said.namespaces, space),
            _at((*said.features.get(space, ()), *(f for s, f in TAKES if s == space)), feature),
            _best(
                said.values.get(space, {}).get(feature, ()), TAKES[space, feature](values, machine)
            ),
        )
        for space, features in rows.items()
        for feature, values in features.items()
    )
    return (*keys, LAST)


def _ordered(said: Variants, space: str, feature: str) -> Sequence[str]:
    return said.values.get(space, {}).get(feature, ())


LAST = (MOST + 1, 0, (0, ()))


def _at(order: Sequence[str], name: str) -> int:
    return order.index(name) if name in order else MOST


def _best(order: Sequence[str], taken: Sequence[str]) -> tuple[int, tuple[int, ...]]:
    """Values that the file orders come first, others from the highest number down."""
    rows = ((_at(order, value), () if value in order else _downwards(value)) for value in taken)
    return min(rows, default=(MOST, ()))


def _downwards(value: str) -> tuple[int, ...]:
    return tuple(-int(digits) for digits in re.findall(r"\d{1,9}", value)[:3])


def _at_least(values: Sequence[str], machine: Snapshot) -> Sequence[str]:
    here = machine.driver.cuda
    return [v for v in values if here and number(here) >= number(v)]


def _below(values: Sequence[str], machine: Snapshot) -> Sequence[str]:
    here = machine.driver.cuda
    return [v for v in values if here and number(here) < number(v)]


def number(version: str) -> tuple[int, int]:
    """
    >>> number("12.8"), number("13"), number("x")
    ((12, 8), (13, 0), (0, 0))
    """
    found = re.fullmatch(r"(\d{1,4})(?:\.(\d{1,4}))?(?:\..*)?", version)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)


def _serving(values: Sequence[str], machine: Snapshot) -> Sequence[str]:
    """The kernels that serve a GPU of the machine; none where a visible GPU has none."""
    gpus = [gpu.compute_capability for gpu in machine.gpus or () if gpu.visible is not False]
    each = [[v for v in values if one and serves(v, one.major, one.minor)] for one in gpus]
    return [value for value in values if any(value in one for one in each)] if all(each) else []


def serves(value: str, major: int, minor: int) -> bool:
    """Whether a kernel, or code for one, serves a compute capability.

    >>> [serves(value, 8, 6) for value in ("86_real", "80_real", "90_real", "70_virtual")]
    [True, True, False, True]
    """
    found = re.fullmatch(r"(\d{1,3})(\d)_(real|virtual)", value)
    if found is None:
        return False
    built = (int(found[1]), int(found[2]))
    return built <= (major, minor) and (found[3] == "virtual" or built[0] == major)


Takes = Callable[[Sequence[str], Snapshot], Sequence[str]]
TAKES: Mapping[tuple[str, str], Takes] = {
    ("nvidia", "cuda_version_lower_bound"): _at_least,
    ("nvidia", "cuda_version_upper_bound"): _below,
    ("nvidia", "sm_arch"): _serving,
}
"""Of the values of a feature, those that a machine takes."""
