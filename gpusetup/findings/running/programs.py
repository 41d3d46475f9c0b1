"""What CUDA and torch say while a program runs: memory, fork, compilers at run time, faults."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    cuda_errors,
    cuda_needed,
    event_evidence,
    events,
    gib,
    gpus,
    on,
    value_evidence,
    whole_number,
    with_cuda,
)
from gpusetup.findings.host.settings import TF32_MESSAGE, TF32_PRECISION
from gpusetup.findings.layers import NCCL_SAYS, Layer
from gpusetup.findings.message_rules import from_message
from gpusetup.findings.programs import is_beside_torch
from gpusetup.findings.record import Cause
from gpusetup.findings.sources import CUDA_RUNTIME
from gpusetup.fixes import drivers, paste
from gpusetup.model.finding import Alternative, Evidence, Finding, Fix, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, visible_gpus
from gpusetup.model.shell import Line, lines
from gpusetup.model.versions import Capability, parsed

TF32_BY_DEFAULT = ("1.7", "1.12")
"""From the first torch on, before the second, matrices are multiplied in TF32 by default."""


def tf32_products(context: RuleContext) -> Iterator[Finding]:
    """A CPU and a GPU product differ in the third digit, and this torch uses TF32 by default."""
    messages = events(context, "results-differ")
    version = context.snapshot.torch.version
    first, last = map(parsed, TF32_BY_DEFAULT)
    old = any((g.compute_capability or AMPERE) < AMPERE for g in gpus(context))
    if messages and not old and version and first <= parsed(version) < last:
        finding = from_message(context, TF32_PRECISION, TF32_MESSAGE, messages)
        computed_by = value_evidence(context, "torch.version", f"torch {version}")
        yield replace(finding, evidence=(*finding.evidence, computed_by))


AMPERE = Capability(8, 0)


OUT_OF_MEMORY = Cause(
    id="out-of-memory",
    place=(Layer.RUNNING, 110),
    title="the GPU's memory does not suffice",
    means="Model, activations and what other programs hold.",
    proven_by="CUDA out of memory; error 2 after the start",
    not_when="cuda-init-out-of-memory, host-out-of-memory",
    way_out="A smaller batch or precision; gpusetup plan",
    source="torch documentation, memory management",
    explains=(
        "gpu-check-failed",
        "cuda-library-error",
        "torch-internal-error",
        *NCCL_SAYS,
    ),
)


def out_of_memory(context: RuleContext) -> Iterator[Finding]:
    """The GPU's memory did not suffice."""
    messages = (*events(context, "out-of-memory"), *cuda_errors(context, 2), *_no_room(context))
    if messages:
        yield OUT_OF_MEMORY.found(
            f"The GPU's memory does not suffice{_how_much(messages[0])}",
            evidence=(*event_evidence(messages), *_memory_held(context)),
            fix=_of_an_engine(context, messages)
            or Fix(
                text="Lower the batch size (with gradient accumulation), the input's size or the "
                "precision (bfloat16, float16); end other programs on the GPU"
                + _allocator_hint(context),
                commands=_allocator(context),
                looks=paste.look("see what else holds memory", *lines("nvidia-smi")),
            ),
        )


ENGINES = {
    "vLLM at its start": "vLLM takes its share of the whole GPU when it starts, and less is free. "
    "End the process that holds the rest, or ask for a smaller share: a lower "
    "`--gpu-memory-utilization` (in Python `gpu_memory_utilization=`)",
    "Jetson": "On a Jetson the GPU uses the machine's own memory. Close the desktop and other "
    "programs (`sudo init 3`), take a smaller model, a quantization or a shorter context, and add "
    "swap, to which what the CPU holds can move. If the same program ran before, reboot: the pool "
    "breaks into pieces. Jetson Linux 36.4.7 itself caps such allocations: update it",
    "vLLM": "Give vLLM less to hold (a smaller `--max-model-len` or `--max-num-seqs`, a quantized "
    "model) or more of the GPU (`--gpu-memory-utilization 0.95`); end other programs on the GPU",
    "llama.cpp": "Put fewer layers on the GPU (`--n-gpu-layers`; ollama: `num_gpu`), or take a "
    "smaller context (`--ctx-size`; ollama: `num_ctx`) or a smaller quantization; end other "
    "programs on the GPU",
}
"""An engine that keeps its memory by itself -> what makes a model fit."""


def _of_an_engine(context: RuleContext, messages: tuple[Event, ...]) -> Fix | None:
    """The way out of an engine's own message: torch's allocator is none of its trouble."""
    named = [e.values["engine"] for e in messages if "engine" in e.values]
    shared = "Jetson" in named or context.snapshot.os.jetson
    text = ENGINES.get("Jetson" if shared else next(iter(named), ""))
    if text and (share := _share_that_fits(messages)):
        text = f"{text}. What is free now allows {share:.2f} at most"
    shows = lines("free -h", "sudo tegrastats") if shared else lines("nvidia-smi")
    looks = paste.look("see what else holds memory", *shows)
    return Fix(text=text, looks=looks) if text else None


