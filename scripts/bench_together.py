"""How long does `gpusetup resolve PACKAGE` take beside bare uv with the same answer?

    python scripts/bench_together.py                       warm caches, 10 pairs for each package
    python scripts/bench_together.py --only vllm -n 20
    python scripts/bench_together.py --cold -n 3           no cache at all

Each row times the two in turn (A B A B ...) as whole processes and prints the median of the
pairwise ratios, which a noisy machine disturbs less than either time. `kept`: both caches are warm,
as at the second question. `asked`: only uv's cache is, and ours asks uv anew. `cold`: neither is;
beside it stands the sum of uv's own times for the questions that ours puts, which were written down
in a run before. The default index of uv is asked.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
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
            yield _cold(package, words, ours, folder, runs)
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


RECORDING = """
import json, shutil, sys
from pathlib import Path
from gpusetup.cli import main
from gpusetup.install.joint import ask
place, run = Path(sys.argv.pop(1)), ask.run
def recorded(argv, *, timeout, environment, stdin):
    kept = place / str(len(list(place.iterdir())))
    shutil.copytree(argv[argv.index("--find-links") + 1], kept)
    moved = [word.replace(argv[argv.index("--find-links") + 1], str(kept)) for word in argv]
    (kept / "question.json").write_text(json.dumps([moved, dict(environment), stdin]))
    return run(argv, timeout=timeout, environment=environment, stdin=stdin)
ask.run = recorded
main(sys.argv[1:])
"""
"""Ours, with every question to uv written down and its folder of stand-ins kept."""


def _questions(words: Sequence[str], ours: Mapping[str, str], place: Path) -> list[Path]:
    """Each question that ours puts to uv, as a file."""
    place.mkdir()
    argv = (PYTHON, "-c", RECORDING, str(place), *words[words.index("resolve") :])
    subprocess.run(argv, env=dict(ours), capture_output=True, check=False)
    return sorted(place.glob("*/question.json"), key=lambda one: int(one.parent.name))


def _alone(file: Path, cache: Path) -> float:
    """The seconds of uv for one question, with a cache."""
    argv, environment, asked = json.loads(file.read_text(encoding="utf-8"))
    bare = {k: v for k, v in environment.items() if k not in TRUST}
    own = {k: os.environ[k] for k in TRUST if k in os.environ}
    began = time.monotonic()
    said = subprocess.run(
        argv,
        env={**bare, **own, "UV_CACHE_DIR": str(cache)},
        input=asked,
        text=True,
        capture_output=True,
        check=False,
    )
    took = time.monotonic() - began
    if said.returncode and "No solution found" not in said.stderr:
        raise SystemExit(f"uv alone failed: {said.stderr}")
    return took


TRUST = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""They name a file that was ours and is gone."""


def _cold(
    package: str, words: Sequence[str], ours: Mapping[str, str], folder: Path, runs: int
) -> Row:
    """Ours with no cache at all, against uv's own time for the same questions, one by one: with one
    cache that is empty before the first, and with an empty one for each."""
    cache, place = folder / "uv", folder / f"questions-{package}"
    emptied, fresh = (cache, folder / "ours/together"), {**ours, "UV_CACHE_DIR": str(cache)}
    shutil.rmtree(folder / "ours/together", ignore_errors=True)
    asked = _questions(words, fresh, place)
    pairs = []
    for _ in range(runs):
        mine = Side(words, fresh, emptied).seconds()
        shutil.rmtree(cache, ignore_errors=True)
        one_cache = sum(_alone(file, cache) for file in asked)
        pairs.append((mine, one_cache, sum(_emptied(file, cache) for file in asked)))
    mine, shared, apart = (median(column) for column in zip(*pairs, strict=True))
    ratio = median(a / b for a, b, _ in pairs)
    measured = (
        f"{mine:.1f} s; uv's {len(asked)} questions {shared:.1f} s with one cache, {apart:.1f} s "
        f"with an empty one each: {ratio:.2f} times the first"
    )
    return Row(name=f"{package}, cold", measured=measured, promise="at most 1", kept=ratio <= 1)


def _emptied(file: Path, cache: Path) -> float:
    shutil.rmtree(cache, ignore_errors=True)
    return _alone(file, cache)


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
