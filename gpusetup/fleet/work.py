"""What each node of a fleet is asked to do, and what is kept of what it says.

A node runs three commands of gpusetup one after the other, each of which prints one JSON document
on stdout. Anything else there (a greeting, a module's message) is passed over.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from shlex import join, quote
from typing import Any

from gpusetup.fleet.nodes import SAFE
from gpusetup.model.frozen import Frozen
from gpusetup.system.processes import Output

LEVELS = ("quick", "standard", "stress")
LIMIT_SECONDS = {"quick": 300.0, "standard": 1200.0, "stress": 600.0}
"""How long a node may take for all three."""
RECORDS = ("node-check", "snapshot", "verify")
"""The documents that a node gives, by their schemas."""
RUN_SCHEMA = "gpusetup.run/1"
"""The schema of a file that says why a node's records are missing."""
LONGEST_PROBLEM = 400

Document = Mapping[str, Any]


class NodeWork(Frozen):
    """What one node is asked to do."""

    python: str
    """The interpreter on the nodes that has gpusetup."""
    target: str | None = None
    """The interpreter whose torch is proven; None: gpusetup on the node chooses."""
    level: str = "quick"
    device: str = "auto"
    limit: float = LIMIT_SECONDS["quick"]
    """Seconds for all that a node does."""


def script(work: NodeWork) -> str:
    """The node's work as one line for a POSIX shell.

    >>> print(script(NodeWork(python="/env/bin/python")).replace("; ", "\\n"))
    /env/bin/python -I -m gpusetup fleet check --json
    /env/bin/python -I -m gpusetup snapshot --json
    /env/bin/python -I -m gpusetup verify --json --level quick --device auto --timeout 270
    exit 0
    """
    gpusetup = (work.python, "-I", "-m", "gpusetup")
    target = ("--python", work.target) if work.target else ()
    # verify gives up on its own a little before the node does, so that it says what hangs.
    limit = f"{work.limit - min(30.0, work.limit / 4):g}"
    verify_options = ("--json", "--level", work.level, "--device", work.device, "--timeout", limit)
    lines = (
        (*gpusetup, "fleet", "check", "--json"),
        (*gpusetup, "snapshot", "--json", *target),
        (*gpusetup, "verify", *target, *verify_options),
        ("exit", "0"),
    )
    return "; ".join(map(join, lines))


def ssh_command(work: NodeWork) -> str:
    """The script as one command for any login shell, as ssh runs it.

    >>> ssh_command(NodeWork(python="py"))[:38]
    "sh -c 'py -I -m gpusetup fleet check -"
    """
    return f"sh -c {quote(script(work))}"


# --- what came back


def documents(text: str) -> dict[str, Document]:
    """The documents of gpusetup in what a node said, by the names of their schemas.

    >>> output = 'Welcome {to} n1\\n{"schema": "gpusetup.verify/1", "verdict": "passed"}\\nbye'
    >>> documents(output)["verify"]["verdict"]
    'passed'
    """
    found: dict[str, Document] = {}
    for start in re.finditer(r"^\{", text, re.MULTILINE):
        with contextlib.suppress(ValueError, RecursionError):
            one, _ = json.JSONDecoder().raw_decode(text, start.start())
            if family := re.fullmatch(r"gpusetup\.([a-z-]+)/\d+", str(one.get("schema"))):
                found[family[1]] = one
    return found


def problem_of(output: Output, found: Mapping[str, Document]) -> str | None:
    """Why a node's records are not whole; None if they are.

    >>> gone = Output(argv=("ssh",), exit=255, stderr="ssh: connect to host n1: No route to host")
    >>> problem_of(gone, {})
    'ssh: connect to host n1: No route to host (no node-check, snapshot, verify)'
    """
    missing = [kind for kind in RECORDS if kind not in found]
    if not missing:
        return None
    error = found.get("error", {})
    refusal = " ".join(str(error[key]) for key in ("message", "hint") if error.get(key))
    lines = dict.fromkeys(line.strip() for line in output.stderr.splitlines() if line.strip())
    last = "; ".join([*lines][-2:]) or f"exit {output.exit} and nothing said"
    return f"{(output.problem or refusal or last)[:LONGEST_PROBLEM]} (no {', '.join(missing)})"


def write_records(folder: Path, node: str, output: Output) -> str | None:
    """Write a node's records into the folder; what is wrong with them, else None.

    A node without whole records gets a file that says why, so that the folder tells it later too.
    """
    if not SAFE.fullmatch(node):
        raise ValueError(f"{node!r} is no name of a node")
    found = documents(output.stdout)
    records = {kind: found[kind] for kind in RECORDS if kind in found}
    problem = problem_of(output, found)
    if problem:
        records["run"] = {"schema": RUN_SCHEMA, "problem": problem}
    for kind, document in records.items():  # under this name: what it calls itself may be redacted
        named = {key: value for key, value in document.items() if key != "node"}
        (folder / f"{node}.{kind}.json").write_text(json.dumps(named), encoding="utf-8")
    return problem
