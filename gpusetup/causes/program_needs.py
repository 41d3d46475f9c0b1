"""Programs that lack what they need."""

from __future__ import annotations

from gpusetup.causes.record import Cause, Message
from gpusetup.messages.fragments import FFMPEG
from gpusetup.messages.row import any_of, says
from gpusetup.model.finding import Severity

BUILT_BY_HAND = (
    r"(?:flash_attn|flash_attn_interface|xformers|apex|tinycudann|diff_gaussian_rasterization\w{0,12}|simple_knn|nvdiffrast"
    r"|pytorch3d|gsplat|mamba_ssm|causal_conv1d|torch_scatter|torch_sparse|torch_cluster|torch_spline_conv|spconv"
    r"|detectron2|MinkowskiEngine|fused_ssim|natten|pointnet2_ops|kaolin|sageattention|custom_rasterizer|cumm|dcnv[34])"
)
"""Packages that are compiled against the torch that is there, by their modules."""

FROM_PIP = {
    "pkg_resources": "setuptools<81",
    "distutils": "setuptools",
    "skbuild": "scikit-build",
    "scikit_build_core": "scikit-build-core",
    "setuptools_scm": "setuptools-scm",
    "cython": "Cython",
    "CMake": "cmake",
    "yaml": "PyYAML",
    "cv2": "opencv-python",
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "bs4": "beautifulsoup4",
    "dotenv": "python-dotenv",
    "git": "GitPython",
    "Crypto": "pycryptodome",
    "attr": "attrs",
    "flashinfer": "flashinfer-python",
    "comfy_aimdo": "comfy-aimdo",
}
"""Module -> the distribution that brings it, where the names differ."""

NOT_PLAIN = (
    r"\w*(?:torch|cuda|cudnn|triton|flash|attn|attention|raster|kernel|_ops|_ext|_C\b|cu1|tensorrt|nvidia|nvml|rocm|hip|xpu|quant|gptq|awq)"
    r"|(?:ops|apex|xformers|bitsandbytes|tensorflow|keras|jax\w*|flax|numba|onnxruntime\w*|numpy|vllm|sgl\w*|sglang|mmcv\w*|detectron2|spconv\w*|gsplat|simple_knn|diff_\w+|nvdiffrast|tinycudann|kaolin"
    r"|mamba_ssm|causal_conv1d|natten|deepspeed|ninja|packaging|setuptools|wheel|pkg_resources|distutils|imp|skbuild\w*|Cython|cython|pybind11|llama_cpp|exllama\w*|dgl\w*|horovod|warp|isaac\w*|omni\w*|pxr|tkinter|readline|_\w+)['\"]"
)
"""Modules that are compiled for a GPU or belong to its stack, or to a build, or to Python itself."""
LACKS = r"(?:wheel|setuptools|pkg_resources|packaging|numpy|cython|Cython|pybind11|psutil|skbuild|scikit_build_core|hatchling|poetry|setuptools_scm|mypy|distutils|pkginfo|cmake|ninja|nanobind|einops)"
BUILDING = (
    r"(?:setup\.py|Getting requirements to build|Preparing metadata|build-env|builds-v0|build_meta"
    r"|--no-build-isolation|Failed to build|Building wheel|build_wheel|egg_info)"
)

