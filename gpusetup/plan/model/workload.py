"""What is to be trained, on what, and the recipes that make it fit. Plain values."""

from __future__ import annotations

import math
from typing import Literal

from gpusetup.model.frozen import Frozen
from gpusetup.plan.model.shape import Shape, lora_parameters

Strategy = Literal[
    "single", "dp", "ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp1", "hsdp", "device-map"
]
Dtype = Literal["fp32", "bf16", "fp16"]
Quantization = Literal["nf4", "nf4-dq", "int4", "mxfp4", "int8", "fp8"]
Attention = Literal["flash", "sdpa", "eager", "written"]
Encoders = Literal["none", "loaded", "resident"]
Step = Literal["foreach", "fused", "loop", "backward"]

STRATEGIES: tuple[Strategy, ...] = (
    "single", "dp", "ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp1", "hsdp", "device-map",
)  # fmt: skip
BYTES: dict[str, int] = {"fp32": 4, "bf16": 2, "fp16": 2}


class Workload(Frozen):
    """One training job. Lengths are tokens; `gpus` are the trainer's."""

    shape: Shape
    gpus: int = 1
    context: int
    """Tokens of the longest sequence."""
    batch: int | None = None
    """Sequences of a step on all GPUs together; None: batches are filled to a budget of tokens."""
    tokens: int | None = None
    """The budget of tokens a GPU where it is not `ceil(2 * context / SP)`."""
    accumulation: bool = False
    """Whether gradients stand from one micro-batch to the next; always under a budget of tokens."""
    strategy: Strategy = "fsdp"
    optimizer: str = "adamw"
    dtype: Dtype = "fp32"
    """What the parameters are kept in."""
    gradient_dtype: Dtype | None = None
    """What gradients are kept in where not as they are computed (Megatron: 32 bits)."""
    amp: Dtype | None = "bf16"
    """What is computed in under autocast or mixed precision; None: in `dtype`."""
    checkpointing: bool = True
    loss: str = "trainer"
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    micro_batches: int | None = None
    """Micro-batches of a step, where a pipeline has fewer than it could hold."""
    shard: int | None = None
    """GPUs that share one copy under `hsdp`."""
    lora: int | None = None
    """The rank of LoRA on all linear layers; the model itself is frozen then."""
    frozen: float = 0.0
    """The share of the parameters that is not trained."""
    trained_layers: int | None = None
    """The last layers where they alone are trained: embedding, head and other layers are frozen."""
    frozen_dtype: Dtype | None = None
    """What the frozen share is kept in where what is trained was made 32-bit; None: `dtype`."""
    lora_targets: Literal["all", "attention", "qv"] = "all"
    """The linear layers that LoRA is beside."""
    adapter_dtype: Dtype = "fp32"
    """What adapters are kept in: PEFT makes them 32-bit, torchtune and litgpt as the base."""
    lora_dropout: bool = False
    dora: bool = False
    trained_embeddings: bool = False
    """Whether embedding and head are trained beside the adapters (PEFT's `modules_to_save`)."""
    quantize: Quantization | None = None
    """What the frozen base is stored in; `fp8`: linear layers compute in 8 bits."""
    upcast_rest: bool = False
    """Whether what is not quantised is made 32-bit (PEFT's `prepare_model_for_kbit_training`)."""
    selective: str | None = None
    """Selective checkpointing: `op` (every second matrix product), or every n-th layer: `2`."""
    attention: Attention = "flash"
    repeat_kv: bool = False
    """Whether keys and values that heads share are copied for each (litgpt)."""
    fused_kernels: bool = False
    """Norm, rotation and gated MLP in kernels that recompute what is cheap (Liger)."""
    fused_activation: bool = False
    """Whether an activation that transformers writes out (`gelu_new`) is one kernel."""
    compile: bool = False
    step: Step = "foreach"
    """How the optimizer steps; `backward`: within the backward pass, gradient by gradient."""
    sequence_parallel: bool = False
    """Whether tensor parallelism also divides what is between attention and MLP."""
    context_parallel: int = 1
    expert_parallel: int = 1
    offload_optimizer: bool = False
    offload_checkpoints: bool = False
    load_whole: bool = False
    """Whether every GPU gets the whole model before it is divided: DeepSpeed without `zero.Init`,
    whose linear layers then keep what ZeRO 3 gathered, too, unless they are recomputed."""
    reentrant: bool = True
    """Whether layers are recomputed in a backward pass within the backward pass (transformers), or
    by hooks (torch's `checkpoint_wrapper`)."""
    kept_inputs: int = 0
    """Copies of their inputs that 4-bit layers keep: one with bitsandbytes before 0.43.2, two in a
    loop whose variable keeps the last step's loss, too."""
    reference: Dtype | None = None
    """What a frozen copy of the model beside it is kept in (DPO, RLHF with a KL term)."""
    reshard: bool = True
    """Whether FSDP frees the weights it gathered after the forward pass (`SHARD_GRAD_OP` and
    `reshard_after_forward=False` do not), and ZeRO 3 (`mem_efficient_linear=False` does not)."""
    beside: float = 0.0
    """GiB of the card that other programs hold: an engine that generates, another job."""
    linked: bool = False
    """Whether its GPUs talk by NVLink, for which NCCL has many channels."""
    varied: bool = False
    """Whether each batch has its own length: neither padded to one nor packed."""
    eval_batch: int | None = None
    """Sequences of a GPU when the trainer evaluates between its steps."""
    expandable: bool = False
    """Whether the trainer itself switches expandable segments on."""
    autocast: bool = False
    """Whether weights in 16 bits are trained under autocast, which computes norms in 32 bits."""
    encoders: Encoders = "none"
    """Where the encoders of text and the VAE of a denoiser are: `resident` beside it for each step,
    `loaded` with it and gone before the first, or nowhere: latents and embeddings were made
    before."""

    @property
    def data_parallel(self) -> int:
        """GPUs left for data and sequence parallelism; those of one context share the states."""
        return self.gpus // (self.tensor_parallel * self.stages)

    @property
    def stages(self) -> int:
        """Pieces of the model one after the other, each on GPUs of its own.

        `device_map="auto"` of transformers is a pipeline of all GPUs with one batch in it.
        """
        return self.gpus if self.strategy == "device-map" else self.pipeline_parallel

    @property
    def length(self) -> int:
        """Tokens of one sample."""
        return self.shape.fixed_tokens or self.context

    @property
    def written(self) -> float:
        """Tokens of the text that a second stack writes, for each of the sample's; else 1."""
        most = self.shape.native_context or self.context
        return min(self.context, most) / self.length if self.shape.writers else 1.0

    @property
    def even_layers(self) -> float:
        """Layers, each of as many tokens as the sample has."""
        return self.shape.layers - self.shape.writers * (1 - self.written)

    @property
    def gradients_stay(self) -> bool:
        """Whether there are gradients while the forward pass runs.

        ZeRO 3 over masters has one buffer of its part from the start (`grad_partitions_flat_buffer`
        in DeepSpeed's `stage3.py`, 0.17.2).
        """
        flat = self.strategy == "zero3" and self.amp is not None and self.gradient_dtype is None
        return self.batch is None or self.accumulation or self.megatron or flat

    @property
    def pipelined_units(self) -> bool:
        """Whether FSDP2's units are those of a pipeline's stage, by torch's own schedules.

        They stay gathered from the first micro-batch to the last, whose backward pass alone reduces
        the gradients (`backward_maybe_with_nosync` in `torch/distributed/pipelining/stage.py`,
        2.13; torchtitan does not reshard after the forward pass either).
        """
        return self.strategy == "fsdp" and self.pipeline_parallel > 1

    @property
    def megatron(self) -> bool:
        """Whether Megatron-LM's own DDP and layers train.

        One buffer of gradients stands from the first step to the last (`_ParamAndGradBuffer`), and
        under sequence parallelism a layer keeps its part of what it gathers, and gathers it again
        in the backward pass (Korthikanti et al., arXiv 2205.05198, section 4.2.2).
        """
        return self.gradient_dtype is not None and self.strategy in ("single", "ddp", "zero1")

    @property
    def compute_bytes(self) -> int:
        return BYTES[self.amp or self.dtype]

    @property
    def adapters(self) -> int:
        """The parameters that LoRA adds; DoRA adds one magnitude an output."""
        if self.lora is None:
            return 0
        return lora_parameters(self.shape, self.lora, self.lora_targets, dora=self.dora)

    @property
    def trained(self) -> int:
        """The parameters that get gradients and optimizer states."""
        if self.lora is not None:
            return self.adapters + self.shape.outside * self.trained_embeddings
        if self.trained_layers is not None:
            layers = self.shape.parameters - self.shape.outside
            return round(layers * min(self.trained_layers / self.shape.layers, 1))
        return round(self.shape.parameters * (1 - self.frozen))

    @property
    def trains_head(self) -> bool:
        return self.lora is None and self.frozen < 1 and self.trained_layers is None


