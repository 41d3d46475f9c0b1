"""What CUDA and torch say while a program runs: memory, fork, compilers at run time, faults."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model import (
    Alternative,
    Capability,
    Event,
    Evidence,
    Finding,
    Fix,
    Severity,
    parsed,
    visible_gpus,
)
from gpusetup.rules import drivers, ways
from gpusetup.rules.case import (
    Case,
    cuda_errors,
    cuda_needed,
    error,
    events,
    gib,
    gpus,
    note,
    on,
    shown,
    told,
    whole_number,
    with_cuda,
)
from gpusetup.rules.messages import Message, said
from gpusetup.shell import Line, lines
from gpusetup.value import replace

MESSAGES: tuple[Message, ...] = (
    Message(
        kind="cuda-fork-reinit",
        id="cuda-fork-reinit",
        title="CUDA was started before the process forked; a forked child cannot use it",
        text='Start processes with "spawn" (torch.multiprocessing.set_start_method("spawn"), '
        'DataLoader(multiprocessing_context="spawn"), VLLM_WORKER_MULTIPROC_METHOD=spawn), or '
        "touch CUDA only in the children",
        commands=("export VLLM_WORKER_MULTIPROC_METHOD=spawn",),
    ),
    Message(
        kind="host-out-of-memory",
        id="host-out-of-memory",
        title="The host's memory ran out",
        detail="That is the computer's memory (or the container's limit), not the GPU's.",
        text="Load less at once (fewer workers, memory-mapped or sharded weights), or give the job "
        "or the container more memory",
        look=("free -g", "sudo dmesg | grep -iE 'killed process|out of memory'"),
        see="see what was ended, and for want of what",
    ),
    Message(
        kind="tf32-enabled",
        id="tf32-precision",
        title="float32 products are computed in TF32: results differ in the third digit",
        detail="From Ampere on; torch 1.7 to 1.11 does so for matrix products by default, every "
        "torch does for convolutions. The GPU stack is healthy.",
        text="Where exact float32 is needed: torch.backends.cuda.matmul.allow_tf32 = False and "
        'torch.backends.cudnn.allow_tf32 = False, or torch.set_float32_matmul_precision("highest")',
    ),
    Message(
        kind="internal-assert",
        id="torch-internal-error",
        title="An internal assertion of torch failed in {file}",
        plain="An internal assertion of torch failed",
        text="Run it with the newest torch; where it stays, it is a fault of torch to report there",
        severity=Severity.NOTE,
    ),
)


OTHERS: tuple[Message, ...] = (
    Message(
        kind="openmp-twice",
        id="openmp-twice",
        title="Two copies of Intel's OpenMP runtime are loaded (OMP: Error #15)",
        detail="conda's MKL and a pip wheel each bring libiomp5; KMP_DUPLICATE_LIB_OK=TRUE only "
        "silences it and may give wrong results.",
        text="Let one installer provide numpy, MKL and torch: a fresh environment with one of them",
        commands=("gpusetup install --venv .venv",),
    ),
    Message(
        kind="static-tls",
        id="static-tls-full",
        title="{library} cannot be loaded: no room in the static TLS block",
        plain="A library cannot be loaded: no room in the static TLS block",
        detail="The order of imports decides who gets the room (mostly libgomp on aarch64).",
        text="Import torch first in the program, or load the library before everything else "
        "(LD_PRELOAD)",
    ),
    Message(
        kind="open-files",
        id="open-files-limit",
        title="Too many open files: DataLoader workers share tensors through file descriptors",
        text="Raise the limit, or share through files: "
        'torch.multiprocessing.set_sharing_strategy("file_system")',
        commands=("ulimit -n 65535",),
    ),
    Message(
        kind="port-in-use",
        id="port-in-use",
        title="The port on which the ranks meet ({port}) is in use",
        plain="The port on which the ranks meet is in use",
        detail="Another run, or what is left of one, listens there.",
        text="Give this run another port (`torchrun --master-port 29501`), or end what listens "
        "there",
        commands=("export MASTER_PORT=29501",),
        look=("ss -ltnp",),
        see="see what listens",
    ),
    Message(
        kind="path-too-long",
        id="windows-path-too-long",
        title="A path is longer than the 260 characters that Windows allows",
        detail="The caches of inductor and Triton, pip's and ninja's build folders make such "
        "names.",
        text="Switch long paths on (as administrator, then start the program anew), or let the "
        "caches and the environment lie in a short folder",
        windows=(
            "Set-ItemProperty HKLM:\\SYSTEM\\CurrentControlSet\\Control\\FileSystem "
            "-Name LongPathsEnabled -Value 1",
            "$env:TORCHINDUCTOR_CACHE_DIR = 'C:\\ti'",
            "$env:TRITON_CACHE_DIR = 'C:\\tr'",
        ),
        needs_root=True,
    ),
    Message(
        kind="cuda-library-error",
        id="cuda-library-error",
        title="A library of CUDA failed with {status}, which names no reason",
        plain="A library of CUDA failed with a status that names no reason",
        detail="Usually the GPU's memory is full, or an index out of range broke the kernel before "
        "it; else another cuBLAS or cuDNN stands before torch's own.",
        text="See whether the memory is full; run it once with every kernel waited for, so that "
        "the first failure shows; unset LD_LIBRARY_PATH",
        commands=("export CUDA_LAUNCH_BLOCKING=1",),
        other=("unset LD_LIBRARY_PATH",),
        other_title="take other CUDA libraries out of the way",
        look=("nvidia-smi",),
        see="see whether the memory is full",
        severity=Severity.WARNING,
    ),
    Message(
        kind="cuda-call-not-supported",
        id="cuda-call-not-supported",
        title="A CUDA call is not supported on this GPU, driver or virtual machine (error 801)",
        detail="Virtual GPUs and WSL lack some calls: unified memory, peer access, memory shared "
        "between processes. A hypervisor can allow unified memory to a vGPU (enable_uvm).",
        text="Run it once with every kernel waited for, so that the call shows; then do without "
        "that feature of the program, or have it allowed to the virtual machine",
        commands=("export CUDA_LAUNCH_BLOCKING=1",),
        look=("nvidia-smi -q | grep -i virtualization",),
        see="see whether the GPU is a virtual one",
        severity=Severity.WARNING,
    ),
    Message(
        kind="compiler-missing",
        id="compiler-missing",
        title="A package must be compiled, and there is no C++ compiler for it",
        text="Install the Build Tools of Visual Studio (with C++), or take a wheel of the package",
        windows=("winget install Microsoft.VisualStudio.2022.BuildTools",),
        needs_root=True,
    ),
)


def running_messages(case: Case) -> Iterator[Finding]:
    yield from said(case, (*MESSAGES, *OTHERS))


TF32_BY_DEFAULT = ("1.7", "1.12")
"""From the first on, before the second, torch computed matrix products in TF32 by default."""


def tf32_products(case: Case) -> Iterator[Finding]:
    """The same product from CPU and GPU differs in the third digit, by a torch that does so."""
    heard = events(case, "results-differ")
    version = case.snapshot.torch.version
    first, last = map(parsed, TF32_BY_DEFAULT)
    old = any((g.compute_capability or AMPERE) < AMPERE for g in gpus(case))
    if heard and not old and version and first <= parsed(version) < last:
        row = next(row for row in MESSAGES if row.id == "tf32-precision")
        yield error(
            row.id,
            row.title,
            detail=row.detail,
            evidence=(*told(heard), shown(case, "torch.version", f"torch {version}")),
            fix=Fix(text=row.text),
        )


AMPERE = Capability(8, 0)


def out_of_memory(case: Case) -> Iterator[Finding]:
    """The GPU's memory did not suffice."""
    heard = (*events(case, "cuda-out-of-memory"), *cuda_errors(case, 2), *_no_room(case))
    if heard:
        yield error(
            "out-of-memory",
            f"The GPU's memory does not suffice{_how_much(heard[0])}",
            evidence=(*told(heard), *_memory_held(case)),
            fix=Fix(
                text="Lower the batch size (with gradient accumulation), the input's size or the "
                "precision (bfloat16, float16); end other programs on the GPU"
                + _allocator_hint(case),
                commands=_allocator(case),
                looks=ways.look("see what else holds memory", *lines("nvidia-smi")),
            ),
        )


