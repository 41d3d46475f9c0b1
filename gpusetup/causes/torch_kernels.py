"""Missing kernels: neither the wheel nor the run-time compiler has one for this GPU."""

from __future__ import annotations

from gpusetup.catalog.jetpack import board_of
from gpusetup.causes import alike
from gpusetup.causes.record import Cause, CheckCommand, Refutation
from gpusetup.evidence import gpu_facts, proofs
from gpusetup.evidence.context import RuleContext, events
from gpusetup.fixes import paste
from gpusetup.messages.row import says
from gpusetup.model.finding import Fix

REJECTED = r"CUDA_ERROR_INVALID_(?:PTX|HANDLE|IMAGE|SOURCE)"
"""Errors that the driver returns for a kernel that it cannot use."""
NOT_BUILT_FOR = (
    r"not built with CUDA kernel binaries compatible with compute capability (?P<arch>\d{1,2}\.\d)"
)


def _other_wheel(context: RuleContext, _text: str) -> Fix:
    """Install a torch that supports the GPU. If there is none, the fix is what can be done without
    one."""
    build = paste.chosen_build(context)
    if build:
        can_use_gpu = build.backend != "cpu"
    else:
        # There is no wheel for this machine. The advice is another Python or system, or the board's
        # own torch.
        can_use_gpu = bool(context.choice.advice or board_of(context.snapshot))
    if can_use_gpu:
        return paste.another_torch(context)
    return Fix(
        text="No known wheel of torch supports this GPU: use the CPU build, or a newer or rented "
        "GPU",
        commands=(paste.gpusetup(context, "--backend", "cpu"),),
    )


NO_NEWER = (
    "The installed torch fits this GPU and driver, but its run-time compiler does not support the "
    "GPU. A newer torch may come with a compiler that does (`gpusetup install --upgrade`). As a "
    "workaround, let Triton use the ptxas of a CUDA toolkit that supports the GPU: `export "
    "TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas` (since Triton 3.6, for Blackwell: "
    "TRITON_PTXAS_BLACKWELL_PATH). As an alternative, run without torch.compile "
    "(TORCHDYNAMO_DISABLE=1)"
)


def _kernel_of_hip_is_missing(context: RuleContext) -> str:
    """What shows that a kernel of an AMD GPU is missing, else "". ggml's ROCm build prints CUDA's
    names for HIP's errors."""
    return "a ROCm build lacks the kernel" if events(context, "hip-kernel-missing") else ""


