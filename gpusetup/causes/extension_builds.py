"""Causes for failed builds of extensions: a compiler is missing, too new or too old, or the build
left out the GPU."""

from __future__ import annotations

from gpusetup.causes import alike
from gpusetup.causes.record import Cause, Message, Refutation
from gpusetup.evidence import facts, proofs
from gpusetup.fixes import paste
from gpusetup.fixes.extension_packages import rebuild_of
from gpusetup.messages.fragments import COMPILED_MODULE, CPU_PART, IN_A_BUILD
from gpusetup.messages.row import says

WHICH_CUDA = (alike.TORCHS_CUDA, "nvcc --version")


BESIDE = (
    "pip install setuptools wheel ninja",
    "pip install --no-build-isolation {package}",
)


COMPILER = r"(?:(?:x86_64|aarch64)-(?:linux-gnu|conda-linux-gnu)-(?:gcc|g\+\+|cc|c\+\+)(?:-\d{1,2})?|gcc(?:-\d{1,2})?|cc|g\+\+(?:-\d{1,2})?|c\+\+|clang(?:\+\+)?|cl(?:\.exe)?)"
"""The name of a C++ compiler in a build's output."""


CAUSES = (
    Cause(
        "cxx-standard-too-old",
        certain_if=proofs.message_states_it,
        title="The build, its compiler or nvcc uses a C++ standard that is too old for torch's "
        "headers",
        means="torch's headers need C++14 since torch 1.5, and C++17 since torch 2.1.",
        text="Use a newer release of the extension, or set a newer -std=c++ in its setup.py. "
        "Build with gcc 9 or newer (set CC and CXX) and the nvcc of torch's CUDA (set "
        "CUDA_HOME). nvcc 11.0 and newer supports C++17, and 12.0 and newer supports C++20. "
        "As an alternative, install the torch release that the extension was written for",
        # Source: c10/util/C++17.h, ATen/ATen.h; release notes of torch 2.1.
        look=(*WHICH_CUDA, "g++ --version"),
        says=(
            says(r"C\+\+(?P<needs>1[47]|2\d) or later compatible compiler is required to use (?:ATen|PyTorch)", who="build"),
            says(r"You need C\+\+(?P<needs>1[47]|2\d) to compile PyTorch", who="build", example="#error You need C++17 to compile PyTorch"),
            says(r"(?:unrecognized|unknown|invalid) (?:command[- ]line )?(?:option|argument|value) ['\"]?-?-?(?:std=)?(?:c|gnu)\+\+(?P<needs>1[47]|1z|2\d)", "-std=", who="compiler", example="cc1plus: error: unrecognized command line option '-std=c++17'"),
            says(r"Value 'c\+\+(?P<needs>1[47]|2\d)' is not defined for option 'std'", who="nvcc", example="nvcc fatal   : Value 'c++20' is not defined for option 'std'"),
        ),
    ),
    Cause(
        "compiler-too-new",
        # Visual Studio prints the same message for a compiler that is too old.
        certain_if=proofs.message_states(
            "compiler-too-new", r"gcc versions later than|STL1002|and up are not supported"
        ),
        title="nvcc supports gcc up to {compiler}, but the installed gcc is newer",
        plain="nvcc does not support this C++ compiler, because it is too new for the CUDA toolkit",
        means="Every CUDA toolkit supports C++ compilers up to a certain version.",
        text="Let nvcc use an older compiler that its release notes list (for Visual Studio: add "
        "an older MSVC toolset in its installer, and build in that toolset's prompt). As an "
        "alternative, use a newer toolkit with the same CUDA major version as torch",
        # Source: NVIDIA, CUDA Installation Guide, host compiler support.
        commands=(
            "export NVCC_PREPEND_FLAGS='-ccbin g++-{compiler}'",
            "export CC=gcc-{compiler} CXX=g++-{compiler}",
        ),
        windows=(),
        says=(
            r"unsupported GNU version! gcc versions later than (?P<compiler>4\.\d|\d+)",
            r"unsupported Microsoft Visual Studio version",
            r"STL1002: Unexpected compiler version",
            says(r"mathcalls\.h[^\n]{0,40}?error: exception specification is incompatible with that of previous function", example='/usr/include/x86_64-linux-gnu/bits/mathcalls.h(79): error: exception specification is incompatible with that of previous function "cospi"'),
            says(r"(?:std_function|functional)\S{0,12}: error: parameter packs not expanded with", example="/usr/include/c++/11/bits/std_function.h:435:145: error: parameter packs not expanded with '...':"),
            says(r"unsupported GNU version! gcc 4\.9 and up are not supported", compiler="4.8"),
        ),
        not_examples=("my.h:1:1: error: parameter packs not expanded with '...'",),
    ),
    Cause(
        "build-isolation-no-torch",
        certain_if=proofs.message_states_it,
        title="{package} needs torch to build, but pip or uv builds it in an environment without "
        "torch",
        means="pip and uv build each package in a new environment that contains only the build "
        "requirements that the package declares.",
        text="Install torch first, then build the package in your environment: `pip install "
        "--no-build-isolation PACKAGE`",
        # Source: PEP 518; pip documentation, build system interface.
        commands=("gpusetup install --yes", *BESIDE),
        cases=(
            Message(
                where=(lambda context: bool(context.torch.version),),
                text="torch is installed, so build the package in this environment: `pip install "
                "--no-build-isolation PACKAGE` (for the sources in this folder, use `-e .`)",
                commands=BESIDE,
            ),
        ),
        says=(
            says(r"depends on `?torch`?, but doesn't declare it as a build dependency", example="hint: `flash-attn` depends on `torch`, but doesn't declare it as a build dependency."),
            says(r"""(?x)
        (?:Collecting\ (?P<package>[\w.@:/+\[\]~-]{2,120})
        (?:(?!Collecting\ )[^\0]){0,200}?)?
        (?:Getting\ requirements\ to\ build|Preparing\ metadata|setup\.py\ egg_info)
        (?:(?!Collecting\ )[^\0]){0,1500}?No\ module\ named\ ['\"]?torch['\"]?
        (?![\w.])
        """, "no module named"),
            # pip and uv build a checkout in isolation from the environment, so that the build does
            # not see torch. A program that runs after the installation may lack torch for another
            # reason.
            says(r"(?:pip3?|uv(?: pip)?) (?:install|sync)(?: -{1,2}[\w-]+){0,4} (?:-e )?\.[\w/\[\]-]{0,40}\W[^\0]{0,600}?No module named ['\"]?torch['\"]?(?![\w.])", unless=r"--no-build-isolation|python3? \S{1,60}\.py"),
            r"Failed to (?:download and )?build:? `(?P<package>[\w.-]{2,60})[^\0]{0,1500}?No module named ['\"]?torch['\"]?(?![\w.])",
            says(r"""(?x)
        (?:build-env|builds-v0|build_meta|get_requires_for_build|build_wheel|build_editable
          |build\ backend\ returned|Failed\ to\ build\ `).{0,900}No\ module\ named\ ['\"]?torch['\"]?
        (?![\w.])
        """, "no module named"),
            r"No module named ['\"]?torch['\"]?(?![\w.]).{0,400}(?:Getting requirements to build|Failed to build `|build backend returned|Preparing metadata \(pyproject)|No module named ['\"]?torch['\"]?(?![\w.]).{0,900}\bpip3? install\b.{0,600}?Getting requirements to build \w+ \.\.\. error|No module named ['\"]?torch['\"]?(?![\w.]).{0,900}[/\\]pip-build-env-\w+[/\\].{0,300}?\bget_requires_for_build",
            says(r"File \"<string>\", line \d{1,4}, in .{0,200}?No module named ['\"]?torch['\"]?(?![\w.])\s{0,4}\[end of output\]", unless=r"--no-build-isolation"),
        ),
        not_examples=(
            "pip install -e .\npython train.py\nModuleNotFoundError: No module named 'torchmetrics'",
        ),
    ),
    Cause(
        "compiler-missing",
        # On Windows, the compiler may be installed although its environment (vcvarsall) is not set.
        certain_if=proofs.message_states(
            "compiler-missing",
            r"(?:gcc|g\+\+|cc|c\+\+|clang\+*)\S* ?' failed: No such|unable to execute",
        ),
        title="A package must be compiled, but there is no C++ compiler",
        means="No wheel fits this Python and system, so the installer compiles the package.",
        text="Install a C++ compiler (Windows: the Build Tools of Visual Studio, with C++; "
        "Debian and Ubuntu: build-essential), or install a wheel of the package instead",
        # Source: messages of setuptools and cpp_extension.
        windows=("winget install Microsoft.VisualStudio.2022.BuildTools",),
        needs_root=True,
        says=(
            says(r"Microsoft Visual C\+\+ 1[04]\.\d (?:or greater )?is required", example='error: Microsoft Visual C++ 14.0 or greater is required. Get it with "Microsoft C++ Build Tools"'),
            r"Unable to find cl\.exe|Cannot find compiler '?cl\.exe'? in PATH",
            says(r"where cl.{0,20}returned non-zero", example="subprocess.CalledProcessError: Command '['where', 'cl']': where cl returned non-zero exit status 1."),
            says(r"Error checking compiler version for cl: \[WinError 2\](?=.{0,1100}?(?:(?<!CUDA )error: |Failed building wheel))|\b(?:subprocess-exited-with-error|running (?:build|bdist_wheel|build_ext)|Building from source)\b.{0,900}?Error checking compiler version for cl: \[WinError 2\]", example="UserWarning: Error checking compiler version for cl: [WinError 2] The system cannot find the file specified\nerror: command failed"),
            says(r"Cannot open include file: '(?:corecrt|crtdbg|stddef|io|ctype|basetsd|rc)\.h'", example="fatal error C1083: Cannot open include file: 'corecrt.h': No such file or directory"),
            says(r"running build_ext.{0,400}?error: \[WinError 2\]", example="running build_ext\nerror: [WinError 2] The system cannot find the file specified"),
            says(rf"error: command '{COMPILER}' failed: No such file", example="error: command 'gcc' failed: No such file or directory"),
            says(rf"unable to execute '{COMPILER}': No such file", example="unable to execute 'gcc': No such file or directory"),
            says(r"No CMAKE_C(?:XX)?_COMPILER could be found", example="No CMAKE_CXX_COMPILER could be found."),
            says(r"Could not find compiler set in environment variable C(?:C|XX)\b", example="CMake Error: Could not find compiler set in environment variable CXX:"),
            r"Unable to find vcvarsall\.bat",
            r"could not find any instance of Visual Studio",
            says(r"(?:find|no) a (?:compatible|suitable|valid) Visual Studio installation", example="error: Unable to find a compatible Visual Studio installation."),
            r"Running 'nmake' '-\?' failed with: no such file",
            says(r"\W?\bcl(?:\.exe)?\b\W? is not recognized as (?:an internal|the name)", example="'cl' is not recognized as an internal or external command,"),
            says(r"nvcc fatal ?: No compiler found", example="nvcc fatal : No compiler found"),
            says(r"error: linker `(?:cc|link\.exe)` not found", example="error: linker `cc` not found"),
            says(r"(?:Could not|Couldn't|Cannot|can't|Unable to|Failed to) find an? (?:working |suitable )?C\+\+ compiler", example="RuntimeError: Could not find a C++ compiler"),
            says(r"Command '\['which', '(?:c|g)\+\+'\]' returned non-zero", example="subprocess.CalledProcessError: Command '['which', 'c++']' returned non-zero exit status 1."),
            says(rf"which: no (?:g\+\+|c\+\+|gcc) in \(.{{0,900}}?{IN_A_BUILD}|{IN_A_BUILD}.{{0,900}}?which: no (?:g\+\+|c\+\+|gcc) in \(", example="building 'x' extension with build_ext which: no g++ in (/usr/bin)"),
            says(rf"\b(?:gcc|cc): command not found.{{0,900}}?{IN_A_BUILD}|{IN_A_BUILD}.{{0,900}}?\b(?:gcc|cc): command not found", example="gcc: command not found ERROR: Failed building wheel for deepspeed"),
            says(r"(?:cannot execute|error trying to exec|can't exec) \W?cc1plus\W{1,3}", example="gcc: error trying to exec 'cc1plus': execvp: No such file or directory"),
            says(rf"No such file or directory: '{COMPILER}'(?=.{{0,900}}?{IN_A_BUILD})|{IN_A_BUILD}.{{0,900}}?No such file or directory: '{COMPILER}'", unless=r"inductor|triton", example="running build_ext FileNotFoundError: [Errno 2] No such file or directory: 'g++'"),
            says(r"\b(?:g\+\+|c\+\+): (?:command )?not found", unless=r"\bnvidia-\w|NVIDIA-Linux|\bdkms\b", example="sh: 1: g++: not found"),
        ),
        not_examples=(
            "UserWarning: Error checking compiler version for cl: [WinError 2] The system cannot find the file specified",
            "Cannot open include file: 'my_own.h'",
            "cc1plus: warning: command-line option is valid for C",
        ),
    ),
    Cause(
        "extension-not-built",
        refuted_by=(Refutation(facts.failing_file_is_in_a_checkout, "source-checkout-imported"),),
        title="The compiled part of {module} is missing",
        means="The build failed or was skipped (no compiler, no toolkit, no visible GPU). Or a "
        "variant of the extension without compiled operators is installed.",
        text="Rebuild the extension with the nvcc of the CUDA version that torch was built with, "
        "on a machine where the GPU is visible, and read the build's output. Without a GPU, set "
        "TORCH_CUDA_ARCH_LIST to the GPU's architecture",
        # Source: mmcv, detectron2 and GroundingDINO documentation, installation; messages of
        # torch/utils/cpp_extension.py.
        commands=rebuild_of("extension-not-built"),
        look=(alike.TORCHS_CUDA,),
        says=(
            says(r"RuntimeError: Not compiled with (?:CUDA|GPU) support", example="RuntimeError: Not compiled with CUDA support"),
            says(r"NameError: (?:global )?name '(?P<module>(?!(?:use|has|is|no|with|to|on|enable|device|num|torch)_)(?:\w{2,30}_)?cuda(?:_(?:ext|ops|kernels?|\d{2,3}))|(?!(?:use|has|is|no|with|to|on|enable|device|num|torch)_)\w{2,30}_(?:cuda|cuda_ext|kernels|_C))' is not defined", example="NameError: name 'autogptq_cuda_256' is not defined"),
            says(r"RuntimeError: \W?(?P<module>\w{3,40})?\W{0,2} ?Not implemented on the CPU", example="RuntimeError: Not implemented on the CPU"),
            says(r"'NoneType' object has no attribute '(?P<module>causal_conv1d|selective_scan|CameraModelType)\w*'", example="AttributeError: 'NoneType' object has no attribute 'causal_conv1d_fwd'"),
            says(r"(?P<module>[\w.]{3,40}) requires the CUDA flash attention extensions", example="ImportError: vllm.vllm_flash_attn requires the CUDA flash attention extensions (_vllm_fa2_C or _vllm_fa3_C). On ROCm, use upstream flash_attn."),
            says(r"DLL load failed while importing (?P<module>\w{2,40}_plugin)\b", example="ImportError: DLL load failed while importing upfirdn2d_plugin: The specified module could not be found."),
            says(r"failed to import\. (?P<module>[a-z]\w{2,30}) is not built correctly", example="detectron2._C           failed to import. detectron2 is not built correctly"),
            says(r"""(?x)
        No\ module\ named\ ['\"]?
        (?P<module>(?!torch\b|torchvision\b|torchaudio\b)[A-Za-z]\w{1,40})
        (?:\.\w{1,40}){0,4}\.(?:_C|_ext|_cuda|_CUDA|core_cc|_kernels|cuda_ext)\b
        """, "no module named"),
            says(r"cannot import name '(?:_C|_ext)' from (?:partially initialized module )?'(?P<module>(?!torch\b|torchvision\b|torchaudio\b)[A-Za-z]\w{1,40})", example="ImportError: cannot import name '_C' from 'detectron2' (/x/detectron2/__init__.py)"),
            says(r"(?P<module>(?i:groundingdino|grounding_dino))[/\\].{0,600}?name '_C' is not defined", example="File \"/x/groundingdino/models/ms_deform_attn.py\", line 53\nNameError: name '_C' is not defined"),
            says(r"""(?x)
        (?P<cache>(?:/|[A-Z]:\\)[^\s'\"]{0,160}torch_extensions[/\\](?:[\w.-]{1,40}[/\\]){0,3}
          (?P<module>[\w-]{2,60}))[/\\][\w.-]{2,80}\.so:\ cannot\ open\ shared\ object\ file
        """, "torch_extensions", example="ImportError: /home/u/.cache/torch_extensions/py311_cu124/fused_adam/fused_adam.so: cannot open shared object file: No such file or directory"),
            says(r"NameError: (?:global )?name '_C' is not defined", unless=r"torch[/\\]__init__\.py|groundingdino|grounding_dino", example="NameError: name '_C' is not defined"),
            says(r"'_OpNamespace' '_(?:C|moe_C|vllm_fa\d_C|C_cache_ops)' object has no attribute '\w{2,60}'", module="vllm._C", example="AttributeError: '_OpNamespace' '_C' object has no attribute 'rms_norm'"),
            says(r"Can ?not import sgl_kernel\. Please check your installation", module="sgl_kernel", example="ImportError: Can not import sgl_kernel. Please check your installation."),
            says(r"Fallback to pytorch engine because turbomind engine is not installed correctly", module="turbomind"),
            says(r"CUDA available: True.{0,3000}?MMCV CUDA Compiler: not available", module="mmcv", example="sys.platform: linux\nCUDA available: True\nMMCV: 1.7.1\nMMCV Compiler: GCC 9.4\nMMCV CUDA Compiler: not available"),
            rf"No module named ['\"]?(?P<module>{COMPILED_MODULE})\b",
            says(CPU_PART, module="bitsandbytes", example="Could not load the native library: /srv/bnb/libbitsandbytes_cpu.so: cannot open shared object file"),
            says(r"Configured ROCm binary not found at \S{0,300}?libbitsandbytes_rocm\d+\.(?:so|dll)", module="bitsandbytes", build="rocm"),
            says(r"object has no attribute 'ds_opt_(?:adam|adagrad|lion)'", module="deepspeed", example="AttributeError: 'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'"),
            says(r"NameError: name 'exllama(?:v[23])?_ext(?:_c)?' is not defined", module="exllamav2", example="NameError: name 'exllamav2_ext' is not defined"),
        ),
        not_examples=("it is not implemented on the CPU yet",),
    ),
    Cause(
        "build-without-gpu",
        title="torch sees no GPU, so it cannot choose the architecture of the extension",
        means="Without TORCH_CUDA_ARCH_LIST, torch builds for the GPUs that it sees. torch sees "
        "no GPU in `docker build`, on a login node, or if the driver does not respond.",
        text="Set TORCH_CUDA_ARCH_LIST to the architectures of the GPUs that will run the "
        "extension. On the machine with those GPUs, torch.cuda.get_device_capability() prints "
        "the architecture",
        # Source: messages of torch/utils/cpp_extension.py, _get_cuda_arch_flags.
        commands=paste.architectures_for_build,
        says=(
            r"CUDA_ARCHITECTURES is set to \W{0,2}native\W{0,2}, but no GPU was detected",
            r"_get_cuda_arch_flags.{0,200}?IndexError: list index out of range",
        ),
    ),
)  # fmt: skip
