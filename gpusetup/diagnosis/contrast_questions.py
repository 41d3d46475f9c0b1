"""Which command to ask for if the text compares two runs, or already shows the usual output.

If two runs differ in one thing, the command shows that thing. Output that the text already contains
is never asked for: `diagnosis.answered` chooses the next command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.accelerators.makers import maker_of
from gpusetup.causes import alike
from gpusetup.choose.installed import vendors_of
from gpusetup.evidence.context import events

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext

OF_ANOTHER_MAKER = {"amd", "intel"}


def is_of_another_maker(context: RuleContext) -> bool:
    """Whether the GPU is from AMD or Intel."""
    if maker_of(context.torch.backend) in OF_ANOTHER_MAKER:
        return True
    return not OF_ANOTHER_MAKER.isdisjoint(vendors_of(context.snapshot))


READING_OF_WAY = {
    "one-gpu": alike.NCCL_LOG,
    "gloo": alike.NCCL_LOG,
    "another-shell": alike.BOTH_SHELLS,
    "root": alike.RIGHTS,
    "kernel": alike.WHICH_STACK,
    "older-release": alike.BOTH_RELEASES,
}
"""What differs between two runs -> the command whose output shows the difference."""


def reading_by_contrast(context: RuleContext) -> str | None:
    """The command whose output differs between the working and the failing run; None if the report
    has no such pair of runs."""
    for event in events(context, "works-otherwise"):
        way = event.values.get("what", "")
        # Other makers' GPUs depend on system packages, not on Python packages.
        if way == "older-release" and is_of_another_maker(context):
            return alike.WHICH_STACK
        # A run that works on one GPU differs only if the failing run uses several.
        if way == "one-gpu" and not events(context, "several-gpus"):
            continue
        if way in READING_OF_WAY:
            return READING_OF_WAY[way]
    return None


def names_a_contrast(context: RuleContext) -> bool:
    """Whether the text names a working and a failing run, and a command shows how they differ."""
    return reading_by_contrast(context) is not None