CAUSES = (
    Cause(
        "jit-arch-rejected",
        certain_if=proofs.message_states_it,
        title="{compiler} does not support the architecture {arch}",
        plain="The run-time compiler does not support the architecture of this GPU",
        means="Kernels that are compiled at run time (torch.compile, fusers, jiterator) do not "
        "work. Precompiled kernels may work.",
        text="Install a torch build for a newer CUDA version, whose compiler supports it. ",
        # Source: NVRTC documentation; Triton's and XLA's sources.
        stage="first-kernel",
        explains=("cuda-init-failed",),
        but={"compiler": "^nvcc$"},
        way=lambda context, text: paste.another_torch(context, text, NO_NEWER),
        says=(
            says(r"ptxas does not support CC (?P<arch>\d{1,2}\.\d)", compiler="XLA's assembler"),
            *(
                says(pattern, compiler="The driver's compiler, for TensorFlow's kernels,")
                for pattern in (
                    rf"{NOT_BUILT_FOR}.{{0,600}}?{REJECTED}",
                    rf"{REJECTED}.{{0,600}}?{NOT_BUILT_FOR}",
                )
            ),
            r"(?P<compiler>nvrtc):? error: invalid value for --gpu-architecture",
            r"(?P<compiler>ptxas)[\w-]{0,12} ?(?:fatal|error)? ?:? ?Value '(?P<arch>sm_\w+)' is not defined for option 'gpu-name'",
            r"(?P<compiler>nvcc) ?fatal ?: Value '(?P<arch>(?:compute|sm)_\d\w{1,4})' is not defined for option 'gpu-architecture'",
            r"(?P<compiler>nvcc) ?fatal ?: Unsupported gpu architecture '?(?P<arch>compute_\d\w{1,4})",
            says(r"PTX \.version \d\.\d does not support \.target (?P<arch>sm_\w+)", compiler="ptxas"),
            says(r"ptxas\W.{0,200}?--gpu-name=(?P<arch>sm_\w+)\W.{0,300}?returned non-zero exit status", compiler="ptxas", unless="too much shared data|Permission denied"),
            says(r"-arch=(?P<arch>(?:compute|sm)_\d\w{1,4})'? is an unsupported option", compiler="NVVM"),
            says(r"'(?P<arch>sm_\w+)' is not a recognized processor", compiler="llvm"),
            says(r"Unknown target CPU '(?P<arch>sm_\w+)'", compiler="llvm"),
        ),
        examples=(
            "nvrtc: error: invalid value for --gpu-architecture (-arch)",
            "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",
            "`/x/triton/backends/nvidia/bin/ptxas -lineinfo -v --gpu-name=sm_121a /tmp/a.ptx -o /tmp/a.ptx.o` failed: subprocess.CalledProcessError: returned non-zero exit status 255",
            "nvcc fatal   : Unsupported gpu architecture 'compute_120'",
            "'sm_120' is not a recognized processor for this target (ignoring processor)",
            "LLVM ERROR: Unknown target CPU 'sm_103'",
            "nvcc fatal   : Value 'compute_89' is not defined for option 'gpu-architecture'",
            "libNVVM: '-arch=compute_120' is an unsupported option",
            "gpu/asm_compiler.cc:231] Falling back to the CUDA driver for PTX compilation; ptxas does not support CC 8.9",
            "TensorFlow was not built with CUDA kernel binaries compatible with compute capability 12.0. CUDA kernels will be jit-compiled from PTX\nInternalError: 'cuLaunchKernel(f)' failed with 'CUDA_ERROR_INVALID_HANDLE'",
            "InternalError: 'cuLaunchKernel(function)' failed with 'CUDA_ERROR_INVALID_HANDLE'; before it: TensorFlow was not built with CUDA kernel binaries compatible with compute capability 12.0a",
        ),
        not_examples=(
            "nvcc fatal   : Value 'native' is not defined for option 'gpu-architecture'",
            "'-fast' is an unsupported option",
            "TensorFlow was not built with CUDA kernel binaries compatible with compute capability 9.0; it compiles for half an hour and then runs",
        ),
    ),
    Cause(
        "arch-too-new-for-wheel",
        certain_if=proofs.capability_is_read,
        check=CheckCommand(alike.TORCHS_KERNELS, "2.6.0+cu124 ['sm_50', 'sm_60', 'sm_70', 'sm_75', 'sm_80', 'sm_86', 'sm_90'] (12, 0)"),
        refuted_by=(
            Refutation(
                gpu_facts.torch_has_the_kernels, "extension-arch-mismatch", alike.BLOCKING_RUN
            ),
        ),
        title="{who} has no kernels for {gpu}: this build is older than the GPU",
        plain="The GPU is too new for this build of torch",
        means="A torch build has kernels only for the GPU generations that existed when it was "
        "made. The installed build has no kernels for your GPU, and no PTX (portable code) that "
        "the driver could compile instead.",
        text="Install a newer torch",
        # Source: CUDA C++ Programming Guide, application compatibility.
        stage="first-kernel",
        explains=("cuda-library-error",),
        way=_other_wheel,
        alike={alike.BESIDE_TORCH: ("cuda-lib-missing",)},
    ),
    Cause(
        "arch-too-old-for-wheel",
        certain_if=proofs.capability_is_read,
        check=CheckCommand(alike.TORCHS_KERNELS, "2.9.1+cu128 ['sm_70', 'sm_75', 'sm_80', 'sm_86', 'sm_90', 'sm_100', 'sm_120'] (6, 1)"),
        refuted_by=(
            Refutation(
                gpu_facts.torch_has_the_kernels, "extension-arch-mismatch", alike.BLOCKING_RUN
            ),
        ),
        title="{who} has no kernels for {gpu}: this build no longer supports the GPU",
        plain="The build of torch has no kernels for this old GPU",
        means="Newer PyTorch builds drop old GPU generations to stay small. For example, the "
        "Linux wheels for CUDA 12.8 and newer have no kernels for Pascal (GTX 10xx, Tesla P100).",
        text="Install a build that still has kernels for it: cu126 for Maxwell, Pascal and Volta",
        # Source: the wheels and indexes of torch, read for the catalog.
        stage="first-kernel",
        explains=("cuda-library-error",),
        way=_other_wheel,
        beside_torch="Newer releases of the program do not have kernels for this GPU either. "
        "Build the program from source for the GPU's compute capability, or use a release or "
        "image for older GPUs. Or use another program that supports the GPU, or run this one on "
        "the CPU. A newer driver, cuDNN or torch does not help, because this program does not "
        "use torch",
    ),
    Cause(
        "no-kernel-image",
        check=CheckCommand(alike.TORCHS_KERNELS, "2.6.0+cu124 ['sm_50', 'sm_60', 'sm_70', 'sm_75', 'sm_80', 'sm_86', 'sm_90'] (12, 0)"),
        refuted_by=(
            Refutation(_kernel_of_hip_is_missing, "amd-gpu"),
            Refutation(
                gpu_facts.torch_has_the_kernels, "extension-arch-mismatch", alike.BLOCKING_RUN
            ),
        ),
        title="torch, or an extension, has no kernel for {gpu}",
        plain="A kernel for the GPU is missing, in torch or an extension",
        means="PyTorch and its extensions contain kernels only for the GPU generations that they "
        "were built for. This message names neither the GPU nor the package that lacks the "
        "kernel.",
        text="Install a torch that supports this GPU. If torch itself works (the second command "
        "prints 18.0), rebuild the package that fails instead",
        # Source: CUDA Runtime API reference, cudaError.
        symptom=True,
        stage="first-kernel",
        by_check=True,
        commands=("gpusetup install",),
        look=(
            "python -c \"import torch; print((torch.ones(9, device='cuda') * 2).sum().item())\"",
        ),
        alike={
            alike.TORCHS_KERNELS: (
                "arch-too-old-for-wheel",
                "arch-too-new-for-wheel",
                "extension-arch-mismatch",
            )
        },
        says=(
            r"FATAL: kernel \W?\w{4,80}\W? is for sm\d{2,3}(?:-sm\d{2,3})?, but was built for sm\d{2,3}",
            r"CUDA error: no kernel i(?:m(?:ag?)?)?(?![a-z])",
            r"(?:Cuda failure '|CUDA error: )invalid device function",
            r"CUDA error: device kernel image is invalid",
            r"no kernel image is available for execution on the device \(at [^()]{0,200}?[/\\](?P<module>(?!pytorch|torch|aten|c10)[a-z][a-z0-9_]{3,30}?)(?:-(?:dev|main|master|\d[\d.]{0,8}))?[/\\](?:src|csrc)[/\\]",
            says(r"FATAL: this function is for sm\d{2,3}, but was built for sm\d{2,4}", module="xformers"),
            says(r"Your device is too old\. We require compute capability >= \d{2}", module="xformers"),
            says(r"requires device with capability .{2,40}? but your GPU has capability \(\d{1,2}, \d\) \(too new\)", module="xformers"),
            says(r"CUDA error \([^()]{0,160}?\bhopper[/\\][\w.]{3,60}:\d{1,5}\): ?invalid argument", module="flash_attn"),
            says(r"CUDA error \([^()]{0,160}?(?:\bflash_\w{2,40}|\bxformers\b)[^()]{0,80}:\d{1,5}\): ?invalid device function", module="flash_attn"),
            says(r"RuntimeError: can't query kernel attributes", module="cuequivariance_ops"),
            says("sglang only supports sm75", module="sglang"),
            says("assertion failed: unsupported architecture", module="tensorrt_llm"),
            says(r"CUDA kernel \S{1,80} has no device code compatible with CUDA arch", module="ggml-cuda"),
            says(r"ggml-cuda was compiled without support for the current GPU architecture", module="ggml-cuda"),
            says(r"CUDA GPU is too old\. Compute Capability detected: \d\.\d", module="ollama"),
            says(r"SM\d{2,3} kernel is not available\. make sure you GPU", module="sageattention"),
            says(r"Could not find compatible tinycudann extension for compute capability", module="tinycudann"),
            says(r"your gpu arch \(\d{1,2}, \d\) isn'?t compiled in prebuilt", module="spconv"),
        ),
        examples=(
            "FATAL: this function is for sm80, but was built for sm750",
            "FATAL: kernel `fmha_cutlassF_f16_aligned_64x64_rf_sm80` is for sm80-sm100, but was built for sm37",
            "CUDA error (C:/a/xformers/xformers/third_party/flash-attention/hopper\\flash_fwd_launch_template.h:188): invalid argument",
            "CUDA error (/tmp/flash_fwd_launch_template.h:94): invalid device function",
            "RuntimeError: Your device is too old. We require compute capability >= 50",
            "CUDA error: no kernel i",
            "ERROR: CUDA kernel mul_mat_q has no device code compatible with CUDA arch 610. ggml-cuda.cu was compiled for: 700",
            'level=INFO msg="[0] CUDA GPU is too old. Compute Capability detected: 3.0"',
            "RuntimeError: your gpu arch (12, 0) isn't compiled in prebuilt, may cause invalid device function",
            "AssertionError: SM89 kernel is not available. make sure you GPUs with compute capability 8.9.",
            "requires device with capability <= (9, 0) but your GPU has capability (12, 0) (too new)",
        ),
        not_examples=(
            "this function is for sm80 and was built for sm80, but was built for smaller inputs",
            "CUDA error (/src/flash-attention/csrc/flash_api.cpp:90): invalid argument",
            "CUDA error (/src/mine/kernel.cu:94): invalid device function",
        ),
    ),
)  # fmt: skip
