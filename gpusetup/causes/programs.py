"""Programs that see no GPU or fail for a reason of their own, errors of CUDA and torch while a
program runs, and trainings that go wrong.

Sources, where a record names no other: CUDA Runtime API reference, cudaError.
"""

from __future__ import annotations

from gpusetup.causes.record import Cause, CheckCommand, Message
from gpusetup.evidence import checks, proofs
from gpusetup.evidence.context import RuleContext, events, has_nvidia, on, shows_no_other_failure
from gpusetup.evidence.places import uses_no_torch
from gpusetup.fixes import paste
from gpusetup.messages.programs import BY_NAME
from gpusetup.messages.row import says
from gpusetup.model.finding import Fix, Severity
from gpusetup.model.shell import lines


def fix_of_program(context: RuleContext, text: str) -> Fix:
    """How this program gets its GPU support: as `messages.programs` says, otherwise by the build
    that it offers for CUDA."""
    program = BY_NAME.get(context.snapshot.failing.program or "")
    build = "build for your torch's CUDA version, or the program's newest release"
    if program and program.gpu_setup:
        instruction = program.gpu_setup
    # `text` already says that the program's build for CUDA is needed.
    elif text:
        instruction = f"Choose the {build}"
    else:
        instruction = f"Install the program's {build}"
    sentence = f"{text}. {instruction}" if text else instruction
    looks = paste.titled("check first whether the driver lists the GPU", *lines("nvidia-smi -L"))
    return Fix(text=sentence, looks=looks)


def no_reason_is_shown(context: RuleContext) -> bool:
    """Whether no message says why the program's GPU support was not loaded. Such a message shows
    the cause, and this one would only repeat what follows from it."""
    return not events(
        context, "cuda-lib-missing", "extension-abi-mismatch", "driver-too-old", "cuda-error"
    )


def _seeks_a_gpu(context: RuleContext) -> bool:
    """Whether a program without torch looks for a GPU on a machine that may have an NVIDIA GPU."""
    looks_for_one = events(context, "program-sees-no-gpu") or uses_no_torch(context)
    return bool(looks_for_one) and (has_nvidia(context) is not False)


def _cpu_use_is_unexplained(context: RuleContext) -> bool:
    """Whether no other finding explains why the program runs on the CPU: torch is not a CPU build,
    the program uses torch, and no GPU of another maker is named."""
    is_cpu_build = context.torch.backend == "cpu"
    return not (is_cpu_build or uses_no_torch(context) or events(context, "foreign-gpu"))


TORCH_ITSELF = r"torch\W{1,3}(?:\w+ ){0,4}?(?:compiled|built)|Error: Not"
"""torch's own message: `Torch not compiled with CUDA enabled`, `RuntimeError: Not compiled with …`."""

NAMED = r"(?:(?P<program>[A-Z]\w{2,20})(?: version \S{1,12})? (?:was |is |version ))?"
"""The name of a program at the beginning of a sentence."""


DIVERGES = (
    r"\bloss(?:es)?\b['\"]?[^.\n]{0,24}?[^a-z_](?:nan|inf)\b|\bgrad_norm['\"]?[:=] ?(?:nan|inf)\b"
    r"|\bloss (?:explodes|diverges|blows up|is exploding)|\btraining is unstable\b"
    r"|Backward\w*' returned nan values in its|(?:minimum loss scale reached|loss scale already at minimum)"
)
"""A loss that is NaN or infinite, or that explodes, in the words of logs and of torch."""
NOT_HAD = (
    r"\b(?:if|whether|avoid\w*|prevent\w*|no longer|not|never|no|without|handles?|fixe[sd]) (?:\S{1,16} ){0,3}?\W{0,2}(?:nan|inf|loss|explod|diverg|gradient)"
    r"|isnan|isfinite|nan_to_num|\bassert\b"
)
"""Words of somebody who has no such loss, or of code that guards against it."""
MIXED_PRECISION = r"\b(?:AMP|autocast|mixed[- ]precision|fp16|bf16|b?float16)\b"
NO_GAIN = r"(?:\b(?:not|no|never)\b|n't\b)[^.\n]{0,40}?(?:improv\w+|faster|quicker|speed ?-?up)"
"""What people say of a speed that did not improve."""
NOT_ABOUT_TRAINING = r"\bint[48]\b|quantiz|gguf|llama|out of memory|\bon (?:the )?cpu\b"

