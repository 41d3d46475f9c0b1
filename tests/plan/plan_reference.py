"""What transformers itself says: parameters on the meta device.

Run as a script in a child (transformers is slow to import, and warns); prints JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any


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
    )

    config = AutoConfig.for_model(kind)
    makers = (
        AutoModelForImageTextToText,
        AutoModelForCausalLM,
    )
    maker = next(one for one in makers if type(config) in one._model_mapping)
    with torch.device("meta"):
        built = maker.from_config(config)  # type: ignore[no-untyped-call]
    built.tie_weights()
    unique = {id(p): p.numel() for p in built.parameters()}
    values = json.loads(config.to_json_string(use_diff=False))
    return {"config": values, "parameters": sum(unique.values())}


if __name__ == "__main__":
    print(json.dumps({"counts": {kind: by_default(kind) for kind in sys.argv[1:]}}))
