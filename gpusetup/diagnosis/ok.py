"""When `ok` may be said, and what it rests on: the one place that decides it.

It needs a proof, and nothing that speaks against it. A machine that was read itself was asked all
there is to ask. A text must show no complaint, no failure and no `False` of torch's: most texts
with a healthy `nvidia-smi` are of people whose program does not work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.evidence.context import (
    cuda_errors,
    driver_answers,
    events,
    gpus,
    is_cuda_build,
    is_report,
    readings,
    says_nothing_else,
    serving,
)
from gpusetup.findings.presence import serves_its_maker
from gpusetup.messages.cuda_codes import BY_PROGRAMS
from gpusetup.model.finding import COMPLAINT
from gpusetup.model.machine import Event, visible_gpus

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext
    from gpusetup.model.machine import Snapshot

IN_VAIN = ("no-nvidia-driver", "cuda-unavailable", "cuda-error", "driver-check-failed")
"""What a program says that looked for the driver or for CUDA: a driver that answers elsewhere in
the text, on the host say, shows nothing of where it looked."""
KERNELS_XIDS = frozenset({"13", "31", "43", "45"})
"""The same in the kernel's log: a fault in the engine or the memory of one program's own work."""


def _has_no_match(context: RuleContext) -> bool:
    """Whether a library of CUDA fails: nothing that was said before counts as healthy then."""

    return bool(events(context, "cuda-library-error", "cuda-call-not-supported"))


def may_be_ok(context: RuleContext) -> bool:
    """Whether a working stack is shown, and a text complains of nothing."""
    complains = is_report(context) and readings(context, COMPLAINT)
    if complains or says_false(context.snapshot) or _has_no_match(context):
        return False
    return serves_its_maker(context) or bool(
        _said_healthy(context) if is_report(context) else _measured(context)
    )


def says_false(machine: Snapshot) -> bool:
    """Whether torch answered a text `False` somewhere, whatever it answered elsewhere."""
    answers = (one for one in machine.readings if one.subject == "torch.cuda_available")
    return machine.origin == "report" and any(one.value == "False" for one in answers)


def _said_healthy(context: RuleContext) -> bool:
    """Whether a text shows it: something computed, or all that it shows is in order. That a build
    fits a driver is no proof of a torch that nobody saw computing."""
    torch = context.torch
    asked = torch.version or torch.installed is not None or context.snapshot.failing.program
    in_order = _listed(context) and not asked and not events(context, *IN_VAIN)
    return computed(context) or _warned_in_vain(context) or in_order


def computed(context: RuleContext) -> bool:
    """Whether a program is said to have computed on the GPU, or torch to see it."""
    ran = events(context, "gpu-computes") or cuda_errors(context, *BY_PROGRAMS)
    xids = (e.values.get("number") for e in events(context, "xid") if not _is_of_pictures(e))
    return bool(context.torch.cuda_available or ran or KERNELS_XIDS.intersection(xids))


def _is_of_pictures(xid: Event) -> bool:
    """Whether what drew a picture failed, and nothing that computed: Xid 13 names the unit."""
    return "Graphics Exception: " in (xid.text or "")


def _warned_in_vain(context: RuleContext) -> bool:
    """Whether all that a text shows is torch's warning of a GPU whose major it has kernels for."""
    return says_nothing_else(context) and bool(events(context, "capability-warning"))


def _listed(context: RuleContext) -> bool:
    """Whether a driver listed a GPU; what is only mentioned has no place."""
    return any(gpu.nvml_index is not None or gpu.uuid or gpu.pci_bus_id for gpu in gpus(context))


def _measured(context: RuleContext) -> bool:
    """A visible GPU, a driver that answered (the kernel's files alone are no answer), and a CUDA
    build whose kernels serve every GPU, as far as known; or torch's own word."""
    machine = context.snapshot
    torch, seen = machine.torch, visible_gpus(machine)
    if context.other_host:
        asked = True
    else:
        codes = (machine.driver.nvml_code, machine.cuda_api.init_code)
        indices = (i for gpu in gpus(context) for i in (gpu.nvml_index, gpu.cuda_index))
        asked = bool(seen) and (0 in codes or any(i is not None for i in indices))
    known = (serving(context, gpu) for gpu in seen if gpu.compute_capability)
    serves = is_cuda_build(torch) and (torch.kernels is None or all(known))
    return asked and bool(torch.cuda_available or serves)


def proof(context: RuleContext) -> str:
    """What was seen, in one line, and nothing that was not."""
    torch, seen = context.torch, visible_gpus(context.snapshot)
    build = f"torch {torch.version}" if torch.version else "torch"
    names = ", ".join(dict.fromkeys(gpu.name for gpu in seen)) or "the GPU"
    kernels = torch.version and seen and all(serving(context, gpu) for gpu in seen)
    if serves_its_maker(context):
        return f"{build} is the right build for this GPU; not tested: run `gpusetup verify`"
    if kernels and context.other_host:
        return f"{build} has kernels for {names}; gpusetup did not test the driver there"
    if kernels and is_cuda_build(torch) and (driver_answers(context) or not is_report(context)):
        return f"{build} can use {names}"
    if torch.cuda_available:
        return f"{build} reports that it sees {names}"
    if computed(context):
        return f"a program computed on {names}"
    if _warned_in_vain(context):
        return (
            f"torch has kernels that run on {names}, so you can ignore its warning; the text "
            "shows no computation"
        )
    return "the driver works and shows no fault; the text does not show torch"
