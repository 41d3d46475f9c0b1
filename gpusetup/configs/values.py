"""What the values of a config mean, however a trainer spells them. One home for the words."""

from __future__ import annotations

import re

OPTIMIZERS: dict[str, tuple[str, str | None]] = {
    "adamw": ("adamw", None), "adam": ("adam", None), "adamwtorch": ("adamw", "foreach"),
    "adamwtorchfused": ("adamw", "fused"), "adamwapexfused": ("adamw", "fused"),
    "fusedadam": ("adamw", "fused"), "adamwhf": ("adamw", "loop"),
    "deepspeedcpuadam": ("adamw", None), "distributedfusedadam": ("adamw", "fused"),
    "adamw8bit": ("adamw8bit", "loop"), "adamwbnb8bit": ("adamw8bit", "loop"),
    "adam8bit": ("adamw8bit", "loop"), "adamwtorch8bit": ("adamw8bit", "loop"),
    "adamw4bit": ("adamw4bit", "loop"), "adamwtorch4bit": ("adamw4bit", "loop"),
    "pagedadamw": ("paged-adamw", "loop"), "pagedadamw32bit": ("paged-adamw", "loop"),
    "pagedadamw8bit": ("paged-adamw8bit", "loop"), "adafactor": ("adafactor", None),
    "muon": ("muon", None), "lion": ("lion", None), "lion32bit": ("lion", "loop"),
    "lion8bit": ("lion8bit", "loop"), "sgd": ("sgd", None),
    "prodigy": ("prodigy", "loop"), "lomo": ("sgd", "backward"),
    "adammini": ("adam-mini", "loop"),
    "came": ("came", "loop"), "camepytorch": ("came", "loop"), "ademamix": ("ademamix", "loop"),
    "ademamix8bit": ("ademamix8bit", "loop"), "adan": ("adan", "loop"), "lamb": ("lamb", "loop"),
    "schedulefreeadamw": ("schedule-free", "foreach"), "adamwfp8": ("adamw-fp8", "loop"),
    "sophiag": ("sophia", "loop"), "adagrad": ("adagrad", "foreach"),
    "rmsprop": ("rmsprop", "foreach"),
}  # fmt: skip
"""Name in small letters without its module, dashes, dots -> what it keeps, how it steps
(transformers' `OptimizerNames`, bitsandbytes.optim, torchao.optim, DeepSpeed, NeMo)."""


def optimizer(text: str) -> tuple[str, str | None] | None:
    """
    >>> optimizer("paged_adamw_8bit"), optimizer("bitsandbytes.optim.PagedAdamW8bit")
    (('paged-adamw8bit', 'loop'), ('paged-adamw8bit', 'loop'))
    """
    return OPTIMIZERS.get(re.sub(r"[^a-z0-9]", "", text.lower().rpartition(".")[2]))


PRECISIONS: dict[str, tuple[str, str]] = {
    "bf16-true": ("bf16", "none"), "bf16-mixed": ("fp32", "bf16"), "16-true": ("fp16", "none"),
    "16-mixed": ("fp32", "fp16"), "32-true": ("fp32", "none"), "32": ("fp32", "none"),
    "bf16": ("fp32", "bf16"), "16": ("fp32", "fp16"), "fp16": ("fp32", "fp16"),
    "bf16mixed": ("fp32", "bf16"), "no": ("fp32", "none"),
}  # fmt: skip
"""Lightning's and accelerate's words -> what weights are kept in, what is computed in."""

DTYPES = {
    "bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "float16": "fp16", "half": "fp16",
    "fp32": "fp32", "float32": "fp32", "float": "fp32",
}  # fmt: skip


def dtype(text: str) -> str | None:
    """
    >>> dtype("torch.bfloat16"), dtype("auto")
    ('bf16', None)
    """
    return DTYPES.get(text.lower().rpartition(".")[2])


ATTENTION = {
    "flash_attention_2": "flash", "flash_attention_3": "flash", "fa2": "flash", "fa3": "flash",
    "flash": "flash", "sdpa": "sdpa", "eager": "eager", "disabled": "eager",
    "flex_attention": "flash",
}  # fmt: skip

