"""The bench of `gpusetup install`: beside bare uv and pip, with the real CPU wheel of torch.

The wheels are fetched once by `pip download`; the indexes are ours, on loopback, so that the
network is the same for all. The environment holds the same wheel relabelled as another version.
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
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "scripts")]

from chaos_install import clean_environment, fetched, relabelled  # noqa: E402

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
        for name in ("uv-cache", "cache", "bare"):
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
        """uv by itself, with a cache of its own."""
        words = ("--cache-dir", str(self.world.folder / "bare"), *self.sources())
        python = ("--python", str(self.env / "bin/python"))
        return [self.uv, "pip", "install", *python, *words, f"torch=={TORCH}+cpu"]

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
        yield from _changes(bench, runs)


def _changes(bench: Bench, runs: int) -> Iterator[tuple[str, str, str, bool]]:
    cold, warm, undos, pips, peaks = [], [], [], [], []
    for _ in range(runs):
        bench.cold()
        for pairs in (cold, warm):
            bench.former()
            mine, said = bench.timed(bench.ours("--no-verify"))
            if pairs is warm:
                peaks.append(int(re.findall(r"peak (\d+)", said)[-1]) / 1024)
                undo = [sys.executable, "-m", "gpusetup", "install", "--python", str(bench.env)]
                undos.append(bench.timed([*undo, "--undo", "--yes"])[0])
            bench.former()
            pairs.append((mine, bench.timed(bench.bare())[0]))
        bench.new()
        pips.append(bench.timed(bench.pip())[0])
    for name, pairs in (("an empty cache", cold), ("a filled cache", warm)):
        mine, bare = (statistics.median(one) for one in zip(*pairs, strict=True))
        measured = f"{mine:.1f} s against {bare:.1f} s"
        yield f"install / uv, {name}", measured, "1.2 times + 1 s", mine <= 1.2 * bare + 1
    undo_time, peak = statistics.median(undos), statistics.median(peaks)
    yield "install --undo", f"{undo_time:.2f} s", "under 1 s", undo_time < 1
    yield "memory", f"{peak:.0f} MiB", "under 120 MiB", peak < 120
    yield "pip install", f"{statistics.median(pips):.1f} s", "told apart", True
