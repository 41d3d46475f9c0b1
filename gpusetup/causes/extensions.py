"""Compiled extensions that were built for another torch or GPU, and why their builds fail: the
toolkit or a compiler is missing, too new or too old.

Sources, where a record names no other: messages of torch/utils/cpp_extension.py.
"""

from __future__ import annotations

from gpusetup.catalog.facts import EXTENSION_TOOLS
from gpusetup.causes.record import Cause, CheckCommand, Message, Refutation
from gpusetup.evidence import checks, facts, proofs
from gpusetup.evidence.context import RuleContext, cuda_errors, cuda_needed, events, on
from gpusetup.fixes import paste
from gpusetup.fixes.extension_packages import rebuild_commands, rebuild_of
from gpusetup.messages.fragments import (
    COMPILED_MODULE,
    CPU_PART,
    IN_A_BUILD,
    TORCH_LIBRARY,
    TORCH_SYMBOL,
)
from gpusetup.messages.row import says
from gpusetup.model.finding import Fix, Severity
from gpusetup.model.machine import Events
from gpusetup.model.shell import lines

PARTS_OF_TORCH = ("", "torch", "aten", "c10", "functorch")
"""The top-level names of torch's own modules; "" if no module is named."""


def _is_of_another_package(context: RuleContext) -> bool:
    """Whether the extension belongs to another package than torchvision and torchaudio.

    If one of these two does not fit, a message that names only a library of torch (other than
    libc10_cuda) may be its own.
    """
    if not events(context, "torchvision-mismatch", "torchaudio-mismatch"):
        return True
    for event in events(context, "extension-abi-mismatch"):
        names_only_a_library = set(event.values) == {"library"}
        if not names_only_a_library or "c10_cuda" in event.values["library"]:
            return True
    return False


NO_KERNEL = (8, 48, 98, 209)
"""CUDA's codes for cudaErrorInvalidDeviceFunction (8 before CUDA 10.1, then 98) and
cudaErrorNoKernelImageForDevice (48, then 209, which is also the driver's code)."""


def kernel_messages(context: RuleContext) -> Events:
    """Events that say that a kernel for the GPU is missing, in words or as an error code."""
    return (*events(context, "no-kernel-image"), *cuda_errors(context, *NO_KERNEL))


def extension_of(messages: Events) -> str | None:
    """The extension that raised the error; None if it was torch itself."""
    for message in messages:
        module = message.values.get("module", "")
        package, _, _ = module.partition(".")
        if package not in PARTS_OF_TORCH:
            return module
    return None


IN_THIS_ENVIRONMENT = (
    f"pip install {' '.join(EXTENSION_TOOLS)}",
    "pip install --no-build-isolation {package}",
)
"""Builds a package in the environment itself, where it finds the installed torch."""

COMPILER = r"(?:(?:x86_64|aarch64)-(?:linux-gnu|conda-linux-gnu)-(?:gcc|g\+\+|cc|c\+\+)(?:-\d{1,2})?|gcc(?:-\d{1,2})?|cc|g\+\+(?:-\d{1,2})?|c\+\+|clang(?:\+\+)?|cl(?:\.exe)?)"
"""The name of a C++ compiler in a build's output."""


BUILD_TOOLS = lines(
    'winget install Microsoft.VisualStudio.2022.BuildTools --override "--passive --wait '
    '--add Microsoft.VisualStudio.Workload.VCTools --includeRecommended"'
)


def _toolkit(context: RuleContext, text: str) -> Fix:
    """Install the CUDA toolkit with torch's CUDA version, or show the command that prints this
    version if it is unknown."""
    values: dict[str, str] = {}
    for event in events(context, "cuda-toolkit-mismatch-extension-build", "cuda-toolkit-missing"):
        values.update(event.values)
    cuda = values.get("torch") or cuda_needed(context.torch) or ""
    questions = (paste.ask_torch(context), *lines("nvcc --version"))
    looks = paste.titled("see which CUDA versions torch and nvcc have", *questions)
    # The message may name the package whose build failed.
    sentence = text.replace("NAME", values.get("package", "NAME"))
    return Fix(text=sentence, commands=paste.toolkit_home(context, cuda), looks=looks)


