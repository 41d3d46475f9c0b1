"""Causes that one message of a running program decides."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
)
from gpusetup.findings import alike
from gpusetup.findings.host.settings import TF32_PRECISION
from gpusetup.findings.layers import NCCL_SAYS, NO_TORCH, Layer
from gpusetup.findings.message_rules import from_messages
from gpusetup.findings.record import Alike, Cause, Message
from gpusetup.findings.sources import CUDA_RUNTIME
from gpusetup.model.finding import Finding, Severity

MESSAGES: tuple[Cause, ...] = (
    Cause(
        id="cuda-fork-reinit",
        place=(Layer.RUNNING, 20),
        title="CUDA was started before a fork",
        means="A CUDA context does not survive fork.",
        proven_by="torch's message",
        way_out="spawn",
        source="torch documentation, multiprocessing",
        explains=("cuda-init-failed", "torch-sees-no-gpu"),
        message=Message(
            title="CUDA was started before the process forked; a forked child cannot use it",
            text='Start processes with "spawn" (torch.multiprocessing.set_start_method("spawn"), '
            'DataLoader(multiprocessing_context="spawn"), VLLM_WORKER_MULTIPROC_METHOD=spawn), or '
            "touch CUDA only in the children",
            commands=("export VLLM_WORKER_MULTIPROC_METHOD=spawn",),
        ),
    ),
    Cause(
        id="host-out-of-memory",
        place=(Layer.RUNNING, 120),
        title="the host's memory ran out",
        means="The computer's or the container's memory, not the GPU's.",
        proven_by="The kernel's or torch's word, exit code 137",
        not_when="out-of-memory",
        way_out="Less at once, or more memory",
        source="Linux documentation, OOM killer",
        explains=("dataloader-worker-killed",),
        message=Message(
            title="The host's memory ran out",
            detail="That is the computer's memory (or the container's limit), not the GPU's.",
            text="Load less at once (fewer workers, memory-mapped or sharded weights), or give the "
            "job or the container more memory",
            look=("free -g", "sudo dmesg | grep -iE 'killed process|out of memory'"),
            see="see what was ended, and for want of what",
        ),
        alike=(
            Alike(
                causes=("dataloader-worker-killed",),
                asks=alike.HOST_MEMORY,
                unless=alike.killed_for_it,
            ),
        ),
    ),
    TF32_PRECISION,
    Cause(
        id="amp-without-gain",
        place=(Layer.RUNNING, 145),
        title="mixed precision makes a training no faster",
        means="It shortens large products on tensor cores, and nothing that a step waits for.",
        proven_by="Somebody says that AMP is on and the training no faster",
        way_out="gpusetup tune --benchmark",
        source="torch documentation, automatic mixed precision; the acceleration guide",
        message=Message(
            title="Mixed precision makes this training no faster: a {old} has no tensor cores",
            plain="Mixed precision makes this training no faster: likeliest, a step waits for its "
            "data, or the model is too small for this GPU",
            detail="It shortens large products on tensor cores. A GPU below compute capability 7.0 "
            "has none, and sizes that are no multiples of 8 leave them idle.",
            text="Measure what a step waits for: `gpusetup tune CONFIG --benchmark --code "
            "MODULE:FUNCTION` runs it with and without AMP, a larger batch and more workers, and "
            "names the cause where nothing gains; `gpusetup monitor -- COMMAND` watches a run",
        ),
    ),
    Cause(
        id="torch-internal-error",
        symptom=True,
        severity=Severity.NOTE,
        title="an internal assertion of torch failed",
        means="A fault of torch, or a consequence of another finding.",
        proven_by="INTERNAL ASSERT FAILED",
        not_when="mig-misconfigured: the assertion about the device's number",
        way_out="The newest torch",
        source="torch's sources, c10/util/Exception.h",
        message=Message(
            title="An internal assertion of torch failed in {file}",
            plain="An internal assertion of torch failed",
            text="Run it with the newest torch; where it stays, it is a fault of torch to report "
            "there",
        ),
        failure=7,
    ),
    Cause(
        id="openmp-twice",
        place=(Layer.LIBRARIES, 220),
        title="two OpenMP runtimes are loaded",
        means="conda's MKL and a wheel each bring one.",
        proven_by="OMP: Error #15",
        way_out="One installer for numpy, MKL and torch",
        source="Intel OpenMP documentation",
        message=Message(
            title="Two copies of Intel's OpenMP runtime are loaded (OMP: Error #15)",
            detail="conda's MKL and a pip wheel each bring libiomp5; KMP_DUPLICATE_LIB_OK=TRUE "
            "only silences it and may give wrong results.",
            text="Let one installer provide numpy, MKL and torch: a fresh environment with one "
            "of them",
            commands=("gpusetup install --venv .venv",),
        ),
    ),
    Cause(
        id="static-tls-full",
        place=(Layer.LIBRARIES, 230),
        title="no room in the static TLS block",
        means="glibc reserves little; the order of imports decides.",
        proven_by="The loader's message",
        way_out="Import torch first",
        source="glibc's sources, dl-tls.c",
        message=Message(
            title="{library} cannot be loaded: no room in the static TLS block",
            plain="A library cannot be loaded: no room in the static TLS block",
            detail="The order of imports decides who gets the room (mostly libgomp on aarch64).",
            text="Import torch first in the program, or load the library before everything else "
            "(LD_PRELOAD)",
        ),
    ),
    Cause(
        id="open-files-limit",
        place=(Layer.RUNNING, 150),
        title="too many open files",
        means="Workers share tensors through file descriptors.",
        proven_by="The system's message",
        way_out="ulimit -n, or the strategy file_system",
        source="torch documentation, multiprocessing",
        message=Message(
            title="Too many open files: DataLoader workers share tensors through file descriptors",
            text="Raise the limit, or share through files: "
            'torch.multiprocessing.set_sharing_strategy("file_system")',
            commands=("ulimit -n 65535",),
        ),
    ),
    Cause(
        id="port-in-use",
        place=(Layer.RUNNING, 40),
        title="the port on which ranks meet is in use",
        means="Another run listens there, mostly on torchrun's 29500.",
        proven_by="EADDRINUSE of torch's TCPStore",
        way_out="--master-port",
        source="torch documentation, torchrun",
        explains=NCCL_SAYS,
        message=Message(
            title="The port on which the ranks meet ({port}) is in use",
            plain="The port on which the ranks meet is in use",
            detail="Another run, or what is left of one, listens there.",
            text="Give this run another port (`torchrun --master-port 29501`), or end what listens "
            "there",
            commands=("export MASTER_PORT=29501",),
            look=("ss -ltnp",),
            see="see what listens",
        ),
        stage="distributed",
    ),
    Cause(
        id="windows-path-too-long",
        place=(Layer.INSTALL, 70),
        title="a path is longer than Windows allows",
        means="Without long paths a file of more than 260 characters cannot be opened.",
        proven_by="WinError 206, ninja's word, a cache file that is not found",
        not_when="triton-missing-windows",
        way_out="LongPathsEnabled, or shorter folders",
        source="Microsoft, Maximum Path Length Limitation",
        explains=NO_TORCH,
        message=Message(
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
    ),
    Cause(
        id="cuda-library-error",
        symptom=True,
        severity=Severity.WARNING,
        title="cuBLAS or cuDNN failed with a status that names no reason",
        means="Memory is full, an earlier kernel broke, or a foreign library is loaded.",
        proven_by="CUBLAS_STATUS_..., CUDNN_STATUS_...",
        not_when="out-of-memory, ld-library-path-conflict, bf16-unsupported: then that is why",
        way_out="nvidia-smi, CUDA_LAUNCH_BLOCKING=1",
        source="cuBLAS and cuDNN API references, status codes",
        message=Message(
            title="A library of CUDA failed with {status}, which names no reason",
            plain="A library of CUDA failed with a status that names no reason",
            detail="Usually the GPU's memory is full, or an index out of range broke the kernel "
            "before it; else another cuBLAS or cuDNN stands before torch's own.",
            text="See whether the memory is full; run it once with every kernel waited for, so "
            "that the first failure shows; take the folders of another CUDA out of LD_LIBRARY_PATH",
            commands=("export CUDA_LAUNCH_BLOCKING=1",),
            look=("nvidia-smi",),
            see="see whether the memory is full",
        ),
    ),
    Cause(
        id="cuda-call-not-supported",
        severity=Severity.WARNING,
        title="a CUDA call is not supported here",
        means="Virtual GPUs and WSL lack unified memory, peer access or shared memory handles.",
        proven_by="CUDA error 801 of a program that runs",
        not_when="vgpu-no-compute: CUDA does not start on a profile without it",
        way_out="Do without that feature, or have the hypervisor allow it",
        source=CUDA_RUNTIME,
        message=Message(
            title="A CUDA call is not supported on this GPU, driver or virtual machine (error 801)",
            detail="Virtual GPUs and WSL lack some calls: unified memory, peer access, memory "
            "shared "
            "between processes. A hypervisor can allow unified memory to a vGPU (enable_uvm).",
            text="Run it once with every kernel waited for, so that the call shows; then do "
            "without that feature of the program, or have it allowed to the virtual machine",
            commands=("export CUDA_LAUNCH_BLOCKING=1",),
            look=("nvidia-smi -q | grep -i virtualization",),
            see="see whether the GPU is a virtual one",
        ),
    ),
    Cause(
        id="vram-not-released",
        severity=Severity.NOTE,
        title="the GPU's memory did not come back when ollama unloaded a model",
        means="ollama waits 5 s for it; it may then put part of the next model on the CPU.",
        proven_by="ollama's warning",
        not_when="gpu-memory-taken: another process holds the memory",
        way_out="See what holds the memory, and restart ollama",
        source="ollama's sources, server/sched.go",
        message=Message(
            title="ollama unloaded a model, and the GPU's memory was not free after {seconds} s",
            plain="ollama unloaded a model, and the GPU's memory was not free in time",
            detail="It then counts that memory as taken: part of the next model may run on the "
            "CPU.",
            text="See what holds the memory; where it is ollama's own, restart its service",
            commands=("sudo systemctl restart ollama",),
            look=("nvidia-smi",),
            see="see what holds the memory",
            needs_root=True,
        ),
    ),
    Cause(
        id="report-cut",
        severity=Severity.NOTE,
        title="a text is too long to be read whole",
        means="Of a text over 1 MiB only a part is read, so that an answer takes seconds: the "
        "first 512 KiB, the last 256 KiB at least, and 256 KiB of the lines between that name an "
        "error, a version, CUDA or a GPU.",
        proven_by="The length of the text",
        way_out="Give the part around the first error, and the versions",
        source="`WHOLE`, `HEAD`, `END` and `KEPT` of gpusetup/commands/reports.py",
        message=Message(
            title="The text has {size}; {read} of it were read: its beginning, its end, and the "
            "telling lines between",
            plain="Only a part of the text was read",
            text="Where the answer is not yours, give the part around the first error alone",
        ),
    ),
    Cause(
        id="report-empty",
        severity=Severity.NOTE,
        title="a text is empty",
        means="The file, the paste or the pipe held no word: the program before it printed "
        "nothing, or printed to stderr.",
        proven_by="The text: no letter and no digit",
        way_out="Give what the program printed; `2>&1` takes its errors along",
        source="`has_words` of gpusetup/commands/reports.py",
        message=Message(
            title="The text is empty",
            text="Paste what the program printed, its error first (`PROGRAM 2>&1 | gpusetup doctor "
            "--report -` takes its errors along); without `--report` doctor reads this machine",
        ),
    ),
    Cause(
        id="compiler-missing",
        place=(Layer.INSTALL, 190),
        title="no C++ compiler for a package",
        means="No wheel fits, so that the package is compiled.",
        proven_by="The build's word",
        not_when="triton-no-compiler",
        way_out="Build tools, or a wheel",
        source="messages of setuptools and cpp_extension",
        message=Message(
            title="A package must be compiled, and there is no C++ compiler for it",
            text="Install a C++ compiler (Windows: the Build Tools of Visual Studio, with C++; "
            "Debian and Ubuntu: build-essential), or take a wheel of the package",
            windows=("winget install Microsoft.VisualStudio.2022.BuildTools",),
            needs_root=True,
        ),
        stage="build",
    ),
)


def running_messages(context: RuleContext) -> Iterator[Finding]:
    yield from from_messages(context, MESSAGES)


RULES = (running_messages,)
