"""How long does `gpusetup resolve PACKAGE` take beside bare uv with the same answer?

    python scripts/bench_together.py                       warm caches, 10 pairs for each package
    python scripts/bench_together.py --only vllm -n 20
    python scripts/bench_together.py --cold -n 3           no cache at all

Each row times the two in turn (A B B A ...) as whole processes and prints the median of the
pairwise ratios, which a noisy machine disturbs less than either time. `kept`: both caches are warm,
as at the second question. `asked`: only uv's cache is, and ours asks uv anew. The default index of
uv is asked.

`cold`: neither side has a cache. Ours is one command. uv's side is the sum of what a person has to
ask bare uv to know as much: each package alone (its newest release), then all of them with each
torch that fits the machine, of each minor the newest first, until the one of the answer. Each of
these questions has an empty cache of its own; the sum with one cache for all is printed beside it.

Both ask the same places: pip's configuration, which ours reads and bare uv does not, is left out.
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

from gpusetup.catalog.companion_table import companion_table
from gpusetup.catalog.file import load_catalog
from gpusetup.install.joint.kept import digest
from gpusetup.install.joint.words import name_of, projects_of
from gpusetup.install.settings.environment import uv_program
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Request
from gpusetup.model.versions import parsed
from gpusetup.resolver.described import Description, described
from gpusetup.resolver.joint import Asked, candidates

MOST = 1.3
DESCRIPTION = Description(
    gpus=("A100 80GB",),
    driver="580.95.05",
    os="linux",
    machine="x86_64",
    python="3.12",
    glibc="2.35",
)
HERE = (
    *("--gpu", "A100 80GB", "--driver", "580.95.05", "--os", "linux", "--machine", "x86_64"),
    *("--python", "3.12", "--glibc", "2.35"),
)
PLATFORM = "x86_64-manylinux_2_35"
PLACES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CERT")
BOTH = {
    **{name: value for name, value in os.environ.items() if name not in PLACES},
    "PIP_CONFIG_FILE": os.devnull,
}
"""The environment of both."""
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
    return question((package, f"torch=={torch.partition('+')[0]}"), folder)


def question(words: Sequence[str], folder: Path) -> tuple[str, ...]:
    """uv alone, asked for some requirements."""
    asked = folder / f"{digest(words)}.txt"
    asked.write_text("\n".join((*words, "")), encoding="utf-8")
    return (
        *(uv_program(), "pip", "compile", "--format", "pylock.toml", "--no-build", "--quiet"),
        *("--python-version", "3.12", "--python", PYTHON, "--python-platform", PLATFORM),
        str(asked),
    )


def by_hand(package: str, torch: str, folder: Path) -> list[tuple[str, ...]]:
    """What bare uv has to be asked to know as much as our answer says."""
    asked = [(package,), *((package, f"torch=={one}") for one in tried(package, torch))]
    return [question(words, folder) for words in asked]


def tried(package: str, torch: str) -> list[str]:
    """The torches that fit, of each minor the newest, until that of the answer."""
    catalog = load_catalog()
    machine = described(Snapshot(), DESCRIPTION, catalog)
    projects = projects_of((name_of(package),), companion_table())
    builds = candidates(machine, Request(), catalog, Asked(words=(package,), projects=projects))
    minors: dict[str, str] = {}
    for build in builds:
        minors.setdefault(build.torch.rpartition(".")[0], build.torch)
    own = torch.partition("+")[0]
    newer = [one for one in minors.values() if parsed(one) > parsed(own)]
    return [*newer, own]


def is_the_same(argv: Sequence[str], answer: Mapping[str, Any], package: str) -> bool:
    said = subprocess.run(argv, env=BOTH, capture_output=True, text=True, check=False).stdout
    name = package.partition("[")[0]
    mine = next((row["version"] for row in answer["packages"] if row["name"] == name), "")
    return f'name = "{name}"\nversion = "{mine}"' in said


def rows(packages: Sequence[str], runs: int, folder: Path, *, cold: bool) -> Iterator[Row]:
    ours = {**BOTH, "GPUSETUP_CACHE": str(folder / "ours")}
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
            yield _cold(package, answer["torch"], words, ours, folder, runs)
            continue
        uv = Side(argv, BOTH)
        yield _row(f"{package}, kept", Side(words, ours), uv, runs)
        yield _row(f"{package}, asked", Side(words, ours, (folder / "ours/together",)), uv, runs)


def _row(name: str, ours: Side, uv: Side, runs: int, most: float = MOST) -> Row:
    ours.seconds(), uv.seconds()
    pairs = []
    for run in range(runs):
        took = [one.seconds() for one in ((ours, uv) if run % 2 else (uv, ours))]
        pairs.append((took[0], took[1]) if run % 2 else (took[1], took[0]))
    mine, theirs = median(a for a, _ in pairs), median(b for _, b in pairs)
    ratio = median(a / b for a, b in pairs)
    measured = f"{mine:.2f} s against {theirs:.2f} s: {ratio:.2f} times"
    return Row(name=name, measured=measured, promise=f"at most {most:g} times", kept=ratio <= most)


def _cold(
    package: str, torch: str, words: Sequence[str], ours: Mapping[str, str], folder: Path, runs: int
) -> Row:
    """Ours with no cache at all, against the sum of uv's own questions."""
    cache = folder / "uv"
    fresh = {**ours, "UV_CACHE_DIR": str(cache)}
    mine = Side(words, fresh, (cache, Path(ours["GPUSETUP_CACHE"])))
    asked = by_hand(package, torch, folder)
    apart = [Side(argv, {**BOTH, "UV_CACHE_DIR": str(cache)}, (cache,)) for argv in asked]
    shared = [one._replace(emptied=()) for one in apart]
    rounds = []
    for run in range(runs):
        took = [*map(_seconds, ((mine,), apart) if run % 2 else (apart, (mine,)))]
        shutil.rmtree(cache, ignore_errors=True)
        rounds.append((*(took if run % 2 else reversed(took)), _seconds(shared)))
    own, theirs, one_cache = (median(column) for column in zip(*rounds, strict=True))
    ratio = median(a / b for a, b, _ in rounds)
    measured = (
        f"{own:.1f} s; uv's {len(asked)} questions {theirs:.1f} s, {one_cache:.1f} s with one "
        f"cache: {ratio:.2f} times the first"
    )
    return Row(name=f"{package}, cold", measured=measured, promise="at most 1", kept=ratio <= 1)


def _seconds(sides: Sequence[Side]) -> float:
    return sum(one.seconds() for one in sides)


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
