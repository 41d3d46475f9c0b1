"""What a cluster's scheduler gave a job: no GPU, where the job asked for none."""

from __future__ import annotations

from gpusetup.evidence.context import RuleContext, events, gpus
from gpusetup.model.machine import Events

NONE_GIVEN = ("", "nodevfiles")
"""What Slurm sets CUDA_VISIBLE_DEVICES to in a job without a GPU (its gres plugin)."""
SAYS_NONE = "no cuda gpus are available"


def not_asked_for(context: RuleContext) -> Events:
    """What shows a Slurm job that asked for no GPU and sees none; else nothing."""
    job = events(context, "slurm-job")
    if not job or any(e.values.get("gpus") for e in job) or gpus(context):
        return ()
    blind = events(context, "no-devices-found", "cuda-unavailable")
    said = [e for e in blind if e.kind == "no-devices-found" or SAYS_NONE in (e.text or "").lower()]
    value = context.snapshot.environment.get("CUDA_VISIBLE_DEVICES")
    none_given = value is not None and value.strip().lower() in NONE_GIVEN
    return (*job[:1], *said) if said or none_given else ()
