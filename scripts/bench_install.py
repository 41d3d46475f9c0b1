"""The bench of `gpusetup install`: beside bare uv and pip, with the real CPU wheel of torch.

The wheels are fetched once by `pip download`; the indexes are ours, on loopback, so that the
network is the same for all. The environment holds the same wheel relabelled as another version.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "scripts")]

from chaos_install import clean_environment  # noqa: E402

TORCH, FORMER = "2.13.0", "2.12.1"
PEAK = (
    "import re, sys; from gpusetup import cli; code = cli.main(sys.argv[1:]);"
    "peak = re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1];"
    "print('peak', peak, file=sys.stderr); sys.exit(code)"
)
"""Not getrusage: what it says of a child holds its parent's memory at the fork as well."""


class Bench:
    """One world, and the commands that are timed in it."""

    def __init__(self, world: Any) -> None:
        import uv

        self.world, self.uv = world, str(uv.find_uv_bin())
        shelf = Path(tempfile.gettempdir(), "gpusetup-test-wheels", sys.implementation.cache_tag)
        self.torch = fetched(shelf / "torch", f"torch=={TORCH}", "--no-deps")[0]
        found = fetched(shelf / "rest", str(self.torch))
        self.rest = [wheel for wheel in found if not wheel.name.startswith("torch-")]
        former = relabelled(self.torch, TORCH, FORMER, shelf / "relabelled")
        world.index.add("whl/cpu", self.torch)
        for wheel in self.rest:
            world.index.add("simple", wheel)
        self.env = world.folder / "env"
        world.fill(world.venv("env"), former, *self.rest)
        subprocess.run(["cp", "-a", str(self.env), str(world.folder / "former")], check=True)
        self.environment = {**clean_environment(), **world.environment, "PYTHONPATH": str(ROOT)}

    def former(self) -> None:
        """The environment with the former torch, on the disk: what is timed syncs its own files,
        not what was copied here."""
        shutil.rmtree(self.env)
        subprocess.run(["cp", "-a", str(self.world.folder / "former"), str(self.env)], check=True)
        os.sync()

    def new(self) -> None:
        """No environment's content: an empty one."""
        shutil.rmtree(self.env)
        self.world.venv("env")
        os.sync()

    def cold(self) -> None:
        for name in ("uv-cache", "cache"):
            shutil.rmtree(self.world.folder / name, ignore_errors=True)

    def timed(self, argv: Sequence[str]) -> tuple[float, str]:
        began = time.perf_counter()
        said = subprocess.run(
            list(argv), env=self.environment, cwd=ROOT, capture_output=True, text=True, check=False
        )
        seconds = time.perf_counter() - began
        if said.returncode:
            raise RuntimeError(f"{' '.join(argv)}\n{said.stderr[-2000:]}")
        return seconds, said.stdout + said.stderr

    def ours(self, *more: str) -> list[str]:
        root = self.world.index.index_root
        words = ("--python", str(self.env), "--torch", TORCH, "--backend", "cpu", "--yes")
        return [sys.executable, "-c", PEAK, "install", *words, "--index-root", root, *more]

    def bare(self) -> list[str]:
        """uv with no cache that others write, every file a copy of its own: what ours is."""
        python = str(self.env / "bin/python")
        own = ("--no-cache", "--link-mode", "copy")
        words = ("pip", "install", *own, "--python", python, *self.sources())
        return [self.uv, *words, f"torch=={TORCH}+cpu"]

    def pip(self) -> list[str]:
        python = str(self.env / "bin/python")
        words = ("-m", "pip", "--python", python, "install", "--no-cache-dir", "--quiet")
        return [sys.executable, *words, *self.sources(), f"torch=={TORCH}+cpu"]

    def sources(self) -> tuple[str, ...]:
        return ("--extra-index-url", f"{self.world.index.index_root}/cpu")

    def offline(self) -> list[str]:
        """What changes the environment where uv has everything unpacked already."""
        house = str(self.world.folder / "cache/gpusetup/wheels")
        words = ("--offline", "--no-index", "--no-deps", "--find-links", house)
        python = ("--python", str(self.env / "bin/python"))
        return [self.uv, "pip", "install", *python, *words, f"torch=={TORCH}+cpu"]


def switch_seconds(said: str) -> float:
    """How long the switch took, from the log that the answer names."""
    log = Path(re.findall(r"(?m)^log: (.+)$", said)[-1]).read_text()
    began, ended = (float(re.findall(rf"(?m)^ *([\d.]+) switch {w}$", log)[0]) for w in ENDS)
    return ended - began


ENDS = ("begins", "ends")


