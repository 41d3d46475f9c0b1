"""The memory that an inference server needs on each GPU: weights, the cache of keys and values, and
a forward pass.

Weights are parameters times bits; the cache is two tensors of the key-value heads' width for every
token and layer (one compressed one in DeepSeek's latent attention, arXiv 2405.04434; nothing in
layers of linear attention or state space).
"""

from __future__ import annotations

from gpusetup.model.units import GIB
from gpusetup.plan.memory import NCCL
from gpusetup.plan.serve_table import serve_table
from gpusetup.plan.server import Server

LATENT = {"deepseek_v2": 576, "deepseek_v3": 576}
"""Family -> width of the one tensor that latent attention keeps (512 and 64 of rotated keys)."""


def weight_bytes_of(server: Server) -> float:
    """The bytes of the weights on one GPU; embedding and head stay in 16 bits, except in a GGUF
    file."""
    bits = server.weight_bits
    unquantised = server.shape.outside
    if server.reads_gguf:
        unquantised = 0
    quantised = server.shape.parameters - unquantised
    all_bits = quantised * bits
    # A model in 32 bits has its embedding in 32 bits, too.
    all_bits += unquantised * max(bits, 16)
    return all_bits / 8 / server.gpus


def token_bytes_of(server: Server) -> float:
    """The bytes per GPU that the cache needs for one token, over all layers."""
    shape = server.shape
    layers = shape.layers
    # A hybrid's other layers keep a state that does not grow with the context.
    if shape.cached_layers is not None:
        layers = shape.cached_layers
    # Latent attention has one tensor, which every GPU keeps whole.
    width: float = shape.latent or LATENT.get(shape.kind, 0)
    if not width:
        # A head of keys and values is never cut: more GPUs than heads hold copies.
        shards = min(server.gpus, shape.key_value_heads)
        width = 2 * shape.key_value / shards
    return server.cache_element_bytes * layers * width


def pass_bytes_of(server: Server, pass_tokens: int | None = None) -> float:
    """The bytes of one forward pass: the widest tensors of a layer in 16 bits, and the logits in 32
    bits.

    `pass_tokens`: tokens of a prompt that it computes; None: as the modelled version does.
    """
    shape = server.shape
    tokens = pass_tokens or server.tokens_at_once
    elements_per_token: float = 4 * shape.hidden
    # The MLP is divided among the GPUs; gate, up and their product are there at once.
    elements_per_token += 3 * shape.intermediate / server.gpus
    # Each expert of a token gives an output of its own, before they are summed.
    elements_per_token += shape.experts * shape.hidden
    layer_bytes = tokens * elements_per_token * 2
    # The sampler gathers the logits of the whole vocabulary on each GPU, in 32 bits.
    logit_bytes = server.rows_at_once * shape.vocabulary * 4
    return layer_bytes + logit_bytes


def sequence_bytes(server: Server, tokens: int) -> float:
    """The cache's bytes per GPU for one sequence of this many tokens; sliding-window layers keep
    only the last tokens."""
    token_bytes = token_bytes_of(server)
    window = serve_table().windows.get(server.shape.kind)
    if window is None:
        return token_bytes * tokens
    in_windows = min(tokens, window.tokens) * window.layers
    full_layers = 1 - window.layers
    in_full_layers = tokens * full_layers
    return token_bytes * (in_full_layers + in_windows)


def free_for_cache(server: Server, pass_tokens: int | None = None) -> float:
    """The bytes per GPU that remain for the cache after weights, the CUDA context, NCCL and, unless
    the engine counts it elsewhere, a forward pass."""
    engine = server.engine
    usable = server.hardware.capacity * server.share
    used = weight_bytes_of(server)
    used += engine.fixed_gib * GIB
    if server.gpus > 1:
        # NCCL's buffers, as in a training.
        used += NCCL
    if not engine.outside:
        used += pass_bytes_of(server, pass_tokens)
    return usable - used


def whole_context_fits(server: Server) -> bool:
    """Whether an engine version that computes whole prompts in one pass at its start can serve a
    request of the full context.

    It tried a pass over the whole context, and kept what was left for the cache, which had to take
    one whole context as well.
    """
    pass_tokens = max(server.context, server.tokens_at_once)
    free = free_for_cache(server, pass_tokens)
    needed = sequence_bytes(server, server.context)
    return needed <= free
