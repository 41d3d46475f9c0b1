"""The reference models of `gpusetup tune --benchmark`, where the user names no code of their own.

A small conv net by base_channels, num_blocks and patch_size; an LSTM and a transformer by hidden
size; a GPT-2-like language model. Each comes with a data set whose samples cost some CPU work, as
decoding and cropping do. Python 3.8 syntax.
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
        if inputs.is_floating_point():
            for _ in range(8):
                inputs = (inputs - inputs.mean()) / (inputs.std() + 1e-6)
        return inputs, target


class Block(nn.Module):  # type: ignore[misc]
    """Two convolutions around a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1),
        )

    def forward(self, inputs: Any) -> Any:
        return inputs + self.body(inputs)


class Classifier(nn.Module):  # type: ignore[misc]
    """Layers over a sequence, and a class from their mean, of an LSTM from its last step."""

    def __init__(self, enter: Any, body: Any, hidden: int) -> None:
        super().__init__()
        self.enter, self.body, self.head = enter, body, nn.Linear(hidden, CLASSES)

    def forward(self, inputs: Any) -> Any:
        found = self.body(self.enter(inputs))
        return self.head(found[0][:, -1] if isinstance(found, tuple) else found.mean(1))


class Language(nn.Module):  # type: ignore[misc]
    """GPT-2's shape: token and place embeddings, causal blocks, tied logits."""

    def __init__(self, vocabulary: int, length: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, hidden)
        self.places = nn.Embedding(length, hidden)
        self.body = blocks(hidden, layers, activation="gelu", norm_first=True)
        self.last = nn.LayerNorm(hidden)

    def forward(self, inputs: Any) -> Any:
        length = inputs.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=inputs.device)
        hidden = self.tokens(inputs) + self.places(torch.arange(length, device=inputs.device))
        hidden = self.last(self.body(hidden, mask=mask, is_causal=True))
        return hidden @ self.tokens.weight.T


def blocks(hidden: int, layers: int, **how: Any) -> Any:
    heads = hidden // 64 if hidden % 64 == 0 else 1
    layer = nn.TransformerEncoderLayer(
        hidden, heads, 4 * hidden, dropout=0.0, batch_first=True, **how
    )
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def conv(wish: Wish) -> Tuple[Any, Samples]:
    channels, size = wish.get("base_channels", 64), wish.get("patch_size", 48)
    model = nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1),
        *[Block(channels) for _ in range(wish.get("num_blocks", 8))],
        nn.Conv2d(channels, 3, 3, padding=1),
    )

    def make(draw: torch.Generator) -> Tuple[Any, Any]:
        picture = torch.rand(3, size, size, generator=draw)
        return picture, picture.flip(2)

    return model, Samples(make)


def lstm(wish: Wish, recurrent: bool = True) -> Tuple[Any, Samples]:
    hidden, layers = wish.get("hidden_size", 128), wish.get("num_layers", 2)
    length = wish.get("seq_len", 64)

    def make(draw: torch.Generator) -> Tuple[Any, Any]:
        target = torch.randint(0, CLASSES, (), generator=draw)
        return torch.randn(length, FEATURES, generator=draw), target

    body = nn.LSTM(FEATURES, hidden, layers, batch_first=True) if recurrent else None
    enter = nn.Identity() if recurrent else nn.Linear(FEATURES, hidden)
    return Classifier(enter, body or blocks(hidden, layers), hidden), Samples(make)


def transformer(wish: Wish) -> Tuple[Any, Samples]:
    return lstm(wish, recurrent=False)


def gpt2(wish: Wish) -> Tuple[Any, Samples]:
    vocabulary, length = wish.get("vocab_size", 50257), wish.get("block_size", 256)
    model = Language(vocabulary, length, wish.get("n_embd", 768), wish.get("n_layer", 12))

    def make(draw: torch.Generator) -> Tuple[Any, Any]:
        text = torch.randint(0, vocabulary, (length + 1,), generator=draw)
        return text[:-1], text[1:]

    return model, Samples(make)


REFERENCES: Dict[str, Callable[[Wish], Tuple[Any, Samples]]] = {
    "conv": conv,
    "lstm": lstm,
    "transformer": transformer,
    "gpt2": gpt2,
}
"""Name -> the model and its data set, from the numbers in the user's config."""


def reference(name: str, wish: Wish) -> Callable[[int], Dict[str, Any]]:
    """A function as `--code` takes it: model and batch for a batch size, and the data set."""

    def build(batch: int) -> Dict[str, Any]:
        torch.manual_seed(0)
        model, samples = REFERENCES[name](wish)
        inputs, target = (part.expand(batch, *part.shape).clone() for part in samples[0])
        return {"model": model, "batch": (inputs, target), "dataset": samples}

    return build
