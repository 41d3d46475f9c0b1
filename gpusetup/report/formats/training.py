"""What a text says of a training: its model, its batch, its length, and what saves memory there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.model.patterns import lazy
from gpusetup.report.facts import Fact
from gpusetup.report.messages import event
from gpusetup.report.text import Text

SHOWN = lazy(
    r"\.backward\(|optimizer\.step\(|training_step|[Tt]rainer\.train\(|TrainingArguments|SFTTrainer"
    r"|per_device_train|train_batch_size|gradient_accumulation|--do_train"
    r"|(?<![\w.-])(?:train|fine_?tune|pretrain)\w{0,20}\.py\b|\b(?:fine-?tun|train)ing\b(?! data)"
)
"""What only a training has; an out-of-memory of anything else has other ways out."""
NUMBER = r"['\"]?(?: ?[=:] ?| of | is | )['\"]?(\d{1,7})(?![\d.])"
VALUES = (
    ("batch", lazy(rf"(?:micro_batch_size(?:_per_gpu)?|per_(?:device|gpu)_train_batch_size|(?<![\w])(?:train[_-])?[Bb]atch[_ -]?[Ss]ize){NUMBER}")),
    ("context", lazy(rf"(?:max_(?:seq_)?len(?:gth)?|max_seq_length|model_max_length|cutoff_len|block_size|seq(?:uence)?[_ -]len(?:gth)?|context(?:[_ -]len(?:gth)?)?){NUMBER}")),
    ("model", lazy(r"(?:model_name_or_path|base_model|model_name|model_id|--model|from_pretrained\()['\"]?[ =:(]{1,3}['\"]?([\w.-]+(?:/[\w.-]+)?)")),
    ("lora", lazy(r"(?:lora_r(?:ank)?|LoraConfig\([^)]{0,80}?\br)['\"]? ?[=:] ?(\d{1,4})\b")),
    ("adapter", lazy(r"\b(q?lora|peft)\b")),
    ("half", lazy(r"\b(bf16|fp16|b?float16|autocast|amp)\b")),
    ("checkpointing", lazy(r"gradient_checkpointing(?:_enable\(|['\"]? ?[=:] ?)(?!False|false)(\w*)")),
)  # fmt: skip
"""What is said -> how; the first place counts."""
NAMED = lazy(r"(?<![\w/-])((?:[\w.-]+/)?(?:meta-)?(?:llama|qwen|mistral|gemma|phi|gpt2|bert|pythia|deepseek|falcon)[\w.]*(?:-[\w.]+){0,5})", re.I)  # fmt: skip


def training(text: Text) -> Iterator[Fact]:
    """One event where memory ran out in a training."""
    if "out of memory" not in text.low and "outofmemory" not in text.low:
        return
    shown = SHOWN.search(text.flat)
    if shown is None:
        return
    found = ((name, pattern.search(text.flat)) for name, pattern in VALUES)
    values = {name: one[1] or "on" for name, one in found if one}
    if "model" not in values and (named := NAMED.search(text.flat)):
        values["model"] = named[1]
    yield event(text, "training-run", shown.start(), shown.end(), values)
