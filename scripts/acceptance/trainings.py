"""The trainings that plan is compared on, as `--code` takes them: a batch size -> model and batch.

GPUSETUP_ACCEPTANCE_SIZE=small makes them small enough for a CPU.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

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
    found: dict[str, Any] = __import__("bench_models").reference(
        name, SMALL if small else LARGE[name]
    )(batch)
    return found


def conv(batch: int) -> dict[str, Any]:
    return made("conv", batch)


def lstm(batch: int) -> dict[str, Any]:
    return made("lstm", batch)


def transformer(batch: int) -> dict[str, Any]:
    return made("transformer", batch)


def gpt2(batch: int) -> dict[str, Any]:
    return made("gpt2", batch)


def eight_bit(batch: int) -> dict[str, Any]:
    """The transformer with bitsandbytes' 8-bit AdamW."""
    optimizer = __import__("bitsandbytes").optim.AdamW8bit
    return {**made("transformer", batch), "optimizer": optimizer}


class Training(NamedTuple):
    name: str
    function: str
    batch: int
    amp: str | None = None
    checkpointing: bool = False
    needs: str | None = None


TRAININGS = (
    Training("transformer", "transformer", 64),
    Training("AMP", "gpt2", 16, amp="bf16"),
    Training("checkpointing", "gpt2", 16, checkpointing=True),
    Training("8-bit AdamW", "eight_bit", 64, needs="bitsandbytes"),
    Training("conv net", "conv", 64),
    Training("LSTM", "lstm", 256),
    Training("GPT", "gpt2", 8),
)
