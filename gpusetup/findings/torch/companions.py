"""What is installed beside torch: torchvision and torchaudio."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.catalog.companions import beside, serves_backend, serves_torch
from gpusetup.catalog.rows import Name
from gpusetup.evidence.context import (
    RuleContext,
    event_evidence,
    events,
    is_report,
    package,
    says_nothing_else,
    value_evidence,
)
from gpusetup.findings.layers import Layer
from gpusetup.findings.record import Cause
from gpusetup.fixes import paste
from gpusetup.model.finding import Finding, Fix

TORCHVISION_MISMATCH = Cause(
    id="torchvision-mismatch",
    place=(Layer.LIBRARIES, 40),
    title="torchvision belongs to another torch",
    means="Its operators are compiled against one release and one CUDA.",
    proven_by="Versions or labels that do not go together in the catalog",
    way_out="The torchvision of that torch, from the same index",
    source="the wheels' metadata",
)
TORCHAUDIO_MISMATCH = Cause(
    id="torchaudio-mismatch",
    place=(Layer.LIBRARIES, 50),
    title="torchaudio belongs to another torch",
    means="As torchvision; 2.11 is its last release.",
    proven_by="Versions or labels that do not go together in the catalog",
    way_out="The torchaudio of that torch, from the same index",
    source="the wheels' metadata",
)
IMAGE_WARNING = "torchvision-image-mismatch"
"""Reading images fails, and nothing more: beside another failure it is only a warning."""


def companions(context: RuleContext) -> Iterator[Finding]:
    yield from _companion(context, "torchvision", TORCHVISION_MISMATCH)
    yield from _companion(context, "torchaudio", TORCHAUDIO_MISMATCH)


def _companion(context: RuleContext, name: Name, cause: Cause) -> Iterator[Finding]:
    image = events(context, IMAGE_WARNING) if name == "torchvision" else ()
    messages = events(context, f"{name}-mismatch") or image
    reason = _differs(context, name)
    if not messages and not reason:
        return
    said = [event.values for event in messages]
    torch = context.snapshot.torch.version or next((v["torch"] for v in said if "torch" in v), None)
    here = package(context, name)
    version = here.version if here else next((v[name] for v in said if name in v), "")
    wanted = _wanted(context, name, torch)
    pair = f"{name} {version}".strip() + f" does not belong to torch {torch or 'as installed'}"
    alone = messages != image or says_nothing_else(context, IMAGE_WARNING)
    # A torch that computes although the versions differ: the companion fails when it is used.
    works = not alone if messages else context.snapshot.torch.cuda_available
    yield (cause.as_warning if works else cause.found)(
        pair + reason,
        evidence=(*event_evidence(messages), value_evidence(context, "packages", pair)),
        fix=_companion_fix(context, name, torch, wanted),
    )


def _differs(context: RuleContext, name: Name) -> str:
    """A companion of another release, of another CUDA, or of another backend."""
    torch, here = context.snapshot.torch, package(context, name)
    if here is None:
        return ""
    version, backend, os = here.version, torch.backend, context.snapshot.os
    known = torch.version and context.catalog.release_of(torch.version)
    if known and serves_torch(context.catalog, name, version, known.torch) is False:
        return f": that one takes {_wanted(context, name, torch.version) or 'another'}"
    # No order: a text may not show the platform that an unlabelled wheel depends on.
    shown = not is_report(context) and here.installer != "conda"
    platform = f"{os.family}-{os.machine}" if shown else None
    fits = backend and serves_backend(context.catalog, name, version, backend, platform)
    return f": it is not built for {backend}" if fits is False else ""


def public(version: str) -> str:
    return version.partition("+")[0]


def _wanted(context: RuleContext, name: Name, torch: str | None) -> str | None:
    """The companion that belongs to a torch, as far as an index is known to have it."""
    row = context.catalog.release_of(torch) if torch else None
    own = (row.torchvision if name == "torchvision" else row.torchaudio) if row else None
    os, backend = context.snapshot.os, _backend(context, torch)
    place = os.family or "linux", os.machine or "x86_64"  # where it is not known
    build = context.catalog.row_of(torch or "", backend, *place)
    return own or (beside(context.catalog, name, build) if build else None)


def _backend(context: RuleContext, torch: str | None) -> str:
    return context.snapshot.torch.backend or (torch or "").partition("+")[2]


def _companion_fix(context: RuleContext, name: Name, torch: str | None, wanted: str | None) -> Fix:
    """The companion of the torch that is there, from torch's own index."""
    backend = _backend(context, torch)
    systems = not torch and (context.snapshot.torch.location or "").startswith("/usr/")
    if context.snapshot.os.jetson or systems:
        return Fix(
            text=f"Keep the torch that the maker of this board or image put there: take {name} "
            "from the same place, or build it for the release that the command prints",
            commands=(
                paste.pip(context, "uninstall", "-y", name),
                paste.ask_torch(context),
            ),
        )
    moves, build = context.decision and context.decision.moves, paste.chosen(context)
    # No order: what install would move is known of a live environment only.
    exchanged = moves and not is_report(context) and build and build.backend != backend
    if not wanted or context.installer == "conda" or (exchanged and backend):
        return paste.install_torch(context, f"Install torch and {name} together. ")
    only_there = ("--no-deps", "--force-reinstall", *paste.torch_index(context, backend))
    label = f"+{backend}" if backend and "+" in (torch or "") else ""
    exact = (*(only_there if backend else ()), f"{name}=={wanted}{label}")
    return Fix(
        text=f"Install the {name} that belongs to this torch, from the index torch came from",
        commands=(paste.pip(context, "install", *exact),),
        looks=paste.look(
            "see first which copy of torch is imported (PYTHONNOUSERSITE=1 leaves out ~/.local)",
            paste.command(context, paste.python(context), "-c", WHICH_COPY),
        ),
    )


WHICH_COPY = "import torch; print(torch.__version__, torch.__file__)"


RULES = (companions,)
