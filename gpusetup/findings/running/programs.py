"""What CUDA and torch say while a program runs: memory, fork, compilers at run time, faults."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    cuda_errors,
    cuda_needed,
    events,
    gib,
    gpus,
    has_nvidia,
    whole_number,
)
from gpusetup.evidence.places import ON_WINDOWS, in_wsl
from gpusetup.findings import alike
from gpusetup.findings.host.settings import TF32_MESSAGE, TF32_PRECISION
from gpusetup.findings.layers import NCCL_SAYS, Layer
from gpusetup.findings.message_rules import case_of, from_message
from gpusetup.findings.record import Alike, Cause, Message
from gpusetup.findings.sources import CUDA_RUNTIME
from gpusetup.fixes import drivers, paste
from gpusetup.model.finding import Finding, Fix, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event
from gpusetup.model.versions import parsed


def tf32_products(context: RuleContext) -> Iterator[Finding]:
    """A CPU and a GPU product differ in the third digit, and this torch uses TF32 by default."""
    messages = events(context, "results-differ")
    version = context.snapshot.torch.version
    if messages and version and parsed("1.7") <= parsed(version) < parsed("1.12"):
        yield from_message(context, TF32_PRECISION, TF32_MESSAGE, messages)


def _on_a_jetson(context: RuleContext) -> bool:
    said = events(context, "out-of-memory")
    return bool(context.snapshot.os.jetson or any(e.values.get("engine") == "Jetson" for e in said))


def _no_segments(context: RuleContext) -> bool:
    """Expandable segments need virtual memory calls that these platforms lack."""
    return ON_WINDOWS(context) or in_wsl(context)


def _in_a_training(context: RuleContext) -> bool:
    return bool(events(context, "training-run"))


END_OTHERS = (
    "Lower the batch size (with gradient accumulation), the input's size or the precision "
    "(bfloat16, float16); end other programs on the GPU"
)
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
    message=Message(
        title="The GPU's memory does not suffice",
        text=f"{END_OTHERS}; against fragmentation use expandable segments",
        commands=("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",),
        look=("nvidia-smi",),
        see="see what else holds memory",
        cases=(
            Message(where=(lambda context: has_nvidia(context) is False,), text=END_OTHERS),
            Message(
                where=(_on_a_jetson,),
                text="On a Jetson the GPU uses the machine's own memory. Close the desktop and "
                "other programs (`sudo init 3`), take a smaller model, a quantization or a shorter "
                "context, and add swap, to which what the CPU holds can move. If the same program "
                "ran before, reboot: the pool breaks into pieces. Jetson Linux 36.4.7 itself caps "
                "such allocations: update it",
                look=("free -h", "sudo tegrastats"),
            ),
            Message(
                having={"engine": ""},
                text="End the process that holds the rest, and give the server less to hold. vLLM "
                "takes its share of the whole GPU when it starts (`--gpu-memory-utilization`), "
                "then `--max-model-len` and `--max-num-seqs` count; llama.cpp: fewer layers on the "
                "GPU (`--n-gpu-layers`; ollama: `num_gpu`) or a smaller context (`--ctx-size`; "
                "ollama: `num_ctx`)",
                look=("nvidia-smi",),
                see="see what else holds memory",
            ),
            Message(where=(_no_segments,), text=END_OTHERS, look=("nvidia-smi",)),
            Message(
                where=(_in_a_training,),
                text="First lower the batch on each GPU and raise the gradient accumulation by the "
                "same factor, so that a step sees as many samples. Then switch gradient "
                "checkpointing on (it costs about a third more time), train an adapter (LoRA) in "
                "place of all weights, or shorten the inputs. `gpusetup plan --model NAME` says "
                "what fits",
                look=("nvidia-smi",),
                see="see what else holds memory",
            ),
        ),
    ),
    alike=(
        Alike(
            causes=("wsl-driver", "cuda-lib-missing"),
            asks="nvidia-smi",
            unless=alike.memory_is_said,
        ),
    ),
)


def out_of_memory(context: RuleContext) -> Iterator[Finding]:
    """The GPU's memory did not suffice."""
    messages = (*events(context, "out-of-memory"), *cuda_errors(context, 2))
    # cuBLAS and cuDNN do not start where the memory of every GPU is taken.
    seen = [(g.memory_used_bytes, g.memory_total_bytes) for g in gpus(context)]
    if seen and all(used and total and used >= 0.95 * total for used, total in seen):
        messages += events(context, "cuda-library-error")
    for found in _found(context, OUT_OF_MEMORY, messages):
        sizes = (messages[0].values.get(f"{name}_bytes") for name in ("asked", "total"))
        asked, total = (gib(whole_number(size) or 0) for size in sizes)
        told = f"{found.title}: {asked} more were asked for, it has {total}"
        yield replace(found, title=told) if "total_bytes" in messages[0].values else found


def _found(context: RuleContext, cause: Cause, messages: tuple[Event, ...]) -> Iterator[Finding]:
    if messages and cause.message:
        yield from_message(context, cause, *case_of(context, cause.message, messages))


def _older_cuda(context: RuleContext, text: str) -> Fix:
    cuda = context.snapshot.driver.cuda
    older = f"CUDA {cuda} or older" if cuda else "an older CUDA, or with kernels for this GPU"
    newer = drivers.driver(context, "Update the driver")
    return Fix(
        text=f"Take a release or build of what fails for {older}; or update the driver",
        alternatives=paste.other("update the driver", *newer.commands),
        min_driver=newer.min_driver,
    )


