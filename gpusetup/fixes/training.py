"""What to do when a GPU's memory is full, by the steps of the training guides."""

from __future__ import annotations

from gpusetup.evidence.context import RuleContext, events, on, whole_number
from gpusetup.fixes import paste
from gpusetup.model.finding import Fix
from gpusetup.model.shell import lines

STEPS = (
    "For training, take these steps in order until the training fits: 1. a smaller batch with "
    "gradient accumulation (32 = 8 x 4 trains in the same way), 2. mixed precision (bf16, or "
    "fp16), 3. gradient checkpointing, 4. an 8-bit optimizer (`bitsandbytes.optim.AdamW8bit`), "
    "5. LoRA, which trains only small adapters, and finally 6. a smaller model. For inference, "
    "use smaller inputs or a quantized model. End other programs on the GPU"
)
"""The steps in the order of the guide on acceleration (batch, precision, model), with the steps
that save more memory in between."""

ON_SEVERAL_GPUS = (
    "On several GPUs, sequence parallelism and then offload to the computer's memory help, too. "
    "`gpusetup plan --from-config CONFIG` computes which of these steps is enough, and `gpusetup "
    "tune CONFIG` writes what it can into your config"
)

ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
"""torch documentation, memory management; newer torch also reads PYTORCH_ALLOC_CONF."""


def full_memory(context: RuleContext, text: str) -> Fix:
    """The fix for a full GPU memory: the steps for training in `text`, or those for a program that
    generates images."""
    # Windows and WSL lack the memory calls for expandable segments.
    has_segments = not (on(context, "windows") or context.os.wsl)
    may_have_gaps = has_segments and unused_may_help(context) is not False
    segments = (paste.setting(context, *ALLOCATOR),) if may_have_gaps else ()
    looks = paste.look("check which programs use the memory", *lines("nvidia-smi"))
    owners = {event.values.get("name") for event in events(context, "environment-owner")}
    if not GENERATING.isdisjoint({*owners, context.snapshot.failing.program}):
        return Fix(text=TO_GENERATE, looks=looks)
    first = SEGMENTS_FIRST if unused_may_help(context) else ""
    help_of_segments = ". Expandable segments help against fragmentation" if segments else ""
    sentences = f"{first}{text}{help_of_segments}. {ON_SEVERAL_GPUS}"
    return Fix(text=sentences, commands=segments, looks=looks)


def unused_may_help(context: RuleContext) -> bool | None:
    """Whether torch holds at least as much unused memory as was requested, which then is
    fragmented.

    None if torch's message does not say how much it holds unused.
    """
    for message in events(context, "out-of-memory"):
        requested = whole_number(message.values.get("asked_bytes"))
        unused = whole_number(message.values.get("idle_bytes"))
        total = whole_number(message.values.get("total_bytes")) or 0
        if requested is not None and unused is not None:
            return unused >= max(requested, LEAST_SHARE * total)
    return None


LEAST_SHARE = 0.05
"""The setting is only recommended if unused memory is at least this share of the GPU's memory. The
number is our choice."""

SEGMENTS_FIRST = (
    "torch has enough unused memory, but in pieces that are too small: first set the variable "
    "below. "
)
GENERATING = {
    *("ComfyUI", "ComfyUI portable", "ComfyUI Desktop", "stable-diffusion-webui", "SD.Next"),
    *("diffusers", "InvokeAI", "Fooocus"),
}
"""Programs that generate images and do not train."""
TO_GENERATE = (
    "To generate images or videos, load a smaller form of the model (fp8, GGUF, 4 bits), let the "
    "program move parts to the computer's memory (ComfyUI: `--lowvram`; diffusers: "
    "`enable_model_cpu_offload()`), and lower resolution, frames or batch. End other programs on "
    "the GPU"
)
