#!/usr/bin/env python3
"""The batch search on real models under a memory limit, beside accelerate's and Lightning's.

python scripts/compare_search_time.py [--room MIB] [--models mlp transformer conv] [--runs N]

Each finder is a whole program under the same `RLIMIT_AS`: what it needs to run by itself plus some
room. Its wall time counts from its start to its end, imports included, and is shown as a part of
Lightning's in the same run; beside it the seconds of CPU, which other work disturbs less. A
reference program then trains at the answer, which must run, and at 105 % of it, which should not.
Peers run where they are installed (accelerate 1.15, Lightning 2.6). Linux, CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from gpusetup.model.frozen import Frozen, replace  # noqa: E402

MODELS = """
import torch
from torch import nn

torch.set_num_threads(1)

class Numbers(torch.utils.data.Dataset):
    def __init__(self, one):
        self.one = one
    def __len__(self):
        return 1 << 20
    def __getitem__(self, index):
        return self.one

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(1000, 128)
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(128, 10)
    def forward(self, inputs):
        return self.head(self.body(self.tokens(inputs)).mean(1))

def mlp_parts():
    wide = 1024
    model = nn.Sequential(nn.Linear(784, wide), nn.GELU(), nn.Linear(wide, wide), nn.GELU(),
                          nn.Linear(wide, wide), nn.GELU(), nn.Linear(wide, 10))
    return model, (torch.randn(784), torch.tensor(3))

def transformer_parts():
    return Encoder(), (torch.randint(0, 1000, (64,)), torch.tensor(3))

def conv_parts():
    body = []
    for _ in range(4):
        body += [nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()]
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), *body, nn.AdaptiveAvgPool2d(1),
                          nn.Flatten(), nn.Linear(16, 10))
    return model, (torch.randn(3, 16, 16), torch.tensor(3))

def build(parts, batch):
    torch.manual_seed(0)
    model, one = parts()
    return model, tuple(part.expand(batch, *part.shape).clone() for part in one)

def mlp(batch):
    return build(mlp_parts, batch)

def transformer(batch):
    return build(transformer_parts, batch)

def conv(batch):
    return build(conv_parts, batch)

def train(name, batch, steps):
    model, (inputs, target) = globals()[name](batch)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        nn.functional.cross_entropy(model(inputs), target).backward()
        optimizer.step()
        optimizer.zero_grad()
"""
ACCELERATE = """
import sys
import models
from accelerate.utils import find_executable_batch_size
trials = []
@find_executable_batch_size(starting_batch_size=8192)
def train(batch_size):
    trials.append(batch_size)
    models.train(sys.argv[1], batch_size, 3)
    return batch_size
print(train(), len(trials))
"""
LIGHTNING = """
import sys, logging, warnings
warnings.simplefilter("ignore")
import models, torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.tuner import Tuner
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
trials = []
class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.batch_size = 2
        self.model, self.one = getattr(models, sys.argv[1] + "_parts")()
    def training_step(self, batch, index):
        if index == 0:
            trials.append(len(batch[0]))
        return torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())
    def train_dataloader(self):
        return torch.utils.data.DataLoader(models.Numbers(self.one), self.batch_size)
trainer = Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
                  enable_progress_bar=False, enable_model_summary=False)
found = Tuner(trainer).scale_batch_size(Module(), mode=sys.argv[2])
print(found, len(trials))
"""
TRAIN = "import sys, models; models.train(sys.argv[1], int(sys.argv[2]), 14)"
SIZE = """
import importlib.util as find
for name in ("accelerate", "lightning.pytorch"):
    if find.find_spec(name.partition(".")[0]):
        __import__(name)
