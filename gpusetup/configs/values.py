"""What the values of a config mean, however a trainer spells them (`words` in `keys.json`)."""

from __future__ import annotations

import re
from typing import Any

from gpusetup.configs.keys import table


def meaning(kind: str, text: str) -> Any:
    """What a text says of a kind; None if nothing. Its module, case, dashes do not count.

    >>> meaning("optimizer", "bitsandbytes.optim.PagedAdamW8bit"), meaning("dtype", "auto")
    ('paged-adamw8bit', None)
    >>> meaning("strategy", "FULL_SHARD"), meaning("precision", "bf16-mixed")
    ('fsdp1', ['fp32', 'bf16'])
    """
    return table().words[kind].get(re.sub(r"[^a-z0-9]", "", text.lower().rpartition(".")[2]))


def optimizer_named(text: str) -> str:
    """An optimizer's own name for one of another program's.

    >>> optimizer_named("adamw_torch_fused"), optimizer_named("adamw8bit")
    ('adamw', 'adamw8bit')
    """
    return meaning("optimizer", text) or text


def strategy_named(text: str) -> str:
    """A strategy's name for what FSDP or DeepSpeed call it.

    >>> strategy_named("FULL_SHARD"), strategy_named("zero-3"), strategy_named("ddp")
    ('fsdp1', 'zero3', 'ddp')
    """
    return meaning("strategy", text) or text.lower().replace("_", "-")


NO_MEMORY = re.compile(
    r"(?i)(dir|path|file|dataset|data_files|template|prompt|log|save|eval|seed|lr|learning|warmup|"
    r"epoch|steps|step_size|scheduler|decay|beta|eps|momentum|alpha|wandb|mlflow|tensorboard|report|"
    r"hub|push|resume|overwrite|timeout|shuffle|worker|pin_memory|prefetch|streaming|trust|plot|token|"
    r"metric|folder|^checkpoint$|checkpoint_interval|interval|project|name|run|group|tags?|debug|profil|strict|clip|grad_"
    r"norm|reward|kl|gamma|temperature|top_[pk]|repeat|split|type|column|field|conversation|chat|roles?|"
    r"version|description|print|comm|port|address|rank$|main_|machine|backend|weight|bias|threshold|"
    r"sampl|train_on|do_train|do_eval|val_|test_|max_samples|task|tf32|cudnn|imgsz|device$|cache)"
)
"""Words in the name of a setting that takes no memory of a GPU."""
