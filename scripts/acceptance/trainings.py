"""The trainings that plan and tune are held against, as `--code` takes them: batch size -> a step.
As a program (NAME BATCH DEVICE), it runs three steps by hand.

GPUSETUP_ACCEPTANCE_SIZE=small makes them small enough for a CPU.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
from torch import nn

SMALL = os.environ.get("GPUSETUP_ACCEPTANCE_SIZE") == "small"
FEATURES, CLASSES = 32, 10
Step = tuple[Any, tuple[Any, Any]]


def blocks(hidden: int, layers: int) -> nn.Module:
    one = nn.TransformerEncoderLayer(hidden, 4, 4 * hidden, 0.0, "gelu", batch_first=True)
    return nn.TransformerEncoder(one, layers, enable_nested_tensor=False)


def transformer(batch: int) -> Step:
    hidden, layers, length = (64, 2, 32) if SMALL else (1024, 12, 256)
    ends = nn.Linear(FEATURES, hidden), nn.Linear(hidden, CLASSES)
    target = torch.randint(0, CLASSES, (batch, length))
    model = nn.Sequential(ends[0], blocks(hidden, layers), ends[1])
    return model, (torch.randn(batch, length, FEATURES), target)


def gpt2(batch: int) -> Step:
    words, hidden, layers, length = (512, 64, 2, 32) if SMALL else (50257, 768, 12, 512)
    table, head = nn.Embedding(words, hidden), nn.Linear(hidden, words, bias=False)
    head.weight = table.weight
    tokens = torch.randint(0, words, (batch, length))
    return nn.Sequential(table, blocks(hidden, layers), head), (tokens, tokens)


def train(name: str, batch: int, device: str) -> None:
    """Three steps with AdamW, in float32."""
    model, (inputs, target) = {"transformer": transformer, "gpt2": gpt2}[name](batch)
    model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        scores = model(inputs.to(device))
        nn.functional.cross_entropy(scores.flatten(0, 1), target.to(device).flatten()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


if __name__ == "__main__":
    train(sys.argv[1], int(sys.argv[2]), sys.argv[3])
