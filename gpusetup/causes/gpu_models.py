"""Causes that depend on the GPU model: it is from another maker, too old for a feature, or one of
several different models."""

from __future__ import annotations

from gpusetup.accelerators.amd import BUILT_FOR, gfx_of
from gpusetup.causes import alike
from gpusetup.causes.record import Cause, CheckCommand, Message, Refutation
from gpusetup.evidence import facts, gpu_facts, maker_facts, proofs
from gpusetup.evidence.context import RuleContext, events
from gpusetup.evidence.places import gpu_is_listed
from gpusetup.messages.fragments import CAPABILITY
from gpusetup.messages.row import says
from gpusetup.model.finding import Severity
from gpusetup.model.machine import visible_gpus
from gpusetup.model.versions import Capability


def _is_new(context: RuleContext) -> bool:
    """Whether every visible GPU is of the Ampere generation or later."""
    capabilities = [
        gpu.compute_capability for gpu in visible_gpus(context.snapshot) if gpu.compute_capability
    ]
    return bool(capabilities) and min(capabilities) >= Capability(8, 0)


def _rocm_works(context: RuleContext) -> bool:
    """Whether torch's ROCm build can use the GPU, so the fault lies elsewhere."""
    if not (context.torch.backend or "").startswith("rocm") or not context.torch.cuda_available:
        return False
    if events(context, "hip-kernel-missing"):
        return False
    for event in events(context, "foreign-gpu"):
        target = gfx_of(event.values.get("name", ""))
        if target is not None and target not in BUILT_FOR:
            return False
    return True


def _lacks_the_kernels(context: RuleContext) -> bool:
    """Whether the installed ROCm build has no kernels for the GPU."""
    is_missing = bool(events(context, "hip-kernel-missing"))
    is_missing = is_missing or bool(maker_facts.crashes_without_kernels(context))
    return is_missing or bool(gpu_facts.lacks_target_on_windows(context))


def hip_kernel_is_missing(context: RuleContext) -> str:
    """The fact that HIP found no kernel for the GPU, as a sentence; "" if the events do not show
    it."""
    return "HIP finds no kernel" if events(context, "hip-kernel-missing") else ""


def _rocm_finds_no_gpu(context: RuleContext) -> bool:
    """Whether torch is a ROCm build that finds no GPU, so the wrong build is not the cause."""
    is_rocm = (context.torch.backend or "").startswith("rocm")
    finds_none = bool(events(context, "no-hip-gpus")) or context.torch.cuda_available is False
    # Only a ROCm build asks HIP for devices, so HIP's answer proves such a build. A missing library
    # does not, because another program may need it.
    hip_answers = any(
        event.values.get("why") != "driver" for event in events(context, "no-hip-gpus")
    )
    return hip_answers or (is_rocm and finds_none)


def _xpu_lost_its_device(context: RuleContext) -> bool:
    """Whether an Intel GPU was in use when its driver lost the device."""
    return any(event.values.get("why") == "lost" for event in events(context, "no-xpu"))


def _types_differ_on_mps(context: RuleContext) -> bool:
    """Whether torch reports that the input and the weights of a layer differ, on a Mac."""
    return any(event.values.get("why") == "types" for event in events(context, "mps-lacks"))


def _a_tensor_is_elsewhere(context: RuleContext) -> bool:
    """Whether Metal reports a tensor that is not in the memory of the Mac's GPU."""
    messages = [event.text or "" for event in events(context, "mps-lacks")]
    return any("laceholder storage" in message for message in messages)


def _xpu_works(context: RuleContext) -> bool:
    """Whether torch's XPU build is installed, so that a program that asks for CUDA is at fault."""
    if events(context, "no-xpu"):
        return False
    is_xpu_build = context.torch.backend == "xpu"
    # A person may only think that XPU runs: the CPU build has the same message.
    if events(context, "torch-not-compiled-with-cuda") and not is_xpu_build:
        return False
    # If the XPU backend runs, or the image is Intel's own, the build is installed.
    return is_xpu_build or bool(events(context, "backend-runs", "vendor-image"))


def _mps_is_not_available(context: RuleContext) -> bool:
    """Whether torch was built with MPS and reports that it is not available."""
    return any(event.values.get("why") == "metal" for event in events(context, "mps-lacks"))


CARD = r"(?:(?:NVIDIA|dedicated|discrete|CUDA|real|external|physical) )*(?:GPU|graphics card|graphics processor|NVIDIA (?:card|adapter))s?\b(?! (?:memory|RAM|usage|load|acceleration|flag|process|driver|left|free|in the queue))"

