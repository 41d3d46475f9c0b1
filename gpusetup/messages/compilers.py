"""What compilers, linkers, setup files and pip say when a package is built, and what is then missing.

Sources, as of November 2026: CUDA's host headers (crt/host_config.h, math_functions.h) against
glibc 2.41 and gcc 11, MSVC's STL (yvals_core.h), torch/utils/cpp_extension.py, apex' setup.py,
ATen's removed macros and conversions, the setup files of Gaussian splatting's rasterizers, gcc's
driver, XLA's asm_compiler.cc, Cycles' device/cuda.
"""

from __future__ import annotations

from gpusetup.messages.fragments import IN_A_BUILD
from gpusetup.messages.imports import COMPILED_MODULE
from gpusetup.messages.row import NOT_SHOWN, row, rows

COMPILER = r"(?:(?:x86_64|aarch64)-(?:linux-gnu|conda-linux-gnu)-(?:gcc|g\+\+|cc|c\+\+)(?:-\d{1,2})?|gcc(?:-\d{1,2})?|cc|g\+\+(?:-\d{1,2})?|c\+\+|clang(?:\+\+)?|cl(?:\.exe)?)"
"""A C++ compiler, as a build calls it."""

REJECTED = r"CUDA_ERROR_INVALID_(?:PTX|HANDLE|IMAGE|SOURCE)"
"""What the driver answers to a kernel that it cannot use."""

NOT_BUILT_FOR = (
    r"not built with CUDA kernel binaries compatible with compute capability (?P<arch>\d{1,2}\.\d)"
)

BUILT_BY_HAND = (
    r"(?:flash_attn|flash_attn_interface|xformers|apex|tinycudann|diff_gaussian_rasterization\w{0,12}|simple_knn|nvdiffrast"
    r"|pytorch3d|gsplat|mamba_ssm|causal_conv1d|torch_scatter|torch_sparse|torch_cluster|torch_spline_conv|spconv"
    r"|detectron2|MinkowskiEngine|fused_ssim|natten|pointnet2_ops|kaolin|sageattention|custom_rasterizer|cumm|dcnv[34])"
)
"""Packages that are compiled against the torch that is there, by their modules."""

HOSTS = (
*rows("compiler-too-new", {
"unexpected compiler version": r"STL1002: Unexpected compiler version",
"exception specification is incompatible": r"mathcalls\.h[^\n]{0,40}?error: exception specification is incompatible with that of previous function",
"parameter packs not expanded": r"(?:std_function|functional)\S{0,12}: error: parameter packs not expanded with",
}),
*rows("compiler-missing", {
"cannot open include file": r"Cannot open include file: '(?:corecrt|crtdbg|stddef|io|ctype|basetsd|rc)\.h'",
"winerror 2]": r"running build_ext.{0,400}?error: \[WinError 2\]",
}),
*rows("cuda-toolkit-missing", {
"bare_metal_version": r"name 'bare_metal_version' is not defined",
"-lcudart": r"cannot find -lcudart(?:_static)?\b",
"cannot open source file": r"catastrophic error: cannot open source file \W?(?P<path>cuda\w*\.h|vector_types\.h|cub/\S{1,40})",
"auto-detect cuda root": r"Failed to auto-detect CUDA root directory",
}),
row(
        "jit-arch-rejected",
        "ptxas does not support cc",
        r"ptxas does not support CC (?P<arch>\d{1,2}\.\d)",
        compiler="XLA's assembler",
    ),
*(
        row(
            "jit-arch-rejected",
            "compatible with compute capability",
            pattern,
            compiler="The driver's compiler, for TensorFlow's kernels,",
        )
        for pattern in (
            rf"{NOT_BUILT_FOR}.{{0,600}}?{REJECTED}",
            rf"{REJECTED}.{{0,600}}?{NOT_BUILT_FOR}",
        )
    ),
*rows("extension-too-old-for-torch", {
"deprecatedtypeproperties": r"no suitable conversion function from \W?const at::DeprecatedTypeProperties\W{1,2} to",
"was not declared in this scope": r"\W(?:AT_CHECK|AT_ASSERTM?|THCState|THCudaCheck|THCudaBlas_\w+|THCCeilDiv)\W{1,3} ?was not declared in this scope",
"identifier \"": r"identifier \"(?:AT_CHECK|THCState|THCudaCheck|THCCeilDiv)\" is undefined",
}),
)  # fmt: skip

