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
KEPT = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM", "gemma": "GemmaForCausalLM"}
"""Families whose forward pass is measured, too."""


def kept(model: str, dtype: str) -> dict[str, Any]:
    """Bytes a token and layer that autograd keeps: the slope over layers and tokens."""
    import torch
    import transformers

    bytes_of: dict[tuple[int, int], int] = {}
    cls = getattr(transformers, model)
    for layers in (1, 3):
        values = dict(SMALL)
        values["vocab_size"] = 1000
        values["num_hidden_layers"] = layers
        config = cls.config_class(**values)
        config.use_cache = False
        built = cls(config).to(getattr(torch, dtype)).train()
        for tokens in (128, 256):
            bytes_of[layers, tokens] = saved_bytes(built, torch.zeros(1, tokens).long())
    slope = bytes_of[3, 256] - bytes_of[1, 256] - bytes_of[3, 128] + bytes_of[1, 128]
    return {"config": json.loads(config.to_json_string()), "bytes": slope / 2 / 128}


def saved_bytes(model: Any, ids: Any) -> int:
    import torch

    own = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    alive = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            alive[storage.data_ptr()] = (storage.nbytes(), tensor)  # alive: no address twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
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


def by_default(kind: str) -> dict[str, Any]:
    """The config that a class has by default, and its parameters."""
    import torch
    from transformers import (
        AutoConfig,
        AutoModelForCausalLM,
        AutoModelForImageTextToText,
        AutoModelForSequenceClassification,
    )

    config = AutoConfig.for_model(kind)
    makers = (
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


ENCODERS = ("bert",)


if __name__ == "__main__":
    print(json.dumps({
        "counts": {kind: by_default(kind) for kind in sys.argv[1:]},
        "kept": {kind: {name: kept(model, name) for name in ("bfloat16", "float32")}
                 for kind, model in KEPT.items()},
    }))  # fmt: skip
