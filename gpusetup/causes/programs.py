"""Programs that see no GPU, or are installed without their GPU part."""

from __future__ import annotations

from gpusetup.causes.containers import start_with_gpu
from gpusetup.causes.record import Cause, Likelier, Message
from gpusetup.evidence.context import RuleContext, events, has_nvidia
from gpusetup.evidence.places import is_beside_torch, started_without_a_gpu
from gpusetup.fixes import paste
from gpusetup.messages.programs import BY_NAME
from gpusetup.messages.row import Row, any_of, says
from gpusetup.model.finding import Fix, Severity
from gpusetup.model.shell import lines


def programs_own(context: RuleContext, text: str) -> Fix:
    """The program's own way to the GPU."""
    program = BY_NAME.get(context.snapshot.failing.program or "")
    newest = "Install its build for the CUDA of this torch, or its newest release"
    looks = paste.look("see first whether the driver lists the GPU", *lines("nvidia-smi -L"))
    return Fix(text=text + ((program and program.way) or newest), looks=looks)


def is_all(context: RuleContext) -> bool:
    """Whether the text does not say why the GPU part did not load."""
    return not events(
        context, "cuda-lib-missing", "extension-abi-mismatch", "driver-too-old", "cuda-error"
    )


def _has_a_gpu(context: RuleContext) -> bool:
    asked = events(context, PROGRAM_SEES_NO_GPU.id) or is_beside_torch(context)
    return bool(asked) and has_nvidia(context) is not False


IN_WORDS = {
    "ollama": "ollama",
    "lm studio": "LM Studio",
    "llama.cpp": "llama.cpp",
    "onnxruntime": "onnxruntime",
    "faster-whisper": "CTranslate2",
    "tensorflow": "TensorFlow",
}
"""Programs of which people say that they find no GPU, and their names."""


def _in_words(needle: str, name: str) -> Row:
    """`Ollama does not use the GPU`, `GPU not detected by LM Studio`."""
    said = needle.replace(".", r"\.")
    by = rf"GPU\b[^.\n]{{0,60}} (?:is )?not (?:being )?(?:detected|used|recogni[sz]ed|found|seen) (?:by|in|with) {said}\b"
    never = r"(?:does ?n['o]?t|is not|isn't|cannot|can'?t|could not|couldn't|won't|no longer|stopped|not)"
    return says(
        needle,
        rf"\b{said}(?: v?\d[\w.]{{0,12}})? (?:{never} (?:\w+ ){{0,3}}?(?:us(?:e|ing)|utili[sz]e|detect|see|find|recogni[sz]e)(?:ing)?|fails to (?:use|detect|find)) (?:\w+ ){{0,3}}?(?:GPUs?|graphics card)\b|{by}",
        program=name,
    )


PROGRAM_SEES_NO_GPU = Cause(
    id="program-sees-no-gpu",
    symptom=True,
    likelier=(
        Likelier(
            cause="container-no-gpu",
            shown=started_without_a_gpu,
            because="it runs in a container that was started without a GPU",
            way=start_with_gpu,
        ),
    ),
    severity=Severity.WARNING,
    title="a program without torch finds no GPU, although the driver seems fine",
    means="Its own build, its libraries or its settings keep it from the GPU.",
    proven_by="The program's own message, while a driver answers",
    not_when="The driver, the container or a variable hides the GPU: see those findings",
    way_out="The program's build for CUDA",
    source="The programs' installation guides",
    failure=4,
    events=("program-sees-no-gpu", "cuda-unavailable"),
    holds=(_has_a_gpu, is_all),
    by_check=True,
    message=Message(title="{program} finds no GPU", way=programs_own),
    says=(
        *(_in_words(*one) for one in IN_WORDS.items()),
        says(
            "no gpu device",
            r"(?:\b(?:error|fatal)\b:?|^|\W) {0,3}No GPU devices? (?:were |was |are |is )?(?:found|detected|available)\b",
        ),
        says("current node has no gpu available", program="vLLM"),
        *any_of(
            {
                "no compatible gpus were discovered": "",
                "inference compute": r'msg="inference compute" id=\S{1,8} library=cpu\b',
                "100% cpu": r"PROCESSOR\b.{0,600}?\b100% CPU\b",
            },
            program="ollama",
        ),
        says(
            "num gpus available",
            r"Num GPUs Available:\W{0,3}0\b",
            program="TensorFlow",
        ),
        says(
            "list_physical_devices",
            r"list_physical_devices\(['\"]GPU['\"]\)\)?.{0,160}?\[ ?\](?!\w)",
            program="TensorFlow",
            unless=r"name='/physical_device:GPU",
        ),
        *any_of(
            {
                "cuda backend failed to initialize": "",
                "no gpu/tpu found, falling back to cpu": "",
                "no supported devices found for platform cuda": "",
            },
            program="JAX",
        ),
        *any_of(
            {
                "no usable gpu found": "",
                "offloaded 0/": r"offloaded 0/\d{1,4} layers to GPU",
            },
            program="llama.cpp",
        ),
    ),
    examples=(
        "ValueError: Current node has no GPU available. current_node_resource={}",
        "stderr=Using 2 threads\n        Error: No GPU device found!",
        "print(tf.config.list_physical_devices('GPU')) returns []",
        'level=INFO source=gpu.go:386 msg="no compatible GPUs were discovered"',
        "warning: no usable GPU found, --gpu-layers option will be ignored",
        "CUDA backend failed to initialize: Unable to load CUDA. (Set TF_CPP_MIN_LOG_LEVEL=0)",
        "WARNING:absl:No GPU/TPU found, falling back to CPU.",
        "Num GPUs Available:  0",
        "RuntimeError: Unable to initialize backend 'cuda': no supported devices found for platform CUDA",
        "Since the update ollama does not use the GPU of my laptop.",
        "the GPU is not detected by LM Studio 0.3.30",
        "llama.cpp is not using the GPU",
        "TensorFlow doesn't recognize my GPU",
        "llm_load_tensors: offloaded 0/33 layers to GPU",
        'level=INFO msg="inference compute" id=0 library=cpu variant="" total="31.2 GiB"',
        "NAME ID SIZE PROCESSOR UNTIL\nllama3:8b 365c0bd3c000 5.4 GB 100% CPU 4 minutes from now",
        "onnxruntime does not use the GPU",
        "faster-whisper does not use GPU",
    ),
    not_examples=(
        "Current node has a GPU available",
        "there is no GPU device in the box",
        "tf.config.list_physical_devices('GPU')\n[PhysicalDevice(name='/physical_device:GPU:0', device_type='GPU')]",
        "2 compatible GPUs were discovered",
    ),
)

