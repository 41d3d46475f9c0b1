"""What is installed beside torch: torchvision, torchaudio, and half an install."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.catalog_companions import (
    Name,
    beside,
    companion,
    serves_backend,
    serves_torch,
)
from gpusetup.kernels import release
from gpusetup.model import Event, Finding, Fix, TorchBuild
from gpusetup.rules import ways
from gpusetup.rules.case import (
    Case,
    error,
    events,
    is_report,
    note,
    package,
    shown,
    told,
    warning,
)
from gpusetup.rules.plausible import exactly


def torchvision_mismatch(case: Case) -> Iterator[Finding]:
    yield from _companion(case, "torchvision")


def torchaudio_mismatch(case: Case) -> Iterator[Finding]:
    yield from _companion(case, "torchaudio")


def _companion(case: Case, name: Name) -> Iterator[Finding]:
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


def _release_differs(case: Case, name: Name) -> str | None:
    """Why the release is the wrong one; None where it is right or the catalog does not know it."""
    torch, beside = case.snapshot.torch.version, package(case, name)
    if beside is None or torch is None or case.catalog.release_of(torch) is None:
        return None
    if serves_torch(case.catalog, name, beside.version, torch) is not False:
        return None
    wanted = _wanted(case, name, torch)
    return f"that one takes {wanted}" if wanted else "it was built for another torch"


def _wanted(case: Case, name: Name, torch: str) -> str | None:
    """The companion that belongs to a torch, as far as an index is known to have it."""
    row = case.catalog.release_of(torch)
    own = (row.torchvision if name == "torchvision" else row.torchaudio) if row else None
    build = _build_of(case, torch)
    return own or (beside(case.catalog, name, build) if build else None)


def _build_of(case: Case, torch: str) -> TorchBuild | None:
    """The catalog's row of a torch on this platform, Linux on x86_64 where it is not known."""
    os, backend = case.snapshot.os, case.snapshot.torch.backend or torch.partition("+")[2]
    return case.catalog.row_of(torch, backend, os.family or "linux", os.machine or "x86_64")


def _label_differs(case: Case, name: Name) -> str | None:
    """A companion of another CUDA, or another backend: `+cpu` beside `+cu130`."""
    torch, beside = case.snapshot.torch, package(case, name)
    if beside is None or torch.backend is None:
        return None
    platform = None if is_report(case) or beside.installer == "conda" else _platform(case)
    if serves_backend(case.catalog, name, beside.version, torch.backend, platform) is not False:
        return None
    label = beside.version.partition("+")[2] or _assumed(case, name, beside.version)
    return f"it is built for {label}, torch for {torch.backend}"


def public(version: str) -> str:
    return version.partition("+")[0]


def _platform(case: Case) -> str:
    return f"{case.snapshot.os.family}-{case.snapshot.os.machine}"


def _assumed(case: Case, name: Name, version: str) -> str:
    """The backend of a wheel without a label."""
    row = companion(case.catalog, name, version)
    return row.unlabelled.get(_platform(case), "another CUDA") if row else "another CUDA"


def _companion_fix(case: Case, name: Name, torch: str | None) -> Fix:
    """The companion of the torch that is there, from torch's own index."""
    wanted = _wanted(case, name, torch) if torch else None
    backend = case.snapshot.torch.backend or (torch or "").partition("+")[2]
    if case.snapshot.os.jetson:
        return Fix(
            text=f"Build {name} for the torch that NVIDIA made for this board, or take both "
            "from the same place"
        )
    if wanted and not backend and case.installer != "conda":
        text = f"Install the {name} that belongs to this torch, from the index torch came from"
        return Fix(text=text, commands=(ways.pip(case, "install", f"{name}=={wanted}"),))
    if _torch_goes_to_another(case, backend):
        return ways.install_torch(case, f"Install torch and {name} together. ")
    other = _other_cuda(case, name, torch) if torch and not wanted else None
    if other and case.installer != "conda":
        return _whole_family(case, name, backend, other)
    if not wanted or not backend or case.installer == "conda":
        return ways.install_torch(case, f"Install torch and {name} together. ")
    label = f"+{backend}" if "+" in (torch or "") else ""
    only_there = ("--no-deps", ways.anew(case), *ways.torch_index(case, backend))
    return Fix(
        text=f"Install the {name} that belongs to this torch",
        commands=(ways.pip(case, "install", *only_there, f"{name}=={wanted}{label}"),),
    )


def _torch_goes_to_another(case: Case, backend: str) -> bool:
    """Whether the torch that is here is exchanged for one of another backend, as is decided."""
    moves, build = case.decision and case.decision.moves, ways.chosen(case)
    return bool(moves and build and not is_report(case) and build.backend != backend)


def _other_cuda(case: Case, name: Name, torch: str) -> TorchBuild | None:
    """The same torch on the nearest CUDA of the same major that has a companion."""
    here = _build_of(case, torch)
    if here is None or here.cuda is None:
        return None
    fitting = (
        row
        for row in case.catalog.builds
        if (row.torch, row.os, row.machine, row.channel)
        == (here.torch, here.os, here.machine, here.channel)
        and row.cuda
        and release(row.cuda)[0] == release(here.cuda)[0]
        and beside(case.catalog, name, row)
    )
    return max(fitting, key=lambda row: release(row.cuda or "0"), default=None)


def _whole_family(case: Case, name: Name, backend: str, other: TorchBuild) -> Fix:
    """The same torch from another index, with all that stands beside it."""
    wanted = {"torchvision": other.torchvision, "torchaudio": beside(case.catalog, name, other)}
    there = [f"torch=={other.torch}+{other.backend}"]
    there += [
        f"{one}=={v}+{other.backend}" for one, v in wanted.items() if v and package(case, one)
    ]
    return Fix(
        text=f"No {name} is known for {backend}: take the same torch from {other.backend}, which "
        f"has one",
        commands=(ways.pip(case, "install", *ways.torch_index(case, other.backend), *there),),
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
        exact = exactly((e.values.get("name"), e.values.get("version")) for e in told_of)
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
                        *exact,
                    ),
                )
                if exact
                else (),
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
