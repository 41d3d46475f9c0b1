#!/usr/bin/env python3
"""How fast is it, as ratios measured in one run beside the peers.

    python scripts/bench.py                 everything
    python scripts/bench.py doctor tune     some groups

Each row times two commands in turn (A B A B ...) as whole processes, so that a noisy machine
disturbs both alike, and prints the median of the pairwise ratios. Peers are installed once into an
environment of their own in the user's cache folder.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import platformdirs

PYTHON = sys.executable
ROOT = Path(__file__).resolve().parent.parent
RUNS = 5
PEERS = ("cuda-doctor", "env-doctor", "gpustat", "nvitop")


class Row(NamedTuple):
    """One line of the table: what was measured, against what, and the promise."""

    name: str
    measured: str
    promise: str
    kept: bool


def cost(argv: Sequence[str]) -> tuple[float, float]:
    """One run of a whole process: wall seconds, peak resident memory in MiB.

    Bytecode is cached, as it is for an installed package, whatever the caller's environment says.
    """
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    began, null = time.perf_counter(), subprocess.DEVNULL
    child = subprocess.Popen(argv, stdout=null, stderr=null, env=environment, cwd=ROOT)
    _, _, usage = os.wait4(child.pid, 0)
    child.returncode = 0
    return time.perf_counter() - began, usage.ru_maxrss / 1024


def paired(a: Sequence[str], b: Sequence[str]) -> tuple[float, float, float]:
    """Median seconds of A and of B, and the median of the ratios A/B, after one warm-up each."""
    cost(a), cost(b)
    pairs = [(cost(a)[0], cost(b)[0]) for _ in range(RUNS)]
    ratio = statistics.median(x / y for x, y in pairs)
    return (*(statistics.median(column) for column in zip(*pairs, strict=True)), ratio)


def at_most(most: float, name: str, ours: Sequence[str], peer: Sequence[str]) -> Row:
    """A row that promises `ours` to take at most `most` times as long as `peer`."""
    mine, theirs, ratio = paired(ours, peer)
    measured = f"{mine:.3f} s against {theirs:.3f} s: {ratio:.2f} times"
    return Row(name, measured, f"at most {most:.2g} times", ratio <= most)


def under(seconds: float, name: str, ours: Sequence[str]) -> Row:
    """A row that promises a median time, and a peak memory of 60 MiB."""
    cost(ours)
    costs = [cost(ours) for _ in range(RUNS)]
    taken, peak = (statistics.median(column) for column in zip(*costs, strict=True))
    measured, promise = f"{taken:.3f} s, {peak:.1f} MiB", f"under {seconds:g} s and 60 MiB"
    return Row(name, measured, promise, taken < seconds and peak < 60)


def gpusetup(*words: str) -> list[str]:
    return [PYTHON, "-m", "gpusetup", *words]


def doctor() -> Iterator[Row]:
    ours = gpusetup("doctor", "--json")
    yield under(0.15, "doctor --json", ours)
    collect_env = [PYTHON, "-m", "torch.utils.collect_env"]
    yield at_most(1 / 15, "doctor --json / collect_env", ours, collect_env)
    for name, word in (("cuda-doctor", "diagnose"), ("env-doctor", "check")):
        yield at_most(0.5, f"doctor --json / {name}", ours, [str(peer_folder() / name), word])


def start() -> Iterator[Row]:
    bare, ours, _ = paired([PYTHON, "-c", "pass"], [PYTHON, "-c", "import gpusetup"])
    extra = 1000 * (ours - bare)
    yield Row("import gpusetup", f"{extra:.1f} ms over bare Python", "under 15 ms", extra < 15)
    yield under(0.15, "resolve", gpusetup("resolve", "--from", "rtx3050-laptop"))


def verify() -> Iterator[Row]:
    ours = [PYTHON, "-m", "gpusetup.verify", "--device", "cpu"]
    yield at_most(1.3, "verify quick / import torch", ours, [PYTHON, "-c", "import torch"])


def install() -> Iterator[Row]:
    from bench_install import install_rows

    for name, measured, promise, kept in install_rows(3):
        yield Row(f"install: {name}", measured, promise, kept)


def plan() -> Iterator[Row]:
    cells = "gpusetup/data/plan/cells.csv"
    one = ("--model", "qwen3-8b", "--context", "32768", "--gpu", "A100 80GB", "--gpus", "4")
    yield under(0.2, "plan, one answer", gpusetup("plan", *one, "--predict"))
    many = gpusetup("plan", "--cells", cells, "--predict", "--json")
    yield under(1, "plan --cells, 560 rows", many)


def monitor() -> Iterator[Row]:
    """Against the stand-in driver of the tests, which all three ask through the same library."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    import standin

    gpu = standin.A100 | {"utilization": 97, "utilization_memory": 40, "fan": 30, "pstate": 0,
                          "encoder": 0, "decoder": 0, "throttle": 0, "clock_sm": 1400,
                          "clock_sm_max": 1410, "clock_memory": 1215}  # fmt: skip
    state = Path(tempfile.mkdtemp(prefix="gpusetup-bench-")) / "standin.state"
    state.write_text(standin.state((gpu,) * 8), encoding="utf-8")
    os.environ |= {"GPUSETUP_STANDIN": str(state), "LD_LIBRARY_PATH": str(standin.libraries())}
    ours = gpusetup("monitor", "--once", "--json")
    for name, word in (("gpustat", "--json"), ("nvitop", "-1")):
        peer = [str(peer_folder() / name), word]
        yield at_most(1.0, f"monitor --once --json / {name} {word}", ours, peer)
    yield watching(gpusetup("monitor", "--json", "--interval", "1"), 20)


