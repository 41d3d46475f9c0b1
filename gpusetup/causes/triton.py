"""Triton: missing, or its kernels cannot be built."""

from __future__ import annotations

from gpusetup.catalog.companion_table import companion_table, releases_for
from gpusetup.causes.record import Cause, Message
from gpusetup.evidence.context import RuleContext
from gpusetup.evidence.places import ON_LINUX, ON_MACOS, ON_WINDOWS, no
from gpusetup.fixes import paste
from gpusetup.messages.fragments import IN_A_BUILD, LINKS_AN_EXTENSION
from gpusetup.messages.row import says
from gpusetup.model.shell import Lines


def _triton_windows(context: RuleContext) -> Lines:
    build, torch = companion_table().project("triton-windows"), context.torch.version
    pinned = releases_for(build, torch)[:1] if build and torch else ()
    return tuple(paste.pip(context, "install", f"triton-windows{one}") for one in pinned)


CAUSES = (
    Cause(
        "triton-missing-windows",
        title="torch.compile needs Triton, and torch for Windows does not include it",
        means="torch includes Triton on Linux only.",
        text="Install the community's build, triton-windows, of the release that fits this torch "
        "(2.4 or newer), or run without torch.compile",
        proven_by="Windows has a CUDA build of torch and no triton",
        stage="first-kernel",
        where=(no(ON_LINUX), no(ON_MACOS)),
        commands=_triton_windows,
        says=(
            r"Cannot find a working triton installation",
            r"Windows not yet supported for torch\.compile",
            "tritonmissing",
            says(
                r"No module named ['\"]?triton\b(?!\.(?:ops|common|compiler))",
                unless="matching Triton is not available|comfy_kitchen|unavailable_reason",
            ),
            r"(?:no matching distribution found for|could not find a version that satisfies the requirement) triton\b",
        ),
        examples=(
            "ModuleNotFoundError: No module named 'triton'",
            "ERROR: No matching distribution found for triton==2.1.0",
        ),
        not_examples=("if it fails because triton is not installed",),
    ),
    Cause(
        "triton-missing",
        title="torch.compile finds no working Triton",
        means="torch's Linux wheels depend on it: it was removed or replaced, does not import, or "
        "gets no answer from the driver.",
        text='Install the version that torch requires; `python -c "import triton"` says why it '
        "does not import",
        not_when="triton-missing-windows; triton-no-compiler: Triton is there",
        source="torch/_inductor/scheduler.py",
        stage="first-kernel",
        events=("triton-missing-windows",),
        where=(ON_LINUX,),
        look=("pip check",),
        see="check which version torch requires",
    ),
    Cause(
        "triton-build-failed",
        title="Triton cannot build its helper: its C code does not compile",
        means="A C compiler runs, and does not find libcuda.so, cuda.h or Python.h.",
        text="Read the compiler's first error above",
        not_when="triton-no-compiler: there is no compiler",
        source="Triton's sources (build.py, driver.py)",
        stage="first-kernel",
        explains=("triton-no-compiler",),
        cases=(
            Message(
                having={"lacks": "cuda$|libcuda"},
                title="Triton cannot build its helper: the linker finds no libcuda.so",
                text="Set TRITON_LIBCUDA_PATH and LIBRARY_PATH to the folder of the driver's "
                "libcuda.so.1, or make the link libcuda.so next to it",
                look=("ldconfig -p | grep libcuda",),
                see="find it",
            ),
            Message(
                having={"lacks": "^(?:cuda.h|ptxas)$"},
                title="Triton cannot build its helper: it finds no {lacks}",
                text="Reinstall Triton, whose wheel has it, or set CUDA_HOME to a toolkit",
                look=("pip check",),
            ),
            Message(
                having={"lacks": "python.h"},
                title="Triton cannot build its helper: the compiler finds no Python.h",
                text="Install the headers of this Python (python3-dev, python3-devel; an embedded "
                "one on Windows: copy the folders include and libs of a full Python of the same "
                "version next to python.exe)",
            ),
        ),
        says=(
            says(r"cannot find (?P<lacks>-lcuda)\b(?!rt)", unless=LINKS_AN_EXTENSION),
            says(
                r"(?P<lacks>Python\.h): No such file",
                unless=r"building '[\w.]{1,60}' extension|Building wheel|setup\.py|Failed building",
            ),
            r"include file '(?P<lacks>Python\.h|cuda\.h)' not found",
            r"error: (?P<lacks>cuda\.h): No such file",
            says("cannot find ptxas", lacks="ptxas"),
            says(r"libcuda\.so cannot found", lacks="libcuda.so"),
            says(
                r"`?ptxas`? failed with error code (?!\d{0,9}:? ?.{0,300}?(?:is not defined for option|Unsupported \.version))-?\d{1,10}",
                lacks="a ptxas that runs",
            ),
            says(
                r"(?:/|\\)(?:main|driver|cuda_utils|__triton_\w+|stub)\.(?:c(?:pp)?|cp3\d{1,2}-\w{3,12}\.pyd|cpython-[\w-]{3,40}\.so)\b.{0,900}returned non-zero exit status",
                lacks="headers",
            ),
            says(
                r"\btriton\b.{0,300}?undefined symbol:? ?[`'\"]?cu(?!Tensor)[A-Z][a-z]\w+",
                lacks="libcuda",
            ),
        ),
        examples=(
            "/usr/bin/ld: cannot find -lcuda: No such file or directory",
            "main.c:3:10: fatal error: Python.h: No such file or directory",
            "main.c(2): error C1083: Cannot open include file: 'cuda.h': include file 'cuda.h' not found",
            "driver.c:1:10: fatal error: cuda.h: No such file or directory",
            "subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/x/cuda_utils.c', '-O3', '-shared']' returned non-zero exit status 1.",
            "RuntimeError: `ptxas` failed with error code 4294967295:",
            "/root/.triton/cache/0a/cuda_utils.so: undefined symbol: cuModuleGetFunction",
        ),
    ),
    Cause(
        "triton-no-compiler",
        title="torch.compile needs a C compiler and none is on PATH",
        means="Triton builds a small helper with it.",
        text="Install one (gcc), or set CC to an installed one",
        proven_by="PATH has no cc, gcc or clang",
        stage="first-kernel",
        commands=("package gcc",),
        needs_root=True,
        cases=(
            Message(
                where=(ON_WINDOWS,),
                text="Install the newest triton-windows, which includes a compiler (TinyCC); its "
                "older releases need MSVC: the Build Tools for Visual Studio, with C++",
                commands=("pip install --upgrade triton-windows",),
            ),
        ),
        alike={"gcc --version": ("compiler-missing",)},
        says=(
            "failed to find c compiler",
            r"No working C(?:\+\+)? compiler found",
            "invalidcxxcompiler",
            "compiler: cl is not found",
            says(
                r"No such file or directory: '(?P<compiler>gcc|cc|clang|g\+\+|c\+\+|x86_64-linux-gnu-gcc)'",
                unless=IN_A_BUILD,
            ),
        ),
        examples=(
            "torch._inductor.exc.InvalidCxxCompiler: No working C++ compiler found in torch._inductor.config.cpp.cxx",
            "FileNotFoundError: [Errno 2] No such file or directory: 'gcc'",
        ),
    ),
)
