"""How long does `gpusetup resolve PACKAGE` take beside bare uv with the same answer?

    python scripts/bench_together.py                       warm caches, 10 pairs for each package
    python scripts/bench_together.py --only vllm -n 20
    python scripts/bench_together.py --cold                caches of neither, once for each package

Each row times the two in turn (A B A B ...) as whole processes and prints the median of the
pairwise ratios, which a noisy machine disturbs less than either time. `kept`: both caches are warm,
as at the second question. `asked`: only uv's cache is, and ours asks uv anew. `cold`: neither is;
uv's own time for the questions that ours puts is beside it. The default index of uv is asked.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench import PYTHON, Row, cost, gpusetup

from gpusetup.install.settings.environment import uv_program

MOST = 1.3
HERE = (
    *("--gpu", "A100 80GB", "--driver", "580.95.05", "--os", "linux", "--machine", "x86_64"),
    *("--python", "3.12", "--glibc", "2.35"),
)
PLATFORM = "x86_64-manylinux_2_35"
PACKAGES = ("vllm", "torchcodec", "xformers", "torchao", "bitsandbytes", "onnxruntime-gpu")


class Side(NamedTuple):
    """One of the two: what is run, where, and what is emptied before each run."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    emptied: tuple[Path, ...] = ()

    def seconds(self) -> float:
        for folder in self.emptied:
            shutil.rmtree(folder, ignore_errors=True)
        return cost(self.argv, environment=dict(self.environment)).seconds


def answer_of(package: str, environment: Mapping[str, str]) -> dict[str, Any]:
    said = subprocess.run(
        gpusetup("resolve", package, *HERE, "--json"),
        env=dict(environment),
        capture_output=True,
        text=True,
        check=False,
    )
    found: dict[str, Any] = json.loads(said.stdout or "{}")
    return found


def bare(package: str, torch: str, folder: Path) -> tuple[str, ...]:
    """uv alone, told the torch that our answer has: its answer is checked to be the same."""
    asked = folder / f"{package.partition('[')[0]}.txt"
    asked.write_text(f"{package}\ntorch=={torch.partition('+')[0]}\n", encoding="utf-8")
    return (
        *(uv_program(), "pip", "compile", "--format", "pylock.toml", "--no-build", "--quiet"),
        *("--python-version", "3.12", "--python", PYTHON, "--python-platform", PLATFORM),
        str(asked),
    )


def is_the_same(argv: Sequence[str], answer: Mapping[str, Any], package: str) -> bool:
    said = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    name = package.partition("[")[0]
    mine = next((row["version"] for row in answer["packages"] if row["name"] == name), "")
    return f'name = "{name}"\nversion = "{mine}"' in said


def rows(packages: Sequence[str], runs: int, folder: Path, *, cold: bool) -> Iterator[Row]:
    ours = {**os.environ, "GPUSETUP_CACHE": str(folder / "ours")}
    for package in packages:
        answer = answer_of(package, ours)
        if not answer.get("packages"):
            yield Row(name=package, measured="no answer", promise="an answer", kept=False)
            continue
        argv = bare(package, answer["torch"], folder)
        if not is_the_same(argv, answer, package):
            yield Row(name=package, measured="uv says another", promise="the same", kept=False)
            continue
        words = gpusetup("resolve", package, *HERE, "--json")
        if cold:
            yield _cold(package, words, argv, ours, folder)
            continue
        uv = Side(argv, os.environ)
        yield _row(f"{package}, kept", Side(words, ours), uv, runs)
        yield _row(f"{package}, asked", Side(words, ours, (folder / "ours/together",)), uv, runs)


def _row(name: str, ours: Side, uv: Side, runs: int, most: float = MOST) -> Row:
    ours.seconds(), uv.seconds()
    pairs = [(ours.seconds(), uv.seconds()) for _ in range(runs)]
    mine, theirs = median(a for a, _ in pairs), median(b for _, b in pairs)
    ratio = median(a / b for a, b in pairs)
    measured = f"{mine:.2f} s against {theirs:.2f} s: {ratio:.2f} times"
    return Row(name=name, measured=measured, promise=f"at most {most:g} times", kept=ratio <= most)


def _cold(
    package: str, words: Sequence[str], argv: Sequence[str], ours: Mapping[str, str], folder: Path
) -> Row:
    """Ours with no cache at all, against uv's own time for the same questions, one by one."""
    caches = (folder / "uv", folder / "ours/together")
    fresh = {"UV_CACHE_DIR": str(caches[0])}
    alone = {**ours, **fresh}
    mine = Side(words, alone, caches).seconds()
    theirs = Side(argv, {**os.environ, **fresh}, caches).seconds()
    measured = f"{mine:.1f} s; bare uv with the answer {theirs:.1f} s: {mine / theirs:.2f} times"
    return Row(name=f"{package}, cold", measured=measured, promise="told", kept=True)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=PACKAGES, metavar="PACKAGE")
    parser.add_argument("-n", "--runs", type=int, default=10)
    parser.add_argument("--cold", action="store_true")
    options = parser.parse_args(words)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for row in rows(options.only, options.runs, Path(folder), cold=options.cold):
            found.append(row)
            mark = "ok  " if row.kept else "OVER"
            print(f"{mark} {row.name:26} {row.measured}  ({row.promise})", flush=True)
    return 0 if all(row.kept for row in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
