"""Messages of extension builds, compilers and Triton.

Sources: torch/utils/cpp_extension.py of torch 1.0 to 2.13, the setup files of apex, flash-attn and
DeepSpeed, nvcc's host check, Triton 1 to 3 (build.py, driver.py), torch/_inductor, ld, gcc, uv, pip.
"""

from __future__ import annotations

from gpusetup.messages.fragments import IN_A_BUILD
from gpusetup.messages.row import row, rows

WHAT = r"(?:-r [\w./-]{1,60}|-e \S{1,60}|\.(?!\w)|[\w.@:/+\[\]=<>~-]{2,80})"

BY_THE_WAY = r"(?:[\s\"'`,.:]{1,6}(?:it|I|and|but|then|always|get|gets|got|keeps?|tells?|says?|gives?|gave|shows?|the|this|an?|me|error|following|fails?|failed|with|still|returns?|reports?|raises?|throws?|see|saw|saying|that|command|message))"
"""Words of somebody between a command and what it said."""
LINKS_AN_EXTENSION = r"ninja: build stopped|error: command '\S{1,200}' failed|make(?:\[\d\])?: \*\*\*|Failed building wheel|Failed to build\b"
"""What follows a linker's error in a build of many files; Triton's helper is one file."""

ROWS = (
    *rows(
        "cuda-toolkit-mismatch-extension-build",
        {
            "mismatches the version that was used to": r"(?:detected )?CUDA version \((?P<nvcc>\d+\.\d+)[\d.]*\) mismatches the version that was used to compile(?: PyTorch \((?P<torch>\d+\.\d+)[\d.]*\))?",
            "detected cuda version (%s)": r"detected CUDA version \(%s\) mismatches .{0,160}?CUDA versions\.', '(?P<nvcc>\d+\.\d+)', '(?P<torch>\d+\.\d+)'",
            "installed cuda version": r"Installed CUDA version (?P<nvcc>\d+\.\d+) does not match the version torch was compiled with (?P<torch>\d+\.\d+)(?! but since the APIs are compatible)",
            "does not match the version used to compile": r"version of Cuda that does not match the version used to compile Pytorch binaries(?:.{0,80}compiled with Cuda (?P<torch>[\d.]+\d))?",
            "compiled with different cuda": (
                r"""(?x)
        PyTorch\ and\ (?P<module>(?!torchvision|torchaudio)[\w-]+)\ were\ compiled\ with\ different\ CUDA\ versions\.\ PyTorch\ has\ CUDA\ version
        \ (?P<torch>[\d.]+\d)\ and\ \w+\ has\ CUDA\ version
        \ (?P<nvcc>[\d.]+\d)
        """
            ),
            "only supported on cuda": r"(?P<module>\w+) is only supported on CUDA (?P<needs>[\d.]+\d) and above",
        },
    ),
    row(
        "cuda-toolkit-mismatch-extension-build",
        "assert_no_cuda_mismatch",
        r"in assert_no_cuda_mismatch\b|(?<!def )\bassert_no_cuda_mismatch\(\)",
        unless=r"CUDA_HOME does not exist|MissingCUDA",
    ),
    *rows(
        "cuda-toolkit-missing",
        {
            "cuda_home": (
                r"CUDA_HOME (?:environment variable )?(?:is not set|does not exist|not set|is undefined)"
                r"(?:(?=.{0,1200}?(?:\u2500> (?!See )|Failed building wheel for |Failed to build `|Failed to build (?!inst))(?P<package>\w[\w-]{1,40}))|)"
            ),
            "nvcc": (
                r"(?:Failed|Could not|Unable) to find nvcc|Could not find nvcc"
                r"|(?:cannot|can't|could not|unable to|not able to) find [`'\"]?(?:(?:[A-Z]:)?(?:[/\\]{1,2}[\w.()-]{1,40}){1,10}[/\\]{1,2})?nvcc\b"
            ),
            "could not find cuda": r"Could not find CUDA(?: \(missing| toolkit|\W{0,3}$)",
            "find cudatoolkit": r"Could NOT find CUDAToolkit",
            "target was not found": r"links to:?\s{1,20}CUDA::\w{2,30}\s{1,20}but the target was not found",
            "notfound": r"\bCUDA_(?!CUDA_LIB)\w{2,30}_LIBRARY(?: \(ADVANCED\))?(?::FILEPATH)?[ :=]{1,4}(?:CUDA_\w{2,30}-)?NOTFOUND",
            "cmake_cuda_compiler": r"No CMAKE_CUDA_COMPILER could be found|CMAKE_CUDA_COMPILER(?:-| is set to a )NOTFOUND",
            "cuda toolset": r"No CUDA toolset found",
            "cuda_runtime": r"fatal error: (?P<path>cuda_runtime(?:_api)?\.h)",
            "fatal error: ": (
                r"""(?x)
        fatal\ error:\ (?P<path>(?:cuda_(?:fp16|bf16|profiler_api)|cusparse|cublas\w*|cusolver\w*|curand\w*|cufft\w*|nvToolsExt|nvtx3/\w+|thrust/[\w/]+|cub/[\w/]+)\.
          (?:h|cuh))
        """
            ),
        },
    ),
    row(
        "cuda-toolkit-missing",
        "nvcc",
        r"nvcc\W{0,3}: (?:command )?not found|nvcc\W{1,2} is not recognized|command not found: nvcc|nvcc was not found|Command 'nvcc' not found",
        who="shell",
    ),
    row(
        "cuda-toolkit-missing",
        "nvcc",
        r"No such file or directory:? '?(?P<path>\S{0,160}nvcc(?:\.exe)?)\b",
    ),
    row(
        "cuda-toolkit-missing",
        "nvcc",
        r"(?P<path>[\w/.-]{1,160}/nvcc)'?: (?:not found|no such file)",
        who="shell",
    ),
    *rows(
        "program-requirement-missing",
        {
            "find cudnn": r"Could NOT find CUDNN\b|CUDNN_(?:LIBRARY|INCLUDE_DIR)\S{0,12}[ :=]{1,4}\S{0,30}NOTFOUND",
            "-lcudnn": r"cannot find -lcudnn\b",
        },
        lacks="cuDNN with its headers (NVIDIA's packages libcudnn9-dev-cuda-12 or -13)",
        step="build",
    ),
    row(
        "cuda-toolkit-missing",
        "cuda toolkit",
        r"(?<!if )(?<!if the )\b(?:CUDA [Tt]oolkit (?:is |was |isn't |is not )?(?:missing|not (?:installed|found|detected))|without (?:the |a )?CUDA [Tt]oolkit (?:being )?installed)",
        unless=r"\b(?:[Ii]f|unless|[Mm]ake sure|whether)\b[^.\n]{0,60}CUDA [Tt]oolkit|warning: CUDA [Tt]oolkit",
    ),
    row(
        "cuda-toolkit-missing",
        "getattr(_c, name)",
        r"getattr\(_C, name\).{0,160}?'NoneType' object has no attribute",
        who="extension",
    ),
    *rows(
        "build-isolation-no-torch",
        {
            "torch is not": r"torch is not (?:\w+ ){0,2}in (?:its |the )?build[- ](?:system )?(?:dependencies|requirements|requires)",
            "build dependency": r"depends on `?torch`?, but doesn't declare it as a build dependency",
            "no module named": (
                r"""(?x)
        Collecting\ (?P<package>[\w.@:/+\[\]~-]{2,120})
        (?:(?!Collecting\ )[^\0]){0,200}?
        (?:Getting\ requirements\ to\ build|Preparing\ metadata|setup\.py\ egg_info)
        (?:(?!Collecting\ )[^\0]){0,1500}?No\ module\ named\ ['\"]?torch['\"]?
        (?![\w.])
        """
            ),
            "pip": r"No module named ['\"]?torch['\"]?[\s\"'`,.]{0,6}(?:error )?(?:when|while|during|on|at|upon) (?:(?:I|we|you|try(?:ing)? to|run(?:ning)?|do(?:ing)?|us(?:e|ing)|execut(?:e|ing)|call(?:ing)?) ){0,3}[\"'`]{0,3}pip3? install\b",
        },
    ),
    row(
        "build-isolation-no-torch",
        "no module named",
        r"Failed to (?:download and )?build:? `(?P<package>[\w.-]{2,60})[^\0]{0,1500}?No module named ['\"]?torch['\"]?(?![\w.])",
    ),
    row(
        "build-isolation-no-torch",
        "no module named",
        r"""(?x)
        (?:build-env|builds-v0|build_meta|get_requires_for_build|build_wheel|build_editable
          |build\ backend\ returned|Failed\ to\ build\ `).{0,900}No\ module\ named\ ['\"]?torch['\"]?
        (?![\w.])
        """,
    ),
    row(
        "build-isolation-no-torch",
        "no module named",
        r"No module named ['\"]?torch['\"]?(?![\w.]).{0,400}(?:Getting requirements to build|Failed to build `|build backend returned|Preparing metadata \(pyproject)"
        r"|No module named ['\"]?torch['\"]?(?![\w.]).{0,900}\bpip3? install\b.{0,600}?Getting requirements to build \w+ \.\.\. error"
        r"|No module named ['\"]?torch['\"]?(?![\w.]).{0,900}[/\\]pip-build-env-\w+[/\\].{0,300}?\bget_requires_for_build",
    ),
    row(
        "build-isolation-no-torch",
        "[end of output]",
        r"File \"<string>\", line \d{1,4}, in .{0,200}?No module named ['\"]?torch['\"]?(?![\w.])\s{0,4}\[end of output\]",
        unless=r"--no-build-isolation",
    ),
    row(
        "build-isolation-no-torch",
        "pip",
        rf"\bpip3? install {WHAT}{BY_THE_WAY}{{0,14}}[\s\"'`,.:]{{1,6}}(?:ModuleNotFoundError:? ?)?No module named ['\"]?torch['\"]?(?![\w.])",
        unless=r"\bimport torch|python3? \S{1,60}\.py",
    ),
    row(
        "extension-arch",
        "arch flags",
        r"(?<![\w-])(?P<module>(?!torchvision)[a-z][\w-]{1,40}) arch flags (?P<arches>\d\.\d(?:, \d\.\d){0,12})",
    ),
    *rows(
        "compiler-too-new",
        {
            "unsupported gnu version": r"unsupported GNU version! gcc versions later than (?P<compiler>4\.\d|\d+)",
            "unsupported microsoft visual studio": r"unsupported Microsoft Visual Studio version",
        },
    ),
    row(
        "compiler-too-new",
        "unsupported gnu version",
        r"unsupported GNU version! gcc 4\.9 and up are not supported",
        compiler="4.8",
    ),
    *rows(
        "build-without-gpu",
        {
            "cuda_architectures is set to": r"CUDA_ARCHITECTURES is set to \W{0,2}native\W{0,2}, but no GPU was detected",
            "_get_cuda_arch_flags": r"_get_cuda_arch_flags.{0,200}?IndexError: list index out of range",
        },
    ),
    row(
        "extension-too-old-for-torch",
        "thc/",
        r"(?P<header>THC/\w{2,40}\.(?:h|cuh|hpp))['\"]?: No such file",
    ),
    row("ninja-missing", "ninja is required to load"),
    *rows(
        "cxx-standard-too-old",
        {
            "compatible compiler is required to use": r"C\+\+(?P<needs>1[47]|2\d) or later compatible compiler is required to use (?:ATen|PyTorch)",
            "you need c++": r"You need C\+\+(?P<needs>1[47]|2\d) to compile PyTorch",
        },
        who="build",
    ),
    row(
        "cxx-standard-too-old",
        "-std=",
        r"(?:unrecognized|unknown|invalid) (?:command[- ]line )?(?:option|argument|value) ['\"]?-?-?(?:std=)?(?:c|gnu)\+\+(?P<needs>1[47]|1z|2\d)",
        who="compiler",
    ),
    row(
        "cxx-standard-too-old",
        "is not defined for option 'std'",
        r"Value 'c\+\+(?P<needs>1[47]|2\d)' is not defined for option 'std'",
        who="nvcc",
    ),
    *rows(
        "compiler-missing",
        {
            "visual c++": r"Microsoft Visual C\+\+ 1[04]\.\d (?:or greater )?is required",
            "cl.exe": r"Unable to find cl\.exe|Cannot find compiler '?cl\.exe'? in PATH",
            "where cl": r"where cl.{0,20}returned non-zero",
            "compiler version for cl": (
                r"Error checking compiler version for cl: \[WinError 2\](?=.{0,1100}?(?:(?<!CUDA )error: |Failed building wheel))"
                r"|\b(?:subprocess-exited-with-error|running (?:build|bdist_wheel|build_ext)|Building from source)\b.{0,900}?Error checking compiler version for cl: \[WinError 2\]"
            ),
        },
    ),
    *rows(
        "triton-missing-windows",
        {
            "triton": r"Cannot find a working triton installation",
            "torch.compile": r"Windows not yet supported for torch\.compile",
            "tritonmissing": "",
        },
    ),
    row(
        "triton-missing-windows",
        "triton",
        r"No module named ['\"]?triton\b(?!\.(?:ops|common|compiler))",
        unless="matching Triton is not available|comfy_kitchen|unavailable_reason",
    ),
    row(
        "triton-missing-windows",
        "triton",
        r"(?:no matching distribution found for|could not find a version that satisfies the requirement) triton\b",
    ),
    *rows(
        "triton-no-compiler",
        {
            "failed to find c compiler": "",
            "no working c": r"No working C(?:\+\+)? compiler found",
            "invalidcxxcompiler": "",
            "compiler: cl is not found": "",
        },
    ),
    row(
        "triton-no-compiler",
        "no such file or directory",
        r"No such file or directory: '(?P<compiler>gcc|cc|clang|g\+\+|c\+\+|x86_64-linux-gnu-gcc)'",
        unless=IN_A_BUILD,
    ),
    *rows(
        "windows-path-too-long",
        {
            "longer than 260": r"(?:\S{1,160} )?\w+ longer than 260 characters",
            "[winerror 206]": "",
            "windows long path support": "",
            "torchinductor": r"No such file or directory: ?['\"][A-Za-z]:\\[^'\"]{200,700}['\"]",
            "could not install packages": r"(?:OS|Environment)Error: \[Errno 2\] No such file or directory: ?['\"][A-Za-z]:\\[^'\"]{220,700}['\"]",
        },
    ),
    row(
        "triton-build-failed",
        "-lcuda",
        r"cannot find (?P<lacks>-lcuda)\b(?!rt)",
        unless=LINKS_AN_EXTENSION,
    ),
    row(
        "cuda-lib-missing",
        "-lcuda",
        rf"cannot find (?P<library>-lcuda)\b(?!rt).{{0,160}}?(?:{LINKS_AN_EXTENSION})",
        by_the="linker",
    ),
    row(
        "triton-build-failed",
        "python.h",
        r"(?P<lacks>Python\.h): No such file",
        unless=r"building '[\w.]{1,60}' extension|Building wheel|setup\.py|Failed building",
    ),
    *rows(
        "triton-build-failed",
        {
            "include file": r"include file '(?P<lacks>Python\.h|cuda\.h)' not found",
            "cuda.h": r"error: (?P<lacks>cuda\.h): No such file",
        },
    ),
    row("triton-build-failed", "cannot find ptxas", lacks="ptxas"),
    row("triton-build-failed", "libcuda.so cannot found", lacks="libcuda.so"),
    row(
        "triton-build-failed",
        "failed with error code",
        r"`?ptxas`? failed with error code (?!\d{0,9}:? ?.{0,300}?(?:is not defined for option|Unsupported \.version))-?\d{1,10}",
        lacks="a ptxas that runs",
    ),
    row(
        "triton-build-failed",
        "returned non-zero exit status",
        r"(?:/|\\)(?:main|driver|cuda_utils|__triton_\w+|stub)\.(?:c(?:pp)?|cp3\d{1,2}-\w{3,12}\.pyd|cpython-[\w-]{3,40}\.so)\b.{0,900}returned non-zero exit status",
        lacks="headers",
    ),
)