NO_ROOM = ("NOT_INITIALIZED", "INTERNAL_ERROR")
FULL = 0.95


def _no_room(case: Case) -> tuple[Event, ...]:
    """cuBLAS and cuDNN that do not start, where the memory of every GPU is taken."""
    failed = events(case, "cuda-library-error")
    taken = [(g.memory_used_bytes or 0, g.memory_total_bytes) for g in visible_gpus(case.snapshot)]
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


def _memory_held(case: Case) -> tuple[Evidence, ...]:
    return tuple(
        shown(case, "gpus", f"{g.name}: {gib(g.memory_used_bytes)} of {gib(g.memory_total_bytes)}")
        for g in gpus(case)[:2]
        if g.memory_used_bytes and g.memory_total_bytes
    )


def _no_segments(case: Case) -> bool:
    """Expandable segments need virtual memory calls that these platforms lack."""
    return on(case, "windows") or bool(case.snapshot.os.wsl or case.snapshot.os.jetson)


def _allocator_hint(case: Case) -> str:
    return "" if _no_segments(case) else "; against fragmentation use expandable segments"


def _allocator(case: Case) -> tuple[Line, ...]:
    if _no_segments(case):
        return ()
    return (ways.setting(case, "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),)


def ptx_unsupported(case: Case) -> Iterator[Finding]:
    """PTX of a newer toolkit than the driver can compile (error 222)."""
    heard = (*events(case, "ptx-unsupported"), *cuda_errors(case, 218, 222))
    if not heard:
        return
    cuda = case.snapshot.driver.cuda
    yield error(
        "ptx-unsupported-toolchain",
        "A kernel is PTX from a newer CUDA toolkit than the driver can compile"
        + (f" (it serves {cuda})" if cuda else ""),
        detail="Minor-version compatibility covers binary kernels, not PTX: that needs a driver of "
        "the toolkit's own CUDA or newer.",
        evidence=(*told(heard), *_driver_line(case)),
        fix=_newer_driver(
            case,
            f"install or build the extension with CUDA {cuda} or older"
            if cuda
            else "install or "
            "build the extension with an older CUDA, or with binary kernels for this GPU",
        ),
    )


def _driver_line(case: Case) -> tuple[Evidence, ...]:
    driver = case.snapshot.driver
    if not driver.version:
        return ()
    return (shown(case, "driver.version", with_cuda(f"driver {driver.version}", driver.cuda)),)


def _newer_driver(case: Case, instead: str) -> Fix:
    way = drivers.driver(case, "Update the driver")
    text = f"{instead[:1].upper()}{instead[1:]} (TORCH_CUDA_ARCH_LIST or its wheel's tag)"
    if not way.commands:
        return Fix(text=f"{text}. Or u{way.text[1:]}", min_driver=way.min_driver)
    return Fix(
        text=text,
        alternatives=(Alternative(title="update the driver", commands=way.commands),),
        min_driver=way.min_driver,
    )


def jit_arch_rejected(case: Case) -> Iterator[Finding]:
    """The compiler that runs inside the program does not know the GPU's architecture."""
    heard = tuple(
        e for e in events(case, "jit-arch-rejected") if e.values.get("compiler") != "nvcc"
    )
    if not heard:
        return
    values = heard[0].values
    compiler, arch = values.get("compiler") or "the run-time compiler", values.get("arch")
    triton = "ptxas" in compiler.lower() or "triton" in compiler.lower()
    way = ways.install_torch(case, "Take a torch with a newer CUDA, whose compiler knows it. ")
    newer = (ways.setting(case, "TRITON_PTXAS_PATH", "/usr/local/cuda/bin/ptxas"),)
    if triton and not _is_newer_cuda(case):
        text = f"Let Triton use a newer toolkit's ptxas{_first_with(arch)}"
        way = Fix(text=text, commands=newer if on(case, "linux") else ())
    elif triton and on(case, "linux"):
        other = Alternative(title="let Triton use a newer toolkit's ptxas", commands=newer)
        way = replace(way, alternatives=(*way.alternatives, other))
    yield error(
        "jit-arch-rejected",
        f"{compiler} does not know the architecture {arch or 'of this GPU'}",
        detail="Kernels that were compiled beforehand may work; what is compiled at run time "
        "(fusers, jiterator, torch.compile) does not.",
        evidence=told(heard),
        fix=way,
    )


def _first_with(arch: str | None) -> str:
    from gpusetup.rules.extensions import NVCC_KNOWS

    first = NVCC_KNOWS.get((arch or "").partition("_")[2].rstrip("af"))
    return f" (from CUDA {first} on it knows {arch})" if first else ""


def _is_newer_cuda(case: Case) -> bool:
    """Whether the build to be installed brings a newer CUDA than the torch that is there."""
    build, own = case.resolution.build, cuda_needed(case.snapshot.torch)
    return own is None or bool(build and build.cuda and parsed(build.cuda) > parsed(own))


PROGRAM_CODES = {
    "9": "a launch of a shape that the GPU does not take",
    "59": "device-side assert",
    "77": "illegal memory access",
    "700": "illegal memory access",
    "701": "too many resources requested for launch",
    "702": "the launch timed out",
    "710": "device-side assert",
    "716": "misaligned address",
    "718": "invalid program counter",
    "719": "unspecified launch failure",
}
"""Codes of CUDA (and of the older runtime) that a program's own kernels cause."""


def program_error(case: Case) -> Iterator[Finding]:
    """An index out of range, a bad address: a fault of the program, not of the machine."""
    heard = tuple(e for e in events(case, "cuda-error") if e.values.get("code") in PROGRAM_CODES)
    if heard:
        code = heard[0].values["code"]
        yield note(
            "cuda-program-error",
            f"A kernel failed: {PROGRAM_CODES[code]} (error {code})",
            detail="Usually an index or a label out of range in the program, seldom the hardware "
            "(then the kernel log holds an Xid).",
            evidence=told(heard),
            fix=Fix(
                text="Run it once with every kernel waited for, so that the traceback names the "
                "line; on the CPU the same line gives a clear error",
                commands=(ways.setting(case, "CUDA_LAUNCH_BLOCKING", "1"),),
            ),
        )


RULES = (
    running_messages,
    tf32_products,
    out_of_memory,
    ptx_unsupported,
    jit_arch_rejected,
    program_error,
)
