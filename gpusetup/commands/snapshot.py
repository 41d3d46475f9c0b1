"""`gpusetup snapshot`: a snapshot of this machine with private data removed."""

from __future__ import annotations

from gpusetup.commands.common import FROM, PYTHON, TIMEOUT, Machine, gather
from gpusetup.commands.question import CommandQuestion, switch
from gpusetup.commands.reply import Reply
from gpusetup.render.console import Console

SUMMARY = """Prints a snapshot of this machine that the other commands can read (`--from FILE`). It
contains no user or host names, serial numbers, tokens, passwords or GPU UUIDs; the home folder
becomes `~`. Two snapshots can be compared line by line: `diff before.json after.json`."""

EXAMPLES = (
    "gpusetup snapshot --output machine.json",
    "gpusetup snapshot --python .venv --keep-private",
    "gpusetup doctor --from machine.json",
)


class Question(CommandQuestion):
    machine: Machine | None = FROM
    python: str | None = PYTHON
    timeout: float | None = TIMEOUT
    keep_private: bool = switch("keep the names of users, hosts and folders, and the UUIDs")


def run(question: Question, out: Console) -> Reply:
    """Print the snapshot, without private data unless the user wants to keep it."""
    from gpusetup.model.codec import to_json
    from gpusetup.probe.snapshot_files import dump_snapshot
    from gpusetup.redaction import redact

    snapshot = gather(out, question.machine, question.python, question.timeout)
    if not question.keep_private:
        snapshot = redact(snapshot)
    # Both formats are JSON, but the default one has lines that a person can read and compare.
    out.json_text(to_json(snapshot) + "\n" if out.json else dump_snapshot(snapshot))
    return Reply()
