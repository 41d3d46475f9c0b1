"""torch in its environment: whole, one, for this machine; its libraries, its Python, the host."""

from __future__ import annotations

from gpusetup.causes.host import short_disks
from gpusetup.causes.torch import HALVES_DO_NOT_FIT, conda_and_pip
from gpusetup.choose.compatibility import takes_numpy
from gpusetup.choose.host import python_tag
from gpusetup.evidence.command_values import exactly
from gpusetup.evidence.context import (
    RuleContext,
    cuda_was_refused,
    events,
    gib,
    gpus,
    has_nvidia,
    in_container,
    is_cuda_build,
    is_report,
    on,
    package,
    packages,
    says_nothing_else,
    value_evidence,
)
from gpusetup.evidence.places import is_beside_torch
from gpusetup.findings.message_rules import finding, seen, shown
from gpusetup.fixes import gpu_naming, paste
from gpusetup.model.finding import Evidence, Findings, Fix, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.model.versions import parsed


def torch_missing(context: RuleContext) -> Findings:
    """No torch in the target interpreter."""
    python, torch = context.snapshot.python, context.torch
    built = torch.version and events(context, "build-isolation-no-torch")
    said = () if built else events(context, "torch-missing")
    if torch.installed is False:
        place = python.site_packages or paste.python(context)
        said += (shown(context, "torch.installed", f"no torch in {place}"),)
    if said:
        named = python.executable or python.prefix or "this Python"
        yield finding(context, "torch-missing", said, python=named)


def torch_itself(context: RuleContext) -> Findings:
    """An installed torch that is torn, mixed or does not import, or what does not fit beside it."""
    torch, numpy = context.torch, package(context, "numpy")
    if any(p.intact is False for p in packages(context, "torch")):
        yield seen(context, "torch-half-installed", "torch.version", "files of torch are missing")
    conda, pip = conda_and_pip(context)
    if conda and pip and parsed(conda).release != parsed(pip).release:
        both = f"conda has torch {conda}, pip {pip}"
        yield seen(context, "mixed-conda-pip", "packages", both)
    if problem := torch.import_error:
        yield seen(context, "torch-import-failed", "torch.import_error", problem)
    version = torch.version
    if version and numpy and not takes_numpy(version, numpy.version, context.catalog):
        both = f"torch {torch.version}, numpy {numpy.version}"
        yield seen(context, "numpy-abi-mismatch", "packages", both, weak=torch.cuda_available)
    if "stub" in (path := context.driver.libcuda_path or ""):
        yield seen(context, "libcuda-stub", "driver.libcuda_path", path)


def two_torch_installs(context: RuleContext) -> Findings:
    """Two torch distributions lie over each other, or one hides another."""
    both = packages(context, "torch")
    versions = tuple(dict.fromkeys(p.version for p in both))
    if len(versions) > 1 and not all(conda_and_pip(context)):
        one_folder = len({p.location for p in both}) == 1
        said = [shown(context, "packages", f"torch {p.version} in {p.location}") for p in both]
        yield finding(
            context,
            "two-torch-installs",
            said,
            severity=None if one_folder else Severity.WARNING,
            times=str(len(versions)),
            versions=", ".join(versions),
        )


def torch_outside_target(context: RuleContext) -> Findings:
    """The torch that would be imported lies outside the environment (user site, PYTHONPATH).

    Where it is not right for this machine, no other one in the environment would be seen.
    """
    python, place = context.snapshot.python, context.torch.location or ""
    own = tuple(filter(None, (python.prefix, python.site_packages)))
    told = events(context, *HALVES_DO_NOT_FIT)
    if place and python.prefix and not place.startswith(own) and not told:
        in_the_way = context.choice.action != "kept"
        broken = in_the_way and not paste.target_refuses(context)
        cause = "torch-outside-environment"
        yield seen(context, cause, "torch.location", place, weak=not broken, place=place)


