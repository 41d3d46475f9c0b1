#!/usr/bin/env python3
"""Hold `gpusetup plan --code` against published figures of allocated memory.

    python scripts/compare_code_published.py [NAME]...

The models are those of transformers, as this file's functions build them; the figures were chosen
before any was traced. Needs torch and transformers; no GPU. Prints the error of each, its CPU
seconds, and the median.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
GB = 1e9 / 2**30
ROWS: dict[str, tuple[int, tuple[str, ...], float, str]] = {
    "llama_2_7b": (1, (), 67.0 * GB, "torchtune PR 389: foreach AdamW, 512 tokens, bf16, GB"),
    "llama_3_2_3b": (2, (), 60.0, "torchtune README, packed baseline: 4096 tokens, bf16, GiB"),
    "mistral_7b": (4, ("--checkpointing",), 67.96, "fms-acceleration refs/a100_80gb.csv, full"),
    "tiny_llama": (4, (), 14.10 * GB, "litgpt config_hub/finetune, tiny-llama/full.yaml"),
    "vit_h": (
        8,
        ("--amp", "bf16"),
        12.94 * GB,
        "torchao low_bit_optim README, ViT-H, PyTorch Adam",
    ),
    "dinov2_giant": (
        32,
        ("--checkpointing",),
        9.82 * GB,
        "torchao low_bit_optim README, no offload",
    ),
}
"""Function -> batch, options, GiB, source."""


def text(config: Any, cls: Any, batch: int, length: int, dtype: str) -> Any:
    """A language model in 16 bits, and its batch of whole sequences."""
    import torch

    config._attn_implementation, config.use_cache = "sdpa", False
    tokens = torch.ones(batch, length, dtype=torch.long)
    return cls(config).to(getattr(torch, dtype)), {"input_ids": tokens, "labels": tokens}


def llama(batch: int, length: int, **sizes: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return text(LlamaConfig(**sizes), LlamaForCausalLM, batch, length, "bfloat16")


def llama_2_7b(batch: int) -> Any:
    return llama(batch, 512, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32)


def llama_3_2_3b(batch: int) -> Any:
    return llama(
        batch, 4096, hidden_size=3072, intermediate_size=8192, num_hidden_layers=28,
        num_attention_heads=24, num_key_value_heads=8, head_dim=128, vocab_size=128256,
        tie_word_embeddings=True,
    )  # fmt: skip


def tiny_llama(batch: int) -> Any:
    return llama(
        batch, 512, hidden_size=2048, intermediate_size=5632, num_hidden_layers=22,
        num_key_value_heads=4,
    )  # fmt: skip


def mistral_7b(batch: int) -> Any:
    from transformers import MistralConfig, MistralForCausalLM

    config = MistralConfig(sliding_window=None)
    return text(config, MistralForCausalLM, batch, 4096, "float16")


def vit_h(batch: int) -> Any:
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=1280, num_hidden_layers=32, num_attention_heads=16, intermediate_size=5120,
        patch_size=14,
    )  # fmt: skip
    config.num_labels = 45
    labels = torch.zeros(batch, dtype=torch.long)
    images = torch.zeros(batch, 3, 224, 224)
    return ViTForImageClassification(config), {"pixel_values": images, "labels": labels}


def dinov2_giant(batch: int) -> Any:
    import torch
    from transformers import Dinov2Config, Dinov2Model

    config = Dinov2Config(
        hidden_size=1536, num_hidden_layers=40, num_attention_heads=24, use_swiglu_ffn=True,
        image_size=518,
    )  # fmt: skip
    images = torch.zeros(batch, 3, 518, 518, dtype=torch.bfloat16)

    def loss(output: Any, _: Any) -> Any:
        return output.last_hidden_state.float().mean()

    return Dinov2Model(config).to(torch.bfloat16), {"pixel_values": images}, loss


def main() -> int:
    found = []
    for name in sys.argv[1:] or ROWS:
        batch, options, gib, source = ROWS[name]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-m", "gpusetup", "plan", "--code", f"{HERE}:{name}", "--batch",
             str(batch), *options, "--gpu-mem", "141GiB", "--json"],
            capture_output=True, text=True, cwd=HERE.parent.parent,
        )  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if not done.stdout.startswith("{") or "memory_gib" not in done.stdout:
            print(f"{name}: {done.stdout}{done.stderr}")
            return 1
        traced = json.loads(done.stdout)["memory_gib"]["allocated"]
        seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        found.append(traced / gib - 1)
        print(f"{name:14} published {gib:6.2f}, traced {traced:6.2f} ({found[-1]:+6.1%}), "
              f"{seconds:4.0f} CPU seconds; {source}", flush=True)  # fmt: skip
    sizes = [abs(error) for error in found]
    print(f"median error {statistics.median(sizes):.1%}, worst {max(sizes):.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
