#!/usr/bin/env python3
"""Give the rules machines whose texts want to act, and read every command that they print.

    python scripts/fuzz_commands.py --many 100000 --seed 1     minutes, repeatable

The property of tests/test_commands.py, as long as one likes: no value acts in bash or PowerShell,
no line breaks its shell's syntax or holds what cannot be printed. Exit code 1 where one does.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from closing.hostile import (  # noqa: E402
    lines_of,
    run_by_bash,
    syntax_errors,
    words_of_powershell,
)

AT_ONCE = 1000
SHOWN_EVERY = 10


def wrong(bash: list[str], power: list[str]) -> list[str]:
    """What speaks against these lines."""
    found = [f"acts in bash: {line}" for line in run_by_bash(bash).split("\n") if line]
    found += [f"syntax of bash: {said}" for said in (syntax_errors(bash),) if said]
    found += [f"unprintable: {line!r}" for line in (*bash, *power) if not line.isprintable()]
    return [*found, *(said for line in power if (said := _in_powershell(line)))]


def _in_powershell(line: str) -> str | None:
    try:
        commands = words_of_powershell(line)
    except AssertionError as problem:
        return f"PowerShell: {problem}"
    acting = any(words[0] in ("canary", "calc") for words in commands)
    return f"acts in PowerShell: {line}" if acting else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("--many", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    started, seen, found = time.monotonic(), set[str](), list[str]()
    for turn in range(0, asked.many, AT_ONCE):
        count = min(AT_ONCE, asked.many - turn)
        bash, power = lines_of(count, seed=asked.seed * 1_000_003 + turn)
        found += wrong(sorted(bash - seen), sorted(power - seen))
        seen |= bash | power
        if (turn // AT_ONCE) % SHOWN_EVERY == 0 or turn + count == asked.many:
            took = time.monotonic() - started
            print(f"{turn + count} machines, {len(seen)} lines, {len(found)} wrong, {took:.0f} s",
                  flush=True)  # fmt: skip
    print("\n".join(found[:50]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
