"""`gpusetup doctor`: reads this machine, names the root cause and the way out."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from gpusetup.commands.common import add_machine_options, add_timeout, gather
from gpusetup.commands.doctor_answer import document, exit_code
from gpusetup.errors import UsageError
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Request
from gpusetup.render.console import Console
from gpusetup.system.refused import blocked_by_files

if TYPE_CHECKING:
    from gpusetup.catalog.builds import Catalog

SUMMARY = (
    "Finds what is wrong with PyTorch and the GPU of this machine, and how to fix it. Reads only, "
    "and does not import torch. Exit 0: healthy; 1: something is wrong, or cannot be judged."
)
EXAMPLES = (
    "gpusetup doctor",
    "gpusetup doctor --from rtx3050-laptop",
    "gpusetup doctor --report thread.txt",
    'gpusetup doctor --gpu "RTX 4090" --driver 550.54.14',
)


EVERY = "every finding"
"""What `--explain` without an id asks for."""


def configure(parser: ArgumentParser) -> None:
    add_machine_options(parser)
    add_timeout(parser)
    parser.add_argument(
        "--report",
        metavar="FILE",
        help="a text instead of this machine: collect_env, nvidia-smi, a traceback, a log, any "
        "mixture of them; `-` is stdin",
    )
    _add_questions(parser)
    _add_knowledge(parser)
    group = parser.add_argument_group("answer")
    group.add_argument("--strict", action="store_true", help="exit 1 for warnings, too")
    group.add_argument("--format", choices=("text", "markdown"), default="text")
    group.add_argument(
        "--save", metavar="FILE", help="also write what was read to a file, without private data"
    )
    group.add_argument(
        "--keep-private",
        action="store_true",
        help="keep names, home folders and UUIDs in --save and markdown",
    )


def _add_questions(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("question")
    group.add_argument(
        "--torch",
        type=_torch_named,
        metavar="SPEC",
        help="the torch that you want: `2.5.1`, `>=2.6,<2.9`",
    )
    group.add_argument(
        "--deep",
        action="store_true",
        help="also read the kernel's log, import torch and test it quickly",
    )
    group.add_argument(
        "--gpu",
        metavar="NAME",
        action="append",
        default=[],
        help="check this environment for a host with this GPU (a name, or sm_86); repeatable",
    )
    group.add_argument("--driver", metavar="VERSION", help="and this driver")


def _add_knowledge(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("knowledge")
    group.add_argument(
        "--explain",
        metavar="ID",
        nargs="?",
        const=EVERY,
        help="explain a finding, or list all of them",
    )


def _torch_named(text: str) -> str:
    from gpusetup.resolver.spelled import torch_named

    return torch_named(text)


def run(options: Namespace, out: Console) -> int:
    if options.explain:
        return _tell(options, out)
    from gpusetup.catalog.file import load_catalog

    catalog = load_catalog()
    request = asked_request(options.torch, catalog)
    other_host = bool(options.gpu or options.driver)
    snapshot = _gathered(options, out)
    if options.deep and snapshot.origin == "live" and not other_host:
        from gpusetup.commands.doctor_deep import verified

        snapshot = replace(snapshot, events=(*snapshot.events, *verified(snapshot, out)))
    if other_host:
        from gpusetup.resolver.described import for_host

        snapshot = for_host(snapshot, options.gpu, options.driver, catalog)
    return _answer(options, out, snapshot, catalog, request, other_host)


def _gathered(options: Namespace, out: Console) -> Snapshot:
    """The machine that was asked about: a report's, an example, a file's, or this one."""
    if options.report is None:
        return gather(options, out, deep=options.deep, need_target=True)
    if options.machine_from or options.python:
        other = "--from" if options.machine_from else "--python"
        raise UsageError(
            f"`--report` and `{other}` exclude each other", hint="both name what is read"
        )
    from gpusetup.commands.report import snapshot_of

    return snapshot_of(options.report)


def _answer(
    options: Namespace,
    out: Console,
    snapshot: Snapshot,
    catalog: Catalog,
    request: Request | None,
    other_host: bool,
) -> int:
    from gpusetup.diagnosis.diagnose import diagnose

    if options.save:
        save(for_sharing(snapshot, keep_private=options.keep_private), options.save)
    if options.format == "markdown" and not out.json:
        snapshot = for_sharing(snapshot, keep_private=options.keep_private)
    diagnosis = diagnose(snapshot, catalog, request, other_host=other_host)
    answer = document(diagnosis, catalog)
    if out.json:
        out.answer(answer)
    elif options.format == "markdown":
        from gpusetup.render.markdown import doctor_markdown

        out.text(doctor_markdown(answer))
    else:
        from gpusetup.render.text import doctor_screen

        out.answer(answer, doctor_screen(answer))
    return exit_code(diagnosis, strict=options.strict)


def asked_request(torch: str | None, catalog: Catalog) -> Request | None:
    from gpusetup.resolver import check_request

    if torch is None:
        return None
    request = Request(torch=torch)
    check_request(request, catalog)
    return request


# --- sharing, knowledge --------------------------------------------------------------------------


def save(snapshot: Snapshot, path: str) -> None:
    """Write a snapshot that `--from` reads."""
    from pathlib import Path

    from gpusetup.probe.saved import dump_snapshot

    with blocked_by_files(f"Cannot write {path}", "name another `--save`"):
        Path(path).write_text(dump_snapshot(snapshot), encoding="utf-8")


def for_sharing(snapshot: Snapshot, *, keep_private: bool) -> Snapshot:
    """What may be pasted into a thread: the redacted snapshot, unless it is to stay as it is."""
    from gpusetup.redaction import redact

    return snapshot if keep_private else redact(snapshot)


def _tell(options: Namespace, out: Console) -> int:
    from gpusetup.diagnosis.knowledge import as_known, record, records
    from gpusetup.model.documents import FindingAnswer, FindingsAnswer
    from gpusetup.render.knowledge import explained, listed

    if options.explain != EVERY:
        row = record(options.explain)
        out.answer(FindingAnswer(finding=as_known(row)), explained(as_known(row)))
    else:
        rows = tuple(map(as_known, records()))
        out.answer(FindingsAnswer(findings=rows), listed(rows))
    return 0
