"""Messages of programs beside torch about themselves: a build without a GPU, what their build lacks, an old release.

Sources: onnxruntime's Python binding, bitsandbytes/cextension.py, jax/_src/xla_bridge.py,
llama.cpp's common/arg.cpp, torchcodec/_core/ops.py, NVIDIA Warp's release notes, setup files.
"""

from __future__ import annotations

from gpusetup.messages.libraries import FFMPEG
from gpusetup.messages.row import Row, row, rows

LACKS = r"(?:wheel|setuptools|pkg_resources|packaging|numpy|cython|Cython|pybind11|psutil|skbuild|scikit_build_core|hatchling|poetry|setuptools_scm|mypy|distutils|pkginfo|cmake|ninja|nanobind|einops)"
BUILDING = (
    r"(?:setup\.py|Getting requirements to build|Preparing metadata|build-env|builds-v0|build_meta"
    r"|--no-build-isolation|Failed to build|Building wheel|build_wheel|egg_info)"
)

WITHOUT_GPU = (
    row(
        "program-without-gpu-support",
        "installed cpu version paddlepaddle",
        program="PaddlePaddle",
    ),
    row(
        "program-without-gpu-support",
        "dlib_use_cuda",
        r"DLIB_USE_CUDA\b\W{0,12}(?:is |== ?|returns )?False\b",
        program="dlib",
    ),
    *rows(
        "program-without-gpu-support",
        {
            "has no attribute 'cuda'": r"module 'cv2(?:\.\w{2,12})?' has no attribute 'cuda'",
            "was not built with cuda backend": r"DNN module was not built with CUDA backend",
            "compiled without cuda support": r"OpenCV.{0,80}?The library is compiled without CUDA support",
        },
        program="OpenCV",
    ),
    row(
        "program-without-gpu-support",
        "not integrated in this build",
        r"requires the cuDNN library which is not integrated in this build",
        program="CTranslate2",
    ),
    row(
        "program-without-gpu-support",
        "tree learner was not enabled",
        r"(?:CUDA|GPU) Tree Learner was not enabled in this build",
        program="LightGBM",
    ),
    row(
        "program-without-gpu-support",
        "of warp does not support cuda",
        program="Warp",
    ),
    *rows(
        "program-without-gpu-support",
        {
            "cannot use sift gpu without cuda": r"Cannot use Sift GPU without CUDA",
            "dense stereo reconstruction requires cuda": r"Dense stereo reconstruction requires CUDA, which is not available",
        },
        program="COLMAP",
    ),
    *rows(
        "program-without-gpu-support",
        {
            "cudaexecutionprovider' is not in available": r"'CUDAExecutionProvider' is not in available provider names",
            "cudaexecutionprovider not available": "",
        },
        program="onnxruntime",
    ),
    row(
        "program-without-gpu-support",
        "executionprovider",
        r"\[(?:'AzureExecutionProvider', )?'CPUExecutionProvider'\]",
        unless=r"'CUDAExecutionProvider'|Failed to create CUDA|providers_cuda|Applied providers",
        program="onnxruntime",
    ),
    *rows(
        "program-without-gpu-support",
        {
            "compiled without gpu support": r"(?P<program>bitsandbytes|LightGBM|XGBoost|OpenCV|OpenMM) was (?:compiled|not compiled|built) without GPU support",
            "compiled with cuda support": r"(?P<program>XGBoost|OpenCV|CTranslate2|LightGBM)\b.{0,60}? (?:was|is) not compiled with CUDA support",
            "not compiled with gpu support": r"(?P<program>XGBoost|LightGBM)\b.{0,40}? not compiled with GPU support",
        },
    ),
    row(
        "program-without-gpu-support",
        "one possible reason is that llama.cpp was compiled",
        program="llama.cpp",
    ),
    row(
        "program-without-gpu-support",
        "operator wasn't built - see",
        r"operator wasn't built - see `?python -m xformers\.info",
        program="xformers",
        unless=r"xFormers can't load C\+\+",
    ),
    row(
        "program-without-gpu-support",
        "jaxlib is not installed. falling back",
        program="JAX",
    ),
    row(
        "program-without-gpu-support",
        "xformers wasn't build with cuda",
        r"xFormers wasn't build with CUDA support",
        program="xformers",
    ),
)

