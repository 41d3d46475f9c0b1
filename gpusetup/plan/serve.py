"""Plans a server with vLLM: whether it fits, its longest context, and its start command.

The weights need the number of parameters times the bits per weight. For every token and layer, the
cache has two 16-bit tensors of the key-value heads' width (with DeepSeek's latent attention one
compressed tensor, arXiv 2405.04434). Layers with linear attention or a state space have no cache.
vLLM also profiles a forward pass at its start.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.errors import Unsatisfiable, UsageError
from gpusetup.model.documents import ServePlan
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.model.versions import Capability
from gpusetup.plan.decide import LARGEST_SOLUTION, largest
from gpusetup.plan.memory import NCCL
from gpusetup.plan.models import format_in_name
from gpusetup.plan.place import Place
from gpusetup.plan.question import TrainingQuestion, shape_of_question
from gpusetup.plan.shape import Shape

BITS = {
    "bf16": 16, "fp16": 16, "fp32": 32, "fp8": 8, "int8": 8, "int4": 4.16, "nf4": 4.5,
    "mxfp4": 4.46, "nvfp4": 4.6,
}  # fmt: skip
"""Format of the weights -> bits per weight in the layers, scales included."""
PUBLISHED = {"deepseek_v3": "fp8", "gpt_oss": "mxfp4"}
"""Family -> the format of its published weights (`quantization_config` in their config.json); bf16
for families that are not listed."""
WINDOWS = {"gemma2": (4096, 0.5), "gemma3": (1024, 0.83), "gpt_oss": (128, 0.5)}
"""Family -> the tokens that its sliding-window layers cache, and the share of its layers that are
such layers (`sliding_window` and `layer_types` in their config.json)."""
CACHE_BYTES = 2
"""Bytes per element of the cache, which vLLM keeps in 16 bits by default."""
USUAL_CONTEXT = 8192
"""The default length of a request, in tokens."""

# vLLM 0.11 with its V1 engine, by its documentation of engine arguments.
VERSION = "vLLM 0.11"
OLDEST = Capability(7, 0)
SHARE = 0.9
"""The share of the GPU's memory that vLLM uses by default (`gpu_memory_utilization`)."""
FIXED = 1.0 * GIB
"""Bytes for the CUDA context, CUDA graphs and workspaces."""
PASS = (2048, 256)
PASS_ON_LARGE = (8192, 1024)
"""The prompt tokens that one forward pass computes, and the rows of logits that exist at once
(`max_num_batched_tokens`, `max_num_seqs`). The larger ones apply from Hopper on, to GPUs with at
least `LARGE_GPU` bytes."""
HOPPER = Capability(9, 0)
LARGE_GPU = 70 * GIB
WITHIN_ERROR = 0.02
"""The error of estimates for servers, as a share of the GPU's memory: CUDA graphs and NCCL's
buffers differ between versions."""