PROGRAM_REQUIREMENT_MISSING = Cause(
    id="program-requirement-missing",
    severity=Severity.WARNING,
    title="a program or its build lacks something that is not CUDA's",
    means="A build tool, Python's headers, FFmpeg: nothing of the GPU's stack.",
    proven_by="The message that names it",
    not_when="build-isolation-no-torch, cuda-toolkit-missing, ninja-missing, compiler-missing",
    way_out="Install what is named",
    source="pip documentation, build system interface; torchcodec's installation guide",
    failure=1,
    by_check=True,
    message=Message(
        title="{program} lacks {lacks}",
        text="Install it into this environment, then run it again",
        commands=("pip install {lacks}",),
        cases=(
            Message(
                having={"lacks": r"^a C\+\+ compiler$"},
                text="Install a C++ compiler (gcc: build-essential, gcc-c++)",
                commands=("package gcc",),
                needs_root=True,
            ),
            Message(
                having={"lacks": "^flash_attn$"},
                text="flash-attn has to be built for the very torch that is here. gpusetup chooses "
                "the two together; `pip install flash-attn` compiles it where no wheel fits, which "
                "needs nvcc and an hour. Most programs run without it: transformers by "
                '`attn_implementation="sdpa"`',
                commands=("gpusetup install flash-attn",),
            ),
            Message(
                having={"lacks": f"^(?:{BUILT_BY_HAND})$"},
                text="Install it as its own guide says: it is compiled against this torch "
                "(`--no-build-isolation`), with a CUDA toolkit of torch's major",
            ),
            Message(
                having={"lacks": r"[^\w-]|^FFmpeg$"},
                text="Install it: a header comes with a package of the system (Python.h: "
                "python3-dev, python3-devel), of conda, or with a clone's submodules",
            ),
            *(
                Message(having={"lacks": f"^{name}$"}, commands=(f"pip install '{brings}'",))
                for name, brings in FROM_PIP.items()
            ),
        ),
    ),
    says=(
        *any_of(
            {
                "find cudnn": r"Could NOT find CUDNN\b|CUDNN_(?:LIBRARY|INCLUDE_DIR)\S{0,12}[ :=]{1,4}\S{0,30}NOTFOUND",
                "-lcudnn": r"cannot find -lcudnn\b",
            },
            lacks="cuDNN with its headers (NVIDIA's packages libcudnn9-dev-cuda-12 or -13)",
            step="build",
        ),
        *any_of(
            {
                "no module named": rf"No module named ['\"]?(?P<lacks>{BUILT_BY_HAND})['\"]?(?![.\w])",
                "packagenotfounderror": r"(?<!conda\.exceptions\.)\bPackageNotFoundError:? (?:No package metadata was found for )?['\"]?(?P<lacks>(?!(?:torch|No|The|This|That|An?|It|In|For|See|Please|Could|Package)\b)[A-Za-z][\w.-]{1,40}\w)",
                "distribution was not found": r"\bThe ['\"](?P<lacks>(?!torch\b)[A-Za-z][\w.-]{1,40}?)(?:\[[\w,]{1,40}\])?(?:[<>=!~]=?[\w.,<>=!~ ]{1,30})?['\"] distribution was not found",
                "minimum required version": r"(?P<lacks>[A-Za-z][\w-]{1,40}) with minimum required version \S{1,20} is not installed",
                "missing dependenc": r"\bmissing dependenc(?:y|ies):? [`'\"]?(?P<lacks>torchcodec|ffmpeg|ninja|cmake|packaging|wheel|psutil)\b",
            },
        ),
        says(
            "appropriate backend to handle uri",
            r"Couldn't find appropriate backend to handle uri",
            program="torchaudio",
            lacks="a library that reads sound (FFmpeg, SoX or the package soundfile)",
        ),
        says(
            "is not installable",
            r"Directory ['\"](?P<lacks>[^'\"]{1,120})['\"] is not installable\. Neither ['\"]setup\.py['\"] nor ['\"]pyproject\.toml['\"] found",
            program="pip",
        ),
        says(
            "modulenotfounderror: no module named",
            rf"\bModuleNotFoundError: No module named ['\"](?P<lacks>(?!{NOT_PLAIN})[a-zA-Z]\w{{2,40}})['\"]",
            unless=r"\b(?:setup\.py|build_meta|egg_info|get_requires_for_build|pyproject|subprocess-exited|build isolation|pip3? install|uv sync|Preparing metadata)",
        ),
        *any_of(
            {
                "ffmpeg is not properly installed": r"Could not load libtorchcodec",
                "libtorchcodec_core": r"(?:Could not (?:find module|load this library)\W{0,4}|Could not load library:? ?)[^'\"\n]{0,200}?libtorchcodec_core\d\.(?:dll|dylib|so)",
            },
            program="torchcodec",
            lacks="FFmpeg's shared libraries (4 to 8), or a torchcodec of this torch's release",
        ),
        says(
            ".so",
            rf"(?P<library>{FFMPEG}\.so[.\d]*): cannot open shared",
            lacks="FFmpeg's shared libraries",
        ),
        *any_of(
            {
                "no module named": rf"{BUILDING}.{{0,900}}?No module named ['\"]?(?P<lacks>{LACKS})\b",
                "no such file": r"fatal error: (?P<lacks>oneapi/\w{2,12}\.hpp|libaio\.h|numa\.h|mpi\.h|glm/\w{2,12}\.hpp|Eigen/\w{3,12}|GL/gl\w?\.h): No such file",
            },
            step="build",
        ),
        says(
            "no module named",
            rf"No module named ['\"]?(?P<lacks>{LACKS})['\"].{{0,300}}?(?:error: subprocess|Getting requirements to build|This error originates from a subprocess|Failed building wheel|Failed to build)",
            step="build",
        ),
        says(
            "python.h",
            rf"(?:{BUILDING}|building '[\w.]{{1,60}}' extension|error: command).{{0,900}}?(?P<lacks>Python\.h): No such file",
            step="build",
            unless=r"triton|inductor",
        ),
        says(
            "cmake",
            r"CMake must be installed to build|No such file or directory: 'cmake'|cmake: (?:command )?not found|Could not find CMake",
            lacks="CMake",
            step="build",
        ),
        says(
            "cmake_cxx_compiler not set",
            lacks="a C++ compiler",
            step="build",
        ),
        says(
            "find curl",
            r"Could NOT find CURL",
            program="llama.cpp",
            lacks="libcurl's headers (or -DLLAMA_CURL=OFF)",
            step="build",
        ),
        says(
            "find vulkan",
            r"Could NOT find Vulkan \(missing: [^)]{0,60}",
            lacks="the Vulkan SDK (headers, libvulkan and glslc)",
            step="build",
        ),
        says(
            "requires the latest version of bitsandbytes",
            r"Using `bitsandbytes` (?:\S{1,12} quantization|\S{1,12}-bit quantization) requires the latest version of bitsandbytes",
            lacks="a bitsandbytes that loads",
        ),
        says(
            "requires accelerate",
            r"(?:Using|Loading|Quantiz)[^\n]{1,100}? requires [Aa]ccelerate",
            lacks="accelerate",
        ),
        says(
            "flash_attn seems to be not installed",
            r"the package flash_attn seems to be not installed",
            lacks="flash-attn",
        ),
        *any_of(
            {
                "requires bitsandbytes": r"quantization requires bitsandbytes ?>= ?\d",
                "not compatible with": r"have a version of `bitsandbytes` that is not compatible with (?:4|8)-?bit",
            },
            lacks="a newer bitsandbytes",
        ),
        says(
            "no module named",
            "No module named ['\\\"]?(?P<lacks>isaacsim|isaaclab|omni\\.\\w{2,20}(?:\\.\\w{2,20})?)['\\\"]?(?!\\w)",
            program="Isaac Sim",
        ),
        says(
            "import",
            r"ImportError: No (?P<lacks>bitsandbytes|xformers|dadaptation|prodigyopt|lion_pytorch|transformers|schedulefree)(?= / )",
            program="kohya_ss",
        ),
    ),
    examples=(
        "-- Could NOT find CUDNN (missing: CUDNN_LIBRARY)",
        "Could NOT find CUDNN: Found unsuitable version",
        "/usr/bin/ld: cannot find -lcudnn",
        "cannot find -lcudnn: No such file or directory",
        "RuntimeError: Couldn't find appropriate backend to handle uri a.wav and format None.",
        "Couldn't find appropriate backend to handle uri /x/a.mp3 and format mp3.",
        "importlib.metadata.PackageNotFoundError: No package metadata was found for flashinfer",
        "PackageNotFoundError: flashinfer_python",
        "Exception: flashinfer_python with minimum required version 0.2.7 is not installed",
        "sgl_kernel with minimum required version 0.1.6 is not installed",
        "The 'tokenizers<0.22,>=0.21' distribution was not found and is required by this application",
        "The 'peft' distribution was not found",
        "RuntimeError: Could not load libtorchcodec. Likely causes: 1. FFmpeg is not properly installed in your environment. We support versions 4 to 8.",
        "Could not load libtorchcodec. Likely causes:\n 1. FFmpeg is not properly installed in your environment.\n 2. The PyTorch version (2.9.1) is not compatible",
        "building 'xformers._C' extension\nx.cpp:1:10: fatal error: Python.h: No such file or directory\nerror: command 'gcc' failed",
        "Building wheel for insightface\nfatal error: Python.h: No such file or directory",
        "building 'mesh_core_cython' extension\nmesh.c:16:10: fatal error: Python.h: No such file or directory",
        "RuntimeError: CMake must be installed to build the following extensions: onnx",
        "FileNotFoundError: [Errno 2] No such file or directory: 'cmake'",
        "CMake Error: CMAKE_CXX_COMPILER not set, after EnableLanguage",
        "CMAKE_CXX_COMPILER not set",
        "FFmpeg version 7: libavutil.so.59: cannot open shared object file: No such file or directory",
        "OSError: libavcodec.so.58: cannot open shared object file: No such file or directory",
        "FFmpeg version 5: Could not find module 'D:\\x\\torchcodec\\libtorchcodec_core5.dll' (or one of its dependencies).",
        "OSError: Could not load this library: /x/torchcodec/libtorchcodec_core8.dylib",
        "ccl.cpp:8:10: fatal error: oneapi/ccl.hpp: No such file or directory",
        "aio.cpp:2:10: fatal error: libaio.h: No such file or directory",
        "Could NOT find CURL. Hint: to disable this feature, set -DLLAMA_CURL=OFF",
        "-- Could NOT find CURL (missing: CURL_LIBRARY CURL_INCLUDE_DIR)",
        'Could NOT find Vulkan (missing: glslc) (found version "1.3.275")',
        "Could NOT find Vulkan (missing: Vulkan_LIBRARY Vulkan_INCLUDE_DIR)",
        "ImportError: Using `bitsandbytes` 4-bit quantization requires the latest version of bitsandbytes: `pip install -U bitsandbytes`",
        "Using `bitsandbytes` 8-bit quantization requires the latest version of bitsandbytes",
        "ImportError: Using `low_cpu_mem_usage=True` or a `device_map` requires Accelerate: `pip install accelerate`",
        "Loading an AWQ quantized model requires accelerate (`pip install accelerate`)",
        "it cannot be used due to the following error: the package flash_attn seems to be not installed",
        "ImportError: FlashAttention2 has been toggled on, but the package flash_attn seems to be not installed.",
        "ValueError: 4 bit quantization requires bitsandbytes>=0.39.0 - please upgrade",
        "8 bit quantization requires bitsandbytes >= 0.37",
        "You have a version of `bitsandbytes` that is not compatible with 4bit inference and training",
        "have a version of `bitsandbytes` that is not compatible with 8-bit inference",
        "ERROR: Directory 'submodules/simple-knn' is not installable. Neither 'setup.py' nor 'pyproject.toml' found.",
        "ERROR: Directory './third_party/rasterizer' is not installable. Neither 'setup.py' nor 'pyproject.toml' found.",
        "Missing dependency torchcodec",
        "it has a missing dependency: ffmpeg",
        "ImportError: No prodigyopt / prodigyopt がインストールされていないようです",
        "ImportError: No xformers / xformersがインストールされていないようです",
    ),
    not_examples=(
        "found cuDNN",
        "linked with -lcudnn",
        "an appropriate backend to handle uri",
        "PackageNotFoundError is what importlib raises",
        "a minimum required version is installed",
        "The distribution was not found",
        "FFmpeg is properly installed",
        "#include <Python.h> is in every extension",
        "-- Using CMake 3.28",
        "CMAKE_CXX_COMPILER=g++-12",
        "libtorchcodec_core8.so was loaded",
        "fatal error: mine.h: No such file or directory",
        "find curl in your menu",
        "find Vulkan devices by vulkaninfo",
        "this requires the latest version of bash",
        "what requires accelerate",
        "the package flash_attn is installed",
        "what requires bitsandbytes",
        "x is not compatible with y",
        "this directory is not installable by a user",
        "missing dependency graph",
    ),
)
