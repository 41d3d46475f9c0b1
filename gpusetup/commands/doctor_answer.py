"""doctor's document and exit code, for one machine and for each report of a folder. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.finding import Severity

if TYPE_CHECKING:
    from gpusetup.catalog.builds import Catalog
    from gpusetup.diagnosis.diagnose import Diagnosis
    from gpusetup.model.documents import DoctorAnswer

ANSWER_IS_NO = 1


def exit_code(diagnosis: Diagnosis, *, strict: bool) -> int:
    """0 healthy, or a loss of speed; 1 an error, not shown healthy, a failure that is named though
    it lies outside the GPU's stack, torch's `False` in a text, or (strict) a warning."""
    from gpusetup.causes.record import RECORDS
    from gpusetup.diagnosis.ok import says_false

    gravest = {finding.severity for finding in diagnosis.findings}
    rootless = not any(finding.root for finding in diagnosis.findings)
    told = diagnosis.snapshot.origin == "report"
    failed = told and any(RECORDS[finding.id].failure for finding in diagnosis.findings)
    unwell = failed or says_false(diagnosis.snapshot) or (rootless and diagnosis.cause != "ok")
    bad = Severity.ERROR in gravest or unwell
    return ANSWER_IS_NO if bad or (strict and Severity.WARNING in gravest) else 0


def document(diagnosis: Diagnosis, catalog: Catalog) -> DoctorAnswer:
    """The public answer."""
    from gpusetup.model.documents import DoctorAnswer
    from gpusetup.resolver.offer import newest_of

    decision, machine = diagnosis.decision, diagnosis.snapshot
    return DoctorAnswer(
        cause=diagnosis.cause,
        confidence=diagnosis.confidence,
        proof=diagnosis.proof,
        certainty=diagnosis.certainty,
        other_causes=diagnosis.other_causes,
        next_reading=diagnosis.next_reading,
        symptom=diagnosis.symptom,
        program=diagnosis.program,
        stage=diagnosis.stage,
        findings=tuple(diagnosis.findings),
        resolution=diagnosis.answer,
        newest=newest_of(decision, machine) if decision else None,
        snapshot=machine,
        catalog_as_of=catalog.as_of,
    )
