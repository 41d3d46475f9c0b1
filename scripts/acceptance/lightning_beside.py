"""Lightning's batch size finder on a reference model, where Lightning is installed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader

from acceptance.work import ROOT, Work

NAMES = ("lightning.pytorch", "pytorch_lightning")


def home() -> str | None:
    """The package that Lightning is installed as."""
    return next((n for n in NAMES if importlib.util.find_spec(n.partition(".")[0])), None)


PL: Any = importlib.import_module(home() or "lightning.pytorch")


def scaled(work: Work, make: Callable[[int], dict[str, Any]]) -> int:
    """The batch size that `Tuner.scale_batch_size` finds, bisecting."""
    tuner = importlib.import_module(f"{PL.__name__}.tuner")
    trainer = PL.Trainer(
        max_epochs=1, accelerator="gpu" if work.on_card else "cpu", devices=1, logger=False,
        default_root_dir=str(work.folder),
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    found = tuner.Tuner(trainer).scale_batch_size(
        Module(make(1)),
        mode="binsearch",
        steps_per_trial=3,
        init_val=1,
        max_trials=20 if work.on_card else 3,
    )
    return int(found or 0)


class Module(PL.LightningModule):  # type: ignore[misc, unused-ignore]
    """The reference model with AdamW, its loss the one that tune takes."""

    def __init__(self, job: dict[str, Any]) -> None:
        super().__init__()
        self.model, self.samples, self.batch_size = job["model"], job["dataset"], 1
        sys.path.insert(0, str(ROOT / "gpusetup" / "child_scripts"))
        self.steps = __import__("trace_step")

    def training_step(self, batch: Any, _: int) -> Any:
        return self.steps.loss_of(self.model, batch, None)[1]

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters())

    def train_dataloader(self) -> Any:
        return DataLoader(self.samples, batch_size=self.batch_size)
