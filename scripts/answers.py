#!/usr/bin/env python3
"""Are the answers still the second edition's? Asks it and this checkout the same questions.

    python scripts/answers.py ../shared/reports ../shared/reports2    all questions, some minutes
    python scripts/answers.py --only resolve --most 5                 one kind of them
    python scripts/answers.py --show 'doctor cause: ok -> unknown'    each answer of one class

The second edition is the commit below: its wheel and its tests are built once into a cache folder,
and its tests give the questions, so neither can drift with this checkout. Each side answers in one
process. An answer is reduced to facts (exit code, cause, findings, build, commands, numbers);
facts that differ are counted by class. `answers_judged.json` says of each class whether the new
answer is better, neutral or worse, why, and of which questions it is worse nevertheless. Exit 1 if
a class has no judgement, or if too many answers are worse: 0.5 % of all, and none in an exit code
or in the torch that is installed.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

SECOND_EDITION = "6bc9d04"
ROOT = Path(__file__).resolve().parent.parent
JUDGED = ROOT / "tests" / "answers_judged.json"
WORSE_AT_MOST = 0.005
NEVER_WORSE = ("exit:", "install build:", "resolve build:")
"""What no class that holds a worse answer may be about."""

GPUS = (
    (), ("T4",), ("Tesla K80",), ("GTX 1080 Ti",), ("V100",), ("A100",), ("RTX 3050 Laptop",),
    ("RTX 4090",), ("H100",), ("RTX 5090",), ("GB10",), ("GTX 1080 Ti", "RTX 5090"),
)  # fmt: skip
DRIVERS = ("", "450.80.02", "525.60.13", "535.183.01", "580.95.05")
PYTHONS = ("3.8", "3.11", "3.13", "3.15")
SYSTEMS = ("linux x86_64", "linux aarch64", "windows x86_64", "macos aarch64")
PLAN_WORDS = (
    "amp", "checkpointing", "dtype", "lora", "optimizer", "quantize",
    "size", "sp", "strategy",
)  # fmt: skip
"""Settings of a published run that are options of `plan`, by the same name or by these."""
PLAN_LEFT = (
    "adapter_dtype", "attention", "compile", "encoders", "fused_kernels", "gradient_dtype",
    "kept_inputs", "lora_dropout", "lora_targets", "loss", "reentrant",
    "reshard", "selective", "sequence_parallel", "shard", "step", "upcast_rest",
)  # fmt: skip
"""Settings that no option says any more: both editions are asked without them."""
PLAN_OPTIONS = {"accumulation": "accumulate", "tensor_parallel": "tp", "pipeline_parallel": "pp",
                "context_parallel": "cp"}  # fmt: skip
PLAN_SAID = {("amp", "no"): ["--amp", "none"], ("accumulate", "yes"): ["--accumulate", "2"],
             ("accumulate", "no"): ["--accumulate", "1"],
             ("checkpointing", "no"): ["--no-checkpointing"]}  # fmt: skip
COMMANDS = (
    "doctor", "resolve", "install", "verify", "plan", "tune", "monitor", "fleet", "snapshot",
    "guard", "mcp", "completion",
)  # fmt: skip
WIDTHS = ("80", "120")
MODEL = ("plan", "--model", "qwen3-4b", "--context", "4096")
NEW_WORDS: dict[str, str] = {"--cuda": "--backend"}
"""Options of the second edition that have another name now."""

Question = dict[str, Any]
"""`id`; `words`, the command; `files` to write first, by name; `stdin`."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path, help="JSON files with a `report`")
    parser.add_argument("--only", action="append", default=[], metavar="COMMAND")
    parser.add_argument("--most", type=int, default=3, metavar="N", help="examples of a class (3)")
    parser.add_argument("--show", metavar="CLASS", help="each answer of this class, in full")
    parser.add_argument("--gather", metavar="FILE", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--reply", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.gather:
        return write(options.gather, gathered())
    if options.reply:
        return write(options.reply[1], map(answered, read(options.reply[0])))
    frozen = second_edition()
    asked = [*read(frozen / "questions.jsonl"), *reports(options.folders)]
    asked = [one for one in asked if not options.only or one["words"][0] in options.only]
    return compared(asked, *replies(asked, frozen), options.most, options.show)


def read(file: Path) -> Iterator[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def write(file: Path, rows: Iterable[dict[str, Any]]) -> int:
    with file.open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)
    return 0


# --- the two sides ------------------------------------------------------------------------------


def second_edition() -> Path:
    """The folder with its wheel's content and tests, made when it is missing, and the questions."""
    import platformdirs

    folder = platformdirs.user_cache_path("gpusetup") / "answers" / SECOND_EDITION
    if not (folder / "site").exists():
        build(folder)
    made = folder / "questions.new"
    finish(python(folder / "site", folder / "tree" / "tests", words=("--gather", made)))
    made.rename(folder / "questions.jsonl")
    return folder


def build(folder: Path) -> None:
    (tree := folder / "tree").mkdir(parents=True, exist_ok=True)
    packed = subprocess.run(["git", "archive", SECOND_EDITION], cwd=ROOT, capture_output=True,
                            check=True)  # fmt: skip
    subprocess.run(["tar", "-x", "-C", tree], input=packed.stdout, check=True)
    wheel = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, tree)
    subprocess.run([sys.executable, *wheel], check=True)
    with zipfile.ZipFile(next(folder.glob("gpusetup-*.whl"))) as packed_site:
        packed_site.extractall(folder / "site")


