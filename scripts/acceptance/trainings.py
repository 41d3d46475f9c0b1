"""The eight trainings that plan is compared on, as `--code` takes them: batch -> model and batch.

GPUSETUP_ACCEPTANCE_SIZE=small makes them small enough for a CPU.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

SMALL = os.environ.get("GPUSETUP_ACCEPTANCE_SIZE") == "small"


def _size(large: int, small: int) -> int:
    return small if SMALL else large


class Blocks(nn.Module):
    """A transformer's encoder with something before and after it."""

    def __init__(self, enter: nn.Module, width: int, layers: int, leave: int, pool: bool) -> None:
        super().__init__()
        self.enter, self.pool = enter, pool
        heads, shape = max(1, width // 64), {"dropout": 0.0, "batch_first": True}
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, norm_first=True, **shape)
            for _ in range(layers)
        )
        self.leave = nn.Linear(width, leave)

    def forward(self, inputs: Tensor) -> Tensor:
        x = self.enter(inputs)
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.leave(x.mean(1) if self.pool else x)
        return out


class Patches(nn.Module):
    """A picture as a row of patches."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, width, 16, 16)

    def forward(self, picture: Tensor) -> Tensor:
        out: Tensor = self.cut(picture).flatten(2).transpose(1, 2)
        return out


class Adapter(nn.Module):
    """A frozen linear layer and a trained product of low rank beside it."""

    def __init__(self, base: nn.Linear, rank: int = 8) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base(x) + self.up(self.down(x))
        return out


def _perceptron(batch: int, wrap: Any = lambda layer: layer) -> Any:
    width = _size(4096, 128)
    layers = [part for _ in range(6) for part in (wrap(nn.Linear(width, width)), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(width, 10))
    return model, (torch.randn(batch, width), torch.randint(0, 10, (batch,)))


def plain(batch: int) -> Any:
    return _perceptron(batch)


def lora(batch: int) -> Any:
    return _perceptron(batch, Adapter)


def eight_bit(batch: int) -> Any:
    """The plain training with bitsandbytes' 8-bit AdamW."""
    import bitsandbytes  # type: ignore[import-not-found, unused-ignore]

    model, data = _perceptron(batch)
    return model, data, None, bitsandbytes.optim.AdamW8bit


def gpt(batch: int) -> Any:
    words, length, width = _size(50257, 512), _size(512, 32), _size(768, 64)
    model = Blocks(nn.Embedding(words, width), width, _size(12, 2), words, pool=False)
    tokens = torch.randint(0, words, (batch, length))
    return model, (tokens, tokens)


def vit(batch: int) -> Any:
    width, side = _size(768, 64), _size(224, 32)
    model = Blocks(Patches(width), width, _size(12, 2), 10, pool=True)
    return model, (torch.randn(batch, 3, side, side), torch.randint(0, 10, (batch,)))


def conv(batch: int) -> Any:
    channels, side = _size(128, 16), _size(112, 16)
    body = [
        part
        for _ in range(8)
        for part in (
            nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(),
        )
    ]  # fmt: skip
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))
    model = nn.Sequential(nn.Conv2d(3, channels, 3, padding=1), *body, *head)
    return model, (torch.randn(batch, 3, side, side), torch.randint(0, 10, (batch,)))


class Training(NamedTuple):
    name: str
    function: str
    batch: int
    amp: str | None = None
    checkpointing: bool = False
    needs: str | None = None


TRAININGS = (
    Training("plain", "plain", 2048),
    Training("AMP", "gpt", 16, amp="bf16"),
    Training("checkpointing", "gpt", 16, checkpointing=True),
    Training("LoRA", "lora", 2048),
    Training("8-bit AdamW", "eight_bit", 2048, needs="bitsandbytes"),
    Training("conv net", "conv", 64),
    Training("ViT", "vit", 64),
    Training("GPT", "gpt", 8),
)
