"""Memory that ran out in a training: the two steps that save most, and what `plan` is asked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from gpusetup.catalog.gpus import one_memory, rows_named
from gpusetup.errors import UsageError
from gpusetup.evidence.context import events, gpus, whole_number
from gpusetup.fixes import paste
from gpusetup.model.finding import Finding, Fix
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext


def of_a_training(context: RuleContext, finding: Finding) -> Finding:
    """The finding with the steps of a training; what an engine keeps by itself stays as it is."""
    ran = events(context, "training-run")
    kept = any("engine" in event.values for event in events(context, "out-of-memory"))
    kept = kept or bool(context.snapshot.os.jetson)
    if finding.id != "out-of-memory" or not ran or kept or finding.fix is None:
        return finding
    return replace(finding, fix=_steps(context, ran[0].values, finding.fix))


def _steps(context: RuleContext, said: Mapping[str, str], fix: Fix) -> Fix:
    model = _model(said.get("model", ""))
    first, second, *_ = _what_saves(said, text=bool(model or "context" in said))
    asks = "`gpusetup plan` says what fits" + (
        "" if model else " (name your model by `--model` or `--params 7B`)"
    )
    words = _asked(context, said, model) if model else ()
    return replace(
        fix,
        text=f"First {first}. Then {second}. {asks}",
        commands=(paste.command(context, "gpusetup", "plan", *words),) if words else (),
        alternatives=paste.other("against fragmentation", *fix.commands),
    )


def _what_saves(said: Mapping[str, str], *, text: bool) -> Iterator[str]:
    """What saves memory and was not done, the best first."""
    batch = whole_number(said.get("batch"))
    if batch != 1:
        now = f", {batch} now," if batch else ""
        yield (
            f"lower the batch on each GPU{now} and raise the gradient accumulation by the same "
            "factor, so that a step sees as many samples"
        )
    if not text and "half" not in said:
        yield "compute in bfloat16 (`torch.autocast`; float16 with a GradScaler on older GPUs)"
    if "checkpointing" not in said:
        how = " (transformers: `gradient_checkpointing=True`)" if text else ""
        yield (
            f"switch gradient checkpointing on{how}: it keeps few activations and costs about a "
            "third more time"
        )
    if text and not {"adapter", "lora"} & set(said):
        yield "train an adapter (LoRA, or QLoRA with 4-bit weights) in place of all weights"
    yield "shorten the sequences" if text else "make the inputs smaller"
    yield "keep the optimizer's states in 8 bits or in the machine's own memory"


OF_A_FAMILY = (
    r"(?:[\w.-]+/)?(?:meta-)?(?:llama|qwen|mistral|gemma|pythia)-?v?[\d.]*-\d+(?:\.\d)?b"
    r"(?:-(?:instruct|chat|base|it|hf|v[\d.]+))*"
)
"""How the families name their models (`plan` knows them); a name of somebody's own says more."""


def _model(named: str) -> tuple[str, ...]:
    """The words that name the model to `plan`: of a family that it knows, else by its size.

    >>> _model("Qwen/Qwen3-8B"), _model("mine/own-7b-sft"), _model("own")
    (('--model', 'Qwen/Qwen3-8B'), ('--params', '7B'), ())
    """
    if re.fullmatch(OF_A_FAMILY, named, re.IGNORECASE):
        return ("--model", named)
    size = re.search(r"(?<![\w.])(\d{1,3}(?:\.\d)?)b(?![a-z0-9])", named.lower())
    return ("--params", f"{size[1]}B") if size else ()


def _asked(context: RuleContext, said: Mapping[str, str], model: tuple[str, ...]) -> list[str]:
    """The numbers that the text gives, as `plan` takes them; its batch is of all GPUs together."""
    count = max(len(gpus(context)), 1)
    batch = whole_number(said.get("batch"))
    length = whole_number(said.get("context"))
    words = [*model, *_gpu(context)]
    words += ["--gpus", str(count)] if count > 1 else []
    words += ["--batch", str(batch * count)] if batch else []
    words += ["--context", str(length)] if length else ["--max-context"]
    rank = whole_number(said.get("lora"))
    return [*words, *(["--lora", str(rank)] if rank else [])]


def _has_one_size(context: RuleContext, name: str) -> bool:
    try:
        return bool(one_memory(rows_named(name, context.catalog.gpus)))
    except UsageError:
        return False


def _gpu(context: RuleContext) -> tuple[str, ...]:
    """The GPU by its name where that names one size, else by its memory."""
    gpu = next(iter(gpus(context)), None)
    if gpu and _has_one_size(context, gpu.name):
        return ("--gpu", gpu.name)
    said = (whole_number(e.values.get("total_bytes")) for e in events(context, "out-of-memory"))
    size = (gpu.memory_total_bytes if gpu else None) or next(filter(None, said), None)
    return ("--gpu-mem", f"{round(size / GIB)}GiB") if size else ()
