"""What a sample of an operator computes with: sizes, numbers and layouts, all from one seed."""

from __future__ import annotations

import random
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

SIZES: Dict[str, Tuple[int, ...]] = {
    "tiny": (1, 2, 3, 5, 7, 8),
    "warp": (15, 16, 17, 31, 32, 33, 63, 64, 65),
    "tile": (96, 127, 128, 129, 255, 256, 257),
    "block": (511, 512, 513, 1023, 1024, 1025, 2047, 2049),
    "long": (4095, 4096, 4097, 8193, 16385, 65537, 131072),
    "edges": (1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 257, 511, 513, 1023, 1024, 1025),
}
"""Lengths on both sides of what kernels are cut into: vectors, warps, tiles, blocks, launches.
`edges` has all of them, along every axis, in many small samples that are computed once."""
CLASSES = tuple(SIZES)[:-1]
BUDGET = {
    "tiny": 2**10,
    "warp": 2**14,
    "tile": 2**15,
    "block": 2**16,
    "long": 2**17,
    "edges": 2**14,
}
"""The most elements that one tensor of a size class has."""
LAYOUTS = ("contiguous", "transposed", "strided", "offset", "pitched", "channels-last")


class Draw:
    """The numbers of one sample. The same words give the same numbers on every machine."""

    def __init__(self, torch: Any, words: str, size: str, anew: int = 0) -> None:
        """`anew`: other numbers of the same shapes, as only what `chance` draws is drawn again."""
        self.torch = torch
        self.chance = random.Random(words)
        self.size = size
        self.made = torch.Generator().manual_seed(self.chance.getrandbits(62) + anew)

    def choice(self, given: Sequence[Any]) -> Any:
        return self.chance.choice(given)

    def length(self, most: int = 0) -> int:
        """A length of this sample's size class, at most `most`."""
        fitting = [n for n in SIZES[self.size] if not most or n <= most]
        return int(self.chance.choice(fitting or [most]))

    def shape(self, dims: int, least: int = 1, share: int = 1) -> Tuple[int, ...]:
        """`dims` lengths: one of this size class, the others of smaller ones, in any order."""
        left = max(1, BUDGET[self.size] // share)
        found = [max(least, self.length(max(1, left // least ** (dims - 1))))]
        left //= found[0]
        keys = ("edges",) if self.size == "edges" else ("tiny", "warp", "tile")
        small = [n for key in keys for n in SIZES[key] if n >= least]
        while len(found) < dims:
            found.append(self.chance.choice([n for n in small if n <= max(left, least)] or [least]))
            left //= max(1, found[-1])
        self.chance.shuffle(found)
        return tuple(found)

    def normal(self, *shape: int) -> Any:
        return self.torch.randn(shape, generator=self.made, dtype=self.torch.float64)

    def uniform(self, low: float, high: float, *shape: int) -> Any:
        spread = self.torch.rand(shape, generator=self.made, dtype=self.torch.float64)
        return spread * (high - low) + low

    def whole(self, low: int, high: int, *shape: int) -> Any:
        return self.torch.randint(low, high, shape, generator=self.made)

    def order(self, count: int) -> Any:
        return self.torch.randperm(count, generator=self.made)

    def apart(self, *shape: int) -> Any:
        """Numbers of which no two are alike, so that an order among them is the only one."""
        count = 1
        for length in shape:
            count *= length
        return (self.order(count).double() - count // 2).reshape(shape)

    def unlike(self, *shape: int) -> Any:
        """Images of whole numbers below 250; in no window of five a side are two alike."""
        dims = len(shape) - 2
        side = 250 if dims == 1 else 5
        at = self.torch.zeros(shape[2:], dtype=self.torch.int64)
        for i, length in enumerate(shape[2:]):
            count = (self.torch.arange(length) % side).reshape(
                [-1 if i == j else 1 for j in range(dims)]
            )
            at = at * side + count
        lines = [self.order(side**dims)[at] for _ in range(shape[0] * shape[1])]
        return self.torch.stack(lines).reshape(shape).double()

    def flags(self, *shape: int) -> Any:
        return self.whole(0, 2, *shape).bool()


class Given(NamedTuple):
    """What an operator is called with: tensors on the CPU, and what is no tensor."""

    tensors: List[Any]
    options: Dict[str, Any] = {}


def given(*tensors: Any, **options: Any) -> Given:
    return Given(list(tensors), options)


def laid_out(torch: Any, tensor: Any, layout: str) -> Any:
    """The same values with other strides, made by copies alone.

    A tensor that has no such layout stays contiguous.
    """
    if layout == "transposed" and tensor.dim() >= 2:
        return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)
    if layout == "channels-last" and tensor.dim() in (4, 5):
        kind = torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d
        return tensor.contiguous(memory_format=kind)
    if layout == "strided" and tensor.dim() >= 1:
        wide = tensor.new_zeros((*tensor.shape[:-1], 2 * tensor.shape[-1]))
        wide[..., ::2] = tensor
        return wide[..., ::2]
    if layout == "pitched" and tensor.dim() >= 2:
        wide = tensor.new_zeros((*tensor.shape[:-1], tensor.shape[-1] + 3))
        wide[..., : tensor.shape[-1]] = tensor
        return wide[..., : tensor.shape[-1]]
    if layout == "offset" and tensor.dim() >= 1:
        longer = tensor.new_zeros(tensor.numel() + 1)
        longer[1:] = tensor.reshape(-1)
        return longer[1:].view(tensor.shape)
    return tensor.contiguous()
