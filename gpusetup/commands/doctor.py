"""`gpusetup doctor`: reads this machine, names the root cause and the way out."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.commands.common import add_machine_options, gather
from gpusetup.errors import Blocked, UsageError
from gpusetup.model import CudaApi, Driver, Event, Request, Severity, Snapshot
from gpusetup.render.console import Console
from gpusetup.value import replace

if TYPE_CHECKING:
    from gpusetup.answers import DoctorAnswer
    from gpusetup.catalog import Catalog
    from gpusetup.rules.judge import Diagnosis

SUMMARY = (
    "Reads this machine without importing torch, names the root cause of what is wrong, and "
    "the way "
    "out. Exit 0 when the stack is healthy, 1 when it is not or cannot be judged."
)
EXAMPLES = (
    "gpusetup doctor",
    "gpusetup doctor --from rtx3050-laptop",
    "gpusetup doctor --report thread.txt",
    "gpusetup doctor --for-gpu 'RTX 4090' --for-driver 550.54.14",
)
ANSWER_IS_NO = 1


def configure(parser: argparse.ArgumentParser) -> None:
    add_machine_options(parser)
    _add_reports(parser)
    _add_questions(parser)
    _add_knowledge(parser)
    group = parser.add_argument_group("answer")
    group.add_argument("--strict", action="store_true", help="warnings count as no")
    group.add_argument("--format", choices=("text", "markdown"), default="text")
    group.add_argument(
        "--save", metavar="FILE", help="also write what was read there, without private data"
    )
    group.add_argument(
        "--keep-private",
        action="store_true",
        help="leave names, home folders and UUIDs in --save and markdown",
    )


def _add_reports(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("somebody's report instead of this machine")
    group.add_argument(
        "--report",
        metavar="FILE",
        help="a text: collect_env, nvidia-smi, a traceback, a log, any mixture; `-` is stdin",
    )
    group.add_argument(
        "--reports", metavar="DIR", help="every file of a folder, one line of answer each"
    )


def _add_questions(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("question")
    group.add_argument(
        "--torch", metavar="SPEC", help="the torch that is wanted: `2.5.1`, `>=2.6,<2.9`"
    )
    group.add_argument(
        "--deep",
        action="store_true",
        help="also ask nvidia-smi, import torch and verify it quickly",
    )
    group.add_argument(
        "--for-gpu",
        metavar="NAME",
        action="append",
        default=[],
        help="judge this environment for a host with this GPU (a name, or sm_86); repeatable",
    )
    group.add_argument("--for-driver", metavar="VERSION", help="and with this driver")


def _add_knowledge(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("knowledge")
    group.add_argument(
        "--only",
        metavar="ID",
        action="append",
        default=[],
        help="show only this finding; repeatable",
    )
    group.add_argument("--list", action="store_true", help="list every finding there is")
    group.add_argument("--explain", metavar="ID", help="explain one of them")


def run(options: argparse.Namespace, out: Console) -> int:
    if options.list or options.explain:
        return _tell(options, out)
    from gpusetup.catalog import load_catalog

    if options.only:
        _check_ids(options.only)
    catalog = load_catalog()
    request = asked_request(options.torch, catalog)
    other_host = bool(options.for_gpu or options.for_driver)
    if options.reports:
        from gpusetup.commands.reports import answer_folder

        return answer_folder(options.reports, out, catalog)
    snapshot = _gathered(options, out)
    if options.deep and snapshot.origin == "live" and not other_host:
        snapshot = replace(snapshot, events=(*snapshot.events, *verified(snapshot, out)))
    if other_host:
        snapshot = for_host(snapshot, options.for_gpu, options.for_driver, catalog)
    return _answer(options, out, snapshot, catalog, request, other_host)


def _gathered(options: argparse.Namespace, out: Console) -> Snapshot:
    """The machine that was asked about: a report's, an example, a file's, or this one."""
    if options.report is None:
        return gather(options, out, deep=options.deep, need_target=True)
    if options.machine_from or options.python:
        other = "--from" if options.machine_from else "--python"
        raise UsageError(
            f"`--report` and `{other}` exclude each other", hint="both name what is read"
        )
    from gpusetup.commands.reports import snapshot_of

    return snapshot_of(options.report)


def _answer(
    options: argparse.Namespace,
    out: Console,
    snapshot: Snapshot,
    catalog: Catalog,
    request: Request | None,
    other_host: bool,
) -> int:
    from gpusetup.rules.judge import diagnose

    if options.save:
        save(for_sharing(snapshot, keep_private=options.keep_private), options.save)
    if options.format == "markdown" and not out.json:
        snapshot = for_sharing(snapshot, keep_private=options.keep_private)
    diagnosis = diagnose(snapshot, catalog, request, other_host=other_host)
    answer = document(diagnosis, catalog, options.only)
    if out.json:
        out.answer(answer)
    elif options.format == "markdown":
        from gpusetup.render.markdown import doctor_markdown

        out.text(doctor_markdown(answer))
    else:
        from gpusetup.render.text import doctor_screen

        out.answer(answer, doctor_screen(answer))
    return exit_code(diagnosis, strict=options.strict)


def exit_code(diagnosis: Diagnosis, *, strict: bool) -> int:
    """0 healthy; 1 an error, not shown healthy, or (strict) a warning."""
    gravest = {finding.severity for finding in diagnosis.findings}
    bad = Severity.ERROR in gravest or diagnosis.cause == "unknown"
    return ANSWER_IS_NO if bad or (strict and Severity.WARNING in gravest) else 0


def document(diagnosis: Diagnosis, catalog: Catalog, only: Sequence[str] = ()) -> DoctorAnswer:
    """The public answer. `only` leaves findings out, the cause stays."""
    from gpusetup.answers import DoctorAnswer

    return DoctorAnswer(
        cause=diagnosis.cause,
        confidence=diagnosis.confidence,
        findings=tuple(f for f in diagnosis.findings if not only or f.id in only),
        resolution=diagnosis.answer,
        snapshot=diagnosis.snapshot,
        catalog_as_of=catalog.as_of,
    )


def asked_request(torch: str | None, catalog: Catalog) -> Request | None:
    from gpusetup.resolver import check_request

    if torch is None:
        return None
    request = Request(torch=torch)
    check_request(request, catalog)
    return request


# --- another host --------------------------------------------------------------------------------


def for_host(
    snapshot: Snapshot, names: Sequence[str], driver: str | None, catalog: Catalog
) -> Snapshot:
    """This environment as it will stand on another host: its GPUs and driver are the named ones."""
    from gpusetup.gpus import gpu_described

    if driver and not driver.replace(".", "").isdigit():
        raise UsageError(f"{driver!r} is no NVIDIA driver version", hint="such as `580.95.05`")
    hidden = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES")
    kept = {name: value for name, value in snapshot.environment.items() if name not in hidden}
    return replace(
        snapshot,
        origin="composed",
        gpus=tuple(gpu_described(name, catalog.gpus) for name in names) or None,
        driver=Driver(version=driver),
        cuda_api=CudaApi(),
        pci_devices=None,
        devices=None,
        container=replace(snapshot.container, cuda_compat_path=None),
        environment=kept,
        events=tuple(event for event in snapshot.events if event.kind != "child-failed"),
    )


# --- deep ----------------------------------------------------------------------------------------

VERIFY_SECONDS = 300.0


def verified(snapshot: Snapshot, out: Console) -> tuple[Event, ...]:
    """What the quick level of verify, run by the target's interpreter, could not do, as events."""
    python = snapshot.python.executable
    if not python or not snapshot.torch.installed or not snapshot.gpus:
        return ()
    out.talk("verifying torch in the target")
    from gpusetup.run import run as start

    folder = Path(__file__).resolve().parent.parent / "verify"
    said = start((python, str(folder), "--level", "quick", "--json"), timeout=VERIFY_SECONDS)
    return failed_checks(said.stdout) or _died(said.exit, said.problem)


