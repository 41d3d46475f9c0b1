"""What stands beside torch: torchvision, torchaudio, others of the table, what was guarded."""

from __future__ import annotations

import re

from gpusetup.catalog.companion_table import companion_table, releases_for, takes_torch
from gpusetup.catalog.companions import serves_backend, serves_torch
from gpusetup.catalog.rows import Name
from gpusetup.causes.record import RECORDS
from gpusetup.evidence.context import (
    RuleContext,
    events,
    is_report,
    package,
    says_nothing_else,
    value_evidence,
)
from gpusetup.findings.message_rules import finding, shown
from gpusetup.fixes import needs, paste
from gpusetup.fixes.lenders import lender_of
from gpusetup.model.finding import Findings, Fix
from gpusetup.model.frozen import replace
from gpusetup.model.shell import Line
from gpusetup.readings.packages import normalised

IMAGE_WARNING = "torchvision-image-mismatch"
"""Reading images fails, and nothing more: beside another failure it is only a warning."""


def companions(context: RuleContext) -> Findings:
    for name, cause in NAMES:
        image = events(context, IMAGE_WARNING) if name == "torchvision" else ()
        said = events(context, cause) or image
        differs = _differs(context, name)
        if said or differs:
            alone = said != image or says_nothing_else(context, IMAGE_WARNING)
            # A torch that computes although versions differ: the companion fails when it is used.
            works = not alone if said else context.torch.cuda_available
            pair = f"{name} does not belong to this torch{differs}"
            fix = _companion_fix(context, name)
            seen = (*said, shown(context, "packages", pair))
            yield finding(context, cause, seen, fix=fix, weak=works, pair=pair)


NAMES: tuple[tuple[Name, str], ...] = (
    ("torchvision", "torchvision-mismatch"),
    ("torchaudio", "torchaudio-mismatch"),
)


def _differs(context: RuleContext, name: Name) -> str:
    """A companion of another release, of another CUDA, or of another backend."""
    torch, here = context.torch, package(context, name)
    known = torch.version and context.catalog.release_of(torch.version)
    if here is None:
        return ""
    if known and serves_torch(context.catalog, name, here.version, known.torch) is False:
        return f" {torch.version}: {name} {here.version}"
    # No order: a text may not show the platform that an unlabelled wheel depends on.
    os, shows = context.os, not is_report(context) and here.installer != "conda"
    platform = f"{os.family}-{os.machine}" if shows else None
    backend = torch.backend
    fits = backend and serves_backend(context.catalog, name, here.version, backend, platform)
    return f": it is not built for {backend}" if fits is False else ""


def _companion_fix(context: RuleContext, name: Name) -> Fix:
    """The companion of the torch that is there; both together if that torch has to change too."""
    torch = context.torch
    given = not torch.version and "/usr/" in (torch.location or "") and not lender_of(context)
    if context.os.jetson or given:
        return Fix(
            text=f"Keep this torch, which the maker of the board or image provides. Get {name} "
            "from the same maker, or build it for the torch release that the command prints",
            commands=(paste.pip(context, "uninstall", "-y", name), paste.ask_torch(context)),
        )
    if unread := needs.unread_torch(context):
        text = (
            f"Keep the torch that is there, and install the release of {name} that belongs to it. "
            f"`gpusetup resolve {name}` names it; each release of torch has one"
        )
        return Fix(text=text, needs=unread)
    which = paste.command(context, paste.python(context), "-c", WHICH_COPY)
    look = "check first which copy of torch Python imports (PYTHONNOUSERSITE=1 ignores ~/.local)"
    way = paste.install_torch(context, f"Install torch and {name} together. ")
    return replace(way, looks=paste.look(look, which))


WHICH_COPY = "import torch; print(torch.__version__, torch.__file__)"


def pairs(context: RuleContext) -> Findings:
    """Packages beside a torch that they do not take."""
    torch = context.torch.version or ""
    for one in context.snapshot.packages or () if torch else ():
        project = companion_table().project(normalised(one.name))
        if project is None or project.wheels == "torch index" or one.installer == "conda":
            continue
        if takes_torch(project, one.version, torch) is False:
            pair = f"{project.name} {one.version} is not for torch {torch}"
            fitting = [f"{project.name}{one}" for one in releases_for(project, torch)[:1]]
            fix = Fix(
                text="Install the release for this torch, if there is one. Otherwise: "
                f"{project.alternative}",
                commands=tuple(paste.pip(context, "install", "--no-deps", one) for one in fitting),
            )
            evidence = (value_evidence(context, "packages", pair),)
            yield RECORDS["companion-torch-mismatch"].found(pair, evidence=evidence, fix=fix)


CHANGED = "guarded-set-changed"
PIN = r"(?<!\S)([a-z0-9][a-z0-9-]*)==([0-9][A-Za-z0-9.+!]*)(?!\S)"
"""A pin as the probe writes it; in somebody's snapshot anything may stand there."""


def guarded_set_changed(context: RuleContext) -> Findings:
    """The versions that differ, in one finding; what is no longer there is another's subject."""
    here = {normalised(one.name): one.version for one in context.snapshot.packages or ()}
    here["torch"] = context.torch.version or here.get("torch", "")
    for event in events(context, "guarded-set")[:1]:
        pins = re.findall(PIN, event.values.get("pins", ""))
        moved = {n: v for n, v in pins if here.get(n) and not is_same(v, here[n])}
        for name, was in [*moved.items()][:1]:
            fix = Fix(text=RECORDS[CHANGED].text, commands=(_back(context, moved),))
            now = here[name]
            yield finding(context, CHANGED, (event,), fix=fix, name=name, was=was, now=now)


def is_same(pinned: str, here: str) -> bool:
    """Whether a version is the one that was pinned; a pin without a label takes any.

    >>> is_same("2.13.0", "2.13.0+cu130"), is_same("2.13.0+cu130", "2.13.0+cpu")
    (True, False)
    """
    return here == pinned or ("+" not in pinned and here.partition("+")[0] == pinned)


def _back(context: RuleContext, moved: dict[str, str]) -> Line:
    """torch with its family if it was moved, else the others, alone."""
    if "torch" not in moved:
        pins = (f"{name}=={version.partition('+')[0]}" for name, version in moved.items())
        return paste.pip(context, "install", "--no-deps", *pins)
    public, _, label = moved["torch"].partition("+")
    words = ("--python", paste.python(context), "--torch", public)
    backend = ("--backend", label) if label else ()
    return paste.command(context, "gpusetup", "install", *words, *backend)


RULES = (
    companions,
    pairs,
    guarded_set_changed,
)
