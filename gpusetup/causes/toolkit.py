"""Causes in which the CUDA toolkit for building an extension is missing or has another CUDA version
than torch."""

from __future__ import annotations

from collections.abc import Mapping

from gpusetup.causes.companions import conda_install
from gpusetup.causes.record import Cause, CheckCommand, Message, Refutation
from gpusetup.evidence import facts, proofs
from gpusetup.evidence.command_values import is_a_version
from gpusetup.evidence.context import RuleContext, cuda_needed, events, on, says_nothing_else
from gpusetup.fixes import drivers, paste, system_packages
from gpusetup.fixes.drivers import cuda_repository
from gpusetup.messages.row import says
from gpusetup.model.finding import Fix, Severity
from gpusetup.model.shell import Lines, lines
from gpusetup.model.versions import parsed


def one_cuda(context: RuleContext, text: str) -> Fix:
    """Install the CUDA toolkit with torch's CUDA version if its compiler supports the GPU,
    otherwise the first version that does."""
    rejected = _values(context, "jit-arch-rejected")
    values = {**rejected, **_values(context, "cuda-toolkit-mismatch-extension-build")}
    cuda = values.get("torch") or cuda_needed(context.torch)
    compiler = context.catalog.compiler_for(values.get("arch", ""))
    first_cuda = compiler.from_cuda if compiler and not compiler.until_cuda else None
    if cuda and first_cuda:
        cuda = max(cuda, first_cuda, key=parsed)
    questions = (paste.ask_torch(context), *lines("nvcc --version"))
    looks = paste.look("see which CUDA versions torch and nvcc have", *questions)
    return Fix(text=text, commands=paste.toolkit_home(context, cuda), looks=looks)


def _values(context: RuleContext, kind: str) -> Mapping[str, str]:
    """The values of all events of this kind in one mapping. A later event replaces the values of an
    earlier one."""
    values: dict[str, str] = {}
    for event in events(context, kind):
        values.update(event.values)
    return values


def _toolkit(context: RuleContext, text: str) -> Fix:
    """Install the CUDA toolkit with torch's CUDA version. If that is unknown, the fix shows the
    command that prints it."""
    cuda = cuda_needed(context.torch) or ""
    commands = toolkit_commands(context, ".".join(cuda.split(".")[:2]))
    sentence = text.replace("NAME", _values(context, "cuda-toolkit-missing").get("package", "NAME"))
    question = paste.look("see which CUDA version torch has", paste.ask_torch(context))
    by_the_system = bool(commands) and not _by_conda(context)
    return Fix(
        text=sentence, commands=commands, looks=() if cuda else question, needs_root=by_the_system
    )


ASKED_OF_TORCH = (
    *("cuda-unavailable", "torch-not-compiled-with-cuda", "torch-missing", "smi-sees-it"),
    *("no-nvidia-driver", "smi-not-found", "launcher-deprecated"),
)
"""Kinds of events in a text that asks why torch finds no GPU. None of them comes from a build."""


def _nothing_was_built(context: RuleContext) -> bool:
    """Whether the only problem is that a shell did not find nvcc, and nothing in the text is
    compiled.

    torch's wheels need no toolkit, so in that case a missing nvcc explains nothing.
    """
    missing = events(context, "cuda-toolkit-missing")
    only_a_shell = all(event.values.get("who") == "shell" for event in missing)
    is_a_build = context.snapshot.failing.stage == "build"
    # Any other error in the text may come from a build.
    nothing_else_failed = says_nothing_else(context, "cuda-toolkit-missing", *ASKED_OF_TORCH)
    return only_a_shell and not is_a_build and nothing_else_failed


def _torch_was_asked(context: RuleContext) -> bool:
    """Whether nothing was built and the text is about torch, because it shows torch's version or
    one of torch's answers."""
    if not _nothing_was_built(context):
        return False
    torch = context.torch
    if torch.version or torch.backend or torch.cuda_available is not None:
        return True
    return bool(events(context, *ASKED_OF_TORCH))


WHEELS_NEED_NONE = (
    "torch's wheels include all parts of CUDA that they need, so you do not need nvcc to use the "
    "GPU. Only if you compile CUDA code yourself, install the toolkit of torch's CUDA version "
    "and set CUDA_HOME to it (Windows: https://developer.nvidia.com/cuda-toolkit-archive, which "
    "sets CUDA_PATH)"
)


