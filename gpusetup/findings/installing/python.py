"""The interpreter: can any torch be installed into it, and is it the one that the person means."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    event_evidence,
    events,
    has_nvidia,
    is_report,
    on,
    value_evidence,
)
from gpusetup.findings import alike
from gpusetup.findings.layers import NO_TORCH, UNINSTALLABLE, Layer
from gpusetup.findings.message_rules import from_messages, seen
from gpusetup.findings.record import Alike, Cause, Message
from gpusetup.findings.sources import WHEELS
from gpusetup.fixes import paste
from gpusetup.model.finding import Finding, Fix
from gpusetup.model.resolution import TorchBuild
from gpusetup.model.versions import parsed
from gpusetup.resolver.situation import python_tag

PYTHON_32BIT = Cause(
    id="python-32bit",
    place=(Layer.INSTALL, 10),
    title="a 32-bit Python",
    means="torch has 64-bit wheels only.",
    proven_by="Pointers of 32 bits; Python's banner, wheel tags and build folders of 32 bits",
    way_out="A 64-bit Python",
    source=WHEELS,
    explains=(*UNINSTALLABLE, "python-no-wheel", "wrong-index"),
)


def python_32bit(context: RuleContext) -> Iterator[Finding]:
    python, torch = context.snapshot.python, context.snapshot.torch
    # A torch that answered, or that an installer lists, is 64-bit, and so is its Python: whatever a
    # text says of 32 bits is about another Python, or about the prompt of an x86 compiler.
    listed = any(one.name.lower() == "torch" for one in context.snapshot.packages or ())
    answered = is_report(context) and (listed or torch.cuda_available is not None)
    if python.bits == 32 and not answered:
        yield PYTHON_32BIT.found(
            "This Python is a 32-bit build: torch has no wheels for it",
            evidence=(value_evidence(context, "python.bits", f"{paste.python(context)}: 32 bits"),),
            fix=_other_python(context),
        )


PYTHON_NO_WHEEL = Cause(
    id="python-no-wheel",
    place=(Layer.INSTALL, 30),
    title="torch has no wheel for this Python",
    means="Too new, too old, or free-threaded.",
    proven_by="No build of the platform has it; an installer finds no file though one is there",
    not_when="no-wheel-for-platform",
    way_out="Another Python",
    source=WHEELS,
    explains=UNINSTALLABLE,
)


def python_no_wheel(context: RuleContext) -> Iterator[Finding]:
    """No build in the catalog is for this Python, on a platform that has builds."""
    tag, here = python_tag(context.snapshot), _builds_here(context)
    if not tag or context.snapshot.python.bits == 32 or _no_install_is_meant(context):
        return
    if here and not any(tag in row.pythons for row in here):
        yield PYTHON_NO_WHEEL.found(
            f"torch has no wheel for Python {tag}",
            evidence=(value_evidence(context, "python.version", f"Python {tag}"),),
            fix=_other_python(context),
        )


def _no_install_is_meant(context: RuleContext) -> bool:
    """A text from an environment that has its torch: an old Python is no trouble of its own."""
    torch = context.snapshot.torch
    return is_report(context) and bool(torch.version or context.snapshot.events)


def _builds_here(context: RuleContext) -> list[TorchBuild]:
    place = context.snapshot.os.family, context.snapshot.os.machine
    return [row for row in context.catalog.builds if (row.os, row.machine) == place]


def _other_python(context: RuleContext) -> Fix:
    good = good_python(context)
    text = f"Make an environment with a 64-bit Python {good} and install there"
    return paste.with_python(context, good, text)


def good_python(context: RuleContext) -> str:
    return context.catalog.milestone("usual python")


NO_WHEEL_FOR_PLATFORM = Cause(
    id="no-wheel-for-platform",
    place=(Layer.PLATFORM, 10),
    title="torch has no wheel for this system",
    means="musl, Intel Macs, 32-bit ARM and others.",
    proven_by="No build for system and machine; a musl libc",
    not_when="python-no-wheel",
    way_out="Another image or system",
    source=WHEELS,
    explains=(*UNINSTALLABLE, "python-no-wheel", "wrong-index"),
    alike=(
        Alike(
            causes=("wrong-index", "python-no-wheel"),
            asks=alike.BITS,
            unless=alike.installer_says_it,
        ),
    ),
)


def no_wheel_for_platform(context: RuleContext) -> Iterator[Finding]:
    """No torch for this system or machine type at all, whatever the Python."""
    os, messages = context.snapshot.os, events(context, "musl-libc")
    known = os.family and os.machine and not _no_install_is_meant(context)
    if context.snapshot.python.bits == 32 or not (messages or known):
        return
    musl = messages or (os.libc or "").startswith("musl")
    if musl or not _builds_here(context):
        what = "this system: a musl libc" if musl else f"{os.family} on {os.machine}"
        about = value_evidence(context, "os.libc" if musl else "os.machine", what)
        yield NO_WHEEL_FOR_PLATFORM.found(
            f"torch has no wheel for {what}",
            evidence=event_evidence(messages) or (about,),
            fix=Fix(text=MUSL if musl else no_platform_way(context)),
        )


MUSL = "Use an image with glibc (Debian, Ubuntu, Fedora) instead of Alpine"


def no_platform_way(context: RuleContext) -> str:
    if on(context, "macos"):
        return "Intel Macs end with torch 2.2.2 (Python 3.12 or older, numpy<2)"
    if on(context, "windows"):
        return "Use a 64-bit x86 Python (it runs in emulation), or conda-forge"
    return (
        "Install a 64-bit system (x86_64 or aarch64); else use the distribution's or "
        "conda-forge's package, or build torch from source"
    )


def _has_no_gpu(context: RuleContext) -> bool:
    return has_nvidia(context) is False or context.snapshot.torch.backend == "cpu"


GLIBC_TOO_OLD = Cause(
    id="glibc-too-old",
    place=(Layer.WHEEL, 10),
    title="glibc is older than the wheels need",
    means="manylinux_2_28 since torch 2.6.",
    proven_by="Its version below the lowest that any build needs",
    way_out="A newer distribution or container",
    source="PEP 600; the wheels and indexes of torch, read for the catalog",
    explains=(*NO_TORCH, "cuda-lib-missing", "library-missing"),
    message=Message(
        title="The system's glibc is too old: glibc {needed} is needed",
        plain="The system's glibc is older than what is installed here needs",
        text="Use a newer distribution, or a container with one, which this command starts. Do not "
        "replace the glibc of the system",
        commands=("docker run --rm --gpus all -it ubuntu:24.04",),
        cases=(Message(where=(_has_no_gpu,), commands=("docker run --rm -it ubuntu:24.04",)),),
    ),
    stage="import",
)


def glibc_too_old(context: RuleContext) -> Iterator[Finding]:
    """The system's glibc is below the wheel's."""
    yield from from_messages(context, (GLIBC_TOO_OLD,))
    libc = context.snapshot.os.libc or ""
    least = [row.glibc for row in _builds_here(context) if row.glibc]
    if not libc.startswith("glibc ") or not least or _no_install_is_meant(context):
        return
    needed = min(least, key=parsed)
    if parsed(libc.removeprefix("glibc ")) < parsed(needed):
        yield seen(context, GLIBC_TOO_OLD, "os.libc", libc, needed=needed)


RULES = (python_32bit, python_no_wheel, no_wheel_for_platform, glibc_too_old)
