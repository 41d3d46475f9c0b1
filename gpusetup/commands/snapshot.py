"""`gpusetup snapshot`: the record of this machine, redacted for sharing."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from gpusetup.commands.common import add_shared, gather
from gpusetup.errors import BadInput, UsageError
from gpusetup.render.console import Console

SUMMARY = """Prints a record of this machine that the other commands can read (`--from FILE`). It
contains no user or host names, serial numbers, tokens, passwords or GPU UUIDs; the home folder is
`~`. `snapshot diff A B` compares two records (of `snapshot`, or the JSON of doctor, verify or
`fleet check`). Exit 1: B has a finding that A has not, or differs in what programs depend on."""

EXAMPLES = (
    "gpusetup snapshot --output machine.json",
    "gpusetup doctor --from machine.json",
    "gpusetup snapshot diff before.json after.json",
)


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("diff", nargs="*", metavar="diff A B", help="compare two records")
    add_shared(parser, "--from", "--python", "--timeout", "--keep-private")


def run(options: Namespace, out: Console) -> int:
    if options.diff:
        return _diff(options.diff, out)
    from gpusetup.model.codec import to_json
    from gpusetup.probe.snapshot_files import dump_snapshot
    from gpusetup.redaction import redact

    snapshot = gather(options, out)
    shared = snapshot if options.keep_private else redact(snapshot)
    out.json_text(to_json(shared) + "\n" if out.json else dump_snapshot(shared))
    return 0


def _diff(words: list[str], out: Console) -> int:
    from gpusetup.fleet.compare import compare
    from gpusetup.fleet.folder import named_record
    from gpusetup.render.fleet import compare_screen

    if words[0] != "diff" or len(words) != 3:
        raise UsageError(
            f"`gpusetup snapshot` takes no {' '.join(words)!r}",
            hint="`gpusetup snapshot diff A B` compares two records",
        )
    first, second = (named_record(Path(name)) for name in words[1:])
    for node in (first, second):
        if node.problem:
            raise BadInput(node.problem, hint="write it again with `gpusetup snapshot --output`")
    answer = compare(first, second)
    return out.answer(answer, compare_screen, yes=not answer.matters)