NO_NVIDIA_GPU = (
    r"\b(?:do not|don['\u2019]?t|doesn['\u2019]?t|does not) (?:have|own) an? (?:NVIDIA |dedicated |CUDA )*(?:GPU|graphics card|card)\b"
    r"|\b(?:VPS|VM|server|machine|laptop|PC|computer|host) (?:without an?|without|with no) (?:NVIDIA )?(?:GPU|graphics card)\b"
    r"|\b(?:there is )?no (?:NVIDIA )?GPU (?:in|on) (?:this|the|my) (?:machine|server|laptop|PC|computer|host)\b"
    r"|\bCPU[- ]only (?:server|machine|laptop|VPS|VM|PC|computer|host)\b|\bonly have an? CPU\b"
)
"""What people say of a machine without an NVIDIA GPU."""

CAUSES = (
    Cause(
        "bf16-unsupported",
        certain_if=proofs.capability_is_read,
        check=CheckCommand("nvidia-smi --query-gpu=name,compute_cap --format=csv", "name, compute_cap\nTesla T4, 7.5"),
        refuted_by=(Refutation(gpu_facts.gpu_is_at_least(8)),),
        title="{gpus} does not support bfloat16, which needs compute capability 8.0",
        plain="The GPU does not support bfloat16, which needs compute capability 8.0",
        text="Use float16 instead: pass `--dtype half` to serve a model, or set `fp16=True` to "
        "train one",
        # Source: CUDA C++ Programming Guide, compute capabilities.
        stage="first-kernel",
        explains=("cuda-library-error",),
        cases=(
            Message(
                where=(lambda context: _is_new(context),),
                title="{gpus} supports bfloat16: a program that reports otherwise saw another "
                "GPU, or none",
                only=Severity.NOTE,
            ),
        ),
        says=(
            rf"Bfloat16 is only supported on GPUs with compute capability of at least 8\.0\. Your (?P<gpu>.{{3,60}}?) GPU has compute capability {CAPABILITY}",
            r"setup doesn't support bf16/gpu",
            r"(?:CUDA Device|GPU|device|setup|machine) (?:does not|doesn't|do not) support (?:torch\.)?bfloat16",
            "bf16 mixed precision requires",
            r"CUBLAS_STATUS_(?:NOT_SUPPORTED|ARCH_MISMATCH).{0,200}?CUDA_R_16BF",
            says(r"""(?x)
        bf16\ requested,\ but\ AMP\ is\ not\ supported|Type\ bf16\ is\ not\ supported
        |bf16\ is\ not\ supported
        \ (?:on|by)\ (?:this|your)|Feature\ '[\w .]{0,20}\.?bf16\S{0,6}'\ requires\ \.target\ sm_80
        """, "bf16"),
            r"bf16 is only supported on A100\+ GPUs",
        ),
        examples=(
            "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your NVIDIA GeForce RTX 2080 Ti GPU has compute capability 7.5. You can use float16 instead",
            "RuntimeError: Current CUDA Device does not support bfloat16. Please switch dtype to float16.",
        ),
    ),
    Cause(
        "gpu-too-old-for-triton",
        certain_if=proofs.message_states_it,
        refuted_by=(Refutation(gpu_facts.gpu_is_at_least(7)),),
        title="{gpus} is too old for torch.compile: Triton needs compute capability 7.0",
        plain="The GPU is too old for torch.compile: Triton needs compute capability 7.0",
        text='Run without compilation: remove torch.compile, or use backend="eager"',
        stage="first-kernel",
        commands=("export TORCHDYNAMO_DISABLE=1",),
        says=(
            rf"Found (?P<gpu>[^{{}}]{{3,60}}?) which is too old to be supported by the triton.{{0,200}}?device is of CUDA capability {CAPABILITY}",
            "gputoooldfortriton",
            r"Unsloth: Your GPU is too old",
        ),
    ),
    Cause(
        "jetson-wrong-wheel",
        title="This Jetson has a torch that was built for servers",
        means="Before CUDA 13.2, a Jetson's GPU needs the wheels that NVIDIA publishes for its "
        "JetPack.",
        text="Install NVIDIA's wheel for this JetPack",
        # Source: NVIDIA, "Installing PyTorch for Jetson Platform".
        explains=(
            "torch-cpu-build", "arch-too-old-for-wheel", "arch-too-new-for-wheel",
            "no-kernel-image",
        ),
    ),
    Cause(
        "apple-silicon",
        title="This is a Mac: there is no CUDA",
        means="On macOS, torch uses the Apple GPU as the device mps. There are no CUDA builds "
        "for macOS.",
        text="Use the device mps or cpu: torch's ordinary wheel supports both",
        refuted_by=(
            Refutation(facts.works_otherwise("another-shell")),
            Refutation(gpu_facts.the_gpu_computes),
        ),
        # Source: torch documentation, MPS backend.
        cases=(
            Message(
                where=(lambda context: bool(events(context, "built-for-another-processor")),),
                title="torch and this Python were built for different processors",
                means="On Apple chips, macOS also runs programs for Intel processors, but a "
                "process cannot load libraries for both. pip chooses wheels by the Python that "
                "it runs in.",
            ),
            Message(
                where=(_mps_is_not_available,),
                title="torch was built with MPS, but MPS is not available to this process",
                means="torch.backends.mps.is_available() is False if macOS is too old, if Python "
                "was built for Intel processors, or if the process does not reach Metal.",
            ),
            Message(
                where=(_types_differ_on_mps,),
                title='The model and its input do not fit each other on the Mac\'s device "mps"',
                means="torch and Metal work. The program left one of the two on another device, or "
                "in another number format.",
            ),
            Message(
                where=(_a_tensor_is_elsewhere,),
                title='A tensor of the program is not on the Mac\'s device "mps"',
                means="torch and Metal work. The program left the model, an input or a constant on "
                "the CPU.",
            ),
            Message(
                where=(lambda context: bool(events(context, "mps-lacks")),),
                title='The Mac\'s device "mps" does not support what the program needs',
                means="The program already runs on Apple's GPU, but Metal does not support every "
                "type and operation.",
            ),
        ),
    ),
    Cause(
        "no-nvidia-gpu",
        title="This machine has no NVIDIA GPU",
        means="CUDA needs an NVIDIA GPU, but torch's CPU build works without one.",
        text="Use torch's CPU build here, or use a machine with an NVIDIA GPU",
        # Source: PCI ids: vendor 10de.
        lacks="gpu",
        impossible=(gpu_is_listed,),
        alike={alike.ON_THE_BUS: ("driver-missing", "container-no-gpu")},
        says=(
            r"(?<!NVRM: )No NVIDIA (?:GPU|graphics|VGA|device)s?[\w ]{0,20}(?:detected|found|available|present)(?! by library|\?)",
            says(NO_NVIDIA_GPU, unless=r"\b(?:as if|if you|works? (?:on|in))\b"),
        ),
        examples=(
            "setup: No NVIDIA GPU detected",
            "I don't have an NVIDIA GPU, how do I install this?",
        ),
        by_check=True,
    ),
    Cause(
        "amd-gpu",
        certain_if=proofs.build_of_one_maker_beside_a_gpu_of_another,
        title="This is an AMD GPU: torch's ROCm builds can use it, but its CUDA builds cannot",
        means="PyTorch publishes ROCm builds for Linux. AMD publishes more ROCm builds, also for "
        "Windows.",
        text="If ROCm supports the GPU, install torch's ROCm build",
        # Source: torch's index, labels rocm*.
        refuted_by=(
            Refutation(
                facts.all_of(gpu_facts.torch_lists_the_target, gpu_facts.target_is_overridden),
                "rocm-override-wrong",
            ),
            Refutation(
                facts.all_of(
                    hip_kernel_is_missing,
                    gpu_facts.rocm_build_has_the_target,
                    gpu_facts.override_names_another_target,
                ),
                "rocm-override-wrong",
            ),
            Refutation(
                facts.all_of(hip_kernel_is_missing, gpu_facts.rocm_build_has_the_target),
                "",
                alike.AMD_TARGETS,
            ),
            Refutation(gpu_facts.only_the_maker_is_named, "", alike.WHICH_ROCM),
            Refutation(gpu_facts.the_gpu_computes),
            Refutation(gpu_facts.another_release_works, "torch-release-regressed"),
            Refutation(facts.works_otherwise("kernel", "older-release", "another-shell")),
            Refutation(gpu_facts.a_program_found_the_gpu, "", alike.PROGRAMS_LOG),
            Refutation(gpu_facts.nothing_asked_for_cuda),
        ),
        cases=(
            Message(
                where=(_rocm_works,),
                title="The program asks for CUDA; torch's ROCm build works on this GPU",
                means="torch's ROCm build also calls its device `cuda`, but packages that were "
                "compiled for CUDA do not run on it.",
            ),
            Message(
                where=(_lacks_the_kernels,),
                title="{build} has no kernels for {board}",
                plain="torch's ROCm build has no kernels for this GPU",
                means="A kernel runs only on the GPU target (gfx…) that it was compiled for.",
            ),
            Message(
                where=(lambda context: bool(maker_facts.rocm_lists_the_gpu(context)),),
                title="torch's ROCm build finds no GPU, although ROCm's own tools list one",
                means="ROCm's tools reach the GPU through the same kernel driver as torch. So the "
                "program, its variables or the wheel's kernels differ, and not the driver.",
            ),
            Message(
                where=(_rocm_finds_no_gpu,),
                title="A ROCm build is installed, but it finds no GPU that it can use",
                means="The build is the right kind for an AMD GPU. It reaches the GPU through the "
                "kernel driver and its device nodes, so look there before you reinstall anything.",
            ),
        ),
    ),
    Cause(
        "rocm-override-wrong",
        check=CheckCommand("echo $HSA_OVERRIDE_GFX_VERSION", "10.3.0"),
        title="HSA_OVERRIDE_GFX_VERSION makes ROCm use the kernels of another GPU",
        means="The installed torch has kernels for this GPU. However, the variable is set to "
        "another GPU's target, so the runtime looks for kernels that do not run here.",
        text="Remove HSA_OVERRIDE_GFX_VERSION: this GPU does not need it. Keep the installed torch",
        # Source: ROCm documentation, environment variables.
        stage="first-kernel",
        by_check=True,
        commands=("unset HSA_OVERRIDE_GFX_VERSION",),
    ),
    Cause(
        "intel-gpu",
        certain_if=proofs.build_of_one_maker_beside_a_gpu_of_another,
        title="This is an Intel GPU: torch's XPU build can use it, but its CUDA builds cannot",
        means="torch calls an Intel GPU `xpu`, so a program that asks for `cuda` does not find it.",
        text="Install torch's XPU build, and use the device xpu",
        # Source: torch documentation, XPU backend.
        refuted_by=(
            Refutation(gpu_facts.only_the_maker_is_named, "", alike.TORCHS_XPU),
            Refutation(gpu_facts.the_gpu_computes),
            Refutation(
                maker_facts.except_for_ipex(gpu_facts.intels_driver_answers),
                "",
                alike.INTEL_RUNTIME,
            ),
            Refutation(gpu_facts.another_release_works, "torch-release-regressed"),
            Refutation(facts.works_otherwise("kernel", "older-release", "another-shell")),
            Refutation(maker_facts.except_for_ipex(facts.works_otherwise("small"))),
            Refutation(gpu_facts.nothing_asked_for_cuda),
        ),
        cases=(
            Message(
                where=(lambda context: bool(maker_facts.level_zero_missing(context)),),
                title="Intel's Level Zero is not installed: torch does not find its loader",
                means="Level Zero is the interface to Intel's GPUs. It belongs to the driver's "
                "packages of the system, and neither torch's wheels nor oneAPI contain it.",
            ),
            Message(
                where=(lambda context: bool(maker_facts.xpu_counts_none(context)),),
                title="torch's XPU build finds no GPU",
                means="The build is the right kind, so what counts is Level Zero: the driver's "
                "libraries, the permissions on the device, and the variables that select it.",
            ),
            Message(
                where=(lambda context: bool(maker_facts.intels_extension_fails(context)),),
                title="Intel's extension for PyTorch does not work here: torch's own XPU build "
                "replaces it",
                means="The extension has separate libraries and loads only with the torch that it "
                "was built for. torch's XPU builds do not need it, and Intel ended it in March 2026.",
            ),
            Message(
                where=(_xpu_lost_its_device,),
                title="The driver lost the Intel GPU while a program was using it",
                means="torch found the GPU and ran on it, so the build is the right one. The "
                "kernel driver, its firmware or the compute runtime reset the GPU.",
            ),
            Message(
                where=(maker_facts.onednn_failed,),
                title="oneDNN, torch's library for matrix products, does not start on the Intel GPU",
                means="torch reached the GPU, so the build is the right one. oneDNN compiles its "
                "kernels with Intel's compute runtime, and one of the two is too old for this GPU "
                "or runs on another GPU than you think.",
            ),
            Message(
                where=(lambda context: bool(events(context, "no-xpu")),),
                title="torch cannot use the Intel GPU: the device xpu is missing",
                means="torch's XPU build needs Intel's driver and runtime; other builds do not "
                "have the device xpu at all.",
            ),
            Message(
                where=(_xpu_works,),
                title="The program asks for `cuda`; torch calls this Intel GPU `xpu`",
                means="torch's XPU build works here. However, the program is written for CUDA "
                "only.",
            ),
        ),
    ),
)  # fmt: skip
