"""The shape of a model: the sizes and counts that determine its memory."""

from __future__ import annotations

from gpusetup.model.frozen import Frozen

DENOISERS = ("flux", "unet", "cogvideox", "wan", "hunyuan-video", "ltx-video", "mochi")
"""Families whose samples have as many tokens as the image or video has patches."""

ENCODERS = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "deberta", "deberta-v2",
            "ernie", "mpnet", "distilbert", "modernbert")  # fmt: skip
"""Families that read a text whole, and are fine-tuned with a classifier."""
SPEECH = frozenset(("whisper",))
"""Families that read sound in windows of one length."""
TRANSLATORS = ("t5", "bart")
"""Families of two stacks, which write a text for another."""


class Shape(Frozen):
    """The shape of a model. Counts are numbers of parameters; widths are numbers of elements."""

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
    rms_norm: bool = True
    """RMSNorm computes in 32 bits and keeps that copy; LayerNorm does not."""
    query_key_norm: bool = False
    dropout: bool = False
    """Whether attention and MLP end in a dropout, which keeps a mask."""
    tied: bool = False
    """Whether the head is the embedding."""
    experts: int = 0
    """The experts that one token passes; 0 where there are none."""
    vocabulary: int = 0
    """The width of the logits of every token; 0 where there is no such head."""
    tower: int = 0
    """Parameters of a tower of images beside the text."""
    classes: int = 0
    """The width of the one output of a sample, where that is all there is (ViT)."""
    tokens: int | None = None
    """Tokens of a sample where the model fixes them: an image's patches; a denoiser's at its usual
    frames and resolution."""
    encoder_parameters: int = 0
    """The parameters of the frozen encoders of text and the VAE of a denoiser."""
    adapted: int = 0
    """Inputs and outputs of all linear layers that LoRA is beside, if they are not the usual."""
    latent: int = 0
    """The width of the one tensor that latent attention caches; 0 for keys and values."""
    roughly: bool = False
    """Whether some layers are of a kind whose activations plan only estimates (state space,
    linear attention, convolutions)."""
    cached_layers: int | None = None
    """The layers that keep keys and values for every token; None: all of them."""
    base: str = ""
    """The model that it was fine-tuned from, if its shape is that one's by name."""
    assumed: str = ""
    """What the shape was taken from, if the model's own is not known."""
    native_context: int | None = None

    @property
    def encoder(self) -> bool:
        """Whether the model is a text encoder such as BERT, which reads a text as a whole."""
        return self.kind in ENCODERS

    @property
    def writes_text(self) -> bool:
        """Whether the model is a text decoder, for which trainers may fill a token budget."""
        if self.tokens is not None or self.encoder:
            return False
        # A translator writes a text for another, sample by sample.
        if self.kind in TRANSLATORS:
            return False
        return self.vocabulary > 0

    @property
    def outside(self) -> int:
        """The number of parameters in the embedding and the head, which stay unquantised."""
        tables = self.vocabulary
        # A tied head is the embedding itself.
        if not self.tied:
            tables *= 2
        parameters = tables * self.hidden
        # A config with an absurd vocabulary must not give more than the whole model.
        return min(parameters, self.parameters)

    @property
    def key_value_heads(self) -> int:
        """The number of key-value heads, which several query heads may share; at least 1."""
        query_width = max(self.query, 1)
        shared_heads = self.heads * self.key_value // query_width
        # Latent attention and state space have no such heads: one counts.
        return max(1, shared_heads)


def lora_parameters(shape: Shape, rank: int) -> int:
    """The number of parameters that LoRA of this rank adds to all linear layers.

    A linear layer of `a` inputs and `b` outputs gets rank x (a + b) (Hu et al., arXiv 2106.09685).

    >>> from gpusetup.plan.models import model_named
    >>> lora_parameters(model_named("qwen3-0.6b"), 8)
    5046272
    """
    if shape.adapted:
        return rank * shape.adapted
    # Queries and output: hidden to query and back. Keys and values: hidden to their width.
    attention_width = shape.query + shape.key_value
    attention = 4 * shape.hidden + 2 * attention_width
    # The up and the down projection, and the gate beside them.
    mlp_matrices = 3 if shape.gated else 2
    mlp = mlp_matrices * (shape.hidden + shape.intermediate)
    width_of_layer = attention + mlp
    return shape.layers * rank * width_of_layer
