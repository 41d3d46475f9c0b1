"""`gpusetup doctor`: reads this machine, names the root cause and the way out."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from gpusetup.commands.common import add_shared, gather
from gpusetup.model.finding import Severity
from gpusetup.render.console import Console

if TYPE_CHECKING:
    from gpusetup.catalog.builds import Catalog
    from gpusetup.diagnosis.diagnose import Diagnosis
    from gpusetup.model.documents import DoctorAnswer

SUMMARY = (
    "Finds what is wrong with PyTorch and the GPU of this machine, and how to fix it. Reads only, "
    "and does not import torch: `gpusetup verify` tests it. Exit 0: healthy; 1: something is "
    "wrong, or cannot be judged."
)
EXAMPLES = (
    "gpusetup doctor",
    "gpusetup doctor --from rtx3050-laptop",
    "gpusetup doctor --report thread.txt",
    'gpusetup doctor --gpu "RTX 4090" --driver 550.54.14',
)


def configure(parser: ArgumentParser) -> None:
    add = parser.add_argument
    read = parser.add_mutually_exclusive_group()
    add_shared(read, "--from", "--python")
    read.add_argument(
        "--report",
        metavar="FILE",
        help="a text instead of this machine: collect_env, nvidia-smi, a traceback, a log, any "
        "mixture of them; `-` is stdin",
    )
    add_shared(parser, "--timeout")
    add_shared(parser, "--torch", "--gpu", "--driver")
    add("--explain", metavar="ID", help="explain a finding")
    add("--strict", action="store_true", help="exit 1 for warnings, too")
    private = "markdown is for sharing, without private data"
    add("--format", choices=("text", "markdown"), default="text", help=private)


def run(options: Namespace, out: Console) -> int:
    if options.explain:
        from gpusetup.diagnosis.explanations import known_finding, record
        from gpusetup.model.documents import FindingAnswer
        from gpusetup.render.doctor import explained

        known = known_finding(record(options.explain))
        return out.answer(FindingAnswer(finding=known), explained(known))
    from gpusetup.catalog.file import load_catalog
    from gpusetup.choose.wish import Wish, check_wish

    catalog = load_catalog()
    wish = Wish(torch=options.torch)
    check_wish(wish, catalog)
    other_host = bool(options.gpu or options.driver)
    if options.report is None:
        snapshot = gather(options, out, need_target=True)
    else:
        from gpusetup.commands.report import snapshot_of

        snapshot = snapshot_of(options.report)
    if other_host:
        from gpusetup.choose.described import for_host

        snapshot = for_host(snapshot, options.gpu, options.driver, catalog)
    markdown = options.format == "markdown" and not out.json
    if markdown:
        from gpusetup.redaction import redact

        snapshot = redact(snapshot)
    from gpusetup.catalog.builds import with_catalog
    from gpusetup.choose.choose import choose
    from gpusetup.choose.host import host_of
    from gpusetup.diagnosis.diagnose import diagnose

    choice = choose(wish, host_of(with_catalog(snapshot, catalog), catalog), catalog)
    diagnosis = diagnose(snapshot, catalog, choice, other_host=other_host)
    answer = document(diagnosis, catalog)
    if markdown:
        from gpusetup.render.doctor import doctor_markdown

        out.text(doctor_markdown(answer))
    else:
        from gpusetup.render.doctor import doctor_screen

        out.answer(answer, doctor_screen)
    return exit_code(diagnosis, strict=options.strict)


# --- the answer, for a report of a thread too ----------------------------------------------------


def exit_code(diagnosis: Diagnosis, *, strict: bool) -> int:
    """0 healthy, or a loss of speed; 1 an error, not shown healthy, a failure that is named though
    it lies outside the GPU's stack, torch's `False` in a text, or (strict) a warning."""
    from gpusetup.causes.record import RECORDS
    from gpusetup.diagnosis.ok import torch_said_false

    gravest = {finding.severity for finding in diagnosis.findings}
    rootless = not any(finding.root for finding in diagnosis.findings)
    told = diagnosis.snapshot.origin == "report"
    # A GPU that waits for its input is no failure.
    names_a_failure = any(RECORDS[finding.id].failure for finding in diagnosis.findings)
    failed = told and diagnosis.cause != "ok" and names_a_failure
    unwell = (
        failed or torch_said_false(diagnosis.snapshot) or (rootless and diagnosis.cause != "ok")
    )
    bad = Severity.ERROR in gravest or unwell
    return int(bad or (strict and Severity.WARNING in gravest))


def document(diagnosis: Diagnosis, catalog: Catalog) -> DoctorAnswer:
    """The public answer."""
    from gpusetup.choose.document import offer_of
    from gpusetup.model.documents import DoctorAnswer

    machine = diagnosis.snapshot
    return DoctorAnswer(
        cause=diagnosis.cause,
        confidence=diagnosis.confidence,
        proof=diagnosis.proof,
        certainty=diagnosis.certainty,
        doubts=diagnosis.doubts,
        other_causes=diagnosis.other_causes,
        ruled_out=diagnosis.ruled_out,
        next_reading=diagnosis.next_reading,
        symptom=diagnosis.symptom,
        program=diagnosis.program,
        stage=diagnosis.stage,
        findings=tuple(diagnosis.findings),
        resolution=diagnosis.answer,
        newest=offer_of(diagnosis.choice, machine),
        snapshot=machine,
        catalog_as_of=catalog.as_of,
    )
