#!/usr/bin/env python3
"""Kills installations at many moments and sees that each environment is the former or the new one.

    python scripts/chaos_install.py                        200 kills, 50 recoveries killed

An installation is killed with SIGKILL after a share of its time (gpusetup alone, its child alone,
all of them) or before one of its own file operations, counted by an audit hook. Then the recovery
that every installation begins with runs, in some cases killed as well, and every file of the
environment is compared by content and mode with the former and with the new state; bytecode apart.
Exit 1 if any environment is neither. The indexes are ours, on loopback.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("", "scripts", "tests", "tests/install")]

from acceptance.processes import below  # noqa: E402

OPERATIONS = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "open")


# --- in the child --------------------------------------------------------------------------------


def run_counted(folder: str, deadly: int, told: str, words: list[str]) -> int:
    """Run gpusetup; die before the `deadly`-th file operation in the folder (0: never)."""
    from gpusetup import cli
    from gpusetup.install.switching.change import recover_unfinished

    count = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event not in OPERATIONS or not str(arguments[0]).startswith(folder):
            return
        if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            return
        count += 1
        if count == deadly:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    code = 0
    if words == ["recover"]:
        recover_unfinished(Path(folder), print)
    else:
        code = cli.main(["install", *words])
    Path(told).write_text(str(count))
    return code


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
    former: dict[str, str] = field(default_factory=dict)
    new: dict[str, str] = field(default_factory=dict)

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
        self.operations = int((self.world.folder / "count").read_text())
        self.new = self.state()
        assert self.new != self.former, self.name

    def start(self, deadly: int, *words: str) -> subprocess.Popen[bytes]:
        from installing import SETTINGS

        command = words or self.words
        plain = {name: it for name, it in os.environ.items() if not name.startswith(SETTINGS)}
        argv = [sys.executable, __file__, "--counted", str(self.env), str(deadly)]
        return subprocess.Popen(
            [*argv, str(self.world.folder / "count"), *command],
            env=plain | self.world.environment,
            cwd=self.world.folder / "home",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )


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
    root = ("--index", world.index.index_root)
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


# --- killing -------------------------------------------------------------------------------------

RECOVERY_OPERATIONS = 20
"""Among the first so many file operations of a recovery one is chosen."""
WHOM = ("parent", "child", "group")


def run_case(scenario: Scenario, draw: random.Random, number: int, rounds: int) -> dict[str, Any]:
    """Kill it, recover (killed `rounds` times as well), compare."""
    scenario.reset()
    whom = (*WHOM, "itself")[number % 4]
    child = scenario.start(draw.randint(1, scenario.operations) if whom == "itself" else 0)
    if whom != "itself":
        time.sleep(draw.random() * scenario.seconds * 1.05)
        kill(child, whom)
    child.communicate(timeout=180)
    for _ in range(rounds):
        scenario.start(draw.randint(1, RECOVERY_OPERATIONS), "recover").communicate(timeout=180)
    row = {"number": number, "whom": whom, "ended": child.returncode, "recoveries": rounds}
    return row | recovered(scenario)


def kill(child: subprocess.Popen[bytes], whom: str) -> None:
    family = [process.pid for process in below(child.pid)]
    chosen = {"parent": [child.pid], "child": family[-1:], "group": [child.pid, *family]}
    for pid in chosen[whom]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def recovered(scenario: Scenario) -> dict[str, Any]:
    """What a recovery makes of it, and what it leaves behind."""
    recovery = scenario.start(0, "recover")
    _, said = recovery.communicate(timeout=180)
    found = scenario.state()
    known = {"former": scenario.former, "new": scenario.new}
    state = next((name for name, files in known.items() if files == found), "neither")
    left = [p.name for p in (scenario.env / ".gpusetup").glob("*")]
    litter = [name for name in left if name in ("journal.json", "staging", "installer")]
    row = {"scenario": scenario.name, "exit": recovery.returncode, "state": state, "litter": litter}
    if state == "neither":
        row["differences"] = {name: against(found, files) for name, files in known.items()}
        row["said"] = said.decode()[-2000:]
    return row


def against(found: dict[str, str], other: dict[str, str]) -> list[str]:
    names = {n for n in found.keys() | other.keys() if found.get(n) != other.get(n)}
    return sorted(names)[:20]


def summary(rows: list[dict[str, Any]]) -> int:
    bad = [r for r in rows if r["state"] not in ("former", "new") or r["exit"] or r["litter"]]
    bad += [r for r in rows if r["ended"] == BUG]
    print(f"{len(rows)} cases, {len(bad)} broken")
    for key in ("state", "scenario", "ended"):
        print(f"  {key}: {dict(Counter(str(row[key]) for row in rows))}")
    return 1 if bad or not rows else 0


BUG = 5
"""The exit code that no kill of a child may lead to."""


def main() -> int:
    if sys.argv[1:2] == ["--counted"]:
        folder, deadly, told, *words = sys.argv[2:]
        return run_counted(folder, int(deadly), told, words)
    from installing import new_world

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", "--kills", type=int, default=200)
    parser.add_argument("--recoveries", type=int, default=50, help="so many are killed as well")
    options = parser.parse_args()
    draw, rows = random.Random(options.kills), []
    with tempfile.TemporaryDirectory(prefix="chaos-") as name, new_world(Path(name)) as world:
        scenarios = list(small_scenarios(world))
        for one in scenarios:
            one.learn()
            print(f"{one.name}: {one.seconds:.1f} s, {one.operations} operations", flush=True)
        for number in range(options.kills):
            turn, place = divmod(number, len(scenarios))
            rounds = draw.randint(1, 3) if number < options.recoveries else 0
            rows.append(run_case(scenarios[place], draw, turn, rounds))
            print(json.dumps(rows[-1]), flush=True)
    return summary(rows)


if __name__ == "__main__":
    sys.exit(main())
