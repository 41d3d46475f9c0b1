"""Whether the trouble of a machine lies elsewhere than in torch: then `install` cures nothing."""

from __future__ import annotations

from gpusetup.diagnosis.precedence import in_layers
from gpusetup.findings.layers import Layer
from gpusetup.model.finding import Finding


def stands_before_torch(id: str) -> bool:
    """Whether a root is what the process is told, the container, the driver or the GPU."""
    return in_layers(id, Layer.PROCESS, Layer.READINESS) or id == "ld-library-path-conflict"


HIDES_THE_TARGET = ("torch-outside-environment",)
"""What is installed would not be imported: whatever its gravity, it comes first."""


LIE_OVER_EACH_OTHER = ("two-torch-installs", "mixed-conda-pip")
"""What one of two installs holds is no longer its own: both go before another one comes."""


THE_DRIVERS_PART = ("driver-too-old",)
"""What another torch may cure too; where torch stays all the same, only the driver can."""


def trouble_elsewhere(findings: tuple[Finding, ...], *, torch_stays: bool) -> Finding | None:
    """The finding that must be mended before torch can be; None where torch is what is wrong."""
    root = next((one for one in findings if one.root), None)
    if root and (stands_before_torch(root.id) or root.id in LIE_OVER_EACH_OTHER):
        return root
    if root is not None and torch_stays and root.id in THE_DRIVERS_PART:
        return root
    return next((one for one in findings if one.id in HIDES_THE_TARGET), None)
