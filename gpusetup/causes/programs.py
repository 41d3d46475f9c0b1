"""Programs that see no GPU, were installed without GPU support, or fail for a reason of their own."""

from __future__ import annotations

from gpusetup.causes import alike
from gpusetup.causes.record import Cause, CheckCommand, Message
from gpusetup.evidence import gpu_facts, proofs
from gpusetup.evidence.context import (
    RuleContext,
    events,
    has_nvidia,
    in_container,
    says_nothing_else,
)
from gpusetup.evidence.places import ON_MACOS, is_beside_torch
from gpusetup.fixes import paste
from gpusetup.messages.programs import BY_NAME
from gpusetup.messages.row import says
from gpusetup.model.finding import Fix, Severity
from gpusetup.model.shell import lines


def programs_own(context: RuleContext, text: str) -> Fix:
    """How this program gets its GPU support."""
    program = BY_NAME.get(context.snapshot.failing.program or "")
    build = "build for the CUDA version of this torch, or the program's newest release"
    way = f"Choose the {build}" if text else f"Install the program's {build}"
    if program and program.way:
        way = program.way
    sentence = f"{text}. {way}" if text else way
    looks = paste.look("check first whether the driver lists the GPU", *lines("nvidia-smi -L"))
    return Fix(text=sentence, looks=looks)


def is_all(context: RuleContext) -> bool:
    """Whether this is all the text shows, without a reason why the GPU support was not loaded."""
    return not events(
        context, "cuda-lib-missing", "extension-abi-mismatch", "driver-too-old", "cuda-error"
    )


def _has_a_gpu(context: RuleContext) -> bool:
    """Whether a program without torch looks for a GPU on a machine that may have an NVIDIA GPU."""
    looks_for_one = events(context, "program-sees-no-gpu") or is_beside_torch(context)
    return bool(looks_for_one) and (has_nvidia(context) is not False)


def _holds_no_memory(context: RuleContext) -> bool:
    """Whether nothing in the text shows that the program occupies GPU memory. A program that does
    is using the GPU."""
    return not any("holds" in event.values for event in events(context, "gpu-starved"))


def _is_not_known_to_be_the_cpus(context: RuleContext) -> bool:
    """Whether no other finding explains why the program runs on the CPU: torch is not a CPU build,
    the GPU is not from another maker, and the program uses torch."""
    if context.torch.backend == "cpu":
        return False
    if events(context, "foreign-gpu") and not _maker_explains_nothing(context):
        return False
    return not is_beside_torch(context)


def _maker_explains_nothing(context: RuleContext) -> bool:
    """Whether a text names only the maker of the GPU, or shows that its driver works."""
    # In WSL and in a container, the driver of the host or a device may be missing.
    if context.os.wsl or in_container(context):
        return False
    driver_answers = gpu_facts.intels_driver_answers(context)
    return bool(driver_answers or gpu_facts.only_the_maker_is_named(context))


def _says_nothing_of_a_failure(context: RuleContext) -> bool:
    """Whether the text shows no failure, except that a program does not use the GPU."""
    # The name of a GPU from another maker is an event, but no failure.
    return says_nothing_else(context, "foreign-gpu")


TORCH_ITSELF = r"torch\W{1,3}(?:\w+ ){0,4}?(?:compiled|built)|Error: Not"

NAMED = r"(?:(?P<program>[A-Z]\w{2,20})(?: version \S{1,12})? (?:was |is |version ))?"
"""The name of a program at the beginning of a sentence."""


def _only_names_other_makers(context: RuleContext) -> bool:
    """Whether the text names a GPU of AMD or Intel, and none of NVIDIA."""
    return bool(events(context, "foreign-gpu")) and not has_nvidia(context)


