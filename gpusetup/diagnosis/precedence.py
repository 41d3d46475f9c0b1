"""Which of several findings is the root: the order of their records.

Findings stand in the order of the `place` of their records: the layer, the rank in it. What is only
a consequence of a cause says its layer (`SHOWS`) and its record (`explains`). Only the records of
files that are loaded are asked: the file of every finding that was made is.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpusetup.findings.layers import SHOWS, Layer
from gpusetup.findings.record import RECORDS, UNORDERED, Cause


def place_of(id: str) -> tuple[int, int, str]:
    """Where a finding stands in the order; after every layer where it is never a root."""
    record = RECORDS.get(id)
    return record.order if record else (UNORDERED, 0, id)


def consequences(cause: Cause) -> tuple[str, ...]:
    """What a cause explains where both are there: of its layer, and of its own.

    >>> from gpusetup.findings.driver import cuda_codes
    >>> consequences(cuda_codes.CUDA_SEES_NO_DEVICE)
    ('torch-sees-no-gpu', 'gpu-check-failed')
    """
    shown = SHOWS.get(cause.place[0], ()) if cause.place else ()
    after = (one for one in shown if place_of(one) > cause.order)
    return tuple(dict.fromkeys((*after, *cause.explains)))


def explanation(id: str, present: Iterable[str]) -> str | None:
    """The first of the findings that are there which explains this one.

    >>> from gpusetup.findings.torch import build
    >>> explanation("torch-sees-no-gpu", {"torch-cpu-build", "torch-sees-no-gpu"})
    'torch-cpu-build'
    """
    causes = (RECORDS[one] for one in present if one in RECORDS)
    explaining = (one for one in causes if id in consequences(one))
    first = min(explaining, key=lambda cause: cause.order, default=None)
    return first.id if first else None


def is_loss(id: str) -> bool:
    """Whether a warning is a root of its own: the stack works, and loses speed now."""
    return in_layers(id, Layer.LOSSES, Layer.LOSSES)


def in_layers(id: str, first: Layer, last: Layer) -> bool:
    """Whether a finding stands in one of these layers."""
    return first <= place_of(id)[0] <= last