CAUSES = (
    Cause(
        "program-sees-no-gpu",
        by_check=True,
        severity=Severity.WARNING,
        title="{program} cannot find a GPU",
        means="The program's build, libraries or settings prevent it from using the GPU.",
        text="Install the program's build for CUDA",
        symptom=True,
        failure=4,
        events=("program-sees-no-gpu", "cuda-unavailable", "gpu-unused"),
        where=(_seeks_a_gpu, no_reason_is_shown),
        fix_for=fix_of_program,
        says=(
            says(r"\bhas no GPU available\b|\bno (?:usable GPU|compatible GPUs|GPU devices?|GPU detectors|GPU/TPU|CUDA devices|(?<=gpu: no )GPU) (?:were )?(?:found|available|discovered|detected)\b", "no ", unless=r"torch|is_available|nvidia-smi|RuntimeError: No"),
            says(r"failure during GPU discovery", unless=r"torch|is_available|nvidia-smi|RuntimeError: No"),
            says(r'msg="inference compute" id=\S{1,8} library=cpu\b', program="ollama", example='level=INFO msg="inference compute" id=0 library=cpu variant="" total="31.2 GiB"'),
            says(r"PROCESSOR\b.{0,600}?\b100% CPU\b", program="ollama", example="NAME ID SIZE PROCESSOR UNTIL\nllama3:8b 365c0bd3c000 5.4 GB 100% CPU 4 minutes from now"),
            says(r"Num GPUs Available:\W{0,3}0\b", program="TensorFlow", example="Num GPUs Available:  0"),
            says(r"list_physical_devices\(['\"]GPU['\"]\)\)?.{0,160}?\[ ?\](?!\w)", program="TensorFlow", unless=r"name='/physical_device:GPU", example="print(tf.config.list_physical_devices('GPU')) returns []"),
            says(r"cuda backend failed to initialize|no supported devices found for platform cuda", program="JAX"),
            says(r"offloaded 0/\d{1,4} layers to GPU", program="llama.cpp", example="llm_load_tensors: offloaded 0/33 layers to GPU"),
        ),
    ),
    Cause(
        "gpu-unused",
        check=CheckCommand(checks.CUDA_OF_TORCH, "2.9.1+cpu None"),
        severity=Severity.WARNING,
        title="The program does not use the GPU",
        means="Usually the program has a CPU build of torch. On Windows, `pip install torch` "
        "installs a CPU build, and installing another package can replace a CUDA build with one. "
        "In other cases, torch cannot find a driver.",
        text="Run the check with the Python that runs the program (a portable bundle has its own, "
        "for example runtime\\python.exe or venv\\Scripts\\python.exe). If it prints `+cpu`, or "
        "`None` without `+rocm` or `+xpu`, torch is a CPU build: replace it with a CUDA build for "
        "NVIDIA, a ROCm build for AMD or an XPU build for Intel. You do not need to change the "
        "driver or the CUDA toolkit",
        cases=(
            Message(
                where=(lambda context: on(context, "macos"),),
                means="On a Mac, torch uses the GPU through the mps device, and most programs use "
                "the CPU unless you select mps.",
                text="First check whether this Python can use the GPU: it must print arm64 and "
                "True. Then select mps in the program's options (Lightning: `accelerator=\"mps\"`)",
                look=(checks.TORCHS_MPS, 'python -c "import platform; print(platform.machine())"'),
            ),
        ),
        symptom=True,
        failure=6,
        where=(
            # The name of a GPU from another maker is an event, but no failure.
            lambda context: shows_no_other_failure(context, "foreign-gpu"),
            _cpu_use_is_unexplained,
            # A program that occupies GPU memory uses the GPU.
            lambda context: not any("holds" in e.values for e in events(context, "gpu-starved")),
        ),
        asks=(checks.ASK_TORCH, checks.TORCH_SEES,),
    ),
    Cause(
        "input-bound",
        severity=Severity.WARNING,
        title="The GPU works, but it waits for input between batches",
        means="Typical reasons are decoding and augmentation on few CPU cores, a slow or remote "
        "disk, or transfers that do not overlap with the computation.",
        text="Run `gpusetup monitor` alongside your training to see what the GPU is waiting for. "
        "It often helps to copy the data to a local disk, to resize images in advance, or to use "
        "more DataLoader workers. You do not need to change the driver, CUDA or torch",
        # Source: PyTorch, Performance Tuning Guide.
        symptom=True,
        failure=7,
        where=(shows_no_other_failure, _cpu_use_is_unexplained),
        events=("gpu-starved",),
        asks=(checks.DATA_LOADER,),
    ),
    Cause(
        "program-without-gpu-support",
        by_check=True,
        severity=Severity.WARNING,
        title="{program} is installed without GPU support, so it runs on the CPU",
        means="The GPU and the driver may be fine, but this build of the program cannot use them.",
        text="Install the program's CUDA build",
        failure=3,
        where=(no_reason_is_shown,),
        fix_for=fix_of_program,
        says=(
            says(rf"{NAMED}(?:compiled|built) without (?:GPU|CUDA) support(?! of)", unless=TORCH_ITSELF),
            says(rf"{NAMED}not compiled with (?:GPU|CUDA)(?: offload)? support(?! of)", unless=TORCH_ITSELF, example="XGBoostError: XGBoost version 2.1.1 is not compiled with CUDA support, cannot use GPU"),
            says(r"'CUDAExecutionProvider' is not in available provider names|cudaexecutionprovider not available", program="onnxruntime"),
            # onnxruntime's list of providers, in which no provider is for a GPU.
            says(r"available[_ ]?(?:execution )?providers\b[^\[]{0,24}\[(?:['\"](?:Azure|CPU)ExecutionProvider['\"],? ?){1,2}\]", program="onnxruntime", example=">>> onnxruntime.get_available_providers()\n['AzureExecutionProvider', 'CPUExecutionProvider']"),
            says(r"CUDA-enabled jaxlib is not installed", program="JAX", example="An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib is not installed."),
            says(r"is_built_with_cuda\(\)(?: is| ==| returns|:)? False\b", program="TensorFlow", example="tf.test.is_built_with_cuda() is False"),
        ),
    ),
    Cause(
        "tensors-on-two-devices",
        certain_if=proofs.message_states_it,
        severity=Severity.NOTE,
        title="The program uses tensors on two devices: {first} and {second}",
        means="The model, an input or a tensor that the program creates is still on another "
        "device. torch, the driver and the GPU work.",
        text="Move the model and every input to the same device: `model.to(device)`, and `batch = "
        "batch.to(device)` in the loop. Create new tensors there, too (`device=x.device`). If a "
        "model spans several GPUs (`device_map`), move the inputs to the device of its first layer",
        failure=7,
        says=(
            says(r"Expected all tensors to be on the same device, but found at least two devices, (?P<first>\w+(?::\d+)?) and (?P<second>\w+(?::\d+)?)", example="RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cpu and cuda:0!"),
            says(r"Expected all tensors to be on the same device, but got \w+ is on (?P<first>\w+(?::\d+)?), different from other tensors on (?P<second>\w+(?::\d+)?)", example="RuntimeError: Expected all tensors to be on the same device, but got mat2 is on cpu, different from other tensors on mps:0"),
            # Two types on the same device are no matter of devices.
            says(r"Input type \(torch\.\w+\) and weight type \(torch\.cuda\.\w+\) should be the same", example="RuntimeError: Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the same"),
        ),
    ),
    Cause(
        "program-failed",
        by_check=True,
        severity=Severity.NOTE,
        title="{program} failed: {said}",
        means="A key, a shape, a file or a name is wrong, or a package is missing. The GPU, the "
        "driver and torch are not the reason.",
        text="Run the program again, and read the first error that it prints",
        failure=8,
        where=(shows_no_other_failure,),
        cases=(
            Message(
                having={"needs": ""},
                title="Something that {program} needs is missing: {said}",
                text="Install the missing item from the message into this environment. A module's "
                "package may have a different name, and headers are in a -dev or -devel package",
            ),
            Message(
                having={"own": ""},
                title="{program} failed on its own: {said}",
                text="Fix the error in the message. If the program still fails, report it to the "
                "program's project with the whole output",
            ),
        ),
        formerly=("torch-internal-error", "torch-release-regressed", "worker-cannot-pickle", "torch-lacks-device", "port-in-use"),
    ),
    Cause(
        "cuda-fork-reinit",
        certain_if=proofs.message_states_it,
        title="The process started CUDA before it forked, so the forked child cannot use CUDA",
        text='Start the processes with "spawn": torch.multiprocessing.set_start_method("spawn"), '
        'DataLoader(multiprocessing_context="spawn") or VLLM_WORKER_MULTIPROC_METHOD=spawn. Or use '
        "CUDA only in the child processes",
        # Source: torch documentation, multiprocessing.
        explains=("cuda-init-failed", "torch-sees-no-gpu"),
        says=(
            r"(?:_worker_loop|DataLoader worker process|worker\.py|collate\.py).{0,1000}?(?:CUDA|cuda)[\w ()]{0,24} ?: initialization error",
            r"Cannot re-initialize CUDA|poison fork|CUDA .{0,40}before fork",
        ),
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
        ),
    ),
    Cause(
        "cuda-call-not-supported",
        check=CheckCommand("CUDA_LAUNCH_BLOCKING=1 python train.py  # your own program", '  File "train.py", line 41, in <module>\n    queue.put(batch)\nRuntimeError: CUDA error: operation not supported'),
        title="A CUDA call is not supported on this GPU, driver or virtual machine (error 801)",
        means="Virtual GPUs and WSL lack some calls, for example for unified memory, peer access, "
        "or memory shared between processes.",
        text="Run the program once with CUDA_LAUNCH_BLOCKING=1 to find the call that fails, and "
        "avoid that call. To share memory between processes, return CPU tensors from DataLoader "
        "workers and queues. To avoid peer access, set NCCL_P2P_DISABLE=1. To allocate memory "
        "without these calls, remove expandable_segments from PYTORCH_CUDA_ALLOC_CONF. On vSphere, "
        "set pciPassthru0.cfg.enable_uvm to 1",
        commands=("export CUDA_LAUNCH_BLOCKING=1",),
        says=(says(r"CUDA error: operation not supported", example="RuntimeError: CUDA error: operation not supported"),),
    ),
    Cause(
        "report-cut",
        severity=Severity.NOTE,
        title="The text is {size} long, so gpusetup only read its first and last {read}",
        plain="gpusetup read only part of the text",
        means="Reading more than 1 MiB would take too long.",
        text="If the result seems wrong, pass only the part around the first error",
    ),
    Cause(
        "report-empty",
        severity=Severity.NOTE,
        title="The text is empty",
        means="Perhaps the program printed nothing, or it printed to stderr.",
        text="Paste the program's output with its error (`PROGRAM 2>&1 | gpusetup doctor --report "
        "-`). Without `--report`, doctor reads this machine",
    ),
    Cause(
        "ptx-unsupported-toolchain",
        certain_if=proofs.message_states_it,
        title="The driver cannot compile a kernel's PTX code from a newer CUDA toolkit",
        means="A driver can run compiled kernels from a newer minor CUDA version. However, it "
        "compiles PTX code itself, so newer PTX fails.",
        text="Install a build of the failing package for an older CUDA, or update the driver",
        # Source: NVIDIA, CUDA Compatibility.
        lacks="driver",
        codes=(218, 222),
        says=(
            says(r"\bunsupported PTX version\b|unsupported toolchain|CUDA_ERROR_UNSUPPORTED_PTX_VERSION|cudaErrorUnsupportedPtxVersion", example="Failed to load CUDA kernel from '/opt/blender/lib/kernel_compute_75.ptx' (Unsupported PTX version)"),
        ),
    ),
    Cause(
        "cuda-program-error",
        check=CheckCommand("CUDA_LAUNCH_BLOCKING=1 python train.py  # your own program", '  File "train.py", line 41, in forward\n' "    x = self.embedding(tokens)\nRuntimeError: CUDA error: device-side assert triggered"),
        severity=Severity.NOTE,
        title="A kernel failed: {name} (error {code})",
        plain="An error in the program made a CUDA kernel fail",
        means="Usually an index or a label in the program is out of range, for example a token "
        "id beyond the model's vocabulary. If the hardware fails, the kernel log contains an Xid.",
        text="Run the program once with CUDA_LAUNCH_BLOCKING=1 to see which line fails. If you "
        "run the same line on the CPU, you get a clear error message",
        failure=5,
        codes=(9, 59, 77, 700, 701, 702, 710, 715, 716, 718, 719),
        commands=("export CUDA_LAUNCH_BLOCKING=1",),
        cases=(
            Message(
                having={"what": ""},
                title="The kernel log shows GPU errors (Xids) from a faulty program: {what}",
                means="A bad address, an illegal instruction or a killed program causes these "
                "Xids. The GPU itself still works.",
            ),
        ),
        formerly=("xid-of-a-program", "cuda-launch-blocking", "memory-caching-off"),
    ),
    Cause(
        "gpu-works-little",
        severity=Severity.NOTE,
        title="{who} is busy only part of the time: {picture}",
        plain="A GPU with a running program is busy less than half of the time",
        means="A single measurement does not show why.",
        text="Try in order: 1. larger batch with less accumulation (the same effective batch), if "
        "the GPU's memory has room for it, 2. more DataLoader workers (num_workers: one for each "
        "CPU core you may use, 16 at most) with pin_memory and persistent_workers, 3. mixed precision "
        "(torch.amp.autocast in bfloat16 from compute capability 8.0 on, else float16 with a "
        "GradScaler). To find the cause, let gpusetup watch the training for a minute",
        commands=("gpusetup monitor -- python train.py",),
    ),
    Cause(
        "loss-diverges",
        severity=Severity.NOTE,
        title="The loss diverges: it becomes NaN or infinite, or explodes",
        means="The training's steps are too large for the model, or a value is too large for the "
        "number format. Your GPU, driver and torch are not the cause.",
        # The steps of the guide on utilisation: clip at 1.0, lower the rate, warm it up.
        text="Clip the gradients at 1.0 (`torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)` "
        "before the optimizer step), lower the learning rate to a third or a tenth, and warm it up "
        "over the first 3 to 10 % of the steps. Because float16 overflows above 65,504, use "
        "bfloat16 or a torch.amp.GradScaler. `torch.autograd.set_detect_anomaly(True)` finds the "
        "operation that produces the first NaN",
        # Source: torch documentation, automatic mixed precision, "Gradient clipping".
        failure=6,
        says=(says(DIVERGES, "loss", "grad_norm", "training is unstable", "nan values", unless=NOT_HAD, example="Epoch 3, step 200: loss nan"),),
    ),
    Cause(
        "mixed-precision-no-gain",
        severity=Severity.WARNING,
        title="Mixed precision is on, but the training is not faster",
        means="Mixed precision speeds up matrix products and convolutions by using tensor cores. "
        "GPUs older than Volta and the GTX 16 series have no tensor cores. Mixed precision also "
        "brings little if the GPU waits for data, or if the model or the batch is too small.",
        text="To find out what the training waits for, run it under `gpusetup monitor` (with your "
        "own command after `--`). If the data arrives too slowly, use more DataLoader workers, "
        "pinned memory and cached data. If the model or the batch is too small, use a larger batch "
        "or torch.compile. `gpusetup tune CONFIG --benchmark` measures the gain",
        # Source: torch documentation, automatic mixed precision recipe, "Speedup is small or none".
        commands=("gpusetup monitor -- python train.py",),
        says=(says(rf"{MIXED_PRECISION}[^\n]{{0,90}}?{NO_GAIN}|\bno speed-?up with {MIXED_PRECISION}", "amp", "autocast", "precision", "fp16", "bf16", unless=NOT_ABOUT_TRAINING, example="Mixed precision is enabled but training speed did not improve"),),
    ),
)  # fmt: skip
