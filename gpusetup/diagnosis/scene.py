"""What a text must show besides a message before a cause that only happens there can be the answer.

A code or a sentence is said on many machines; a cause that names a vGPU, a container or a variable
claims more than that. Where its scene is not shown, what the message itself says is found in its
place, and the narrower cause is one of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpusetup.evidence.context import events, gpus, is_report
from gpusetup.findings.device.sharing import vgpu_profile
from gpusetup.findings.driver.cuda_codes import CUDA_INIT_FAILED
from gpusetup.findings.record import Cause
from gpusetup.model.finding import Finding, Fix
from gpusetup.model.frozen import Frozen

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext


class Scene(Frozen):
    """Where a cause happens, and what is found where that is not shown."""

    shown: Callable[[RuleContext], bool]
    instead: Cause
    title: str
    text: str


def _is_virtual(context: RuleContext) -> bool:
    """A vGPU is named, a message is of one, or a GPU is there that refuses CUDA alone."""
    said = events(context, "vgpu-no-compute", "vgpu-unlicensed", "compute-mode-exclusive")
    listed = gpus(context)
    named = any(vgpu_profile(g) or (g.virtualization or "none") != "none" for g in listed)
    return bool(said or named or any("GRID" in g.name for g in listed))


SCENES: dict[str, Scene] = {
    "vgpu-no-compute": Scene(
        shown=_is_virtual,
        instead=CUDA_INIT_FAILED,
        title="CUDA does not start: not supported here (error 801)",
        text="See whether the driver lists the GPU and is new enough for this CUDA; a virtual GPU "
        "needs a profile with compute (Q or C)",
    ),
}
"""A cause -> its scene."""


def in_its_scene(context: RuleContext, finding: Finding) -> Finding:
    """The finding, or what its message says by itself where its scene is not shown."""
    scene = SCENES.get(finding.id)
    if scene is None or not is_report(context) or scene.shown(context):
        return finding
    return scene.instead.found(
        scene.title,
        evidence=finding.evidence,
        fix=Fix(text=scene.text, looks=finding.fix.looks if finding.fix else ()),
    )
