"""The build of torch: for this GPU and this machine, and what it says of them itself."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    asked_for_cuda,
    event_evidence,
    events,
    gpus,
    has_nvidia,
    is_report,
    on,
    one_of,
    says_nothing_else,
    value_evidence,
)
from gpusetup.evidence.wording import place_of
from gpusetup.findings.container.boundary import CUDA_VISIBLE_DEVICES_HIDDEN
from gpusetup.findings.layers import BROKEN_TORCH, COMPANIONS, Layer
from gpusetup.findings.programs import is_beside_torch
from gpusetup.findings.record import Cause
from gpusetup.findings.sources import WHEELS
from gpusetup.fixes import paste, which
from gpusetup.model.finding import Evidence, Finding, Fix, Severity
from gpusetup.model.machine import Event
from gpusetup.model.shell import lines

TORCH_CPU_BUILD = Cause(
    id="torch-cpu-build",
    place=(Layer.WHEEL, 110),
    title="a CPU build on a machine with an NVIDIA GPU",
    means="The default index serves Windows CPU builds; conda's plain pytorch may solve to one.",
    proven_by="torch/version.py has no CUDA, and there is an NVIDIA GPU",
    not_when="Hidden GPUs; a missing driver, which comes first",
    way_out="Install the CUDA build from torch's index",
    source=WHEELS,
    explains=(*BROKEN_TORCH, "extension-abi-mismatch"),
)


def torch_cpu_build(context: RuleContext) -> Iterator[Finding]:
    """The machine has an NVIDIA GPU and the installed torch has no CUDA."""
    torch = context.snapshot.torch
    messages = events(context, "torch-not-compiled-with-cuda")
    # No order: where no source tells the GPU, only a text about CUDA makes one likely.
    about_it = asked_for_cuda(context) or says_nothing_else(context)
    meant = not messages and not asked_for_cuda(context) and _is_wanted(context)
    suspected = has_nvidia(context) is None and about_it and is_report(context) and not meant
    old = context.catalog.never_serves(context.snapshot.gpus or ())
    if old or context.snapshot.os.jetson or not (has_nvidia(context) or suspected):
        return
    replaced = _replaced(context)
    if not messages and not replaced and (torch.backend != "cpu" or torch.cuda_available):
        return
    yield TORCH_CPU_BUILD.found(
        f"torch {torch.version or ''} is a CPU build: it cannot use {which.names(context)}".replace(
            "  ", " "
        ),
        detail=_why_cpu(context),
        evidence=(*event_evidence((*messages, *replaced)), *version_evidence(context)),
        fix=_replace_cpu_build(context),
    )


def _is_wanted(context: RuleContext) -> bool:
    """The text asks an installer for the CPU build: then it is no mistake."""
    return context.snapshot.wanted.backend == "cpu"


def _replaced(context: RuleContext) -> tuple[Event, ...]:
    """An installer that took a CUDA build away and put a build without CUDA in its place."""
    torch = context.snapshot.torch
    gone = tuple(e for e in events(context, "torch-uninstalled") if "taken" not in e.values)
    if torch.cuda_available:
        return ()
    plain = on(context, "windows") and "+" not in (torch.version or "+")
    said = tuple(e for e in gone if e.values.get("backend") == "cpu")
    return gone if plain or torch.backend == "cpu" else said


def _why_cpu(context: RuleContext) -> str:
    torch = context.snapshot.torch
    if gone := _replaced(context):
        old = gone[0].values.get("old")
        return (
            f"An installer took torch {old} away for another package and put this one in its "
            "place: it looks for torch on the default index."
        )
    if (torch.installer or "") == "conda":
        return "Plain `pytorch` in conda solves to a CPU build where conda sees no driver."
    if on(context, "windows") and "+" not in (torch.version or "+"):
        return "For Windows the default package index has CPU builds only."
    return ""


def version_evidence(context: RuleContext) -> tuple[Evidence, ...]:
    torch = context.snapshot.torch
    driver = context.snapshot.driver
    beside = (
        which.names(context),
        f"driver {driver.version}" if driver.version else None,
        f"CUDA {driver.cuda}" if driver.cuda else None,
    )
    lines = []
    if torch.version:
        backend = f", backend {torch.backend}" if torch.backend else ""
        lines.append(value_evidence(context, "torch.version", f"torch {torch.version}{backend}"))
    if torch.cuda_available is False:
        lines.append(
            value_evidence(context, "torch.cuda_available", "torch.cuda.is_available(): False")
        )
    if gpus(context):
        lines.append(value_evidence(context, "gpus", ", ".join(word for word in beside if word)))
    return tuple(lines)


def _replace_cpu_build(context: RuleContext) -> Fix:
    build = context.resolution.build
    if build is not None and build.backend == "cpu":
        return Fix(
            text="No CUDA build fits this machine yet: "
            + (_advice(context) or "see the other findings")
        )
    return paste.install_torch(context, "Replace the CPU build. ")


def _advice(context: RuleContext) -> str | None:
    advice = context.resolution.advice
    return f"with {advice.change} {advice.to}, {advice.gives}" if advice else None


ROCM_WHEEL_ON_NVIDIA = Cause(
    id="rocm-wheel-on-nvidia",
    place=(Layer.WHEEL, 90),
    title="a ROCm build on an NVIDIA machine",
    means="ROCm is AMD's.",
    proven_by="Label rocm, and an NVIDIA GPU listed",
    not_when="amd-gpu",
    way_out="Install the CUDA build",
    source=WHEELS,
    explains=(*BROKEN_TORCH, *COMPANIONS),
)


def rocm_wheel_on_nvidia(context: RuleContext) -> Iterator[Finding]:
    yield from _foreign_wheel(context, "rocm", "ROCm (AMD)", ROCM_WHEEL_ON_NVIDIA)


XPU_WHEEL_ON_NVIDIA = Cause(
    id="xpu-wheel-on-nvidia",
    place=(Layer.WHEEL, 90),
    title="an XPU build on an NVIDIA machine",
    means="XPU is Intel's.",
    proven_by="Label xpu, and an NVIDIA GPU listed",
    not_when="intel-gpu",
    way_out="Install the CUDA build",
    source=WHEELS,
    explains=(*BROKEN_TORCH, *COMPANIONS),
)


def xpu_wheel_on_nvidia(context: RuleContext) -> Iterator[Finding]:
    yield from _foreign_wheel(context, "xpu", "XPU (Intel)", XPU_WHEEL_ON_NVIDIA)


def _foreign_wheel(
    context: RuleContext, label: str, called: str, cause: Cause
) -> Iterator[Finding]:
    torch = context.snapshot.torch
    if not (torch.backend or "").startswith(label) or not gpus(context):
        return
    yield cause.found(
        f"torch {torch.version or 'here'} is a {called} build: it cannot use "
        f"{which.names(context)}",
        evidence=version_evidence(context),
        fix=paste.install_torch(context, f"Replace the {called} build. "),
    )


TORCH_SEES_NO_GPU = Cause(
    id="torch-sees-no-gpu",
    symptom=True,
    place=(Layer.RUNNING, 180),
    title="torch says that CUDA is not available",
    means="A symptom: usually another finding explains it.",
    proven_by="torch.cuda.is_available() is False",
    way_out="Ask torch for the reason",
    source="torch.cuda.is_available",
)


def torch_sees_no_gpu(context: RuleContext) -> Iterator[Finding]:
    """torch itself says that CUDA is not available."""
    torch = context.snapshot.torch
    messages = events(context, "cuda-unavailable")
    if torch.cuda_available is None and not torch.version and is_beside_torch(context):
        return
    if (torch.cuda_available is False or messages) and has_nvidia(context) is not False:
        asked = torch.cuda_available is False
        if torch.cuda_available and messages and all(e.values.get("asked") for e in messages):
            yield _two_pythons(context, messages)
            return
        if torch.cuda_available and messages:
            yield _hidden_from_one_program(context, messages)
            return
        line = value_evidence(context, "torch.cuda_available", "torch.cuda.is_available(): False")
        quoted = any(place_of(event.source or "") == place_of(line.source) for event in messages)
        yield TORCH_SEES_NO_GPU.found(
            "torch.cuda.is_available() is False",
            evidence=(*event_evidence(messages), *((line,) if asked and not quoted else ())),
            fix=Fix(
                text="Ask torch for the reason, and do what its answer says: `None` is a build "
                "without CUDA (`gpusetup install` replaces it); a driver that is too old or not "
                "found is updated or installed; `No CUDA GPUs are available` is a GPU that the "
                "container was not given, or that CUDA_VISIBLE_DEVICES hides",
                looks=paste.look(
                    "have torch raise it",
                    paste.command(
                        context, paste.python(context), "-c", "import torch; torch.cuda.init()"
                    ),
                ),
            ),
        )


def _hidden_from_one_program(context: RuleContext, messages: tuple[Event, ...]) -> Finding:
    """A program finds none where torch itself sees its GPU: the program chooses its devices."""
    find = lines(
        "findstr /s CUDA_VISIBLE_DEVICES *.py"
        if on(context, "windows")
        else "grep -rn CUDA_VISIBLE_DEVICES ."
    )
    # No order: that a program chooses its devices is a guess until an exception says it.
    raised = any("error: " in (event.text or "").lower() for event in messages)
    shown = raised or "CUDA_VISIBLE_DEVICES" in context.snapshot.environment
    cause = CUDA_VISIBLE_DEVICES_HIDDEN if shown else TORCH_SEES_NO_GPU
    return cause.found(
        "A program finds no GPU, though torch sees one: the program, or what starts it, "
        f"{'sets' if shown else 'may set'} CUDA_VISIBLE_DEVICES",
        detail="A number in it that no GPU has hides every GPU (with one GPU only 0 is right).",
        evidence=(
            *event_evidence(messages),
            value_evidence(context, "torch.cuda_available", "torch.cuda.is_available(): True"),
        ),
        fix=Fix(
            text="Find where it is set, and name a GPU that is there",
            looks=paste.look("look for it in this folder", *find),
        ),
    )


def _two_pythons(context: RuleContext, messages: tuple[Event, ...]) -> Finding:
    """Asked the same twice, torch answers False and True: not the same torch was asked."""
    asked = "import sys, torch; print(sys.executable, torch.__version__, torch.cuda.is_available())"
    return TORCH_SEES_NO_GPU.found(
        "torch.cuda.is_available() is False in one place and True in another: two Pythons, or "
        "another environment around the same one",
        evidence=event_evidence(messages),
        fix=Fix(
            text="Ask in both places which Python and which torch answer; where they are the same, "
            "compare CUDA_VISIBLE_DEVICES",
            looks=paste.look(
                "ask one of them, and then the other", paste.command(context, "python", "-c", asked)
            ),
        ),
    )


GPU_CHECK_FAILED = Cause(
    id="gpu-check-failed",
    symptom=True,
    place=(Layer.RUNNING, 190),
    title="torch computes wrongly or not at all on the GPU",
    means="A check of verify failed or crashed.",
    proven_by="`--deep` ran verify",
    way_out="`gpusetup verify -v`",
    source="gpusetup.verify",
)


def gpu_check_failed(context: RuleContext) -> Iterator[Finding]:
    """verify, run by `--deep`, could not compute what it should."""
    messages = events(context, "gpu-check-failed")
    if messages:
        failed = one_of(tuple(event.values.get("name", "?") for event in messages))
        yield GPU_CHECK_FAILED.found(
            f"torch fails on this machine's GPU: {failed}",
            evidence=event_evidence(messages),
            fix=Fix(
                text="See the checks one by one",
                looks=paste.look(
                    "run them by themselves",
                    paste.command(
                        context, "gpusetup", "verify", "--python", paste.python(context), "-v"
                    ),
                ),
            ),
        )


CALLED_DEBUG = ("1.7.0",)
"""Releases whose ordinary wheels say torch.version.debug: True (torch's issue 47003)."""


TORCH_DEBUG_BUILD = Cause(
    id="torch-debug-build",
    severity=Severity.WARNING,
    title="a debug build of torch",
    means="Many times slower.",
    proven_by="torch.version.debug",
    way_out="Install a release build",
    source="torch/version.py",
)


def torch_debug_build(context: RuleContext) -> Iterator[Finding]:
    version = context.snapshot.torch.version or ""
    if context.snapshot.torch.debug and not version.startswith(CALLED_DEBUG):
        yield TORCH_DEBUG_BUILD.found(
            f"torch {context.snapshot.torch.version} is a debug build: many times slower",
            evidence=(value_evidence(context, "torch.debug", "torch.version.debug is True"),),
            fix=paste.install_torch(context, "Install a release build. "),
        )


RULES = (
    torch_cpu_build,
    rocm_wheel_on_nvidia,
    xpu_wheel_on_nvidia,
    torch_sees_no_gpu,
    gpu_check_failed,
    torch_debug_build,
)