LEFT_OUT = (
    *rows(
        "extension-not-built",
        {
            "not compiled with": r"RuntimeError: Not compiled with (?:CUDA|GPU) support",
            "is not defined": r"NameError: (?:global )?name '(?P<module>(?!(?:use|has|is|no|with|to|on|enable|device|num|torch)_)(?:\w{2,30}_)?cuda(?:_(?:ext|ops|kernels?|\d{2,3}))|(?!(?:use|has|is|no|with|to|on|enable|device|num|torch)_)\w{2,30}_(?:cuda|cuda_ext|kernels|_C))' is not defined",
            "not implemented on the cpu": r"RuntimeError: \W?(?P<module>\w{3,40})?\W{0,2} ?Not implemented on the CPU",
            "'nonetype' object has no attribute '": r"'NoneType' object has no attribute '(?P<module>causal_conv1d|selective_scan|CameraModelType)\w*'",
        },
    ),
    row(
        "extension-not-built",
        "name '_c' is not defined",
        r"NameError: (?:global )?name '_C' is not defined",
        unless=r"torch[/\\]__init__\.py|groundingdino|grounding_dino",
    ),
    row(
        "extension-abi-mismatch",
        "undefined symbol",
        rf"(?P<module>{COMPILED_MODULE})[\w.-]{{0,60}}\.so:? undefined symbol\b(?!:? _)",
    ),
    row(
        "windows-dll-missing",
        "c10.dll",
        r"(?:error|fail\w*|problem)[^.\n]{0,30}? load(?:ing)? (?:the )?(?P<dll>c10\.dll)",
    ),
    row(
        "program-requirement-missing",
        "no module named",
        rf"No module named ['\"]?(?P<lacks>{BUILT_BY_HAND})['\"]?(?![.\w])",
    ),
    row(
        "program-requirement-missing",
        "appropriate backend to handle uri",
        r"Couldn't find appropriate backend to handle uri",
        program="torchaudio",
        lacks="a library that reads sound (FFmpeg, SoX or the package soundfile)",
    ),
)

OF_ANOTHER_TIME = (
    row(
        "program-release-too-old",
        "no module named",
        r"No module named ['\"]?triton\.(?:ops|common|compiler\.code_generator)\b",
        beside="installed Triton",
    ),
    row(
        "program-release-too-old",
        "cannot import name",
        r"cannot import name ['\"](?P<name>triton_key|AttrsDescriptor|get_cuda_stream|JITFunction)['\"] from ['\"]triton",
        beside="installed Triton: each torch brings its own",
    ),
    row(
        "program-release-too-old",
        "is installed, but it is not compatible with the installed jaxlib",
        beside="installed jaxlib: plugin, jaxlib and jax are of one release",
        program="JAX",
    ),
    row(
        "program-release-too-old",
        "incompatible with jax version",
        r"jaxlib version \S{3,20} is (?:newer|older) than and incompatible with jax version",
        beside="installed jaxlib: jax and jaxlib are of one release",
        program="JAX",
    ),
)

