"""The trainings that plan is compared on, as `--code` takes them: a batch size -> model and batch.

GPUSETUP_ACCEPTANCE_SIZE=small makes them small enough for a CPU.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "gpusetup" / "child_scripts"))
LARGE = {
    "conv": {"base_channels": 128, "patch_size": 112},
    "lstm": {"hidden_size": 2048, "num_layers": 4},
    "transformer": {"hidden_size": 1024, "num_layers": 12, "seq_len": 256},
    "gpt2": {"block_size": 512},
}
SMALL = {"vocab_size": 512, "block_size": 32, "n_embd": 64, "n_layer": 2, "base_channels": 16}


def made(name: str, batch: int) -> dict[str, Any]:
    small = os.environ.get("GPUSETUP_ACCEPTANCE_SIZE") == "small"
    build = __import__("bench_models").reference(name, SMALL if small else LARGE[name])
    return dict(build(batch))


def conv(batch: int) -> dict[str, Any]:
    return made("conv", batch)


def lstm(batch: int) -> dict[str, Any]:
    return made("lstm", batch)


def transformer(batch: int) -> dict[str, Any]:
    return made("transformer", batch)


def gpt2(batch: int) -> dict[str, Any]:
    return made("gpt2", batch)