PTX_UNSUPPORTED_TOOLCHAIN = Cause(
    id="ptx-unsupported-toolchain",
    lacks="driver",
    place=(Layer.LIBRARIES, 150),
    title="PTX of a newer toolkit than the driver compiles",
    means="Minor-version compatibility covers binary kernels only.",
    proven_by="Error 222",
    not_when="driver-too-old: torch itself does not start",
    way_out="An older CUDA for the extension, or a newer driver",
    source="NVIDIA, CUDA Compatibility",
    stage="first-kernel",
    message=Message(
        title="A kernel is PTX from a newer CUDA toolkit than the driver can compile",
        detail="Minor-version compatibility covers binary kernels, not PTX: that needs a driver of "
        "the toolkit's own CUDA or newer.",
        way=_older_cuda,
    ),
)


def _no_newer_cuda(context: RuleContext) -> bool:
    """Whether the build to be installed brings no newer CUDA than the torch that is there."""
    build, own = context.resolution.build, cuda_needed(context.snapshot.torch)
    return own is not None and not (build and build.cuda and parsed(build.cuda) > parsed(own))


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
    stage="first-kernel",
    message=Message(
        title="{compiler} does not know the architecture {arch}",
        plain="The run-time compiler does not know the architecture of this GPU",
        detail="Kernels that were compiled beforehand may work; what is compiled at run time "
        "(fusers, jiterator, torch.compile) does not.",
        text="Take a torch with a newer CUDA, whose compiler knows it. ",
        way=paste.install_torch,
        cases=(
            Message(
                having={"compiler": "ptxas|triton"},
                where=(_no_newer_cuda,),
                text="Let Triton use a newer toolkit's ptxas",
                commands=("export TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas",),
                windows=(),
            ),
        ),
    ),
)


KERNEL_IMAGE_INVALID = Cause(
    id="kernel-image-invalid",
    symptom=True,
    place=(Layer.LIBRARIES, 130),
    title="the driver cannot load a compiled kernel",
    means="A newer toolkit's output, another GPU's, or a damaged cache.",
    proven_by="CUDA error 200",
    not_when="no-kernel-image (209): there is none for the GPU; ptx-unsupported-toolchain",
    way_out="Empty caches, Triton's own ptxas, a newer driver",
    source="CUDA Driver API reference, CUDA_ERROR_INVALID_IMAGE",
    stage="first-kernel",
    alike=(Alike(causes=("driver-too-old", "extension-arch-mismatch"), asks=alike.COLLECT_ENV),),
    message=Message(
        title="The driver cannot load a compiled kernel: its image is invalid (error 200)",
        detail="It was compiled by a newer toolkit than the driver serves (Triton takes the ptxas "
        "that TRITON_PTXAS_PATH names), for another GPU, or a cache holds half a file.",
        text="Empty the caches of compiled kernels and let Triton use its own ptxas (unset "
        "TRITON_PTXAS_PATH); if it stays, update the driver, or install the Triton that torch "
        "requires",
        commands=("unset TRITON_PTXAS_PATH", "rm -rf ~/.triton/cache ~/.nv/ComputeCache"),
        windows=(r"Remove-Item -Recurse -Force $env:USERPROFILE\.triton\cache",),
        look=("pip check",),
        see="see whether Triton is the one that torch requires",
    ),
)


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


CUDA_PROGRAM_ERROR = Cause(
    id="cuda-program-error",
    severity=Severity.NOTE,
    title="a kernel failed by the program's own fault",
    means="An index out of range, a bad address.",
    proven_by="Errors 700 to 719",
    not_when="An Xid of the hardware stands beside it",
    way_out="CUDA_LAUNCH_BLOCKING=1 to find the line",
    source=CUDA_RUNTIME,
    failure=5,
    message=Message(
        title="A kernel failed: {what} (error {code})",
        detail="Usually an index or a label out of range in the program (for an embedding: token "
        "ids beyond the model's vocabulary), seldom the hardware (then the kernel log holds an "
        "Xid). What cuBLAS or the allocator says afterwards is its echo.",
        text="Run it once with every kernel waited for, so that the traceback names the line; on "
        "the CPU the same line gives a clear error",
        commands=("export CUDA_LAUNCH_BLOCKING=1",),
        cases=(
            Message(
                having={"code": "^715$"},
                detail="Usually a kernel of an extension that was compiled, or miscompiled, for "
                "another GPU: update that extension, or go without it.",
                commands=("export CUDA_LAUNCH_BLOCKING=1",),
            ),
        ),
    ),
)


def by_code(context: RuleContext) -> Iterator[Finding]:
    """What CUDA's own error says, or the compiler that runs inside the program."""
    newer = (*events(context, "ptx-unsupported-toolchain"), *cuda_errors(context, 218, 222))
    yield from _found(context, PTX_UNSUPPORTED_TOOLCHAIN, newer)
    yield from _found(context, KERNEL_IMAGE_INVALID, cuda_errors(context, 200))
    arch = events(context, "jit-arch-rejected")
    arch = tuple(e for e in arch if e.values.get("compiler") != "nvcc")
    yield from _found(context, JIT_ARCH_REJECTED, arch)
    failed = tuple(
        replace(e, values={**e.values, "what": PROGRAM_CODES[e.values["code"]]})
        for e in events(context, "cuda-error")
        if e.values.get("code") in PROGRAM_CODES
    )
    yield from _found(context, CUDA_PROGRAM_ERROR, failed)


RULES = (tf32_products, out_of_memory, by_code)
