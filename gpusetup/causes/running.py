"""Errors of CUDA and torch while a program is running."""

from __future__ import annotations

from gpusetup.causes import alike
from gpusetup.causes.record import Cause, CheckCommand
from gpusetup.evidence import proofs
from gpusetup.evidence.context import RuleContext, events, on
from gpusetup.fixes import drivers, paste
from gpusetup.messages.row import says
from gpusetup.model.finding import Fix, Severity

AMP = r"(?<![\w.])(?:AMP|autocast|(?:automatic )?mixed[- ]precision(?: training)?)\b"


def _older_cuda(context: RuleContext, _text: str) -> Fix:
    """Use a build of the package for a CUDA version that this driver supports, or update the
    driver."""
    cuda = context.driver.cuda
    older_cuda = f"CUDA {cuda} or older" if cuda else "an older CUDA, or with kernels for this GPU"
    newer_driver = drivers.driver_fix(context, "Update the driver")
    return Fix(
        text=f"Use a release or build of the failing package for {older_cuda}, or update the "
        "driver",
        alternatives=paste.other("update the driver", *newer_driver.commands),
        min_driver=newer_driver.min_driver,
    )


OF_A_FUNCTION = (
    r"Can'?t (?:pickle|get) (?:<function |local object (?:<function )?)[`'\"]?"
    r"(?P<object>[\w.<>]{0,60}<(?:lambda|locals)>[\w.<>]{0,60})"
)
"""The message for a lambda or for a function inside a function."""
CANNOT_PICKLE = (
    r"(?:Can'?t pickle (?:<?(?:local object|function|class)\b ?)?|Can'?t get local object |cannot "
    r"pickle )(?:<function )?[`'\"]?(?P<object>[\w.<>]{2,80}(?: object)?)"
)
WORKERS = (
    r"(?:\bdata ?loaders?\b|\bnum_workers\b|popen_(?:spawn|forkserver)\w*|ForkingPickler"
    r"|\bmultiprocessing[/\\.]|_loader\))"
)
"""Words that show worker processes, although other programs use pickle too."""


def workers_are_shown(context: RuleContext) -> bool:
    """Whether the text shows worker processes near the message of pickle."""
    return any("workers" in message.values for message in events(context, "worker-cannot-pickle"))


def starts_new_workers(context: RuleContext) -> bool:
    """Whether pickle failed for a worker process: the text shows one, or the system is one that
    starts them from scratch."""
    return on(context, "macos") or on(context, "windows") or workers_are_shown(context)


PICKLES = ("pickle", "can't get local object", "cant get local object")
SAVES = r"torch\.save|serialization\.py|\bpickle\.dump\b"
"""Words that show that an object is written to a file."""

