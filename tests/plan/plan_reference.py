"""What transformers itself says: parameters on the meta device.

Run as a script in a child (transformers is slow to import, and warns); prints JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any


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
