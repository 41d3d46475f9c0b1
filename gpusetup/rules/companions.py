"""What is installed beside torch: torchvision, torchaudio, and half an install."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model import Event, Finding, Fix, parsed
from gpusetup.rules import ways
from gpusetup.rules.case import (
    Case,
    error,
    events,
    note,
    package,
    shown,
    told,
    warning,
)


def torchvision_mismatch(case: Case) -> Iterator[Finding]:
    yield from _companion(case, "torchvision")


def torchaudio_mismatch(case: Case) -> Iterator[Finding]:
    yield from _companion(case, "torchaudio")


def _companion(case: Case, name: str) -> Iterator[Finding]:
    said = events(case, f"{name}-mismatch")
    reason = _release_differs(case, name) or _label_differs(case, name)
    if not said and not reason:
        return
    torch = torch_beside(case, said)
    version = _version_of(case, name, said)
    have = f"{name} {version}" if version else name
    # A torch that computes although the versions differ: the companion fails when it is used.
    make = warning if not said and case.snapshot.torch.cuda_available else error
    lines = (shown(case, "packages", f"{have} beside torch {torch}"),) if version else ()
    yield make(
        f"{name}-mismatch",
        f"{have} does not belong to torch {torch or 'as installed'}: "
        f"{reason or 'it fails to load'}",
        evidence=(*told(said), *lines),
        fix=_companion_fix(case, name, torch),
    )


def torch_beside(case: Case, said: tuple[Event, ...]) -> str | None:
    """The torch that is installed: as read, else as the message names it."""
    named = (event.values["torch"] for event in said if event.values.get("torch"))
    return case.snapshot.torch.version or next(named, None)


def _version_of(case: Case, name: str, said: tuple[Event, ...]) -> str | None:
    beside = package(case, name)
    named = (event.values[name] for event in said if event.values.get(name))
    return beside.version if beside else next(named, None)


def _release_differs(case: Case, name: str) -> str | None:
    """Why the release is the wrong one; None where it is right or the catalog does not know it."""
    torch, beside = case.snapshot.torch.version, package(case, name)
    row = case.catalog.release_of(torch) if torch else None
    if beside is None or torch is None or row is None:
        return None
    wanted = row.torchvision if name == "torchvision" else row.torchaudio
    have = public(beside.version)
    if name == "torchvision":
        fits = case.catalog.torchvision_fits(have, torch)
        return None if fits is not False else f"that one takes {wanted}"
    # torchaudio 2.11 is the last one and pins no torch: it is built for many.
    if wanted is None or parsed(have).release[:2] == parsed(wanted).release[:2]:
        return None
    return f"that one takes {wanted}"


def public(version: str) -> str:
    return version.partition("+")[0]


def _label_differs(case: Case, name: str) -> str | None:
    """A companion of another backend: `+cpu` beside `+cu130`."""
    torch, beside = case.snapshot.torch, package(case, name)
    label = beside.version.partition("+")[2] if beside else ""
    if not label or not torch.backend or label.partition(".")[0] == torch.backend:
        return None
    if not label.startswith(("cu", "cpu", "rocm", "xpu")):
        return None
    return f"it is built for {label}, torch for {torch.backend}"


def _companion_fix(case: Case, name: str, torch: str | None) -> Fix:
    """The companion of the torch that is there, from torch's own index."""
    row = case.catalog.release_of(torch) if torch else None
    wanted = (row.torchvision if name == "torchvision" else row.torchaudio) if row else None
    backend = case.snapshot.torch.backend or (torch or "").partition("+")[2]
    if case.snapshot.os.jetson:
        return Fix(
            text=f"Build {name} for the torch that NVIDIA made for this board, or take both "
            "from the same place"
        )
    if wanted and not backend and case.installer != "conda":
        text = f"Install the {name} that belongs to this torch, from the index torch came from"
        return Fix(text=text, commands=(ways.pip(case, "install", f"{name}=={wanted}"),))
    if not wanted or not backend or case.installer == "conda":
        return ways.install_torch(case, f"Install torch and {name} together. ")
    label = f"+{backend}" if "+" in (torch or "") else ""
    only_there = ("--no-deps", ways.anew(case), *ways.torch_index(case, backend))
    return Fix(
        text=f"Install the {name} that belongs to this torch",
        commands=(ways.pip(case, "install", *only_there, f"{name}=={wanted}{label}"),),
    )


def incomplete_packages(case: Case) -> Iterator[Finding]:
    """Other distributions whose files are not all there."""
    told_of = [
        e
        for e in events(case, "package-incomplete")
        if e.values.get("name") not in ("torch", "pytorch")
        and not e.values.get("name", "").startswith("nvidia-")
    ]
    if told_of:
        names = ", ".join(e.values.get("name", "?") for e in told_of)
        yield warning(
            "package-incomplete",
            f"Installed only in part: {names}",
            evidence=told(tuple(told_of)),
            fix=Fix(
                text="Install them anew",
                commands=(
                    ways.pip(
                        case,
                        "install",
                        ways.anew(case),
                        "--no-deps",
                        *(f"{e.values.get('name')}=={e.values.get('version')}" for e in told_of),
                    ),
                ),
            ),
        )


def pip_leftover(case: Case) -> Iterator[Finding]:
    said = events(case, "pip-leftover")
    if said:
        yield note(
            "pip-leftover",
            "pip left parts of a former install behind (`~orch`): it could not remove files in use",
            evidence=told(said),
            fix=Fix(text="End the programs that use torch, then delete these folders"),
        )


RULES = (
    torchvision_mismatch,
    torchaudio_mismatch,
    incomplete_packages,
    pip_leftover,
)