def finish(child: subprocess.Popen[bytes]) -> None:
    if code := child.wait():
        raise SystemExit(f"{child.args!r} ended with {code}")


def python(*path: Path, words: Iterable[Path | str]) -> subprocess.Popen[bytes]:
    """This script in a process of its own, with another gpusetup in front."""
    environment = {name: value for name, value in os.environ.items() if name[:6] != "PYTHON"}
    environment |= {"PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONHASHSEED": "0"}
    environment |= {"COLUMNS": "100", "NO_COLOR": "1"}
    return subprocess.Popen([sys.executable, __file__, *words], env=environment)


def replies(asked: list[Question], frozen: Path) -> tuple[list[Any], list[Any]]:
    with tempfile.TemporaryDirectory() as folder:
        questions, old, new = (Path(folder) / name for name in ("asked", "old", "new"))
        write(questions, asked)
        children = (
            python(frozen / "site", words=("--reply", questions, old)),
            python(ROOT, words=("--reply", questions, new)),
        )
        for child in children:
            finish(child)
        return list(read(old)), list(read(new))


class Screen(io.StringIO):
    """What a command writes when a terminal of `COLUMNS` columns shows it."""

    def isatty(self) -> bool:
        return True


def answered(question: Question) -> dict[str, Any]:
    """Exit code and output of one command, in an empty folder that holds its files."""
    from gpusetup.cli import main as command

    here = Path(__file__).resolve()
    renamed = NEW_WORDS if ROOT in Path(sys.modules["gpusetup"].__file__ or here).parents else {}
    words = [renamed.get(word, word) for word in question["words"]]
    out, talk = Screen() if "columns" in question else io.StringIO(), io.StringIO()
    os.environ["COLUMNS"] = question.get("columns", "100")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, text in question.get("files", {}).items():
            Path(name).write_text(text, encoding="utf-8", errors="surrogateescape")
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(talk):
            try:
                code = command(words)
            except SystemExit as ended:
                code = int(ended.code or 0)
    return {"exit": code, "out": out.getvalue(), "talk": talk.getvalue()[-2000:],
            "columns": int(os.environ["COLUMNS"])}  # fmt: skip


# --- what is asked ------------------------------------------------------------------------------


