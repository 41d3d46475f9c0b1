"""Weights, gradients, optimizer states: what stands for the whole step, in bytes of a GPU."""

from __future__ import annotations

from gpusetup.plan.memory.optimizers import OPTIMIZERS
from gpusetup.plan.model.workload import BYTES, Recipe, Workload

ZERO = ("zero1", "zero2", "zero3")
WHOLE = ("single", "dp", "ddp", "device-map")
SHARDED: dict[str, tuple[bool, bool, bool]] = {
    "single": (False, False, False),
    "dp": (False, False, False),
    "ddp": (False, False, False),
    "zero1": (False, False, True),
    "zero2": (False, True, True),
    "zero3": (True, True, True),
    "fsdp": (True, True, True),
    "fsdp1": (True, True, True),
    "hsdp": (True, True, True),
    "device-map": (False, False, False),
}
"""Strategy -> whether parameters, gradients, optimizer states are divided among the GPUs
(ZeRO: Rajbhandari et al., arXiv 1910.02054; FSDP: Zhao et al., arXiv 2304.11277)."""


def shards(w: Workload) -> int:
    """GPUs that share one copy of what is sharded."""
    return (w.shard or w.data_parallel) if w.strategy == "hsdp" else w.data_parallel


def local(w: Workload, parameters: float) -> float:
    """The parameters left to one GPU by tensor and pipeline parallelism, on its fullest stage."""
    return parameters * stage_share(w) / w.tensor_parallel


def stage_share(w: Workload) -> float:
    """The share of the model on the first or last stage of a pipeline: its layers and an embedding.

    A tied embedding is on both (Megatron-LM). A 65B model in 16 stages has 1,146 million parameters
    on a GPU of the first, 1,020 on others (BigScience's logs).
    """
    s = w.shape
    if w.stages == 1 or w.lora is not None:
        return 1 / w.stages
    ends = s.outside if s.tied else s.outside / 2
    return ((s.parameters - s.outside) / w.stages + ends) / s.parameters


def present(w: Workload, parameters: float, parts: int) -> float:
    """Of so many parameters of the model those on one GPU, where data parallelism makes `parts`.

    Expert parallelism divides the experts. GPUs that hold other experts share no copy, so that what
    is divided among all of them stays what it is without (Megatron Core's expert data parallelism).
    """
    whole = local(w, parameters)
    if parts > 1 or w.expert_parallel == 1 or not w.shape.experts:
        return whole / parts
    share = w.shape.routed / w.shape.parameters
    return whole * (1 - share * (1 - 1 / w.expert_parallel))


QUANTIZED: dict[str, float] = {
    "nf4": 0.5 + 4 / 64,
    "nf4-dq": 0.5 + 1 / 64 + 4 / (64 * 256),
    "int4": 0.5 + 2.5 / 128,
    "mxfp4": 0.5 + 1 / 32,
    "int8": 1.0,
}
"""Bytes a parameter of a quantised linear layer.

NF4: half a byte and a 32-bit scale for 64 of them, which double quantisation makes a byte with a
32-bit scale for 256 (Dettmers et al., arXiv 2305.14314). LLM.int8: a byte, a scale a row (arXiv
2208.07339). GPTQ and AWQ (`int4`): a 16-bit scale and half a byte of a zero point for 128; MXFP4:
a byte for 32 (OCP). `fp8` is no storage: torchao's float8 training keeps weights as they are."""


def masters(w: Workload) -> bool:
    """Whether the weights are 16-bit and the optimizer has a 32-bit copy of them.

    ZeRO with mixed precision, and Megatron-LM also where its optimizer is not distributed.
    """
    return bool(w.amp) and (w.strategy in ZERO or w.gradient_dtype is not None)


def weight_bytes(w: Workload) -> float:
    """Bytes a parameter that the weights take where they are not quantised.

    In `dtype`. ZeRO with mixed precision keeps 16-bit weights (the 32-bit copy counts among the
    optimizer's states).
    """
    return BYTES[w.amp if w.amp and masters(w) else w.dtype]


def cast_bytes(w: Workload) -> float:
    """Autocast's 16-bit copies of the weights, trained or frozen, that the backward pass needs.

    They go as it uses them, as activations do: at the optimizer's step there are none. Looking up
    an embedding casts nothing. Under checkpointing they are made anew.
    """
    if w.checkpointing or not casts(w) or w.amp is None:
        return 0.0
    if w.frozen_dtype is not None:
        return present(w, w.trained, 1) * BYTES[w.amp]
    s = w.shape
    looked_up = 0 if s.tied else s.vocabulary * s.hidden
    quantized = s.parameters - s.outside if w.quantize in QUANTIZED else 0
    return present(w, max(s.parameters - quantized - looked_up, 0), 1) * BYTES[w.amp]