import sys, models
models.train(sys.argv[1], 2, 2)
print([int(line.split()[1]) for line in open("/proc/self/status") if "VmPeak" in line][0] << 10)
"""
SECONDS = 600.0


class Found(Frozen):
    """What one finder answered, by how many trials and in which time."""

    batch: int | None
    trials: int
    seconds: float
    """On the wall."""
    busy: float
    """Of CPU."""
    said: str = ""


def program(
    words: tuple[str, ...], folder: str, limit: int | None
) -> tuple[subprocess.CompletedProcess[str], tuple[float, float]]:
    """What it said, and its seconds on the wall and of CPU."""

    def limited() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}",
                   "MALLOC_ARENA_MAX": "2"}  # fmt: skip
    began, before = time.monotonic(), _cpu()
    try:
        done = _run(words, folder, environment, limited)
    except subprocess.TimeoutExpired:
        done = subprocess.CompletedProcess(words, -1, "", f"no answer in {SECONDS:g} s")
    return done, (time.monotonic() - began, _cpu() - before)


def _run(
    words: tuple[str, ...], folder: str, environment: dict[str, str], limited: Callable[[], None]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, cwd=folder, env=environment, text=True, capture_output=True, timeout=SECONDS,
        preexec_fn=limited, check=False,
    )  # fmt: skip


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def ours(name: str, folder: str, limit: int) -> Found:
    words = ("tune", "--batch-size", "--code", f"models:{name}", "--device", "cpu", "--json",
             "--python", sys.executable)  # fmt: skip
    done, (seconds, busy) = program((sys.executable, "-m", "gpusetup", *words), folder, limit)
    try:
        said = json.loads(done.stdout)
    except ValueError:
        return Found(batch=None, trials=0, seconds=seconds, busy=busy, said=done.stderr[-300:])
    return Found(
        batch=said.get("batch_size"),
        trials=len(said.get("trials") or ()),
        seconds=seconds,
        busy=busy,
        said=str(said.get("error") or ""),
    )


def peer(script: str, *words: str) -> Callable[[str, str, int], Found]:
    def find(name: str, folder: str, limit: int) -> Found:
        done, (seconds, busy) = program((sys.executable, "-c", script, name, *words), folder, limit)
        told = done.stdout.split()[-2:]
        if done.returncode or len(told) != 2:
            return Found(batch=None, trials=0, seconds=seconds, busy=busy, said=done.stderr[-300:])
        return Found(batch=int(told[0]), trials=int(told[1]), seconds=seconds, busy=busy)

    return find


OURS, POWER, BINSEARCH = "gpusetup", "lightning power", "lightning binsearch"
FINDERS: Mapping[str, Callable[[str, str, int], Found]] = {
    OURS: ours,
    "accelerate": peer(ACCELERATE),
    POWER: peer(LIGHTNING, "power"),
    BINSEARCH: peer(LIGHTNING, "binsearch"),
}
NEEDS = {"accelerate": "accelerate", POWER: "lightning", BINSEARCH: "lightning"}


def installed() -> list[str]:
    from importlib.util import find_spec

    return [name for name in FINDERS if name not in NEEDS or find_spec(NEEDS[name])]


def trains(name: str, batch: int, folder: str, limit: int) -> bool:
    done, _ = program((sys.executable, "-c", TRAIN, name, str(batch)), folder, limit)
    return done.returncode == 0


def compare(name: str, folder: str, room: int, runs: int) -> dict[str, Found]:
    """Every finder's answer on one model, with the medians of its times, its runs interleaved."""
    plain, _ = program((sys.executable, "-c", SIZE, name), folder, None)
    limit = int(plain.stdout) + room
    rounds = [{one: FINDERS[one](name, folder, limit) for one in installed()} for _ in range(runs)]
    found = {one: typical([done[one] for done in rounds]) for one in rounds[0]}
    return show(name, folder, limit, found)


def typical(done: list[Found]) -> Found:
    """The median times; the least answer, since every run of a finder must be good."""
    wall, busy = (statistics.median(getattr(o, n) for o in done) for n in ("seconds", "busy"))
    least = min(done, key=lambda one: one.batch or 0)
    return replace(least, seconds=wall, busy=busy)


def show(name: str, folder: str, limit: int, found: dict[str, Found]) -> dict[str, Found]:
    print(f"\n{name}, RLIMIT_AS {limit >> 20} MiB")
    print(
        f"{'finder':20} {'answer':>7} {'runs':>5} {'more':>5} {'trials':>6}"
        f" {'wall s':>7} {'/ power':>8} {'/ binsearch':>11} {'CPU s':>6} {'/ power':>8}"
        f" {'/ binsearch':>11}"
    )
    for finder, one in found.items():
        runs = one.batch is not None and trains(name, one.batch, folder, limit)
        more = one.batch is not None and trains(name, one.batch * 21 // 20 + 1, folder, limit)
        wall, busy = (
            [_part(one, found.get(mode), name) for mode in (POWER, BINSEARCH)]
            for name in ("seconds", "busy")
        )
        print(
            f"{finder:20} {one.batch or '-':>7} {'yes' if runs else 'NO':>5}"
            f" {'YES' if more else 'no':>5} {one.trials:6} {one.seconds:7.1f}"
            f" {wall[0]:>8} {wall[1]:>11} {one.busy:6.1f} {busy[0]:>8} {busy[1]:>11}"
            f"  {' '.join(one.said.split())[-90:]}",
            flush=True,
        )
    return found


def _part(one: Found, other: Found | None, name: str) -> str:
    return "-" if other is None else f"{getattr(one, name) / getattr(other, name):.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--room", type=int, default=64, metavar="MIB")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--models", nargs="+", default=["mlp", "transformer", "conv"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpusetup-compare-") as folder:
        (Path(folder) / "models.py").write_text(MODELS, encoding="utf-8")
        for name in options.models:
            compare(name, folder, options.room << 20, options.runs)
    print("\nruns: a training at the answer runs; more: at 105 % of it, too; / : wall time")
    return 0


if __name__ == "__main__":
    sys.exit(main())
