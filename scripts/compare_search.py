#!/usr/bin/env python3
"""The batch search beside accelerate's and Lightning's finders, on simulated devices.

python scripts/compare_search.py [--seed N] [--devices N]

A device has a capacity and a model: every phase (forward, backward, optimizer) needs a fixed part
and a part for each sample, the highest phase counts, and from some batch on a library takes a
larger workspace (a step). What is needed is rounded up to 2 MiB; what is *read* is off by up to
1.5 %, another value at every step. A step that needs more than the capacity raises the CUDA
allocator's error. The devices are drawn from a seed, which is printed; their true maxima run from
7 to 7,192. Peers (accelerate 1.15, Lightning 2.6) run for real where they are installed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import math
import random
import statistics
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from gpusetup.model.frozen import Frozen  # noqa: E402
from gpusetup.tune.search import Goal, Trial, answer, search  # noqa: E402

MIB = 1 << 20
JITTER = 0.015
STEPS = 12
SMALLEST, LARGEST = 7, 7192
PHASES = ("forward", "backward", "optimizer")


class OutOfMemory(RuntimeError):
    """What the CUDA caching allocator raises."""

    def __init__(self) -> None:
        super().__init__(
            "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of "
            "4.00 GiB of which 3.12 MiB is free."
        )


class Device(Frozen):
    """A simulated device with a model on it."""

    capacity_bytes: int
    static_bytes: int
    fixed: dict[str, int]
    each: dict[str, float]
    workspaces: tuple[tuple[int, int], ...]
    """From this batch on, so many bytes more."""

    def need(self, batch: int) -> dict[str, int]:
        extra = sum(size for start, size in self.workspaces if batch >= start)
        return {
            phase: _rounded(self.fixed[phase] + self.each[phase] * batch + extra)
            for phase in PHASES
        }

    def peak(self, batch: int) -> int:
        return max(self.need(batch).values())

    def maximum(self) -> int:
        low, high = 0, 1 << 20
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (
                (middle, high) if self.peak(middle) <= self.capacity_bytes else (low, middle)
            )
        return low


def _rounded(size: float) -> int:
    return math.ceil(size / (2 * MIB)) * 2 * MIB


def devices(seed: int, count: int) -> Iterator[Device]:
    """Their true maxima are spread evenly by size, the ends included."""
    draw = random.Random(seed)
    for index in range(count):
        goal = round(SMALLEST * (LARGEST / SMALLEST) ** (index / max(1, count - 1)))
        yield _device(draw, goal)


def _device(draw: random.Random, goal: int) -> Device:
    """Drawn until its largest batch is exactly the one that is wanted."""
    while True:
        capacity = draw.choice((4, 6, 8, 11, 12, 16, 24, 32, 40, 48, 80, 96, 141)) * 1024 * MIB
        static = round(draw.uniform(0.02, 0.5) * capacity)
        fixed = {phase: round(static * draw.uniform(1.0, 1.25)) for phase in PHASES}
        steepest = (capacity - max(fixed.values())) / (goal + draw.random())
        each = {phase: steepest * draw.uniform(0.3, 1.0) for phase in PHASES}
        each[draw.choice(("forward", "backward"))] = steepest
        each["optimizer"] = 0.0
        count = draw.choice((0, 0, 0, 1))
        workspaces = tuple(
            (draw.randint(2, goal), round(draw.uniform(0.002, 0.03) * capacity))
            for _ in range(count)
        )
        taken = sum(size for _, size in workspaces)
        scale = 1 - taken / max(1.0, steepest * goal)
        each = {phase: value * scale for phase, value in each.items()}
        device = Device(
            capacity_bytes=capacity,
            static_bytes=static,
            fixed=fixed,
            each=each,
            workspaces=workspaces,
        )
        if scale > 0.5 and device.maximum() == goal:
            return device


class Run(Frozen):
    """What one finder did on one device."""

    batch: int | None
    trials: int
    failures: int
    tested: bool


class Counted:
    """A device that counts who comes."""

    def __init__(self, device: Device, seed: int) -> None:
        self.device, self.draw = device, random.Random(seed)
        self.ran: list[int] = []
        self.failed: list[int] = []

    def step(self, batch: int) -> None:
        """One training step, for the peers."""
        if self.device.peak(batch) > self.device.capacity_bytes:
            raise OutOfMemory

    def trial(self, batch: int) -> None:
        try:
            for _ in range(STEPS):
                self.step(batch)
        except OutOfMemory:
            self.failed.append(batch)
            raise
        self.ran.append(batch)

    def measured(self, batch: int) -> Trial:
        """The same with what the allocator's counters say, for our search."""
        try:
            self.trial(batch)
        except OutOfMemory:
            return Trial(batch=batch, status="oom")
        readings = [
            {phase: self._read(size) for phase, size in self.device.need(batch).items()}
            for _ in range(STEPS)
        ]
        phases = {p: round(statistics.mean(row[p] for row in readings)) for p in PHASES}
        highest = max(phases, key=lambda phase: phases[phase])
        values = [row[highest] for row in readings]
        return Trial(
            batch=batch,
            status="ok",
            peak_bytes=min(max(phases.values()), self.device.capacity_bytes),
            static_bytes=self._read(self.device.static_bytes),
            phases=phases,
            readings=STEPS,
            noise=(max(values) - min(values)) / 2 / statistics.mean(values),
        )

    def _read(self, size: int) -> int:
        return round(size * (1 + self.draw.uniform(-JITTER, JITTER)))

    def run(self, batch: int | None) -> Run:
        return Run(
            batch=batch,
            trials=len(self.ran) + len(self.failed),
            failures=len(self.failed),
            tested=batch in self.ran,
        )


