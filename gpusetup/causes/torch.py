"""torch itself: it is missing, broken, installed twice or elsewhere, is the wrong build, or has no
kernels for the GPU.

Sources, where a record names no other: the wheels and indexes of torch, read for the catalog.
"""

from __future__ import annotations

from gpusetup.catalog.jetpack import board_of
from gpusetup.causes.record import Cause, CheckCommand, Message, Refutation
from gpusetup.evidence import checks, facts, proofs
from gpusetup.evidence.context import RuleContext, events, packages
from gpusetup.fixes import paste
from gpusetup.messages.fragments import TORCH_SYMBOL
from gpusetup.messages.row import says
from gpusetup.model.finding import Fix, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.shell import Lines

CONDA = ("conda", "mamba", "micromamba", "pixi")
"""The installers that write conda's packages."""


def _recover(context: RuleContext) -> Lines:
    """The command that completes an interrupted installation, in the target environment or in a
    new one that was not finished (`half_made`)."""
    for event in events(context, "install-unfinished"):
        if "half_made" in event.values:
            prefix = event.values["prefix"]
            return (paste.command(context, "gpusetup", "install", "--venv", prefix),)
    return (paste.command(context, "gpusetup", "install", "--python", paste.python(context)),)


def _reinstall(context: RuleContext, _text: str) -> Fix:
    """Remove every torch, then install it once. Otherwise an installer would mistake leftover files
    for an installed torch, and files from conda would hide files from pip."""
    conda_version, _ = conda_and_pip(context)
    remove_by_conda: Lines = ()
    if conda_version:
        prefix = context.snapshot.conda.prefix or context.snapshot.python.prefix
        environment = ("--prefix", prefix) if prefix else ()
        listed = {one.name for one in context.snapshot.packages or () if one.installer in CONDA}
        names = ("pytorch", *sorted(listed.intersection(("torchvision", "torchaudio"))))
        # With --force, conda keeps the packages that depend on torch.
        words = ("conda", "remove", "--yes", *environment, "--force", *names)
        remove_by_conda = (paste.command(context, *words),)
    # pip removes one copy at a time. It runs at least once, for files that no list names.
    copies = {one.version for one in packages(context, "torch") if one.installer not in CONDA}
    remove_by_pip = paste.pip(context, "uninstall", "-y", "torch", "torchvision", "torchaudio")
    install, build = paste.install_torch(context), context.choice.build
    if build:
        # Once torch is removed, `install` does not see which release was there.
        again = paste.gpusetup(context, "--torch", build.torch, "--backend", build.backend)
        install = replace(install, commands=(again,))
    return replace(
        install,
        text=f"Remove every installed torch. {install.text}",
        commands=(*remove_by_conda, *[remove_by_pip] * max(1, len(copies)), *install.commands),
        alternatives=(),
    )


def conda_and_pip(context: RuleContext) -> tuple[str | None, str | None]:
    """The versions of torch that conda and that pip or uv installed; None if there is none."""
    by_conda, by_pip = None, None
    for package in (*packages(context, "pytorch"), *packages(context, "torch")):
        if package.installer in CONDA:
            by_conda = by_conda or package.version
        # On PyPI, `pytorch` is not torch.
        elif package.name == "torch":
            by_pip = by_pip or package.version
    return by_conda, by_pip


def _replace_cpu_build(context: RuleContext, text: str) -> Fix:
    """Install a CUDA build in place of the CPU build, if one works on this machine."""
    build = context.choice.build
    if build and build.backend == "cpu":
        return Fix(text="No CUDA build works on this machine: see the other problems below")
    return paste.another_torch(context, text)


def _other_wheel(context: RuleContext, _text: str) -> Fix:
    """Install a torch that supports the GPU; if there is none, what can be done without one."""
    build = context.choice.build
    if build:
        can_use_gpu = build.backend != "cpu"
    else:
        # There is no wheel for this machine. The choice advises another Python or driver, or the
        # board has a torch of its own.
        can_use_gpu = bool(context.choice.advice or board_of(context.snapshot))
    if can_use_gpu:
        return paste.another_torch(context)
    return Fix(
        text="gpusetup knows no wheel for this GPU. Use the CPU build, or a newer or rented GPU",
        commands=(paste.gpusetup(context, "--backend", "cpu"),),
    )


