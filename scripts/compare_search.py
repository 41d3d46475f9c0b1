#!/usr/bin/env python3
"""The batch search beside accelerate's and Lightning's finders, on simulated devices.

python scripts/compare_search.py [--seed N] [--devices N] [--hard]

A device has a capacity and a model: every phase (forward, backward, optimizer) needs a fixed part
and a part for each sample, the highest phase counts, and from some batch on a library takes a
larger workspace (a step). What is needed is rounded up to 2 MiB; what is *read* is off by up to
1.5 %, another value at every step. A step that needs more than the capacity raises the CUDA
allocator's error. The devices are drawn from a seed, which is printed; their true maxima run from
7 to 7,192. With `--hard` (maxima from 1 on) a device also has one of: several workspaces, a line
that bends, rounding to large blocks, memory that is lost between blocks (another part at every
size), readings of the whole process only (as on a host: most of it stands before any batch, the
peak is never reset), or a maximum below 13. Peers (accelerate 1.15, Lightning 2.6) run for real
where they are installed.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import logging
import math
import random
import statistics
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from gpusetup.model.frozen import Frozen, replace  # noqa: E402
from gpusetup.tune.search import answer, search  # noqa: E402
from gpusetup.tune.trial import Goal, Trial  # noqa: E402

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
    bends: tuple[tuple[int, float], ...] = ()
    """From this batch on, a sample takes so many times as much."""
    block_bytes: int = 2 * MIB
    lost: float = 0.0
    """Between blocks, at most this part of the capacity; each size loses another one of it."""
    by_process: bool = False
    """Only the peak of the whole process is read, and never reset: a host's address space."""

    def need(self, batch: int) -> dict[str, int]:
        extra = sum(size for start, size in self.workspaces if batch >= start)
        samples = self.samples(batch)
        return {
            phase: self._rounded(self.fixed[phase] + self.each[phase] * samples + extra)
            for phase in PHASES
        }

    def samples(self, batch: int) -> float:
        return batch + sum((more - 1) * max(0, batch - start) for start, more in self.bends)

    def _rounded(self, size: float) -> int:
        return math.ceil(size / self.block_bytes) * self.block_bytes

    def peak(self, batch: int) -> int:
        return max(self.need(batch).values())

    def runs(self, batch: int) -> bool:
        part = random.Random(batch * 7919 + self.static_bytes).uniform(0.5, 1.0) * self.lost
        return self.peak(batch) <= self.capacity_bytes * (1 - part)

    def maximum(self) -> int:
        low, high = 0, 1 << 20
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (
                (middle, high) if self.peak(middle) <= self.capacity_bytes else (low, middle)
            )
        return next((batch for batch in range(low, 0, -1) if self.runs(batch)), 0)


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


KINDS = ("workspaces", "bends", "blocks", "lost", "process", "tiny")


def hard_devices(seed: int, count: int) -> Iterator[Device]:
    """One kind of trouble after the other; a device has room for one sample at least."""
    draw = random.Random(seed)
    for index in range(count):
        kind = KINDS[index % len(KINDS)]
        device = None
        while device is None or not 1 <= device.maximum() <= LARGEST:
            goal = draw.randint(1, 12) if kind == "tiny" else round(math.exp(draw.uniform(2, 8.8)))
            device = TROUBLES[kind](draw, _straight(draw, goal), goal)
        yield device


def _straight(draw: random.Random, goal: int) -> Device:
    capacity = draw.choice((4, 6, 8, 11, 12, 16, 24, 32, 40, 48, 80, 96, 141)) * 1024 * MIB
    static = round(draw.uniform(0.02, 0.5) * capacity)
    fixed = {phase: round(static * draw.uniform(1.0, 1.25)) for phase in PHASES}
    steepest = (capacity - max(fixed.values())) / (goal + draw.random())
    each = {phase: steepest * draw.uniform(0.3, 1.0) for phase in PHASES}
    each[draw.choice(("forward", "backward"))] = steepest
    each["optimizer"] = 0.0
    return Device(
        capacity_bytes=capacity, static_bytes=static, fixed=fixed, each=each, workspaces=()
    )