def casts(w: Workload) -> bool:
    """Whether autocast keeps a copy of the weights in the smaller dtype."""
    whole = w.strategy in WHOLE and not masters(w)
    return bool(w.amp and whole and BYTES[w.amp] < BYTES[w.dtype])


def upcast(w: Workload) -> bool:
    """Whether embedding, norms and head beside a quantised base are 32-bit.

    Not under FSDP1, which flattens a unit's parameters of one dtype alone ("Must flatten tensors
    with uniform dtype" in torch's `_flat_param.py`, 2.13), that of the quantised ones' storage, so
    that TRL leaves PEFT's preparation out there (`is_sharded_qlora` in its `prepare_peft_model`).
    """
    return w.upcast_rest and w.quantize in QUANTIZED and w.strategy != "fsdp1"


def plain_bytes(w: Workload) -> float:
    """Bytes a parameter where nothing is quantised, trained and frozen ones together."""
    if w.frozen_dtype is None:
        return weight_bytes(w)
    share = w.trained / max(w.shape.parameters, 1)
    return share * weight_bytes(w) + (1 - share) * BYTES[w.frozen_dtype]


def base_bytes(w: Workload) -> float:
    """The model without adapters: quantised layers, embedding and head as they are, or 32-bit.

    GPTQ and AWQ leave a tower of images as it is; bitsandbytes quantises its layers, too.
    """
    stored, parts = QUANTIZED.get(w.quantize or ""), divisors(w)[0]
    model = present(w, w.shape.parameters, parts)
    if stored is None:
        return model * plain_bytes(w)
    outside = local(w, w.shape.outside) / parts
    tower = local(w, w.shape.tower) / parts * (w.quantize == "int4")
    plain = outside * (4 if upcast(w) else weight_bytes(w)) + tower * weight_bytes(w)
    return (model - outside - tower) * stored + plain


def gradient_bytes(w: Workload) -> float:
    """Bytes a trained parameter that the gradients take: the parameters' dtype, or their own."""
    if w.gradient_dtype is not None:
        return BYTES[w.gradient_dtype]
    if w.lora is not None:
        return BYTES[w.adapter_dtype]
    return BYTES[w.amp] if w.amp and w.strategy in ZERO else BYTES[w.dtype]


def bucket_bytes(w: Workload) -> float:
    """Bytes a trained parameter that DDP's buckets take, a second copy of the gradients.

    They are there from the start to the end (`gradient_as_bucket_view` is off by default in torch).
    """
    return gradient_bytes(w) if w.strategy == "ddp" and not masters(w) else 0.0


def optimizer_bytes(w: Workload) -> float:
    """Bytes a trained parameter that the optimizer's states take on the GPU."""
    row = OPTIMIZERS[w.optimizer]
    if row.paged or w.offload_optimizer:
        return 0.0
    return kept_by_optimizer(w)


def kept_by_optimizer(w: Workload) -> float:
    """Bytes a trained parameter of the optimizer's states, wherever they are."""
    row = OPTIMIZERS[w.optimizer]
    master = 4 if masters(w) and w.lora is None else 0
    width: float = 4 if master else BYTES[w.adapter_dtype if w.lora is not None else w.dtype]
    return master + row.moments * width + row.fixed


def divisors(w: Workload) -> tuple[int, int, int]:
    """By what weights, gradients and optimizer states are divided.

    In a pipeline FSDP2 sums whole gradients until the last micro-batch.
    """
    weights, gradients, optimizer = (shards(w) if cut else 1 for cut in SHARDED[w.strategy])
    return weights, 1 if w.pipelined_units else gradients, optimizer


def reference_bytes(w: Workload) -> float:
    """The weights of a reference model, divided as those of the model are.

    TRL and LLaMA-Factory load it as the model and hand it to the same engine: DeepSpeed's makes it
    16-bit, and divides it at stage 3 alone (`prepare_deepspeed`; TRL 1.16.0, LLaMA-Factory 0.9.5).
    Beside a quantised base it is quantised, too.
    """
    if w.reference is None:
        return 0.0
    if w.quantize in QUANTIZED:
        return base_bytes(w)
    width = min(BYTES[w.reference], weight_bytes(w))
    return present(w, w.shape.parameters, divisors(w)[0]) * width


