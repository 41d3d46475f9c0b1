"""What `ok` rests on: which parts of a working stack were seen, and what they say together."""

from __future__ import annotations

from gpusetup.accelerators.makers import BY_ID, maker_of
from gpusetup.evidence.context import (
    RuleContext,
    cuda_errors,
    driver_answers,
    events,
    gpus,
    is_cuda_build,
    is_report,
    says_nothing_else,
    serving,
)
from gpusetup.findings.makers.gpu_maker import serves_its_maker
from gpusetup.model.machine import Event, visible_gpus

NO_MATCH = ("cuda-library-error", "cuda-call-not-supported")
"""Events under which nothing that was said before counts as healthy."""
KERNELS_RAN = (700, 701, 702, 710, 715, 716, 718, 719)
"""What a program's own kernel did wrong (an assertion, a bad address): it ran, so that the stack
under it works."""

KERNELS_XIDS = frozenset({"13", "31", "43", "45"})
"""The same in the kernel's log: a fault in the engine or the memory of one program's own work."""


def shown_healthy(context: RuleContext) -> bool:
    """Whether a working stack is shown: GPU, driver, and a torch with kernels for it."""
    if events(context, *NO_MATCH):
        return False
    # No order: a text may say in words that all works; a live machine is measured.
    if is_report(context) or serves_its_maker(context):
        return serves_its_maker(context) or _said_healthy(context)
    questions = (gpu_is_shown, driver_is_shown, torch_is_shown)
    return all(question(context) for question in questions)


def _said_healthy(context: RuleContext) -> bool:
    """Whether a text shows it: something computed, or all that it shows is in order. That a build
    fits a driver is no proof of a torch that nobody saw computing."""
    torch = context.snapshot.torch
    asked = torch.version or torch.installed is not None or context.snapshot.failing.program
    in_order = _listed(context) and not asked and not events(context, *IN_VAIN)
    return computed(context) or warned_in_vain(context) or in_order


IN_VAIN = ("no-nvidia-driver", "cuda-unavailable", "cuda-error", "driver-check-failed")
"""What a program says that looked for the driver or for CUDA: a driver that answers elsewhere in
the text, on the host say, shows nothing of where it looked."""


def computed(context: RuleContext) -> bool:
    """Whether a program is said to have computed on the GPU, or torch to see it."""
    ran = events(context, "gpu-computes")
    xids = {e.values.get("number") for e in events(context, "xid") if not _is_of_pictures(e)}
    sees = context.snapshot.torch.cuda_available
    return bool(sees or ran or cuda_errors(context, *KERNELS_RAN) or xids & KERNELS_XIDS)


def warned_in_vain(context: RuleContext) -> bool:
    """Whether all that a text shows is torch's warning of a GPU whose major it has kernels for."""
    return says_nothing_else(context) and bool(events(context, "capability-warning"))


def _is_of_pictures(xid: Event) -> bool:
    """Whether what drew a picture failed, and nothing that computed: Xid 13 names the unit.

    >>> _is_of_pictures(Event(kind="xid", text="13, Graphics Exception: Shader Program Header 11"))
    True
    >>> _is_of_pictures(Event(kind="xid", text="13, Graphics SM Warp Exception on (GPC 0, TPC 0)"))
    False
    """
    return "Graphics Exception: " in (xid.text or "")


def _listed(context: RuleContext) -> bool:
    """Whether a driver listed a GPU; what is only mentioned has no place."""
    return any(gpu.nvml_index is not None or gpu.uuid or gpu.pci_bus_id for gpu in gpus(context))


def gpu_is_shown(context: RuleContext) -> bool:
    return context.other_host or bool(visible_gpus(context.snapshot))


def driver_is_shown(context: RuleContext) -> bool:
    """Whether the driver answered this time: the kernel's files alone are no answer."""
    if context.other_host:
        return True
    # No order: a text shows the version that a driver gave, and not the call that gave it.
    return driver_answers(context) if is_report(context) else answered(context)


def answered(context: RuleContext) -> bool:
    """Whether NVML, CUDA or nvidia-smi gave an answer; /proc numbers no GPU."""
    machine = context.snapshot
    asked = machine.driver.nvml_code == 0 or machine.cuda_api.init_code == 0
    return asked or any(g.nvml_index is not None or g.cuda_index is not None for g in gpus(context))


def torch_is_shown(context: RuleContext) -> bool:
    """A CUDA build whose kernels serve every visible GPU, as far as known; or its own word."""
    torch = context.snapshot.torch
    if torch.cuda_available:
        return True
    if not is_cuda_build(torch):
        return False
    known = [gpu for gpu in visible_gpus(context.snapshot) if gpu.compute_capability]
    return torch.kernels is None or all(serving(context, gpu) for gpu in known)


def kernels_are_shown(context: RuleContext) -> bool:
    """Whether a kernel of the installed build was found for every visible GPU."""
    seen = visible_gpus(context.snapshot)
    return bool(seen) and all(serving(context, gpu) for gpu in seen)


def proof(context: RuleContext) -> str:
    """What was seen, in one line, and nothing that was not."""
    torch = context.snapshot.torch
    build = f"torch {torch.version}" if torch.version else "torch"
    if serves_its_maker(context):
        maker = BY_ID.get(maker_of(torch.backend) or "")
        kind = (
            f"a build for {maker.name} GPUs"
            if maker
            else "the ordinary build, for the Apple GPU too"
        )
        return f"{build} is {kind}, and one is here; whether it starts was not asked"
    names = (
        ", ".join(dict.fromkeys(gpu.name for gpu in visible_gpus(context.snapshot))) or "the GPU"
    )
    matched = is_cuda_build(torch) and bool(torch.version) and kernels_are_shown(context)
    if context.other_host and matched:
        return f"{build} has kernels for {names}; the driver there was not asked"
    if matched and driver_is_shown(context):
        return f"{build} can use {names}"
    if torch.cuda_available:
        return f"{build} says itself that it sees {names}"
    if computed(context):
        return f"a program computed on {names}"
    if warned_in_vain(context):
        harmless = f"torch has kernels that run on {names}: its warning can be ignored"
        return f"{harmless}; no computation was shown"
    if not _listed(context) and not answered(context):
        return "nothing of CUDA is to be mended"
    many = len(visible_gpus(context.snapshot)) > 1
    driver = f"the driver answers and the {'GPUs are' if many else 'GPU is'} healthy"
    if torch.version is None:
        return f"{driver}; torch was not shown"
    return f"{driver}; whether {build} has kernels for {names} was not shown"
