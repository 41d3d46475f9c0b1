"""The host: room, memory, settings of the environment, and how far our own sources agree."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta

from gpusetup.evidence.context import RuleContext
from gpusetup.findings.layers import Layer
from gpusetup.findings.record import Cause, Message
from gpusetup.fixes import paste
from gpusetup.model.finding import Evidence, Finding, Fix, Severity
from gpusetup.model.shell import lines
from gpusetup.model.versions import parsed

OLD = timedelta(days=120)


# --- settings ------------------------------------------------------------------------------------

CUDA_LAUNCH_BLOCKING = Cause(
    id="cuda-launch-blocking",
    severity=Severity.WARNING,
    title="CUDA_LAUNCH_BLOCKING=1",
    means="Every kernel is waited for.",
    proven_by="The variable",
    way_out="Unset it",
    source="CUDA C++ Programming Guide, environment variables",
)


MEMORY_CACHING_OFF = Cause(
    id="memory-caching-off",
    severity=Severity.WARNING,
    title="PYTORCH_NO_CUDA_MEMORY_CACHING=1",
    means="Every tensor is asked of the driver.",
    proven_by="The variable",
    way_out="Unset it",
    source="torch documentation, CUDA semantics",
)


TF32_MESSAGE = Message(
    title="float32 products are computed in TF32: results differ in the third digit",
    detail="From Ampere on; torch 1.7 to 1.11 does so for matrix products by default, every "
    "torch does for convolutions. The GPU stack is healthy.",
    text="Where exact float32 is needed: torch.backends.cuda.matmul.allow_tf32 = False and "
    'torch.backends.cudnn.allow_tf32 = False, or torch.set_float32_matmul_precision("highest")',
)


TF32_PRECISION = Cause(
    id="tf32-precision",
    place=(Layer.RUNNING, 140),
    title="float32 products in TF32",
    means="10 bits of mantissa.",
    proven_by="NVIDIA_TF32_OVERRIDE or TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    way_out="Unset it",
    source="torch documentation, CUDA semantics",
    message=TF32_MESSAGE,
)


CONDA_CUDA_VIRTUAL_MISSING = Cause(
    id="conda-cuda-virtual-missing",
    place=(Layer.INSTALL, 120),
    title="conda does not see CUDA",
    means="CONDA_OVERRIDE_CUDA is empty: the virtual package __cuda is absent, and CPU "
    "builds are chosen.",
    proven_by="The variable",
    way_out="Unset it, or name the driver's CUDA",
    source="conda documentation, virtual packages",
    explains=("resolver-conflict",),
)


SETTINGS = (
    (CUDA_LAUNCH_BLOCKING, "CUDA_LAUNCH_BLOCKING", "1", "every kernel is waited for: slow"),
    (
        *(MEMORY_CACHING_OFF, "PYTORCH_NO_CUDA_MEMORY_CACHING", "1"),
        "torch asks the driver for every tensor: many times slower",
    ),
    (TF32_PRECISION, "NVIDIA_TF32_OVERRIDE", "1", "float32 products are computed in TF32"),
    (
        *(TF32_PRECISION, "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1"),
        "float32 products are computed in TF32",
    ),
    (
        *(CONDA_CUDA_VIRTUAL_MISSING, "CONDA_OVERRIDE_CUDA", ""),
        "conda believes that there is no CUDA and chooses CPU builds",
    ),
)
"""Variables that make CUDA slow, imprecise or blind with a value: CUDA's, torch's and conda's own
documentation."""


def settings(context: RuleContext) -> Iterator[Finding]:
    """Environment variables that make CUDA slow, imprecise or blind."""
    for cause, name, value, effect in SETTINGS:
        if context.snapshot.environment.get(name) == value:
            make = cause.as_note if cause is TF32_PRECISION else cause.as_warning
            yield make(
                f"{name}={value or '(empty)'}: {effect}",
                evidence=(Evidence(source="environment", text=f"{name}={value}"),),
                fix=Fix(
                    text=f"Unset {name} unless you mean it", commands=paste.unset(context, name)
                ),
            )


# --- our own sources -----------------------------------------------------------------------------


CATALOG_OLD = Cause(
    id="catalog-old",
    severity=Severity.NOTE,
    title="the catalog is old",
    means="There may be newer builds.",
    proven_by="More than 120 days between it and the snapshot",
    way_out="Update gpusetup",
    source="gpusetup",
)


def catalog_old(context: RuleContext) -> Iterator[Finding]:
    """The embedded table is old against the day of the snapshot."""
    taken, as_of = context.snapshot.taken_at, context.catalog.as_of
    if taken and str(date.fromisoformat(as_of) + OLD) < taken:
        yield CATALOG_OLD.found(
            f"The catalog is of {as_of}: there may be newer builds",
            fix=Fix(
                text="Update gpusetup, or ask the live index",
                commands=lines("gpusetup resolve --refresh"),
            ),
        )


ONE_TRUTH = ("driver.version", "gpus.count", "torch.version")
"""Subjects about which all sources must say the same."""


SOURCES_DISAGREE = Cause(
    id="sources-disagree",
    severity=Severity.NOTE,
    title="two sources disagree",
    means="Both values are kept.",
    proven_by="Two readings of one fact",
    way_out="Nothing to do",
    source="gpusetup",
)


def sources_disagree(context: RuleContext) -> Iterator[Finding]:
    """Two sources give different values for one fact."""
    for subject in ONE_TRUTH:
        values = {
            r.source: r.value for r in context.snapshot.readings if r.subject == subject and r.value
        }
        if len({parsed(value) for value in values.values()}) > 1:
            yield SOURCES_DISAGREE.found(
                f"Sources disagree about {subject}: "
                + ", ".join(f"{source} says {value}" for source, value in values.items()),
                evidence=tuple(Evidence(source=s, text=v) for s, v in values.items()),
            )


RULES = (
    settings,
    catalog_old,
    sources_disagree,
)