LACKING = (
    *rows(
        "program-requirement-missing",
        {
            "ffmpeg is not properly installed": r"Could not load libtorchcodec",
            "libtorchcodec_core": r"(?:Could not (?:find module|load this library)\W{0,4}|Could not load library:? ?)[^'\"\n]{0,200}?libtorchcodec_core\d\.(?:dll|dylib|so)",
        },
        program="torchcodec",
        lacks="FFmpeg's shared libraries (4 to 8), or a torchcodec of this torch's release",
    ),
    row(
        "program-requirement-missing",
        ".so",
        rf"(?P<library>{FFMPEG}\.so[.\d]*): cannot open shared",
        lacks="FFmpeg's shared libraries",
    ),
    *rows(
        "program-requirement-missing",
        {
            "no module named": rf"{BUILDING}.{{0,900}}?No module named ['\"]?(?P<lacks>{LACKS})\b",
            "no such file": r"fatal error: (?P<lacks>oneapi/\w{2,12}\.hpp|libaio\.h|numa\.h|mpi\.h|glm/\w{2,12}\.hpp|Eigen/\w{3,12}|GL/gl\w?\.h): No such file",
        },
        step="build",
    ),
    row(
        "program-requirement-missing",
        "no module named",
        rf"No module named ['\"]?(?P<lacks>{LACKS})['\"].{{0,300}}?(?:error: subprocess|Getting requirements to build|This error originates from a subprocess|Failed building wheel|Failed to build)",
        step="build",
    ),
    row(
        "program-requirement-missing",
        "python.h",
        rf"(?:{BUILDING}|building '[\w.]{{1,60}}' extension|error: command).{{0,900}}?(?P<lacks>Python\.h): No such file",
        step="build",
        unless=r"triton|inductor",
    ),
    row(
        "program-requirement-missing",
        "cmake",
        r"CMake must be installed to build|No such file or directory: 'cmake'|cmake: (?:command )?not found|Could not find CMake",
        lacks="CMake",
        step="build",
    ),
    row(
        "program-requirement-missing",
        "cmake_cxx_compiler not set",
        lacks="a C++ compiler",
        step="build",
    ),
)


TOO_OLD = (
    row(
        "program-release-too-old",
        "warp cuda error",
        r"Warp CUDA error: Failed to get driver entry point 'cuDeviceGetUuid' \(CUDA error 1\)",
        program="Warp",
    ),
    row(
        "program-release-too-old",
        "warp cuda error",
        r"Warp CUDA error 36: API call is not supported.{0,400}?Driver 1[3-9]\.",
        program="Warp",
    ),
    *rows(
        "program-release-too-old",
        {
            "from 'torch.": r"cannot import name '(?!_C\b|_ext\b)\w+' from 'torch\.(?!_C\b)\w+(?:\.\w+)*'(?! \()",
            "has no attribute": r"module 'torch' has no attribute '(?:compiler?|export|uint(?:16|32|64)|float8_\w+|xpu|mps|[gs]et_default_device|accelerator|_dynamo|_inductor|_higher_order_ops|inference_mode)'",
            "cannot import name": r"cannot import name '(?!_C\b|_ext\b|Tensor\b|nn\b)\w+' from 'torch(?:\.(?!_C\b)\w+)*' \([^()]{0,200}(?:site|dist)-packages[^()]{1,200}\)",
        },
        beside="installed torch",
    ),
    row(
        "program-release-too-old",
        "has no attribute",
        r"module 'torch\.(?!_C\b|version\b|hub\b)\w+(?:\.\w+)*' has no attribute '\w{3,60}'",
        beside="installed torch",
    ),
    row(
        "program-release-too-old",
        "has no attribute",
        r"module 'torchaudio(?:\.\w+){0,3}' has no attribute '\w{3,60}'",
        beside="installed torchaudio",
    ),
    row(
        "program-release-too-old",
        "for torchao version",
        r"incompatible torch version (?P<torch>[\w.+-]{1,30}) for torchao version",
        program="torchao",
    ),
)

IN_WORDS = (
    ("ollama", "ollama"),
    ("lm studio", "LM Studio"),
    ("llm studio", "LM Studio"),
    ("lmstudio", "LM Studio"),
    ("llama.cpp", "llama.cpp"),
    ("llama-cpp-python", "llama.cpp"),
    ("koboldcpp", "KoboldCpp"),
    ("gpt4all", "GPT4All"),
    ("localai", "LocalAI"),
    ("onnxruntime", "onnxruntime"),
    ("faster-whisper", "CTranslate2"),
    ("whisper", "Whisper"),
    ("isaac sim", "Isaac Sim"),
    ("tensorflow", "TensorFlow"),
)
"""Programs of which people say that they find no GPU, and their names."""