SHARDING = {
    "full_shard": "fsdp1", "shard_grad_op": "fsdp1", "no_shard": "ddp", "hybrid_shard": "hsdp",
    "1": "fsdp1", "2": "fsdp", "fsdp2": "fsdp", "fsdp": "fsdp", "multi_gpu": "ddp", "ddp": "ddp",
}  # fmt: skip
"""Words of FSDP (transformers, accelerate, verl) -> strategy; 1 and 2 are `fsdp_version`."""

STRATEGIES = {
    "fsdp2": "fsdp", "full-shard": "fsdp1", "hybrid-shard": "hsdp", "no-shard": "ddp",
    "zero-1": "zero1", "zero-2": "zero2", "zero-3": "zero3", "deepspeed-1": "zero1",
    "deepspeed-2": "zero2", "deepspeed-3": "zero3", "auto": "device-map",
}  # fmt: skip
"""What people call a strategy -> its name; `shard-grad-op` keeps what it gathered, too."""
ADAPTED = {
    "linear": "all",
    "all-linear": "all",
    "query_key_value": "qv",
    "qkv": "qv",
    "c_attn": "qv",
    "attn": "attention",
}
"""Fused or common names of layers that adapters are beside."""


def optimizer_named(text: str) -> str:
    """An optimizer's own name for one of another program's.

    >>> optimizer_named("adamw_torch_fused"), optimizer_named("adamw8bit")
    ('adamw', 'adamw8bit')
    """
    known = optimizer(text)
    return known[0] if known else text


def strategy_named(text: str) -> str:
    """A strategy's name for what FSDP or DeepSpeed call it.

    >>> strategy_named("FULL_SHARD"), strategy_named("zero-3"), strategy_named("ddp")
    ('fsdp1', 'zero3', 'ddp')
    """
    word = text.lower().replace("_", "-")
    return STRATEGIES.get(word, word)


def targets_named(text: str) -> str:
    """Which layers adapters are beside, by a name or by the layers' own, with commas.

    >>> targets_named("q_proj,v_proj"), targets_named("query_key_value"), targets_named("all")
    ('qv', 'qv', 'all')
    """
    if text in ("all", "attention", "qv"):
        return text
    return ADAPTED.get(text) or targets(frozenset(text.split(",")))


LOSSES = {
    "LinearCrossEntropyLoss": "fused", "CEWithChunkedOutputLoss": "chunked",
    "CrossEntropyLoss": "eager", "LigerLinearCrossEntropy": "fused",
    "fused_crossentropy": "in-place", "torch_crossentropy": "eager",
}  # fmt: skip
"""torchtune's and llm-foundry's losses -> the loss kernel."""

LOSS_SWITCHES = {"flash_attn_cross_entropy": "in-place"}
"""axolotl's switch -> the loss kernel; another one is `fused`."""

QUANTIZED = {
    "4": "nf4", "8": "int8", "bnb.nf4": "nf4", "bnb.nf4-dq": "nf4-dq", "bnb.fp4": "nf4",
    "bnb.fp4-dq": "nf4-dq", "bnb.int8": "int8", "bnb.int8-training": "int8",
}  # fmt: skip
"""LLaMA-Factory's `quantization_bit`, litgpt's `quantize` -> how the base is stored."""

ATTENTION_LAYERS = frozenset(
    ("q_proj", "k_proj", "v_proj", "o_proj", "output_proj", "query", "key", "value")
)
"""The names of attention's linear layers."""
QUERY_VALUE = frozenset(("q_proj", "v_proj"))


def targets(names: frozenset[str]) -> str:
    """Which linear layers adapters are beside.

    >>> targets(frozenset({"q_proj", "v_proj"})), targets(frozenset({"all-linear"}))
    ('qv', 'all')
    """
    if names == QUERY_VALUE:
        return "qv"
    return "attention" if names and names <= ATTENTION_LAYERS else "all"


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
