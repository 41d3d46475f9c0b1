"""What was guarded, and is another now: an installer that did not read the constraints."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.evidence.context import RuleContext, event_evidence, events, value_evidence
from gpusetup.findings.record import Cause
from gpusetup.fixes import paste
from gpusetup.model.finding import Finding, Fix, Severity
from gpusetup.model.shell import Line
from gpusetup.readings.packages import normalised

FAMILY = ("torch", "torchvision", "torchaudio")
PIN = re.compile(r"(?<!\S)([a-z0-9][a-z0-9-]*)==([0-9][A-Za-z0-9.+!]*)(?!\S)")
"""A pin as the probe writes it; in somebody's snapshot anything may stand there."""

GUARDED_SET_CHANGED = Cause(
    id="guarded-set-changed",
    severity=Severity.WARNING,
    title="a package of the guarded set was replaced",
    means="`gpusetup guard --write` wrote down which versions work together. One of them is "
    "another now: an installer that did not read the constraints has replaced it.",
    proven_by="The guard's constraints file, and the versions that are installed",
    not_when="It was meant: `gpusetup guard --write` holds the new set",
    way_out="The version that was guarded, or a new guard",
    source="gpusetup",
)


def guarded_set_changed(context: RuleContext) -> Iterator[Finding]:
    """The versions that differ, in one finding; what is no longer there is another's subject."""
    for event in events(context, "guarded-set")[:1]:
        pins = dict(PIN.findall(event.values.get("pins", "")))
        here = _installed(context)
        moved = {
            name: version
            for name, version in pins.items()
            if name in here and not is_same(version, here[name])
        }
        if not moved:
            continue
        when = event.values.get("when", "")
        was = f"when it was guarded{f' on {when}' if when else ''}"
        name = next(iter(moved))
        said = ", ".join(f"{one} {here[one]} in place of {moved[one]}" for one in moved)
        yield GUARDED_SET_CHANGED.found(
            f"{name} was {moved[name]} {was}, it is {here[name]} now",
            evidence=(*event_evidence((event,)), value_evidence(context, "packages", said)),
            fix=Fix(
                text="Put the guarded versions back; if the change was meant, "
                "`gpusetup guard --write` holds the new set instead",
                commands=tuple(_back(context, moved)),
            ),
        )


def is_same(pinned: str, here: str) -> bool:
    """Whether a version is the one that was pinned; a pin without a label takes any.

    >>> is_same("2.13.0", "2.13.0+cu130"), is_same("2.13.0+cu130", "2.13.0+cpu")
    (True, False)
    """
    from packaging.version import InvalidVersion, Version

    try:
        one, other = Version(pinned), Version(here)
    except InvalidVersion:
        return pinned == here
    return one.public == other.public and one.local in (None, other.local)


def _installed(context: RuleContext) -> dict[str, str]:
    """Name -> version; torch's by its own file, which knows the label."""
    found = {normalised(one.name): one.version for one in context.snapshot.packages or ()}
    torch = context.snapshot.torch.version
    return {**found, "torch": torch} if torch else found


def _back(context: RuleContext, moved: dict[str, str]) -> Iterator[Line]:
    """torch's family from its own index first, then the others, alone."""
    public, _, label = moved.get("torch", "").partition("+")
    if public:
        backend = ("--backend", label) if label else ()
        words = ("--python", paste.python(context), "--torch", public, *backend)
        yield paste.command(context, "gpusetup", "install", *words)
    for name, version in moved.items():
        if name == "torch" or (public and name in FAMILY):
            continue
        plain, _, own = version.partition("+")
        index = paste.torch_index(context, own) if own and name in FAMILY else ()
        wanted = version if index else plain
        yield paste.pip(context, "install", "--no-deps", *index, f"{name}=={wanted}")


RULES = (guarded_set_changed,)