def gathered() -> Iterator[Question]:
    """The questions that the tests of the gpusetup in front hold."""
    import gpusetup

    site = Path(gpusetup.__file__).resolve().parent
    tests = site.parent.parent / "tree" / "tests"
    for path in sorted((site / "data" / "machines").glob("*.json")):
        yield from of_a_machine(f"example/{path.stem}", path.read_text(encoding="utf-8"))
    for path in sorted((tests / "machines").glob("*/snapshot.json")):
        yield from of_a_machine(f"machine/{path.parent.name}", path.read_text(encoding="utf-8"))
    yield from composed_machines()
    yield from hosts()
    yield from (report(name, text) for name, text in texts())
    yield from plans(tests)
    yield from runs()
    yield from configs(tests)
    for width, command in itertools.product(WIDTHS, COMMANDS):
        yield question(f"--help at {width}", command, "--help", columns=width)


def of_a_machine(name: str, text: str) -> Iterator[Question]:
    files, machine = {"machine.json": text}, ("--from", "machine.json")
    for words in (("doctor",), ("resolve",), ("install", "--dry-run", "--yes")):
        yield question(name, *words, *machine, "--json", files=files)
    files["config.yaml"] = "batch_size: 32\nnum_workers: 2\namp: false\n"
    screens = (("doctor",), ("resolve",), ("tune", "config.yaml"), MODEL)
    for width, (command, *others) in itertools.product(WIDTHS, screens):
        yield question(f"{name} at {width}", command, *others, *machine,
                       files=files, columns=width)  # fmt: skip


def question(name: str, *words: str, **others: Any) -> Question:
    return {"id": f"{words[0]} {name}", "words": list(words), **others}


def composed_machines() -> Iterator[Question]:
    from closing.variants import variants  # type: ignore[import-not-found, unused-ignore]

    from gpusetup.probe.saved import dump_snapshot

    for name, world in dict(variants()).items():
        files = {"machine.json": dump_snapshot(world.snapshot)}
        yield question(f"composed/{name}", "doctor", "--from", "machine.json", "--json",
                       files=files)  # fmt: skip


def hosts() -> Iterator[Question]:
    for gpus, driver, version, system in itertools.product(GPUS, DRIVERS, PYTHONS, SYSTEMS):
        family, machine = system.split()
        words = ["--os", family, "--machine", machine, "--python", version, "--glibc", "2.35"]
        words += [word for gpu in gpus for word in ("--gpu", gpu)]
        words += ["--driver", driver] if driver else []
        yield question(" ".join(words), "resolve", *words, "--json")


def texts() -> Iterator[tuple[str, str]]:
    from message_samples import samples  # type: ignore[import-not-found, unused-ignore]
    from report_classes import CLASSES  # type: ignore[import-not-found, unused-ignore]
    from report_messages import MESSAGES  # type: ignore[import-not-found, unused-ignore]

    for name, one in CLASSES.items():
        for number, text in enumerate((*one.variants, *one.neighbours)):
            yield f"class/{name} {number}", text
    for number, (cause, text) in enumerate(MESSAGES):
        yield f"message/{cause} {number}", text
    for number, sample in enumerate(samples()):
        if number % 3 == 0:
            yield f"sample/{number}", sample.text


def report(name: str, text: str) -> Question:
    return question(name, "doctor", "--report", "report.txt", "--json",
                    files={"report.txt": text})  # fmt: skip


def reports(folders: Iterable[Path]) -> Iterator[Question]:
    for path in (path for folder in folders for path in sorted(folder.glob("*.json"))):
        text = json.loads(path.read_text(encoding="utf-8"))["report"]
        yield report(f"{path.parent.name}/{path.stem}", text)


