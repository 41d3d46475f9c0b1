"""The shape of a model: the sizes and counts that determine its memory."""

from __future__ import annotations

from gpusetup.model.frozen import Frozen

ENCODERS = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "deberta", "deberta-v2",
            "ernie", "mpnet", "distilbert", "modernbert")  # fmt: skip
"""Families of text encoders, which read a whole text at once and are usually fine-tuned with a
classifier."""
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
        encoder-decoder models are trained on separate samples."""
        if self.tokens is not None or self.encoder or self.kind in TRANSLATORS:
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