def _only_a_shell_looked(context: RuleContext) -> bool:
    """Whether a shell did not find nvcc, and no build needed it. torch's wheels need no toolkit."""
    missing = events(context, "cuda-toolkit-missing")
    is_of_a_build = context.snapshot.failing.stage == "build"
    return not is_of_a_build and all(event.values.get("who") == "shell" for event in missing)


CAUSES = (
    Cause(
        "extension-abi-mismatch",
        certain_if=proofs.releases_of_torch_differ,
        check=CheckCommand('python -c "import torch, flash_attn; print(torch.__version__)"  # ' "the extension in your traceback", "ImportError: flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so: undefined symbol: _ZN3c104cuda9SetDeviceEi"),
        title="{module} was built for a different torch than the one installed",
        means="An extension works only with the torch release and CUDA version that it was compiled "
        "for, so updating torch breaks it.",
        text="Install the extension's release for this torch (see its compatibility table), or "
        "rebuild it against this torch",
        # Source: PyTorch documentation, C++ ABI; messages of xformers and others.
        where=(_is_of_another_package,),
        commands=rebuild_of("extension-abi-mismatch"),
        cases=(
            Message(
                having={"module": "^flash_?attn"},
                text="The easiest way is to use torch's own attention, which needs no package "
                '(attn_implementation="sdpa" in transformers, no --flash-attn in trainers). Or '
                "reinstall flash-attn without the cache. Its installer downloads a matching wheel "
                "if there is one, and otherwise builds from source, which may take hours",
                commands=(
                    IN_THIS_ENVIRONMENT[0],
                    "pip install --no-build-isolation --no-deps --force-reinstall --no-cache-dir "
                    "flash-attn",
                ),
            ),
        ),
        says=(
            says(rf"(?P<module>{COMPILED_MODULE})[\w.-]{{0,60}}\.so:? undefined symbol\b(?!:? (?:_|cu[A-Z]))", example="ImportError causal_conv1d_cuda.cpython-310-x86_64-linux-gnu.so undefined symbol"),
            says(r"(?P<cache>(?:/|[A-Z]:\\)[^\s'\"]{0,160}torch_extensions[/\\](?:[\w.-]{1,40}[/\\]){0,3}(?P<module>[\w-]{2,60}))[/\\][\w.-]{2,80}\.so: undefined symbol:? (?P<symbol>\w+)", "torch_extensions", example="ImportError: /home/u/.cache/torch_extensions/py310_cu121/fused_adam/fused_adam.so: undefined symbol: _ZN2at4_ops5zeros4callE"),
            rf"(?<![\w/])(?P<library>{TORCH_LIBRARY}\.so): cannot open shared",
            r"DLL load failed while importing (?P<module>(?!_C\b|torch)\w+): The specified procedure could not be found",
            says(r"(?P<module>[\w-]+) was compiled against (?:a different )?(?:py)?torch(?: version)? ?(?P<built_torch>\d[\w.+]*)?", example="RuntimeError: torch_cluster was compiled against a different PyTorch version 2.1.0"),
            says(r"xFormers was built for: ?PyTorch (?P<built_torch>\d[\w.+]*)(?: with CUDA (?P<built_cuda>\w+))? \(you have (?P<torch>[\w.+]+)\)(?:\s{1,8}Python (?P<built_python>\d[\w.]*) \(you have (?P<python>\d[\w.]*)\))?", module="xformers", example="WARNING: xFormers was built for:\n    PyTorch 2.5.1+cu121 with CUDA 1201 (you have 2.6.0+cu124)\n    Python  3.11.10 (you have 3.11.9)"),
            says(rf"(?:site|dist)-packages/(?P<module>(?!torch(?:vision|audio)?/)[A-Za-z][\w-]{{1,40}})(?:-[^/]{{1,60}}\.egg)?/(?:[\w.-]{{1,60}}/){{0,4}}[\w.-]{{1,80}}\.so: undefined symbol:? (?P<symbol>{TORCH_SYMBOL})", "undefined symbol"),
            says(rf"dlopen\((?:[^()]{{0,200}}/)?(?P<module>(?!lib(?:torch|c10))[\w+-]{{2,40}})(?:\.[\w-]{{1,40}}){{0,3}}, \w{{1,10}}\): Symbol not found: (?P<symbol>{TORCH_SYMBOL})", "symbol not found", unless=r"torch(?:audio|vision)[/\\]|_torch_sox", example="ImportError: dlopen(/x/site-packages/torch_sparse/_spmm_cpu.so, 0x0006): Symbol not found: __ZN3c106detail14torchCheckFailE"),
            says(rf"(?<![\w.-])(?P<module>(?!torchvision|torchaudio|_torch_sox|lib(?:torch|c10|torchaudio|caffe))[\w+-]+)(?:\.[\w-]+)*\.so: undefined symbol:? (?P<symbol>{TORCH_SYMBOL})", "undefined symbol", unless=r"torch(?:audio|vision)[/\\]"),
            says(r"(?<!so: )undefined symbol: (?P<symbol>_ZNK?\d?\w{0,8}(?:c10|at4_ops|at6|5torch)\w*)", unless=r"\.so|lib(?:torch|c10)", example="ImportError: undefined symbol: _ZN3c104cuda14ExchangeDeviceEa"),
        ),
    ),
    Cause(
        "extension-arch-mismatch",
        title="{who} has no kernel for {gpu}",
        plain="An extension has no kernel for the GPU, but torch has one",
        means="The extension was compiled for other GPUs, for example on another machine.",
        text="Rebuild the extension for this GPU, or install a newer release's wheel",
        commands=lambda context: (
            *paste.architectures_for_build(context),
            *rebuild_commands(context, extension_of(kernel_messages(context))),
        ),
        asks=(checks.TORCHS_KERNELS,),
        cases=(
            Message(
                having={"needs": ""},
                title="FlashAttention supports {needs} GPUs and newer, but this GPU is older",
                means="FlashAttention 2 needs compute capability 8.0 (Ampere), and version 1 needs "
                "7.5 (Turing).",
                text="Use torch's own attention: attn_implementation=\"sdpa\" in transformers, no "
                "--flash-attn in trainers. You can uninstall flash-attn. On Turing GPUs, you can "
                "use version 1 (`flash-attn<2`)",
                # Source: FlashAttention's README and csrc/flash_attn/flash_api.cpp.
                commands=("pip uninstall -y flash-attn",),
            ),
        ),
        says=(r"FlashAttention only supports (?P<needs>Turing|Ampere|Hopper) GPUs or newer",),
        formerly=("gpu-too-old-for-flash-attention", "other-gpu-used"),
    ),
    Cause(
        "cxx-standard-too-old",
        certain_if=proofs.message_states_it,
        title="The package's source code, the compiler or nvcc is too old for torch's headers",
        means="torch's headers require C++14 since torch 1.5, C++17 since 2.1, and C++20 since "
        "2.14. torch 1.11 replaced the THC headers with ATen and c10.",
        text="Use a newer release or a fork of the extension, or set a newer -std=c++ in its "
        "setup.py. Build with gcc 9 or newer (for C++20: gcc 11; set CC and CXX) and with nvcc "
        "from torch's CUDA version. Or install the torch release that the extension was written "
        "for",
        # Source: c10/util/C++17.h, ATen/ATen.h; release notes of torch 2.1.
        look=(checks.CUDA_OF_TORCH, "nvcc --version", "g++ --version"),
        says=(
            says(r"You need C\+\+(?P<needs>1[47]|2\d) to compile PyTorch|C\+\+(?:1[47]|2\d) or later compatible compiler is required to use (?:ATen|PyTorch)", example="#error You need C++17 to compile PyTorch", who="build"),
            says(r"(?:unrecognized|unknown|invalid) (?:command[- ]line )?(?:option|argument|value) ['\"]?-?-?(?:std=)?(?:c|gnu)\+\+(?P<needs>1[47]|1z|2\d)", "-std=", who="compiler", example="cc1plus: error: unrecognized command line option '-std=c++17'"),
            says(r"Value 'c\+\+(?P<needs>1[47]|2\d)' is not defined for option 'std'", who="nvcc", example="nvcc fatal   : Value 'c++20' is not defined for option 'std'"),
            r"(?P<header>THC/\w{2,40}\.(?:h|cuh|hpp))['\"]?: No such file",
            says(r"\W(?:AT_CHECK|AT_ASSERTM?|THCState|THCudaCheck|THCudaBlas_\w+|THCCeilDiv)\W{1,3} ?was not declared in this scope|identifier \"(?:AT_CHECK|THCState|THCudaCheck|THCCeilDiv)\" is undefined", example="error: 'AT_CHECK' was not declared in this scope"),
        ),
        formerly=("extension-too-old-for-torch",),
    ),
    Cause(
        "compiler-too-new",
        # Visual Studio prints the same message for a compiler that is too old.
        certain_if=proofs.message_states(
            "compiler-too-new", r"gcc versions later than|STL1002|and up are not supported"
        ),
        title="nvcc supports gcc up to {compiler}, but the installed gcc is newer",
        plain="nvcc does not support this C++ compiler, because it is too new for the CUDA toolkit",
        text="Install an older compiler (Ubuntu: `sudo apt install g++-VERSION`; Visual Studio: an "
        "older MSVC toolset, in its own prompt) and have nvcc use that compiler. Or use a newer "
        "CUDA toolkit with the same major version as torch's CUDA",
        # Source: NVIDIA, CUDA Installation Guide, host compiler support.
        commands=(
            "export NVCC_PREPEND_FLAGS='-ccbin g++-{compiler}'",
            "export CC=gcc-{compiler} CXX=g++-{compiler}",
        ),
        says=(
            r"unsupported GNU version! gcc versions later than (?P<compiler>4\.\d|\d+)",
            r"unsupported Microsoft Visual Studio version",
            r"STL1002: Unexpected compiler version",
        ),
    ),
    Cause(
        "build-isolation-no-torch",
        certain_if=proofs.message_states_it,
        title="{package} needs torch to build, but pip or uv builds it in isolation, without torch",
        means="By default, pip and uv build each package in a new environment with only the build "
        "requirements that the package declares.",
        text="Install torch first, then build the package in your environment: `pip install "
        "--no-build-isolation PACKAGE`",
        # Source: PEP 518; pip documentation, build system interface.
        commands=("gpusetup install --yes", *IN_THIS_ENVIRONMENT),
        cases=(
            Message(
                where=(lambda context: bool(context.torch.version),),
                text="torch is installed, so build the package in this environment: `pip install "
                "--no-build-isolation PACKAGE` (for the sources in this folder, use `-e .`)",
                commands=IN_THIS_ENVIRONMENT,
            ),
        ),
        says=(
            says(r"depends on `?torch`?, but doesn't declare it as a build dependency", example="hint: `flash-attn` depends on `torch`, but doesn't declare it as a build dependency."),
            says(r"(?:Collecting (?P<package>[\w.@:/+\[\]~-]{2,120})(?:(?!Collecting )[^\0]){0,200}?)?(?:Getting requirements to build|Preparing metadata|setup\.py egg_info)(?:(?!Collecting )[^\0]){0,1500}?No module named ['\"]?torch['\"]?(?![\w.])", "no module named"),
            # pip and uv build a checkout in isolation from the environment, so that the build does
            # not see torch. A program that runs after the installation may lack torch for another
            # reason.
            says(r"(?:pip3?|uv(?: pip)?) (?:install|sync)(?: -{1,2}[\w-]+){0,4} (?:-e )?\.[\w/\[\]-]{0,40}\W[^\0]{0,600}?No module named ['\"]?torch['\"]?(?![\w.])", unless=r"--no-build-isolation|python3? \S{1,60}\.py"),
            r"Failed to (?:download and )?build:? `(?P<package>[\w.-]{2,60})[^\0]{0,1500}?No module named ['\"]?torch['\"]?(?![\w.])",
            says(r"(?:build-env|builds-v0|build_meta|get_requires_for_build|build_wheel|build_editable|build backend returned|Failed to build `).{0,900}No module named ['\"]?torch['\"]?(?![\w.])", "no module named"),
            r"No module named ['\"]?torch['\"]?(?![\w.]).{0,400}(?:Getting requirements to build|Failed to build `|build backend returned|Preparing metadata \(pyproject)|No module named ['\"]?torch['\"]?(?![\w.]).{0,900}\bpip3? install\b.{0,600}?Getting requirements to build \w+ \.\.\. error|No module named ['\"]?torch['\"]?(?![\w.]).{0,900}[/\\]pip-build-env-\w+[/\\].{0,300}?\bget_requires_for_build",
            says(r"File \"<string>\", line \d{1,4}, in .{0,200}?No module named ['\"]?torch['\"]?(?![\w.])\s{0,4}\[end of output\]", unless=r"--no-build-isolation"),
        ),
    ),
    Cause(
        "compiler-missing",
        # On Windows, the compiler may be installed although its environment (vcvarsall) is not set.
        certain_if=proofs.message_states(
            "compiler-missing",
            r"(?:gcc|g\+\+|cc|c\+\+|clang\+*)\S* ?' failed: No such|unable to execute",
        ),
        title="A package must be compiled, but the C++ compiler or ninja is missing",
        means="The package has no wheel for this Python and system, so it must be compiled.",
        text="Install a C++ compiler (Windows: the Build Tools of Visual Studio, with C++; Debian "
        "and Ubuntu: build-essential) and ninja (`pip install ninja`). Or install a release of the "
        "package that has a wheel",
        # Source: messages of setuptools and cpp_extension.
        commands=lambda context: () if on(context, "linux") else BUILD_TOOLS,
        needs_root=True,
        says=(
            says(r"Microsoft Visual C\+\+ 1[04]\.\d (?:or greater )?is required", example='error: Microsoft Visual C++ 14.0 or greater is required. Get it with "Microsoft C++ Build Tools"'),
            says(r"Unable to find cl\.exe|Cannot find compiler '?cl\.exe'? in PATH|where cl.{0,20}returned non-zero|could not find any instance of Visual Studio|(?:find|no) a (?:compatible|suitable|valid) Visual Studio installation|Unable to find vcvarsall\.bat|Running 'nmake' '-\?' failed with: no such file", example="error: Unable to find a compatible Visual Studio installation."),
            says(r"Error checking compiler version for cl: \[WinError 2\](?=.{0,1100}?(?:(?<!CUDA )error: |Failed building wheel))|\b(?:subprocess-exited-with-error|running (?:build|bdist_wheel|build_ext)|Building from source)\b.{0,900}?Error checking compiler version for cl: \[WinError 2\]", example="UserWarning: Error checking compiler version for cl: [WinError 2] The system cannot find the file specified\nerror: command failed"),
            says(r"running build_ext.{0,400}?error: \[WinError 2\]", example="running build_ext\nerror: [WinError 2] The system cannot find the file specified"),
            says(rf"(?:error: command|unable to execute) '{COMPILER}'(?: failed)?: No such file", example="error: command 'gcc' failed: No such file or directory"),
            says(r"No CMAKE_C(?:XX)?_COMPILER could be found|Could not find compiler set in environment variable C(?:C|XX)\b|nvcc fatal ?: No compiler found|(?:Could not|Couldn't|Cannot|can't|Unable to|Failed to) find an? (?:working |suitable )?C\+\+ compiler|Command '\['which', '(?:c|g)\+\+'\]' returned non-zero", example="No CMAKE_CXX_COMPILER could be found."),
            says(r"\W?\bcl(?:\.exe)?\b\W? is not recognized as (?:an internal|the name)", example="'cl' is not recognized as an internal or external command,"),
            says(r"(?:cannot execute|error trying to exec|can't exec) \W?cc1plus\W{1,3}", example="gcc: error trying to exec 'cc1plus': execvp: No such file or directory"),
            says(rf"No such file or directory: '{COMPILER}'(?=.{{0,900}}?{IN_A_BUILD})|{IN_A_BUILD}.{{0,900}}?No such file or directory: '{COMPILER}'", unless=r"inductor|triton", example="running build_ext FileNotFoundError: [Errno 2] No such file or directory: 'g++'"),
            says(r"\b(?:g\+\+|c\+\+): (?:command )?not found", unless=r"\bnvidia-\w|NVIDIA-Linux|\bdkms\b", example="sh: 1: g++: not found"),
            "ninja is required to load",
            says(r"No such file or directory: '(?:\S{1,160}/)?ninja'", example="FileNotFoundError: [Errno 2] No such file or directory: 'ninja'"),
        ),
        formerly=("ninja-missing",),
    ),
    Cause(
        "extension-not-built",
        refuted_by=(Refutation(facts.failing_file_is_in_a_checkout, "module-shadowed"),),
        title="The compiled part of {module} is missing",
        means="The build failed or was skipped (for example without a compiler, CUDA toolkit or "
        "visible GPU), or you installed a variant without compiled operators.",
        text="Rebuild the extension on the machine with the GPU, with nvcc from torch's CUDA "
        "version, and read the build's output. Without a GPU (`docker build`, a login node), set "
        "TORCH_CUDA_ARCH_LIST to the architecture of the GPUs that will run it, as "
        "torch.cuda.get_device_capability() prints it there (flash-attn reads "
        "FLASH_ATTN_CUDA_ARCHS instead, 80 for an RTX 30 or 40)",
        # Source: mmcv, detectron2 and GroundingDINO documentation, installation; messages of
        # torch/utils/cpp_extension.py.
        commands=rebuild_of("extension-not-built"),
        look=(checks.CUDA_OF_TORCH,),
        says=(
            says(r"RuntimeError: Not compiled with (?:CUDA|GPU) support", example="RuntimeError: Not compiled with CUDA support"),
            says(r"NameError: (?:global )?name '(?P<module>(?!(?:use|has|is|no|with|to|on|enable|device|num|torch)_)(?:\w{2,30}_)?cuda(?:_(?:ext|ops|kernels?|\d{2,3}))|(?!(?:use|has|is|no|with|to|on|enable|device|num|torch)_)\w{2,30}_(?:cuda|cuda_ext|kernels|_C))' is not defined", example="NameError: name 'autogptq_cuda_256' is not defined"),
            says(r"RuntimeError: \W?(?P<module>\w{3,40})?\W{0,2} ?Not implemented on the CPU", example="RuntimeError: Not implemented on the CPU"),
            says(r"(?P<module>[\w.]{3,40}) requires the CUDA flash attention extensions", example="ImportError: vllm.vllm_flash_attn requires the CUDA flash attention extensions (_vllm_fa2_C or _vllm_fa3_C). On ROCm, use upstream flash_attn."),
            says(r"No module named ['\"]?(?P<module>(?!torch\b|torchvision\b|torchaudio\b)[A-Za-z]\w{1,40})(?:\.\w{1,40}){0,4}\.(?:_C|_ext|_cuda|_CUDA|core_cc|_kernels|cuda_ext)\b", "no module named"),
            says(r"cannot import name '(?:_C|_ext)' from (?:partially initialized module )?'(?P<module>(?!torch\b|torchvision\b|torchaudio\b)[A-Za-z]\w{1,40})", example="ImportError: cannot import name '_C' from 'detectron2' (/x/detectron2/__init__.py)"),
            says(r"(?P<module>(?i:groundingdino|grounding_dino))[/\\].{0,600}?name '_C' is not defined", example="File \"/x/groundingdino/models/ms_deform_attn.py\", line 53\nNameError: name '_C' is not defined"),
            says(r"(?P<cache>(?:/|[A-Z]:\\)[^\s'\"]{0,160}torch_extensions[/\\](?:[\w.-]{1,40}[/\\]){0,3}(?P<module>[\w-]{2,60}))[/\\][\w.-]{2,80}\.so: cannot open shared object file", "torch_extensions", example="ImportError: /home/u/.cache/torch_extensions/py311_cu124/fused_adam/fused_adam.so: cannot open shared object file: No such file or directory"),
            says(r"NameError: (?:global )?name '_C' is not defined", unless=r"torch[/\\]__init__\.py|groundingdino|grounding_dino", example="NameError: name '_C' is not defined"),
            says(r"'_OpNamespace' '_(?:C|moe_C|vllm_fa\d_C|C_cache_ops)' object has no attribute '\w{2,60}'", module="vllm._C", example="AttributeError: '_OpNamespace' '_C' object has no attribute 'rms_norm'"),
            rf"No module named ['\"]?(?P<module>{COMPILED_MODULE})\b",
            says(CPU_PART, module="bitsandbytes", example="Could not load the native library: /srv/bnb/libbitsandbytes_cpu.so: cannot open shared object file"),
            says(r"CUDA_ARCHITECTURES is set to \W{0,2}native\W{0,2}, but no GPU was detected"),
            says(r"_get_cuda_arch_flags.{0,200}?IndexError: list index out of range"),
        ),
        formerly=("build-without-gpu",),
    ),
    Cause(
        "cuda-toolkit-mismatch-extension-build",
        # One message names both versions.
        certain_if=lambda context: any(
            {"nvcc", "torch"} <= event.values.keys()
            for event in events(context, "cuda-toolkit-mismatch-extension-build")
        ),
        title="nvcc and torch have different CUDA versions, so building extensions fails",
        text="Build with a CUDA toolkit of the same version as torch's CUDA (or at least the same "
        "major version). Install that toolkit if it is missing, and set CUDA_HOME to its folder",
        # Source: messages of torch/utils/cpp_extension.py; CUDA release notes.
        events=("cuda-toolkit-mismatch-extension-build", "jit-arch-rejected"),
        but={"compiler": "^(?!nvcc$)"},
        fix_for=_toolkit,
        says=(
            says(r"(?:detected )?CUDA version(?: \((?P<nvcc>\d+\.\d+)[\d.]*\))? mismatches the version that was used to compile(?: PyTorch \((?P<torch>\d+\.\d+)[\d.]*\))?", example="it says that the detected CUDA version mismatches the version that was used to compile PyTorch"),
            says(r"Installed CUDA version (?P<nvcc>\d+\.\d+) does not match the version torch was compiled with (?P<torch>\d+\.\d+)(?! but since the APIs are compatible)", example="deepspeed.ops.op_builder.builder.CUDAMismatchException: >- DeepSpeed Op Builder: Installed CUDA version 12.2 does not match the version torch was compiled with 11.8, unable to compile cuda/cpp extensions"),
            says(r"version of Cuda that does not match the version used to compile Pytorch binaries(?:.{0,80}compiled with Cuda (?P<torch>[\d.]+\d))?", example="RuntimeError: Cuda extensions are being compiled with a version of Cuda that does not match the version used to compile Pytorch binaries.  Pytorch binaries were compiled with Cuda 11.7"),
            says(r"PyTorch and (?P<module>(?!torchvision|torchaudio)[\w-]+) were compiled with different CUDA versions\. PyTorch has CUDA version (?P<torch>[\d.]+\d) and \w+ has CUDA version (?P<nvcc>[\d.]+\d)", "compiled with different cuda", example="RuntimeError: Detected that PyTorch and torch_scatter were compiled with different CUDA versions. PyTorch has CUDA version 12.1 and torch_scatter has CUDA version 11.8"),
            says(r"(?P<module>\w+) is only supported on CUDA (?P<needs>[\d.]+\d) and above", example="RuntimeError: FlashAttention is only supported on CUDA 11.7 and above.  Note: make sure nvcc has a supported version"),
            says(r"raise RuntimeError\(CUDA_MISMATCH_MESSAGE\b", example="raise RuntimeError(CUDA_MISMATCH_MESSAGE.format(cuda, torch.version.cuda))"),
            says(r"in assert_no_cuda_mismatch\b|(?<!def )\bassert_no_cuda_mismatch\(\)", unless=r"CUDA_HOME does not exist|MissingCUDA", example='File "/tmp/deepspeed/op_builder/builder.py", line 599, in builder\n    x()\n  File "/tmp/deepspeed/op_builder/builder.py", line 89, in assert_no_cuda_mismatch'),
        ),
    ),
    Cause(
        "cuda-toolkit-missing",
        check=CheckCommand("nvcc --version", "bash: nvcc: command not found"),
        title="The build needs a CUDA toolkit but cannot find one",
        means="PyTorch's wheels include CUDA's libraries but not its compiler (nvcc).",
        text="Run `gpusetup resolve NAME` to look for a prebuilt wheel of the extension. If the "
        "extension is optional, you can leave it out. To build the extension, install the CUDA "
        "toolkit in torch's CUDA version (unless `nvcc --version` already shows that version), and "
        "set CUDA_HOME to its folder. On Windows, the installer from "
        "https://developer.nvidia.com/cuda-toolkit-archive sets CUDA_PATH for you",
        explains=("build-isolation-no-torch",),
        where=(lambda context: not (context.torch.backend or "").startswith("rocm"),),
        fix_for=_toolkit,
        cases=(
            Message(
                where=(_only_a_shell_looked,),
                title="nvcc is not installed, or not on PATH",
                text="torch's wheels include all parts of CUDA that they need, so you do not need "
                "nvcc to use the GPU. You only need the CUDA toolkit to compile CUDA code "
                "yourself: install it in torch's CUDA version, and set CUDA_HOME to its folder",
                only=Severity.NOTE,
            ),
        ),
        says=(
            r"CUDA_HOME (?:environment variable )?(?:is not set|does not exist|not set|is undefined)(?:(?=.{0,1200}?(?:\u2500> (?!See )|Failed building wheel for |Failed to build `|Failed to build (?!inst))(?P<package>\w[\w-]{1,40}))|)",
            says(r"(?:Failed|Could not|Unable) to find nvcc|Could not find nvcc|(?:cannot|can't|could not|unable to|not able to) find [`'\"]?(?:(?:[A-Z]:)?(?:[/\\]{1,2}[\w.()-]{1,40}){1,10}[/\\]{1,2})?nvcc\b", example="CMake Error: Could not find nvcc, please set CUDAToolkit_ROOT"),
            says(r"Could not find CUDA(?: \(missing| toolkit|\W{0,3}$)|Could NOT find CUDAToolkit|No CUDA toolset found|No CMAKE_CUDA_COMPILER could be found|CMAKE_CUDA_COMPILER(?:-| is set to a )NOTFOUND", example="No CMAKE_CUDA_COMPILER could be found."),
            says(r"fatal error: (?P<path>cuda_runtime(?:_api)?\.h)", example="fatal error: cuda_runtime.h: No such file or directory"),
            says(r"fatal error: (?P<path>(?:cuda_(?:fp16|bf16|profiler_api)|cusparse|cublas\w*|cusolver\w*|curand\w*|cufft\w*|nvToolsExt|nvtx3/\w+|thrust/[\w/]+|cub/[\w/]+)\.(?:h|cuh))", "fatal error: ", example="fatal error: cusparse.h: No such file or directory"),
            says(r"cannot find -lcudart(?:_static)?\b", example="/usr/bin/ld: cannot find -lcudart"),
            says(r"(?:Couldn't|Could not|Failed to) (?:invoke|launch) ptxas\b|Failed to auto-detect CUDA root directory|cuda toolkit not found", example="W asm_compiler.cc:85] Couldn't get ptxas version string: INTERNAL: Couldn't invoke ptxas --version"),
            says(r"nvcc\W{0,3}: (?:command )?not found|nvcc\W{1,2} (?:is not recognized|ist entweder falsch|n'est pas reconnu|no se reconoce|não é reconhecido|не является|不是内部或外部命令)|command not found: nvcc|nvcc was not found|Command 'nvcc' not found", who="shell"),
            says(r"No such file or directory:? '?(?P<path>\S{0,160}nvcc(?:\.exe)?)\b", example="FileNotFoundError: [Errno 2] No such file or directory: '/usr/local/cuda-12.4/bin/nvcc'"),
            says(r"(?P<path>[\w/.-]{1,160}/nvcc)'?: (?:not found|no such file)", who="shell"),
        ),
        formerly=("cuda-home-unset",),
    ),
)  # fmt: skip
