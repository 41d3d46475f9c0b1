"""Whether torch is installed: whole, one, in this environment, and built for this machine."""

from __future__ import annotations

from gpusetup.causes.torch import HALVES_DO_NOT_FIT, conda_and_pip
from gpusetup.evidence.context import (
    RuleContext,
    asked_for_cuda,
    events,
    gpus,
    has_nvidia,
    is_report,
    packages,
    says_nothing_else,
    value_evidence,
)
from gpusetup.evidence.places import is_beside_torch
from gpusetup.findings.message_rules import finding, seen, shown
from gpusetup.fixes import paste, which
from gpusetup.model.finding import Evidence, Findings, Severity
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


def torch_half_installed(context: RuleContext) -> Findings:
    if any(p.intact is False for p in packages(context, "torch")):
        yield seen(context, "torch-half-installed", "torch.version", "files of torch are missing")


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


def mixed_conda_pip(context: RuleContext) -> Findings:
    """conda and pip both installed torch, in two versions."""
    conda, pip = conda_and_pip(context)
    if conda and pip and parsed(conda).release != parsed(pip).release:
        both = f"conda has torch {conda}, pip {pip}"
        yield seen(context, "mixed-conda-pip", "packages", both)


def torch_import_failed(context: RuleContext) -> Findings:
    """torch was asked to import, and did not."""
    if problem := context.torch.import_error:
        yield seen(context, "torch-import-failed", "torch.import_error", problem)


def torch_outside_target(context: RuleContext) -> Findings:
    """The torch that would be imported lies outside the environment (user site, PYTHONPATH).

    Where it is not right for this machine, no other one in the environment would be seen.
    """
    python, place = context.snapshot.python, context.torch.location or ""
    own = tuple(filter(None, (python.prefix, python.site_packages)))
    told = events(context, *HALVES_DO_NOT_FIT)
    if place and python.prefix and not place.startswith(own) and not told:
        in_the_way = context.decision is not None and context.decision.how != "kept"
        broken = in_the_way and not paste.target_refuses(context)
        cause = "torch-outside-environment"
        yield seen(context, cause, "torch.location", place, weak=not broken, place=place)


def torch_cpu_build(context: RuleContext) -> Findings:
    """The machine has an NVIDIA GPU and the installed torch has no CUDA."""
    torch = context.torch
    said = events(context, "torch-not-compiled-with-cuda")
    # No order: where no source tells the GPU, only a text about CUDA makes one likely.
    asked = said or asked_for_cuda(context) or says_nothing_else(context)
    about_it = is_report(context) and asked
    there = has_nvidia(context)
    old = context.catalog.never_serves(context.snapshot.gpus or ())
    if old or context.os.jetson or not (there or (there is None and about_it)):
        return
    if said or (torch.backend == "cpu" and not torch.cuda_available):
        who, gpu = named(context), which.names(context)
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


RULES = (
    torch_missing,
    torch_half_installed,
    two_torch_installs,
    mixed_conda_pip,
    torch_import_failed,
    torch_outside_target,
    torch_cpu_build,
    foreign_wheel,
    torch_sees_no_gpu,
)