def plans(tests: Path) -> Iterator[Question]:
    """The published runs whose settings have options, and lengths and GPUs of four models."""
    import csv

    for path in sorted(tests.glob("plan_published*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            for number, row in enumerate(csv.DictReader(file)):
                if words := plan_words(row):
                    shape = tests.parent / row["model"]
                    files = {"model.json": shape.read_text()} if shape.is_file() else {}
                    yield question(f"{path.stem} {number}", "plan", *words, "--json", files=files)
    cells = tests.parent / "gpusetup" / "data" / "plan" / "cells.csv"
    yield question("the measured cells", "plan", "--cells", "cells.csv", "--predict", "--json",
                   files={"cells.csv": cells.read_text()})  # fmt: skip
    models, lengths = ("qwen3-1.7b", "qwen3-4b", "qwen3-8b", "qwen3-14b"), (4096, 20480, 81920)
    cards, numbers = ("A100 80GB", "RTX 4090", "H200"), ("1", "2", "4", "8")
    for model, length, card, gpus in itertools.product(models, lengths, cards, numbers):
        grid = ("--model", model, "--context", str(length), "--gpu", card, "--gpus", gpus)
        yield question(" ".join(grid), "plan", *grid, "--json")


def plan_words(row: dict[str, str]) -> list[str] | None:
    said = dict(pair.partition("=")[::2] for pair in row["how"].split())
    said = {name: value for name, value in said.items() if name not in PLAN_LEFT}
    if row.get("asked") or set(said) - {*PLAN_WORDS, *PLAN_OPTIONS}:
        return None
    size = row["model"].removeprefix("params=")
    model = "model.json" if size.endswith(".json") else size
    words = ["--params" if size != row["model"] else "--model", model, "--predict"]
    words += ["--gpu-mem", f"{row.get('card') or 80}GiB", "--gpus", row["gpus"]]
    words += ["--context", row["context"], "--trainer", row["trainer"]]
    words += ["--batch", str(int(row["batch"]) * int(row["gpus"]))]
    for name, value in said.items():
        option = PLAN_OPTIONS.get(name, name).replace("_", "-")
        words += PLAN_SAID.get((option, value)) or [f"--{option}", *([value] * (value != "yes"))]
    return words


def runs() -> Iterator[Question]:
    """A composed run of each kind that the monitor's tests know, as its own recording."""
    from monitor_kinds import KINDS, composed  # type: ignore[import-not-found, unused-ignore]

    from gpusetup.model.codec import to_json

    for name in KINDS:
        run = composed(name, 1)
        files = {"run.jsonl": "".join(to_json(sample) + "\n" for sample in run.samples)}
        replay = ("monitor", "--replay", "run.jsonl")
        yield question(name, *replay, "--json", files=files)
        for width in WIDTHS:
            yield question(f"{name} at {width}", *replay, files=files, columns=width)


def configs(tests: Path) -> Iterator[Question]:
    machines = ("rtx3050-laptop", "healthy", "h100-no-fabric-manager")
    folders = (tests / name for name in ("tune_shapes", "configs", "plan_configs"))
    for path in (path for folder in folders for path in sorted(folder.iterdir())):
        if path.is_file() and path.suffix not in (".md", ".csv"):
            files = {path.name: path.read_text(encoding="utf-8")}
            for machine in machines:
                words = ("tune", path.name, "--from", machine, "--json")
                yield question(f"{path.name} {machine}", *words, files=files)


# --- what differs -------------------------------------------------------------------------------


def facts(reply: dict[str, Any]) -> dict[str, Any]:
    """What a person acts upon."""
    exit_code = {"exit": reply["exit"]}
    try:
        document = json.loads(reply["out"].strip().rpartition("\n")[2] or reply["out"])
    except ValueError:
        # A line to paste is not wrapped.
        return {**exit_code, "too wide": [
            line for line in reply["out"].splitlines()
            if len(line) > reply["columns"] and not re.match(r"\s+(uv|pip|python|conda) ", line)
        ]}  # fmt: skip
    kind = str(document.get("schema", "")).removeprefix("gpusetup.").partition("/")[0]
    kind = kind.removesuffix("-cells")
    return {**exit_code, **FACTS.get(kind, lambda _: {})(document)}


def build_of(resolution: dict[str, Any] | None) -> str:
    return f"{resolution['torch']} {resolution['backend']}" if resolution else "none"


def of_doctor(document: dict[str, Any]) -> dict[str, Any]:
    root: dict[str, Any] = next((one for one in document["findings"] if one["root"]), {})
    fix = root.get("fix") or {}
    return {
        "cause": document["cause"],
        "findings": sorted(f"{one['severity']} {one['id']}" for one in document["findings"]),
        "build": build_of(document["resolution"]),
        "commands": fix.get("commands"),
        "driver": fix.get("min_driver"),
    }


def of_resolve(document: dict[str, Any]) -> dict[str, Any]:
    return {
        "build": build_of(document),
        "companions": [document["torchvision"], document["torchaudio"]],
        "fallbacks": [build_of(one) for one in document["fallbacks"]],
        "commands": document["commands"],
        "driver": document["driver_floor"],
    }


def of_install(document: dict[str, Any]) -> dict[str, Any]:
    return {
        "state": document["state"],
        "build": (document.get("after") or {}).get("torch"),
        "after": document.get("after"),
    }


def of_plan(document: dict[str, Any]) -> dict[str, Any]:
    if cells := document.get("cells"):
        return {"cells": [of_plan(cell) for cell in cells]}
    memory = document.get("memory_gib") or {}
    told = {name: document.get(name) for name in ("recipe", "confidence", "fits")}
    return {**told, "total": memory.get("total")}


def of_monitor(document: dict[str, Any]) -> dict[str, Any]:
    return {"verdict": document.get("verdict"), "next": (document.get("next") or {}).get("id")}


def of_tune(document: dict[str, Any]) -> dict[str, Any]:
    changes = document.get("changes") or ()
    return {"changes": [f"{one['key']}: {one['from']} to {one['to']}" for one in changes]}


FACTS = {"doctor": of_doctor, "resolve": of_resolve, "install": of_install, "plan": of_plan,
         "monitor": of_monitor, "tune": of_tune}  # fmt: skip


def classes(command: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """One line for each way in which an answer differs; only the words that tell kinds apart."""
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        if name == "findings":
            for one in sorted(set(before or ()) ^ set(after or ())):
                yield f"{command} {name}: {'-' if one in (before or ()) else '+'} {one}"
        elif name in ("exit", "cause", "verdict", "next", "state", "recipe", "fits", "build"):
            yield f"{command} {name}: {before} -> {after}"
        else:
            yield f"{command} {name}: of {new.get('cause') or 'all'}"


def compared(asked: list[Question], old: list[Any], new: list[Any], most: int, show: str) -> int:
    found: dict[str, list[str]] = collections.defaultdict(list)
    for one, before, after in zip(asked, old, new, strict=True):
        was, now = facts(before), facts(after)
        for name in classes(one["words"][0], was, now):
            found[name].append(one["id"])
            if name == show:
                print(json.dumps({"question": one, "before": was, "after": now}, indent=1))
    if show:
        return 0
    judged: dict[str, list[str]] = json.loads(JUDGED.read_text()) if JUDGED.exists() else {}
    counts: dict[str, set[str]] = collections.defaultdict(set)
    hard = False
    for name, ids in sorted(found.items(), key=lambda pair: -len(pair[1])):
        verdict, why, *worse = judged.get(name, ["unjudged", ""])
        counts[verdict] |= set(ids).difference(worse)
        counts["worse"] |= set(ids).intersection(worse)
        if verdict == "worse" or set(ids).intersection(worse):
            hard = hard or any(one in name for one in NEVER_WORSE)
        print(f"{len(ids):5} {verdict:9} {name}  ({why})")
        if verdict in ("unjudged", "worse"):
            print("".join(f"                  {one}\n" for one in ids[:most]), end="")
    print(f"{len(asked)} answers: " + ", ".join(f"{len(ids)} {k}" for k, ids in counts.items()))
    too_many = len(counts["worse"]) > WORSE_AT_MOST * len(asked)
    return int(bool(counts["unjudged"] or hard or too_many))


if __name__ == "__main__":
    sys.exit(main())
