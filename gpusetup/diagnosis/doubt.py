"""How sure a root is: what else a text leaves open, and the one reading that would decide it.

A row is a cause with what looks alike from where its message stands. It holds while the text shows
nothing of what would tell them apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from gpusetup.evidence.context import answering, events, in_container, on
from gpusetup.findings.lenders import lender_of
from gpusetup.findings.record import RECORDS, Alike
from gpusetup.model.finding import Finding, Severity
from gpusetup.model.frozen import Frozen
from gpusetup.model.versions import parsed

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext
    from gpusetup.model.machine import Snapshot

Certainty = Literal["certain", "likely"]


class RuledOut(Frozen):
    """What a message leaves open elsewhere and cannot be where this holds."""

    where: Callable[[RuleContext], bool]
    causes: frozenset[str]


def _serves_every_torch(context: RuleContext) -> bool:
    """Whether torch found no GPU beside a driver that starts the CUDA of every build."""
    cuda = context.snapshot.driver.cuda
    newest = max(parsed(build.cuda or "0") for build in context.catalog.builds)
    unseen = events(context, "cuda-unavailable")
    return bool(unseen and cuda and parsed(cuda).major >= newest.major)


RULED_OUT = (
    # The driver lists a GPU.
    RuledOut(
        where=lambda context: bool(answering(context)),
        causes=frozenset({"driver-not-loaded", "no-nvidia-gpu"}),
    ),
    RuledOut(where=_serves_every_torch, causes=frozenset({"driver-too-old"})),
    # Windows itself has no modules of a kernel, no nodes, and no containers that are given them.
    RuledOut(
        where=lambda context: on(context, "windows") and not in_container(context),
        causes=frozenset(
            {
                "container-no-gpu",
                "container-nvml-lost",
                "container-toolkit-missing",
                "driver-not-loaded",
                "uvm-missing",
            }
        ),
    ),
    # WSL has no kernel modules of NVIDIA's, and no nodes but Windows' own.
    RuledOut(
        where=lambda context: bool(context.snapshot.os.wsl),
        causes=frozenset({"driver-not-loaded", "driver-missing", "uvm-missing"}),
    ),
    # The container and the driver of a lent notebook are the lender's.
    RuledOut(
        where=lambda context: lender_of(context) is not None,
        causes=frozenset({"container-no-gpu", "driver-not-loaded", "container-toolkit-missing"}),
    ),
)


def _shown(snapshot: Snapshot) -> dict[str, bool]:
    return {
        "gpus": bool(snapshot.gpus),
        "driver": bool(snapshot.driver.version),
        "kernels": bool(snapshot.torch.kernels),
        "python": bool(snapshot.python.version),
        "bus": bool(snapshot.pci_devices),
    }


def doubt_about(context: RuleContext, root: Finding | None) -> Alike | None:
    """What a text leaves open of its root; None where it shows what decides."""
    if root is None or context.snapshot.origin != "report":
        return None
    shown = _shown(context.snapshot)
    rows = RECORDS[root.id].alike
    undecided = (row for row in rows if not any(shown[name] for name in row.settled_by))
    return next((row for row in undecided if not row.unless(context)), None)


def other_causes(
    context: RuleContext,
    root: Finding | None,
    findings: tuple[Finding, ...],
    doubt: Alike | None,
    cause: str,
) -> tuple[str, ...]:
    """The unexplained errors beside the root in their order, then what its message leaves open.

    What is itself only seen is no other cause.
    """
    if root is None:
        return ()
    beside = [f for f in findings if f is not root and f.severity is Severity.ERROR]
    unexplained = sorted(
        (f.id for f in beside if f.explained_by is None), key=lambda id: RECORDS[id].order
    )
    causes = (one for one in (*unexplained, *_left_open(context, doubt)) if not _is_only_seen(one))
    return tuple(one for one in dict.fromkeys(causes) if one not in (cause, root.id))


def _left_open(context: RuleContext, doubt: Alike | None) -> tuple[str, ...]:
    """What a message leaves open, less what cannot be on this machine."""
    if doubt is None:
        return ()
    out = {one for row in RULED_OUT if row.where(context) for one in row.causes}
    return tuple(one for one in doubt.causes if one not in out)


def _is_only_seen(id: str) -> bool:
    record = RECORDS.get(id)
    return record is not None and record.symptom


def certainty_of(
    root: Finding | None, others: tuple[str, ...], *, inferred: bool
) -> Certainty | None:
    """Certain where the text itself shows it and nothing else is left; None without a root."""
    if root is None:
        return None
    return "likely" if others or inferred else "certain"