def _with_workspaces(draw: random.Random, device: Device, goal: int) -> Device:
    found = tuple(
        (draw.randint(2, goal + 1), round(draw.uniform(0.002, 0.03) * device.capacity_bytes))
        for _ in range(draw.randint(1, 3))
    )
    return replace(device, workspaces=found)


def _with_bends(draw: random.Random, device: Device, goal: int) -> Device:
    return replace(device, bends=((draw.randint(2, goal + 1), draw.uniform(0.7, 1.5)),))


def _with_blocks(draw: random.Random, device: Device, goal: int) -> Device:
    part = draw.uniform(0.001, 0.01)
    return replace(device, block_bytes=round(part * device.capacity_bytes / MIB) * MIB or MIB)


def _with_losses(draw: random.Random, device: Device, goal: int) -> Device:
    return replace(device, lost=draw.uniform(0.002, 0.03))


def _of_a_process(draw: random.Random, device: Device, goal: int) -> Device:
    static = round(draw.uniform(0.5, 0.9) * device.capacity_bytes)
    steepest = (device.capacity_bytes - static) / (goal + draw.random())
    return replace(
        device,
        static_bytes=static,
        fixed=dict.fromkeys(PHASES, static),
        each={"forward": 0.9 * steepest, "backward": steepest, "optimizer": 0.0},
        by_process=True,
    )


def _tiny(draw: random.Random, device: Device, goal: int) -> Device:
    return device


TROUBLES: dict[str, Callable[[random.Random, Device, int], Device]] = dict(
    zip(
        KINDS,
        (_with_workspaces, _with_bends, _with_blocks, _with_losses, _of_a_process, _tiny),
        strict=True,
    )
)


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
        if not self.device.runs(batch):
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
        readings = [self._phases(batch) for _ in range(STEPS)]
        phases = {p: round(statistics.mean(row[p] for row in readings)) for p in PHASES}
        highest = max(phases, key=lambda phase: phases[phase])
        values = [row[highest] for row in readings]
        return Trial(
            batch=batch,
            status="ok",
            peak_bytes=min(max(phases.values()), self.device.capacity_bytes),
            static_bytes=self.device.static_bytes
            if self.device.by_process
            else self._read(self.device.static_bytes),
            phases=phases,
            readings=STEPS,
            noise=(max(values) - min(values)) / 2 / statistics.mean(values),
        )

    def _phases(self, batch: int) -> dict[str, int]:
        need = self.device.need(batch)
        if self.device.by_process:  # to the byte, and the highest so far
            return dict.fromkeys(PHASES, max(need.values()))
        return {phase: self._read(size) for phase, size in need.items()}

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

    gc.freeze()  # it collects after each failure, and every module would be gone through
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
        from lightning.pytorch.tuner.tuning import Tuner
        from torch import Tensor, nn, optim, zeros
        from torch.utils.data import DataLoader, Dataset

        gc.freeze()  # as above
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

        with tempfile.TemporaryDirectory() as folder:  # it writes a checkpoint there
            trainer = Trainer(
                max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
                enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
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
        f" {max(run.failures for run in runs):4}"
        f" {sum(run.failures > 1 for run in runs) / len(runs):8.2%}"
        f" {min(parts):9.4f} {statistics.mean(parts):8.4f} {untested:8} {unsafe:6}"
    )


HEAD = (
    f"{'finder':20} {'trials':>6} {'range':>9} {'OOMs':>4} {'over one':>8} {'least':>9} {'mean':>8}"
    f" {'untested':>8} {'unsafe':>6}"
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--devices", type=int, default=26)
    parser.add_argument("--hard", action="store_true")
    parser.add_argument("--only", choices=tuple(FINDERS), action="append")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    drawn = list((hard_devices if options.hard else devices)(seed, options.devices))
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
