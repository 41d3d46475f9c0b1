"""The interpreter: can any torch be installed into it, and is it the one that the person means."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    events,
    has_nvidia,
    is_report,
    on,
)
from gpusetup.findings import alike
from gpusetup.findings.layers import NO_TORCH, UNINSTALLABLE, Layer
from gpusetup.findings.message_rules import from_messages, seen
from gpusetup.findings.record import Alike, Cause, Message
from gpusetup.findings.sources import WHEELS
from gpusetup.fixes import paste
from gpusetup.model.finding import Finding, Fix
from gpusetup.model.versions import parsed
from gpusetup.resolver.situation import python_tag


def good_python(context: RuleContext) -> str:
    return context.catalog.milestone("usual python")


def _other_python(context: RuleContext, _: str) -> Fix:
    good, here = good_python(context), context.snapshot.python.version or ""
    if here.startswith(f"{good}."):  # uv would take the 32-bit one again
        good = f"3.{int(good[2:]) + 1}"
    text = f"Make an environment with a 64-bit Python {good} and install there"
    return paste.with_python(context, good, text)


PYTHON_32BIT = Cause(
    id="python-32bit",
    place=(Layer.INSTALL, 10),
    title="a 32-bit Python",
    means="torch has 64-bit wheels only.",
    proven_by="Pointers of 32 bits; Python's banner, wheel tags and build folders of 32 bits",
    way_out="A 64-bit Python",
    source=WHEELS,
    explains=(*UNINSTALLABLE, "python-no-wheel", "wrong-index"),
    message=Message(
        title="This Python is a 32-bit build: torch has no wheels for it", way=_other_python
    ),
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
    message=Message(title="torch has no wheel for Python {tag}", way=_other_python),
)


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
    message=Message(
        title="torch has no wheel for {what}",
        way=lambda context, text: Fix(text=text or no_platform_way(context)),
        cases=(
            Message(
                having={"what": "musl"},
                text="Use an image with glibc (Debian, Ubuntu, Fedora) instead of Alpine",
                way=lambda context, text: Fix(text=text),
            ),
        ),
    ),
    alike=(
        Alike(
            causes=("wrong-index", "python-no-wheel"),
            asks=alike.BITS,
            unless=alike.installer_says_it,
        ),
    ),
)


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


def interpreter(context: RuleContext) -> Iterator[Finding]:
    """Whether any torch can be installed: into this Python, on this system, with this libc."""
    yield from from_messages(context, (GLIBC_TOO_OLD,))
    os, python, torch = context.snapshot.os, context.snapshot.python, context.snapshot.torch
    named = context.snapshot.packages or ()
    # A torch that answered, or that an installer lists, is 64-bit, and so is its Python.
    answered = torch.cuda_available is not None or any(one.name == "torch" for one in named)
    if python.bits == 32 and not (is_report(context) and answered):
        path = paste.python(context)
        yield seen(context, PYTHON_32BIT, "python.bits", f"{path}: 32 bits")
    if python.bits == 32:
        return
    musl = events(context, "musl-libc")
    if not musl and is_report(context) and (torch.version or context.snapshot.events):
        return  # An environment that has its torch: an old Python is no trouble of its own.
    here = [r for r in context.catalog.builds if (r.os, r.machine) == (os.family, os.machine)]
    libc, tag = os.libc or "", python_tag(context.snapshot)
    least = min((row.glibc for row in here if row.glibc), key=parsed, default="0")
    if musl or libc.startswith("musl"):
        text, what = (musl[0].text if musl else libc) or "musl", "this system: a musl libc"
        yield seen(context, NO_WHEEL_FOR_PLATFORM, "os.libc", text, what=what)
    elif os.family and os.machine and not here:
        what = f"{os.family} on {os.machine}"
        yield seen(context, NO_WHEEL_FOR_PLATFORM, "os.machine", what, what=what)
    elif here and tag and not any(tag in row.pythons for row in here):
        yield seen(context, PYTHON_NO_WHEEL, "python.version", f"Python {tag}", tag=tag)
    if libc.startswith("glibc ") and parsed(libc.removeprefix("glibc ")) < parsed(least):
        yield seen(context, GLIBC_TOO_OLD, "os.libc", libc, needed=least)


RULES = (interpreter,)
