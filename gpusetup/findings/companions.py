"""Packages that must fit torch: torchvision, torchaudio, others of the companion table, and guarded
versions."""

from __future__ import annotations

import re

from gpusetup.catalog.builds import index_url
from gpusetup.catalog.companion_table import Project, companion_table, releases_for, takes_torch
from gpusetup.catalog.companions import serves_backend, serves_torch
from gpusetup.catalog.rows import Name
from gpusetup.causes.record import RECORDS
from gpusetup.choose.compatibility import releases_beside, why_release_differs
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
from gpusetup.fixes.owners import lender_of
from gpusetup.model.builds import TorchBuild
from gpusetup.model.finding import Findings, Fix
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Package
from gpusetup.model.shell import Line
from gpusetup.readings.packages import normalised

IMAGE_WARNING = "torchvision-image-mismatch"
"""The event of a torchvision that only fails to read images, which matters only if nothing else
failed."""


def companions(context: RuleContext) -> Findings:
    """torchvision or torchaudio belongs to another torch, as a program's message or the versions
    show."""
    names: tuple[Name, ...] = ("torchvision", "torchaudio")
    for name in names:
        cause = f"{name}-mismatch"
        messages = events(context, cause)
        # torch computes although versions differ: the companion fails when it is used.
        is_weak = not messages and bool(context.torch.cuda_available)
        if name == "torchvision" and not messages and (messages := events(context, IMAGE_WARNING)):
            is_weak = not says_nothing_else(context, IMAGE_WARNING)
        difference = _difference(context, name)
        if messages or difference:
            pair = f"{name} does not belong to this torch{difference}"
            fix = _companion_fix(context, name)
            evidence = (*messages, shown(context, "packages", pair))
            yield finding(context, cause, evidence, fix=fix, weak=is_weak, pair=pair)


def _difference(context: RuleContext, name: Name) -> str:
    """How a companion does not fit torch (release, CUDA or backend); "" if it fits.

    It is the end of the sentence "NAME does not belong to this torch".
    """
    torch, companion, catalog = context.torch, package(context, name), context.catalog
    if companion is None:
        return ""
    release = catalog.release_of(torch.version) if torch.version else None
    if release and serves_torch(catalog, name, companion.version, release.torch) is False:
        return f" {torch.version}: {name} {companion.version}"
    if not torch.backend:
        return ""
    # What an unlabelled wheel is built for depends on its platform. A text may not show it, and
    # conda's packages have builds of their own.
    is_wheel = not is_report(context) and companion.installer != "conda"
    platform = f"{context.os.family}-{context.os.machine}" if is_wheel else None
    fits = serves_backend(catalog, name, companion.version, torch.backend, platform)
    return f": it is not built for {torch.backend}" if fits is False else ""


def _companion_fix(context: RuleContext, name: Name) -> Fix:
    """Install the companion of the installed torch, or both together if torch must change too."""
    torch = context.torch
    # A torch below /usr whose version is unknown came with the image of a board or a container.
    lies_in_system = "/usr/" in (torch.location or "")
    if context.os.jetson or (lies_in_system and not torch.version and not lender_of(context)):
        return Fix(
            text=f"Keep this torch, which the maker of the board or image provides. Get {name} "
            "from the same maker, or build it for the torch release that the command prints",
            commands=(paste.pip(context, "uninstall", "-y", name), paste.ask_torch(context)),
        )
    if unread := needs.unread(context, needs.TORCH):
        text = (
            f"Keep the installed torch, and install the release of {name} that belongs to it. Each "
            f"torch release has one matching release of {name}, which `gpusetup resolve {name}` "
            "prints"
        )
        return Fix(text=text, needs=unread)
    which = paste.command(context, paste.python(context), "-c", WHICH_COPY)
    look = "check first which copy of torch Python imports (PYTHONNOUSERSITE=1 ignores ~/.local)"
    way = paste.install_torch(context, f"Install torch and {name} together. ")
    return replace(way, looks=paste.look(look, which))


WHICH_COPY = "import torch; print(torch.__version__, torch.__file__)"