PROGRAM_WITHOUT_GPU_SUPPORT = Cause(
    id="program-without-gpu-support",
    severity=Severity.WARNING,
    title="a program is installed without GPU support",
    means="The installed package computes on the CPU only; the GPU stack may be fine.",
    proven_by="The program's own message",
    not_when="cuda-lib-missing: its GPU part is there and a library is not",
    way_out="The program's own build for CUDA",
    source="The programs' installation guides",
    failure=3,
    holds=(is_all,),
    by_check=True,
    message=Message(
        title="{program} is installed without GPU support, and runs on the CPU", way=programs_own
    ),
    says=(
        *any_of(
            {
                "compiled without gpu support": r"(?P<program>bitsandbytes|LightGBM|XGBoost|OpenCV|llama\.cpp) was (?:compiled|not compiled|built) without GPU support",
                "compiled with cuda support": r"(?P<program>XGBoost|OpenCV|CTranslate2|LightGBM)\b.{0,60}? (?:was|is) not compiled with CUDA support",
                "cpu version of ": r"\bonly (?:the |a )?CPU version of (?P<program>JAX|TensorFlow|onnxruntime|PaddlePaddle)\b[^.\n]{0,20}?(?:is|was|got|has been) installed",
            }
        ),
        *any_of(
            {
                "cudaexecutionprovider' is not in available": r"'CUDAExecutionProvider' is not in available provider names",
                "cudaexecutionprovider not available": "",
                "enabled in this build": r"CUDA execution provider is (?:either |not ){1,2}enabled in this build",
            },
            program="onnxruntime",
        ),
        says("jaxlib is not installed. falling back", program="JAX"),
        says("xformers wasn't build with cuda support", program="xformers"),
        says("not compiled with gpu offload support", program="llama.cpp"),
        says(
            "is_built_with_cuda",
            r"is_built_with_cuda\(\)(?: is| ==| returns|:)? False\b",
            program="TensorFlow",
        ),
    ),
    examples=(
        "tf.test.is_built_with_cuda() is False",
        "UserWarning: Specified provider 'CUDAExecutionProvider' is not in available provider names.",
        "ONNX Runtime Providers: CUDAExecutionProvider not available - ONNX will fall back to CPU.",
        "UserWarning: The installed version of bitsandbytes was compiled without GPU support.",
        "XGBoostError: XGBoost version 2.1.1 is not compiled with CUDA support, cannot use GPU",
        "a CUDA-enabled jaxlib is not installed. Falling back to cpu.",
        "`fa2F@v2.5.7-pt` is not supported because: xFormers wasn't build with CUDA support",
        "warning: not compiled with GPU offload support, --gpu-layers option will be ignored",
        "CUDA execution provider is not enabled in this build.",
        "the script says that only the CPU version of JAX was installed",
    ),
    not_examples=(
        "tf.test.is_built_with_cuda() tells it",
        "CUDAExecutionProvider available: yes",
        "it was compiled without GPU support of any kind by our own Makefile",
        "this build was not compiled with CUDA support of cuDNN",
    ),
)
