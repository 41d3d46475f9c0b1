"""Causes in the software of AMD and Intel that the message of a program states.

A program that prints such a message has reached the GPU, or failed before it looked for one. So the
kernel driver and its device nodes are not at fault.
"""

from __future__ import annotations

from gpusetup.accelerators.makers import maker_of
from gpusetup.causes.record import Cause
from gpusetup.choose.installed import vendors_of
from gpusetup.evidence import proofs
from gpusetup.evidence.context import RuleContext, events, has_nvidia, on
from gpusetup.fixes import apple, rocm, xpu
from gpusetup.messages.makers import AMDS
from gpusetup.messages.row import says

# `float64`, `double precision`, `FP64 data type`.
DOUBLE = r"(?:fp64|float64|doubles?|double[- ]precision)(?: \(double\))?(?: (?:data ?)?types?)?"
NOT_SUPPORTED = r"(?:(?:is |are )?not (?:natively )?supported|(?:is |are )?unsupported)"
A_DEVICE = r"(?:the |this |your |current |target |selected |sycl |xpu |gpu )+(?:device|platform|gpu|hardware|card)"
OTHERS_WITHOUT_IT = (
    r"\b(?:MPS|Metal|Apple|CUDA|NVIDIA|GeForce|OpenGL)\b|\b(?:if|whether|when) (?:the |this |your )"
)
"""Devices of other makers that refuse float64 too, and words of a condition."""
LIBRARIES_OF_ROCM = rf"(?:{AMDS}|libamd_comgr|librocprofiler[\w-]*|libroctracer\w*)"
TORCH_SYMBOL_INSIDE = r"(?=\w*(?:c10|2at|5torch|6caffe2))"
LIBRARIES_OF_ONEAPI = r"lib(?:ur_loader|ur_adapter_\w{2,20}|sycl|pi_\w{2,20}|umf|ccl)"
"""Libraries of Intel's oneAPI that torch's XPU wheels contain too."""
HEADERS_OF_ROCM = (
    r"(?:hip|hsa|hipcub|hip(?:blas|blaslt|fft|rand|solver|sparse)|roc(?:blas|fft|prim|rand|solver|sparse|thrust)"
    r"|miopen|rccl|amd_comgr|roctracer|rocprofiler)"
)
"""The folders of ROCm's own headers."""
STANDARD_HEADER = (
    r"(?:limits|c(?:math|stdint|stddef|stdlib|string|limits|assert|float|stdio)|algorithm|array"
    r"|atomic|chrono|complex|functional|initializer_list|iostream|map|memory|mutex|new|numeric"
    r"|ostream|sstream|stdexcept|string|tuple|type_traits|utility|vector)"
)
"""Headers of the C++ standard library, which have no suffix."""


def rocm_compiles(context: RuleContext) -> bool:
    """Whether the compiler that lacks a header is ROCm's: its folder is named, or the GPU or torch
    is for AMD."""
    if any("by" in event.values for event in events(context, "rocm-headers-missing")):
        return True
    # ROCm does not exist for macOS, where Apple's clang prints the same message.
    if on(context, "macos") or has_nvidia(context):
        return False
    return maker_of(context.torch.backend) == "amd" or "amd" in vendors_of(context.snapshot)


