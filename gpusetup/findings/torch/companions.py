"""What is installed beside torch: torchvision, torchaudio, and half an install."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.catalog.companions import (
    beside,
    companion,
    serves_backend,
    serves_torch,
    with_companion,
)
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
from gpusetup.evidence.plausible import exactly
from gpusetup.findings.layers import Layer
from gpusetup.findings.record import Cause
from gpusetup.fixes import paste
from gpusetup.model.finding import Finding, Fix, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event
from gpusetup.model.resolution import TorchBuild

TORCHVISION_MISMATCH = Cause(
    id="torchvision-mismatch",
    place=(Layer.LIBRARIES, 40),
    title="torchvision belongs to another torch",
    means="Its operators are compiled against one release and one CUDA.",
    proven_by="Versions or labels that do not go together in the catalog",
    way_out="The torchvision of that torch, from the same index",
    source="the wheels' metadata",
)


def torchvision_mismatch(context: RuleContext) -> Iterator[Finding]:
    yield from _companion(context, "torchvision", TORCHVISION_MISMATCH)


IMAGE_WARNING = "torchvision-image-mismatch"


def torchvision_image_mismatch(context: RuleContext) -> Iterator[Finding]:
    """torchvision's warning about a symbol of torch, in a text that says nothing else.

    Beside another failure it is only a warning: reading images fails, and nothing more.
    """
    messages = events(context, IMAGE_WARNING)
    if messages and not events(context, "torchvision-mismatch"):
        alone = says_nothing_else(context, IMAGE_WARNING)
        make = TORCHVISION_MISMATCH.found if alone else TORCHVISION_MISMATCH.as_warning
        torch = torch_beside(context, ())
        yield make(
            f"torchvision was built for another torch than {torch or 'the installed one'}: its "
            "library lacks a symbol of torch",
            evidence=event_evidence(messages),
            fix=_companion_fix(context, "torchvision", torch),
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


def torchaudio_mismatch(context: RuleContext) -> Iterator[Finding]:
    yield from _companion(context, "torchaudio", TORCHAUDIO_MISMATCH)


def _companion(context: RuleContext, name: Name, cause: Cause) -> Iterator[Finding]:
    messages = events(context, f"{name}-mismatch")
    reason = _release_differs(context, name) or _label_differs(context, name)
    if not messages and not reason:
        return
    torch = torch_beside(context, messages)
    version = _version_of(context, name, messages)
    have = f"{name} {version}" if version else name
    # A torch that computes although the versions differ: the companion fails when it is used.
    works = not messages and context.snapshot.torch.cuda_available
    make = cause.as_warning if works else cause.found
    lines = (
        (
            value_evidence(
                context, "packages", f"{have} beside torch {torch or 'of an unknown version'}"
            ),
        )
        if version
        else ()
    )
    yield make(
        f"{have} does not belong to torch {torch or 'as installed'}: "
        f"{reason or 'it fails to load'}",
        evidence=(*event_evidence(messages), *lines),
        fix=_over_the_systems_torch(context, name, messages)
        or _looked_at_first(context, _companion_fix(context, name, torch)),
    )


def _looked_at_first(context: RuleContext, fix: Fix) -> Fix:
    """Where a text shows two releases of torch, which copy is imported comes before any install."""
    machine = context.snapshot
    read = [r.value for r in machine.readings if r.subject == "torch.version"]
    taken = [event.values.get("taken") for event in events(context, "torch-uninstalled")]
    listed = (p.version for p in machine.packages or () if p.name == "torch")
    shown = filter(None, (machine.torch.version, *read, *taken, *listed))
    releases = {public(version).rsplit(".", 1)[0]: public(version) for version in shown}
    if len(releases) < 2:
        return fix
    there = paste.other("where there is one copy only", *fix.commands)
    ask = "import sys, torch; print(torch.__version__, torch.__file__, sys.path)"
    return replace(
        fix,
        text=f"The text shows torch {' and '.join(sorted(releases.values()))}: see first which "
        "copy Python imports. One in the user's site-packages (~/.local) or on PYTHONPATH comes "
        "before the environment's: set PYTHONNOUSERSITE=1 or unset PYTHONPATH, and keep what is "
        f"installed. Only where there is one copy: {fix.text}",
        commands=(paste.command(context, paste.python(context), "-c", ask),),
        alternatives=(*there, *fix.alternatives),
    )


def _over_the_systems_torch(
    context: RuleContext, name: Name, messages: tuple[Event, ...]
) -> Fix | None:
    """A companion from elsewhere over a torch in the system's place: that one may be a board's or
    an image's own, which no index has, and stays."""
    place, torch = context.snapshot.torch.location, context.snapshot.torch.version
    found = {folder for e in messages for folder in re.findall(rf"(/\S+)/{name}/", e.text or "")}
    if torch or not place or not found or place in found or not is_report(context):
        return None
    return Fix(
        text=f"{name} lies in {min(found)}, torch in {place}, where a board's or an image's maker "
        f"puts his own: keep that torch and take this {name} out; then install, or build, the one "
        "for the release that the second command prints, from where that torch came",
        commands=(paste.pip(context, "uninstall", "-y", name), paste.ask_torch(context)),
    )


