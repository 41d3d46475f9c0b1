"""Removes facts that no longer matter: failures that have been fixed, and missing tools that a
working GPU did not need."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpusetup.model.machine import Event
from gpusetup.report import fields
from gpusetup.report.facts import Claim
from gpusetup.report.works import ANOTHER_DEVICE, says_absence_only

NO_MESSAGES = (
    *("gpu-in-use", "gpu-speed", "gpu-trains", "works-there", "asks-about", "names-no-failure"),
    *("question-asked", "output-shown", "torch-folder", "foreign-gpu", "remedy-tried"),
    *("install-typed", "linux-driver-installed", "library-imported", "several-gpus"),
)
"""Kinds of events that report no failure but describe the machine, what was done, or what is asked.
"""
COMPARISONS = ("release-regressed",)
"""Kinds of events that compare a state that failed with one that works. Their source names no line.
"""
STATES = (
    fields.DRIVER_NVML_CODE,
    fields.CUDA_INIT_CODE,
    fields.TORCH_CUDA_AVAILABLE,
    fields.TORCH_IMPORT_ERROR,
    fields.TORCH_VERSION,
    fields.TORCH_BACKEND,
    fields.TORCH_CUDA,
    fields.TORCH_HIP,
    fields.TORCH_KERNELS,
)
"""Fields whose value a repair may change, for example because another build is installed."""
NO_LINE = 1 << 30
"""A line number greater than that of any line."""
LINE = re.compile(r"line (\d+)")


def mended_line_of(events: Iterable[Event]) -> int:
    """The number of the line that says that the problem is solved; 0 if there is none."""
    for event in events:
        if event.values.get("form") == "mended":
            return _line_of(event.source)
    return 0


def present_events(events: Iterable[Event]) -> list[Event]:
    """The events without failures from before the line that says that they are fixed.

    If a computation on the GPU printed its result, messages that a tool or a library is missing are
    removed too.
    """
    all_events = list(events)
    mended_line = mended_line_of(all_events)
    forms = {event.values.get("form") for event in all_events}
    has_result = "computed" in forms or {"device", "training"} <= forms
    uses = [event.text or "" for event in all_events if event.kind == "gpu-in-use"]
    elsewhere = any(map(ANOTHER_DEVICE.search, uses))
    present = []
    for event in all_events:
        is_past = _line_of(event.source) < mended_line or (
            bool(mended_line) and event.kind in COMPARISONS
        )
        is_absence = says_absence_only(event.text or "", on_another_device=elsewhere)
        is_not_needed = has_result and is_absence
        if event.kind in NO_MESSAGES or not (is_past or is_not_needed):
            present.append(event)
    return present


def present_claims(claims: Iterable[Claim], mended_line: int) -> list[Claim]:
    """The claims, without those about a failing state from before the line that says that the
    failure is fixed.

    If the text gives another value of the same field after that line, earlier values are removed
    too.
    """
    all_claims = list(claims)
    later_subjects = set()
    for claim in all_claims:
        if mended_line <= _line_of(claim.source) < NO_LINE:
            later_subjects.add(claim.subject)
    present = []
    for claim in all_claims:
        is_earlier = _line_of(claim.source) < mended_line
        is_replaced = claim.subject in STATES or claim.subject in later_subjects
        if not (is_earlier and is_replaced):
            present.append(claim)
    return present


def _line_of(source: str | None) -> int:
    """The line number in a source; `NO_LINE` if the source names no line."""
    line = LINE.search(source or "")
    return int(line[1]) if line else NO_LINE
