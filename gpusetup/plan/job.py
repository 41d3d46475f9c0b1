"""A training job as plain values (the shape of the model, the GPUs and how it is trained), and the
recipe of settings that makes it fit."""

from __future__ import annotations

import math
from typing import Any, Literal

from gpusetup.model.frozen import Frozen, defaults
from gpusetup.plan.rl import PAIRED, SUPERVISED_SETUP, RlSetup

ENCODERS = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "deberta", "deberta-v2",
            "ernie", "mpnet", "distilbert", "modernbert")  # fmt: skip
"""Families of text encoders, which read whole texts and usually feed a classifier."""


class Shape(Frozen):
    """The shape of a model. Counts are numbers of parameters; widths are numbers of elements."""

    name: str
    kind: str = "transformer"
    """The model family in `config.json` (`qwen3`, ...); `transformer` if the shape is a guess."""
    parameters: int
    active: int
    """The parameters that one token uses (fewer than all in a mixture of experts)."""
    largest_unit: int
    """The largest part that FSDP gathers at once: a layer, the embedding or the head."""
    layers: int
    hidden: int
    heads: int
    query: int
    """The width of all query heads together."""
    key_value: int
    """The width of all key heads together (that of the value heads is the same)."""
    intermediate: int
    """The MLP width that one token uses: with experts, of all those that it uses together."""
    gated: bool = True
    """Whether the MLP has a gate in addition to its up projection (SwiGLU)."""
    rms_norm: bool = True
    """Whether the norms are RMSNorm, which keeps a 32-bit copy of its input, and not LayerNorm."""
    query_key_norm: bool = False
    dropout: bool = False
    """Whether attention and MLP end with a dropout, which keeps a mask."""
    tied: bool = False
    """Whether the output head shares its weights with the embedding."""
    experts: int = 0
    """The number of experts that one token uses; 0 if the model has no experts."""
    vocabulary: int = 0
    """The vocabulary size, which is the width of the logits; 0 without a language head."""
    tower: int = 0
    """The number of parameters in an image or audio encoder in addition to the text model."""
    tokens: int | None = None
    """The number of tokens in a sample if the model fixes it: the patches of an image, or the
    windows of 30 seconds that Whisper reads, however long the text is that it writes."""
    roughly: bool = False
    """Whether plan can only roughly estimate the activations of some layers (state space, linear
    attention, convolutions)."""
    assumed: str = ""
    """A phrase that tells how the shape was guessed; "" if it is known."""
    native_context: int | None = None

    @property
    def encoder(self) -> bool:
        """Whether the model is a text encoder such as BERT, which reads a text as a whole."""
        return self.kind in ENCODERS

    @property
    def writes_text(self) -> bool:
        """Whether the model is a text decoder, for which trainers may fill a token budget;
        encoder-decoder models (T5, BART) are trained on separate samples."""
        if self.tokens is not None or self.encoder or self.kind in ("t5", "bart"):
            return False
        return self.vocabulary > 0

    @property
    def outside(self) -> int:
        """The number of parameters in the embedding and the head (which a tied head shares), which
        stay unquantised; with an absurd vocabulary in a config, at most those of the model."""
        tables = self.vocabulary if self.tied else 2 * self.vocabulary
        return min(tables * self.hidden, self.parameters)

    @property
    def key_value_heads(self) -> int:
        """The number of key-value heads, which several query heads may share; at least 1, as for
        latent attention and state space, which have none."""
        return max(1, self.heads * self.key_value // max(self.query, 1))


Strategy = Literal["single", "dp", "ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp1", "hsdp"]
Dtype = Literal["fp32", "bf16", "fp16"]
Quantization = Literal["nf4", "nf4-dq", "int4", "mxfp4", "int8", "fp8"]
Attention = Literal["flash", "sdpa", "eager"]
Step = Literal["foreach", "fused", "loop", "backward"]

Shardable = Literal["parameters", "gradients", "optimizer"]
ALL_SHARDED: tuple[Shardable, ...] = ("parameters", "gradients", "optimizer")
SHARDED: dict[Strategy, tuple[Shardable, ...]] = {
    "single": (), "dp": (), "ddp": (), "zero1": ("optimizer",), "zero2": ("gradients", "optimizer"),
    "zero3": ALL_SHARDED, "fsdp": ALL_SHARDED, "fsdp1": ALL_SHARDED, "hsdp": ALL_SHARDED,
}  # fmt: skip
"""Strategy -> which of parameters, gradients and optimizer states it divides among the GPUs
(ZeRO: Rajbhandari et al., arXiv 1910.02054; FSDP: Zhao et al., arXiv 2304.11277)."""
BYTES: dict[str, int] = {"fp32": 4, "bf16": 2, "fp16": 2}
QUANTIZED: dict[str, float] = {
    "nf4": 0.5 + 4 / 64, "nf4-dq": 0.5 + 1 / 64 + 4 / (64 * 256), "int4": 0.5 + 2.5 / 128,
    "mxfp4": 0.5 + 1 / 32, "int8": 1.0,
}  # fmt: skip
"""The bytes per parameter of a quantised linear layer.

NF4 needs half a byte per weight and a 32-bit scale for every 64 weights; double quantisation stores
each scale in one byte, with a 32-bit scale for every 256 scales (Dettmers et al., arXiv
2305.14314). LLM.int8 needs one byte (arXiv 2208.07339). GPTQ and AWQ (`int4`) need half a byte per
weight, plus a 16-bit scale and half a byte of zero point for every 128 weights. MXFP4 needs half a
byte per weight, plus one byte for every 32 (OCP). `fp8` is not in this table, because torchao's
float8 training computes in 8 bits and keeps the weights in their own format.
"""


class TrainingJob(Frozen):
    """A training job. Lengths are in tokens; `gpus` counts only the GPUs that train."""

    shape: Shape
    gpus: int = 1
    context: int
    """The number of tokens in the longest sequence."""
    batch: int | None = None
    """The number of sequences in a step over all GPUs; None if each micro-batch is filled up to a
    number of tokens, as by Trinity-RFT and by verl with dynamic batches. The measured table only
    has such batches."""
    tokens: int | None = None
    """The token budget of one GPU; None means the default, `ceil(2 * context / SP)`."""
    accumulate: int = 1
    """The number of micro-batches in a step."""

    # Types and precision.
    dtype: Dtype = "fp32"
    """The type in which the parameters are stored."""
    amp: Dtype | None = "bf16"
    """The type used for computing with autocast or mixed precision; None means `dtype`."""
    quantize: Quantization | None = None
    """The storage format of the frozen base; with `fp8`, linear layers compute in 8 bits."""
    upcast_rest: bool = False
    """Whether all weights that are not quantised are converted to 32 bits (PEFT's
    `prepare_model_for_kbit_training`)."""

    # These fields say which parts are trained.
    lora: int | None = None
    """The rank of LoRA on every linear layer; the model itself is then frozen."""
    frozen: float = 0.0
    """Without adapters, the share of the model's parameters that is not trained."""
    tables: int = 0
    """The number of parameters in embedding tables that are trained in addition to the model (such
    as a recommender's users and items)."""

    # The optimizer.
    optimizer: str = "adamw"
    step: Step = "foreach"
    """How the optimizer steps; `backward`: it updates each weight during the backward pass."""
    offload_optimizer: bool = False

    # These fields say which tensors are kept for the backward pass.
    checkpointing: bool = True
    selective: bool = False
    """Whether every other matrix product is kept (torchtitan's selective checkpointing)."""
    reentrant: bool = True
    """Whether checkpointing is reentrant: layers are recomputed by a nested backward pass
    (transformers) instead of by hooks (torch's `checkpoint_wrapper`)."""
    offload_checkpoints: bool = False
    loss: str = "trainer"
    attention: Attention = "flash"
    compile: bool = False
    fused_kernels: bool = False
    """Whether fused kernels for the norms, the rotary embedding and the gated MLP recompute cheap
    intermediate values (Liger)."""

    # These fields describe what is in memory in addition to the model.
    rl: RlSetup = SUPERVISED_SETUP
    """What preference or reinforcement learning keeps in memory."""
    engine_bytes: float = 0.0
    """The memory that the setup's inference engine reserves on the same GPU."""

    # Several GPUs.
    strategy: Strategy = "fsdp"

    @property
    def fills_token_budget(self) -> bool:
        """Whether the batch is filled up to a token budget, and is not a number of sequences."""
        return self.batch is None

    @property
    def sequences(self) -> int:
        """The number of sequences in a step over all GPUs; 0 with a token budget."""
        return self.batch or 0

    @property
    def copies_model(self) -> bool:
        """Whether the strategy shards nothing: every GPU holds the whole model and its states."""
        return not SHARDED[self.strategy]

    @property
    def shards_parameters(self) -> bool:
        """Whether the strategy divides the weights among the GPUs."""
        return "parameters" in SHARDED[self.strategy]

    @property
    def gathers(self) -> bool:
        """Whether the GPUs gather sharded weights unit by unit for computing and free them
        afterwards; with one GPU there is nothing to gather."""
        return self.gpus > 1 and self.shards_parameters

    @property
    def bytes_of_frozen_models(self) -> float:
        """The bytes of the reference and the reward model, each as large as the policy."""
        bytes_of_weight = 2 if self.rl.frozen_in_16_bits else BYTES[self.dtype]
        models = self.rl.has_reference + self.rl.has_reward_model
        return float(models * self.shape.parameters * bytes_of_weight)

    @property
    def stored_bytes(self) -> float | None:
        """The bytes of one quantised weight; None if the weights are not quantised."""
        return QUANTIZED.get(self.quantize or "")

    @property
    def compute_bytes(self) -> int:
        """The bytes of one element in the type used for computing."""
        return BYTES[self.amp or self.dtype]

    @property
    def trained_bytes(self) -> int:
        """The bytes of one trained weight. PEFT keeps adapters in 32 bits."""
        return BYTES[self.dtype] if self.lora is None else 4

    @property
    def master_weights(self) -> bool:
        """Whether DeepSpeed's optimizer updates a 32-bit copy of 16-bit weights (ZeRO)."""
        return bool(self.amp) and self.strategy in ("zero1", "zero2", "zero3")

    @property
    def adapter_parameters(self) -> int:
        """The number of parameters that LoRA adds to all linear layers; 0 without LoRA.

        For a linear layer with `a` inputs and `b` outputs, LoRA adds rank x (a + b) parameters (Hu
        et al., arXiv 2106.09685).
        """
        shape, rank = self.shape, self.lora
        if rank is None:
            return 0
        # Queries and output map hidden to query width and back; keys and values map hidden to
        # their width. The MLP has an up and a down projection, and perhaps a gate.
        attention = 4 * shape.hidden + 2 * (shape.query + shape.key_value)
        mlp = (3 if shape.gated else 2) * (shape.hidden + shape.intermediate)
        return shape.layers * rank * (attention + mlp)

    @property
    def trained_parameters(self) -> int:
        """The number of parameters that have gradients and optimizer states."""
        if self.lora is None:
            return round(self.shape.parameters * (1 - self.frozen)) + self.tables
        return self.adapter_parameters + self.tables

    @property
    def trains_layers(self) -> bool:
        """Whether weights of the model's layers are trained, as opposed to adapters or nothing."""
        return self.lora is None and self.frozen < 1


JOB_DEFAULTS: dict[str, Any] = dict(defaults(TrainingJob))
"""Job field -> its default."""


class Recipe(Frozen):
    """The settings that make a job fit: offload, sequence parallelism, expandable segments."""

    offload: bool = False
    sp: int = 1
    env: bool = False

    def __str__(self) -> str:
        """The parts of the recipe joined by `+`; `vanilla` if there are none.

        >>> str(Recipe()), str(Recipe(offload=True, sp=2, env=True))
        ('vanilla', 'Env + Offload + SP=2')
        """
        parts = ["Env"] if self.env else []
        parts += ["Offload"] if self.offload else []
        parts += [f"SP={self.sp}"] if self.sp > 1 else []
        return " + ".join(parts) or "vanilla"


def samples_per_group(job: TrainingJob, recipe: Recipe) -> int:
    """The number of sequences in one micro-batch of a data-parallel group: the batch divided by the
    number of groups, rounded up."""
    # If a sequence needs more GPUs than there are, all GPUs form one group.
    groups = max(job.gpus // recipe.sp, 1)
    return math.ceil(job.sequences / groups)


def tokens_per_gpu(job: TrainingJob, recipe: Recipe) -> int:
    """The number of tokens that one GPU processes at once.

    With a number of sequences as batch, it is the tokens of a group's sequences divided by the
    number of GPUs in the group. With a token budget, it is the budget, by default `ceil(2 * context
    / SP)` (Trinity-RFT's GPU guide).
    """
    if not job.fills_token_budget:
        # A pair is a chosen and a rejected answer.
        sequences_of_sample = 2 if job.rl.method in PAIRED else 1
        tokens_of_group = samples_per_group(job, recipe) * sequences_of_sample * job.context
        return math.ceil(tokens_of_group / recipe.sp)
    return math.ceil(2 * job.context / recipe.sp) if job.tokens is None else job.tokens


def least_tokens(job: TrainingJob, sp: int) -> int:
    """The smallest token budget per GPU with which `sp` GPUs share the longest sequence; verl
    rejects a smaller one."""
    return math.ceil(job.context / sp)


def longest_sequence_fits_budget(job: TrainingJob, sp: int) -> bool:
    """Whether the longest sequence fits into the token budget of the `sp` GPUs that share it; the
    default budget (None) fits two of them (see `tokens_per_gpu`)."""
    return job.tokens is None or job.tokens >= least_tokens(job, sp)


YARN_FAMILIES = ("qwen2", "qwen3", "qwen2_moe", "qwen3_moe")
"""Model families whose model cards recommend YaRN for a longer context."""


def yarn_settings(job: TrainingJob) -> dict[str, Any] | None:
    """The YaRN settings for a context longer than the model's native one; None if they are not
    needed, or if YaRN is not known to work for the family."""
    native = job.shape.native_context
    if native is None or job.context <= native or job.shape.kind not in YARN_FAMILIES:
        return None
    return {
        "rope_type": "yarn",
        "factor": round(job.context / native, 6),
        "original_max_position_embeddings": native,
    }
