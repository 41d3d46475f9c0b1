"""The shape of a model: the sizes and counts that determine its memory."""

from __future__ import annotations

from gpusetup.model.frozen import Frozen

DENOISERS = ("flux", "unet", "cogvideox", "wan", "hunyuan-video", "ltx-video", "mochi")
"""Families of diffusion models, whose samples have one token for each patch of the image or
video."""

ENCODERS = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "deberta", "deberta-v2",
            "ernie", "mpnet", "distilbert", "modernbert")  # fmt: skip
"""Families of text encoders, which read a whole text at once and are usually fine-tuned with a
classifier."""
SPEECH = frozenset(("whisper",))
"""Families of speech models, which read audio in windows of a fixed length."""
TRANSLATORS = ("t5", "bart")
"""Families with an encoder and a decoder, which turn one text into another."""


class Shape(Frozen):
    """The shape of a model. Counts are numbers of parameters; widths are numbers of elements."""

    name: str
    kind: str = "transformer"
    """The model family in `config.json` (`qwen3`, `mixtral`, ...); `transformer` if the shape is a
    guess."""
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
    """The MLP width that one token uses; with experts, the experts per token times the width of one
    expert."""
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
    """The vocabulary size, which is the width of the logits; 0 if the model has no language
    head."""
    tower: int = 0
    """The number of parameters in an image or audio encoder in addition to the text model."""
    classes: int = 0
    """The number of classes if the model only has one output per sample (ViT)."""
    tokens: int | None = None
    """The number of tokens in a sample if the model fixes it: the patches of an image or, for a
    diffusion model, the patches at its usual number of frames and resolution."""
    encoder_parameters: int = 0
    """The number of parameters in a diffusion model's frozen text encoders and VAE."""
    adapted: int = 0
    """The sum of inputs and outputs over all linear layers with LoRA; 0 if it follows from the
    shape as usual."""
    latent: int = 0
    """The width of the tensor that latent attention caches; 0 if keys and values are cached."""
    roughly: bool = False
    """Whether plan can only roughly estimate the activations of some layers (state space, linear
    attention, convolutions)."""
    cached_layers: int | None = None
    """The number of layers that cache keys and values for every token; None means all layers."""
    base: str = ""
    """The base model that the shape was taken from, because its name is part of the model's
    name."""
    assumed: str = ""
    """A phrase that tells how the shape was guessed; "" if it is known."""
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
        # Encoder-decoder models are trained on separate samples, not on a token budget.
        if self.kind in TRANSLATORS:
            return False
        return self.vocabulary > 0

    @property
    def outside(self) -> int:
        """The number of parameters in the embedding and the head, which stay unquantised."""
        tables = self.vocabulary
        # A tied head shares the embedding's weights.
        if not self.tied:
            tables *= 2
        parameters = tables * self.hidden
        # Even if a config has an absurd vocabulary, the result must not exceed the whole model.
        return min(parameters, self.parameters)

    @property
    def key_value_heads(self) -> int:
        """The number of key-value heads, which several query heads may share; at least 1."""
        query_width = max(self.query, 1)
        shared_heads = self.heads * self.key_value // query_width
        # Latent attention and state space have no key-value heads, so count one.
        return max(1, shared_heads)


def lora_parameters(shape: Shape, rank: int) -> int:
    """The number of parameters that LoRA of this rank adds to all linear layers.

    For a linear layer with `a` inputs and `b` outputs, LoRA adds rank x (a + b) parameters (Hu et
    al., arXiv 2106.09685).

    >>> from gpusetup.plan.models import model_named
    >>> lora_parameters(model_named("qwen3-0.6b"), 8)
    5046272
    """
    if shape.adapted:
        return rank * shape.adapted
    # Queries and output map hidden to query width and back; keys and values map hidden to their
    # width.
    attention_width = shape.query + shape.key_value
    attention = 4 * shape.hidden + 2 * attention_width
    # The MLP has an up and a down projection, and perhaps a gate.
    mlp_matrices = 3 if shape.gated else 2
    mlp = mlp_matrices * (shape.hidden + shape.intermediate)
    width_of_layer = attention + mlp
    return shape.layers * rank * width_of_layer
