"""Packages that do not fit the installed torch: torchvision, NumPy, MKL, Triton, and packages that
check their versions."""

from __future__ import annotations

from gpusetup.catalog.companion_table import companion_table, releases_for
from gpusetup.causes import alike
from gpusetup.causes.record import Cause, CheckCommand, Message, Refutation
from gpusetup.evidence import facts, proofs
from gpusetup.evidence.command_values import is_a_path
from gpusetup.evidence.context import RuleContext
from gpusetup.evidence.places import ON_LINUX, ON_MACOS, ON_WINDOWS, no
from gpusetup.fixes import paste
from gpusetup.messages.fragments import IN_A_BUILD, LINKS_AN_EXTENSION
from gpusetup.messages.row import says
from gpusetup.model.finding import Severity
from gpusetup.model.shell import Line, Lines


def _triton_windows(context: RuleContext) -> Lines:
    """The release of Triton for Windows that was made for the installed torch."""
    triton = companion_table().project("triton-windows")
    torch = context.torch.version
    if not triton or not torch:
        return ()
    newest_first = releases_for(triton, torch)
    if not newest_first:
        return ()
    return (paste.pip(context, "install", f"triton-windows{newest_first[0]}"),)


def conda_install(context: RuleContext, *words: str) -> Line:
    """A `conda install` command, into the target environment if its folder is known."""
    options: tuple[str, ...] = ()
    prefix = context.snapshot.conda.prefix or ""
    if is_a_path(prefix):
        options = ("--prefix", prefix)
    return paste.command(context, "conda", "install", "-y", *options, *words)


def _older_numpy(context: RuleContext) -> Lines:
    """The command that installs NumPy 1: with conda if it is the installer of this environment or
    of torch. The manager of Python counts only if torch's installer is unknown."""
    installer_of_torch = context.torch.installer or context.snapshot.python.manager
    if "conda" in (context.installer, installer_of_torch):
        return (conda_install(context, "numpy<2"),)
    return (paste.pip(context, "install", "numpy<2"),)


