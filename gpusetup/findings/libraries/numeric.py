"""Libraries beside torch of another generation: NumPy, MKL."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpusetup.evidence.context import RuleContext, package
from gpusetup.evidence.plausible import is_a_path
from gpusetup.findings.layers import Layer
from gpusetup.findings.message_rules import from_messages, seen
from gpusetup.findings.record import Cause, Message
from gpusetup.fixes import paste
from gpusetup.model.finding import Finding, Fix, Severity
from gpusetup.model.shell import Line
from gpusetup.model.versions import parsed


def conda_install(context: RuleContext, *words: str) -> Line:
    """Into the target, where its folder is known."""
    prefix = context.snapshot.conda.prefix or ""
    there = ("--prefix", prefix) if is_a_path(prefix) else ()
    return paste.command(context, "conda", "install", "-y", *there, *words)


def _older(spec: str, *, pip: bool = True) -> Callable[[RuleContext, str], Fix]:
    def way(context: RuleContext, text: str) -> Fix:
        own = context.snapshot
        conda = "conda" in (context.installer, own.torch.installer or own.python.manager)
        by = paste.pip(context, "install", spec) if pip and not conda else None
        return Fix(text=text, commands=(by or conda_install(context, spec),))

    return way


NUMPY_ABI_MISMATCH = Cause(
    id="numpy-abi-mismatch",
    place=(Layer.LIBRARIES, 70),
    title="a torch for NumPy 1 beside NumPy 2",
    means="torch before 2.3 was compiled against NumPy 1.",
    proven_by="Both versions",
    way_out="numpy<2, or a newer torch",
    source="NumPy 2 migration guide",
    explains=("torch-import-failed",),
    message=Message(
        title="torch, or a module beside it, was built for NumPy 1 and NumPy 2 is installed",
        text="Install NumPy 1, or a torch from 2.3 on",
        way=_older("numpy<2"),
    ),
)
MKL_VERSION_MISMATCH = Cause(
    id="mkl-version-mismatch",
    place=(Layer.LIBRARIES, 10),
    title="MKL without a symbol that torch needs",
    means="MKL 2024.1 dropped iJIT_NotifyEvent; older conda builds of torch link it.",
    proven_by="Both versions, torch by conda",
    way_out="mkl<2024.1",
    source="pytorch/pytorch#123097",
    explains=("torch-import-failed",),
    message=Message(
        title="MKL lacks a symbol that this conda build of torch needs (iJIT_NotifyEvent)",
        text="Install an older MKL in this environment, or take torch from pip",
        way=_older("mkl<2024.1", pip=False),
    ),
)


def numeric(context: RuleContext) -> Iterator[Finding]:
    yield from from_messages(context, (NUMPY_ABI_MISMATCH, MKL_VERSION_MISMATCH))
    torch, numpy = context.snapshot.torch, package(context, "numpy")
    version = parsed((torch.version or "99").partition("+")[0])
    first = context.catalog.milestone("torch for numpy 1 and 2")
    if version < parsed(first) and numpy and parsed(numpy.version).major >= 2:
        severity = Severity.WARNING if torch.cuda_available else None
        both = f"torch {torch.version}, numpy {numpy.version}"
        yield seen(context, NUMPY_ABI_MISMATCH, "packages", both, severity=severity)


RULES = (numeric,)
