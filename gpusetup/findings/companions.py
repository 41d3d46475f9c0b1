"""Packages that must fit torch: torchvision, torchaudio, others of the companion table, and guarded
versions."""

from __future__ import annotations

import re

from gpusetup.catalog.builds import Catalog, index_url
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
"""The event of a torchvision that only fails to read images. If something else failed, it is only a
warning."""


def companions(context: RuleContext) -> Findings:
    """torchvision or torchaudio belongs to another torch, as a program's message or the versions
    show."""
    for name, cause in NAMES:
        messages = events(context, cause)
        is_about_images = False
        if name == "torchvision" and not messages:
            messages = events(context, IMAGE_WARNING)
            is_about_images = bool(messages)
        difference = _difference(context, name)
        if not messages and not difference:
            continue
        if messages:
            # Reading images matters only if nothing else failed.
            is_only_a_warning = is_about_images and (not says_nothing_else(context, IMAGE_WARNING))
        else:
            # torch computes although versions differ: the companion fails when it is used.
            is_only_a_warning = bool(context.torch.cuda_available)
        pair = f"{name} does not belong to this torch{difference}"
        fix = _companion_fix(context, name)
        evidence = (*messages, shown(context, "packages", pair))
        yield finding(context, cause, evidence, fix=fix, weak=is_only_a_warning, pair=pair)


NAMES: tuple[tuple[Name, str], ...] = (
    ("torchvision", "torchvision-mismatch"),
    ("torchaudio", "torchaudio-mismatch"),
)


def _difference(context: RuleContext, name: Name) -> str:
    """How a companion does not fit torch (release, CUDA or backend); "" if it fits.

    It is the end of the sentence "NAME does not belong to this torch".
    """
    torch, companion = context.torch, package(context, name)
    if companion is None:
        return ""
    release = context.catalog.release_of(torch.version) if torch.version else None
    if release and (serves_torch(context.catalog, name, companion.version, release.torch) is False):
        return f" {torch.version}: {name} {companion.version}"
    if not torch.backend:
        return ""
    # What an unlabelled wheel is built for depends on its platform. A text may not show it, and
    # conda's packages have builds of their own.
    platform = None
    if not is_report(context) and companion.installer != "conda":
        platform = f"{context.os.family}-{context.os.machine}"
    fits = serves_backend(context.catalog, name, companion.version, torch.backend, platform)
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
        build = _build_of_wheels(context, installed)
        alternative = project.alternative
        if takes_torch(project, installed.version, torch) is False:
            pair = f"{project.name} {installed.version} is not for torch {torch}"
            releases = releases_for(project, torch)
        elif build and (reason := _other_cuda(project, installed, build, context.catalog)):
            pair = reason
            releases = releases_beside(project, build, context.catalog)
            alternative = project.way_out(build, index_url(build.backend))
        else:
            continue
        commands = []
        for release in releases[:1]:
            requirement = f"{project.name}{release}"
            # Without --no-deps pip might replace torch.
            commands.append(paste.pip(context, "install", "--no-deps", requirement))
        fix = Fix(
            text=f"Install the release for this torch, if there is one. Otherwise, {alternative}",
            commands=tuple(commands),
        )
        evidence = (value_evidence(context, "packages", pair),)
        yield RECORDS["companion-torch-mismatch"].found(pair, evidence=evidence, fix=fix)


def _build_of_wheels(context: RuleContext, installed: Package) -> TorchBuild | None:
    """The installed torch's build, if a package is the default index's wheel, which the companion
    table is about; None for a text, a labelled wheel or one from a folder."""
    os, torch = context.os, context.torch
    if is_report(context) or "+" in installed.version or installed.direct:
        return None
    return context.catalog.row_of(
        torch.version or "", torch.backend or "", os.family or "", os.machine or ""
    )


def _other_cuda(
    project: Project, installed: Package, build: TorchBuild, catalog: Catalog
) -> str | None:
    """The reason, as `resolve` gives it, why a wheel for another CUDA version does not load beside
    torch; None if it may load."""
    # A package that also works in Python only does not fail.
    if not build.cuda or project.python_only:
        return None
    reason = why_release_differs(project.name, installed.version, build, catalog)
    return reason.partition(" (")[0] if reason else None


CHANGED = "guarded-set-changed"
PIN = r"(?<!\S)([a-z0-9][a-z0-9-]*)==([0-9][A-Za-z0-9.+!]*)(?!\S)"
"""A pin as the probe writes it. A snapshot from another person may contain anything in its place.
"""


def guarded_set_changed(context: RuleContext) -> Findings:
    """One finding for all guarded packages whose versions have changed; removed packages are not
    judged here."""
    versions = {}
    for installed in context.snapshot.packages or ():
        versions[normalised(installed.name)] = installed.version
    versions["torch"] = context.torch.version or versions.get("torch", "")
    for event in events(context, "guarded-set")[:1]:
        moved = {}
        for name, pinned in re.findall(PIN, event.values.get("pins", "")):
            if versions.get(name) and not is_same(pinned, versions[name]):
                moved[name] = pinned
        if not moved:
            continue
        # The title names only one package, but the command restores all of them.
        name, pinned = next(iter(moved.items()))
        fix = Fix(text=RECORDS[CHANGED].text, commands=(_back(context, moved),))
        yield finding(
            context, CHANGED, (event,), fix=fix, name=name, was=pinned, now=versions[name]
        )


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
    if "torch" in moved:
        release, _, backend = moved["torch"].partition("+")
        words = ["--python", paste.python(context), "--torch", release]
        if backend:
            words += ["--backend", backend]
        return paste.command(context, "gpusetup", "install", *words)
    pins = []
    for name, version in moved.items():
        release, _, _ = version.partition("+")
        pins.append(f"{name}=={release}")
    return paste.pip(context, "install", "--no-deps", *pins)


RULES = (
    companions,
    pairs,
    guarded_set_changed,
)
