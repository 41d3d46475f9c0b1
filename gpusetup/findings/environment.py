"""What torch stands on: its libraries, its Python, its environment, and what the host gives."""

from __future__ import annotations

from gpusetup.causes.host import short_disks
from gpusetup.evidence.context import (
    RuleContext,
    events,
    gib,
    has_nvidia,
    in_container,
    is_cuda_build,
    is_report,
    on,
    package,
)
from gpusetup.evidence.plausible import exactly
from gpusetup.findings.message_rules import finding, seen, shown
from gpusetup.fixes import paste
from gpusetup.model.finding import Findings, Fix, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.model.versions import parsed
from gpusetup.resolver.situation import python_tag


def misled(context: RuleContext) -> Findings:
    """Another library than torch's own, or than the driver's, is what the loader finds first."""
    path, about = context.driver.libcuda_path or "", "driver.libcuda_path"
    if "stub" in path:
        yield seen(context, "libcuda-stub", about, path)


def cuda_lib_missing(context: RuleContext) -> Findings:
    """A CUDA library that torch links against is not installed, or only in part."""
    cut = [
        (p.name, p.version)
        for p in context.snapshot.packages or ()
        if p.name.startswith("nvidia-") and p.intact is False
    ]
    if cut:
        exact = ("install", "--force-reinstall", "--no-deps", *exactly(cut))
        names = ", ".join(name for name, _ in cut[:3])
        files = f"{names}: files are missing"
        again = Fix(text="Reinstall these packages", commands=(paste.pip(context, *exact),))
        found = seen(context, "cuda-lib-missing", "packages", files, library=names)
        yield replace(found, fix=again)


def numeric(context: RuleContext) -> Findings:
    torch, numpy = context.torch, package(context, "numpy")
    version = parsed((torch.version or "99").partition("+")[0])
    first = context.catalog.milestone("torch for numpy 1 and 2")
    if version < parsed(first) and numpy and parsed(numpy.version).major >= 2:
        both = f"torch {torch.version}, numpy {numpy.version}"
        yield seen(context, "numpy-abi-mismatch", "packages", both, weak=torch.cuda_available)


def triton(context: RuleContext) -> Findings:
    """torch.compile needs a Triton, and on Linux the system's C compiler."""
    machine = context.snapshot
    lacks = machine.packages is not None and machine.toolkit.compiler is None
    looked = on(context, "linux") and not is_report(context)
    if looked and lacks and is_cuda_build(machine.torch) and has_nvidia(context):
        yield seen(context, "triton-no-compiler", "PATH", "no gcc", weak=True)


def interpreter(context: RuleContext) -> Findings:
    """Whether any torch can be installed: into this Python, on this system, with this libc."""
    os, python, torch = context.os, context.snapshot.python, context.torch
    if python.bits == 32:
        # A torch that answered, or that an installer lists, is 64-bit, and so is its Python.
        answered = torch.cuda_available is not None or package(context, "torch")
        if not (is_report(context) and answered):
            path = paste.python(context)
            yield seen(context, "python-32bit", "python.bits", f"{path}: 32 bits")
        return
    musl = events(context, "musl-libc")
    if not musl and is_report(context) and (torch.version or context.snapshot.events):
        return  # An environment that has its torch: an old Python is no trouble of its own.
    here = [r for r in context.catalog.builds if (r.os, r.machine) == (os.family, os.machine)]
    libc, tag = os.libc or "", python_tag(context.snapshot)
    least = min((row.glibc for row in here if row.glibc), key=parsed, default="0")
    text = what = f"{os.family} on {os.machine}"
    by_libc = musl or libc.startswith("musl")
    if by_libc:
        text, what = libc, "this system: a musl libc"
    if by_libc or (os.family and os.machine and not here):
        said = musl or (shown(context, "os.libc", text),)
        yield finding(context, "no-wheel-for-platform", said, what=what, asked="torch")
    elif here and tag and not any(tag in row.pythons for row in here):
        yield seen(context, "python-no-wheel", "python.version", f"Python {tag}", asked="torch")
    if libc.startswith("glibc ") and parsed(libc.removeprefix("glibc ")) < parsed(least):
        yield seen(context, "glibc-too-old", "os.libc", libc, needed=least)


def environment(context: RuleContext) -> Findings:
    python = context.snapshot.python
    if python.has_pip is False:
        yield seen(context, "pip-missing", "python.has_pip", "no pip", severity=Severity.NOTE)
    if python.externally_managed:
        text, weak = "EXTERNALLY-MANAGED", Severity.WARNING
        yield seen(context, "externally-managed", "python.externally_managed", text, severity=weak)
    elif python.site_writable is False:
        path, weak = python.site_packages or python.prefix or "it", Severity.WARNING
        about = "python.site_writable"
        yield seen(context, "site-not-writable", about, "not writable", severity=weak, path=path)


def tool_environment(context: RuleContext) -> Findings:
    """Nothing to judge: no interpreter but the one that gpusetup itself lives in."""
    python = context.snapshot.python
    problems = [r for r in context.snapshot.readings if r.subject == "python" and r.problem]
    if python.version is None and python.executable is None and problems:
        yield seen(context, "no-target", "python", problems[0].problem or "")


def disk_full(context: RuleContext) -> Findings:
    """No room for an install where it writes."""
    said = events(context, "pip-cache-disk-full")
    room = [f"{d.path}: {gib(d.free_bytes or 0)} free" for d in short_disks(context)]
    if said or room:
        seen = (*said, *(shown(context, "disks", one) for one in room))
        yield finding(context, "pip-cache-disk-full", seen, weak=not said)


def shm_too_small(context: RuleContext) -> Findings:
    """A small /dev/shm kills DataLoader workers."""
    total = context.snapshot.memory.shm_total_bytes
    if total is not None and total <= GIB and in_container(context):
        about, text = "memory.shm_total_bytes", f"/dev/shm is {gib(total)}"
        yield seen(context, "shm-too-small", about, text, weak=True)


SETTINGS = {
    "CUDA_LAUNCH_BLOCKING": "cuda-launch-blocking",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "memory-caching-off",
    "NVIDIA_TF32_OVERRIDE": "tf32-precision",
}
"""CUDA's and torch's own documentation."""


def settings(context: RuleContext) -> Findings:
    """Environment variables with a value that costs something."""
    for name, cause in SETTINGS.items():
        if context.snapshot.environment.get(name) == "1":
            yield seen(context, cause, "environment", f"{name}=1")


RULES = (
    misled,
    cuda_lib_missing,
    numeric,
    triton,
    interpreter,
    environment,
    tool_environment,
    disk_full,
    shm_too_small,
    settings,
)
