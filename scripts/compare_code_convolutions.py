#!/usr/bin/env python3
"""Hold `gpusetup plan --code` against published figures of networks of convolutions.

    python scripts/compare_code_convolutions.py

PSPNet on ResNets as mmsegmentation trains it (configs/pspnet/README.md, `4xb2` on Cityscapes, 32
bits, SGD with momentum, DDP on four GPUs of two images, `cudnn.benchmark=False`): the maximum of
`torch.cuda.max_memory_allocated` that its table has. The networks are written here, layer by layer,
after its configs; all nine were chosen before any was traced. Needs torch; no GPU.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import nn

HERE = Path(__file__).resolve()
CLASSES = 19


class Row(NamedTuple):
    """A network and its figure."""

    depths: tuple[int, int, int, int]
    size: tuple[int, int]
    gib: float
    dilated: bool = True
    """Whether the last two stages keep the resolution (D8), or halve it (D32)."""
    deep_stem: bool = True
    """Three convolutions of three by three (ResNetV1c), or one of seven by seven."""


R18, R50, R101 = (2, 2, 2, 2), (3, 4, 6, 3), (3, 4, 23, 3)
WIDE, SQUARE = (512, 1024), (769, 769)
ROWS = {
    "r50_wide": Row(R50, WIDE, 6.1),
    "r101_wide": Row(R101, WIDE, 9.6),
    "r50_square": Row(R50, SQUARE, 6.9),
    "r101_square": Row(R101, SQUARE, 10.9),
    "r18_wide": Row(R18, WIDE, 1.7),
    "r18_square": Row(R18, SQUARE, 1.9),
    "r50b_wide": Row(R50, WIDE, 6.0, deep_stem=False),
    "r101b_wide": Row(R101, WIDE, 9.5, deep_stem=False),
    "r50_d32_wide": Row(R50, WIDE, 3.0, dilated=False),
}


def unit(
    inner: int, outer: int, kernel: int = 1, stride: int = 1, dilation: int = 1, relu: bool = True
) -> nn.Sequential:
    """A convolution, its batch norm, and mostly a ReLU in place."""
    from torch import nn

    pad = kernel // 2 * dilation
    layers = [
        nn.Conv2d(inner, outer, kernel, stride, pad, dilation, bias=False),
        nn.BatchNorm2d(outer),
    ]
    return nn.Sequential(*layers, *[nn.ReLU(inplace=True)] * relu)


def block(inner: int, width: int, stride: int, dilation: int, deep: bool) -> nn.Module:
    """Two convolutions, or three with four times the width at the end, beside their input."""
    from torch import nn

    outer = 4 * width if deep else width

    class Block(nn.Module):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            first = (
                [unit(inner, width), unit(width, width, 3, stride, dilation)]
                if deep
                else [unit(inner, width, 3, stride, dilation)]
            )
            last = unit(width, outer, 1 if deep else 3, 1, 1 if deep else dilation, relu=False)
            self.inside = nn.Sequential(*first, last)
            changed = stride > 1 or inner != outer
            self.beside = unit(inner, outer, 1, stride, relu=False) if changed else nn.Identity()
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x: Any) -> Any:
            y = self.inside(x)
            y += self.beside(x)
            return self.relu(y)

    return Block()


def stages(row: Row) -> tuple[nn.ModuleList, int]:
    """The four stages of a ResNet, and the channels of the last."""
    from torch import nn

    deep, channels, found = row.depths != R18, 64, nn.ModuleList()
    for place, depth in enumerate(row.depths):
        kept = row.dilated and place > 1
        stride = 1 if kept or place == 0 else 2
        dilation = 2 ** (place - 1) if kept else 1
        blocks = []
        for number in range(depth):
            here = max(dilation // 2, 1) if number == 0 else dilation
            width = 64 * 2**place
            blocks.append(block(channels, width, stride if number == 0 else 1, here, deep))
            channels = 4 * width if deep else width
        found.append(nn.Sequential(*blocks))
    return found, channels


def network(row: Row) -> nn.Module:
    """The ResNet, the pyramid of pooled features, and the auxiliary head on the third stage."""
    import torch
    import torch.nn.functional as f
    from torch import nn

    head = 128 if row.depths == R18 else 512

    class Network(nn.Module):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            deep_stem = (unit(3, 32, 3, 2), unit(32, 32, 3), unit(32, 64, 3))
            self.stem = nn.Sequential(*deep_stem) if row.deep_stem else unit(3, 64, 7, 2)
            self.pool = nn.MaxPool2d(3, 2, 1)
            self.stages, channels = stages(row)
            self.pyramid = nn.ModuleList(
                nn.Sequential(nn.AdaptiveAvgPool2d(size), unit(channels, head))
                for size in (1, 2, 3, 6)
            )
            self.bottleneck = unit(channels + 4 * head, head, 3)
            self.last = nn.Sequential(nn.Dropout2d(0.1), nn.Conv2d(head, CLASSES, 1))
            self.beside = nn.Sequential(
                unit(channels // 2, head // 2, 3),
                nn.Dropout2d(0.1),
                nn.Conv2d(head // 2, CLASSES, 1),
            )

        def forward(self, x: Any) -> Any:
            x, kept = self.pool(self.stem(x)), []
            for stage in self.stages:
                x = stage(x)
                kept.append(x)
            pooled = [larger(part(x), x.shape[2:]) for part in self.pyramid]
            return self.last(self.bottleneck(torch.cat([x, *pooled], 1))), self.beside(kept[2])

    def larger(x: Any, size: Any) -> Any:
        return f.interpolate(x, size=size, mode="bilinear", align_corners=False)

    return Network()


def build(name: str, batch: int) -> Any:
    """The network of a row, a batch of images and labels, its loss and its optimizer."""
    import torch
    import torch.nn.functional as f

    row = ROWS[name]
    images = torch.zeros(batch, 3, *row.size)
    labels = torch.zeros(batch, *row.size, dtype=torch.long)

    def loss(outputs: Any, target: Any) -> Any:
        total = 0.0
        for output, weight in zip(outputs, (1.0, 0.4), strict=True):
            whole = f.interpolate(output, size=row.size, mode="bilinear", align_corners=False)
            each = f.cross_entropy(whole, target, ignore_index=255, reduction="none")
            total = total + weight * each.mean()
        return total

    model = network(row)
    return model, (images, labels), loss, torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)


def __getattr__(name: str) -> Any:
    """Each row as a function, which is what `--code` asks for."""
    if name not in ROWS:
        raise AttributeError(name)

    def function(batch: int) -> Any:
        return build(name, batch)

    return function


def main() -> int:
    found = []
    for name in sys.argv[1:] or ROWS:
        done = subprocess.run(
            [sys.executable, "-m", "gpusetup", "plan", "--code", f"{HERE}:{name}", "--batch", "8",
             "--gpus", "4", "--strategy", "ddp", "--gpu-mem", "32GiB", "--json"],
            capture_output=True, text=True, cwd=HERE.parent.parent,
        )  # fmt: skip
        if "memory_gib" not in done.stdout:
            print(f"{name}: {done.stdout}{done.stderr}")
            return 1
        traced = json.loads(done.stdout)["memory_gib"]["allocated"]
        gib = ROWS[name].gib
        found.append(traced / gib - 1)
        print(f"{name:14} published {gib:5.1f}, traced {traced:5.2f} ({found[-1]:+6.1%})")
    sizes = [abs(error) for error in found]
    print(f"median error {statistics.median(sizes):.1%}, worst {max(sizes):.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