def pairs(context: RuleContext) -> Findings:
    """Packages that do not work with the installed torch."""
    torch = context.torch.version
    if not torch:
        return
    for installed in context.snapshot.packages or ():
        project = companion_table().project(normalised(installed.name))
        # Other functions judge the packages of torch's own index by their release, and conda checks
        # its own packages.
        if project is None or project.wheels == "torch index" or installed.installer == "conda":
            continue
        alternative = project.alternative
        if takes_torch(project, installed.version, torch) is False:
            pair = f"{project.name} {installed.version} is not for torch {torch}"
            releases = releases_for(project, torch)
        elif found := _other_cuda(context, project, installed):
            pair, build = found
            releases = releases_beside(project, build, context.catalog)
            alternative = project.way_out(build, index_url(build.backend))
        else:
            continue
        # Without --no-deps pip might replace torch.
        fix = Fix(
            text=f"Install the release for this torch, if there is one. Otherwise, {alternative}",
            commands=tuple(
                paste.pip(context, "install", "--no-deps", f"{project.name}{release}")
                for release in releases[:1]
            ),
        )
        evidence = (value_evidence(context, "packages", pair),)
        yield RECORDS["companion-torch-mismatch"].found(pair, evidence=evidence, fix=fix)


def _other_cuda(
    context: RuleContext, project: Project, installed: Package
) -> tuple[str, TorchBuild] | None:
    """Why a default index's wheel for another CUDA version does not load beside torch, as `resolve`
    gives it, and torch's build; None if it may load.

    The companion table is not about texts, labelled wheels and wheels from a folder. A package that
    also works in Python only does not fail.
    """
    os, torch = context.os, context.torch
    is_known_wheel = not (is_report(context) or "+" in installed.version or installed.direct)
    build = context.catalog.row_of(
        torch.version or "", torch.backend or "", os.family or "", os.machine or ""
    )
    if not is_known_wheel or build is None or not build.cuda or project.python_only:
        return None
    reason = why_release_differs(project.name, installed.version, build, context.catalog)
    return (reason.partition(" (")[0], build) if reason else None


CHANGED = "guarded-set-changed"
PIN = r"(?<!\S)([a-z0-9][a-z0-9-]*)==([0-9][A-Za-z0-9.+!]*)(?!\S)"
"""A pin as the probe writes it. A snapshot from another person may contain anything in its place.
"""


def guarded_set_changed(context: RuleContext) -> Findings:
    """One finding for all guarded packages whose versions have changed; removed packages are not
    judged here."""
    versions = {normalised(one.name): one.version for one in context.snapshot.packages or ()}
    versions["torch"] = context.torch.version or versions.get("torch", "")
    for event in events(context, "guarded-set")[:1]:
        pins = re.findall(PIN, event.values.get("pins", ""))
        moved = {
            name: pinned
            for name, pinned in pins
            if versions.get(name) and not is_same(pinned, versions[name])
        }
        # The title names only one package, but the command restores all of them.
        for name, pinned in list(moved.items())[:1]:
            fix = Fix(text=RECORDS[CHANGED].text, commands=(_back(context, moved),))
            now = versions[name]
            yield finding(context, CHANGED, (event,), fix=fix, name=name, was=pinned, now=now)


def is_same(pinned: str, installed: str) -> bool:
    """Whether a version is the pinned one. A pin without a build label matches every label.

    >>> is_same("2.13.0", "2.13.0+cu130"), is_same("2.13.0+cu130", "2.13.0+cpu")
    (True, False)
    """
    if "+" in pinned:
        return installed == pinned
    return pinned in (installed, installed.partition("+")[0])


def _back(context: RuleContext, moved: dict[str, str]) -> Line:
    """The command that restores the packages: with torch and its family if torch was changed,
    otherwise only the other packages."""
    releases = {name: version.partition("+")[0] for name, version in moved.items()}
    if "torch" not in moved:
        pins = (f"{name}=={release}" for name, release in releases.items())
        return paste.pip(context, "install", "--no-deps", *pins)
    backend = moved["torch"].partition("+")[2]
    words = ("--python", paste.python(context), "--torch", releases["torch"])
    by_label = ("--backend", backend) if backend else ()
    return paste.command(context, "gpusetup", "install", *words, *by_label)


RULES = (
    companions,
    pairs,
    guarded_set_changed,
)
