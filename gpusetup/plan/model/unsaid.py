"""What the config of a family without a row leaves unsaid, one record a family."""

from __future__ import annotations

from gpusetup.model.frozen import Frozen


class Unsaid(Frozen):
    """What no key of a family's config tells."""

    gated: bool | None = None
    """Whether its MLP has a gate; None: as its activation and its norms let one expect."""
    layer_norm: bool = False
    """Whether its norms are layer norms, where no key with an epsilon tells."""
    norms: int = 2
    """Norms of a layer; 1 where attention and MLP read the same."""
    query_key_norm: bool = False
    positions: bool = False
    """Whether positions are learned parameters."""
    activation: str | None = None
    """What an MLP without a gate has, where that is written out in the model's own code."""
    tied: bool = False
    """Whether the head is the embedding where the config does not say."""


UNSAID: dict[str, Unsaid] = {
    "apertus": Unsaid(gated=False, query_key_norm=True),
    "arcee": Unsaid(gated=False),
    "biogpt": Unsaid(gated=False, positions=True, tied=True),
    "bloom": Unsaid(gated=False, tied=True),
    "chatglm": Unsaid(activation="gelu_fast"),
    "codegen": Unsaid(gated=False, norms=1),
    "cohere": Unsaid(gated=True, norms=1, tied=True),
    "cohere2": Unsaid(gated=True, norms=1, tied=True),
    "dots1": Unsaid(query_key_norm=True),
    "exaone4": Unsaid(tied=True),
    "falcon": Unsaid(gated=False, norms=1, tied=True),
    "flex_olmo": Unsaid(query_key_norm=True),
    "gemma3n_text": Unsaid(norms=4, tied=True),
    "glm4": Unsaid(norms=4),
    "gpt_bigcode": Unsaid(gated=False, positions=True, tied=True),
    "gpt_neo": Unsaid(gated=False, positions=True, tied=True),
    "gptj": Unsaid(gated=False, norms=1),
    "hunyuan_v1_dense": Unsaid(query_key_norm=True, tied=True),
    "mpt": Unsaid(gated=False, tied=True),
    "nanochat": Unsaid(gated=False),
    "nemotron": Unsaid(gated=False, layer_norm=True),
    "olmo": Unsaid(gated=True, layer_norm=True),
    "olmo2": Unsaid(query_key_norm=True),
    "olmo3": Unsaid(query_key_norm=True),
    "olmoe": Unsaid(query_key_norm=True),
    "openai-gpt": Unsaid(gated=False, positions=True, tied=True),
    "opt": Unsaid(gated=False, layer_norm=True, positions=True, tied=True),
    "persimmon": Unsaid(gated=False),
    "phimoe": Unsaid(gated=True, layer_norm=True),
    "smollm3": Unsaid(tied=True),
    "stablelm": Unsaid(gated=True),
    "starcoder2": Unsaid(gated=False, layer_norm=True, tied=True),
    "xglm": Unsaid(gated=False, tied=True),
}
"""By the `model_type` of the config (transformers 4.30 to 5)."""