def torch_beside(context: RuleContext, messages: tuple[Event, ...]) -> str | None:
    """The torch that is installed: as read, else as the message names it."""
    named = (event.values["torch"] for event in messages if event.values.get("torch"))
    return context.snapshot.torch.version or next(named, None)


def _version_of(context: RuleContext, name: str, messages: tuple[Event, ...]) -> str | None:
    beside = package(context, name)
    named = (event.values[name] for event in messages if event.values.get(name))
    return beside.version if beside else next(named, None)


def _release_differs(context: RuleContext, name: Name) -> str | None:
    """Why the release is the wrong one; None where it is right or the catalog does not know it."""
    torch, beside = context.snapshot.torch.version, package(context, name)
    if beside is None or torch is None or context.catalog.release_of(torch) is None:
        return None
    if serves_torch(context.catalog, name, beside.version, torch) is not False:
        return None
    wanted = _wanted(context, name, torch)
    return f"that one takes {wanted}" if wanted else "it was built for another torch"


def _wanted(context: RuleContext, name: Name, torch: str) -> str | None:
    """The companion that belongs to a torch, as far as an index is known to have it."""
    row = context.catalog.release_of(torch)
    own = (row.torchvision if name == "torchvision" else row.torchaudio) if row else None
    build = _build_of(context, torch)
    return own or (beside(context.catalog, name, build) if build else None)


def _build_of(context: RuleContext, torch: str) -> TorchBuild | None:
    """The catalog's row of a torch on this platform, Linux on x86_64 where it is not known."""
    os, backend = context.snapshot.os, context.snapshot.torch.backend or torch.partition("+")[2]
    return context.catalog.row_of(torch, backend, os.family or "linux", os.machine or "x86_64")


def _label_differs(context: RuleContext, name: Name) -> str | None:
    """A companion of another CUDA, or another backend: `+cpu` beside `+cu130`."""
    torch, beside = context.snapshot.torch, package(context, name)
    if beside is None or torch.backend is None:
        return None
    # No order: a text may not show the platform that an unlabelled wheel depends on.
    platform = None if is_report(context) or beside.installer == "conda" else _platform(context)
    if serves_backend(context.catalog, name, beside.version, torch.backend, platform) is not False:
        return None
    label = beside.version.partition("+")[2] or _assumed(context, name, beside.version)
    return f"it is built for {label}, torch for {torch.backend}"


def public(version: str) -> str:
    return version.partition("+")[0]


def _platform(context: RuleContext) -> str:
    return f"{context.snapshot.os.family}-{context.snapshot.os.machine}"


def _assumed(context: RuleContext, name: Name, version: str) -> str:
    """The backend of a wheel without a label."""
    row = companion(context.catalog, name, version)
    return row.unlabelled.get(_platform(context), "another CUDA") if row else "another CUDA"


