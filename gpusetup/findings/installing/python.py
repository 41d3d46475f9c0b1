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
from gpusetup.findings.layers import NO_TORCH, UNINSTALLABLE, Layer
from gpusetup.findings.record import Cause
from gpusetup.findings.sources import WHEELS
from gpusetup.fixes import paste
from gpusetup.model.finding import Finding, Fix, Severity
from gpusetup.model.machine import Event
from gpusetup.model.shell import lines
from gpusetup.model.versions import parsed

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
    python = context.snapshot.python
    # A torch that answered, or that an installer lists, is 64-bit, and so is its Python: whatever a
    # text says of 32 bits is about another Python, or about the prompt of an x86 compiler.
    listed = any(one.name.lower() == "torch" for one in context.snapshot.packages or ())
    answered = is_report(context) and (listed or context.snapshot.torch.cuda_available is not None)
    if python.bits == 32 and not answered:
        yield PYTHON_32BIT.found(
            f"Python {python.version or ''} is a 32-bit build: torch has no wheels for it".replace(
                "  ", " "
            ),
            evidence=(value_evidence(context, "python.bits", f"{paste.python(context)}: 32 bits"),),
            fix=_other_python(context, "Use a 64-bit Python. "),
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
    python = context.snapshot.python
    tag = python_tag(context)
    if python.bits == 32 or tag is None or _no_install_is_meant(context):
        return
    here = [row for row in context.catalog.builds if _same_platform(context, row.os, row.machine)]
    if here and not any(tag in row.pythons for row in here):
        yield PYTHON_NO_WHEEL.found(
            f"torch has no wheel for Python {tag}",
            evidence=(value_evidence(context, "python.version", f"Python {python.version}"),),
            fix=_other_python(context),
        )


def _no_install_is_meant(context: RuleContext) -> bool:
    """A text from an environment that has its torch: an old Python is no trouble of its own."""
    torch = context.snapshot.torch
    return is_report(context) and bool(torch.version or context.snapshot.events)


def python_tag(context: RuleContext) -> str | None:
    """The Python as the catalog writes it: `3.11`, `3.13t`."""
    python = context.snapshot.python
    if not python.version:
        return None
    minor = ".".join(python.version.split(".")[:2])
    return f"{minor}t" if python.free_threaded else minor


def _same_platform(context: RuleContext, family: str, machine: str) -> bool:
    return family == context.snapshot.os.family and machine == context.snapshot.os.machine


def _other_python(context: RuleContext, why: str = "") -> Fix:
    good = good_python(context)
    folder = paste.fresh(context, good)
    command = paste.command(context, "gpusetup", "install", "--venv", folder)
    return Fix(
        text=f"{why}Make an environment with Python {good} and install there",
        commands=(paste.command(context, "uv", "venv", "--python", good, folder), command),
        python=good,
    )


def good_python(context: RuleContext) -> str:
    """The Python to take: one in the middle of those that the newest torch has here."""
    rows = [
        r
        for r in context.catalog.builds
        if _same_platform(context, r.os, r.machine) and r.channel == "pytorch"
    ]
    if not rows:
        return context.catalog.milestone("usual python")
    newest = max((r.torch for r in rows), key=parsed)
    known = [p for r in rows if r.torch == newest for p in r.pythons if not p.endswith("t")]
    ordered = sorted(set(known), key=parsed)
    return ordered[len(ordered) // 2] if ordered else context.catalog.milestone("usual python")


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
)


def no_wheel_for_platform(context: RuleContext) -> Iterator[Finding]:
    """No torch for this system or machine type at all, whatever the Python."""
    os = context.snapshot.os
    messages = events(context, "musl-libc")
    if not messages and (os.family is None or os.machine is None or _no_install_is_meant(context)):
        return
    if context.snapshot.python.bits == 32:
        return
    musl = (os.libc or "").startswith("musl") or bool(messages)
    known = any(_same_platform(context, row.os, row.machine) for row in context.catalog.builds)
    if musl or not known:
        what = (
            f"{os.libc or 'this system'} (a musl libc)" if musl else f"{os.family} on {os.machine}"
        )
        yield NO_WHEEL_FOR_PLATFORM.found(
            f"torch has no wheel for {what}",
            evidence=event_evidence(messages)
            or (value_evidence(context, "os.libc" if musl else "os.machine", what),),
            fix=Fix(
                text="Use an image with glibc (Debian, Ubuntu, Fedora) instead of Alpine"
                if musl
                else no_platform_way(context)
            ),
        )


THIRTY_TWO_BITS = ("armv6l", "armv7l", "i386", "i486", "i586", "i686")


def no_platform_way(context: RuleContext) -> str:
    if on(context, "macos"):
        return "Intel Macs end with torch 2.2.2 (Python 3.12 or older, numpy<2)"
    if on(context, "windows"):
        return "Use a 64-bit x86 Python (it runs in emulation), or conda-forge"
    if context.snapshot.os.machine in THIRTY_TWO_BITS:
        return "Install a 64-bit system: torch has wheels for x86_64 and aarch64 only"
    return "Use the distribution's or conda-forge's package, or build torch from source"


GLIBC_TOO_OLD = Cause(
    id="glibc-too-old",
    place=(Layer.WHEEL, 10),
    title="glibc is older than the wheels need",
    means="manylinux_2_28 since torch 2.6.",
    proven_by="Its version below the lowest that any build needs",
    way_out="A newer distribution or container",
    source="PEP 600; the wheels and indexes of torch, read for the catalog",
    explains=(*NO_TORCH, "cuda-lib-missing", "library-missing"),
)


def glibc_too_old(context: RuleContext) -> Iterator[Finding]:
    """The system's glibc is below the wheel's."""
    libc = context.snapshot.os.libc or ""
    messages = events(context, "glibc-too-old")
    found = libc.removeprefix("glibc ") if libc.startswith("glibc ") else None
    asked = bool(found) and not _no_install_is_meant(context)
    needed = _least_glibc(context) if asked else None
    short = bool(found and needed and parsed(found) < parsed(needed))
    if messages or short:
        yield GLIBC_TOO_OLD.found(
            _glibc_title(messages, found, needed),
            evidence=(
                *event_evidence(messages),
                *((value_evidence(context, "os.libc", libc),) if libc else ()),
            ),
            fix=Fix(
                text="Use a newer distribution, or a container with one, which this command "
                "starts. Do not replace the glibc of the system",
                commands=lines("docker run --rm --gpus all -it ubuntu:24.04")
                if _has_gpus(context)
                else lines("docker run --rm -it ubuntu:24.04"),
            ),
        )


def _has_gpus(context: RuleContext) -> bool:
    """Whether a container may ask for GPUs: docker refuses it where there are none."""
    return has_nvidia(context) is not False and context.snapshot.torch.backend != "cpu"


GLIBC_FILES = ("libc.so", "libm.so", "libpthread.so", "libdl.so", "librt.so", "ld-linux")


def _glibc_title(messages: tuple[Event, ...], found: str | None, needed: str | None) -> str:
    if not messages:
        return f"glibc {found or 'here'} is older than {needed or 'what'} torch's wheels need"
    values = messages[0].values
    library = values.get("library", "")
    # The loader names glibc's own file first, which lacks the version, then who asks for it.
    who = "a binary" if library.startswith(GLIBC_FILES) or not library else library
    wants = f"glibc {values['needed']}" if values.get("needed") else "a newer glibc"
    return f"{who} needs {wants}, this system has {found or 'an older one'}"


def _least_glibc(context: RuleContext) -> str | None:
    """The lowest glibc that any wheel for this platform needs."""
    rows = (r.glibc for r in context.catalog.builds if _same_platform(context, r.os, r.machine))
    return min((glibc for glibc in rows if glibc), key=parsed, default=None)


FREE_THREADED_PYTHON = Cause(
    id="free-threaded-python",
    severity=Severity.NOTE,
    title="a free-threaded Python",
    means="It takes wheels of its own.",
    proven_by="Py_GIL_DISABLED",
    way_out="Nothing to do",
    source="PEP 703",
)


def free_threaded(context: RuleContext) -> Iterator[Finding]:
    if context.snapshot.python.free_threaded:
        yield FREE_THREADED_PYTHON.found(
            f"Python {context.snapshot.python.version} is free-threaded: it takes wheels of its "
            f"own ({python_tag(context)}), and many packages have none",
            evidence=(value_evidence(context, "python.free_threaded", "Py_GIL_DISABLED"),),
        )


RULES = (
    python_32bit,
    python_no_wheel,
    no_wheel_for_platform,
    glibc_too_old,
    free_threaded,
)
