"""Libraries beside torch of another generation: NumPy, MKL."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    event_evidence,
    events,
    package,
    value_evidence,
)
from gpusetup.evidence.plausible import is_a_path
from gpusetup.findings.layers import Layer
from gpusetup.findings.record import Cause
from gpusetup.findings.torch.companions import public
from gpusetup.fixes import paste
from gpusetup.model.finding import Finding, Fix
from gpusetup.model.shell import Line
from gpusetup.model.versions import parsed

NUMPY_ABI_MISMATCH = Cause(
    id="numpy-abi-mismatch",
    place=(Layer.LIBRARIES, 70),
    title="a torch for NumPy 1 beside NumPy 2",
    means="torch before 2.3 was compiled against NumPy 1.",
    proven_by="Both versions",
    way_out="numpy<2, or a newer torch",
    source="NumPy 2 migration guide",
    explains=("torch-import-failed",),
)


def numpy_abi_mismatch(context: RuleContext) -> Iterator[Finding]:
    """A torch built for NumPy 1 beside NumPy 2."""
    numpy, torch = package(context, "numpy"), context.snapshot.torch
    messages = events(context, "numpy-abi-mismatch")
    first = context.catalog.milestone("torch for numpy 1 and 2")
    old = bool(torch.version and parsed(public(torch.version)) < parsed(first))
    if not messages and not (old and numpy and parsed(numpy.version).major >= 2):
        return
    have = f"numpy {numpy.version}" if numpy else "numpy 2"
    what = f"torch {torch.version}" if old else "A compiled module (torch or one beside it)"
    make = (
        NUMPY_ABI_MISMATCH.as_warning
        if not messages and torch.cuda_available
        else NUMPY_ABI_MISMATCH.found
    )
    yield make(
        f"{what} was built for NumPy 1 and {have} is installed",
        evidence=(
            *event_evidence(messages),
            *((value_evidence(context, "packages", have),) if numpy else ()),
        ),
        fix=Fix(
            text=f"Install NumPy 1, or a torch from {first} on",
            commands=(_older_numpy(context),),
        ),
    )


def _older_numpy(context: RuleContext) -> Line:
    unknown = context.snapshot.torch.installer is None
    if context.installer == "conda" or (unknown and context.snapshot.python.manager == "conda"):
        return paste.command(context, "conda", "install", "-y", *_there(context), "numpy<2")
    return paste.pip(context, "install", "numpy<2")


def _there(context: RuleContext) -> tuple[str, ...]:
    """The environment as conda's programs name it; none where it is the active one."""
    prefix = context.snapshot.conda.prefix or ""
    return ("--prefix", prefix) if is_a_path(prefix) else ()


MKL_VERSION_MISMATCH = Cause(
    id="mkl-version-mismatch",
    place=(Layer.LIBRARIES, 10),
    title="MKL without a symbol that torch needs",
    means="MKL 2024.1 dropped iJIT_NotifyEvent; older conda builds of torch link it.",
    proven_by="Both versions, torch by conda",
    way_out="mkl<2024.1",
    source="pytorch/pytorch#123097",
    explains=("torch-import-failed",),
)


def mkl_version_mismatch(context: RuleContext) -> Iterator[Finding]:
    mkl, since = package(context, "mkl"), context.catalog.milestone("mkl without iJIT")
    torch = context.snapshot.torch
    messages = events(context, "mkl-version-mismatch")
    by_conda = torch.installer == "conda" and torch.version is not None
    first = context.catalog.milestone("torch of conda without iJIT")
    old = by_conda and parsed(public(torch.version or "0")) < parsed(first)
    old = old and torch.cuda_available is None  # whoever said so had imported torch
    if not messages and not (old and mkl and parsed(mkl.version) >= parsed(since)):
        return
    have = f"mkl {mkl.version}" if mkl else f"mkl {since} or newer"
    yield MKL_VERSION_MISMATCH.found(
        f"{have} lacks a symbol that this conda build of torch needs (iJIT_NotifyEvent)",
        evidence=(
            *event_evidence(messages),
            *((value_evidence(context, "packages", have),) if mkl else ()),
        ),
        fix=Fix(
            text="Install an older MKL in this environment, or take torch from pip",
            commands=(
                paste.command(context, "conda", "install", "-y", *_there(context), f"mkl<{since}"),
            ),
        ),
    )


RULES = (
    numpy_abi_mismatch,
    mkl_version_mismatch,
)
