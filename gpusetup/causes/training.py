"""Causes in a training that uses the GPU but goes wrong: its loss diverges, or mixed precision does
not make it faster."""

from __future__ import annotations

from gpusetup.causes.record import Cause, Message
from gpusetup.evidence.context import RuleContext, gpus
from gpusetup.messages.row import says
from gpusetup.model.finding import Severity
from gpusetup.model.machine import Gpu
from gpusetup.model.versions import Capability

FIRST_WITH_TENSOR_CORES = Capability(7, 0)
"""The compute capability of Volta, the first generation with tensor cores (CUDA C++ Programming
Guide, Compute Capabilities)."""


def _has_no_tensor_cores(gpu: Gpu) -> bool:
    """Whether a GPU has no tensor cores: those before Volta, and the GTX 16 series of Turing."""
    capability = gpu.compute_capability
    return (capability is not None and capability < FIRST_WITH_TENSOR_CORES) or "GTX 16" in gpu.name


def _no_gpu_has_tensor_cores(context: RuleContext) -> bool:
    """Whether the GPUs are known and none of them has tensor cores."""
    listed_gpus = gpus(context)
    return bool(listed_gpus) and all(_has_no_tensor_cores(gpu) for gpu in listed_gpus)


FIRST_WITH_BFLOAT16 = Capability(8, 0)


def _has_no_bfloat16(context: RuleContext) -> bool:
    """Whether every GPU that the text names is too old to support bfloat16."""
    capabilities = [gpu.compute_capability for gpu in gpus(context)]
    known = [capability for capability in capabilities if capability]
    return bool(known) and max(known) < FIRST_WITH_BFLOAT16


LOSS = r"(?:(?<![A-Za-z])loss(?:es)?(?![a-z])|\bgradients?\b|\bgrad_norm\b|\bverlust|\bperte|\bp[ée]rdida|\bperda|потер[ияь]|损失|損失|손실)"
TOO_LARGE = r"(?:nan(?![a-z])|inf(?:inite|inity)?(?![a-z])|explo\w+|diverg\w+|blows? up|взрыва\w+|расход\w+|发散|發散|発散|爆炸|爆掉|폭발|발산)"
DIVERGES = (
    rf"{LOSS}['\"]?[^.\n]{{0,24}}?[^a-z_]{TOO_LARGE}|\bexploding (?:gradients?|loss)\b|\btraining (?:is |becomes )?(?:unstable|diverg\w+)"
    r"|\bnans?\b[^.\n]{0,24}?\b(?:after ~?\d|loss\b|gradients?\b)|Backward\w*' returned nan values in its|minimum loss scale reached|loss scale already at minimum"
)
"""What logs and people say of a loss that is NaN or infinite, or that explodes."""
DIVERGES_LETTERS = (
    *("nan", "inf", "explo", "diverg", "unstable", "loss scale", "blow", "взрыва", "расход"),
    *("爆炸", "爆掉", "发散", "發散", "発散", "발산", "폭발"),
)
NOT_HAD = (
    r"\b(?:if|whether|avoid\w*|prevent\w*|no longer|not|never|no|without|handles?|fixe[sd]) (?:\S{1,16} ){0,3}?\W{0,2}(?:nan|inf|loss|explod|diverg|gradient)"
    r"|isnan|isfinite|nan_to_num|\bassert\b"
)
"""Words of somebody who has no such loss, or of code that guards against it."""
HALF_PRECISION = r"(?:\bfp16\b|(?<!b)float16\b|\bhalf[- ]precision\b|\bautocast\b|\bGradScaler\b|\bAMP\b|\bmixed[- ]precision\b|混合精度|혼합 정밀도)"
"""Words for float16, including mixed precision, which uses float16 on CUDA by default."""
MIXED_PRECISION = rf"(?:{HALF_PRECISION}|\b(?:bf16|bfloat16|précision mixte|precisi[óo]n mixta|precis[ãa]o mista)\b|смешанн\w+ точност)"
NO_GAIN = (
    r"(?:(?:\b(?:not|no|never|keinen?|nicht|pas|não|не)\b|n['o]t\b)[^.\n]{0,40}?(?:improv\w+|faster|quicker|speed ?-?up|accelerat\w+|schneller|Geschwindigkeitsgewinn|plus rapide|r[áa]pid[oa]|быстрее|ускор\w+)"
    r"|\b(?:the|at the) same (?:it/s|speed|time|throughput)|\bslower\b|没有?(?:变快|加速|提升)|速くなら|빨라지지)"
)
"""What people say of a speed that did not improve."""
PRECISION_LETTERS = (
    *("amp", "autocast", "precision", "fp16", "bf16", "float16", "gradscaler", "mixte", "mixta"),
    *("mista", "смешанн", "混合精度", "정밀도"),
)
NOT_ABOUT_TRAINING = (
    r"\b(?:without|no|disabl\w+|instead of) (?:AMP|autocast|mixed[- ]precision|fp16|bf16)\b"
    r"|\bint[48]\b|quantiz|gguf|llama|out of memory|\bon (?:the )?cpu\b"
)