def failed_checks(text: str) -> tuple[Event, ...]:
    """The failed and crashed checks of a verify document.

    >>> failed_checks('{"checks": [{"name": "matmul", "status": "failed"}]}')[0].kind
    'check-failed'
    """
    import json

    try:
        checks = json.loads(text).get("checks", ())
    except (ValueError, AttributeError):
        return ()
    bad = [check for check in checks if check.get("status") in ("failed", "crashed")]
    return tuple(
        Event(
            kind="check-failed",
            values={key: str(check.get(key, "")) for key in ("name", "device", "status")},
            source="verify",
            text=f"{check.get('name')} on {check.get('device')}: {check.get('detail')}",
        )
        for check in bad
    )


def _died(code: int | None, problem: str | None) -> tuple[Event, ...]:
    """verify itself ended without a document."""
    if code in (0, 1) and not problem:
        return ()
    values = {"name": "verify", "device": "", "status": "crashed"}
    return (
        Event(kind="check-failed", values=values, source="verify", text=problem or f"exit {code}"),
    )


# --- sharing, knowledge --------------------------------------------------------------------------


def save(snapshot: Snapshot, path: str) -> None:
    """Write a snapshot that `--from` reads."""
    from gpusetup.snapshot import dump_snapshot

    try:
        Path(path).write_text(dump_snapshot(snapshot), encoding="utf-8")
    except OSError as problem:
        raise Blocked(
            f"Cannot write {path}: {problem.strerror}", hint="name another `--save`"
        ) from problem


def for_sharing(snapshot: Snapshot, *, keep_private: bool) -> Snapshot:
    """What may be pasted into a thread: the redacted snapshot, unless it is to stay as it is."""
    from gpusetup.snapshot import redact

    return snapshot if keep_private else redact(snapshot)


def _check_ids(ids: Sequence[str]) -> None:
    from gpusetup.rules.knowledge import fact

    for id in ids:
        fact(id)


def _tell(options: argparse.Namespace, out: Console) -> int:
    from gpusetup.answers import FindingAnswer, FindingsAnswer
    from gpusetup.rules.knowledge import as_known, explained, fact, facts, listed

    if options.explain:
        row = fact(options.explain)
        out.answer(FindingAnswer(finding=as_known(row)), explained(row))
    else:
        out.answer(FindingsAnswer(findings=tuple(map(as_known, facts()))), listed())
    return 0