def standing_bytes(w: Workload, r: Recipe) -> float:
    """The states that are there all the time: all but the gradients."""
    if r.offload:
        return 0.0
    for_weights, _, for_optimizer = divisors(w)
    adapters = local(w, w.adapters) * (BYTES[w.adapter_dtype] if w.lora is not None else 0)
    buckets = present(w, w.trained, 1) * bucket_bytes(w)
    optimizer = present(w, w.trained, for_optimizer) * optimizer_bytes(w)
    beside = reference_bytes(w) + encoder_bytes(w) * (w.encoders == "resident")
    return base_bytes(w) + adapters / for_weights + buckets + optimizer + beside


def encoder_bytes(w: Workload) -> float:
    """The frozen encoders of text and the VAE of a denoiser, whole on each GPU, in 16 bits."""
    sample = w.shape.sample
    return 2.0 * (sample.encoder + sample.vae) if sample else 0.0


def deepspeed(w: Workload) -> bool:
    """Whether DeepSpeed's engine steps 32-bit masters of 16-bit weights, and not Megatron-LM."""
    return w.strategy in ZERO and masters(w) and w.gradient_dtype is None


def gradient_state_bytes(w: Workload, r: Recipe) -> float:
    """The gradients on the fullest GPU; none where each is used up as it comes.

    DeepSpeed takes them to the host as they are reduced where its optimizer is there.
    """
    if r.offload or w.step == "backward" or (w.offload_optimizer and deepspeed(w)):
        return 0.0
    return present(w, w.trained, divisors(w)[1]) * gradient_bytes(w)


def host_bytes(w: Workload, r: Recipe) -> float:
    """What is kept in host memory: with Offload one whole copy of all states for each group."""
    elsewhere = OPTIMIZERS[w.optimizer].paged or w.offload_optimizer
    if not r.offload:
        return local(w, w.trained) * kept_by_optimizer(w) * elsewhere
    adapters = w.adapters * (BYTES[w.adapter_dtype] if w.lora is not None else 0)
    copy: float = w.shape.parameters * BYTES[w.dtype] + adapters
    copy += w.trained * (gradient_bytes(w) + kept_by_optimizer(w))
    return copy * (w.data_parallel / shards(w))


def alone_amount(w: Workload, r: Recipe) -> float:
    """Parameters that one GPU holds alone, where a sharding strategy has nobody to share with."""
    alone = w.gpus == 1 and SHARDED[w.strategy][0] and not r.offload
    return float(w.trained) if alone else 0.0


def unit_amount(w: Workload) -> float:
    """Parameters of the largest unit that is gathered whole; in 32 bits they count twice."""
    if not SHARDED[w.strategy][0]:
        return 0.0
    return w.shape.largest_unit / w.tensor_parallel * (w.compute_bytes / 2)


LIVE = 1e9
"""Parameters that DeepSpeed's ZeRO 3 may keep gathered at once: `stage3_max_live_parameters`, whose
default this is in DeepSpeed's and in transformers' documentation (2 GB in 16 bits)."""


def live_bytes(w: Workload) -> float:
    """What stays gathered beside the shards: under ZeRO 3 all up to `LIVE` parameters."""
    ahead = holds_gathered(w)
    if w.gpus < 2 or not (ahead or w.strategy == "zero3"):
        return 0.0
    whole = local(w, w.shape.parameters)
    if w.strategy == "zero3":  # looking up an embedding keeps nothing of it
        looked_up = 0 if w.shape.tied else w.shape.vocabulary * w.shape.hidden
        whole = max(min(LIVE, whole), (whole - local(w, looked_up)) * ahead)
    return whole * w.compute_bytes


def holds_gathered(w: Workload) -> bool:
    """Whether all that was gathered stands at the end of the forward pass.

    FSDP that does not shard again after it, and FSDP2 in a pipeline. Under ZeRO 3, where layers are
    not recomputed, torch's own linear layer: autograd keeps a view of the weight, whose storage
    outlives the empty tensor that `free_param` puts in its place. `zero.Init` brings a layer that
    keeps the parameter instead (`zero3_linear_wrap`), unless `mem_efficient_linear` is off
    (`partition_parameters.py` of 0.17.2).
    """
    keeps = w.load_whole or not w.reshard
    if w.strategy == "zero3":
        return keeps and not w.checkpointing
    return w.pipelined_units or (w.strategy in ("fsdp", "fsdp1", "hsdp") and not w.reshard)


FROZEN_UNIT = 4.0
"""Bytes a parameter of a frozen unit: 16-bit weights of it and of the one fetched ahead."""


def unit_bytes(w: Workload, trained: float) -> float:
    """Bytes a parameter of a unit; one whose weights are frozen has no gradients to reduce."""
    share = 0.0 if w.lora is not None else min(1.0, w.trained / max(w.shape.parameters, 1))
    return FROZEN_UNIT + (trained - FROZEN_UNIT) * share
