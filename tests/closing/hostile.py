"""Machines whose texts want to act, and what of them acts in a shell that reads our lines."""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from judging import HEALTHY
from machines_named import snapshots

from closing.shells import Refused, by_powershell
from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.model.codec import from_plain, to_plain
from gpusetup.model.finding import Finding, Fix, command_lines
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Snapshot

ROOT = Path(__file__).resolve().parent.parent.parent
RULES = [
    path
    for room in ("findings", "fixes", "evidence", "diagnosis")
    for path in sorted((ROOT / "gpusetup" / room).rglob("*.py"))
]
CATALOG = load_catalog()


def findings(machine: Snapshot) -> tuple[Finding, ...]:
    return diagnose(machine, CATALOG).findings


def fixes(machine: Snapshot) -> Iterator[tuple[str, Fix]]:
    for finding in findings(machine):
        if finding.fix:
            yield finding.id, finding.fix


PAYLOADS = (
    "$(canary)", "`canary`", "'; canary; '", '"; canary; "', "a; canary", "a && canary #",
    "a\ncanary\n", "|canary", "& canary", "${x:-$(canary)}", "x'$(canary)'y", "\\'; canary; \\'",
    "\u2019; canary; \u2018", "a'$(canary)\u201d", "%PATH%", "& calc", "\x1b[31m$(canary)",
    "--index-url=http://evil.example/$(canary)", "-c canary", "\u202e$(canary)", "a\x00$(canary)",
    "~/$(canary)", "a b", "{0}", "{package}", "%s", "=canary", "canary=1", "!canary", "*", "",
)  # fmt: skip
AROUND = (
    "{}",
    "/opt/{}/bin/python",
    "580.{}",
    "2.5.1+{}",
    "C:\\x\\{}",
    "/home/u/torch_extensions/{}",
)
KEEP = ("schema", "origin", "family", "compute_capability", "mode", "kernels")


def kinds_and_names() -> tuple[list[str], list[str]]:
    """The kinds of events and the names of their values that the rules read."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in RULES)
    names = set(re.findall(r"values(?:\.get\(|\[)\"(\w+)\"", source)) | {"device", "compiler"}
    kinds = set(re.findall(r"kind=\"([\w-]+)\"", source))
    for group in re.findall(r"events\(context, ((?:\"[\w-]+\",? ?)+)", source):
        kinds |= set(re.findall(r"\"([\w-]+)\"", group))
    return sorted(kinds), sorted(names)


KINDS, NAMES = kinds_and_names()


@cache
def bases() -> list[Any]:
    return [to_plain(machine) for machine in (HEALTHY, *snapshots().values())]


def hostile(draw: random.Random) -> Snapshot:
    """A machine of which some texts want to act, and that says things which want to."""
    while True:
        plain = poisoned(draw.choice(bases()), draw)
        plain["os"]["family"] = draw.choice(("linux", "linux", "linux", "windows", None))
        plain["origin"] = draw.choice(("live", "report"))
        try:
            machine = from_plain(plain, Snapshot, what="it")
        except Exception:  # a text that no snapshot may hold
            continue
        said = tuple(
            Event(
                kind=draw.choice(KINDS), source="x", text="x", values={n: bad(draw) for n in NAMES}
            )
            for _ in range(draw.randint(1, 3))
        )
        return replace(machine, events=said)


def poisoned(value: Any, draw: random.Random, key: str = "") -> Any:
    if isinstance(value, dict):
        return {k: v if k in KEEP else poisoned(v, draw, k) for k, v in value.items()}
    if isinstance(value, list):
        return [poisoned(v, draw, key) for v in value]
    return bad(draw) if isinstance(value, str) and draw.random() < 0.15 else value


def bad(draw: random.Random) -> str:
    return draw.choice(AROUND).replace("{}", draw.choice(PAYLOADS))


def lines_of(count: int, seed: int) -> tuple[set[str], set[str]]:
    """The lines for bash, and those for PowerShell, of so many machines."""
    draw = random.Random(seed)
    bash: set[str] = set()
    power: set[str] = set()
    for _ in range(count):
        machine = hostile(draw)
        into = power if machine.os.family == "windows" else bash
        into.update(line for _, fix in fixes(machine) for line in command_lines(fix))
    return bash, power


def words_of_powershell(line: str) -> list[tuple[str, ...]]:
    if line.startswith("$env:"):
        name, equals, rest = line.partition(" = ")
        assert re.fullmatch(r"\$env:\w+", name) and equals
        pieces = re.findall(r"'(?:[^'\u2018-\u201b]|['\u2018-\u201b]{2})*'|\S+", rest)
        assert all(p[0] == "'" or re.fullmatch(r"\+|\$env:\w+|\(|\)", p) for p in pieces), line
        return [(name,)]
    try:
        return [*by_powershell(line)]
    except Refused as problem:
        raise AssertionError(f"{line}: {problem}") from problem


def syntax_errors(lines: Sequence[str]) -> str:
    """What bash says of the lines, each a function of its own, none of them run."""
    text = "".join(f"f{n}() {{\n{line}\n}}\n" for n, line in enumerate(lines))
    done = subprocess.run(
        ("bash", "--noprofile", "--norc", "-n"),
        input=text.encode("utf-8", "surrogateescape"), capture_output=True, check=False,
    )  # fmt: skip
    return done.stderr.decode("utf-8", "replace")[:2000]


CAGE = """
canary() { kill -USR1 $$; }
trap 'hits="$hits
$line"' USR1
while IFS= read -r -d '' line; do
  ( eval "$line" ) </dev/null >/dev/null 2>&1
done
printf %s "$hits"
"""
"""A restricted shell (`bash -r`) without PATH: no program starts, no file is written. A value that
acts calls `canary`, which signals the shell itself; the line is then printed."""


def run_by_bash(lines: list[str]) -> str:
    """The lines in which something acted."""
    environment = {"PATH": "/nonexistent"}
    read = "".join(f"{line}\0" for line in lines)
    started = ("/bin/bash", "--noprofile", "--norc", "-r", "-c", CAGE)
    # Redirections are not for a restricted shell: the loop's are taken away before it is one.
    free = CAGE.replace("( eval", "( set -r; eval")
    done = subprocess.run(
        (*started[:3], "-c", free), env=environment, capture_output=True, check=False,
        input=read.encode("utf-8", "surrogateescape"),
    )  # fmt: skip
    return done.stdout.decode("utf-8", "replace")
