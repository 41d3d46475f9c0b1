"""What to do when a GPU's memory is full: the training guides' steps, for what a text shows."""

from __future__ import annotations

from gpusetup.evidence.context import RuleContext, events, gpus, on, whole_number
from gpusetup.fixes import paste
from gpusetup.messages.trainers import TRAINER_NAMED, TRAINERS, Trainer
from gpusetup.model.finding import Alternative, Fix
from gpusetup.model.shell import Lines, lines
from gpusetup.model.units import GIB
from gpusetup.readings.sources import UNNAMED

STEPS = (
    "To train, take these steps until it fits: 1. a smaller batch with gradient accumulation "
    "(32 = 8 x 4 trains alike), 2. mixed precision (bf16, or fp16), 3. gradient checkpointing, "
    "4. an 8-bit optimizer (`bitsandbytes.optim.AdamW8bit`), 5. LoRA, which trains small adapters "
    "only, and last 6. a smaller model. To infer, use smaller inputs or a quantized model. End "
    "other programs on the GPU"
)
"""The acceleration guide's order (batch, precision, model), with what saves more in between."""

COMPUTED = (
    "`gpusetup tune CONFIG` writes what it can into your config, and `gpusetup plan --from-config "
    "CONFIG` computes what fits before you start"
)

ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
"""torch documentation, memory management; newer torch also reads PYTORCH_ALLOC_CONF."""


def trainer_of(context: RuleContext) -> Trainer | None:
    """The trainer that a text shows; the first of the table if it shows several."""
    named = {event.values.get("trainer") for event in events(context, TRAINER_NAMED)}
    return next((trainer for trainer in TRAINERS if trainer.name in named), None)


def has_no_segments(context: RuleContext) -> bool:
    """Whether expandable segments do not exist here: Windows and WSL lack the memory calls."""
    return on(context, "windows") or bool(context.os.wsl)


def full_memory(context: RuleContext, text: str) -> Fix:
    """The way out of a full GPU: the trainer's steps if the text shows one, else the general ones.

    `text`: the general steps.
    """
    variable = () if has_no_segments(context) else (paste.setting(context, *ALLOCATOR),)
    looks = paste.look("see what holds the memory", *lines("nvidia-smi"))
    if trainer := trainer_of(context):
        ordered = _steps_of_trainer(trainer, variable)
        return Fix(text=ordered, commands=variable, looks=(*looks, *_plans(context)))
    against = ". Expandable segments help against fragmentation" if variable else ""
    return Fix(text=f"{text}{against}. {COMPUTED}", commands=variable, looks=looks)


def _steps_of_trainer(trainer: Trainer, variable: Lines) -> str:
    """Env, SP, Offload (the Qwen3 guide's order), as far as trainer and system have them."""
    steps = []
    if variable:
        steps.append(f"Env: set the variable below {trainer.before_start}")
    if trainer.sequence_parallel:
        steps.append(
            f"SP: sequence parallelism (`{trainer.sequence_parallel}`); the number must divide "
            "the GPUs and the model's attention heads"
        )
    steps.append(
        f"Offload: parameters and optimizer in the computer's memory (`{trainer.offload}`)"
    )
    numbered = ". ".join(f"{number}. {step}" for number, step in enumerate(steps, 1))
    return (
        f"{trainer.name} has these steps; take them in this order until it fits. {numbered}. "
        "Beside them gradient checkpointing, an 8-bit optimizer, LoRA and a shorter sequence save "
        "memory too. `gpusetup plan` computes which of them your job needs"
    )


def _plans(context: RuleContext) -> tuple[Alternative, ...]:
    """An example of the question to `plan`, for the GPU that the text shows."""
    job = ("--model", "qwen3-8b", "--context", "32768", "--gpus", "4")
    question = paste.command(context, "gpusetup", "plan", *job, *_gpu_options(context))
    return paste.look("compute what fits, with your own model, context and GPUs", question)


def _gpu_options(context: RuleContext) -> tuple[str, ...]:
    """How `plan` is told the GPU: by its name, else by the capacity in torch's message."""
    names = {gpu.name for gpu in gpus(context)} - {UNNAMED}
    if len(names) == 1:
        return ("--gpu", *names)
    for event in events(context, "out-of-memory"):
        if total_bytes := whole_number(event.values.get("total_bytes")):
            return ("--gpu-mem", f"{total_bytes / GIB:.2f}GiB")
    return ()