CAUSES = (
    Cause(
        "cuda-fork-reinit",
        certain_if=proofs.message_states_it,
        title="The process started CUDA before it forked, so the forked child cannot use CUDA",
        means="A forked child process cannot use its parent's CUDA context.",
        text='Start the processes with "spawn": torch.multiprocessing.set_start_method("spawn"), '
        'DataLoader(multiprocessing_context="spawn") or VLLM_WORKER_MULTIPROC_METHOD=spawn. As '
        "an alternative, use CUDA only in the child processes",
        # Source: torch documentation, multiprocessing.
        explains=("cuda-init-failed", "torch-sees-no-gpu"),
        commands=("export VLLM_WORKER_MULTIPROC_METHOD=spawn",),
        says=(
            r"(?:_worker_loop|DataLoader worker process|worker\.py|collate\.py).{0,1000}?(?:CUDA|cuda)[\w ()]{0,24} ?: initialization error",
            r"Cannot re-initialize CUDA|poison fork|CUDA .{0,40}before fork",
        ),
    ),
    Cause(
        "worker-cannot-pickle",
        certain_if=workers_are_shown,
        where=(starts_new_workers,),
        title="A worker process cannot receive {object}: it cannot be pickled",
        means="macOS and Windows start worker processes from scratch (`spawn`), and Linux may do the same. "
        "Python then sends them the dataset and its functions by pickle, which cannot send a "
        "lambda, a function inside a function, or an open file. The GPU and torch are fine.",
        text="Set `num_workers=0` in the DataLoader, so that the main process loads the data. To "
        "keep the workers, replace the lambda or local function by a named function (or class) at "
        "the top level of a module, or by functools.partial of one (in a notebook: import it from "
        "a .py file), and open files inside the worker. Also guard the program's start with "
        '`if __name__ == "__main__":`',
        # Source: Python documentation, multiprocessing ("Contexts and start methods") and pickle
        # ("What can be pickled"); torch documentation, torch.utils.data ("Platform-specific
        # behaviors").
        says=(
            says(OF_A_FUNCTION, *PICKLES, unless=SAVES, example="popen_spawn_win32.py: AttributeError: Can't get local object 'main.<locals>.collate'"),
            says(rf"{CANNOT_PICKLE}(?=.{{0,1500}}?{WORKERS})", *PICKLES, unless=SAVES, workers="after", example="PicklingError: Can't pickle <function <lambda> at 0x13fee15a0>: attribute lookup <lambda> on __main__ failed\n  for x in DataLoader(data, num_workers=4)"),
            says(rf"{WORKERS}.{{0,1500}}?{CANNOT_PICKLE}", *PICKLES, unless=SAVES, workers="before"),
        ),
        not_examples=(
            "torch.save(model): AttributeError: Can't pickle local object 'f.<locals>.g'",
            "DataLoader workers read a pickle",
        ),
    ),
    Cause(
        "torch-internal-error",
        severity=Severity.NOTE,
        title="An internal assertion of torch failed in {file}",
        means="torch has a bug, or another problem on the machine causes this error.",
        text="Run the program with the newest torch. If the error remains, report it to PyTorch",
        # Source: torch's sources, c10/util/Exception.h.
        symptom=True,
        failure=7,
        says=(r"INTERNAL ASSERT FAILED(?: at \W?(?P<file>[\w/\\.+-]{1,120}))?",),
    ),
    Cause(
        "cuda-library-error",
        severity=Severity.WARNING,
        title="A CUDA library failed with {status}, which does not show the reason",
        plain="A CUDA library failed with a status that does not show the reason",
        means="Usually the GPU's memory is full, or an out-of-range index made an earlier kernel "
        "fail. In other cases, the loader finds another cuBLAS or cuDNN before torch's own.",
        text="Check whether the GPU's memory is full. Run the program once with "
        "CUDA_LAUNCH_BLOCKING=1 to see which call failed first. Remove the folders of other CUDA "
        "versions from LD_LIBRARY_PATH",
        # Source: cuBLAS and cuDNN API references, status codes.
        symptom=True,
        commands=("export CUDA_LAUNCH_BLOCKING=1",),
        look=("nvidia-smi",),
        says=(
            says(r"\b(?P<status>(?P<library>CUBLAS|CUDNN|CUSPARSE|CUSOLVER|CUFFT|CURAND)_STATUS_(?!SUCCESS|ALLOC_FAILED|\w*VERSION_MISMATCH)[A-Z]\w{3,40})", unless=r"status [!=]= CU"),
            says(r"cuFFT error: (?P<status>CUFFT_(?!SUCCESS|ALLOC_FAILED)[A-Z]\w{3,40})", library="CUFFT"),
            says(r"cublas runtime error : the GPU program failed to execute", library="CUBLAS", status="CUBLAS_STATUS_EXECUTION_FAILED"),
            says("cublaslt ran into an error", library="CUBLAS", status="CUBLAS_STATUS_NOT_SUPPORTED"),
        ),
        not_examples=("cuFFT error: CUFFT_SUCCESS",),
    ),
    Cause(
        "cuda-call-not-supported",
        severity=Severity.WARNING,
        title="A CUDA call is not supported on this GPU, driver or virtual machine (error 801)",
        means="Virtual GPUs and WSL do not support some calls, for example those for unified "
        "memory, peer access, or memory shared between processes. For a virtual GPU, the "
        "hypervisor can turn unified memory on (enable_uvm).",
        text="Run the program once with CUDA_LAUNCH_BLOCKING=1 to find the call that fails. Then "
        "turn off the program's feature that needs this call, or enable the call for the virtual "
        "machine",
        # Source: CUDA Runtime API reference, cudaError.
        commands=("export CUDA_LAUNCH_BLOCKING=1",),
        look=("nvidia-smi -q | grep -i virtualization",),
        says=("cuda error: operation not supported",),
    ),
    Cause(
        "report-cut",
        severity=Severity.NOTE,
        title="The text has {size}; gpusetup only read its first and last {read}",
        plain="gpusetup read only part of the text",
        means="If a text is longer than 1 MiB, gpusetup reads only its first and last 512 KiB, "
        "so that you get an answer within seconds.",
        text="If the answer does not fit your problem, pass only the part around the first error",
    ),
    Cause(
        "report-empty",
        severity=Severity.NOTE,
        title="The text is empty",
        means="The file, the pasted text or the pipe is empty. Perhaps the program printed "
        "nothing, or it printed to stderr.",
        text="Paste the program's output, most importantly its error (`PROGRAM 2>&1 | gpusetup "
        "doctor --report -` includes errors). Without `--report`, doctor reads this machine",
    ),
    Cause(
        "ptx-unsupported-toolchain",
        certain_if=proofs.message_states_it,
        title="The driver cannot compile a kernel's PTX, because the PTX comes from a CUDA "
        "toolkit that is too new",
        means="A driver can run compiled kernels of a newer minor CUDA version, but not newer "
        "PTX, because the driver compiles PTX itself. The driver must support the CUDA version "
        "of the toolkit that made the PTX, or a newer one.",
        text="Install a build of the failing package for an older CUDA, or update the driver",
        # Source: NVIDIA, CUDA Compatibility.
        lacks="driver",
        codes=(218, 222),
        way=_older_cuda,
        says=(
            says(r"\bunsupported PTX version\b", example="Failed to load CUDA kernel from '/opt/blender/lib/kernel_compute_75.ptx' (Unsupported PTX version)"),
            "unsupported toolchain",
            r"CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
            "cudaerrorunsupportedptxversion",
            says(r"Unsupported \.version \d+\.\d+; current version is", example="ptxas application ptx input, line 9; fatal   : Unsupported .version 8.7; current version is '8.4'"),
            says(r"\bPTX mismatch\b", unless=r"\b(?:if|may|might|avoid|no|without) (?:\S{1,12} ){0,2}PTX", example="one sees a PTX mismatch"),
        ),
        not_examples=("to avoid a PTX mismatch compile for the card",),
    ),
    Cause(
        "kernel-image-invalid",
        title="The driver cannot load a compiled kernel: its image is invalid (error 200)",
        means="The kernel is for another GPU, from a toolkit that is too new (see "
        "TRITON_PTXAS_PATH), or from an incomplete cache file.",
        text="Empty the caches of compiled kernels, and let Triton use its own ptxas (unset "
        "TRITON_PTXAS_PATH). If the error remains, update the driver, or install the Triton that "
        "torch requires",
        # Source: CUDA Driver API reference, CUDA_ERROR_INVALID_IMAGE.
        symptom=True,
        codes=(200,),
        commands=("unset TRITON_PTXAS_PATH", "rm -rf ~/.triton/cache ~/.nv/ComputeCache"),
        windows=(r"Remove-Item -Recurse -Force $env:USERPROFILE\.triton\cache",),
        look=("pip check",),
        alike={alike.COLLECT_ENV: ("driver-too-old", "extension-arch-mismatch")},
    ),
    Cause(
        "cuda-program-error",
        check=CheckCommand("CUDA_LAUNCH_BLOCKING=1 python train.py  # your own program", '  File "train.py", line 41, in forward\n' "    x = self.embedding(tokens)\nRuntimeError: CUDA error: device-side assert triggered"),
        severity=Severity.NOTE,
        title="A kernel failed: {name} (error {code})",
        plain="An error in the program made a CUDA kernel fail",
        means="Usually an index or a label in the program is out of range, for example a token "
        "id beyond the model's vocabulary. In rare cases the hardware fails, and then the kernel "
        "log contains an Xid. Later errors from cuBLAS or the allocator are only consequences.",
        text="Run the program once with CUDA_LAUNCH_BLOCKING=1 to see which line fails. If you "
        "run the same line on the CPU, you get a clear error message",
        # Source: CUDA Runtime API reference, cudaError.
        failure=5,
        codes=(9, 59, 77, 700, 701, 702, 710, 715, 716, 718, 719),
        commands=("export CUDA_LAUNCH_BLOCKING=1",),
    ),
)  # fmt: skip
