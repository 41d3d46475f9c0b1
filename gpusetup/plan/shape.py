"""What a model is to its memory: sizes and counts, whoever described it."""

from __future__ import annotations

from gpusetup.value import Value


class Shape(Value):
    """A model's sizes. Counts are parameters; widths are elements."""

    name: str
    kind: str = "transformer"
    """The family of its `config.json` (`qwen3`, `mixtral`, ...); `transformer` when guessed."""
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
    """The width of the MLP that one token passes: experts per token times an expert's."""
    gated: bool = True
    """Whether the MLP has a gate beside its up projection (SwiGLU)."""
    activation: str = "silu"
    """What stands between the MLP's projections: `silu`, `gelu`, `gelu_new`, ..."""
    rms_norm: bool = True
    """RMSNorm computes in 32 bits and keeps that copy; LayerNorm does not."""
    norms: int = 2
    """Norms of a layer."""
    query_key_norm: bool = False
    dropout: bool = False
    """Whether attention and MLP end in a dropout, which keeps a mask."""
    experts: int = 0
    """The experts that one token passes; 0 where there are none."""
    vocabulary: int = 0
    """The width of the logits of every token; 0 where there is no such head."""
    classes: int = 0
    """The width of the one output of a sample, where that is all there is (ViT)."""
    tokens: int | None = None
    """Tokens of a sample where the model fixes them: an image's patches."""
    native_context: int | None = None

    @property
    def layer(self) -> int:
        """The mean parameters of one layer (of the tables beside them, too, in a guessed shape)."""
        outside = (self.vocabulary * self.hidden) if self.vocabulary else 0
        return max(self.parameters - outside, 0) // max(self.layers, 1)


def lora_parameters(shape: Shape, rank: int) -> int:
    """The parameters of LoRA of a rank on every linear layer.

    A linear layer of `a` inputs and `b` outputs gets rank x (a + b) (Hu et al., arXiv 2106.09685).

    >>> from gpusetup.plan.models import model_named
    >>> lora_parameters(model_named("qwen3-0.6b"), 8)
    5046272
    """
    h, q, kv, i = shape.hidden, shape.query, shape.key_value, shape.intermediate
    attention = (h + q) + 2 * (h + kv) + (q + h)
    mlp = (3 if shape.gated else 2) * (h + i)
    return rank * shape.layers * (attention + mlp)