CAUSES = (
    Cause(
        "triton-missing-windows",
        certain_if=proofs.message_states_it,
        refuted_by=(Refutation(facts.a_run_ended_well),),
        title="torch.compile needs Triton, and torch for Windows does not include it",
        means="torch includes Triton on Linux only.",
        text="Install the community build triton-windows, in the release that fits this torch "
        "(2.4 or newer). As an alternative, do not use torch.compile",
        where=(no(ON_LINUX), no(ON_MACOS)),
        commands=_triton_windows,
        says=(
            r"Cannot find a working triton installation|Windows not yet supported for torch\.compile|tritonmissing",
            says(r"No module named ['\"]?triton\b(?!\.(?:ops|common|compiler))", unless="matching Triton is not available|comfy_kitchen|unavailable_reason", example="ModuleNotFoundError: No module named 'triton'"),
            says(r"(?:no matching distribution found for|could not find a version that satisfies the requirement) triton\b", example="ERROR: No matching distribution found for triton==2.1.0"),
        ),
    ),
    Cause(
        "triton-missing",
        refuted_by=(Refutation(facts.a_run_ended_well),),
        title="torch.compile finds no working Triton that fits this torch",
        means="torch for Linux needs the triton package in exactly one release. The package is missing, "
        "broken, or of another release; or the driver does not respond to Triton.",
        text="Keep torch, and install the release of triton that it requires (`pip check` names it). "
        '`python -c "import triton"` shows why Triton cannot be imported',
        # Source: torch/_inductor/scheduler.py.
        events=("triton-missing", "triton-missing-windows"),
        where=(no(ON_WINDOWS), no(ON_MACOS)),
        look=("pip check",),
        formerly=("triton-mismatch",),
        says=(
            says(r"cannot import name ['\"]?(?P<name>\w{3,40})['\"]? from ['\"]?triton\.(?:compiler|runtime|backends)\b", "cannot import name", example="ImportError: cannot import name 'triton_key' from 'triton.compiler.compiler'"),
            says(r"module ['\"]?triton\.(?:compiler|runtime|backends)[\w.]*['\"]? has no attribute ['\"]?(?P<name>\w{3,40})", "has no attribute", example="AttributeError: module 'triton.compiler' has no attribute 'OutOfResources'"),
        ),
    ),
    Cause(
        "triton-build-failed",
        look=(alike.WHICH_LIBCUDA,),
        title="Triton cannot build its helper program: the C code does not compile",
        means="The C compiler runs but cannot find libcuda.so, cuda.h or Python.h.",
        text="Read the compiler's first error above. If it does not find libcuda (`-lcuda`), set "
        "TRITON_LIBCUDA_PATH and LIBRARY_PATH to the folder of the driver's libcuda.so.1, or "
        "create a link called libcuda.so next to it",
        # Source: Triton's sources (build.py, driver.py).
        explains=("triton-no-compiler",),
        says=(
            says(r"cannot find (?P<lacks>-lcuda)\b(?!rt)", unless=LINKS_AN_EXTENSION, example="/usr/bin/ld: cannot find -lcuda: No such file or directory"),
            says(r"(?P<lacks>Python\.h): No such file", unless=r"building '[\w.]{1,60}' extension|Building wheel|setup\.py|Failed building", example="main.c:3:10: fatal error: Python.h: No such file or directory"),
            says(r"error: (?P<lacks>cuda\.h): No such file", example="driver.c:1:10: fatal error: cuda.h: No such file or directory"),
            says("cannot find ptxas", lacks="ptxas"),
            says(r"`?ptxas`? failed with error code (?!\d{0,9}:? ?.{0,300}?(?:is not defined for option|Unsupported \.version))-?\d{1,10}", lacks="a ptxas that runs", example="RuntimeError: `ptxas` failed with error code 4294967295:"),
            says(r"(?:/|\\)(?:main|driver|cuda_utils|__triton_\w+|stub)\.(?:c(?:pp)?|cp3\d{1,2}-\w{3,12}\.pyd|cpython-[\w-]{3,40}\.so)\b.{0,900}returned non-zero exit status", lacks="headers", example="subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/x/cuda_utils.c', '-O3', '-shared']' returned non-zero exit status 1."),
        ),
    ),
    Cause(
        "triton-no-compiler",
        title="torch.compile needs a C compiler, but there is none on PATH",
        means="Triton builds a small helper program with the compiler.",
        text="Install a C compiler (gcc), or set CC to an installed one",
        commands=("package gcc",),
        needs_root=True,
        cases=(
            Message(
                where=(ON_WINDOWS,),
                text="Install the newest triton-windows, which includes a compiler. Older "
                "releases of triton-windows need the Build Tools for Visual Studio with C++",
                commands=("pip install --upgrade triton-windows",),
            ),
        ),
        asks=("gcc --version",),
        says=(
            says(r"failed to find c compiler|No working C(?:\+\+)? compiler found|InvalidCxxCompiler|compiler: cl is not found", example="torch._inductor.exc.InvalidCxxCompiler: No working C++ compiler found in torch._inductor.config.cpp.cxx"),
            says(r"No such file or directory: '(?P<compiler>gcc|cc|clang|g\+\+|c\+\+|x86_64-linux-gnu-gcc)'", unless=IN_A_BUILD, example="FileNotFoundError: [Errno 2] No such file or directory: 'gcc'"),
        ),
    ),
    Cause(
        "torchvision-mismatch",
        by_check=True,
        certain_if=proofs.installed_pair_is_read("torchvision"),
        check=CheckCommand("python -m pip list | grep -i torch  # on Windows: findstr torch", "torch                    2.14.1+cu130\ntorchvision              0.20.1"),
        refuted_by=(
            Refutation(
                facts.versions_are_a_pair("torchvision"), "other-torch-imported", alike.WHICH_TORCH
            ),
        ),
        title="{pair}",
        plain="torchvision was built for another torch",
        means="torchvision's operators are compiled for one torch release and one CUDA version, so "
        "updating only one of the two packages breaks them.",
        text="Install the torchvision version that matches your torch, from the same index",
        # Source: the wheels' metadata.
        says=(
            r"(?:operator )?\btorchvision::\w+ does not exist|No such operator torchvision::\w+|Could not find the operator torchvision::nms\b|Could not run 'torchvision::nms' with arguments from the 'CUDA'",
            says(r"PyTorch and torchvision were compiled with different CUDA(?: major)? versions", example="RuntimeError: Detected that PyTorch and torchvision were compiled with different CUDA major versions. PyTorch has CUDA Version=12.1 and torchvision has CUDA Version=11.8."),
            says(r"register a meta kernel directly to the operator \W?torchvision::", example="RuntimeError: We should not register a meta kernel directly to the operator 'torchvision::roi_align', because it has a CompositeImplicitAutograd kernel in core."),
            says(r"torchvision\S{0,40}\.so: undefined symbol: (?P<symbol>\w+)", unless="Failed to load image Python extension", example="ImportError: /x/torchvision/_C.so: undefined symbol: _ZNK3c107SymBool10guard_boolEPKcl"),
            says(r"dlopen\([^()]{0,200}torchvision[^()]{0,80}\): Symbol not found: (?P<symbol>\w+)", unless="Failed to load image Python extension", example="dlopen(/x/site-packages/torchvision/_C.so, 0x0006): Symbol not found: __ZN3c1017RegisterOperators"),
            says(r"torchvision (?P<torchvision>\d[\w.+]*) (?:requires|has requirement) torch ?==? ?(?P<needs>[\w.+]+), but you(?:'ll)? have (?:torch )?(?P<torch>\d[\w.+]*\w)", example="torchvision 0.19.1 requires torch==2.4.1, but you have torch 2.6.0 which is incompatible."),
            r"lib(?:torch|c10)\w*\.so: cannot open shared object file.{0,900}?packages/torchvision/|packages/torchvision/.{0,900}?lib(?:torch|c10)\w*\.so: cannot open shared",
        ),
    ),
    Cause(
        "torchaudio-mismatch",
        by_check=True,
        certain_if=proofs.installed_pair_is_read("torchaudio"),
        refuted_by=(
            Refutation(
                facts.versions_are_a_pair("torchaudio"), "other-torch-imported", alike.WHICH_TORCH
            ),
        ),
        title="{pair}",
        plain="torchaudio was built for another torch",
        means="Each torchaudio release needs one particular torch release. 2.11 is the last "
        "release of torchaudio.",
        text="Install the torchaudio version that matches your torch, from the same index",
        # Source: the wheels' metadata.
        says=(
            says(r"PyTorch and TorchAudio were compiled with different CUDA(?: major)? versions", example="RuntimeError: Detected that PyTorch and TorchAudio were compiled with different CUDA versions. PyTorch has CUDA version 12.4 whereas TorchAudio has CUDA version 12.1."),
            r"torchaudio\S{0,40}\.so: undefined symbol: (?P<symbol>\w+)",
            says(r"_torch_sox\S{0,60}\.so(?:: undefined symbol|, \w{1,4}\): Symbol not found): (?P<symbol>\w+)", example="ImportError: /x/_torch_sox.cpython-37m-x86_64-linux-gnu.so: undefined symbol: _ZTIN3c1021AutogradMetaInterfaceE"),
            says(r"dlopen\([^()]{0,200}torchaudio[^()]{0,80}\): Symbol not found: (?P<symbol>\w+)", example="OSError: dlopen(/x/site-packages/torchaudio/lib/libtorchaudio.so, 6): Symbol not found: __ZN2at4_ops"),
            r"WinError 127\].{0,300}?(?P<dll>\w{0,4}torchaudio\w*\.(?:pyd|dll))",
            says(r"torchaudio (?P<torchaudio>\d[\w.+]*) (?:requires|has requirement) torch ?==? ?(?P<needs>[\w.+]+), but you(?:'ll)? have (?:torch )?(?P<torch>\d[\w.+]*\w)", example="torchaudio 2.4.1 requires torch==2.4.1, but you have torch 2.6.0 which is incompatible."),
            r"lib(?:torch|c10)\w*\.so: cannot open shared object file.{0,900}?packages/torchaudio/|packages/torchaudio/.{0,900}?lib(?:torch|c10)\w*\.so: cannot open shared",
        ),
    ),
    Cause(
        "companion-torch-mismatch",
        formerly=("guarded-set-changed",),
        severity=Severity.WARNING,
        title="A package needs a different torch version from the installed one",
        means="The package's libraries are compiled against one torch version. If the package's "
        "metadata does not require that version, pip and uv do not notice a mismatch, so the "
        "package fails at import or runs without its kernels.",
        text="Install the release of the package that fits this torch",
        # Source: each row in data/companions.json names its own.
    ),
    Cause(
        "numpy-abi-mismatch",
        certain_if=proofs.message_states_it,
        title="torch or another module was built for NumPy 1, but NumPy 2 is installed",
        means="torch before 2.3 was compiled against NumPy 1.",
        text="Install NumPy 1, or torch 2.3 or newer",
        # Source: NumPy 2 migration guide.
        commands=_older_numpy,
        cases=(
            Message(
                having={"wants": ""},
                title="A module was built for NumPy 2, but NumPy 1 is installed",
                means="A module for NumPy 2 does not run with NumPy 1.",
                text="Update NumPy, or install an older release of the module that needs it",
                commands=("pip install --upgrade 'numpy>=2'",),
            ),
        ),
        says=(
            says(r"_array_api not found|numpy\.core\.multiarray failed to import|numpy\.(?:dtype|ufunc|ndarray) size changed|Could not infer dtype of numpy\.\w+|(?:Error: |processing !!! |error: )Numpy is not available", example="ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got 88 from PyObject"),
            says(r"compiled using NumPy (?P<compiled>1\.x) cannot be run in NumPy (?P<running>\d+\.[\d.]+\d)", example="A module that was compiled using NumPy 1.x cannot be run in NumPy 2.1.3 as it may crash."),
            says(r"compiled against NumPy C-API version 0x\w+ \(NumPy (?P<compiled>2)[\d.]*\) but the running NumPy has C-API version", wants="NumPy 2", example="RuntimeError: module was compiled against NumPy C-API version 0x12 (NumPy 2.0) but the running NumPy has C-API version 0x11"),
            says(r"compiled against (?:ABI|API) version (?P<compiled>0x\w+) but this version of numpy is (?P<running>0x\w+)", example="RuntimeError: module compiled against API version 0x10 but this version of numpy is 0xf"),
        ),
    ),
    Cause(
        "mkl-version-mismatch",
        certain_if=proofs.message_states_it,
        title="MKL lacks a symbol that this conda build of torch needs (iJIT_NotifyEvent)",
        means="MKL 2024.1 removed the symbol iJIT_NotifyEvent; older conda builds of torch need "
        "it.",
        text="Install an older MKL in this environment, or install torch with pip",
        # Source: pytorch/pytorch#123097.
        commands=lambda context: (conda_install(context, "mkl<2024.1"),),
        says=(
            says(r"undefined symbol: (?P<symbol>(?:iJIT|mkl)_\w+)", example="libmkl_avx2.so: undefined symbol: mkl_sparse_optimize_bsr_trsm_i8"),
            says(r"(?:Intel )?MKL (?:FATAL )?ERROR: (?:Cannot load|The specified)|MKL_THREADING_LAYER=INTEL is incompatible with", "mkl", example="Intel MKL FATAL ERROR: Cannot load libmkl_avx512.so.2 or libmkl_def.so.2."),
        ),
    ),
)  # fmt: skip