def serve_plan(question: TrainingQuestion, weights: str | None, place: Place) -> ServePlan:
    """The answer for one server: whether it fits, the longest context that fits, and the largest
    number of requests that fit.

    `question`: the model, the tokens and number of simultaneous requests, and the GPUs, among which
    each layer is divided. `weights`: their format; None means that in the model's name, or the one
    in which it was published. Raises UsageError for what cannot be served, and Unsatisfiable if the
    GPU is too old.
    """
    context = question.context or USUAL_CONTEXT
    shape = shape_of_question(replace(question, context=context))
    in_name = format_in_name(question.model or "")
    weights = weights or in_name or PUBLISHED.get(shape.kind, "bf16")
    gpus, requests = question.gpus or place.count or 1, question.batch or 1
    if shape.heads % gpus:
        raise UsageError(f"{gpus} GPUs do not divide the {shape.heads} heads of the model")
    if not shape.vocabulary:
        raise UsageError(f"{shape.name} does not generate text: `--serve` is for models that do")
    if place.capability and place.capability < OLDEST:
        raise Unsatisfiable(
            f"vLLM needs a GPU of compute capability {OLDEST} or newer; "
            f"{place.gpu} has {place.capability}",
            hint="llama.cpp runs on older GPUs",
        )
    # Embedding and head are not quantised; in a 32-bit model they have 32 bits too.
    bits = BITS[weights]
    in_layers = shape.parameters - shape.outside
    weight_bytes = (in_layers * bits + shape.outside * max(bits, 16)) / 8 / gpus
    profiled = pass_bytes(shape, gpus, requests, place)
    used = weight_bytes + FIXED + (NCCL if gpus > 1 else 0) + profiled
    free = place.capacity * SHARE - used

    # The other layers of a hybrid model keep a state that does not grow with the context.
    layers = shape.layers if shape.cached_layers is None else shape.cached_layers
    # A key-value head is never split, and neither is latent attention's tensor: if there are more
    # GPUs than heads, some hold copies.
    width = shape.latent or 2 * shape.key_value / min(gpus, shape.key_value_heads)
    token_bytes = CACHE_BYTES * layers * width

    def cache_bytes(tokens: int) -> float:
        """The cache's bytes for one request of so many tokens."""
        window, share = WINDOWS.get(shape.kind, (0, 0.0))
        return token_bytes * (tokens * (1 - share) + min(tokens, window) * share)

    left = free - requests * cache_bytes(context)
    most_requests = max(0, int(free // cache_bytes(context)))
    fits = most_requests >= requests
    most_tokens = shape.native_context or LARGEST_SOLUTION
    longest = largest(lambda tokens: requests * cache_bytes(tokens) <= free)
    command = (
        f"vllm serve MODEL --max-model-len {context} --max-num-seqs {requests} "
        f"--tensor-parallel-size {gpus} --gpu-memory-utilization {SHARE:g}"
    )
    return ServePlan(
        fits=fits,
        uncounted=tuple(uncounted_by_serving(shape, place, left)) if fits else (),
        model=shape.name,
        parameters=shape.parameters,
        gpu=place.gpu,
        gpus=gpus,
        weights=weights,
        context=context,
        sequences=requests,
        weights_gib=round(weight_bytes / GIB, 3),
        cache_gib=round((free - left) / GIB, 3),
        pass_gib=round(profiled / GIB, 3),
        free_gib=round(left / GIB, 3),
        capacity_gib=round(place.capacity / GIB, 3),
        token_kib=round(token_bytes / 1024, 2),
        largest_context=min(longest, most_tokens),
        largest_sequences=most_requests,
        # vLLM would refuse a context beyond the model's own.
        command=command if fits and context <= most_tokens else None,
        notes=tuple(serve_notes(shape, context, place)),
    )


def pass_bytes(shape: Shape, gpus: int, requests: int, place: Place) -> float:
    """The bytes that one forward pass needs: the widest tensors of a layer in 16 bits, and the
    logits in 32 bits."""
    # The capability is unknown if the user only gave the memory size: assume a new GPU.
    is_new = place.capability is None or place.capability >= HOPPER
    tokens, rows = PASS_ON_LARGE if is_new and place.capacity >= LARGE_GPU else PASS
    # The MLP is divided among the GPUs; gate, up projection and their product exist at once. Each
    # of a token's experts has a separate output before the outputs are summed.
    elements = 4 * shape.hidden + 3 * shape.intermediate / gpus + shape.experts * shape.hidden
    # All requests may need logits in the same pass, and the sampler gathers the logits of the whole
    # vocabulary on each GPU.
    return 2 * tokens * elements + 4 * max(rows, requests) * shape.vocabulary


def uncounted_by_serving(shape: Shape, place: Place, left: float) -> Iterator[str]:
    """The reasons why a server that should fit, with `left` bytes to spare, may still not start."""
    if shape.assumed:
        yield f"the shape of {shape.name} ({shape.assumed})"
    if shape.tower:
        yield "the largest image, which vLLM tries at its start, is not counted"
    if left < WITHIN_ERROR * place.capacity:
        yield f"{left / GIB:.1f} GiB are left, which is within the estimate's error"


def serve_notes(shape: Shape, context: int, place: Place) -> Iterator[str]:
    """Notes about vLLM's version, the model's shape and context, and the machine."""
    yield f"planned for {VERSION}; other versions and servers need more or less"
    if shape.native_context and context > shape.native_context:
        yield (
            f"{context:,} tokens are beyond the native {shape.native_context:,}: a server "
            "refuses them unless the model's positions are extended (rope scaling)"
        )
    if place.remark:
        yield place.remark