NO_NEWER = (
    "The installed torch fits this GPU and driver, but its run-time compiler does not support the "
    "GPU. A newer torch may come with a compiler that does (`gpusetup install --upgrade`). Until "
    "then, let Triton use the ptxas of a newer CUDA toolkit (`export "
    "TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas`; for Blackwell GPUs, Triton 3.6 and newer reads "
    "TRITON_PTXAS_BLACKWELL_PATH instead), or set TORCHDYNAMO_DISABLE=1"
)
"""What to do if `jit-arch-rejected` is found although the build that fits is installed."""


TORCH_HAS_THE_KERNELS = Refutation(
    facts.torch_has_the_kernels, "extension-arch-mismatch", checks.BLOCKING_RUN
)

CAUSES = (
    Cause(
        "install-unfinished",
        title="An installation into {prefix} was interrupted",
        means="The environment is incomplete.",
        text="Run `gpusetup install`, which restores the old environment or completes the new one",
        commands=_recover,
    ),
    Cause(
        "torch-missing",
        by_check=True,
        certain_if=proofs.no_torch_is_listed,
        means="Often torch was installed into a different environment.",
        check=CheckCommand('python -c "import sys, torch; print(sys.executable)"', "ModuleNotFoundError: No module named 'torch'"),
        title="torch is not installed in {python}",
        text="Install torch",
        fix_for=lambda context, _: (
            paste.jetson_fix(context) if context.os.jetson else paste.install_torch(context)
        ),
        says=(
            r"No module named ['\"]?torch['\"]?(?![\w.])",
            r"Package 'torch' is not installed",
            says(r"Package\(s\) not found: torch\b", example="WARNING: Package(s) not found: torch"),
        ),
    ),
    Cause(
        "torch-half-installed",
        check=CheckCommand("cd /; python -c 'import torch'", '  File "/home/me/venv/lib/python3.12/site-packages/torch/__init__.py", line 1021, in <module>\n    for name in dir(_C):\nNameError: name \'_C\' is not defined'),
        title="torch is only partly installed",
        means="The installation of torch was interrupted, or another package overwrote part of it.",
        text="Reinstall torch",
        fix_for=_reinstall,
        says=(
            r"(?:site|dist)-packages[/\\]torch[/\\]__init__\.py.{0,400}?name '_C' is not defined",
            says(r"(?:site|dist)-packages/torch/lib/[\w.+-]+: (?:invalid ELF header|file too short)", example="ImportError: /x/site-packages/torch/lib/libtorch_cpu.so: invalid ELF header"),
            says(r"(?:site|dist)-packages[/\\]torch[/\\]__init__\.py['\"].{0,160}?No module named ['\"]?torch\.(?:_C|version|torch_version)\b", example="File \"/x/site-packages/torch/__init__.py\", line 29, in <module>\nModuleNotFoundError: No module named 'torch.torch_version'"),
        ),
    ),
    Cause(
        "mixed-conda-pip",
        title="conda's and pip's torch files are mixed",
        means="Neither installer knows the other's files, so Python may load files from both.",
        text="Remove all copies of torch, then install torch once",
        # Source: conda documentation, using pip.
        explains=("torch-cpu-build", "torch-half-installed"),
        check=CheckCommand("python -m pip list | grep -i '^torch '", "torch 2.5.1\ntorch 2.6.0"),
        cases=(
            Message(
                having={"times": ""},
                title="torch is installed {times} times: {versions}",
                means="Their files are mixed, or Python uses the first copy on its path.",
            ),
            Message(
                having={"twice": ""},
                title="Two copies of Intel's OpenMP runtime are loaded (OMP: Error #15)",
                means="conda's MKL and a pip wheel each include libiomp5. KMP_DUPLICATE_LIB_OK=TRUE "
                "only hides the message and may lead to wrong results.",
                text="Install numpy, MKL and torch with one installer, in a fresh environment",
                # Source: Intel OpenMP documentation.
                commands=("gpusetup install --venv .venv",),
            ),
        ),
        formerly=("two-torch-installs", "openmp-twice"),
        before_torch=(Severity.ERROR,),
        fix_for=_reinstall,
        asks=("conda list torch",),
        says=(
            says(rf"(?P<library>lib(?:torch_python|torch_cuda\w*|torch_cpu|torch|c10_cuda|c10|shm)\.so): undefined symbol: (?P<symbol>{TORCH_SYMBOL})", example="ImportError: /opt/conda/lib/python3.10/site-packages/torch/lib/libtorch_python.so: undefined symbol: _ZNK5torch8autograd4Node4nameEv"),
            says(r"libiomp5md\.dll already initialized|omp: error #15", twice="libiomp5"),
        ),
    ),
    Cause(
        "torch-import-failed",
        title="torch cannot be imported",
        means="Python found torch, but importing it failed with an error.",
        text="Reinstall torch. ",
        symptom=True,
        fix_for=paste.install_torch,
    ),
    Cause(
        "other-torch-imported",
        check=CheckCommand('python -c "import sys, torch; print(sys.executable, torch.__version__, torch.__file__)"', "/usr/bin/python3 2.4.1+cu121 /home/me/.local/lib/python3.10/site-packages/torch/__init__.py"),
        title="The program imports a different torch than the one listed: {fact}",
        means="Another environment, ~/.local or the program's bundled Python has its own torch.",
        text="You do not need to change this environment. Use the Python that runs the program to "
        "check which torch it imports and from where. Then start the program with the right Python",
        # Source: Python documentation, site and sys.path.
        cases=(
            Message(
                having={"place": ""},
                title="Python imports a torch from outside the environment: {place}",
                means="Python searches PYTHONPATH before the environment's packages.",
                text="Remove that folder from PYTHONPATH. Then check whether the environment has "
                "torch",
                commands=("export PYTHONNOUSERSITE=1",),
            ),
        ),
        formerly=("torch-outside-environment",),
        explains=(
            "torch-half-installed", "torch-cpu-build", "rocm-wheel-on-nvidia",
            "arch-too-new-for-wheel", "arch-too-old-for-wheel", "driver-too-old",
        ),
        before_torch=(Severity.ERROR, Severity.WARNING),
    ),
    Cause(
        "torch-sees-no-gpu",
        check=CheckCommand('python -c "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())"', "2.9.1+cu128 12.8 False"),
        title="torch.cuda.is_available() is False",
        means="PyTorch cannot find a GPU through CUDA. Usual reasons are a CPU build, an old "
        "driver, or a container without a GPU.",
        text="If the build has no CUDA (`torch.version.cuda` is `None`), run `gpusetup install`. "
        "If the driver is missing or too old, install or update it. If torch prints `No CUDA GPUs "
        "are available`, check whether CUDA_VISIBLE_DEVICES hides the GPU, or whether the "
        "container was started without one",
        symptom=True,
        cases=(
            Message(
                having={"bare": ""},
                title="If `{bare}` comes from {question}, torch cannot find a GPU",
                means="Your text contains only this one word. Run `gpusetup doctor` without a text "
                "to check the machine itself.",
            ),
            Message(
                where=(lambda context: bool(context.torch.cuda_available),),
                title="A program cannot find the GPU, although torch finds it elsewhere",
                text="Compare which Python and which torch run in both places. If they are the "
                "same, the program or its launcher sets CUDA_VISIBLE_DEVICES to a wrong value, so "
                "correct it there",
            ),
        ),
        asks=(checks.ASK_TORCH, checks.LIST_GPUS,),
    ),
    Cause(
        "gpu-check-failed",
        title="torch fails on this machine's GPU: {name}",
        means="The GPU computed a wrong result, or an operation of torch failed on it.",
        text="Run `gpusetup verify -v` and read the result of each check",
        symptom=True,
    ),
    Cause(
        "torch-cpu-build",
        certain_if=proofs.cpu_build_with_a_gpu,
        check=CheckCommand(checks.CUDA_OF_TORCH, "2.5.1+cpu None"),
        title="{who} is a CPU build and cannot use the {gpu}",
        plain="torch is a CPU build on a machine with an NVIDIA GPU",
        means="On Windows, `pip install torch` installs a CPU build. conda chooses a CPU build if "
        "it detects no driver, and installing another package can replace a CUDA build with a CPU "
        "build.",
        text="Replace the CPU build with a CUDA build. ",
        explains=("extension-abi-mismatch",),
        fix_for=_replace_cpu_build,
        asks=(checks.LIST_GPUS,),
        formerly=("smi-banner-misread",),
    ),
    Cause(
        "rocm-wheel-on-nvidia",
        certain_if=proofs.build_of_another_maker,
        title="{who} is a build for {maker} GPUs and cannot use {gpus}",
        plain="torch is a build for another vendor's GPUs on a machine with an NVIDIA GPU",
        means="ROCm builds are for AMD GPUs, and XPU builds are for Intel GPUs.",
        text="Replace this build. ",
        fix_for=paste.another_torch,
        formerly=("xpu-wheel-on-nvidia",),
    ),
    Cause(
        "jit-arch-rejected",
        certain_if=proofs.message_states_it,
        title="{compiler} does not support the architecture {arch}",
        plain="The run-time compiler does not support the architecture of this GPU",
        means="Kernels that are compiled at run time (torch.compile, fusers, jiterator) do not "
        "work. Precompiled kernels may work.",
        text="Install a torch build for a newer CUDA version, whose compiler supports this GPU. ",
        # Source: NVRTC documentation; Triton's and XLA's sources.
        explains=("cuda-init-failed",),
        but={"compiler": "^nvcc$"},
        fix_for=lambda context, text: paste.another_torch(context, text, NO_NEWER),
        says=(
            says(r"(?P<compiler>nvrtc):? error: invalid value for --gpu-architecture", example="nvrtc: error: invalid value for --gpu-architecture (-arch)"),
            says(r"(?P<compiler>ptxas)[\w-]{0,12} ?(?:fatal|error)? ?:? ?Value '(?P<arch>sm_\w+)' is not defined for option 'gpu-name'", example="ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'"),
            says(r"(?P<compiler>nvcc) ?fatal ?: (?:Value|Unsupported gpu architecture) '?(?P<arch>(?:compute|sm)_\d\w{1,4})\b", example="nvcc fatal   : Unsupported gpu architecture 'compute_120'"),
            says(r"PTX \.version \d\.\d does not support \.target (?P<arch>sm_\w+)", compiler="ptxas"),
            says(r"ptxas\W.{0,200}?--gpu-name=(?P<arch>sm_\w+)\W.{0,300}?returned non-zero exit status", compiler="ptxas", unless="too much shared data|Permission denied", example="`/x/triton/backends/nvidia/bin/ptxas -lineinfo -v --gpu-name=sm_121a /tmp/a.ptx -o /tmp/a.ptx.o` failed: subprocess.CalledProcessError: returned non-zero exit status 255"),
            says(r"'(?P<arch>sm_\w+)' is not a recognized processor", compiler="llvm", example="'sm_120' is not a recognized processor for this target (ignoring processor)"),
        ),
    ),
    Cause(
        "arch-too-new-for-wheel",
        certain_if=proofs.capability_is_read,
        check=CheckCommand(checks.TORCHS_KERNELS, "2.6.0+cu124 ['sm_50', 'sm_60', 'sm_70', 'sm_75', 'sm_80', 'sm_86', 'sm_90'] (12, 0)"),
        refuted_by=(TORCH_HAS_THE_KERNELS,),
        title="{who} has no kernels for {gpu}: this build is older than the GPU",
        plain="The GPU is too new for this build of torch",
        means="A torch build has kernels only for the GPU generations that existed when it was "
        "made. Most builds contain no PTX (portable code) that the driver could compile instead.",
        text="Install a newer torch",
        # Source: CUDA C++ Programming Guide, application compatibility.
        explains=("cuda-library-error",),
        fix_for=_other_wheel,
        asks=(checks.GPU_AND_DRIVER,),
    ),
    Cause(
        "arch-too-old-for-wheel",
        certain_if=proofs.capability_is_read,
        check=CheckCommand(checks.TORCHS_KERNELS, "2.9.1+cu128 ['sm_70', 'sm_75', 'sm_80', 'sm_86', 'sm_90', 'sm_100', 'sm_120'] (6, 1)"),
        refuted_by=(TORCH_HAS_THE_KERNELS,),
        title="{who} has no kernels for {gpu}: this build no longer supports the GPU",
        plain="The build of torch has no kernels for this old GPU",
        means="Newer builds drop old GPU generations: the Linux wheels for CUDA 12.8 and newer "
        "have no kernels for Pascal (GTX 10xx, Tesla P100).",
        text="Install a build that still has kernels for your GPU. For Maxwell, Pascal and Volta, "
        "that is cu126",
        explains=("cuda-library-error",),
        fix_for=_other_wheel,
        formerly=("builds-for-gpu",),
    ),
    Cause(
        "no-kernel-image",
        formerly=("kernel-image-invalid",),
        by_check=True,
        check=CheckCommand(checks.TORCHS_KERNELS, "2.6.0+cu124 ['sm_50', 'sm_60', 'sm_70', 'sm_75', 'sm_80', 'sm_86', 'sm_90'] (12, 0)"),
        refuted_by=(TORCH_HAS_THE_KERNELS,),
        title="torch, or an extension, has no kernel for {gpu}",
        means="This message shows neither the GPU nor the package that lacks the kernel.",
        text="If torch.cuda.get_arch_list() has no kernel for your GPU, install a torch build that "
        "supports the GPU (`gpusetup install`). Otherwise torch is fine: reinstall the package "
        "that fails, so that it is built for this GPU (`python -m pip install --no-build-isolation "
        "--no-deps --force-reinstall --no-cache-dir --no-binary PACKAGE PACKAGE`)",
        # Source: CUDA Runtime API reference, cudaError.
        asks=(checks.TORCHS_KERNELS,),
        says=(
            says(r"FATAL: kernel \W?\w{4,80}\W? is for sm\d{2,3}(?:-sm\d{2,3})?, but was built for sm\d{2,3}", example="FATAL: kernel `fmha_cutlassF_f16_aligned_64x64_rf_sm80` is for sm80-sm100, but was built for sm37"),
            r"(?:Cuda failure '|CUDA error: )invalid device function|(?:CUDA error|Triton Error \[CUDA\]): device kernel image is invalid",
            r"no kernel image is available for execution on the device \(at [^()]{0,200}?[/\\](?P<module>(?!pytorch|torch|aten|c10)[a-z][a-z0-9_]{3,30}?)(?:-(?:dev|main|master|\d[\d.]{0,8}))?[/\\](?:src|csrc)[/\\]",
            says(r"FATAL: this function is for sm\d{2,3}, but was built for sm\d{2,4}|Your device is too old\. We require compute capability >= \d{2}|requires device with capability .{2,40}? but your GPU has capability \(\d{1,2}, \d\) \(too new\)", example="FATAL: this function is for sm80, but was built for sm750", module="xformers"),
            says(r"CUDA error \([^()]{0,160}?(?:\bhopper[/\\][\w.]{3,60}:\d{1,5}\): ?invalid argument|(?:\bflash_\w{2,40}|\bxformers\b)[^()]{0,80}:\d{1,5}\): ?invalid device function)", example="CUDA error (/tmp/flash_fwd_launch_template.h:94): invalid device function", module="flash_attn"),
            says(r"CUDA kernel \S{1,80} has no device code compatible with CUDA arch|ggml-cuda was compiled without support for the current GPU architecture", example="ERROR: CUDA kernel mul_mat_q has no device code compatible with CUDA arch 610. ggml-cuda.cu was compiled for: 700", module="ggml-cuda"),
            says(r"CUDA GPU is too old\. Compute Capability detected: \d\.\d", module="ollama", example='level=INFO msg="[0] CUDA GPU is too old. Compute Capability detected: 3.0"'),
        ),
    ),
)  # fmt: skip
