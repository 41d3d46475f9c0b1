"""The reference models of `gpusetup tune --benchmark`, where the user names no code of their own.

A small conv net by base_channels, num_blocks and patch_size; an LSTM and a transformer by hidden
size; a language model of GPT-2's size. Each comes with a data set whose samples cost some CPU work,
as decoding and cropping do. Python 3.8 syntax.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

import torch
from torch import nn

Wish = Dict[str, int]
FEATURES, CLASSES = 32, 10


class Samples(torch.utils.data.Dataset):  # type: ignore[misc]
    """Random samples that are normalised one by one, as a loader does."""

    def __init__(self, make: Callable[[torch.Generator], Tuple[Any, Any]]) -> None:
        self.make = make

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Tuple[Any, Any]:
        inputs, target = self.make(torch.Generator().manual_seed(index))
        for _ in range(8 * inputs.is_floating_point()):
            inputs = (inputs - inputs.mean()) / (inputs.std() + 1e-6)
        return inputs, target


class Sequence(nn.Module):  # type: ignore[misc]
    """Layers over a sequence, and a class for each of its places."""

    def __init__(self, enter: Any, body: Any, head: Any) -> None:
        super().__init__()
        self.enter, self.body, self.head = enter, body, head

    def forward(self, inputs: Any) -> Any:
        found = self.body(self.enter(inputs))
        return self.head(found[0] if isinstance(found, tuple) else found)


def conv(wish: Wish) -> Tuple[Any, Samples]:
    channels, size = wish.get("base_channels", 64), wish.get("patch_size", 48)
    inner = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(wish.get("num_blocks", 16)))
    layers = [layer for one in inner for layer in (nn.ReLU(inplace=True), one)]
    model = nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1), *layers, nn.Conv2d(channels, 3, 3, padding=1)
    )

    def make(draw: torch.Generator) -> Tuple[Any, Any]:
        picture = torch.rand(3, size, size, generator=draw)
        return picture, picture.flip(2)

    return model, Samples(make)


def sequence(name: str, wish: Wish) -> Tuple[Any, Samples]:
    text = name == "gpt2"
    classes = wish.get("vocab_size", 50257) if text else CLASSES
    hidden = wish.get("n_embd", 768) if text else wish.get("hidden_size", 128)
    layers = wish.get("n_layer", 12) if text else wish.get("num_layers", 2)
    length = wish.get("block_size", 256) if text else wish.get("seq_len", 64)

    def make(draw: torch.Generator) -> Tuple[Any, Any]:
        target = torch.randint(0, classes, (length,), generator=draw)
        return target if text else torch.randn(length, FEATURES, generator=draw), target

    if name == "lstm":
        body: Any = nn.LSTM(hidden, hidden, layers, batch_first=True)
    else:
        heads = hidden // 64 if hidden % 64 == 0 else 1
        one = nn.TransformerEncoderLayer(hidden, heads, 4 * hidden, 0.0, "gelu", batch_first=True)
        body = nn.TransformerEncoder(one, layers, enable_nested_tensor=False)
    enter = nn.Embedding(classes, hidden) if text else nn.Linear(FEATURES, hidden)
    head = nn.Linear(hidden, classes, bias=not text)
    if text:
        head.weight = enter.weight
    return Sequence(enter, body, head), Samples(make)


def reference(name: str, wish: Wish) -> Callable[[int], Dict[str, Any]]:
    """A function as `--code` takes it: model and batch for a batch size, and the data set."""

    def build(batch: int) -> Dict[str, Any]:
        torch.manual_seed(0)
        model, samples = conv(wish) if name == "conv" else sequence(name, wish)
        inputs, target = (part.expand(batch, *part.shape).clone() for part in samples[0])
        return {"model": model, "batch": (inputs, target), "dataset": samples}

    return build
