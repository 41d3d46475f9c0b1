"""The work for each node of a fleet, and how its output becomes records.

A node runs three commands of gpusetup one after the other, each of which prints one JSON document
on stdout. Other output on stdout (a greeting, a module's message) is ignored.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from shlex import join
from typing import Any

from gpusetup.fleet.names import SAFE
from gpusetup.model.frozen import Frozen
from gpusetup.system.processes import Output

LIMIT_SECONDS = {"quick": 300.0, "standard": 1200.0, "stress": 600.0}
"""How many seconds a node may take for all three commands."""
RECORDS = ("node-check", "snapshot", "verify")
"""The documents that a node returns, by the names of their schemas."""
LONGEST_PROBLEM = 400
Document = Mapping[str, Any]


class NodeWork(Frozen):
    """The settings of the work that each node does, and the nodes."""

    python: str
    """The Python interpreter with gpusetup on the nodes."""
    target: str | None = None
    """The interpreter whose torch is tested; None means that gpusetup chooses one on the node."""
    level: str = "quick"
    limit: float = LIMIT_SECONDS["quick"]
    """The time limit in seconds for everything that a node does."""
    nodes: tuple[str, ...] = ()
    """The names of the nodes that should do it; if empty, all idle nodes are used."""


SAVED_SECONDS = 30.0
"""How many seconds before the node's time limit verify must stop, so that it can still report what
hangs."""


def script(work: NodeWork) -> str:
    """The node's work as one line for a POSIX shell: check, snapshot and verify.

    >>> print(script(NodeWork(python="/env/bin/python")).replace("; ", "\\n"))
    /env/bin/python -I -m gpusetup fleet check --json
    /env/bin/python -I -m gpusetup snapshot --json
    /env/bin/python -I -m gpusetup verify --json --level quick --timeout 270
    exit 0
    """
    gpusetup = (work.python, "-I", "-m", "gpusetup")
    target = ("--python", work.target) if work.target else ()
    # At most a quarter of the limit, so that a short limit still leaves time for verify.
    verify_seconds = work.limit - min(SAVED_SECONDS, work.limit / 4)
    verify_options = ("--json", "--level", work.level)
    lines = (
        (*gpusetup, "fleet", "check", "--json"),
        (*gpusetup, "snapshot", "--json", *target),
        (*gpusetup, "verify", *target, *verify_options, "--timeout", f"{verify_seconds:g}"),
        # Always exit with 0, because the commands' output already contains what they found.
        ("exit", "0"),
    )
    return "; ".join(map(join, lines))


SCHEMA_NAME = re.compile(r"gpusetup\.([a-z-]+)/\d+")


def documents(text: str) -> dict[str, Document]:
    """Maps each schema name (without its version) to gpusetup's JSON document of that schema in a
    node's output.

    >>> output = 'Welcome {to} n1\\n{"schema": "gpusetup.verify/1", "verdict": "passed"}\\nbye'
    >>> documents(output)["verify"]["verdict"]
    'passed'
    """
    decoder = json.JSONDecoder()
    by_schema: dict[str, Document] = {}
    for line_start in re.finditer(r"^\{", text, re.MULTILINE):
        # A greeting may also begin with a brace, and foreign JSON may be nested too deeply.
        with contextlib.suppress(ValueError, RecursionError):
            document, _ = decoder.raw_decode(text, line_start.start())
            if schema := SCHEMA_NAME.fullmatch(str(document.get("schema"))):
                by_schema[schema[1]] = document
    return by_schema


def problem_of(output: Output, by_schema: Mapping[str, Document]) -> str | None:
    """Why a node's records are incomplete; None if all three exist.

    >>> gone = Output(argv=("ssh",), exit=255, stderr="ssh: connect to host n1: No route to host")
    >>> problem_of(gone, {})
    'ssh: connect to host n1: No route to host (no node-check, snapshot, verify)'
    """
    missing = [kind for kind in RECORDS if kind not in by_schema]
    if not missing:
        return None
    # By how much they explain: our own timeout, gpusetup's error with its hint, the last line.
    error = by_schema.get("error", {})
    refusal = " ".join(str(error[name]) for name in ("message", "hint") if error.get(name))
    last_line = (output.stderr.strip().splitlines() or [f"exit {output.exit} without message"])[-1]
    reason = output.problem or refusal or last_line
    return f"{reason[:LONGEST_PROBLEM]} (no {', '.join(missing)})"


def write_records(folder: Path, node: str, output: Output) -> str | None:
    """Write a node's records into the folder. Returns why they are incomplete, or None.

    If records are missing, a file with the reason is also written, so that the folder still shows
    it later.
    """
    # The name becomes part of a path.
    if not SAFE.fullmatch(node):
        raise ValueError(f"{node!r} is not the name of a node")
    by_schema = documents(output.stdout)
    records = {kind: by_schema[kind] for kind in RECORDS if kind in by_schema}
    problem = problem_of(output, by_schema)
    if problem:
        records["run"] = {"schema": "gpusetup.run/1", "problem": problem}
    for kind, document in records.items():
        (folder / f"{node}.{kind}.json").write_text(json.dumps(document), encoding="utf-8")
    return problem
