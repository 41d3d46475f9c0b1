"""Causes that depend on the GPU model: it is from another maker, too old for a feature, or one of
several different models."""

from __future__ import annotations

from gpusetup.causes import alike
from gpusetup.causes.record import Cause, CheckCommand, Message, Refutation
from gpusetup.evidence import gpu_facts, proofs
from gpusetup.evidence.context import RuleContext
from gpusetup.evidence.places import gpu_is_listed
from gpusetup.messages.fragments import CAPABILITY
from gpusetup.messages.row import says
from gpusetup.model.finding import Severity
from gpusetup.model.machine import visible_gpus
from gpusetup.model.versions import Capability


def _is_new(context: RuleContext) -> bool:
    """Whether every visible GPU is of the Ampere generation or later."""
    capabilities = []
    for gpu in visible_gpus(context.snapshot):
        if gpu.compute_capability:
            capabilities.append(gpu.compute_capability)
    return bool(capabilities) and min(capabilities) >= Capability(8, 0)


BEFORE_VOLTA = (
    r"\b(?:GTX (?:10[5-8]0|9[5-8]0|7[5-8]0)(?: ?Ti)?|Tesla (?:P100|P40|P4|M40|K80)|Titan X[pP]?)\b"
)
"""The names of GPUs below compute capability 7.0."""

CARD = r"(?:(?:NVIDIA|dedicated|discrete|CUDA|real|external|physical) )*(?:GPU|graphics card|graphics processor|NVIDIA (?:card|adapter))s?\b(?! (?:memory|RAM|usage|load|acceleration|flag|process|driver|left|free|in the queue))"
MY_MACHINE = r"(?:laptop|notebook|PC|computer|desktop|machine|workstation|server|VM|VPS|droplet|box|instance|system|Mac)"

