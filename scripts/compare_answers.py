#!/usr/bin/env python3
"""Are the answers the same? Writes those of doctor and resolve, and compares two such files.

    python scripts/compare_answers.py write now.jsonl ../reports        this checkout
    PYTHONPATH=/other/checkout python scripts/compare_answers.py write before.jsonl ../reports
    python scripts/compare_answers.py write now.jsonl --again before.jsonl
    python scripts/compare_answers.py compare before.jsonl now.jsonl --without snapshot

What is answered: every machine of tests/ and of the package, a grid of described machines, the
composed variants of tests/closing, the messages of tests/, and the texts of the folders named.
A line of the file holds the material itself, so `--again` asks another version the same questions,
with whatever layout of modules and of tests that version has. `compare` exits 1 on a difference.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import io
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from multiprocessing import Pool
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
OTHER = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
sys.path[:] = [*OTHER, str(HERE), *(e for e in sys.path if Path(e or ".").resolve() != HERE)]

import gpusetup  # noqa: E402
from gpusetup.cli import main as command  # noqa: E402

CHECKOUT = Path(gpusetup.__file__).resolve().parent.parent
TESTS = CHECKOUT / "tests"
sys.path.insert(1, str(TESTS))

Given = tuple[str, str, str]
"""An id, `snapshot` or `report`, and the text."""

GPUS = ((), ("T4",), ("Tesla K80",), ("GTX 1080 Ti",), ("V100",), ("A100",), ("RTX 4090",),
        ("H100",), ("RTX 5090",), ("GTX 1080 Ti", "RTX 5090"))  # fmt: skip
DRIVERS = (None, "450.80.02", "525.60.13", "580.95.05")
PYTHONS = ("3.8", "3.11", "3.13t", "3.15")
SYSTEMS = (("linux", "x86_64"), ("linux", "aarch64"), ("windows", "x86_64"))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    actions = parser.add_subparsers(dest="action", required=True)
    write = actions.add_parser("write", help="answer everything")
    write.add_argument("file")
    write.add_argument("folders", nargs="*", help="texts, or JSON files with a `report`")
    write.add_argument("--again", metavar="FILE", help="the material of a file written before")
    write.add_argument("--jobs", type=int, default=2, metavar="N")
    compare = actions.add_parser("compare", help="list what differs")
    compare.add_argument("before")
    compare.add_argument("now")
    compare.add_argument("--without", action="append", default=[], metavar="KEY",
                         help="leave out a key wherever it stands; repeatable")  # fmt: skip
    compare.add_argument("--most", type=int, default=20, metavar="N", help="diffs shown (20)")
    options = parser.parse_args()
    if options.action == "compare":
        return differences(options.before, options.now, set(options.without), options.most)
    material = kept(options.again) if options.again else gathered(options.folders)
    return write_answers(Path(options.file).resolve(), list(material), options.jobs)


# --- what is asked ------------------------------------------------------------------------------


def gathered(folders: Iterable[str]) -> Iterator[Given]:
    for path in sorted((TESTS / "machines").glob("*/snapshot.json")):
        yield f"machine/{path.parent.name}", "snapshot", path.read_text(encoding="utf-8")
    for path in sorted((CHECKOUT / "gpusetup" / "data" / "machines").glob("*.json")):
        yield f"example/{path.stem}", "snapshot", path.read_text(encoding="utf-8")
    for name, snapshot in itertools.chain(composed(), on_a_grid()):
        yield name, "snapshot", dump(snapshot)
    for number, (cause, text) in enumerate(the("report_messages").MESSAGES):
        yield f"message/{number}-{cause}", "report", text
    for folder in folders:
        yield from texts(Path(folder))


def composed() -> Iterator[tuple[str, Any]]:
    for name, world in dict(the("closing.variants").variants()).items():
        yield f"composed/{name}", world.snapshot


def on_a_grid() -> Iterator[tuple[str, Any]]:
    machine = the("described_machines").machine
    for gpus, driver, python, (os_, on) in itertools.product(GPUS, DRIVERS, PYTHONS, SYSTEMS):
        name = f"described/{'+'.join(gpus) or 'none'} {driver} {python} {os_} {on}"
        yield name, machine(*gpus, driver=driver, python=python, os=os_, on=on)


def texts(folder: Path) -> Iterator[Given]:
    for path in sorted(folder.iterdir()):
        if path.suffix == ".json":
            text = json.loads(path.read_text(encoding="utf-8")).get("report")
            yield f"{folder.name}/{path.stem}", "report", text
        elif path.suffix in (".txt", ".log"):
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
            yield f"{folder.name}/{path.stem}", "report", text


def kept(file: str) -> Iterator[Given]:
    for line in Path(file).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        yield row["id"], row["kind"], row["given"]


def the(name: str) -> Any:
    return importlib.import_module(name)


def dump(snapshot: Any) -> str:
    for home in ("gpusetup.probe.saved", "gpusetup.model.saved", "gpusetup.snapshot"):
        with contextlib.suppress(ImportError):
            return str(the(home).dump_snapshot(snapshot))
    raise SystemExit("no module of this checkout writes a snapshot")


# --- what is answered ---------------------------------------------------------------------------


def write_answers(file: Path, material: list[Given], jobs: int) -> int:
    with tempfile.TemporaryDirectory() as folder, Pool(jobs, _settle, (folder,)) as pool:
        rows = pool.imap(answered, material, chunksize=8)
        lines = [json.dumps(row, sort_keys=True) + "\n" for row in rows]
    file.write_text("".join(lines), encoding="utf-8")
    print(f"{len(material)} answers of {CHECKOUT}")
    return 0


def _settle(folder: str) -> None:
    # Each process has a folder of its own; the file's name may stand in an answer, so it is fixed.
    own = Path(folder) / str(os.getpid())
    own.mkdir()
    os.chdir(own)


def answered(given: Given) -> dict[str, Any]:
    name, kind, text = given
    file = Path("given.json" if kind == "snapshot" else "given.txt")
    file.write_bytes(text.encode("utf-8", errors="surrogateescape"))
    row = {"id": name, "kind": kind, "given": text}
    if kind == "report":
        return {**row, "doctor": asked("doctor", "--report", file.name)}
    machine = ("--from", file.name)
    return {**row, "doctor": asked("doctor", *machine), "resolve": asked("resolve", *machine)}


def asked(*words: str) -> Any:
    """What a command answers: its JSON, or what it printed, with the exit code."""
    out, talk = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(talk):
        try:
            code = command([*words, "--json"])
        except SystemExit as ended:
            code = int(ended.code or 0)
    try:
        return {"exit": code, "answer": json.loads(out.getvalue())}
    except ValueError:
        return {"exit": code, "printed": out.getvalue() + talk.getvalue()}


# --- what differs -------------------------------------------------------------------------------


def differences(before: str, now: str, without: set[str], most: int) -> int:
    old, new = answers(before, without), answers(now, without)
    unlike = [name for name in old if name in new and old[name] != new[name]]
    for name in unlike[:most]:
        print(f"=== {name}")
        print("\n".join(_diff(old[name], new[name])))
    for name in sorted(old.keys() ^ new.keys()):
        print(f"=== {name}: only in {before if name in old else now}")
    for name in unlike[most:]:
        print(f"=== {name}: differs")
    print(f"{len(unlike)} of {len(old.keys() & new.keys())} answers differ")
    return 1 if unlike or old.keys() ^ new.keys() else 0


def answers(file: str, without: set[str]) -> dict[str, Any]:
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    rows = (json.loads(line) for line in lines)
    return {
        row["id"]: _pruned({key: row.get(key) for key in ("doctor", "resolve")}, without)
        for row in rows
    }


def _pruned(value: Any, without: set[str]) -> Any:
    if isinstance(value, dict):
        return {k: _pruned(v, without) for k, v in value.items() if k not in without}
    return [_pruned(each, without) for each in value] if isinstance(value, list) else value


def _diff(old: Any, new: Any) -> list[str]:
    """
    >>> _diff({"a": [1, 2]}, {"a": [1, 3]})
    ['-a.1: 2', '+a.1: 3']
    """
    lines = difflib.unified_diff(list(_flat(old)), list(_flat(new)), n=0, lineterm="")
    return [line for line in lines if line[:2] not in ("--", "++", "@@")]


def _flat(value: Any, path: str = "") -> Iterator[str]:
    """One line a leaf, with the way to it."""
    if isinstance(value, (dict, list)) and value:
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, each in pairs:
            yield from _flat(each, f"{path}.{key}" if path else str(key))
    else:
        yield f"{path}: {json.dumps(value, ensure_ascii=False)}"


if __name__ == "__main__":
    sys.exit(main())