CAUSES = (
    Cause(
        "xpu-no-float64",
        certain_if=proofs.message_states_it,
        title="This Intel GPU does not compute float64, and the program uses it",
        means="torch reached the GPU, so its driver and torch's build work. Arc A cards and Iris "
        "Xe graphics have no float64 in hardware.",
        text="Use float32, or move the operation to the CPU",
        # Source: SYCL 2020, "Device aspects" (fp64); torch-xpu-ops of torch 2.5; Intel's oneAPI
        # documentation and compute-runtime's FAQ on the emulation of double precision.
        stage="first-kernel",
        way=xpu.without_float64,
        beside_torch="Use the program's newest release or its Vulkan build. Or let Intel's driver "
        "emulate float64, which is slow: set OverrideDefaultFP64Settings=1 and "
        "IGC_EnableDPEmulation=1",
        explains=("intel-gpu", "no-nvidia-gpu"),
        says=(
            r"Required aspect fp64 is not supported",
            says(
                rf"\b{DOUBLE} {NOT_SUPPORTED} (?:on|by) {A_DEVICE}\b",
                "fp64",
                "float64",
                "double",
                unless=OTHERS_WITHOUT_IT,
            ),
            says(
                rf"\b{A_DEVICE} (?:does not|doesn't|has no|lacks) (?:natively |native )?(?:support(?:s|ing)? )?(?:for )?{DOUBLE}",
                "fp64",
                "float64",
                "double",
                unless=OTHERS_WITHOUT_IT,
            ),
        ),
        examples=(
            "RuntimeError: Required aspect fp64 is not supported on the device",
            "terminate: Double type is not supported on this platform",
            "RuntimeError: The device does not support double precision",
        ),
        not_examples=(
            "whether the device does not support double precision",
            "Metal: this GPU does not support double precision",
        ),
    ),
    Cause(
        "torch-lacks-device",
        certain_if=proofs.message_states_it,
        title='The installed torch is too old for the device "{device}"',
        plain="The installed torch is too old for the device mps or xpu",
        means="torch has the device mps since 1.12, and the module torch.mps since 2.1 (in 2.0 "
        "only after `import torch.mps`). Ordinary builds have the module torch.xpu since 2.3. An "
        "older torch does not know the name, whatever GPU the machine has.",
        text="Install a newer torch",
        # Source: torch's release notes of 1.12 and 2.0; huggingface/transformers issue 31563 (2.3).
        stage="import",
        way=apple.newer_torch_for_a_device,
        explains=("apple-silicon", "intel-gpu", "no-nvidia-gpu", "program-failed"),
        says=(
            r"Expected one of cpu, cuda[\w, ]{0,200} device type at start of device string: (?P<device>mps|xpu)\b",
            r"module ['\"]torch(?:\.backends)?['\"] has no attribute ['\"](?P<device>mps|xpu)['\"]",
        ),
        examples=(
            "RuntimeError: Expected one of cpu, cuda, xpu, mkldnn, opengl, hip, vulkan, meta, hpu "
            "device type at start of device string: mps",
            "AttributeError: module 'torch' has no attribute 'xpu'",
        ),
    ),
    Cause(
        "rocm-libraries-mixed",
        title="{library} and the other ROCm libraries come from different releases",
        plain="ROCm's libraries come from different releases",
        means="Each ROCm library fits only the libraries of the same release. After a partial "
        "update, or if LD_LIBRARY_PATH names another ROCm, one library lacks a function that "
        "another one calls.",
        text="Update all ROCm packages together",
        # Source: ld.so(8); the symbol versions of libamdhip64.so (hip_4.2, hip_6.0 and others).
        stage="import",
        way=rocm.one_release,
        explains=("torch-import-failed", "amd-gpu"),
        says=(
            rf"(?P<library>{LIBRARIES_OF_ROCM}\.so[.\d]*):? (?:undefined symbol|symbol lookup error)\b(?::? (?P<symbol>\w+))?",
            says(
                r"/opt/rocm[^\s:'\"]{0,120}/(?P<library>[\w.+-]{2,60}\.so[.\d]*): undefined symbol: (?P<symbol>\w+)",
                "/opt/rocm",
            ),
            rf"(?P<library>{LIBRARIES_OF_ROCM}\.so[.\d]*): version [`'\"]?(?P<symbol>(?!GLIBC|CXXABI)[\w.+-]+)\W{{0,2}} not found",
            rf"symbol (?P<symbol>\w+),? version \S+ not defined in file (?P<library>{LIBRARIES_OF_ROCM}\.so[.\d]*)",
            # torch's library calls a function that the loaded ROCm lacks.
            r"(?P<library>lib(?:torch_hip|torch_cpu|c10_hip|caffe2_nvrtc)\.so): undefined symbol: (?P<symbol>(?:hip|roc|rccl|nccl|miopen|hsa_|amd_comgr)\w+)",
        ),
        examples=(
            "ImportError: librocblas.so.4: undefined symbol: _ZN7Tensile3hip15SolutionAdapterE",
            "/opt/rocm/lib/libfoo.so.1: undefined symbol: foo_start",
            "libamdhip64.so.6: version `hip_6.3' not found (required by /opt/rocm/lib/librccl.so.1)",
            "symbol hipMemCreate version hip_6.0 not defined in file libamdhip64.so.5 with link time reference",
            "ImportError: /x/torch/lib/libtorch_hip.so: undefined symbol: hipblasLtMatmulAlgoGetHeuristic",
        ),
        not_examples=("libamdhip64.so.6: version `GLIBC_2.34' is fine",),
    ),
    Cause(
        "torch-builds-mixed",
        title="torch's own library {library} does not fit torch's other libraries",
        plain="torch's own libraries come from different builds",
        means="torch's libraries fit each other only if they come from one build. Here torch was "
        "compiled in parts, or a second copy of torch is loaded first.",
        text="Use one prebuilt torch in a new environment",
        # Source: ld.so(8); PyTorch's cmake/Dependencies.cmake (HIP's flag -fclang-abi-compat=17).
        stage="import",
        way=rocm.one_build,
        explains=("torch-import-failed", "amd-gpu", "intel-gpu"),
        says=(
            rf"(?P<library>lib(?:torch_hip|c10_hip|torch_xpu|c10_xpu)\.so): undefined symbol: (?P<symbol>_Z{TORCH_SYMBOL_INSIDE}\w*)",
        ),
        examples=(
            "ImportError: /x/torch/lib/libtorch_hip.so: undefined symbol: "
            "_ZNK2at10TensorBase14const_data_ptrIN3c104HalfELi0EEEPKT_v",
        ),
        not_examples=("libtorch_xpu.so: undefined symbol: zeInit",),
    ),
    Cause(
        "oneapi-libraries-mixed",
        title="{library} of another oneAPI is loaded in place of the one that torch brings",
        plain="An installed oneAPI's libraries are loaded in place of torch's own",
        means="torch's XPU wheels contain Intel's SYCL runtime. After oneAPI's setvars.sh, "
        "LD_LIBRARY_PATH puts the libraries of the installed oneAPI first, and these fit another "
        "release only.",
        text="Start the program without oneAPI's variables",
        # Source: PyTorch, "Getting Started on Intel GPU"; ld.so(8).
        stage="import",
        way=xpu.without_oneapi,
        explains=("torch-import-failed", "intel-gpu"),
        says=(
            rf"(?P<library>{LIBRARIES_OF_ONEAPI}\.so[.\d]*): version [`'\"]?(?P<symbol>(?!GLIBC|CXXABI)[\w.+-]+)\W{{0,2}} not found",
            rf"(?P<library>{LIBRARIES_OF_ONEAPI}\.so[.\d]*): undefined symbol: (?P<symbol>\w+)",
        ),
        examples=(
            "ImportError: /opt/intel/oneapi/compiler/2025.1/lib/libur_loader.so.0: version "
            "`LIBUR_LOADER_0.10' not found (required by /x/libsycl.so.8)",
            "ImportError: /x/lib/libsycl.so.8: undefined symbol: urBindlessImagesImportFdExp",
        ),
        not_examples=("libsycl.so.8: version 2025.1 is installed",),
    ),
    Cause(
        "rocm-headers-missing",
        title="ROCm compiles a kernel and does not find the C++ header <{header}>",
        plain="ROCm compiles a kernel and does not find the C++ headers",
        means="MIOpen and hiprtc compile some kernels on first use. For that they need the headers "
        "of the system's C++ library. ROCm includes the compiler, but not these headers.",
        text="Install the development files of the C++ library",
        # Source: clang's documentation of its command line (--gcc-install-dir: the newest GCC
        # installation is taken); MIOpen's hipoc_program.cpp.
        stage="first-kernel",
        where=(rocm_compiles,),
        way=rocm.headers_of_cpp,
        explains=("amd-gpu", "triton-build-failed"),
        says=(
            says(rf"fatal error: '(?P<header>{STANDARD_HEADER})' file not found", "file not found"),
            says(
                rf"(?:/comgr-\w+/|hiprtc)\S{{0,120}} fatal error: '(?P<header>{STANDARD_HEADER})' file not found",
                "file not found",
                by="ROCm",
            ),
        ),
        examples=("/tmp/comgr-1/input/x.cpp:39:10: fatal error: 'limits' file not found",),
        not_examples=(
            "MIOpen was installed. my.cpp:1:10: fatal error: 'mine.h' file not found",
            "fatal error: 'cmath.inc' file not found",
        ),
    ),
    Cause(
        "rocm-sdk-incomplete",
        title="ROCm's header {header} is missing",
        plain="A header of ROCm is missing",
        means="torch's wheels include ROCm's libraries but not its headers. A program or an "
        "extension that you compile needs ROCm's development packages, in one release that has "
        "every header that the code includes.",
        text="Install ROCm's development packages, or compile with another ROCm",
        # Source: AMD, "ROCm on Linux: meta packages" (rocm-hip-sdk, rocm-dev).
        stage="build",
        way=rocm.development_files,
        explains=("amd-gpu", "extension-build-failed"),
        says=(
            says(
                rf"(?:fatal error|error): ['\"<]?(?P<header>{HEADERS_OF_ROCM}/[\w./ -]{{1,80}}?\.(?:h|hpp|cuh))['\">]?:? (?:file not found|No such file)",
                "file not found",
                "no such file",
            ),
        ),
        examples=(
            "/opt/rocm/include/hip/hip_bf16.h:30:10: fatal error: 'hip/amd_detail/amd_hip_bf16.h' file not found",
            "fatal error: rocblas/rocblas.h: No such file or directory",
        ),
        not_examples=("fatal error: 'mine/mine.h' file not found",),
    ),
    Cause(
        "macos-too-old",
        title="This program was built for a newer macOS: macOS lacks {symbol}",
        plain="A program was built for a newer macOS than this one",
        means="macOS loads a program only if its system libraries have every function that the "
        "program calls. torch and the GPU are not reached.",
        text="Update macOS, or use a build of the program for this macOS",
        # Source: Apple's dyld (the messages "Symbol not found" and "Expected in").
        stage="import",
        way=apple.for_older_macos,
        explains=("apple-silicon", "torch-import-failed", "program-failed"),
        says=(
            r"Symbol not found:? \(?(?P<symbol>_\w+)\)?.{0,600}?Expected in: \W{0,3}(?:<\S+> )?/?(?:usr/lib/libSystem|usr/lib/libc\+\+|System/Library)",
            r"Symbol not found:? \(?(?P<symbol>_\w+)\)?.{0,300}?which is newer than running OS",
        ),
        examples=(
            "dlopen(/Applications/x.app/Python): Symbol not found: (_mkfifoat) Referenced from: "
            "'/Applications/x.app/Python' Expected in: '/usr/lib/libSystem.B.dylib'",
            "dyld[1]: Symbol not found: _kIOMainPortDefault Referenced from: /x/lib.dylib "
            "(built for macOS 13.0 which is newer than running OS)",
        ),
        not_examples=("Symbol not found: _PyExc Expected in: /Users/me/lib/libpython3.9.dylib",),
    ),
    Cause(
        "level-zero-headers-missing",
        title="Level Zero's development headers are missing ({header})",
        plain="Level Zero's development headers are missing",
        means="Triton for Intel GPUs compiles a small helper on first use, which needs the headers "
        "of Level Zero. The graphics driver includes only Level Zero's loader. torch and the "
        "driver are fine.",
        text="Install Level Zero's development headers",
        # Source: intel-xpu-backend-for-triton, third_party/intel/backend/driver.py (ZE_PATH);
        # level-zero's releases.
        stage="first-kernel",
        way=xpu.level_zero_headers,
        explains=("intel-gpu", "triton-build-failed"),
        says=(
            r"level_zero/(?P<header>ze\w*\.h)['\">]{0,2}:? (?:file not found|No such file)",
            r"(?:Cannot open include file|cannot find)\W{1,3}level_zero/(?P<header>ze\w*\.h)",
        ),
        examples=(
            "sycl_functions.h:13:10: fatal error: 'level_zero/ze_api.h' file not found",
            "error C1083: Cannot open include file: 'level_zero/ze_api.h'",
        ),
    ),
)
