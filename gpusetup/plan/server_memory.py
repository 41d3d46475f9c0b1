"""The memory that an inference server needs on each GPU: weights, the cache of keys and values, and
a forward pass.

The weights need the number of parameters times the bits per weight. For every token and layer, the
cache has two tensors of the key-value heads' width (with DeepSeek's latent attention one compressed
tensor, arXiv 2405.04434). Layers with linear attention or a state space have no cache.
"""

from __future__ import annotations

from gpusetup.model.units import GIB
from gpusetup.plan.memory import NCCL
from gpusetup.plan.serve_table import serve_table
from gpusetup.plan.server import Server


def weight_bytes_of(server: Server) -> float:
    """The bytes of the weights on one GPU; embedding and head stay in 16 bits, except in a GGUF
    file."""
    bits = server.weight_bits
    unquantised = server.shape.outside
    if server.reads_gguf:
        unquantised = 0
    quantised = server.shape.parameters - unquantised
    all_bits = quantised * bits
    # In a 32-bit model the embedding has 32 bits too.
    all_bits += unquantised * max(bits, 16)
    return all_bits / 8 / server.gpus


def token_bytes_of(server: Server) -> float:
    """The bytes per GPU that the cache needs for one token, over all layers."""
    shape = server.shape
    layers = shape.layers
    # The other layers of a hybrid model keep a state that does not grow with the context.
    if shape.cached_layers is not None:
        layers = shape.cached_layers
    # With latent attention, every GPU keeps the whole compressed tensor.
    width: float = shape.latent
    if not width:
        # A key-value head is never split. If there are more GPUs than heads, some GPUs hold copies.
        shards = min(server.gpus, shape.key_value_heads)
        width = 2 * shape.key_value / shards
    return server.cache_element_bytes * layers * width


def pass_bytes_of(server: Server) -> float:
    """The bytes that one forward pass needs: the widest tensors of a layer in 16 bits, and the
    logits in 32 bits."""
    shape = server.shape
    elements_per_token: float = 4 * shape.hidden
    # The MLP is divided among the GPUs; gate, up projection and their product exist at once.
    elements_per_token += 3 * shape.intermediate / server.gpus
    # Each of a token's experts has a separate output before the outputs are summed.
    elements_per_token += shape.experts * shape.hidden
    layer_bytes = server.tokens_at_once * elements_per_token * 2
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


def free_for_cache(server: Server) -> float:
    """The bytes per GPU that remain for the cache after weights, the CUDA context, NCCL and, unless
    the engine counts it elsewhere, a forward pass."""
    engine = server.engine
    usable = server.hardware.capacity * server.share
    used = weight_bytes_of(server)
    used += engine.fixed_gib * GIB
    if server.gpus > 1:
        # With several GPUs, NCCL needs the same buffers as in training.
        used += NCCL
    if not engine.outside:
        used += pass_bytes_of(server)
    return usable - used