def _in_words(needle: str, name: str) -> Row:
    """`Ollama does not use the GPU`, `GPU not detected by LM Studio`."""
    said = needle.replace(".", r"\.")
    by = rf"GPU\b[^.\n]{{0,60}} (?:is )?not (?:being )?(?:detected|used|recogni[sz]ed|found|seen|loading|working) (?:by|in|with) {said}\b"
    release = r"(?: ?(?:v|==?|version:?)? ?\d[\w.]{0,12})?"
    later = rf"\b{said}\b.{{0,240}}?\b(?:GPU|(?:GTX|RTX) ?\d{{4}}(?: ?Ti)?)(?: GPU)? (?:is |was )?no longer (?:being )?(?:detected|used|recogni[sz]ed|found|seen|listed)\b"
    return row(
        "program-sees-no-gpu",
        needle,
        rf"\b{said}{release} (?:(?:does ?n['o]?t|is not|isn't|do not|don't|cannot|can'?t|can not|could not|couldn't|will not|won't|no longer|stopped|never|not) (?:\w+ ){{0,3}}?(?:us(?:e|ing)|utili[sz]e|detect|see|find|recogni[sz]e)(?:ing)?|(?:fails|failed) to (?:use|detect|see|find|recogni[sz]e)) (?:\w+ ){{0,3}}?(?:GPUs?|CUDA(?! ?\d| (?:tool|ver|err|out|lib|run)\w*)(?: devices?)?|(?:RTX|GTX|G[Ff]orce|GeForce) [\w ]{{0,12}}\d{{3,4}}|graphics card)\b|{by}|{later}",
        program=name,
    )


SEES_NO_GPU = (
    *(_in_words(*one) for one in IN_WORDS),
    *rows(
        "program-sees-no-gpu",
        {
            "trying to query cuda gpus": "",
            "unable to detect any compatible gpu": "",
        },
        program="LM Studio",
    ),
    row(
        "program-sees-no-gpu",
        "whisper_backend_init_gpu: no gpu found",
        program="whisper.cpp",
    ),
    row(
        "program-lib-missing",
        "find cuda drivers",
        r"Could not find cuda drivers on your machine, GPU will not be used",
        program="TensorFlow",
        library="the CUDA libraries of TensorFlow",
        or_else="driver-missing",
    ),
    row(
        "program-sees-no-gpu",
        "num gpus available",
        r"Num GPUs Available:\W{0,3}0\b",
        program="TensorFlow",
    ),
    row("program-sees-no-gpu", "no compatible gpus were discovered", program="ollama"),
    row(
        "program-sees-no-gpu",
        "0 gpu",
        r"\b0 GPUs? detected",
    ),
    *rows(
        "program-sees-no-gpu",
        {
            "tauri_plugin_llamacpp": r"\[tauri_plugin_llamacpp::device\].{0,20}No devices found in output",
            "no usable gpu found": "",
        },
        program="llama.cpp",
    ),
    *rows(
        "program-sees-no-gpu",
        {
            "cuda backend failed to initialize": "",
            "no supported devices found for platform cuda": "",
            "no gpu/tpu found, falling back to cpu": "",
        },
        program="JAX",
    ),
    row(
        "program-lib-missing",
        "find libdevice directory",
        r"Can't find libdevice directory|libdevice not found at",
        program="TensorFlow",
        library="libdevice (the toolkit's nvvm folder)",
    ),
    row(
        "program-lib-missing",
        "dnn library is not found",
        program="TensorFlow",
        library="cuDNN, in the release that TensorFlow was built for,",
    ),
    *rows(
        "program-lib-missing",
        {
            "skipping registering gpu devices": "",
            "cannot dlopen some gpu libraries": "",
        },
        program="TensorFlow",
        library="a CUDA library of TensorFlow",
    ),
    row(
        "program-lib-missing",
        "failed to create cudaexecutionprovider",
        r"Failed to create CUDAExecutionProvider\. ?Require cuDNN",
        program="onnxruntime",
        library="cuDNN or CUDA, in the release that onnxruntime names,",
    ),
)

ROWS = (*WITHOUT_GPU, *LACKING, *TOO_OLD, *SEES_NO_GPU)
