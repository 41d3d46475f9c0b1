"""The build of torch: for this GPU and this machine, and what it says of them itself."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model import (
    Event,
    Evidence,
    Finding,
    Fix,
)
from gpusetup.rules import ways, which
from gpusetup.rules.case import (
    Case,
    asked_for_cuda,
    error,
    events,
    gpus,
    has_nvidia,
    is_report,
    on,
    one_of,
    says_nothing_else,
    shown,
    told,
    warning,
)
from gpusetup.shell import lines


def torch_cpu_build(case: Case) -> Iterator[Finding]:
    """The machine has an NVIDIA GPU and the installed torch has no CUDA."""
    torch = case.snapshot.torch
    said = events(case, "torch-not-compiled-with-cuda")
    about_it = asked_for_cuda(case) or says_nothing_else(case)
    suspected = has_nvidia(case) is None and about_it and is_report(case)
    if case.snapshot.os.jetson or not (has_nvidia(case) or suspected):
        return
    if not said and (torch.backend != "cpu" or torch.cuda_available):
        return
    yield error(
        "torch-cpu-build",
        f"torch {torch.version or ''} is a CPU build: it cannot use {which.names(case)}".replace(
            "  ", " "
        ),
        detail=_why_cpu(case),
        evidence=(*told(said), *version_evidence(case)),
        fix=_replace_cpu_build(case),
    )


def _why_cpu(case: Case) -> str:
    torch = case.snapshot.torch
    if (torch.installer or "") == "conda":
        return "Plain `pytorch` in conda solves to a CPU build where conda sees no driver."
    if on(case, "windows") and "+" not in (torch.version or "+"):
        return "For Windows the default package index has CPU builds only."
    return ""


def version_evidence(case: Case) -> tuple[Evidence, ...]:
    torch = case.snapshot.torch
    driver = case.snapshot.driver
    beside = (
        which.names(case),
        f"driver {driver.version}" if driver.version else None,
        f"CUDA {driver.cuda}" if driver.cuda else None,
    )
    lines = []
    if torch.version:
        backend = f", backend {torch.backend}" if torch.backend else ""
        lines.append(shown(case, "torch.version", f"torch {torch.version}{backend}"))
    if torch.cuda_available is False:
        lines.append(shown(case, "torch.cuda_available", "torch.cuda.is_available(): False"))
    if gpus(case):
        lines.append(shown(case, "gpus", ", ".join(word for word in beside if word)))
    return tuple(lines)


def _replace_cpu_build(case: Case) -> Fix:
    build = case.resolution.build
    if build is not None and build.backend == "cpu":
        return Fix(
            text="No CUDA build fits this machine yet: "
            + (_advice(case) or "see the other findings")
        )
    return ways.install_torch(case, "Replace the CPU build. ")


def _advice(case: Case) -> str | None:
    advice = case.resolution.advice
    return f"with {advice.change} {advice.to}, {advice.gives}" if advice else None


def rocm_wheel_on_nvidia(case: Case) -> Iterator[Finding]:
    yield from _foreign_wheel(case, "rocm", "ROCm (AMD)", "rocm-wheel-on-nvidia")


def xpu_wheel_on_nvidia(case: Case) -> Iterator[Finding]:
    yield from _foreign_wheel(case, "xpu", "XPU (Intel)", "xpu-wheel-on-nvidia")


def _foreign_wheel(case: Case, label: str, called: str, id: str) -> Iterator[Finding]:
    torch = case.snapshot.torch
    if not (torch.backend or "").startswith(label) or not gpus(case):
        return
    yield error(
        id,
        f"torch {torch.version or 'here'} is a {called} build: it cannot use {which.names(case)}",
        evidence=version_evidence(case),
        fix=ways.install_torch(case, f"Replace the {called} build. "),
    )


def torch_sees_no_gpu(case: Case) -> Iterator[Finding]:
    """torch itself says that CUDA is not available."""
    torch = case.snapshot.torch
    said = events(case, "cuda-unavailable")
    if (torch.cuda_available is False or said) and has_nvidia(case) is not False:
        asked = torch.cuda_available is False
        if torch.cuda_available and said and all(e.values.get("asked") for e in said):
            yield _two_pythons(case, said)
            return
        if torch.cuda_available and said:
            yield _hidden_from_one_program(case, said)
            return
        line = shown(case, "torch.cuda_available", "torch.cuda.is_available(): False")
        yield error(
            "torch-sees-no-gpu",
            "torch.cuda.is_available() is False",
            evidence=(*told(said), *((line,) if asked else ())),
            fix=Fix(
                text="Ask torch for the reason",
                looks=ways.look(
                    "have torch raise it",
                    ways.command(case, ways.python(case), "-c", "import torch; torch.cuda.init()"),
                ),
            ),
        )


def _hidden_from_one_program(case: Case, said: tuple[Event, ...]) -> Finding:
    """A program finds none where torch itself sees its GPU: the program chooses its devices."""
    find = lines(
        "findstr /s CUDA_VISIBLE_DEVICES *.py"
        if on(case, "windows")
        else "grep -rn CUDA_VISIBLE_DEVICES ."
    )
    return error(
        "torch-sees-no-gpu",
        "A program finds no GPU, though torch sees one: the program, or what starts it, sets "
        "CUDA_VISIBLE_DEVICES",
        detail="A number in it that no GPU has hides every GPU (with one GPU only 0 is right).",
        evidence=told(said),
        fix=Fix(
            text="Find where it is set, and name a GPU that is there",
            looks=ways.look("look for it in this folder", *find),
        ),
    )


def _two_pythons(case: Case, said: tuple[Event, ...]) -> Finding:
    """Asked the same twice, torch answers False and True: not the same torch was asked."""
    asked = "import sys, torch; print(sys.executable, torch.__version__, torch.cuda.is_available())"
    return error(
        "torch-sees-no-gpu",
        "torch.cuda.is_available() is False in one place and True in another: two Pythons, or "
        "another environment around the same one",
        evidence=told(said),
        fix=Fix(
            text="Ask in both places which Python and which torch answer; where they are the same, "
            "compare CUDA_VISIBLE_DEVICES",
            looks=ways.look(
                "ask one of them, and then the other", ways.command(case, "python", "-c", asked)
            ),
        ),
    )


def gpu_check_failed(case: Case) -> Iterator[Finding]:
    """verify, run by `--deep`, could not compute what it should."""
    said = events(case, "check-failed")
    if said:
        failed = one_of(tuple(event.values.get("name", "?") for event in said))
        yield error(
            "gpu-check-failed",
            f"torch fails on this machine's GPU: {failed}",
            evidence=told(said),
            fix=Fix(
                text="See the checks one by one",
                looks=ways.look(
                    "run them by themselves",
                    ways.command(case, "gpusetup", "verify", "--python", ways.python(case), "-v"),
                ),
            ),
        )


CALLED_DEBUG = ("1.7.0",)
"""Releases whose ordinary wheels say torch.version.debug: True (torch's issue 47003)."""


def torch_debug_build(case: Case) -> Iterator[Finding]:
    version = case.snapshot.torch.version or ""
    if case.snapshot.torch.debug and not version.startswith(CALLED_DEBUG):
        yield warning(
            "torch-debug-build",
            f"torch {case.snapshot.torch.version} is a debug build: many times slower",
            evidence=(shown(case, "torch.debug", "torch.version.debug is True"),),
            fix=ways.install_torch(case, "Install a release build. "),
        )


RULES = (
    torch_cpu_build,
    rocm_wheel_on_nvidia,
    xpu_wheel_on_nvidia,
    torch_sees_no_gpu,
    gpu_check_failed,
    torch_debug_build,
)
