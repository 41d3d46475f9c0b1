"""`gpusetup snapshot`: a snapshot of this machine with private data removed."""

from __future__ import annotations

from pathlib import Path

from gpusetup.commands.common import (
    FROM,
    KEEP_PRIVATE,
    PYTHON,
    TIMEOUT,
    Machine,
    gather,
    shared,
)
from gpusetup.commands.question import CommandQuestion, arguments
from gpusetup.commands.reply import Reply, answer
from gpusetup.errors import BadInput, UsageError
from gpusetup.render.console import Console

SUMMARY = """Prints a snapshot of this machine that the other commands can read (`--from FILE`). It
contains no user or host names, serial numbers, tokens, passwords or GPU UUIDs; the home folder
becomes `~`. `snapshot diff A B` compares two snapshots (from `snapshot`, or the JSON of doctor,
verify or `fleet check`). The exit code is 1 if B has a finding that isn't in A, or if a
difference can affect programs (for example, another driver or torch version)."""

EXAMPLES = (
    "gpusetup snapshot --output machine.json",
    "gpusetup doctor --from machine.json",
    "gpusetup snapshot diff before.json after.json",
)


class SnapshotQuestion(CommandQuestion):
    """The machine to record, or the two records to compare."""

    diff: tuple[str, ...] = arguments("compare two snapshots", metavar="diff A B")
    machine: Machine | None = shared(FROM)
    python: str | None = shared(PYTHON)
    timeout: float | None = shared(TIMEOUT)
    keep_private: bool = shared(KEEP_PRIVATE)


QUESTION = SnapshotQuestion


def run(question: SnapshotQuestion, out: Console) -> Reply:
    if question.diff:
        return _diff(question.diff)
    from gpusetup.model.codec import to_json
    from gpusetup.probe.snapshot_files import dump_snapshot
    from gpusetup.redaction import redact

    snapshot = gather(out, question.machine, question.python, question.timeout)
    if not question.keep_private:
        snapshot = redact(snapshot)
    # Both formats are JSON, but the default one has lines that a person can read and compare.
    out.json_text(to_json(snapshot) + "\n" if out.json else dump_snapshot(snapshot))
    return Reply()


def _diff(words: tuple[str, ...]) -> Reply:
    from gpusetup.fleet.compare import compare
    from gpusetup.fleet.records import named_record
    from gpusetup.render.fleet import compare_screen

    if words[0] != "diff" or len(words) != 3:
        raise UsageError(
            f"`gpusetup snapshot` does not accept {' '.join(words)!r}",
            hint="`gpusetup snapshot diff A B` compares two records",
        )
    first, second = (named_record(Path(name)) for name in words[1:])
    for node in (first, second):
        if node.problem:
            raise BadInput(node.problem, hint="write it again with `gpusetup snapshot --output`")
    comparison = compare(first, second)
    return answer(comparison, compare_screen, yes=not comparison.matters)
