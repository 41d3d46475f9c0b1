"""Errors of a GPU's memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpusetup.evidence.context import (
    RuleContext,
    cuda_errors,
    event_evidence,
    events,
    gpus,
    numbered,
    value_evidence,
)
from gpusetup.findings.device.faults import (
    UNCORRECTABLE,
    concerned_gpus,
    has_bad_memory,
    has_worn_memory,
    recommended_lines,
    reset,
    xids_of,
)
from gpusetup.findings.layers import KERNELS_FAIL, Layer
from gpusetup.findings.record import Cause
from gpusetup.fixes import paste, which
from gpusetup.model.finding import Finding, Fix
from gpusetup.model.machine import Gpu
from gpusetup.model.shell import lines

ECC_ERROR = Cause(
    id="ecc-error",
    place=(Layer.HARDWARE, 40),
    title="memory errors that ECC cannot correct",
    means="A memory row is bad; after a reset it is remapped, until there are no spare rows.",
    proven_by="Uncorrected errors, a failed or pending remapping, 60 retired pages, the SRAM "
    "threshold, Xid 48, 63, 64, 94, 95, 140, 156, 157, 160, 161, 171, 172; code 214",
    not_when="Corrected errors, which are harmless",
    way_out="Reset; replace if remapping failed",
    source='NVIDIA, "Xid Errors", "GPU Memory Error Management", "Dynamic Page Retirement"',
    explains=("gpu-init-failed", "gpu-hang", *KERNELS_FAIL),
)


def ecc_error(context: RuleContext) -> Iterator[Finding]:
    """Memory errors that ECC could not correct."""
    xids = xids_of(context, "ecc-error")
    messages = (*events(context, "ecc-error"), *cuda_errors(context, UNCORRECTABLE))
    bad = concerned_gpus(context, [gpu for gpu in gpus(context) if has_bad_memory(gpu)], xids)
    if not (bad or xids or messages):
        return
    marked = [gpu for gpu in bad if has_bad_memory(gpu)]
    yield ECC_ERROR.found(
        f"{which.titled(context, bad)}: memory errors that ECC cannot correct",
        evidence=(
            *event_evidence(xids),
            *event_evidence(messages),
            *(value_evidence(context, "gpus", _ecc_line(gpu)) for gpu in marked[:8]),
            *recommended_lines(context),
        ),
        fix=_ecc_fix(context, bad),
    )


def _ecc_fix(context: RuleContext, bad: Sequence[Gpu]) -> Fix:
    worn = [gpu for gpu in bad if has_worn_memory(gpu)]
    must = "a GPU whose remapping failed must be replaced"
    if worn and len(gpus(context)) > 1:
        must = f"{which.titled(context, worn)} must be replaced"
    return Fix(
        text=f"Reset the GPU or reboot, so that bad rows are remapped; {must}",
        commands=reset(context, bad) if bad else (),
        looks=paste.look(
            "see the counters", *lines('nvidia-smi -q -d "ECC,ROW_REMAPPER,PAGE_RETIREMENT"')
        ),
        needs_root=True,
        needs_reboot=True,
    )


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _ecc_line(gpu: Gpu) -> str:
    parts = (
        f"{gpu.ecc_uncorrected} uncorrectable error{_s(gpu.ecc_uncorrected)}"
        if gpu.ecc_uncorrected
        else None,
        "row remapping failed" if gpu.remap_failed else None,
        "pages wait for a reset" if gpu.retired_pending else None,
        "more errors in SRAM than a GPU may have" if gpu.sram_threshold_exceeded else None,
        f"{gpu.retired_pages} retired pages" if gpu.retired_pages else None,
        f"{gpu.remapped_rows} remapped rows" if gpu.remapped_rows else None,
    )
    return f"{numbered(gpu)}: " + ", ".join(part for part in parts if part)


RULES = (ecc_error,)
