"""Programs that were built without GPU support."""

from __future__ import annotations

from gpusetup.causes.record import Cause, Message
from gpusetup.evidence.context import RuleContext, events
from gpusetup.fixes import paste
from gpusetup.messages.fragments import IF, IF_ONLY
from gpusetup.messages.programs import BY_NAME
from gpusetup.messages.row import any_of, says
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


PROGRAM_WITHOUT_GPU_SUPPORT = Cause(
    id="program-without-gpu-support",
    severity=Severity.WARNING,
    title="a program is installed without its GPU part",
    means="The package that is installed computes on the CPU only; the GPU's stack may be whole.",
    proven_by="The program's own word",
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
        says(
            "blas = 0",
            r"llama.{0,80}?\b(?:shows?|says?|still|see|get|prints?|with) `?BLAS = 0\b",
            program="llama.cpp",
            unless=r"Metal|OpenBLAS only",
        ),
        says(
            " cpu",
            r"(?:llama[-_]cpp[-_]python|onnxruntime|tensorflow|jaxlib|jax|ctranslate2|lightgbm|xgboost)\b[^.\n]{0,40}?\b(?:installs?|installed|gives?|gave|get|got|brings?|brought) (?:me )?(?:only |just )?(?:the |a )?CPU(?:[- ]only)? (?:version|build|wheel)\b",
            unless=rf"{IF_ONLY}|\b(?:want|need|no) ",
        ),
        says(
            "is_built_with_cuda",
            r"is_built_with_cuda\(\)(?: is| ==| returns|:)? False\b",
            program="TensorFlow",
        ),
        says(
            "installed cpu version paddlepaddle",
            program="PaddlePaddle",
        ),
        says(
            "dlib_use_cuda",
            r"DLIB_USE_CUDA\b\W{0,12}(?:is |== ?|returns )?False\b",
            program="dlib",
        ),
        *any_of(
            {
                "has no attribute 'cuda'": r"module 'cv2(?:\.\w{2,12})?' has no attribute 'cuda'",
                "was not built with cuda backend": r"DNN module was not built with CUDA backend",
                "compiled without cuda support": r"OpenCV.{0,80}?The library is compiled without CUDA support",
            },
            program="OpenCV",
        ),
        says(
            "not integrated in this build",
            r"requires the cuDNN library which is not integrated in this build",
            program="CTranslate2",
        ),
        says(
            "tree learner was not enabled",
            r"(?:CUDA|GPU) Tree Learner was not enabled in this build",
            program="LightGBM",
        ),
        says(
            "of warp does not support cuda",
            program="Warp",
        ),
        *any_of(
            {
                "cannot use sift gpu without cuda": r"Cannot use Sift GPU without CUDA",
                "dense stereo reconstruction requires cuda": r"Dense stereo reconstruction requires CUDA, which is not available",
            },
            program="COLMAP",
        ),
        *any_of(
            {
                "cudaexecutionprovider' is not in available": r"'CUDAExecutionProvider' is not in available provider names",
                "cudaexecutionprovider not available": "",
                "ortsessionoptionsappendexecutionprovider": r"Unable to find an entry point named \W{0,2}OrtSessionOptionsAppendExecutionProvider_\w{3,12}",
                "enabled in this build": r"CUDA execution provider is (?:either |not ){1,2}enabled in this build",
            },
            program="onnxruntime",
        ),
        says(
            "executionprovider",
            r"\[(?:'AzureExecutionProvider', )?'CPUExecutionProvider'\]",
            unless=r"'CUDAExecutionProvider'|Failed to create CUDA|providers_cuda|Applied providers",
            program="onnxruntime",
        ),
        *any_of(
            {
                "compiled without gpu support": r"(?P<program>bitsandbytes|LightGBM|XGBoost|OpenCV|OpenMM) was (?:compiled|not compiled|built) without GPU support",
                "compiled with cuda support": r"(?P<program>XGBoost|OpenCV|CTranslate2|LightGBM)\b.{0,60}? (?:was|is) not compiled with CUDA support",
                "not compiled with gpu support": r"(?P<program>XGBoost|LightGBM)\b.{0,40}? not compiled with GPU support",
            },
        ),
        *any_of(
            {
                "one possible reason is that llama.cpp was compiled": "",
                "not compiled with gpu offload support": "",
            },
            program="llama.cpp",
        ),
        says(
            "operator wasn't built - see",
            r"operator wasn't built - see `?python -m xformers\.info",
            program="xformers",
            unless=r"xFormers can't load C\+\+",
        ),
        says(
            "jaxlib is not installed. falling back",
            program="JAX",
        ),
        says(
            "xformers wasn't build with cuda",
            r"xFormers wasn't build with CUDA support",
            program="xformers",
        ),
        says(
            "blas = 0",
            r"\b(?:GPU|[Cc][Uu]BLAS|CUDA)\b.{0,900}?\bBLAS = 0\b|\bBLAS = 0\b.{0,600}?\b(?:GPU|[Cc][Uu]BLAS|CUDA)\b",
            program="llama.cpp",
            unless=r"Metal|OpenBLAS only",
        ),
        *any_of(
            {
                "has no attribute 'c": r"'NoneType' object has no attribute '(?:cget_managed_ptr|cquantize\w{3,50}|cdequantize\w{3,50}|cadam\w{3,40}|cgemm\w{3,40}|cigemm\w{0,40}|cdequant\w{3,40})'",
                "libbitsandbytes_cpu": r"libbitsandbytes_cpu\.(?:so|dll|dylib): undefined symbol: \w{3,60}|function 'c\w{3,50}' not found.{0,200}?libbitsandbytes_cpu",
            },
            program="bitsandbytes",
        ),
        says(
            "runtime build",
            r"\b(?:GPUs?|CUDA)(?: support)?(?: is| are)? not (?:supported|enabled|included|available|compiled) (?:by|in|into|with) (?:your|this|the|my) onnx ?runtime build\b",
            unless=rf"{IF}(?:the )?(?:GPUs?|CUDA)",
            program="onnxruntime",
        ),
        says(
            "cpu version of ",
            r"\bonly (?:the |a )?CPU version of (?P<program>JAX|TensorFlow|onnxruntime|PaddlePaddle|CuPy|llama\.cpp)\b[^.\n]{0,20}?(?:is|was|got|has been) installed",
            unless=rf"{IF}only (?:the |a )?CPU version",
        ),
    ),
    examples=(
        "AttributeError: module 'cv2' has no attribute 'cuda'",
        "AttributeError: module 'cv2.cv2' has no attribute 'cuda'",
        "cv2.dnn: DNN module was not built with CUDA backend; switching to CPU",
        "[ WARN] setUpNet DNN module was not built with CUDA backend",
        "This operation requires the cuDNN library which is not integrated in this build",
        "RuntimeError: Conv1D on GPU currently requires the cuDNN library which is not integrated in this build",
        "Failed to allocate memory for requested buffer of size 1073741824, providers ['CPUExecutionProvider']",
        "PreconditionNotMetError: Cannot use GPU because you have installed CPU version PaddlePaddle.",
        "you have installed CPU version PaddlePaddle",
        ">>> dlib.DLIB_USE_CUDA\nFalse",
        "dlib.DLIB_USE_CUDA is False",
        "llama-cpp-python shows BLAS = 0",
        "llama_print_system_info still says BLAS = 0",
        "pip install llama-cpp-python gives me the CPU version",
        "jaxlib was reinstalled and I got the CPU version",
        "tf.test.is_built_with_cuda() is False",
        "tf.test.is_built_with_cuda() False",
        "UserWarning: Specified provider 'CUDAExecutionProvider' is not in available provider names.Available providers: 'CPUExecutionProvider'",
        "Specified provider 'CUDAExecutionProvider' is not in available provider names. Available providers: 'AzureExecutionProvider, CPUExecutionProvider'",
        "ONNX Runtime Providers: CUDAExecutionProvider not available - ONNX will fall back to CPU.",
        "warning: CUDAExecutionProvider not available, using CPU",
        ">>> onnxruntime.get_available_providers()\n['AzureExecutionProvider', 'CPUExecutionProvider']",
        "Available providers: ['CPUExecutionProvider']",
        "UserWarning: The installed version of bitsandbytes was compiled without GPU support. 8-bit optimizers are unavailable.",
        "LightGBM was compiled without GPU support",
        "XGBoostError: XGBoost version 2.1.1 is not compiled with CUDA support, cannot use GPU",
        "The library OpenCV was not compiled with CUDA support",
        "ValueError: This CTranslate2 package was not compiled with CUDA support, but device=cuda",
        "RuntimeError: This CTranslate2 package was not compiled with CUDA support",
        "An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib is not installed. Falling back to cpu.",
        "WARNING:jax._src.xla_bridge:794: a CUDA-enabled jaxlib is not installed. Falling back to cpu.",
        'RuntimeError: "cuda" device requested but this build of Warp does not support CUDA',
        "this build of Warp does not support CUDA",
        "`fa2F@v2.5.7-pt` is not supported because: xFormers wasn't build with CUDA support",
        "`cutlassF` is not supported because:\n    xFormers wasn't build with CUDA support\n    operator wasn't built",
        "warning: one possible reason is that llama.cpp was compiled without GPU support",
        "warning: no usable build; one possible reason is that llama.cpp was compiled without GPU support",
        "xgboost.core.XGBoostError: XGBoost version not compiled with GPU support.",
        "LightGBMError: LightGBM was not compiled with GPU support",
        "lightgbm.basic.LightGBMError: GPU Tree Learner was not enabled in this build.",
        "[Fatal] CUDA Tree Learner was not enabled in this build. Please recompile with CMake option -DUSE_CUDA=1",
        "cv2.error: OpenCV(4.8.0) error: (-216:No CUDA support) The library is compiled without CUDA support in function 'throw_no_cuda'",
        "OpenCV(4.5.4) private.cuda.hpp:106: error: The library is compiled without CUDA support",
        "`cutlassF` is not supported because:\n    xFormers... operator wasn't built - see `python -m xformers.info` for more info",
        "fa2F@0.0.0: operator wasn't built - see python -m xformers.info",
        "ERROR: Cannot use Sift GPU without CUDA or OpenGL support",
        "Cannot use Sift GPU without CUDA",
        "ERROR: Dense stereo reconstruction requires CUDA, which is not available on your system.",
        "Dense stereo reconstruction requires CUDA, which is not available",
        "warning: not compiled with GPU offload support, --gpu-layers option will be ignored",
        "warning: not compiled with GPU offload support, --n-gpu-layers option will be ignored",
        "EntryPointNotFoundException: Unable to find an entry point named 'OrtSessionOptionsAppendExecutionProvider_CUDA' in DLL 'onnxruntime'.",
        "Unable to find an entry point named OrtSessionOptionsAppendExecutionProvider_DML in DLL onnxruntime",
        "CUDA execution provider is not enabled in this build.",
        "OnnxRuntimeException: CUDA execution provider is either not enabled in this build or not available",
        "I built it for the GPU with cuBLAS and still see BLAS = 0",
        "AVX = 1 | BLAS = 0 | SSE3 = 1: everything runs on the CPU, my GPU is idle",
        "AttributeError: 'NoneType' object has no attribute 'cget_managed_ptr'",
        "'NoneType' object has no attribute 'cquantize_blockwise_fp16_nf4'",
        "AttributeError: /v/libbitsandbytes_cpu.so: undefined symbol: cget_col_row_stats",
        "AttributeError: /v/bitsandbytes/libbitsandbytes_cpu.so: undefined symbol: cquantize_blockwise_fp32",
        "GPU is not supported by your ONNXRuntime build. Fallback to CPU.",
        "CUDA support is not enabled in this ONNXRuntime build",
        "GPU is not supported by your ONNX Runtime build",
        "CUDA is not included in the ONNX Runtime build",
        "the script says that only the CPU version of JAX was installed",
        "I see now, only a CPU version of onnxruntime is installed",
    ),
    not_examples=(
        "module 'mine' has no attribute 'cuda'",
        "the module was built with CUDA backend",
        "cuDNN is not integrated in this build of docs",
        "install the GPU version PaddlePaddle",
        "cmake -DDLIB_USE_CUDA=1",
        "BLAS = 0 is a number",
        "I want onnxruntime and got the CPU version",
        "tf.test.is_built_with_cuda() tells it",
        "'TensorrtExecutionProvider' is not in available provider names, 'CUDAExecutionProvider' was taken",
        "CUDAExecutionProvider available: yes",
        "['TensorrtExecutionProvider', 'CUDAExecutionProvider', 'CPUExecutionProvider']",
        "it was compiled without GPU support of any kind by our own Makefile",
        "it is compiled with CUDA support",
        "this build was not compiled with CUDA support of cuDNN",
        "jaxlib is installed, falling back to nothing",
        "this build of Warp supports CUDA 12.8",
        "xFormers was built with CUDA 12.8",
        "one possible reason is that llama.cpp was started twice",
        "this wheel is not compiled with GPU support, says the readme",
        "the tree learner was not enabled in params",
        "it was compiled without CUDA support, they say",
        "the operator wasn't built - see the log",
        "cannot use sift gpu without a screen",
        "dense stereo reconstruction requires a model",
        "llama.cpp was compiled with GPU offload support",
        "OrtSessionOptionsAppendExecutionProvider_CUDA(options, 0);",
        "DNNL is not enabled in this build",
        "AVX = 1 | BLAS = 1 | my GPU works",
        "the box has no attribute 'colour'",
        "loading libbitsandbytes_cpu",
        "use the GPU with your ONNXRuntime build",
        "use the GPU with your ONNX Runtime build",
        "if only the CPU version of JAX is installed it says so",
    ),
)
