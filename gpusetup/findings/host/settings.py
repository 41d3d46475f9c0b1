"""Settings of the environment that make CUDA slow, imprecise or blind."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import RuleContext
from gpusetup.findings.layers import Layer
from gpusetup.findings.message_rules import finding, shown
from gpusetup.findings.record import Cause, Message
from gpusetup.fixes import paste
from gpusetup.model.finding import Finding, Fix, Severity

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
    (CUDA_LAUNCH_BLOCKING, "CUDA_LAUNCH_BLOCKING", "1"),
    (MEMORY_CACHING_OFF, "PYTORCH_NO_CUDA_MEMORY_CACHING", "1"),
    (TF32_PRECISION, "NVIDIA_TF32_OVERRIDE", "1"),
    (TF32_PRECISION, "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1"),
    (CONDA_CUDA_VIRTUAL_MISSING, "CONDA_OVERRIDE_CUDA", ""),
)
"""CUDA's, torch's and conda's own documentation."""


def settings(context: RuleContext) -> Iterator[Finding]:
    """Environment variables with a value that costs something."""
    for cause, name, value in SETTINGS:
        if context.snapshot.environment.get(name) == value:
            yield finding(
                context,
                cause,
                (shown(context, "environment", f"{name}={value}"),),
                fix=Fix(text=f"{cause.way_out} ({name})", commands=paste.unset(context, name)),
                severity=Severity.NOTE if cause is TF32_PRECISION else Severity.WARNING,
            )


RULES = (settings,)
