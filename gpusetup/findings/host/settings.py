"""The host: room, memory, settings of the environment, and how far our own sources agree."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from gpusetup.evidence.context import (
    RuleContext,
    on,
)
from gpusetup.findings.layers import Layer
from gpusetup.findings.record import Cause, Message
from gpusetup.fixes import paste
from gpusetup.model.finding import Evidence, Finding, Fix, Severity
from gpusetup.model.frozen import Frozen
from gpusetup.model.shell import lines
from gpusetup.model.versions import parsed

CATALOG_DAYS = 120


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


CUDA_JIT_OFF = Cause(
    id="cuda-jit-off",
    severity=Severity.WARNING,
    title="CUDA_DISABLE_PTX_JIT=1",
    means="PTX is not compiled.",
    proven_by="The variable",
    way_out="Unset it",
    source="CUDA C++ Programming Guide, environment variables",
)


CUDA_JIT_FORCED = Cause(
    id="cuda-jit-forced",
    severity=Severity.WARNING,
    title="CUDA_FORCE_PTX_JIT=1",
    means="Binary kernels are ignored.",
    proven_by="The variable",
    way_out="Unset it",
    source="CUDA C++ Programming Guide, environment variables",
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


class Setting(Frozen):
    """A variable that makes CUDA slow, imprecise or blind when it has this value."""

    cause: Cause
    variable: str
    value: str
    effect: str


SETTINGS = (
    Setting(
        cause=CUDA_LAUNCH_BLOCKING,
        variable="CUDA_LAUNCH_BLOCKING",
        value="1",
        effect="every kernel is waited for; good to find a fault, slow otherwise",
    ),
    Setting(
        cause=MEMORY_CACHING_OFF,
        variable="PYTORCH_NO_CUDA_MEMORY_CACHING",
        value="1",
        effect="torch asks the driver for every tensor: many times slower",
    ),
    Setting(
        cause=TF32_PRECISION,
        variable="NVIDIA_TF32_OVERRIDE",
        value="1",
        effect="float32 products are computed in TF32, with 10 bits of mantissa",
    ),
    Setting(
        cause=TF32_PRECISION,
        variable="TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
        value="1",
        effect="float32 products are computed in TF32, with 10 bits of mantissa",
    ),
    Setting(
        cause=CUDA_JIT_OFF,
        variable="CUDA_DISABLE_PTX_JIT",
        value="1",
        effect="PTX is not compiled: GPUs that the build has no kernel for fail",
    ),
    Setting(
        cause=CUDA_JIT_FORCED,
        variable="CUDA_FORCE_PTX_JIT",
        value="1",
        effect="binary kernels are ignored and compiled anew: slow starts, or `no kernel image`",
    ),
    Setting(
        cause=CONDA_CUDA_VIRTUAL_MISSING,
        variable="CONDA_OVERRIDE_CUDA",
        value="",
        effect="conda believes that there is no CUDA and chooses CPU builds",
    ),
)
"""From CUDA's, torch's and conda's own documentation."""


def settings(context: RuleContext) -> Iterator[Finding]:
    """Environment variables that make CUDA slow, imprecise or blind."""
    for one in SETTINGS:
        if context.snapshot.environment.get(one.variable) != one.value:
            continue
        make = one.cause.as_note if one.cause is TF32_PRECISION else one.cause.as_warning
        yield make(
            f"{one.variable}={one.value or '(empty)'}: {one.effect}",
            evidence=(Evidence(source="environment", text=f"{one.variable}={one.value}"),),
            fix=Fix(
                text=f"Unset {one.variable} unless you mean it",
                commands=paste.unset(context, one.variable),
            ),
        )


EXPANDABLE_SEGMENTS_UNSUPPORTED = Cause(
    id="expandable-segments-unsupported",
    severity=Severity.NOTE,
    title="expandable segments where there are none",
    means="Ignored on Windows, WSL and Jetson.",
    proven_by="PYTORCH_ALLOC_CONF",
    way_out="Leave it out",
    source="torch documentation, memory management",
)


def expandable_segments(context: RuleContext) -> Iterator[Finding]:
    """An allocator setting that this platform does not have."""
    environment = context.snapshot.environment
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        named = "expandable_segments:true" in environment.get(name, "").lower()
        if named and (
            on(context, "windows") or context.snapshot.os.wsl or context.snapshot.os.jetson
        ):
            yield EXPANDABLE_SEGMENTS_UNSUPPORTED.found(
                f"{name} asks for expandable segments, which this platform does not have: it "
                "is ignored",
                evidence=(Evidence(source="environment", text=f"{name}={environment[name]}"),),
                fix=Fix(text="Leave it out here", commands=paste.unset(context, name)),
            )
            return


EXTRA_INDEX = Cause(
    id="extra-index",
    severity=Severity.WARNING,
    title="a torch index beside the default one",
    means="pip takes the newest version from either, of whatever build.",
    proven_by="PIP_EXTRA_INDEX_URL or UV_EXTRA_INDEX_URL",
    way_out="Unset it",
    source="pip documentation, --extra-index-url",
)


def extra_index(context: RuleContext) -> Iterator[Finding]:
    """An extra index mixes builds: the newest version wins, from wherever."""
    for name in ("PIP_EXTRA_INDEX_URL", "UV_EXTRA_INDEX_URL"):
        value = context.snapshot.environment.get(name, "")
        if "pytorch.org" in value:
            yield EXTRA_INDEX.found(
                f"{name} names a torch index beside the default one: the newest version wins, of "
                "whatever build",
                evidence=(Evidence(source="environment", text=f"{name}={value}"),),
                fix=Fix(
                    text=f"Unset {name}; gpusetup names the index for torch alone",
                    commands=paste.unset(context, name),
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
    taken = context.snapshot.taken_at
    days = _days(context.catalog.as_of, taken) if taken else None
    if days is not None and days > CATALOG_DAYS:
        yield CATALOG_OLD.found(
            f"The catalog is of {context.catalog.as_of}, {days} days old: there may be "
            "newer builds",
            fix=Fix(
                text="Update gpusetup, or ask the live index",
                commands=lines("gpusetup resolve --refresh"),
            ),
        )


def _days(as_of: str, taken_at: str) -> int | None:
    """
    >>> _days("2026-11-20", "2026-11-22T10:00:00Z")
    2
    """
    try:
        return (date.fromisoformat(taken_at[:10]) - date.fromisoformat(as_of[:10])).days
    except ValueError:
        return None


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
    expandable_segments,
    extra_index,
    catalog_old,
    sources_disagree,
)
