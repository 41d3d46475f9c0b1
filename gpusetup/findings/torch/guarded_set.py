"""What was guarded, and is another now: an installer that did not read the constraints."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.evidence.context import RuleContext, events
from gpusetup.evidence.plausible import is_a_name
from gpusetup.findings.message_rules import finding
from gpusetup.findings.record import Cause, Message
from gpusetup.fixes import paste
from gpusetup.model.finding import Finding, Fix, Severity
from gpusetup.model.shell import Line
from gpusetup.readings.packages import normalised

FAMILY = ("torch", "torchvision", "torchaudio")
PIN = r"(?<!\S)([a-z0-9][a-z0-9-]*)==([0-9][A-Za-z0-9.+!]*)(?!\S)"
"""A pin as the probe writes it; in somebody's snapshot anything may stand there."""

GUARDED_SET_CHANGED = Cause(
    id="guarded-set-changed",
    severity=Severity.WARNING,
    title="a package of the guarded set was replaced",
    means="A guard, or the receipt of `gpusetup install`, says which versions work "
    "together. One of them is another now: an installer has replaced it.",
    proven_by="The guard's constraints file or the receipt, and the versions that are installed",
    not_when="It was meant: `gpusetup guard --write` holds the new set",
    way_out="The version that was guarded, or a new guard",
    source="gpusetup",
    message=Message(title="{name} was {was} {since}, it is {now}"),
)


def guarded_set_changed(context: RuleContext) -> Iterator[Finding]:
    """The versions that differ, in one finding; what is no longer there is another's subject."""
    here = {normalised(one.name): one.version for one in context.snapshot.packages or ()}
    here["torch"] = context.snapshot.torch.version or here.get("torch", "")
    for event in events(context, "guarded-set")[:1]:
        said = event.values
        pins = re.findall(PIN, said.get("pins", ""))
        moved = {n: v for n, v in pins if here.get(n) and not is_same(v, here[n])}
        for name in [*moved][:1]:
            tool = said.get("tool", "")
            named = said.get("how") == "named" and is_a_name(tool)
            when = f"when it was {said.get('how', 'guarded')} on {said.get('when', 'its day')}"
            by = f"; {said['by']} put it there on {said.get('on')}" if "by" in said else ""
            beside = f" together with {said['with'].replace(' ', ', ')}" if "with" in said else ""
            yield finding(
                context,
                GUARDED_SET_CHANGED,
                (event,),
                fix=Fix(
                    text="Put the guarded versions back; if the change was meant, `gpusetup guard "
                    "--write` holds the new set instead",
                    # uv builds a tool's environment from its receipt.
                    commands=(paste.command(context, "uv", "tool", "upgrade", "--reinstall", tool),)
                    if named
                    else tuple(_back(context, moved)),
                ),
                name=name,
                was=moved[name],
                since=f"in the receipt of the tool {tool}" if named else when,
                now=f"{here[name]} now{by}{beside}",
            )


def is_same(pinned: str, here: str) -> bool:
    """Whether a version is the one that was pinned; a pin without a label takes any.

    >>> is_same("2.13.0", "2.13.0+cu130"), is_same("2.13.0+cu130", "2.13.0+cpu")
    (True, False)
    """
    return here == pinned or ("+" not in pinned and here.partition("+")[0] == pinned)


def _back(context: RuleContext, moved: dict[str, str]) -> Iterator[Line]:
    """torch's family from its own index first, then the others, alone."""
    public, _, label = moved.get("torch", "").partition("+")
    if public:
        words = ("--python", paste.python(context), "--torch", public)
        backend = ("--backend", label) if label else ()
        yield paste.command(context, "gpusetup", "install", *words, *backend)
    rest = [
        f"{n}=={v.partition('+')[0]}" for n, v in moved.items() if not public or n not in FAMILY
    ]
    if rest:
        yield paste.pip(context, "install", "--no-deps", *rest)


RULES = (guarded_set_changed,)