CAUSES = (
    Cause(
        "program-sees-no-gpu",
        severity=Severity.WARNING,
        title="{program} finds no GPU",
        means="The program's build, libraries or settings prevent it from using the GPU.",
        text="Install the program's build for CUDA",
        symptom=True,
        failure=4,
        events=("program-sees-no-gpu", "cuda-unavailable", "gpu-unused"),
        where=(_has_a_gpu, is_all),
        way=programs_own,
        says=(
            says(r"\bhas no GPU available\b|\bno (?:usable GPU|compatible GPUs|GPU devices?|GPU detectors|GPU/TPU|CUDA devices|(?<=gpu: no )GPU) (?:were )?(?:found|available|discovered|detected)\b", "no ", unless=r"torch|is_available|nvidia-smi|RuntimeError: No"),
            says(r"\b(?:unable to detect any compatible|0) GPUs(?: detected)? (?:on|with)", "gpu", unless=r"torch|is_available|nvidia-smi|RuntimeError: No", example="unable to detect any compatible GPUs on this machine"),
            says(r"failure during GPU discovery", unless=r"torch|is_available|nvidia-smi|RuntimeError: No"),
            says(r'msg="inference compute" id=\S{1,8} library=cpu\b', program="ollama", example='level=INFO msg="inference compute" id=0 library=cpu variant="" total="31.2 GiB"'),
            says(r"PROCESSOR\b.{0,600}?\b100% CPU\b", program="ollama", example="NAME ID SIZE PROCESSOR UNTIL\nllama3:8b 365c0bd3c000 5.4 GB 100% CPU 4 minutes from now"),
            says(r"Num GPUs Available:\W{0,3}0\b", program="TensorFlow", example="Num GPUs Available:  0"),
            says(r"list_physical_devices\(['\"]GPU['\"]\)\)?.{0,160}?\[ ?\](?!\w)", program="TensorFlow", unless=r"name='/physical_device:GPU", example="print(tf.config.list_physical_devices('GPU')) returns []"),
            says("cuda backend failed to initialize", program="JAX"),
            says("no supported devices found for platform cuda", program="JAX"),
            says(r"offloaded 0/\d{1,4} layers to GPU", program="llama.cpp", example="llm_load_tensors: offloaded 0/33 layers to GPU"),
        ),
        not_examples=(
            "Current node has a GPU available",
            "there is no GPU device in the box",
            "tf.config.list_physical_devices('GPU')\n[PhysicalDevice(name='/physical_device:GPU:0', device_type='GPU')]",
            "2 compatible GPUs were discovered",
        ),
    ),
    Cause(
        "gpu-unused",
        check=CheckCommand(alike.TORCHS_CUDA, "2.9.1+cpu None"),
        severity=Severity.WARNING,
        title="The GPU is not used",
        means="Usually the program's torch is a CPU build: on Windows, `pip install torch` "
        "installs a CPU build, and installing another package may do so too. In other cases, "
        "torch finds no driver.",
        text="Run the command with the Python that runs the program (a bundle has its own, for "
        "example runtime\\python.exe or venv\\Scripts\\python.exe). `+cpu` or `None` means a CPU "
        "build: replace it with a CUDA build. You do not need to change the driver or the CUDA "
        "toolkit. If the program prints an error message, post the message as text",
        cases=(
            Message(
                where=(ON_MACOS,),
                means="On a Mac, torch uses the GPU as the device mps, and most programs choose the "
                "CPU unless they are told.",
                text="First see whether this Python reaches the GPU: it must print arm64 and True. "
                "Then choose mps in the program's options or settings (with Lightning: "
                '`accelerator="mps"`). torch has no CUDA builds for macOS',
                look=(alike.TORCHS_MPS, 'python -c "import platform; print(platform.machine())"'),
            ),
            Message(
                where=(_only_names_other_makers,),
                means="The program may have its own torch, for the CPU or for CUDA, and neither "
                "uses a GPU from AMD or Intel. A torch that works elsewhere on the machine proves "
                "that the driver works.",
                text="In the program's settings or on its download page, look for a build or an "
                "option for this GPU (ROCm, XPU, Vulkan or DirectML). If the program has its own "
                "Python, run the command with it: `+rocm` or `+xpu` fits the GPU, and `+cpu` or "
                "`+cu` does not. You do not need to change the driver for that",
            ),
        ),
        symptom=True,
        failure=6,
        where=(_says_nothing_of_a_failure, _is_not_known_to_be_the_cpus, _holds_no_memory),
        alike={
            alike.ASK_TORCH: ("torch-cpu-build", "driver-too-old", "driver-missing"),
            alike.TORCH_SEES: ("cuda-visible-devices-hidden", "driver-not-loaded"),
        },
    ),
    Cause(
        "input-bound",
        severity=Severity.WARNING,
        title="The GPU works, but it waits for its input in between",
        means="If the loader is slower than the GPU, the GPU is idle between batches. Typical "
        "reasons are decoding and augmentation on few CPU cores, a slow or remote disk, or "
        "transfers that do not overlap with the computation.",
        text="Measure where the time goes before you change anything: run `gpusetup monitor` "
        "next to the training to see what the GPU waits for (CPU, disk, network, loader). Often "
        "a copy of the data on a local disk, smaller images made once, or more loader workers "
        "help. You do not need to change the driver, CUDA or torch",
        # Source: PyTorch, Performance Tuning Guide.
        symptom=True,
        failure=7,
        where=(says_nothing_else, _is_not_known_to_be_the_cpus),
        events=("gpu-starved",),
        alike={alike.LOADER: ()},
    ),
    Cause(
        "program-without-gpu-support",
        severity=Severity.WARNING,
        title="{program} is installed without GPU support, so it runs on the CPU",
        means="The installed build of the program computes on the CPU only. The GPU and the "
        "driver may be fine.",
        text="Install the program's own build for CUDA",
        failure=3,
        where=(is_all,),
        way=programs_own,
        says=(
            says(rf"{NAMED}(?:compiled|built) without (?:GPU|CUDA) support(?! of)", unless=TORCH_ITSELF),
            says(rf"{NAMED}not compiled with (?:GPU|CUDA)(?: offload)? support(?! of)", unless=TORCH_ITSELF, example="XGBoostError: XGBoost version 2.1.1 is not compiled with CUDA support, cannot use GPU"),
            says(r"this build of (?P<program>\w+) does not support (?:CUDA|GPU)", unless=r"torch|Error: Not", example='RuntimeError: "cuda" device requested but this build of Warp does not support CUDA'),
            says(r"'CUDAExecutionProvider' is not in available provider names", program="onnxruntime"),
            says("cudaexecutionprovider not available", program="onnxruntime"),
            # onnxruntime's list of providers, in which no provider is for a GPU.
            says(r"available[_ ]?(?:execution )?providers\b[^\[]{0,24}\[(?:['\"](?:Azure|CPU)ExecutionProvider['\"],? ?){1,2}\]", program="onnxruntime", example=">>> onnxruntime.get_available_providers()\n['AzureExecutionProvider', 'CPUExecutionProvider']"),
            says(r"jaxlib is not installed\. falling back", program="JAX"),
            says("xformers wasn't build with cuda support", program="xformers"),
            says(r"is_built_with_cuda\(\)(?: is| ==| returns|:)? False\b", program="TensorFlow", example="tf.test.is_built_with_cuda() is False"),
        ),
        not_examples=(
            "tf.test.is_built_with_cuda() tells it",
            "it was compiled without GPU support of any kind by our own Makefile",
            "this build was not compiled with CUDA support of cuDNN",
            "get_available_providers() -> ['CUDAExecutionProvider', 'CPUExecutionProvider']",
        ),
    ),
    Cause(
        "tensors-on-two-devices",
        certain_if=proofs.message_states_it,
        severity=Severity.NOTE,
        title="The program uses tensors on two devices: {first} and {second}",
        means="torch computes only with tensors on the same device. The model, an input or a tensor "
        "that the program makes is still on another one. torch, the driver and the GPU work.",
        text="Move the model and every input to the same device: `model.to(device)`, and `batch = "
        "batch.to(device)` in the loop. Create new tensors there, too (`device=x.device`). If a "
        "model is spread over several GPUs (`device_map`), move the inputs to the device of its "
        "first layer",
        failure=7,
        says=(
            says(r"Expected all tensors to be on the same device, but found at least two devices, (?P<first>\w+(?::\d+)?) and (?P<second>\w+(?::\d+)?)", example="RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cpu and cuda:0!"),
            # Two types on the same device are no matter of devices.
            says(r"Input type \(torch\.\w+\) and weight type \(torch\.cuda\.\w+\) should be the same", example="RuntimeError: Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the same"),
        ),
    ),
    Cause(
        "program-failed",
        severity=Severity.NOTE,
        title="{program} failed: {said}",
        means="A key, a shape, a file or a name is wrong, or a package is missing. The GPU, the "
        "driver and torch are not the reason.",
        text="Run the program again, and read the first error that it prints. If that error "
        "mentions the GPU, the GPU, the driver or torch may be the reason",
        failure=8,
        where=(lambda context: says_nothing_else(context),),
        cases=(
            Message(
                having={"own": "", "exception": "^(?:FileNotFound|NotADirectory)"},
                text="Give the program a path that exists. A relative path starts at the folder "
                "in which you started the program",
            ),
            Message(
                having={"needs": ""},
                title="Something that {program} needs is missing: {said}",
                text="Install the item from the message into this environment. (A module's "
                "package may have another name; headers are in the -dev or -devel package)",
            ),
            Message(
                having={"releases": ""},
                title="{program} failed on its own: {said}",
                text="Two packages do not match: install releases of the program and of the "
                "package in the message that work together",
            ),
            Message(
                having={"own": ""},
                title="{program} failed on its own: {said}",
                text="Fix the error in the message. If the program still fails, report it to the "
                "program's project with the whole output",
            ),
        ),
    ),
)  # fmt: skip
