"""Which Pythons and platforms a release has wheels for, and the way to another Python."""

from __future__ import annotations

from gpusetup.evidence.context import RuleContext
from gpusetup.evidence.plausible import is_a_version
from gpusetup.findings.installing.python import (
    good_python,
    python_tag,
)
from gpusetup.fixes import paste
from gpusetup.model.finding import Fix
from gpusetup.model.frozen import replace
from gpusetup.model.resolution import Request, TorchBuild
from gpusetup.model.shell import Line
from gpusetup.model.versions import parsed
from gpusetup.resolver.constraints import serves_no_gpu
from gpusetup.resolver.situation import situation_of

FAMILY = ("torch", "torchvision", "torchaudio")


def torch_of(context: RuleContext, name: str, version: str | None) -> str | None:
    """The torch that a release of the family belongs to; None where it is not known."""
    if name in ("torch", "") or version is None:
        return version
    for row in context.catalog.releases:
        companion = row.torchvision if name == "torchvision" else row.torchaudio
        if name in FAMILY and companion == version:
            return row.torch
    return None


def catalog_rows(context: RuleContext, version: str | None, label: str | None) -> list[TorchBuild]:
    """The catalog's wheels of a request, on every platform."""
    return [
        row
        for row in context.catalog.builds
        if row.channel == "pytorch"
        and (version is None or row.torch == version)
        and (label is None or row.backend == label)
    ]


def rows_here(context: RuleContext, version: str | None, label: str | None) -> list[TorchBuild]:
    os = context.snapshot.os
    return [
        r
        for r in catalog_rows(context, version, label)
        if os.family in (None, r.os) and os.machine in (None, r.machine)
    ]


def no_python_for(context: RuleContext, version: str | None, label: str | None) -> bool:
    """Whether it has wheels for this platform, and none for this Python."""
    tag, rows = python_tag(context), rows_here(context, version, label)
    return bool(tag and rows and not any(tag in r.pythons for r in rows))


def other_python(context: RuleContext, version: str | None, asked: str | None = None) -> Fix:
    """A Python that this torch has wheels for; or the torch that this Python has."""
    situation = situation_of(context.snapshot, Request(), context.catalog)
    known, build = catalog_rows(context, version, None), paste.chosen(context)
    serving = {row.backend for row in known if not serves_no_gpu(row, situation)}
    if known and not serving and asked != "cpu":
        return paste.install_torch(context, f"No build of torch {version} serves what is here. ")
    if version is None and context.snapshot.python.version and build is not None:
        return paste.install_torch(context, "Other releases have wheels for this Python. ")
    kept = not known or asked in (*serving, "cpu")
    label = asked if kept else "cpu" if situation.presence == "none" else None
    python = python_for(context, version)
    text = (
        f"Make an environment with a 64-bit CPython {python}, or ask for a torch that has wheels "
    )
    way = paste.with_python(context, python, f"{text}for this one")
    install = _install_there(context, paste.fresh(context, python), version, label)
    return replace(way, commands=(way.commands[0], install))


OLD_WHEELS = "https://download.pytorch.org/whl/torch_stable.html"


def _install_there(
    context: RuleContext, folder: str, version: str | None, label: str | None
) -> Line:
    """The command that installs a torch there; one older than the catalog from its page."""
    into = ("gpusetup", "install", "--venv", folder)
    if version is None or not is_a_version(version):
        return paste.command(context, *into)
    if catalog_rows(context, version, None):
        backend = ("--backend", label) if label and catalog_rows(context, version, label) else ()
        return paste.command(context, *into, "--torch", version, *backend)
    label = label if label and is_a_version(f"{version}+{label}") else None
    exact = f"torch=={version}+{label}" if label else f"torch=={version}"
    where = ("--python", folder, "--find-links", OLD_WHEELS)
    return paste.command(context, "uv", "pip", "install", *where, exact)


def python_for(context: RuleContext, version: str | None) -> str:
    """The newest Python that a release has wheels for; a good one of today where none is named."""
    if version is None:
        return good_python(context)
    family, own = context.snapshot.os.family, python_tag(context)
    rows = [row for row in catalog_rows(context, version, None) if family in (None, row.os)]
    known = {p for row in rows for p in row.pythons if not p.endswith("t")}
    if known:
        # The installer runs in a Python of another kind: 32 bits, ARM, PyPy, musl.
        return own if own in known else max(known, key=parsed)
    return context.catalog.last_python(version) or context.catalog.milestone("usual python")