def _by_conda(context: RuleContext) -> bool:
    """Whether conda installs the toolkit, so that no root rights are needed."""
    if context.snapshot.conda.prefix:
        return True
    return "conda" in (context.installer, context.snapshot.python.manager)


def toolkit_commands(context: RuleContext, minor: str) -> Lines:
    """The commands that install the toolkit of one CUDA version and set the variable that tells
    builds where it is."""
    if not is_a_version(minor):
        return ()
    if _by_conda(context):
        home = paste.posix(context, 'export CUDA_HOME="$CONDA_PREFIX"')
        return (conda_install(context, "-c", "nvidia", f"cuda-toolkit={minor}"), *home)
    package = f"cuda-toolkit-{minor.replace('.', '-')}"
    return (
        *cuda_repository(drivers.driver_request(context)),
        *(system_packages.system_package(context, package) if on(context, "linux") else ()),
        *paste.toolkit_home(context, minor),
        *lines("nvcc --version"),
    )


def toolkit_lines(context: RuleContext) -> Lines:
    """The commands that tell a build where the toolkit is that a listing shows."""
    if home := facts.listed_toolkit(context):
        binaries = paste.prepending(context, "PATH", f"{home}/bin")
        return (paste.setting(context, "CUDA_HOME", home), binaries)
    return paste.toolkit_home(context, context.snapshot.toolkit.nvcc)


