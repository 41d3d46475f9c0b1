"""docs/explanation/evidence.md: what was ever run on a card, from tests/recorded_runs/.

Each folder there holds the evidence.json of one run, and what stands beside it. A run on the CPU
is no evidence and is refused.
"""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from acceptance import evidence
from acceptance.claims import ALL, Known
from acceptance.values import ELSEWHERE, OPEN
from acceptance.work import ROOT

RUNS = ROOT / "tests" / "recorded_runs"
COLUMNS = ("card", "driver", "torch", "date")
HEAD = """# What was run on a GPU

One row for each figure that a run of `scripts/gpu_acceptance.py` on a card left in
`tests/recorded_runs/`. This project ran nothing else on a GPU: limits, floors and verdicts follow
from formats, from documents and from runs on CPUs.

"""
ROWS = "| card | driver | torch | date | claim | verdict | figure |\n" + "| --- " * 7 + "|\n"
NONE = "| none | | | | | | |\n"
CLAIMS = """
## What only a GPU can show

A line for each sentence of the documentation, and for each doubt about the code. *not yet* means
that no run on a GPU has shown it; *elsewhere* needs another machine than one with one data-centre
card. A later run replaces an earlier one.

| claim | said in | part | verdict |
| --- | --- | --- | --- |
"""
FOOT = """
## Adding a run

`python scripts/gpu_acceptance.py --out DIR` on a machine with an NVIDIA GPU and torch ends within
8 minutes, changes no setting of the card and fetches nothing; `--parts suspicions` is the second
call, and `--parts clean` with the same DIR adds other seeds to those before (20 are asked for).
Look at `DIR/index.html`, put the folder into `tests/recorded_runs/` under a name such as
`h200-580.159-2.11.0`, and run `python scripts/write_reference.py`. Names, home folders and UUIDs
are taken out before anything is written.
"""
TRIED = ROOT / "scripts" / "acceptance" / "windows.csv"
"""What somebody who had not read the code typed under Wine: first sight, and after mending."""
SETTLED = ("right", "limit")
"""Verdicts that leave nothing to mend."""
WINE = """
## On Windows' Python under Wine

This project never ran gpusetup on Windows. `python scripts/windows.py` runs it with the official
CPython 3.11 for Windows under Wine 8 on Linux, with DLLs that answer as the driver of an RTX 3050
does. Wine has no driver in its kernel, no WMI, no PowerShell, no antivirus, no policy of long
paths; it refuses less where a file is in use.

| part | on Linux | on Windows' Python under Wine | on Windows |
| --- | --- | --- | --- |
| doctor, resolve, install, kills, undo, verify: [story] | in CI | in CI | never |
| plan, tune, monitor, guard, compare, fleet, snapshot, mcp | in CI | by hand, below | never |
| `monitor`'s live screen, Ctrl-C in a console | in CI | by hand | never |
| sweeping | in CI | never | never |

[story]: ../how-to/windows-and-wsl.md#what-was-tried

Somebody who had not read the code typed this; what was unclear or wrong was typed again after
mending. *Limit*: what Wine does otherwise than Windows.

"""
MENDED = """
| defects | what was wrong | `tests/test_….py` |
| --- | --- | --- |
| encodings | UTF-16 and code pages were not read | `named_file`, `listed_words` |
| line ends | a diff showed CR | `project` |
| paths | `\\\\?\\…`, `..`, `D:.venv` and long ones | `install_targets`, `install` |
| commands | other words in cmd and in cells | `commands`, `guard`, `assistants`, `notebooks` |
| targets | a gone `VIRTUAL_ENV`, the system's own Python | `cli`, `probe_target`, `install` |
| driver | a DLL that does not load was no finding | `rules` |
| processes | one that may not be read ended `monitor` | `monitor` |
| Ctrl-C, Ctrl-Break | children went on | `windows` |
| files in use | nobody said which program | `install_state` |
| kills | undo told two stories | `install_state`, `windows` |
| records | what a snapshot hides was a difference | `fleet` |
| projects | guard contradicted them | `guard` |
"""


def page(generated: str, folder: Path = RUNS) -> str:
    runs = list(recorded(folder))
    rows = "".join(row for run in runs for row in figures(run))
    return f"{generated}{HEAD}{ROWS}{rows or NONE}{CLAIMS}{lines(runs)}{FOOT}{WINE}{tried()}"


def tried() -> str:
    """What was typed under Wine: the totals, what never changed as lists, the rest as a table."""
    with TRIED.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, restval="right"))
    totals = [
        f"{when}: {', '.join(f'{n} {name}' for name, n in Counter(r[key] for r in rows).items())}"
        for key, when in (("first", "At first sight"), ("now", "after mending"))
    ]
    text = f"{'; '.join(totals)}.\n"
    for verdict in SETTLED:
        same: dict[str, list[str]] = {}
        for row in rows:
            if row["first"] == row["now"] == verdict:
                same.setdefault(row["group"], []).append(row["typed"])
        lists = (f"{f'{group}: ' * bool(group)}{', '.join(same[group])}" for group in same)
        text += f"\n{verdict.capitalize()} both times: {'; '.join(lists)}.\n"
        rows = [row for row in rows if not row["first"] == row["now"] == verdict]
    table = "".join(f"| {r['typed']} | {r['first']} | {r['now']} |\n" for r in rows)
    head = "\n| typed | at first sight | after mending |\n| --- | --- | --- |\n"
    return f"{text}{head}{table}{MENDED}"


def recorded(folder: Path) -> Iterator[dict[str, Any]]:
    """The runs on cards, oldest first."""
    found = {each.name: evidence.read(each) for each in folder.glob("*") if each.is_dir()}
    for name, run in sorted(found.items(), key=lambda pair: (str(pair[1].get("date")), pair[0])):
        if run.get("stand_in") or not run.get("card"):
            raise ValueError(f"tests/recorded_runs/{name} was made without a card")
        yield run


def figures(run: Mapping[str, Any]) -> Iterator[str]:
    """A line for each claim that the run decided."""
    where = " | ".join(cell(run.get(name)) for name in COLUMNS)
    for claim in claims(run):
        if claim["verdict"] not in (OPEN, ELSEWHERE):
            what = " | ".join(cell(claim[name]) for name in ("text", "verdict", "figure"))
            yield f"| {where} | {what} |\n"


def claims(run: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    return [claim for part in run.get("parts", ()) for claim in part["claims"]]


def lines(runs: Iterable[Mapping[str, Any]]) -> str:
    last = {
        claim["id"]: claim["verdict"]
        for run in runs
        for claim in claims(run)
        if claim["verdict"] not in (OPEN, ELSEWHERE)
    }
    return "".join(_line(known, last) for known in ALL)


def _line(known: Known, last: Mapping[str, str]) -> str:
    without = f"elsewhere: {known.needs}" if known.needs else "not yet"
    source = known.source
    if source.endswith(".md"):
        source = f"[{Path(source).name}]({os.path.relpath(source, 'docs/explanation')})"
    verdict = last.get(known.id, without)
    return f"| {cell(known.text)} | {source} | {known.part} | {verdict} |\n"


def cell(value: Any) -> str:
    r"""A text of a stranger's in a table of Markdown.

    >>> cell("a | b <c>")
    'a \\| b &lt;c&gt;'
    """
    text = " ".join(str(value if value is not None else "").split())
    for sign, instead in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|"), ("[", "\\[")):
        text = text.replace(sign, instead)
    return text