def _companion_fix(context: RuleContext, name: Name, torch: str | None) -> Fix:
    """The companion of the torch that is there, from torch's own index."""
    wanted = _wanted(context, name, torch) if torch else None
    backend = context.snapshot.torch.backend or (torch or "").partition("+")[2]
    if context.snapshot.os.jetson:
        return Fix(
            text=f"Build {name} for the torch that NVIDIA made for this board, or take both "
            "from the same place"
        )
    if wanted and not backend and context.installer != "conda":
        text = f"Install the {name} that belongs to this torch, from the index torch came from"
        return Fix(text=text, commands=(paste.pip(context, "install", f"{name}=={wanted}"),))
    if _torch_goes_to_another(context, backend):
        return paste.install_torch(context, f"Install torch and {name} together. ")
    other = _other_cuda(context, name, torch) if torch and not wanted else None
    if other and context.installer != "conda":
        return _whole_family(context, name, backend, other)
    if not wanted or not backend or context.installer == "conda":
        return paste.install_torch(context, f"Install torch and {name} together. ")
    label = f"+{backend}" if "+" in (torch or "") else ""
    only_there = ("--no-deps", paste.anew(context), *paste.torch_index(context, backend))
    return Fix(
        text=f"Install the {name} that belongs to this torch",
        commands=(paste.pip(context, "install", *only_there, f"{name}=={wanted}{label}"),),
    )


def _torch_goes_to_another(context: RuleContext, backend: str) -> bool:
    """Whether the torch that is here is exchanged for one of another backend, as is decided."""
    moves, build = context.decision and context.decision.moves, paste.chosen(context)
    # No order: what install would move is known of a live environment only.
    return bool(moves and build and not is_report(context) and build.backend != backend)


def _other_cuda(context: RuleContext, name: Name, torch: str) -> TorchBuild | None:
    """The same torch on the nearest CUDA of the same major that has a companion."""
    here = _build_of(context, torch)
    return with_companion(context.catalog, name, here) if here else None


def _whole_family(context: RuleContext, name: Name, backend: str, other: TorchBuild) -> Fix:
    """The same torch from another index, with all that stands beside it."""
    wanted = {"torchvision": other.torchvision, "torchaudio": beside(context.catalog, name, other)}
    there = [f"torch=={other.torch}+{other.backend}"]
    there += [
        f"{one}=={v}+{other.backend}" for one, v in wanted.items() if v and package(context, one)
    ]
    return Fix(
        text=f"No {name} is known for {backend}: take the same torch from {other.backend}, which "
        f"has one",
        commands=(
            paste.pip(context, "install", *paste.torch_index(context, other.backend), *there),
        ),
    )


PACKAGE_INCOMPLETE = Cause(
    id="package-incomplete",
    severity=Severity.WARNING,
    title="a package is installed only in part",
    means="An install was cut.",
    proven_by="Libraries of its RECORD are missing",
    way_out="Install it anew",
    source="RECORD of the distribution",
)


def incomplete_packages(context: RuleContext) -> Iterator[Finding]:
    """Other distributions whose files are not all there."""
    told_of = [
        e
        for e in events(context, "package-incomplete")
        if e.values.get("name") not in ("torch", "pytorch")
        and not e.values.get("name", "").startswith("nvidia-")
    ]
    if told_of:
        names = ", ".join(e.values.get("name", "?") for e in told_of)
        exact = exactly((e.values.get("name"), e.values.get("version")) for e in told_of)
        yield PACKAGE_INCOMPLETE.found(
            f"Installed only in part: {names}",
            evidence=event_evidence(tuple(told_of)),
            fix=Fix(
                text="Install them anew",
                commands=(
                    paste.pip(
                        context,
                        "install",
                        paste.anew(context),
                        "--no-deps",
                        *exact,
                    ),
                )
                if exact
                else (),
            ),
        )


PIP_LEFTOVER = Cause(
    id="pip-leftover",
    severity=Severity.NOTE,
    title="pip left parts of a former install",
    means="On Windows it cannot remove files in use.",
    proven_by="Folders such as ~orch",
    way_out="Delete them",
    source="pip's source, uninstall",
)


def pip_leftover(context: RuleContext) -> Iterator[Finding]:
    messages = events(context, "pip-leftover")
    if messages:
        yield PIP_LEFTOVER.found(
            "pip left parts of a former install behind (`~orch`): it could not remove files in use",
            evidence=event_evidence(messages),
            fix=Fix(text="End the programs that use torch, then delete these folders"),
        )


RULES = (
    torchvision_mismatch,
    torchvision_image_mismatch,
    torchaudio_mismatch,
    incomplete_packages,
    pip_leftover,
)
