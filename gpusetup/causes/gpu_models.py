"""Causes that depend on the GPU model: it is from another maker, too old for a feature, or one of
several different models."""

from __future__ import annotations

from gpusetup.causes import alike
from gpusetup.causes.record import Cause, CheckCommand, Refutation
from gpusetup.evidence import gpu_facts, proofs
from gpusetup.evidence.places import gpu_is_listed
from gpusetup.messages.fragments import CAPABILITY
from gpusetup.messages.row import says

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
        check=CheckCommand(
            "nvidia-smi --query-gpu=name,compute_cap --format=csv",
            "name, compute_cap\nTesla T4, 7.5",
        ),
        refuted_by=(Refutation(gpu_facts.gpu_is_at_least(8)),),
        title="{gpus} does not support bfloat16, which needs compute capability 8.0",
        text="Use float16 instead: pass `--dtype half` to serve a model, or set `fp16=True` to "
        "train one",
        # Source: CUDA C++ Programming Guide, compute capabilities.
        explains=("cuda-library-error",),
        says=(
            says(rf"Bfloat16 is only supported on GPUs with compute capability of at least 8\.0\. Your (?P<gpu>.{{3,60}}?) GPU has compute capability {CAPABILITY}", example="ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your NVIDIA GeForce RTX 2080 Ti GPU has compute capability 7.5. You can use float16 instead"),
            r"setup doesn't support bf16/gpu",
            says(r"(?:CUDA Device|GPU|device|setup|machine) (?:does not|doesn't|do not) support (?:torch\.)?bfloat16", example="RuntimeError: Current CUDA Device does not support bfloat16. Please switch dtype to float16."),
            "bf16 mixed precision requires",
            r"CUBLAS_STATUS_(?:NOT_SUPPORTED|ARCH_MISMATCH).{0,200}?CUDA_R_16BF",
            says(
                r"""(?x)
        bf16\ requested,\ but\ AMP\ is\ not\ supported|Type\ bf16\ is\ not\ supported
        |bf16\ is\ not\ supported
        \ (?:on|by)\ (?:this|your)|Feature\ '[\w .]{0,20}\.?bf16\S{0,6}'\ requires\ \.target\ sm_80
        """,
                "bf16",
            ),
            r"bf16 is only supported on A100\+ GPUs",
        ),
    ),
    Cause(
        "gpu-too-old-for-triton",
        certain_if=proofs.message_states_it,
        refuted_by=(Refutation(gpu_facts.gpu_is_at_least(7)),),
        title="{gpus} is too old for torch.compile: Triton needs compute capability 7.0",
        text='Run without compilation: remove torch.compile, or use backend="eager"',
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
            "torch-cpu-build",
            "arch-too-old-for-wheel",
            "arch-too-new-for-wheel",
            "no-kernel-image",
        ),
    ),
    Cause(
        "no-nvidia-gpu",
        title="This machine has no NVIDIA GPU",
        means="CUDA needs an NVIDIA GPU, but torch's CPU build works without one.",
        text="Use torch's CPU build here, or use a machine with an NVIDIA GPU",
        # Source: PCI ids: vendor 10de.
        lacks="gpu",
        explains=("container-toolkit-missing",),
        impossible=(gpu_is_listed,),
        alike={alike.ON_THE_BUS: ("driver-missing", "container-no-gpu")},
        says=(
            says(r"(?<!NVRM: )No NVIDIA (?:GPU|graphics|VGA|device)s?[\w ]{0,20}(?:detected|found|available|present)(?! by library|\?)", example="setup: No NVIDIA GPU detected"),
            says(NO_NVIDIA_GPU, unless=r"\b(?:as if|if you|works? (?:on|in))\b", example="I don't have an NVIDIA GPU, how do I install this?"),
        ),
    ),
)  # fmt: skip
