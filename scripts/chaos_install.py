#!/usr/bin/env python3
"""Kills installations at many moments and sees that each environment is the former or the new one.

    python scripts/chaos_install.py                        200 kills, 50 recoveries killed, 25 real
    python scripts/chaos_install.py -n 20 --recoveries 5 --real 0 --folder /tmp/chaos

An installation is killed with SIGKILL after a share of its time (gpusetup alone, its child alone,
all of them) or before one of its own file operations, counted by an audit hook, so that every
phase of the journal is met. Then `gpusetup install --recover` runs, in some cases killed as well,
and every file of the environment is compared by content and mode with the former and with the new
state; bytecode apart. Results go to `results.jsonl` in the folder; a run that was stopped goes on
where it was. Exit 1 where any environment is neither the former nor the new one.

The indexes are ours, on loopback. The real wheels (`--real`) are fetched once by `pip download`.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

OPERATIONS = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "open")
UNSYNCED = "GPUSETUP_UNSYNCED"
"""Set by `powercut_install.py --unsynced`: the program syncs nothing."""


# --- in the child --------------------------------------------------------------------------------


def run_counted(folder: str, deadly: int, told: str, words: list[str]) -> int:
    """Run gpusetup; die before the `deadly`-th file operation in the folder (0: never)."""
    from gpusetup import cli

    count = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event not in OPERATIONS or not str(arguments[0]).startswith(folder):
            return
        if event == "open" and not _writes(arguments):
            return
        count += 1
        if count == deadly:
            os.kill(os.getpid(), signal.SIGKILL)

    if os.environ.get(UNSYNCED):
        sync_nothing()
    sys.addaudithook(hook)
    code = cli.main(words)
    Path(told).write_text(str(count))
    return code


def sync_nothing() -> None:
    """The control of `powercut_install.py`: as if nobody had thought of power cuts."""
    from gpusetup.install.switching import durable

    durable._syncfs = lambda folder: True
    os.fsync = lambda fd: None


def _writes(arguments: tuple[Any, ...]) -> bool:
    return bool(arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


# --- the scenarios -------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Scenario:
    """An environment, and a command that changes it."""

    name: str
    world: Any
    words: tuple[str, ...]
    template: Path | None
    """The environment as it is before; None where there is none."""
    seconds: float = 0.0
    operations: int = 0
    recovering: int = 0
    former: dict[str, str] = field(default_factory=dict)
    new: dict[str, str] = field(default_factory=dict)
    real: bool = False

    @property
    def env(self) -> Path:
        return Path(self.world.folder, "env")

    def reset(self) -> None:
        shutil.rmtree(self.env, ignore_errors=True)
        if self.template is not None:
            subprocess.run(["cp", "-a", str(self.template), str(self.env)], check=True)

    def state(self) -> dict[str, str]:
        from installing import state_of

        return state_of(self.env) if self.env.exists() else {}

    def learn(self) -> None:
        """One run that nobody disturbs: how long, how many operations, and the new state."""
        self.reset()
        self.former = self.state()
        began = time.monotonic()
        child = self.start(0)
        _, said = child.communicate()
        assert child.returncode == 0, (self.name, said.decode())
        self.seconds = time.monotonic() - began
        self.operations = self.told()
        self.new = self.state()
        assert self.new != self.former, self.name

    def start(self, deadly: int, *words: str) -> subprocess.Popen[bytes]:
        command = words or self.words
        argv = [sys.executable, __file__, "--counted", str(self.env), str(deadly)]
        return subprocess.Popen(
            [*argv, str(self.world.folder / "count"), "install", *command],
            env={**clean_environment(), **self.world.environment},
            cwd=self.world.folder / "home",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def told(self) -> int:
        return int((self.world.folder / "count").read_text())

    def recover(self, deadly: int = 0) -> subprocess.Popen[bytes]:
        return self.start(deadly, "--recover", "--venv", str(self.env))


def clean_environment() -> dict[str, str]:
    """Ours without settings of the programs; what the control says stays."""
    return {
        name: value
        for name, value in os.environ.items()
        if name == UNSYNCED
        or not (name.startswith(("UV_", "PIP_", "GPUSETUP_")) or name in ENVIRONMENTS)
    }


ENVIRONMENTS = ("VIRTUAL_ENV", "CONDA_PREFIX")


def small_scenarios(world: Any) -> Iterator[Scenario]:
    """A small torch of the shape of the real one: shared folders, scripts, dependants."""
    from installing import TORCH

    noise = random.Random(1)
    many: dict[str, str | bytes] = {
        f"torch/part{n}/f{m}.py": f"x = {n * m}\n" for n in range(30) for m in range(20)
    }
    many |= {f"torch/lib/lib{n}.so": noise.randbytes(400_000) for n in range(6)}
    many["nvidia/cublas/lib/libcublas.so.12"] = noise.randbytes(1_000_000)
    coming = {**many, "torch/new.py": "new\n", **data_files(f"torch-{TORCH}+cpu")}
    world.add_torch("cpu", files=coming, requires=("filelock", "sympy"))
    world.add_default("filelock", "3.20.0")
    sympy = {f"sympy/m{n}.py": f"{n}\n" for n in range(300)} | data_files("sympy-1.14.0")
    world.add_default("sympy", "1.14.0", files=sympy)
    dependant = world.wheel("xformers", "0.0.1", requires=("torch",))
    neighbour = world.wheel("nvidia-nccl", "2.0", files={"nvidia/nccl/lib/libnccl.so.2": "nccl"})
    old = {**many, "torch/old.py": "old\n", "nvidia/cublas/lib/libcublas.so.11": "eleven"}
    del old["nvidia/cublas/lib/libcublas.so.12"]
    former = world.wheel(
        "torch", "2.0.0+cpu", files=old, scripts={"torchrun": "torch:main", "convert": "torch:go"}
    )
    template = world.venv("template")
    world.fill(template, former, dependant, neighbour, world.wheel("filelock", "3.0.0"))
    there = Path(world.folder, "env")
    shutil.move(template, there)  # the interpreter's path is the environment's in both
    shutil.rmtree(there)
    world.fill(world.venv("env"), former, dependant, neighbour, world.wheel("filelock", "3.0.0"))
    shutil.copytree(there, world.folder / "upgrade", symlinks=True)
    root = ("--index-root", world.index.index_root)
    wanted = ("--torch", TORCH, "--backend", "cpu", "--yes", "--no-verify", *root)
    here = ("--venv", str(there))
    upgrade = Scenario(
        name="upgrade", world=world, words=(*here, *wanted), template=world.folder / "upgrade"
    )
    yield upgrade
    yield Scenario(name="new", world=world, words=(*here, *wanted), template=None)
    undoable = Scenario(
        name="undo", world=world, words=(*here, "--undo", "--yes"), template=world.folder / "done"
    )
    done = Scenario(name="", world=world, words=(*here, *wanted), template=world.folder / "upgrade")
    done.learn()
    shutil.copytree(there, world.folder / "done", symlinks=True)
    yield undoable
    again = ("--torch", "2.9.0" if TORCH != "2.9.0" else "2.8.0", *wanted[2:])
    newest = {**many, "torch/newest.py": "newest\n"}
    world.add_torch("cpu", again[1], files=newest, requires=("filelock", "sympy"))
    yield Scenario(name="again", world=world, words=(*here, *again), template=world.folder / "done")


def data_files(stem: str) -> dict[str, str]:
    """Files of every scheme that a wheel may have beside its packages."""
    name = stem.partition("-")[0]
    return {
        f"{stem}.data/scripts/{name}-convert": "#!python\nprint(1)\n",
        f"{stem}.data/data/share/man/man1/{name}.1": "manual\n" * 500,
        f"{stem}.data/data/etc/{name}.conf": "x = 1\n",
        f"{stem}.data/headers/{name}.h": "int x;\n",
        f"{stem}.data/platlib/{name}/plat.py": "plat = 1\n",
    }


def real_scenario(world: Any) -> Scenario:
    """The real CPU wheel over the same wheel relabelled as another version, verified."""
    shelf = Path(tempfile.gettempdir(), "gpusetup-test-wheels", str(sys.implementation.cache_tag))
    torch = fetched(shelf / "torch", "torch==2.13.0", "--no-deps")[0]
    rest = [w for w in fetched(shelf / "rest", str(torch)) if not w.name.startswith("torch-")]
    former = relabelled(torch, "2.13.0", "2.12.1", shelf / "relabelled")
    world.index.add("whl/cpu", torch)
    for wheel in rest:
        world.index.add("simple", wheel)
    world.fill(world.venv("env"), former, *rest)
    there = Path(world.folder, "env")
    subprocess.run(["cp", "-a", str(there), str(world.folder / "template")], check=True)
    words = ("--venv", str(there), "--torch", "2.13.0", "--backend", "cpu", "--yes")
    return Scenario(
        name="real",
        world=world,
        words=(*words, "--index-root", world.index.index_root),
        template=world.folder / "template",
        real=True,
    )


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


# --- killing -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Case:
    scenario: str
    number: int
    how: str
    """`step` (before a file operation), `time`, or `phase` (once the journal shows it)."""
    share: float
    """Of the operations, of the time, of the usual length of a phase."""
    whom: str = "parent"
    phase: str | None = None
    recoveries: tuple[float, ...] = ()
    """At which shares of its operations each recovery but the last is killed."""


def cases(kills: int, recoveries: int, scenarios: list[str], *, real: bool) -> Iterator[Case]:
    """Spread over the scenarios, the ways, and whom; the same for the same numbers."""
    draw = random.Random(f"{kills} {recoveries} {real}")
    for number in range(kills):
        name = scenarios[number % len(scenarios)]
        turn = number // len(scenarios)
        how = "step" if number < recoveries else ("phase", "step", "time")[turn % 3]
        rounds = draw.randint(1, 3) if number < recoveries else 0
        yield Case(
            scenario=name,
            number=number,
            how=how,
            share=draw.random(),
            whom="parent" if how == "step" else WHOM[(turn // 3) % 3],
            phase=draw.choice(PHASES[name]) if how == "phase" else None,
            recoveries=tuple(draw.random() for _ in range(rounds)),
        )


WHOM = ("parent", "child", "group")
INSTALLING = ("staging", "staging", "moving", "installing", "verifying", "keeping")
PHASES = {
    "upgrade": INSTALLING,
    "again": INSTALLING,
    "new": ("making", "staging", "moving", "installing", "keeping"),
    "undo": ("undoing", "returning"),
    "real": INSTALLING,
}
"""Scenario -> the phases of its journal; those in which most is written, twice."""


def run_case(scenario: Scenario, case: Case) -> dict[str, Any]:
    """Kill, recover, compare."""
    if scenario.state() != scenario.former or (scenario.env / ".gpusetup").exists():
        scenario.reset()
    ended, phase = kill(scenario, case)
    killed = 0
    for share in case.recoveries:
        recovery = scenario.recover(1 + round(share * RECOVERY_OPERATIONS))
        recovery.communicate(timeout=180)
        killed += recovery.returncode == -signal.SIGKILL
    recovery = scenario.recover()
    _, said = recovery.communicate(timeout=180)
    found = scenario.state()
    known = {"former": scenario.former, "new": scenario.new}
    state = next((name for name, files in known.items() if files == found), "neither")
    left = [p.name for p in (scenario.env / ".gpusetup").glob("*")]
    known_names = ("receipt.json", "undo.json")
    litter = [n for n in left if n not in known_names and not n.startswith("former-")]
    row: dict[str, Any] = {
        "scenario": case.scenario,
        "number": case.number,
        "how": case.how,
        "share": round(case.share, 4),
        "whom": case.whom,
        "phase": phase,
        "ended": ended,
        "recoveries": killed,
        "exit": recovery.returncode,
        "state": state,
        "unfinished": "journal.json" in left,
        "litter": litter,
    }
    if state == "neither":
        row["differences"] = differences(found, scenario)
        row["said"] = said.decode()[-2000:]
    if scenario.real:
        row["verified"] = verified(scenario.env)
    return row


RECOVERY_OPERATIONS = 20
"""Among the first so many file operations of a recovery one is chosen."""
PHASE_SECONDS = 0.15
"""About how long a phase lasts in which most is written."""


def kill(scenario: Scenario, case: Case) -> tuple[int, str | None]:
    """Start it and kill it; how it ended, and the phase that its journal shows afterwards."""
    deadly = max(1, round(case.share * scenario.operations)) if case.how == "step" else 0
    child = scenario.start(deadly)
    if case.how != "step":
        if case.phase:
            wait_for_phase(scenario, child, case.phase)
            time.sleep(case.share * PHASE_SECONDS * (10 if scenario.real else 1))
        else:
            time.sleep(case.share * scenario.seconds * 1.05)
        family = descendants(child.pid)
        if case.whom == "child" and not family:
            family = descendants_soon(child)
        chosen = {"parent": [child.pid], "child": family[-1:], "group": [child.pid, *family]}
        for pid in chosen[case.whom]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
    child.communicate(timeout=180)
    try:
        return child.returncode, str(
            json.loads((scenario.env / ".gpusetup/journal.json").read_text())["phase"]
        )
    except (OSError, ValueError):
        return child.returncode, None


def wait_for_phase(scenario: Scenario, child: subprocess.Popen[bytes], phase: str) -> None:
    """Until the journal shows the phase, or the child has ended."""
    journal, mark = scenario.env / ".gpusetup/journal.json", f'"phase": "{phase}"'
    while child.poll() is None:
        try:
            if mark in journal.read_text()[:400]:
                return
        except OSError:
            pass
        time.sleep(0.0002)


def descendants_soon(child: subprocess.Popen[bytes]) -> list[int]:
    """The next child that it starts, if it starts one."""
    while child.poll() is None:
        if family := descendants(child.pid):
            return family
        time.sleep(0.001)
    return []


def descendants(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            own = [int(one) for one in task.read_text().split()]
        except OSError:
            continue
        for one in own:
            found += [one, *descendants(one)]
    return found


def differences(found: dict[str, str], scenario: Scenario) -> dict[str, list[str]]:
    def against(other: dict[str, str]) -> list[str]:
        names = {n for n in found.keys() | other.keys() if found.get(n) != other.get(n)}
        return sorted(names)[:20]

    return {"former": against(scenario.former), "new": against(scenario.new)}


def verified(env: Path) -> bool:
    argv = [str(env / "bin/python"), str(ROOT / "gpusetup/verify"), "--device", "cpu"]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


# --- the run -------------------------------------------------------------------------------------


def run_all(options: argparse.Namespace) -> int:
    from installing import new_world

    folder = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    results = folder / "results.jsonl"
    lines = results.read_text().splitlines() if results.exists() else []
    rows = [json.loads(line) for line in lines]
    done = {(row["scenario"] == "real", row["number"]) for row in rows}
    parts = ((False, options.kills, options.recoveries), (True, options.real, 0))
    for real, kills, recoveries in parts:
        if not kills:
            continue
        with (
            tempfile.TemporaryDirectory(prefix="world-", dir=folder) as name,
            new_world(Path(name)) as world,
        ):
            rows += part(world, kills, recoveries, done, results, real=real)
    return summary(rows)


def part(
    world: Any,
    kills: int,
    recoveries: int,
    done: set[tuple[bool, int]],
    results: Path,
    *,
    real: bool,
) -> list[dict[str, Any]]:
    found = [real_scenario(world)] if real else list(small_scenarios(world))
    scenarios = {one.name: one for one in found}
    rows = []
    for one in scenarios.values():
        one.learn()
        print(f"{one.name}: {one.seconds:.1f} s, {one.operations} operations", flush=True)
    for case in cases(kills, recoveries, list(scenarios), real=real):
        if (real, case.number) in done:
            continue
        row = run_case(scenarios[case.scenario], case)
        rows.append(row)
        with results.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)
    return rows


BUG = 5
"""The exit code that no kill of a child may lead to."""


def summary(rows: list[dict[str, Any]]) -> int:
    bad = [r for r in rows if r["state"] == "neither" or r["unfinished"] or r["exit"] != 0]
    bad += [r for r in rows if r.get("litter") and r not in bad]
    bad += [r for r in rows if not r.get("verified", True) or r["ended"] == BUG]
    print(f"{len(rows)} kills, {len(rows) - len(bad)} in the former or the new state")
    for key in ("state", "phase", "whom", "how", "scenario", "ended"):
        print(f"  {key}: {dict(Counter(str(row[key]) for row in rows))}")
    print(f"  recoveries killed: {sum(row['recoveries'] for row in rows)}")
    return 1 if bad or not rows else 0


def main() -> int:
    if sys.argv[1:2] == ["--counted"]:
        folder, deadly, told, *words = sys.argv[2:]
        return run_counted(folder, int(deadly), told, words)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", "--kills", type=int, default=200)
    parser.add_argument("--recoveries", type=int, default=50, help="so many are killed as well")
    parser.add_argument("--real", type=int, default=25, help="kills with the real torch")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir(), "chaos-install"))
    return run_all(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