def _share_that_fits(messages: tuple[Event, ...]) -> float | None:
    """The largest share in hundredths that what is free allows, as the message counts it."""
    for values in (event.values for event in messages):
        try:
            share = int(float(values["left"]) / float(values["of"]) * 100) / 100
        except (KeyError, ValueError, ZeroDivisionError, OverflowError):
            continue
        return share if 0 < share < 1 else None
    return None


NO_ROOM = ("NOT_INITIALIZED", "INTERNAL_ERROR")
FULL = 0.95


def _no_room(context: RuleContext) -> tuple[Event, ...]:
    """cuBLAS and cuDNN that do not start, where the memory of every GPU is taken."""
    failed = events(context, "cuda-library-error")
    taken = [
        (g.memory_used_bytes or 0, g.memory_total_bytes) for g in visible_gpus(context.snapshot)
    ]
    full = taken and all(total and used >= FULL * total for used, total in taken)
    return tuple(e for e in failed if full and e.values["status"].endswith(NO_ROOM))


def _how_much(event: Event) -> str:
    asked, total = (_bytes(event, f"{name}_bytes") for name in ("asked", "total"))
    parts = (
        f"{gib(asked)} more were asked for" if asked else None,
        f"it has {gib(total)}" if total else None,
    )
    named = ", ".join(part for part in parts if part)
    return f": {named}" if named else ""


def _bytes(event: Event, name: str) -> int | None:
    return whole_number(event.values.get(name))


def _memory_held(context: RuleContext) -> tuple[Evidence, ...]:
    return tuple(
        value_evidence(
            context, "gpus", f"{g.name}: {gib(g.memory_used_bytes)} of {gib(g.memory_total_bytes)}"
        )
        for g in gpus(context)[:2]
        if g.memory_used_bytes and g.memory_total_bytes
    )


def _no_segments(context: RuleContext) -> bool:
    """Expandable segments need virtual memory calls that these platforms lack."""
    return on(context, "windows") or bool(context.snapshot.os.wsl or context.snapshot.os.jetson)


def _allocator_hint(context: RuleContext) -> str:
    return "" if _no_segments(context) else "; against fragmentation use expandable segments"