def watching(ours: Sequence[str], seconds: float) -> Row:
    """The share of a core and the memory of the watching, its child included."""
    import psutil

    child = subprocess.Popen(ours, stdout=subprocess.DEVNULL, cwd=ROOT)
    time.sleep(3)
    family = [psutil.Process(child.pid), *psutil.Process(child.pid).children(recursive=True)]
    before = sum(sum(one.cpu_times()[:2]) for one in family)
    time.sleep(seconds)
    spent = (sum(sum(one.cpu_times()[:2]) for one in family) - before) / seconds * 100
    mib = sum(one.memory_info().rss for one in family) / (1 << 20)
    child.terminate()
    child.wait()
    return Row(
        name="monitor at 1 Hz on 8 GPUs",
        measured=f"{spent:.2f} % of a core, {mib:.1f} MiB in {len(family)} processes",
        promise="under 1 % and 60 MiB",
        kept=spent < 1 and mib < 60,
    )


MODEL = """
import torch
from torch import nn

torch.set_num_threads(1)
LOSS = nn.functional.cross_entropy

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(1000, 128)
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(128, 10)
    def forward(self, inputs):
        return self.head(self.body(self.tokens(inputs)).mean(1))

def build(batch):
    torch.manual_seed(0)
    return Encoder(), (torch.randint(0, 1000, (batch, 64)), torch.randint(0, 10, (batch,)))

def train(batch):
    model, (inputs, target) = build(batch)
    LOSS(model(inputs), target).backward()
    torch.optim.AdamW(model.parameters()).step()
"""
LIGHTNING = """
import model
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.tuner import Tuner
from torch.optim import AdamW
from torch.utils.data import DataLoader, TensorDataset

class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.batch_size = 2
        self.model, self.data = model.build(1 << 14)
    def training_step(self, batch, index):
        return model.LOSS(self.model(batch[0]), batch[1])
    def configure_optimizers(self):
        return AdamW(self.parameters())
    def train_dataloader(self):
        return DataLoader(TensorDataset(*self.data), self.batch_size)

trainer = Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False)
Tuner(trainer).scale_batch_size(Module(), mode="power")
"""
NEEDS = """import lightning.pytorch, model
model.train(2)
print(open("/proc/self/status").read().split("VmPeak:")[1].split()[0])"""
ROOM_KIB = 64 << 10


def tune() -> Iterator[Row]:
    """Both as whole programs in as much address space; Lightning beside torch, Linux."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "model.py").write_text(MODEL, encoding="utf-8")
        places = (str(ROOT), folder, os.environ.get("PYTHONPATH", ""))
        os.environ |= {"PYTHONPATH": os.pathsep.join(places), "MALLOC_ARENA_MAX": "2"}
        needs = subprocess.run([PYTHON, "-c", NEEDS], capture_output=True, check=True)
        limit = f'ulimit -v {int(needs.stdout) + ROOM_KIB}; exec "$@"'
        words = ("--batch-size", "--code", "model:build", "--device", "cpu", "--python", PYTHON)
        ours, peer = gpusetup("tune", *words), [PYTHON, "-c", LIGHTNING]
        a, b = (["bash", "-c", limit, "-", *one] for one in (ours, peer))
        yield at_most(1.0, "tune --batch-size / Lightning's tuner", a, b)


GROUPS = (start, doctor, verify, monitor, install, plan, tune)


def peer_folder() -> Path:
    """The `bin` of the environment that holds the peers; made at the first call."""
    folder = Path(platformdirs.user_cache_dir("gpusetup-bench")) / "peers"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([PYTHON, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PEERS], check=True)
    return folder / "bin"


def main(*names: str) -> int:
    kept = True
    for group in GROUPS:
        for row in group() if not names or group.__name__ in names else ():
            kept &= row.kept
            mark = "kept  " if row.kept else "MISSED"
            print(f"{mark}  {row.name:<40} {row.measured:<52} ({row.promise})", flush=True)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