CAUSES = (
    Cause(
        "bf16-unsupported",
        certain_if=proofs.capability_is_read,
        check=CheckCommand(
            command="nvidia-smi --query-gpu=name,compute_cap --format=csv",
            prints="name, compute_cap\nTesla T4, 7.5",
        ),
        no_command=(
            "the number format is an option of your program or trainer, and each one names it "
            "differently."
        ),
        refuted_by=(Refutation(gpu_facts.gpu_is_at_least(8)),),
        title="{gpus} does not support bfloat16, which needs compute capability 8.0",
        plain="The GPU does not support bfloat16, which needs compute capability 8.0",
        text="Use float16 instead: pass `--dtype half` to serve a model, or set `fp16=True` to "
        "train one",
        proven_by="The GPU's compute capability is below 8.0",
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
        examples=(
            "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your NVIDIA GeForce RTX 2080 Ti GPU has compute capability 7.5. You can use float16 instead",
            "RuntimeError: Current CUDA Device does not support bfloat16. Please switch dtype to float16.",
            "BF16 is only supported on A100+ GPUs",
        ),
    ),
    Cause(
        "gpu-too-old-for-triton",
        certain_if=proofs.message_states_it,
        refuted_by=(Refutation(gpu_facts.gpu_is_at_least(7)),),
        title="{gpus} is too old for torch.compile: Triton needs compute capability 7.0",
        plain="The GPU is too old for torch.compile: Triton needs compute capability 7.0",
        text='Run without compilation: remove torch.compile, or use backend="eager"',
        proven_by="The GPU's compute capability is below 7.0",
        stage="first-kernel",
        commands=("export TORCHDYNAMO_DISABLE=1",),
        says=(
            rf"Found (?P<gpu>[^{{}}]{{3,60}}?) which is too old to be supported by the triton.{{0,200}}?device is of CUDA capability {CAPABILITY}",
            "gputoooldfortriton",
            r"Unsloth: Your GPU is too old",
            says(
                rf"{BEFORE_VOLTA}.{{0,300}}?\b(?:fails?|failed|errors?|crash(?:es|ed)?|unsupported|not support(?:ed)?)\b.{{0,900}}?\b(?:torch[._]compile|inductor)|\b(?:torch[._]compile|inductor)\b[^.\n]{{0,60}}?\b(?:fails?|failed|errors?|crash(?:es|ed)?|does ?n[o']t work|not (?:work|supported))\b[^.\n]{{0,60}}?{BEFORE_VOLTA}",
                "torch_compile",
                "torch.compile",
                "inductor",
                unless=r"\b(?:RTX|A100|H100|V100|T4)\b",
            ),
        ),
        examples=(
            'my GTX 1070 fails with this:\n  File "x/torch_compile.py", line 66, in torch_compile_loss',
        ),
        not_examples=(
            "on my GTX 1070 torch_compile is off",
            "torch.compile works on an A100",
            "inductor fails on an A100",
        ),
    ),
    Cause(
        "jetson-wrong-wheel",
        title="This Jetson has a torch that was built for servers",
        means="Before CUDA 13.2, a Jetson's GPU needs the wheels that NVIDIA publishes for its "
        "JetPack.",
        text="Install NVIDIA's wheel for this JetPack",
        proven_by="The machine is a Jetson, and torch is a CPU build or finds no CUDA",
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
        proven_by="There is no NVIDIA device on the PCI bus, and no driver lists a GPU",
        not_when="If a container hides the host's GPU, or if only the driver is missing, the "
        "machine does have a GPU, and this is not your problem",
        # Source: PCI ids: vendor 10de.
        lacks="gpu",
        impossible=(gpu_is_listed,),
        alike={
            alike.ON_THE_BUS: (
                "driver-missing",
                "container-no-gpu",
            )
        },
        says=(
            r"(?<!NVRM: )No NVIDIA (?:GPU|graphics|VGA|device)s?[\w ]{0,20}(?:detected|found|available|present)(?! by library|\?)",
            says(
                (
                    rf"\b(?:I|we) (?:do not|don['\u2019]?t|dont|do n't) (?:have|own) (?:an? |any )?{CARD}"
                    rf"|\b(?:I have|I['\u2019]ve|I got|(?:my|this|the) {MY_MACHINE} (?:has|comes with)) (?:got )?no {CARD}"
                    rf"|\b(?:my|this|the) {MY_MACHINE} (?:does not|doesn['\u2019]?t|doesnt) have (?:an? |any )?{CARD}|\b{MY_MACHINE} (?:without|with no) (?:an? |any )?{CARD}"
                    rf"|\b{MY_MACHINE}\b[^.\n]{{0,40}}?\b(?:it|which|that) (?:(?:does not|doesn['\u2019]?t) have (?:an? |any )?|has no ){CARD}"
                    rf"|(?:^|[:,;.(] ?)no (?:(?:dedicated|discrete) {CARD}|{CARD}(?: here(?! so\b|, so)|,? (?:just|only)\b))|\bno {CARD} (?:in|on) (?:my|this|the) {MY_MACHINE}"
                    r"|\bonly (?:an? |has |have )*(?:integrated|onboard) (?:GPU|graphics)\b|\b(?:integrated|onboard) (?:GPU|graphics) only\b"
                    rf"|(?<!running on a )\bCPU[- ]only (?:cloud |linux |docker |windows )?{MY_MACHINE}\b|\b(?:I|we) only have (?:an? |my |the )?CPU\b"
                ),
                *(
                    f"{no} {verb}"
                    for no in ("not", "n't", "n\u2019t", "dont", "doesnt")
                    for verb in ("have", "own")
                ),
                *(
                    f"no {kind}"
                    for kind in (
                        "gpu",
                        "graphics",
                        "dedicated",
                        "discrete",
                        "nvidia ",
                        "cuda ",
                        "real",
                    )
                ),
                *(
                    "without",
                    "with no",
                    "integrated",
                    "onboard",
                    "cpu-only",
                    "cpu only",
                    "only have",
                ),
                unless=r"\b(?:if|unless|whether|when|says?|said|claims?|thinks?|thought|reports?|tells?|complains|though|container|node|partition|queue)\b[^.:]{0,30}\b(?:don['\u2019]?t|dont|not|no|without)\b|\bbut (?:I (?:do )?have|there is)\b|\b(?:as (?:if|for|on)|according to|thinks?|behaves|work(?:s|ed) (?:fine )?on|build\b[^.]{0,24} on)\b",
            ),
        ),
        examples=(
            "setup: No NVIDIA GPU detected",
            "I don't have an NVIDIA GPU, how do I install this?",
        ),
        by_check=True,
    ),
)
