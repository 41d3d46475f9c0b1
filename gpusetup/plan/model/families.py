"""How the layers of each known family of transformers are made, one row each.

The counts that follow are those of the class on the meta device (`tests/test_plan_models.py`
compares each row with transformers). Keys are those of transformers 4.30 to 5.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpusetup.model.frozen import Frozen

GPT2_KEYS = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
    "intermediate_size": "n_inner",
}


class Family(Frozen):
    """How the layers of a family are made. A key's name stands where the config decides."""

    model: str
    """Its class in transformers."""
    norm_bias: bool = False
    """LayerNorm has a weight and a bias, RMSNorm a weight."""
    norms: int = 2
    """Norms of a layer."""
    query_key_norm: bool | str = False
    qkv_bias: bool | str = False
    output_bias: bool | str = False
    mlp_bias: bool | str = False
    head_bias: bool = False
    gated: bool = True
    activation: str = "silu"
    """Its activation where the config does not say."""
    dropout: bool = False
    """Whether its class drops out where the config does not say."""
    positions: bool = False
    """Whether positions are learned parameters."""
    tied: bool = False
    """Whether the head is the embedding where the config does not say."""
    head_dim: int | None = None
    """The width of a head where the config does not say; None: hidden over heads."""
    free_heads: bool = True
    """Whether a `head_dim` may differ from hidden over heads."""
    shared_expert: bool = False
    """Whether one expert beside the others serves every token."""
    keys: Mapping[str, str] = {}
    """The family's own names of the common keys."""


FAMILIES: dict[str, Family] = {
    "llama": Family(
        model="LlamaForCausalLM",
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        mlp_bias="mlp_bias",
    ),
    "mistral": Family(model="MistralForCausalLM"),
    "qwen2": Family(model="Qwen2ForCausalLM", qkv_bias=True),
    "qwen3": Family(
        model="Qwen3ForCausalLM",
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        query_key_norm=True,
        head_dim=128,
    ),
    "gemma": Family(
        model="GemmaForCausalLM",
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        tied=True,
        head_dim=256,
    ),
    "gemma2": Family(
        model="Gemma2ForCausalLM",
        norms=4,
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        tied=True,
        head_dim=256,
    ),
    "gemma3_text": Family(
        model="Gemma3ForCausalLM",
        norms=4,
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        query_key_norm=True,
        tied=True,
        head_dim=256,
    ),
    "gpt2": Family(
        model="GPT2LMHeadModel",
        norm_bias=True,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        gated=False,
        activation="gelu_new",
        dropout=True,
        positions=True,
        tied=True,
        free_heads=False,
        keys=GPT2_KEYS,
    ),
    "phi": Family(
        model="PhiForCausalLM",
        norm_bias=True,
        norms=1,
        query_key_norm="qk_layernorm",
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        head_bias=True,
        gated=False,
        activation="gelu_new",
    ),
    "gpt_neox": Family(
        model="GPTNeoXForCausalLM",
        norm_bias=True,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        gated=False,
        activation="gelu",
        free_heads=False,
    ),
    "phi3": Family(model="Phi3ForCausalLM"),
    "mixtral": Family(model="MixtralForCausalLM"),
    "qwen2_moe": Family(model="Qwen2MoeForCausalLM", qkv_bias="qkv_bias", shared_expert=True),
    "qwen3_moe": Family(
        model="Qwen3MoeForCausalLM",
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        query_key_norm=True,
    ),
    "vit": Family(
        model="ViTForImageClassification",
        norm_bias=True,
        qkv_bias="qkv_bias",
        output_bias=True,
        mlp_bias=True,
        gated=False,
        activation="gelu",
        free_heads=False,
    ),
}
"""model_type -> how it is made."""
