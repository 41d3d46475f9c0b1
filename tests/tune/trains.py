"""A training on the CPU that plays a GPU: what share of the time it computes stands as utilisation.

    trains.py loader|compute SECONDS STATE_FILE

Real torch, a real DataLoader with real workers; the stand-in NVML reads the state file.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

WINDOW = 0.2


class Played:
    """The time spent computing, told to the stand-in five times a second."""

    def __init__(self, state: Path) -> None:
        self.state, self.base = state, state.read_text(encoding="utf-8")
        self.spent = 0.0
        self.since: float | None = None
        threading.Thread(target=self._tell, daemon=True).start()

    def __enter__(self) -> None:
        self.since = time.monotonic()

    def __exit__(self, *how: object) -> None:
        assert self.since is not None
        self.spent += time.monotonic() - self.since
        self.since = None

    def _tell(self) -> None:
        told, at = 0.0, time.monotonic()
        while True:
            time.sleep(WINDOW)
            now, began = time.monotonic(), self.since
            total = self.spent + (now - began if began is not None else 0.0)
            share = round(100 * min(1.0, (total - told) / (now - at)))
            told, at = total, now
            half = self.state.with_suffix(".half")
            half.write_text(f"0.utilization={share}\n{self.base}", encoding="utf-8")
            half.replace(self.state)


class Slow(Dataset):
    """Every item costs a decoder's time."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        until = time.process_time() + 0.01
        total = 0
        while time.process_time() < until:
            total += index
        return torch.full((16,), float(total % 7))


def batches(kind: str) -> DataLoader:
    if kind == "loader":
        return DataLoader(Slow(), batch_size=16, num_workers=1)
    return DataLoader(TensorDataset(torch.randn(4096, 16)), batch_size=256)


def main() -> None:
    kind, seconds, state = sys.argv[1], float(sys.argv[2]), Path(sys.argv[3])
    wide = 1500
    torch.set_num_threads(1)
    layers = [torch.nn.Linear(16, wide), torch.nn.ReLU(), torch.nn.Linear(wide, wide)]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(wide, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    until = time.monotonic() + seconds
    gpu = Played(state)
    while time.monotonic() < until:
        for batch in batches(kind):
            with gpu:
                loss = model(batch[0] if isinstance(batch, list) else batch).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            if time.monotonic() >= until:
                break


if __name__ == "__main__":
    main()