STABLE = (
    "Clip the gradients at 1.0 (`torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)` before "
    "the optimizer's step), lower the learning rate to a third or a tenth, and warm it up over "
    "the first 3 to 10 % of the steps. If NaN still appears, look for it in your data, and use "
    "`torch.autograd.set_detect_anomaly(True)` to find the operation that produces the first one"
)
"""The three steps of the guide on utilisation (clip gradients at 1.0, lower the learning rate, warm
it up), then how to find the NaN."""

FASTER = (
    "First find out what the training waits for: run it under `gpusetup monitor` (your own "
    "command after `--`). If the data arrive too slowly, use more DataLoader workers, pinned "
    "memory and cached or decoded data. If the model or the batch is too small to fill the GPU, "
    "use a larger batch or torch.compile; sizes that are multiples of 8 suit the tensor cores. "
    "`gpusetup tune CONFIG --benchmark` measures your code with and without mixed precision"
)

CAUSES = (
    Cause(
        "gpu-works-little",
        severity=Severity.NOTE,
        title="{who} is busy only part of the time: {picture}",
        plain="A GPU with a running program is busy less than half of the time",
        means="A single reading does not show why: the data may arrive too slowly, or the batch "
        "or the model is too small to fill the GPU.",
        text="Let gpusetup watch the training for a minute to find the cause",
        # Source: the limits in readings/gpu_use.py.
        commands=("gpusetup monitor -- python train.py",),
    ),
    Cause(
        "loss-diverges",
        severity=Severity.NOTE,
        title="The loss diverges: it becomes NaN or infinite, or explodes",
        means="The training's steps are too large for the model, or a value is too large for the "
        "number format. Your GPU, driver and torch are not the cause.",
        text=STABLE,
        # Source: torch documentation, automatic mixed precision, "Gradient clipping".
        failure=6,
        cases=(
            Message(
                having={"half": ""},
                where=(_has_no_bfloat16,),
                means="The largest float16 number is 65,504, and small gradients are rounded to "
                "zero. So a loss that is fine in bfloat16 or float32 may diverge. This GPU has no "
                "bfloat16.",
                text="Turn mixed precision off on this card (train in float32), or use a "
                f"torch.amp.GradScaler and call `scaler.unscale_(optimizer)` before you clip. {STABLE}",
            ),
            Message(
                having={"half": ""},
                means="The largest float16 number is 65,504, and small gradients are rounded to "
                "zero. So a loss that is fine in float32 may diverge.",
                text="Use bfloat16 instead of float16 (on GPUs with compute capability 8.0 or "
                "newer). With float16, use a torch.amp.GradScaler, and call "
                f"`scaler.unscale_(optimizer)` before you clip. {STABLE}",
            ),
        ),
        says=(
            says(rf"(?P<half>{HALF_PRECISION}).{{0,300}}?(?:{DIVERGES})", *DIVERGES_LETTERS, unless=NOT_HAD, example="Training with AMP: {'loss': 2.31} then Loss is nan, stopping training"),
            says(rf"(?:{DIVERGES}).{{0,300}}?(?P<half>{HALF_PRECISION})", *DIVERGES_LETTERS, unless=NOT_HAD, example="Epoch 3, step 120: loss=nan with fp16"),
            says(DIVERGES, *DIVERGES_LETTERS, unless=NOT_HAD),
        ),
        not_examples=(
            "if the loss is nan, lower the learning rate",
            "assert not torch.isnan(loss)",
            "the loss is not nan",
            "we clip at 1.0 to avoid exploding gradients",
            "the loss function handles nan values",
        ),
    ),
    Cause(
        "mixed-precision-no-gain",
        severity=Severity.WARNING,
        title="Mixed precision is on, but the training is not faster",
        means="Mixed precision speeds up matrix products and convolutions on tensor cores. It "
        "does not help if the GPU waits for data (few DataLoader workers, a slow disk, data that "
        "are decoded again in each epoch), or if the model or the batch is too small to fill the "
        "GPU.",
        text=FASTER,
        # Source: torch documentation, automatic mixed precision recipe, "Speedup is small or none".
        commands=("gpusetup monitor -- python train.py",),
        cases=(
            Message(
                where=(_no_gpu_has_tensor_cores,),
                title="{gpus}: without tensor cores, mixed precision saves memory but rarely time",
                means="GPUs before Volta and the GTX 16 series have no tensor cores. On such a "
                "card, mixed precision helps little, and not at all if the data arrive too "
                "slowly or the model is too small to fill the GPU.",
                commands=("gpusetup monitor -- python train.py",),
            ),
        ),
        says=(says(rf"{MIXED_PRECISION}.{{0,90}}?{NO_GAIN}|{NO_GAIN} (?:\w+ ){{1,3}}?{MIXED_PRECISION}", *PRECISION_LETTERS, unless=NOT_ABOUT_TRAINING, example="Mixed precision is enabled but training speed did not improve"),),
        not_examples=(
            "AMP is enabled and training is twice as fast now",
            "without AMP the training is slower",
            "mixed precision did not change the memory",
        ),
    ),
)  # fmt: skip
