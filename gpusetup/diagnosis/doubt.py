"""What a text leaves open of its cause, and the reading that would decide it: both stand in the
cause's record (`Alike`), and what cannot be on this machine in the records of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.causes.alike import SETTLES
from gpusetup.causes.record import RECORDS
from gpusetup.evidence.context import events, is_report
from gpusetup.model.finding import Finding, Fix
from gpusetup.model.frozen import replace

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext


def left_open(
    context: RuleContext, about: Finding | None, beside: list[Finding], cause: str
) -> tuple[tuple[str, ...], str | None]:
    """The causes that are left: the unexplained errors, then what the message leaves open; and the
    reading that decides. What is itself only seen is no cause."""
    if about is None:
        return (), None
    asks, likewise = _doubt(context, about)
    causes = [one.id for one in beside]
    for one in likewise:
        record = RECORDS.get(one)
        if not record or not any(question(context) for question in record.impossible):
            causes.append(one)
    known = (one for one in dict.fromkeys(causes) if one not in (cause, about.id))
    others = (one for one in known if one not in RECORDS or not RECORDS[one].symptom)
    return tuple(others), asks


def _doubt(context: RuleContext, about: Finding) -> tuple[str | None, tuple[str, ...]]:
    """The first reading that a text leaves open, and what may be; none where it shows both."""
    machine, record = context.snapshot, RECORDS[about.id]
    if not is_report(context):
        return None, ()
    shown = {
        "gpus": machine.gpus,
        "driver": machine.driver.version,
        "torch": machine.torch.version or machine.torch.cuda,
        "kernels": machine.torch.kernels,
        "bus": machine.pci_devices,
        "program": any("said" not in e.values for e in events(context, *record.kinds)),
    }
    others = () if record.symptom else ("program",)
    for asks, causes in record.alike.items():
        if not any(shown[name] for name in SETTLES.get(asks, others)):
            return asks, causes
    return None, ()


def cause_behind(context: RuleContext, symptom: Finding) -> Finding | None:
    """The likely cause of what a text shows, with the symptom's evidence; None where none is."""
    rows = RECORDS[symptom.id].likelier
    row = next((one for one in rows if one.shown(context)), None)
    if row is None:
        return None
    fix, looks = symptom.fix, symptom.fix.looks if symptom.fix else ()
    if row.way or row.text:
        fix = replace(row.way(context) if row.way else Fix(text=row.text), looks=looks)
    title = f"{symptom.title}: {row.because}"
    found = RECORDS[row.cause].found(title, detail=symptom.detail, evidence=symptom.evidence)
    return replace(found, fix=fix)
