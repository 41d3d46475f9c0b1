#!/usr/bin/env python3
"""Would verify catch a sick device? Each fault of a file, with the checks of `standard` on a CPU.

mutants_verify.py tests/kernel_faults/kernel_faults.py [NAME...] [--drawn N] [--seed N]

The file has `MUTANTS`, rows that begin with a name, and `apply(NAME)`, which makes torch compute
wrongly in its process and fills `MET` where it did; `--drawn N` takes N of its generated faults
instead. Each fault gets a fork of one warm process, which ends at the first check that fails (20 to
80 seconds). The run named `nothing` has no fault and has to pass. The last line is "caught N of M";
a fault that no call met does not count.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import signal
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import torch  # noqa: E402
from verify_faults.runs import checks, run  # noqa: E402

from gpusetup.verify.checks import ration  # noqa: E402
from gpusetup.verify.checks.table import function_of, named  # noqa: E402
from gpusetup.verify.values import Asked, ask_for  # noqa: E402

NOTHING = "nothing"
UNMET = "met by no call"
LEFT_OUT = ("compile", "dataloader", "memory", "out-of-memory", "speed")
"""Compiled code does not pass the dispatcher; the others see no fault of a kernel and take long."""


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--drawn", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1000)
    options = parser.parse_args()
    spec = importlib.util.spec_from_file_location(options.file.stem, options.file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    ration.ENOUGH = 1  # further wrong answers say nothing new
    torch.set_num_threads(1)
    ask_for(Asked(options.seed, level="standard"))
    wanted = [name for name in checks() if name not in LEFT_OUT]
    for name in wanted:
        function_of(named(name))
    faults = options.names or [row[0] for row in module.MUTANTS]
    if options.drawn:
        faults = module.drawn(options.drawn, options.seed)
    said = {name: judged(module, name, wanted) for name in (NOTHING, *faults)}
    met = [said[name] for name in faults if said[name] != UNMET]
    print(f"caught {len([*filter(None, met)])} of {len(met)}")
    return int(bool(said[NOTHING]))


def judged(module: Any, name: str, wanted: list[str]) -> str:
    """The first check that fails and what it says; empty where all pass."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        try:
            os.write(theirs, failed(module, name, wanted).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        found = pipe.read()
    os.waitpid(child, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what a check started
    print(name, found or "missed", flush=True)
    return found


def failed(module: Any, name: str, wanted: list[str]) -> str:
    if name != NOTHING:
        module.apply(name)
    for check in wanted:
        found = run(check, None)
        if found.status == "failed":
            return f"{check} {found.detail[:200]}"
    return "" if name == NOTHING or module.MET else UNMET


if __name__ == "__main__":
    sys.exit(main())