def torch_cpu_build(context: RuleContext) -> Findings:
    """The machine has an NVIDIA GPU and the installed torch has no CUDA."""
    torch = context.torch
    said = events(context, "torch-not-compiled-with-cuda")
    # No order: where no source tells the GPU, only a text about CUDA makes one likely.
    asked = said or cuda_was_refused(context) or says_nothing_else(context)
    about_it = is_report(context) and asked
    there = has_nvidia(context)
    old = context.catalog.never_serves(context.snapshot.gpus or ())
    if old or context.os.jetson or not (there or (there is None and about_it)):
        return
    if said or (torch.backend == "cpu" and not torch.cuda_available):
        # A build with CUDA that is listed is not the one that says so.
        who = named(context) if torch.backend in (None, "cpu") else "The torch that runs"
        gpu = gpu_naming.gpu_names(context)
        of_torch = shown(context, "torch.version", f"{who}, backend {torch.backend or 'cpu'}")
        of_gpu = (shown(context, "gpus", gpu),) if gpus(context) else ()
        seen = (*said, of_torch, *of_gpu)
        yield finding(context, "torch-cpu-build", seen, who=who, gpu=gpu)


def named(context: RuleContext) -> str:
    """`torch 2.5.1`, or `torch` alone."""
    return f"torch {context.torch.version or ''}".strip()


def version_evidence(context: RuleContext) -> tuple[Evidence, ...]:
    text = f"{named(context)}, backend {context.torch.backend or 'unknown'}"
    return (value_evidence(context, "torch.version", text),)


def foreign_wheel(context: RuleContext) -> Findings:
    """A build for another maker's GPUs."""
    label = context.torch.backend or ""
    cause = {"rocm": "rocm-wheel-on-nvidia", "xpu": "xpu-wheel-on-nvidia"}.get(label[:4])
    if cause and gpus(context) and not events(context, "foreign-gpu"):
        said = (shown(context, "torch.version", f"backend {label}"),)
        yield finding(context, cause, said, who=named(context))


def torch_sees_no_gpu(context: RuleContext) -> Findings:
    """torch itself, or a program above it, says that CUDA is not available."""
    torch = context.torch
    said = events(context, "cuda-unavailable")
    if torch.cuda_available is None and not torch.version and is_beside_torch(context):
        return
    if torch.cuda_available is False and not said:
        said = (shown(context, "torch.cuda_available", "torch.cuda.is_available(): False"),)
    if not said or has_nvidia(context) is False:
        return
    yield finding(context, "torch-sees-no-gpu", said)


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
    """What of the target keeps an installer from it; nothing to judge where none was named."""
    python, limited = context.snapshot.python, Severity.WARNING
    problems = [r for r in context.snapshot.readings if r.subject == "python" and r.problem]
    if python.version is None and python.executable is None and problems:
        yield seen(context, "no-target", "python", problems[0].problem or "")
    if python.has_pip is False:
        yield seen(context, "pip-missing", "python.has_pip", "no pip", severity=Severity.NOTE)
    if python.externally_managed:
        text, about = "EXTERNALLY-MANAGED", "python.externally_managed"
        yield seen(context, "externally-managed", about, text, severity=limited)
    elif python.site_writable is False:
        path, about = python.site_packages or python.prefix or "it", "python.site_writable"
        yield seen(context, "site-not-writable", about, "not writable", severity=limited, path=path)


def host(context: RuleContext) -> Findings:
    """No room where an install writes or DataLoader workers share; no compiler for Triton."""
    machine, said = context.snapshot, events(context, "pip-cache-disk-full")
    room = [f"{d.path}: {gib(d.free_bytes or 0)} free" for d in short_disks(context)]
    if said or room:
        full = (*said, *(shown(context, "disks", one) for one in room))
        yield finding(context, "pip-cache-disk-full", full, weak=not said)
    total = machine.memory.shm_total_bytes
    if total is not None and total <= GIB and in_container(context):
        about, text = "memory.shm_total_bytes", f"/dev/shm is {gib(total)}"
        yield seen(context, "shm-too-small", about, text, weak=True)
    lacks = machine.packages is not None and machine.toolkit.compiler is None
    looked = on(context, "linux") and not is_report(context)
    if looked and lacks and is_cuda_build(machine.torch) and has_nvidia(context):
        yield seen(context, "triton-no-compiler", "PATH", "no gcc", weak=True)


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
    torch_missing,
    torch_itself,
    two_torch_installs,
    torch_outside_target,
    torch_cpu_build,
    foreign_wheel,
    torch_sees_no_gpu,
    cuda_lib_missing,
    interpreter,
    environment,
    host,
    settings,
)
