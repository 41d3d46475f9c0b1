"""The bench of `gpusetup install`: beside bare uv and pip, with the real CPU wheel of torch.

The wheels are fetched once by `pip download`; the indexes are ours, on loopback, so that the
network is the same for all.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("", "tests", "tests/install", "scripts")]

from chaos_install import clean_environment  # noqa: E402

TORCH = "2.13.0"
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
        world.index.add("whl/cpu", self.torch)
        for wheel in self.rest:
            world.index.add("simple", wheel)
        self.env = world.venv("env")
        self.environment = {**clean_environment(), **world.environment, "PYTHONPATH": str(ROOT)}

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
        return [sys.executable, "-c", PEAK, "install", *words, "--index", root, *more]

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


def install_rows(runs: int) -> Iterator[tuple[str, str, str, bool]]:
    """(name, measured, promise, kept) of each row."""
    from installing import new_world

    with tempfile.TemporaryDirectory(prefix="bench-") as name, new_world(Path(name)) as world:
        bench = Bench(world)
        yield from rows_of([measured(bench) for _ in range(runs)])


class Measured(NamedTuple):
    """Seconds of ours with nothing kept, of uv, of pip; MiB at most."""

    ours: float
    bare: float
    pip: float
    peak: float


def measured(bench: Bench) -> Measured:
    bench.new(), bench.cold()
    ours, said = bench.timed(bench.ours("--no-verify"))
    peak = int(re.findall(r"peak (\d+)", said)[-1]) / 1024
    bench.new(), bench.cold()
    bare, _ = bench.timed(bench.bare())
    bench.new()
    pip, _ = bench.timed(bench.pip())
    return Measured(ours, bare, pip, peak)


def rows_of(found: list[Measured]) -> Iterator[tuple[str, str, str, bool]]:
    ours, bare, _, peak = (statistics.median(one) for one in zip(*found, strict=True))
    ratio = statistics.median(one.ours / one.bare for one in found)
    faster = statistics.median(one.pip / one.ours for one in found)
    told = f"{ours:.1f} s against {bare:.1f} s: {ratio:.2f}"
    yield "whole / uv --no-cache --link-mode copy", told, "1.5", ratio <= 1.5
    yield "cold / pip install", f"{faster:.1f} times faster", "at least 1.5", faster >= 1.5
    yield "memory", f"{peak:.0f} MiB", "under 120 MiB", peak < 120


def fetched(folder: Path, *words: str) -> list[Path]:
    """The wheels of `pip download`, fetched unless an earlier run has done it to the end."""
    done = folder / "done"
    if not done.exists():
        argv = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:"]
        subprocess.run([*argv, "--dest", str(folder), *words], check=True)
        done.touch()
    return sorted(folder.glob("*.whl"))
