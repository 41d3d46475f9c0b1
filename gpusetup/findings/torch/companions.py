"""What is installed beside torch: torchvision and torchaudio."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.catalog.companions import serves_backend, serves_torch
from gpusetup.catalog.rows import Name
from gpusetup.evidence.context import (
    RuleContext,
    events,
    is_report,
    package,
    says_nothing_else,
)
from gpusetup.findings.layers import Layer
from gpusetup.findings.message_rules import finding, shown
from gpusetup.findings.record import Cause, Message
from gpusetup.fixes import paste
from gpusetup.model.finding import Finding, Fix, Severity
from gpusetup.model.frozen import replace

TORCHVISION_MISMATCH = Cause(
    id="torchvision-mismatch",
    place=(Layer.LIBRARIES, 40),
    title="torchvision belongs to another torch",
    means="Its operators are compiled against one release and one CUDA.",
    proven_by="Versions or labels that do not go together in the catalog",
    way_out="The torchvision of that torch, from the same index",
    source="the wheels' metadata",
    message=Message(title="{pair}"),
)
TORCHAUDIO_MISMATCH = Cause(
    id="torchaudio-mismatch",
    place=(Layer.LIBRARIES, 50),
    title="torchaudio belongs to another torch",
    means="As torchvision; 2.11 is its last release.",
    proven_by="Versions or labels that do not go together in the catalog",
    way_out="The torchaudio of that torch, from the same index",
    source="the wheels' metadata",
    message=Message(title="{pair}"),
)
IMAGE_WARNING = "torchvision-image-mismatch"
"""Reading images fails, and nothing more: beside another failure it is only a warning."""


def companions(context: RuleContext) -> Iterator[Finding]:
    for name, cause in NAMES:
        image = events(context, IMAGE_WARNING) if name == "torchvision" else ()
        said = events(context, cause.id) or image
        differs = _differs(context, name)
        if said or differs:
            alone = said != image or says_nothing_else(context, IMAGE_WARNING)
            # A torch that computes although versions differ: the companion fails when it is used.
            works = not alone if said else context.snapshot.torch.cuda_available
            pair = f"{name} does not belong to this torch{differs}"
            fix = _companion_fix(context, name)
            only = Severity.WARNING if works else None
            seen = (*said, shown(context, "packages", pair))
            yield finding(context, cause, seen, fix=fix, severity=only, pair=pair)


NAMES: tuple[tuple[Name, Cause], ...] = (
    ("torchvision", TORCHVISION_MISMATCH),
    ("torchaudio", TORCHAUDIO_MISMATCH),
)


def _differs(context: RuleContext, name: Name) -> str:
    """A companion of another release, of another CUDA, or of another backend."""
    torch, here = context.snapshot.torch, package(context, name)
    known = torch.version and context.catalog.release_of(torch.version)
    if here is None:
        return ""
    if known and serves_torch(context.catalog, name, here.version, known.torch) is False:
        return f" {torch.version}: {name} {here.version}"
    # No order: a text may not show the platform that an unlabelled wheel depends on.
    os, shows = context.snapshot.os, not is_report(context) and here.installer != "conda"
    platform = f"{os.family}-{os.machine}" if shows else None
    backend = torch.backend
    fits = backend and serves_backend(context.catalog, name, here.version, backend, platform)
    return f": it is not built for {backend}" if fits is False else ""


def _companion_fix(context: RuleContext, name: Name) -> Fix:
    """The companion of the torch that is there; both together if that torch has to change too."""
    torch = context.snapshot.torch
    if context.snapshot.os.jetson or (not torch.version and "/usr/" in (torch.location or "")):
        return Fix(
            text=f"Keep the torch that the maker of this board or image put there: take {name} "
            "from the same place, or build it for the release that the command prints",
            commands=(paste.pip(context, "uninstall", "-y", name), paste.ask_torch(context)),
        )
    which = paste.command(context, paste.python(context), "-c", WHICH_COPY)
    look = "see first which copy of torch is imported (PYTHONNOUSERSITE=1 leaves out ~/.local)"
    way = paste.install_torch(context, f"Install torch and {name} together. ")
    row, build = context.catalog.release_of(torch.version or ""), paste.chosen(context)
    own = row and (row.torchvision if name == "torchvision" else row.torchaudio)
    # No order: what install would move is known of a live environment only.
    moves = not is_report(context) and build and build.backend != torch.backend
    if own and torch.backend and context.installer != "conda" and not moves:
        label = f"+{torch.backend}" if "+" in (torch.version or "") else ""
        index = paste.torch_index(context, torch.backend)
        exact = ("--no-deps", "--force-reinstall", *index, f"{name}=={own}{label}")
        text = f"Install the {name} that belongs to this torch, from the index torch came from"
        way = Fix(text=text, commands=(paste.pip(context, "install", *exact),))
    return replace(way, looks=paste.look(look, which))


WHICH_COPY = "import torch; print(torch.__version__, torch.__file__)"


RULES = (companions,)
