#!/usr/bin/env python3
"""Measures `gpusetup node-check` from its start to its end: a healthy node, and one that hangs.

    scripts/measure_node_check.py --runs 200

The driver is the stand-in of the tests with eight GPUs. Hung are NVML and the kernel's log (a
`dmesg` and a `journalctl` that never answer). Beside the wall clock stand the CPU seconds of the
command with its children: on a loaded machine only these are comparable.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
GPUS = 8
SLEEPS = "#!/bin/sh\nexec sleep 60\n"


def environment(folder: Path, hung: bool) -> Mapping[str, str]:
    """A node of the stand-in, as environment variables."""
    import standin

    state = folder / "state"
    more: dict[str, object] = {"nvml.init": "@hang"} if hung else {}
    gpu = {**standin.A100, "processes": ""}
    state.write_text(standin.state((gpu,) * GPUS, **more), encoding="utf-8")
    for name in ("dmesg", "journalctl") if hung else ():
        (folder / name).write_text(SLEEPS, encoding="utf-8")
        (folder / name).chmod(0o755)
    return {
        **os.environ,
        "GPUSETUP_STANDIN": str(state),
        "LD_LIBRARY_PATH": str(standin.libraries()),
        "PATH": f"{folder}:{os.environ['PATH']}",
    }


def measured(runs: int, hung: bool) -> tuple[list[float], list[float], set[int]]:
    """Wall seconds and CPU seconds of each run, and the exit codes."""
    wall, cpu, codes = [], [], set()
    with tempfile.TemporaryDirectory() as folder:
        place = environment(Path(folder), hung)
        for _ in range(runs):
            before, began = _children(), time.perf_counter()
            said = subprocess.run(
                (sys.executable, "-I", "-m", "gpusetup", "node-check"),
                env=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
            )  # fmt: skip
            wall.append(time.perf_counter() - began)
            cpu.append(_children() - before)
            codes.add(said.returncode)
    return wall, cpu, codes


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def p99(values: list[float]) -> float:
    """The value that one in a hundred passes.

    >>> p99([float(number) for number in range(1, 101)])
    99.0
    """
    return sorted(values)[max(0, -(-99 * len(values) // 100) - 1)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--hung-runs", type=int, default=20)
    options = parser.parse_args()
    good = True
    for hung, runs, most, code in (
        (False, options.runs, 1.0, 0),
        (True, options.hung_runs, 5.0, 1),
    ):
        wall, cpu, codes = measured(runs, hung)
        held = p99(wall) < most and codes == {code}
        good = good and held
        print(
            f"{'all hung' if hung else 'healthy'}: {runs} runs, exit {sorted(codes)}, "
            f"wall median {statistics.median(wall):.2f} p99 {p99(wall):.2f} s (limit {most:g}), "
            f"CPU median {statistics.median(cpu):.2f} p99 {p99(cpu):.2f} s"
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
