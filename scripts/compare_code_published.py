#!/usr/bin/env python3
"""Hold `gpusetup plan --code` against published figures of allocated memory.

    python scripts/compare_code_published.py [NAME]...

The models are those of transformers, as this file's functions build them, and one written out as a
course has it written; the figures were chosen before any was traced, the last three after the
others. Needs torch and transformers; no GPU. Prints the error of each, its CPU
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
    "tiny_llama": (
        4,
        ("--accumulate", "8"),
        14.10 * GB,
        "litgpt config_hub/finetune, tiny-llama/full.yaml",
    ),
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
    "qwen_2_5_half": (
        1,
        (),
        9782.74 / 1024,
        "llm-algo-leetcode 76, baseline: 768 tokens, fp32, MiB",
    ),
    "vit_large": (
        1,
        ("--optimizer", "adam"),
        6.0 * GB,
        "PyTorch tutorial optimizer_step_in_backward: ViT-L/16, one image, fp32",
    ),
    "written_out": (
        4,
        (),
        65.52,
        "CS336 assignment 2, a write-up: the 2.7b model, 512 tokens, fp32, GiB",
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
    model = ViTForImageClassification(config)
    return model, {"pixel_values": images, "labels": labels}, None, fused(model)


def fused(model: Any) -> Any:
    """The optimizer of torchao's benchmark (benchmarks/benchmark_low_bit_adam.py)."""
    import torch

    return torch.optim.AdamW(model.parameters(), fused=True)


def dinov2_giant(batch: int) -> Any:
    import torch
    from transformers import Dinov2Config, Dinov2Model

    config = Dinov2Config(
        hidden_size=1536, num_hidden_layers=40, num_attention_heads=24, use_swiglu_ffn=True,
        image_size=224,
    )  # fmt: skip
    images = torch.zeros(batch, 3, 224, 224, dtype=torch.bfloat16)

    def loss(output: Any, _: Any) -> Any:
        return output.last_hidden_state.float().mean()

    model = Dinov2Model(config).to(torch.bfloat16)
    return model, {"pixel_values": images}, loss, fused(model)


def qwen_2_5_half(batch: int) -> Any:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
        num_key_value_heads=2, vocab_size=151936, tie_word_embeddings=True,
    )  # fmt: skip
    return text(config, Qwen2ForCausalLM, batch, 768, "float32")


def vit_large(batch: int) -> Any:
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
    )
    config.num_labels = 1000
    images = torch.zeros(batch, 3, 224, 224)

    def loss(output: Any, _: Any) -> Any:
        return output.logits.sum()

    return ViTForImageClassification(config), {"pixel_values": images}, loss


def written_out(batch: int) -> Any:
    """The course's transformer: RMSNorm, RoPE, softmax, SiLU and cross entropy by hand, a causal
    mask, matrices by einsum; its AdamW works on one parameter after another.
    """
    import torch
    from torch import nn

    width, inner, heads, tokens, words, layers = 2560, 10240, 32, 512, 10000, 32
    causal = torch.ones(tokens, tokens, dtype=torch.bool).tril()

    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(width))

        def forward(self, x: Any) -> Any:
            return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))

    class Rotary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            angles = torch.ones(tokens, width // heads // 2)
            self.register_buffer("cos", angles.cos(), persistent=False)
            self.register_buffer("sin", angles.sin(), persistent=False)

        def forward(self, x: Any) -> Any:
            even, odd = x[..., 0::2], x[..., 1::2]
            turned = self.cos * even - self.sin * odd, self.sin * even + self.cos * odd
            return torch.stack(turned, dim=-1).flatten(-2)

    class Block(nn.Module):
        def __init__(self, rotary: Any) -> None:
            super().__init__()
            self.norms = nn.ModuleList([Norm(), Norm()])
            self.attention = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(4))
            self.up, self.gate = (nn.Linear(width, inner, bias=False) for _ in range(2))
            self.down = nn.Linear(inner, width, bias=False)
            self.rotary = rotary

        def forward(self, x: Any) -> Any:
            y = self.norms[0](x)
            q, k, v = (
                one(y).unflatten(-1, (heads, -1)).transpose(1, 2) for one in self.attention[:3]
            )
            q, k = self.rotary(q), self.rotary(k)
            scores = torch.einsum("...qd,...kd->...qk", q, k) / q.shape[-1] ** 0.5
            scores = torch.where(causal, scores, float("-inf"))
            powers = torch.exp(scores - scores.max(-1, keepdim=True)[0])
            weights = powers / powers.sum(-1, keepdim=True)
            found = torch.einsum("...qk,...kd->...qd", weights, v)
            x = x + self.attention[3](found.transpose(1, 2).flatten(-2))
            y = self.norms[1](x)
            gate = self.gate(y)
            return x + self.down(gate * torch.sigmoid(gate) * self.up(y))

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            rotary = Rotary()
            self.tokens = nn.Embedding(words, width)
            self.layers = nn.ModuleList(Block(rotary) for _ in range(layers))
            self.norm, self.head = Norm(), nn.Linear(width, words, bias=False)

        def forward(self, tokens: Any) -> Any:
            x = self.tokens(tokens)
            for layer in self.layers:
                x = layer(x)
            return self.head(self.norm(x))

    def loss(logits: Any, target: Any) -> Any:
        logits = logits - logits.max(-1, keepdim=True)[0]
        right = logits.gather(-1, target.unsqueeze(-1)).squeeze(-1)
        return (torch.log(torch.exp(logits).sum(-1)) - right).mean()

    model = Whole()
    numbers = torch.ones(batch, tokens, dtype=torch.long)
    return model, (numbers, numbers), loss, torch.optim.AdamW(model.parameters(), foreach=False)


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