def ours(device: Device, seed: int) -> Run:
    counted = Counted(device, seed)
    goal = Goal(limit_bytes=device.capacity_bytes)
    return counted.run(answer(search(counted.measured, goal), goal))


def accelerate_finder(device: Device, seed: int) -> Run:
    """`find_executable_batch_size` from a start above every device's maximum (it only shrinks)."""
    from accelerate.utils import find_executable_batch_size

    counted = Counted(device, seed)

    @find_executable_batch_size(starting_batch_size=8192)  # type: ignore[untyped-decorator]
    def train(batch_size: int) -> int:
        counted.trial(batch_size)
        return batch_size

    return counted.run(train())


def lightning_finder(mode: str) -> Callable[[Device, int], Run]:
    """`Tuner.scale_batch_size`, as its documentation uses it, with all defaults but the mode."""

    def find(device: Device, seed: int) -> Run:
        from lightning.pytorch import LightningModule, Trainer
        from lightning.pytorch.tuner import Tuner
        from torch import Tensor, nn, optim, zeros
        from torch.utils.data import DataLoader, Dataset

        counted = Counted(device, seed)

        class Numbers(Dataset):
            def __len__(self) -> int:
                return 1 << 20

            def __getitem__(self, index: int) -> int:
                return index

        def collated(rows: list[int]) -> Tensor:
            return zeros(len(rows), 1)

        class Module(LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.batch_size = 2
                self.layer = nn.Linear(1, 1)

            def training_step(self, batch: Tensor, index: int) -> Tensor:
                if index == 0:
                    counted.trial(len(batch))
                return self.layer(batch).sum()

            def configure_optimizers(self) -> optim.Optimizer:
                return optim.SGD(self.parameters(), lr=0.0)

            def train_dataloader(self) -> DataLoader:
                return DataLoader(Numbers(), self.batch_size, collate_fn=collated)

        trainer = Trainer(
            max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        return counted.run(Tuner(trainer).scale_batch_size(Module(), mode=mode))

    return find


FINDERS: dict[str, Callable[[Device, int], Run]] = {
    "gpusetup": ours,
    "accelerate": accelerate_finder,
    "lightning power": lightning_finder("power"),
    "lightning binsearch": lightning_finder("binsearch"),
}


def row(name: str, runs: list[Run], maxima: list[int]) -> str:
    parts = [(run.batch or 0) / true for run, true in zip(runs, maxima, strict=True)]
    trials = [run.trials for run in runs]
    unsafe = sum(part > 1 for part in parts)
    untested = sum(not run.tested for run in runs)
    return (
        f"{name:20} {statistics.mean(trials):6.2f} {min(trials):4}-{max(trials):<4}"
        f" {max(run.failures for run in runs):4} {min(parts):9.4f} {statistics.mean(parts):8.4f}"
        f" {untested:8} {unsafe:6}"
    )


HEAD = (
    f"{'finder':20} {'trials':>6} {'range':>9} {'OOMs':>4} {'least':>9} {'mean':>8}"
    f" {'untested':>8} {'unsafe':>6}"
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--devices", type=int, default=26)
    parser.add_argument("--only", choices=tuple(FINDERS), action="append")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    drawn = list(devices(seed, options.devices))
    maxima = [device.maximum() for device in drawn]
    print(f"seed {seed}, {len(drawn)} devices, largest batches {min(maxima)} to {max(maxima)}")
    print(
        f"least, mean: of the largest batch; {STEPS} steps a trial, readings off by 1.5 %\n{HEAD}"
    )
    for name in options.only or FINDERS:
        runs = [_quiet(FINDERS[name], device, seed + i) for i, device in enumerate(drawn)]
        print(row(name, runs, maxima), flush=True)
    return 0


def _quiet(finder: Callable[[Device, int], Run], device: Device, seed: int) -> Run:
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        with contextlib.redirect_stdout(io.StringIO()):
            return finder(device, seed)


if __name__ == "__main__":
    sys.exit(main())
