"""The models that `compare_plan_code.py` traces and runs; also examples of what `--code` takes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """One layer of a transformer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before = nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.between = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.act = nn.GELU()
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        samples, tokens, width = x.shape
        parts = self.attention(self.before(x)).view(samples, tokens, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(samples, tokens, width))
        return x + self.down(self.act(self.up(self.between(x))))


class Transformer(nn.Module):
    def __init__(self, words: int = 2048, width: int = 128, layers: int = 6, heads: int = 4):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.head(self.norm(x))
        return out


def transformer(batch: int) -> Any:
    """A small GPT on 128 tokens a sample."""
    tokens = torch.randint(0, 2048, (batch, 128))
    return Transformer(), (tokens, tokens)


class Perceptron(nn.Module):
    """Two layers with a bypass."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = functional.relu(x + self.layers(x))
        return out


def mlp(batch: int) -> Any:
    """Layers of 512 with 10 classes."""
    model = nn.Sequential(
        nn.Linear(256, 512), nn.Sequential(*(Perceptron(512) for _ in range(4))), nn.Linear(512, 10)
    )
    return model, (torch.randn(batch, 256), torch.randint(0, 10, (batch,)))


class Residual(nn.Module):
    """The block of a ResNet."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.last = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        out = functional.relu(self.norm(self.first(x)))
        return functional.relu(x + self.last(self.second(out)))


def convnet(batch: int) -> Any:
    """A small residual network on pictures of 64 x 64."""
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.Sequential(*(Residual(32) for _ in range(4))),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )
    return model, (torch.randn(batch, 3, 64, 64), torch.randint(0, 10, (batch,)))


def hugging(batch: int) -> Any:
    """A Hugging Face model that computes its own loss, from a configuration; nothing is fetched."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=4096,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=32,
        use_cache=False,
    )
    tokens = torch.randint(0, 4096, (batch, 256))
    return Qwen3ForCausalLM(config), {"input_ids": tokens, "labels": tokens}


def qwen3_14b(batch: int) -> Any:
    """The shape of Qwen3-14B at 16,384 tokens a sample."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=151936,
        hidden_size=5120,
        intermediate_size=17408,
        num_hidden_layers=40,
        num_attention_heads=40,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=40960,
        use_cache=False,
    )
    tokens = torch.randint(0, 151936, (batch, 16384))
    return Qwen3ForCausalLM(config), {"input_ids": tokens, "labels": tokens}
