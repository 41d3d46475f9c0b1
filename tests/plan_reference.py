"""What transformers itself says: parameters on the meta device, and bytes kept by a forward pass.

Run as a script in a child (transformers is slow to import, and warns); prints JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

SMALL: dict[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 704,
    "vocab_size": 40000,
}
OWN: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 256, "n_layer": 2, "n_head": 4, "n_positions": 512, "vocab_size": 40000},
    "vit": {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 96,
        "image_size": 32,
        "patch_size": 8,
    },
    "gpt_neox": {key: value for key, value in SMALL.items() if key != "num_key_value_heads"},
    "mixtral": {**SMALL, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2_moe": {
        **SMALL,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 48,
        "mlp_only_layers": [1],
    },
    "qwen3_moe": {
        **SMALL,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "num_hidden_layers": 3,
        "decoder_sparse_step": 2,
    },
}
VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"tie_word_embeddings": True},
    {"tie_word_embeddings": False, "num_key_value_heads": 4},
    {"attention_bias": True, "mlp_bias": True, "qk_layernorm": True, "qkv_bias": False},
    {"head_dim": 32},
)
NO_HEAD_DIM = ("gpt2", "vit", "gpt_neox")
KEPT = ("llama", "qwen3", "gemma", "mixtral")
"""Families whose forward pass is measured, too."""


def counted(kind: str, model: str) -> list[dict[str, Any]]:
    import torch
    import transformers

    found = []
    for variant in VARIANTS:
        if "head_dim" in variant and kind in NO_HEAD_DIM:
            continue
        cls = getattr(transformers, model)
        config = cls.config_class(**{**OWN.get(kind, SMALL), **variant})
        with torch.device("meta"):
            built = cls(config)
        built.tie_weights()
        unique = {id(p): p.numel() for p in built.parameters()}
        values = json.loads(config.to_json_string())
        found.append({"config": values, "parameters": sum(unique.values())})
    return found


def kept(kind: str, model: str, dtype: str, amp: bool) -> dict[str, Any]:
    """Bytes a token and layer that autograd keeps: the slope over layers and tokens."""
    import torch
    import transformers

    bytes_of: dict[tuple[int, int], int] = {}
    cls = getattr(transformers, model)
    for layers in (1, 3):
        values = {**OWN.get(kind, SMALL), "resid_pdrop": 0.0, "attn_pdrop": 0.0, "embd_pdrop": 0.0}
        values["vocab_size"] = 1000
        values["num_hidden_layers"] = layers
        config = cls.config_class(**values)
        config.use_cache = False
        built = cls(config).to(getattr(torch, dtype)).train()
        for tokens in (128, 256):
            bytes_of[layers, tokens] = saved_bytes(built, torch.zeros(1, tokens).long(), amp)
    slope = bytes_of[3, 256] - bytes_of[1, 256] - bytes_of[3, 128] + bytes_of[1, 128]
    return {"config": json.loads(config.to_json_string()), "bytes": slope / 2 / 128}


def saved_bytes(model: Any, ids: Any, amp: bool) -> int:
    import torch

    own = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    alive = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            alive[storage.data_ptr()] = (storage.nbytes(), tensor)  # alive: no address twice
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp),
    ):
        model(ids)
    return sum(size for size, _ in alive.values())


def llama(batch_size: int) -> Any:
    """For `plan --code`: a small Llama on sequences of 1024 tokens."""
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=12,
        num_attention_heads=16,
        num_key_value_heads=8,
        vocab_size=32000,
        use_cache=False,
    )
    return step_of(transformers.LlamaForCausalLM(config), batch_size)


def step_of(model: Any, batch_size: int) -> Any:
    import torch

    ids = torch.zeros(batch_size, 1024, dtype=torch.long)
    return model, {"input_ids": ids, "labels": ids}


def main(families: dict[str, str]) -> None:
    counts = {kind: counted(kind, model) for kind, model in families.items()}
    modes = {"bf16": ("bfloat16", False), "fp32": ("float32", False), "amp": ("float32", True)}
    passes = {
        kind: {name: kept(kind, families[kind], *mode) for name, mode in modes.items()}
        for kind in KEPT
    }
    print(json.dumps({"counts": counts, "kept": passes}))


def by_default(kind: str) -> dict[str, Any]:
    """The config that a class has by default, and its parameters."""
    import torch
    from transformers import (
        AutoConfig,
        AutoModelForCausalLM,
        AutoModelForImageTextToText,
        AutoModelForSeq2SeqLM,
        AutoModelForSequenceClassification,
    )

    config = AutoConfig.for_model(kind)
    makers = (
        AutoModelForSeq2SeqLM,
        AutoModelForImageTextToText,
        *((AutoModelForSequenceClassification,) if kind in ENCODERS else ()),
        AutoModelForCausalLM,
    )
    maker = next(one for one in makers if type(config) in one._model_mapping)
    with torch.device("meta"):
        built = maker.from_config(config)
    built.tie_weights()
    unique = {id(p): p.numel() for p in built.parameters()}
    values = json.loads(config.to_json_string(use_diff=False))
    return {"config": values, "parameters": sum(unique.values())}


ENCODERS = ("bert", "roberta", "deberta-v2", "mpnet")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        print(json.dumps({kind: by_default(kind) for kind in sys.argv[1:]}))
    else:
        main(json.loads(sys.argv[1]))