def _allocator(context: RuleContext) -> tuple[Line, ...]:
    if _no_segments(context):
        return ()
    return (paste.setting(context, "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),)


PTX_UNSUPPORTED_TOOLCHAIN = Cause(
    id="ptx-unsupported-toolchain",
    place=(Layer.LIBRARIES, 150),
    title="PTX of a newer toolkit than the driver compiles",
    means="Minor-version compatibility covers binary kernels only.",
    proven_by="Error 222",
    not_when="driver-too-old: torch itself does not start",
    way_out="An older CUDA for the extension, or a newer driver",
    source="NVIDIA, CUDA Compatibility",
)


def ptx_unsupported(context: RuleContext) -> Iterator[Finding]:
    """PTX of a newer toolkit than the driver can compile (error 222)."""
    messages = (*events(context, "ptx-unsupported-toolchain"), *cuda_errors(context, 218, 222))
    if not messages:
        return
    cuda = context.snapshot.driver.cuda
    yield PTX_UNSUPPORTED_TOOLCHAIN.found(
        "A kernel is PTX from a newer CUDA toolkit than the driver can compile"
        + (f" (it serves {cuda})" if cuda else ""),
        detail="Minor-version compatibility covers binary kernels, not PTX: that needs a driver of "
        "the toolkit's own CUDA or newer.",
        evidence=(*event_evidence(messages), *_driver_line(context)),
        fix=_newer_driver(
            context,
            f"install or build the extension with CUDA {cuda} or older"
            if cuda
            else "install or "
            "build the extension with an older CUDA, or with binary kernels for this GPU",
        ),
    )


def _driver_line(context: RuleContext) -> tuple[Evidence, ...]:
    driver = context.snapshot.driver
    if not driver.version:
        return ()
    return (
        value_evidence(
            context, "driver.version", with_cuda(f"driver {driver.version}", driver.cuda)
        ),
    )


ARCH_LIST = "TORCH_CUDA_ARCH_LIST or its wheel's tag"


def _newer_driver(context: RuleContext, instead: str) -> Fix:
    way = drivers.driver(context, "Update the driver")
    how = "its own release or build" if is_beside_torch(context) else ARCH_LIST
    text = f"{instead[:1].upper()}{instead[1:]} ({how})"
    if not way.commands:
        return Fix(text=f"{text}. Or u{way.text[1:]}", min_driver=way.min_driver)
    return Fix(
        text=text,
        alternatives=(Alternative(title="update the driver", commands=way.commands),),
        min_driver=way.min_driver,
    )


JIT_ARCH_REJECTED = Cause(
    id="jit-arch-rejected",
    place=(Layer.LIBRARIES, 140),
    title="the run-time compiler does not know the GPU",
    means="NVRTC or ptxas is older than the GPU; precompiled kernels may work.",
    proven_by="The compiler names the option or the architecture",
    not_when="arch-too-new-for-wheel",
    way_out="A torch with a newer CUDA; a newer ptxas for Triton",
    source="NVRTC documentation; Triton's and XLA's sources",
    explains=("cuda-init-failed",),
)


def jit_arch_rejected(context: RuleContext) -> Iterator[Finding]:
    """The compiler that runs inside the program does not know the GPU's architecture."""
    messages = tuple(
        e for e in events(context, "jit-arch-rejected") if e.values.get("compiler") != "nvcc"
    )
    if not messages:
        return
    values = messages[0].values
    compiler, arch = values.get("compiler") or "the run-time compiler", values.get("arch")
    triton = "ptxas" in compiler.lower() or "triton" in compiler.lower()
    way = paste.install_torch(context, "Take a torch with a newer CUDA, whose compiler knows it. ")
    newer = (paste.setting(context, "TRITON_PTXAS_PATH", "/usr/local/cuda/bin/ptxas"),)
    if triton and not _is_newer_cuda(context):
        text = f"Let Triton use a newer toolkit's ptxas{_first_with(context, arch)}"
        way = Fix(text=text, commands=newer if on(context, "linux") else ())
    elif triton and on(context, "linux"):
        other = Alternative(title="let Triton use a newer toolkit's ptxas", commands=newer)
        way = replace(way, alternatives=(*way.alternatives, other))
    yield JIT_ARCH_REJECTED.found(
        f"{compiler} does not know the architecture {arch or 'of this GPU'}",
        detail="Kernels that were compiled beforehand may work; what is compiled at run time "
        "(fusers, jiterator, torch.compile) does not.",
        evidence=event_evidence(messages),
        fix=way,
    )


def _first_with(context: RuleContext, arch: str | None) -> str:
    row = context.catalog.compiler_for(arch or "")
    return f" (from CUDA {row.from_cuda} on it knows {arch})" if row and row.from_cuda else ""


def _is_newer_cuda(context: RuleContext) -> bool:
    """Whether the build to be installed brings a newer CUDA than the torch that is there."""
    build, own = context.resolution.build, cuda_needed(context.snapshot.torch)
    return own is None or bool(build and build.cuda and parsed(build.cuda) > parsed(own))


PROGRAM_CODES = {
    "9": "a launch of a shape that the GPU does not take",
    "59": "device-side assert",
    "77": "illegal memory access",
    "700": "illegal memory access",
    "701": "too many resources requested for launch",
    "702": "the launch timed out",
    "710": "device-side assert",
    "715": "illegal instruction",
    "716": "misaligned address",
    "718": "invalid program counter",
    "719": "unspecified launch failure",
}
"""Codes of CUDA (and of the older runtime) that a program's own kernels cause."""


OUT_OF_RANGE = (
    "Usually an index or a label out of range in the program (for an embedding: token ids beyond "
    "the model's vocabulary), seldom the hardware (then the kernel log holds an Xid). What cuBLAS "
    "or the allocator says afterwards is its echo."
)
BUILT_WRONG = (
    "Usually a kernel of an extension that was compiled, or miscompiled, for another GPU: update "
    "that extension, or go without it."
)


CUDA_PROGRAM_ERROR = Cause(
    id="cuda-program-error",
    severity=Severity.NOTE,
    title="a kernel failed by the program's own fault",
    means="An index out of range, a bad address.",
    proven_by="Errors 700 to 719",
    not_when="An Xid of the hardware stands beside it",
    way_out="CUDA_LAUNCH_BLOCKING=1 to find the line",
    source=CUDA_RUNTIME,
)


def program_error(context: RuleContext) -> Iterator[Finding]:
    """An index out of range, a bad address: a fault of the program, not of the machine."""
    messages = tuple(
        e for e in events(context, "cuda-error") if e.values.get("code") in PROGRAM_CODES
    )
    if messages:
        code = messages[0].values["code"]
        built = code == "715"
        yield CUDA_PROGRAM_ERROR.found(
            f"A kernel failed: {PROGRAM_CODES[code]} (error {code})",
            detail=BUILT_WRONG if built else OUT_OF_RANGE,
            evidence=event_evidence(messages),
            fix=Fix(
                text="Run it once with every kernel waited for, so that the traceback names the "
                "line; on the CPU the same line gives a clear error",
                commands=(paste.setting(context, "CUDA_LAUNCH_BLOCKING", "1"),),
            ),
        )


RULES = (
    tf32_products,
    out_of_memory,
    ptx_unsupported,
    jit_arch_rejected,
    program_error,
)
