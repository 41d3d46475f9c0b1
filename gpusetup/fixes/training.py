"""What to do when a GPU's memory is full, by the steps of the training guides that fit a text."""

from __future__ import annotations

from gpusetup.evidence.context import RuleContext, events, on, whole_number
from gpusetup.fixes import paste
from gpusetup.messages.trainers import TRAINER_NAMED, TRAINERS, Trainer
from gpusetup.model.finding import Fix
from gpusetup.model.shell import Lines, lines

STEPS = (
    "For training, try these steps in order until it fits: 1. a smaller batch with gradient "
    "accumulation (32 = 8 x 4 trains in the same way), 2. mixed precision (bf16, or fp16), 3. "
    "gradient checkpointing, 4. an 8-bit optimizer (`bitsandbytes.optim.AdamW8bit`), 5. LoRA, "
    "which trains only small adapters, and finally 6. a smaller model. For inference, use smaller "
    "inputs or a quantized model. Stop other programs that use the GPU"
)
"""The steps in the order of the guide on acceleration (batch, precision, model), with the steps
that save more memory in between."""

COMPUTED = (
    "`gpusetup tune CONFIG` makes such changes in your config, and `gpusetup plan --from-config "
    "CONFIG` shows what fits before you start"
)

ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
"""torch documentation, memory management; newer torch also reads PYTORCH_ALLOC_CONF."""


def full_memory(context: RuleContext, text: str) -> Fix:
    """The fix for a full GPU memory: the steps of the trainer or of programs that generate images
    if the text shows one, otherwise the general steps in `text`."""
    # Windows and WSL lack the memory calls for expandable segments.
    has_segments = not (on(context, "windows") or context.os.wsl)
    may_be_fragmented = has_segments and unused_may_help(context) is not False
    segments = (paste.setting(context, *ALLOCATOR),) if may_be_fragmented else ()
    looks = paste.titled("check which programs use the memory", *lines("nvidia-smi"))
    named = [event.values.get("trainer") for event in events(context, TRAINER_NAMED)]
    for trainer in TRAINERS:
        if trainer.name in named:
            steps = _steps_of_trainer(trainer, segments)
            return Fix(text=steps, commands=segments, looks=looks)
    owners = {event.values.get("name") for event in events(context, "environment-owner")}
    if not GENERATING.isdisjoint({*owners, context.snapshot.failing.program}):
        return Fix(text=TO_GENERATE, looks=looks)
    first = SEGMENTS_FIRST if segments and unused_may_help(context) else ""
    help_of_segments = ". Expandable segments reduce fragmentation" if segments else ""
    sentences = f"{first}{text}{help_of_segments}. {COMPUTED}"
    return Fix(text=sentences, commands=segments, looks=looks)


def unused_may_help(context: RuleContext) -> bool | None:
    """Whether torch holds at least as much unused memory as was requested, so that the memory is
    fragmented; None if torch's message does not say how much it holds unused."""
    for message in events(context, "out-of-memory"):
        requested = whole_number(message.values.get("asked_bytes"))
        unused = whole_number(message.values.get("idle_bytes"))
        if requested is not None and unused is not None:
            return unused >= requested
    return None


SEGMENTS_FIRST = (
    "torch has enough unused memory, but in pieces that are too small, so first set the variable "
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
    "`enable_model_cpu_offload()`), and lower resolution, frames or batch. Stop other programs "
    "that use the GPU"
)


def _steps_of_trainer(trainer: Trainer, variable: Lines) -> str:
    """The steps of the Qwen3 guide in its order (allocator, sequence parallelism, offload), as far
    as the trainer supports them. `variable` sets the allocator; () if that would not help."""
    steps = []
    if variable:
        steps.append(f"Env: set the variable below {trainer.before_start}")
    if trainer.sequence_parallel:
        steps.append(
            f"SP: sequence parallelism (`{trainer.sequence_parallel}`); the number must divide "
            "the number of GPUs and of attention heads evenly"
        )
    steps.append(
        f"Offload: parameters and optimizer in the computer's memory (`{trainer.offload}`)"
    )
    numbered = ". ".join(f"{number}. {step}" for number, step in enumerate(steps, 1))
    return (
        f"{trainer.name} offers these steps. Try them in this order until the job fits: "
        f"{numbered}. Gradient checkpointing, an 8-bit optimizer, LoRA and a shorter sequence "
        "save memory, too. `gpusetup plan` computes which of them your job needs"
    )