class Recipe(Frozen):
    """What is switched on so that it fits."""

    offload: bool = False
    sp: int = 1
    env: bool = False

    @property
    def rank(self) -> tuple[bool, int, bool]:
        """The order in which recipes are tried: the cheapest for speed first."""
        return (self.offload, self.sp, self.env)

    def __str__(self) -> str:
        """
        >>> str(Recipe()), str(Recipe(offload=True, sp=2, env=True))
        ('vanilla', 'Env + Offload + SP=2')
        """
        parts = ["Env"] * self.env + ["Offload"] * self.offload
        parts += [f"SP={self.sp}"] * (self.sp > 1)
        return " + ".join(parts) or "vanilla"

    @classmethod
    def parse(cls, text: str) -> Recipe:
        """Read what `str` wrote; ValueError for anything else.

        >>> Recipe.parse("Env + SP=4") == Recipe(env=True, sp=4)
        True
        """
        offload = env = False
        sp = 1
        for part in [] if text.strip() == "vanilla" else text.split("+"):
            word = part.strip()
            if word.startswith("SP=") and word[3:].isdigit():
                sp = int(word[3:])
            elif word in ("Env", "Offload"):
                env, offload = env or word == "Env", offload or word == "Offload"
            else:
                raise ValueError(f"no recipe: {text!r}")
        return cls(offload=offload, sp=sp, env=env)


def tokens_per_gpu(workload: Workload, recipe: Recipe) -> int:
    """Tokens that one GPU computes at once.

    A batch: sequences of a group times context, over the SP of the group. No batch: the trainer's
    budget, `ceil(2 * context / SP)` unless it is given (Trinity-RFT's GPU guide).
    """
    w, sp = workload, recipe.sp
    if w.batch is not None:
        return math.ceil(samples_per_group(w, recipe) * w.length / (sp * w.context_parallel))
    return w.tokens if w.tokens is not None else math.ceil(2 * w.length / sp)


def least_tokens(workload: Workload, sp: int) -> int:
    """The least budget of a GPU that takes the longest sequence; verl refuses a smaller one."""
    return math.ceil(workload.length / sp)


def takes_longest(workload: Workload, sp: int) -> bool:
    """Whether the longest sequence fits into the budget of the GPUs that share it."""
    return workload.tokens is None or workload.tokens >= least_tokens(workload, sp)


def samples_per_group(workload: Workload, recipe: Recipe) -> int:
    """Sequences of one micro-batch: the batch over the data-parallel groups."""
    assert workload.batch is not None
    groups = max(workload.data_parallel // (recipe.sp * workload.context_parallel), 1)
    return math.ceil(workload.batch / groups)