def install_rows(runs: int) -> Iterator[tuple[str, str, str, bool]]:
    """(name, measured, promise, kept) of each row."""
    from installing import new_world

    with tempfile.TemporaryDirectory(prefix="bench-") as name, new_world(Path(name)) as world:
        bench = Bench(world)
        yield from _switch(bench, runs)
        yield from _whole(bench, runs)


def _switch(bench: Bench, runs: int) -> Iterator[tuple[str, str, str, bool]]:
    bench.former()
    bench.timed(bench.ours("--no-verify"))
    pairs, undos = [], []
    for _ in range(runs):
        bench.former()
        _, said = bench.timed(bench.ours("--no-verify"))
        undo = [sys.executable, "-m", "gpusetup", "install", "--python", str(bench.env)]
        disk = bytes_of(bench.env)
        os.sync()
        undos.append(bench.timed([*undo, "--undo", "--yes"])[0])
        bench.former()
        seconds, _ = bench.timed(bench.offline())
        pairs.append((switch_seconds(said), seconds))
    mine, theirs = (statistics.median(one) for one in zip(*pairs, strict=True))
    measured = f"{mine:.2f} s against {theirs:.2f} s"
    yield "switch / uv --offline", measured, "1.1 times + 0.5 s", mine <= 1.1 * theirs + 0.5
    undo_time = statistics.median(undos)
    yield "install --undo", f"{undo_time:.2f} s", "under 1 s", undo_time < 1
    both = bytes_of(bench.world.folder / "former") + torch_bytes(bench.env)
    share = 100 * (disk - both) / both
    yield "disk of both versions", f"{share:+.1f} %", "at most 2 % beyond", share <= 2


def _whole(bench: Bench, runs: int) -> Iterator[tuple[str, str, str, bool]]:
    cold, pips, peaks, proofs = [], [], [], []
    for _ in range(runs):
        bench.new(), bench.cold()
        mine, said = bench.timed(bench.ours("--no-verify"))
        peaks.append(int(re.findall(r"peak (\d+)", said)[-1]) / 1024)
        bench.new()
        again, _ = bench.timed(bench.ours("--no-verify"))
        bench.new()
        proofs.append(bench.timed(bench.ours())[0] - again)
        bench.new(), bench.cold()
        bare, _ = bench.timed(bench.bare())
        cold.append((mine, bare, mine / bare))
        bench.new()
        pips.append(bench.timed(bench.pip())[0] / mine)
    mine, bare, ratio = (statistics.median(one) for one in zip(*cold, strict=True))
    measured = f"{mine:.1f} s against {bare:.1f} s: {ratio:.2f}"
    yield "whole / uv --no-cache --link-mode copy", measured, "1.5", ratio <= 1.5
    faster = statistics.median(pips)
    yield "cold / pip install", f"{faster:.1f} times faster", "at least 1.5", faster >= 1.5
    peak = statistics.median(peaks)
    yield "memory", f"{peak:.0f} MiB", "under 120 MiB", peak < 120
    proof = statistics.median(proofs)
    yield "verification, on top", f"{proof:.1f} s", "told apart", True


def bytes_of(folder: Path) -> int:
    """What the files of a folder hold, bytecode apart."""
    files = (p for p in folder.rglob("*") if p.is_file() and not p.is_symlink())
    return sum(p.stat().st_size for p in files if "__pycache__" not in p.parts)


def torch_bytes(env: Path) -> int:
    """What torch's own files hold."""
    (site,) = env.glob("lib/python*/site-packages")
    return sum(bytes_of(path) for path in site.glob("torch*"))


def fetched(folder: Path, *words: str) -> list[Path]:
    """The wheels of `pip download`, fetched unless an earlier run has done it to the end."""
    done = folder / "done"
    if not done.exists():
        argv = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:"]
        subprocess.run([*argv, "--dest", str(folder), *words], check=True)
        done.touch()
    return sorted(folder.glob("*.whl"))


def relabelled(wheel: Path, version: str, other: str, folder: Path) -> Path:
    """The same wheel under another version: its names, METADATA, version.py and RECORD."""
    path = folder / wheel.name.replace(version, other, 1)
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(path.with_suffix(".part"), "w") as out:
        for entry in source.infolist():
            name = entry.filename.replace(f"torch-{version}", f"torch-{other}")
            raw = source.read(entry)
            if name.endswith(".dist-info/RECORD"):
                record = name
                continue
            if name.endswith((".dist-info/METADATA", "torch/version.py")):
                raw = raw.replace(version.encode(), other.encode())
            out.writestr(name, raw)
            digest = base64.urlsafe_b64encode(hashlib.sha256(raw).digest()).rstrip(b"=").decode()
            rows.append(f"{name},sha256={digest},{len(raw)}")
        out.writestr(record, "\n".join([*rows, f"{record},,"]) + "\n")
    path.with_suffix(".part").rename(path)
    return path