COMPILERS = (
    row(
        "compiler-missing",
        "no such file or directory",
        rf"No such file or directory: '{COMPILER}'(?=.{{0,900}}?{IN_A_BUILD})|{IN_A_BUILD}.{{0,900}}?No such file or directory: '{COMPILER}'",
        unless=r"inductor|triton",
    ),
    *rows(
        "compiler-missing",
        {
            "' failed: no such file": rf"error: command '{COMPILER}' failed: No such file",
            "unable to execute '": rf"unable to execute '{COMPILER}': No such file",
            "_compiler could be found": r"No CMAKE_C(?:XX)?_COMPILER could be found",
            "environment variable c": r"Could not find compiler set in environment variable C(?:C|XX)\b",
            "vcvarsall.bat": r"Unable to find vcvarsall\.bat",
            "instance of visual studio": r"could not find any instance of Visual Studio",
            "visual studio installation": r"(?:find|no) a (?:compatible|suitable|valid) Visual Studio installation",
            "failed with: no such file": r"Running 'nmake' '-\?' failed with: no such file",
            "is not recognized": r"\W?\bcl(?:\.exe)?\b\W? is not recognized as (?:an internal|the name)",
            "no compiler found": r"nvcc fatal ?: No compiler found",
            "linker `": r"error: linker `(?:cc|link\.exe)` not found",
            "c++ compiler": r"(?:Could not|Couldn't|Cannot|can't|Unable to|Failed to) find an? (?:working |suitable )?C\+\+ compiler",
            "'which', '": r"Command '\['which', '(?:c|g)\+\+'\]' returned non-zero",
            "which: no ": rf"which: no (?:g\+\+|c\+\+|gcc) in \(.{{0,900}}?{IN_A_BUILD}|{IN_A_BUILD}.{{0,900}}?which: no (?:g\+\+|c\+\+|gcc) in \(",
            ": command not found": rf"\b(?:gcc|cc): command not found.{{0,900}}?{IN_A_BUILD}|{IN_A_BUILD}.{{0,900}}?\b(?:gcc|cc): command not found",
            "cc1plus": r"(?:cannot execute|error trying to exec|can't exec) \W?cc1plus\W{1,3}",
        },
    ),
    row(
        "compiler-missing",
        "g++",
        r"\b(?:g\+\+|c\+\+): (?:command )?not found",
        unless=r"\bnvidia-\w|NVIDIA-Linux|\bdkms\b",
    ),
    *rows(
        "cuda-toolkit-missing",
        {
            "invoke ptxas": r"(?:Couldn't|Could not|Failed to) invoke ptxas\b",
            "launch ptxas": r"(?:Couldn't|Could not|Failed to) launch ptxas\b",
        },
    ),
    row("ptx-unsupported-toolchain", "unsupported ptx version", r"\bunsupported PTX version\b"),
)

OF_A_BUILD = (
    row(
        "program-failed",
        "building wheel for",
        r"Building wheel for [A-Za-z][\w.-]{1,40} \((?:setup\.py|pyproject\.toml)\)\W{1,6}error\b|ERROR: Failed building wheel for [A-Za-z]",
        stage="build",
        why=NOT_SHOWN,
        says="The build of a package failed, and the lines that say why are not in this text",
        way="Build it once more with `pip install -v --no-build-isolation` and read the first line with "
        "`error:`; for CUDA it needs a compiler, and a toolkit of this torch's CUDA major",
    ),
)

FIRST_ERROR = (
    "The first line with `error:` above says why; the usual reasons are sources that are older than this "
    "torch, a toolkit of another CUDA major, and too little memory (MAX_JOBS=2)"
)
UNSHOWN = {"why": NOT_SHOWN}
BUILDS = tuple(
    row("program-failed", needle, pattern, stage="build", says=says, way=FIRST_ERROR, **why)
    for needle, pattern, says, why in (
        ("error compiling objects for extension", "", "The build of an extension failed in the compiler", UNSHOWN),
        (
            "with exit ",
            r"error: command '?\S{0,200}?(?:nvcc|cl\.exe|link\.exe|gcc|g\+\+|c\+\+|cc|clang\+\+|hipcc)'? failed with exit (?:code|status) \d{1,10}",
            "The build of an extension failed in the compiler",
            UNSHOWN,
        ),
        ("distutils_use_sdk is not set", "", "The build runs in Visual Studio's shell, without DISTUTILS_USE_SDK=1", {}),
    )
)  # fmt: skip

LONG_PATH = r"[A-Za-z]:\\[^'\"\n]{200,900}"

PIPS = (
    row(
        "program-requirement-missing",
        "is not installable",
        r"Directory ['\"](?P<lacks>[^'\"]{1,120})['\"] is not installable\. Neither ['\"]setup\.py['\"] nor ['\"]pyproject\.toml['\"] found",
        program="pip",
    ),
    row(
        "windows-path-too-long",
        "no such file or directory",
        rf"(?:InvalidArchiveError|Error with archive|Cannot extract|failed with error).{{0,900}}?\[Errno 2\] No such file or directory: ?['\"]{LONG_PATH}['\"]",
    ),
    row(
        "host-out-of-memory",
        "killed",
        r"\.whl \([\d.]{1,8} [kMG]B\)(?:[^A-Za-z]{0,120}(?:[kMG]B(?:/s)?[^A-Za-z]{0,40}){0,3})? Killed\b",
        who="pip",
    ),
)

ROWS = (*HOSTS, *LEFT_OUT, *OF_ANOTHER_TIME, *COMPILERS, *OF_A_BUILD, *BUILDS, *PIPS)