CAUSES = (
    Cause(
        "cuda-toolkit-mismatch-extension-build",
        certain_if=proofs.both_are_read("cuda-toolkit-mismatch-extension-build", "nvcc", "torch"),
        title="nvcc and torch have different CUDA versions, so extensions that you build here do "
        "not work",
        means="An extension must be compiled with torch's CUDA version, or at least with the "
        "same major version.",
        text="Build with the nvcc of torch's CUDA version: install that toolkit if it is "
        "missing, and set CUDA_HOME to it",
        # Source: messages of torch/utils/cpp_extension.py; CUDA release notes.
        events=("cuda-toolkit-mismatch-extension-build", "jit-arch-rejected"),
        but={"compiler": "^(?!nvcc$)"},
        way=one_cuda,
        beside_torch="Check which nvcc the build uses (`which -a nvcc`, `nvcc --version`): an "
        "older toolkit does not support a newer GPU. Put the bin folder of a newer toolkit first "
        "on PATH, delete the build folder, and build again",
        says=(
            says(r"(?:detected )?CUDA version(?: \((?P<nvcc>\d+\.\d+)[\d.]*\))? mismatches the version that was used to compile(?: PyTorch \((?P<torch>\d+\.\d+)[\d.]*\))?", example="it says that the detected CUDA version mismatches the version that was used to compile PyTorch"),
            says(r"detected CUDA version \(%s\) mismatches .{0,160}?CUDA versions\.', '(?P<nvcc>\d+\.\d+)', '(?P<torch>\d+\.\d+)'", example="raise RuntimeError(CUDA_MISMATCH_MESSAGE): ('The detected CUDA version (%s) mismatches the version that was used to compile PyTorch (%s). Please make sure to use the same CUDA versions.', '12.4', '11.8')"),
            says(r"Installed CUDA version (?P<nvcc>\d+\.\d+) does not match the version torch was compiled with (?P<torch>\d+\.\d+)(?! but since the APIs are compatible)", example="deepspeed.ops.op_builder.builder.CUDAMismatchException: >- DeepSpeed Op Builder: Installed CUDA version 12.2 does not match the version torch was compiled with 11.8, unable to compile cuda/cpp extensions"),
            says(r"version of Cuda that does not match the version used to compile Pytorch binaries(?:.{0,80}compiled with Cuda (?P<torch>[\d.]+\d))?", example="RuntimeError: Cuda extensions are being compiled with a version of Cuda that does not match the version used to compile Pytorch binaries.  Pytorch binaries were compiled with Cuda 11.7"),
            says(r"""(?x)
        PyTorch\ and\ (?P<module>(?!torchvision|torchaudio)[\w-]+)\ were\ compiled\ with\ different\ CUDA\ versions\.\ PyTorch\ has\ CUDA\ version
        \ (?P<torch>[\d.]+\d)\ and\ \w+\ has\ CUDA\ version
        \ (?P<nvcc>[\d.]+\d)
        """, "compiled with different cuda", example="RuntimeError: Detected that PyTorch and torch_scatter were compiled with different CUDA versions. PyTorch has CUDA version 12.1 and torch_scatter has CUDA version 11.8"),
            says(r"(?P<module>\w+) is only supported on CUDA (?P<needs>[\d.]+\d) and above", example="RuntimeError: FlashAttention is only supported on CUDA 11.7 and above.  Note: make sure nvcc has a supported version"),
            r"raise RuntimeError\(CUDA_MISMATCH_MESSAGE\b",
            says(r"in assert_no_cuda_mismatch\b|(?<!def )\bassert_no_cuda_mismatch\(\)", unless=r"CUDA_HOME does not exist|MissingCUDA", example='File "/tmp/deepspeed/op_builder/builder.py", line 599, in builder\n    x()\n  File "/tmp/deepspeed/op_builder/builder.py", line 89, in assert_no_cuda_mismatch'),
        ),
    ),
    Cause(
        "cuda-home-unset",
        title="The CUDA toolkit is installed, but the build does not find it: {fact}",
        means="A build looks for the toolkit in CUDA_HOME, and for nvcc on PATH.",
        text="Do not install another toolkit. Set CUDA_HOME to the installed toolkit, in the shell "
        "in which you build",
        # Source: torch/utils/cpp_extension.py, _find_cuda_home.
        commands=lambda context: toolkit_lines(context),
    ),
    Cause(
        "cuda-toolkit-missing",
        check=CheckCommand("nvcc --version", "bash: nvcc: command not found"),
        refuted_by=(Refutation(facts.toolkit_is_listed, "cuda-home-unset"),),
        title="The build needs a CUDA toolkit and cannot find one",
        means="PyTorch's wheels include CUDA's libraries but not its compiler (nvcc), and "
        "building an extension from source needs the compiler.",
        text="Run `gpusetup resolve NAME` to look for a prebuilt wheel of the extension. If the "
        "extension is optional, do not install it. If a package needs the toolkit when it is "
        "imported, update that package. To build the extension, install the CUDA toolkit of "
        "torch's CUDA version and set CUDA_HOME to it (Windows: "
        "https://developer.nvidia.com/cuda-toolkit-archive, which sets CUDA_PATH)",
        # Source: messages of torch/utils/cpp_extension.py.
        explains=("build-isolation-no-torch",),
        where=(lambda context: not (context.torch.backend or "").startswith("rocm"),),
        way=_toolkit,
        cases=(
            Message(
                where=(_torch_was_asked,),
                title="nvcc is not installed, or not on PATH",
                text=WHEELS_NEED_NONE,
                only=Severity.NOTE,
            ),
        ),
        says=(
            r"CUDA_HOME (?:environment variable )?(?:is not set|does not exist|not set|is undefined)(?:(?=.{0,1200}?(?:\u2500> (?!See )|Failed building wheel for |Failed to build `|Failed to build (?!inst))(?P<package>\w[\w-]{1,40}))|)",
            says(r"(?:Failed|Could not|Unable) to find nvcc|Could not find nvcc|(?:cannot|can't|could not|unable to|not able to) find [`'\"]?(?:(?:[A-Z]:)?(?:[/\\]{1,2}[\w.()-]{1,40}){1,10}[/\\]{1,2})?nvcc\b", example="CMake Error: Could not find nvcc, please set CUDAToolkit_ROOT"),
            says(r"Could not find CUDA(?: \(missing| toolkit|\W{0,3}$)", example="CMake Warning: Could not find CUDA toolkit"),
            r"Could NOT find CUDAToolkit",
            says(r"links to:?\s{1,20}CUDA::\w{2,30}\s{1,20}but the target was not found", example='Target "mylib" links to: CUDA::cublas but the target was not found.'),
            says(r"\bCUDA_(?!CUDA_LIB)\w{2,30}_LIBRARY(?: \(ADVANCED\))?(?::FILEPATH)?[ :=]{1,4}(?:CUDA_\w{2,30}-)?NOTFOUND", example="CUDA_cublas_LIBRARY (ADVANCED): CUDA_cublas_LIBRARY-NOTFOUND"),
            says(r"No CMAKE_CUDA_COMPILER could be found|CMAKE_CUDA_COMPILER(?:-| is set to a )NOTFOUND", example="No CMAKE_CUDA_COMPILER could be found."),
            r"No CUDA toolset found",
            says(r"fatal error: (?P<path>cuda_runtime(?:_api)?\.h)", example="fatal error: cuda_runtime.h: No such file or directory"),
            says(r"""(?x)
        fatal\ error:\ (?P<path>(?:cuda_(?:fp16|bf16|profiler_api)|cusparse|cublas\w*|cusolver\w*|curand\w*|cufft\w*|nvToolsExt|nvtx3/\w+|thrust/[\w/]+|cub/[\w/]+)\.
          (?:h|cuh))
        """, "fatal error: ", example="fatal error: cusparse.h: No such file or directory"),
            r"name 'bare_metal_version' is not defined",
            says(r"cannot find -lcudart(?:_static)?\b", example="/usr/bin/ld: cannot find -lcudart"),
            says(r"catastrophic error: cannot open source file \W?(?P<path>cuda\w*\.h|vector_types\.h|cub/\S{1,40})", example='cuda_workaround.h(1): catastrophic error: cannot open source file "cuda_fp16.h"'),
            r"Failed to auto-detect CUDA root directory",
            says(r"(?:Couldn't|Could not|Failed to) invoke ptxas\b", example="W asm_compiler.cc:85] Couldn't get ptxas version string: INTERNAL: Couldn't invoke ptxas --version"),
            says(r"(?:Couldn't|Could not|Failed to) launch ptxas\b", example="ptxas returned an error: 'INTERNAL: Failed to launch ptxas'"),
            "cuda toolkit not found",
            says(r"nvcc\W{0,3}: (?:command )?not found|nvcc\W{1,2} (?:is not recognized|ist entweder falsch|n'est pas reconnu|no se reconoce|não é reconhecido|не является|不是内部或外部命令)|command not found: nvcc|nvcc was not found|Command 'nvcc' not found", who="shell"),
            says(r"No such file or directory:? '?(?P<path>\S{0,160}nvcc(?:\.exe)?)\b", example="FileNotFoundError: [Errno 2] No such file or directory: '/usr/local/cuda-12.4/bin/nvcc'"),
            says(r"(?P<path>[\w/.-]{1,160}/nvcc)'?: (?:not found|no such file)", who="shell"),
            says(r"getattr\(_C, name\).{0,160}?'NoneType' object has no attribute", who="extension", example="return getattr(_C, name)(*args, **kwargs)\nAttributeError: 'NoneType' object has no attribute 'rasterize'"),
            says(r"in get_cuda_bare_metal_version\b.{0,500}?\bsubprocess\.check_output\(.{0,500}?\bsubprocess\.py\W.{0,20}?line \d{1,5}, in (?:run|__init__|check_output)\b", unless=r"CalledProcessError|PermissionError|mismatch|Installed CUDA version", example='setup.py", line 63, in get_cuda_bare_metal_version raw_output = subprocess.check_output( File "/x/lib/python3.11/subprocess.py", line 466, in check_output return run(*popenargs'),
        ),
        not_examples=(
            "it cannot find the GPU, nvcc works",
            "-DCMAKE_CUDA_COMPILER=/usr/local/cuda/bin/nvcc",
            'Target "x" links to: Boost::regex but the target was not found',
            "JPEG_LIBRARY=NOTFOUND",
        ),
    ),
    Cause(
        "ninja-missing",
        title="torch builds extensions with ninja, but ninja is not installed",
        means="torch.utils.cpp_extension.load looks for the program ninja on PATH.",
        text="Install ninja into this environment, and start the build from a shell in which the "
        "environment is active",
        # Source: messages of torch/utils/cpp_extension.py.
        commands=("pip install ninja",),
        says=(
            "ninja is required to load",
            says(r"No such file or directory: '(?:\S{1,160}/)?ninja'", example="FileNotFoundError: [Errno 2] No such file or directory: 'ninja'"),
        ),
    ),
)  # fmt: skip
