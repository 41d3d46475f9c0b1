"""What `ok` rests on: which parts of a working stack were seen, and what they say together."""

from __future__ import annotations

from gpusetup.model import visible_gpus
from gpusetup.resolver.held import maker_of
from gpusetup.rules.case import (
    Case,
    cuda_errors,
    driver_answers,
    events,
    gpus,
    is_cuda_build,
    is_report,
    serving,
)
from gpusetup.rules.gpu_maker import serves_its_maker

NO_MATCH = ("cuda-library-error", "cuda-call-not-supported")
"""Events under which nothing that was said before counts as healthy."""
KERNELS_RAN = 710
"""An assertion in a program's kernel: it ran, so that the stack under it works."""


def shown_healthy(case: Case) -> bool:
    """Whether a working stack is shown: GPU, driver, and a torch with kernels for it."""
    if events(case, *NO_MATCH):
        return False
    if (is_report(case) and _said_healthy(case)) or serves_its_maker(case):
        return True
    questions = (gpu_is_shown, driver_is_shown, torch_is_shown)
    return all(question(case) for question in questions)


def _said_healthy(case: Case) -> bool:
    """Whether a text shows it: something computed, or all that it shows is in order."""
    torch = case.snapshot.torch
    only_a_driver = _listed(case) and torch.version is None and torch.installed is None
    return bool(torch.cuda_available) or computed(case) or only_a_driver


def computed(case: Case) -> bool:
    """Whether a program is said to have computed on the GPU."""
    ran = events(case, "gpu-computes", "capability-warning") or cuda_errors(case, KERNELS_RAN)
    return bool(ran)


def _listed(case: Case) -> bool:
    """Whether a driver listed a GPU; one that somebody only mentions has no index."""
    return any(gpu.nvml_index is not None or gpu.uuid for gpu in gpus(case))


def gpu_is_shown(case: Case) -> bool:
    return case.other_host or bool(visible_gpus(case.snapshot))


def driver_is_shown(case: Case) -> bool:
    """Whether the driver answered this time: the kernel's files alone are no answer."""
    if case.other_host:
        return True
    return driver_answers(case) if is_report(case) else answered(case)


def answered(case: Case) -> bool:
    """Whether NVML, CUDA or nvidia-smi gave an answer; /proc numbers no GPU."""
    machine = case.snapshot
    asked = machine.driver.nvml_code == 0 or machine.cuda_api.init_code == 0
    return asked or any(g.nvml_index is not None or g.cuda_index is not None for g in gpus(case))


def torch_is_shown(case: Case) -> bool:
    """A CUDA build whose kernels serve every visible GPU, as far as known; or its own word."""
    torch = case.snapshot.torch
    if torch.cuda_available:
        return True
    if not is_cuda_build(torch):
        return False
    known = [gpu for gpu in visible_gpus(case.snapshot) if gpu.compute_capability]
    return torch.kernels is None or all(serving(case, gpu) for gpu in known)


def kernels_are_shown(case: Case) -> bool:
    """Whether a kernel of the installed build was found for every visible GPU."""
    seen = visible_gpus(case.snapshot)
    return bool(seen) and all(serving(case, gpu) for gpu in seen)


def proof(case: Case) -> str:
    """What was seen, in one line, and nothing that was not."""
    torch = case.snapshot.torch
    build = f"torch {torch.version}" if torch.version else "torch"
    if serves_its_maker(case):
        whose = {"amd": "AMD GPUs", "intel": "Intel GPUs"}.get(maker_of(torch.backend) or "")
        kind = f"a build for {whose}" if whose else "the ordinary build, for the Apple GPU too"
        return f"{build} is {kind}, and one is here; whether it starts was not asked"
    names = ", ".join(dict.fromkeys(gpu.name for gpu in visible_gpus(case.snapshot))) or "the GPU"
    matched = is_cuda_build(torch) and bool(torch.version) and kernels_are_shown(case)
    if case.other_host and matched:
        return f"{build} has kernels for {names}; the driver there was not asked"
    if matched and driver_is_shown(case):
        return f"{build} can use {names}"
    if torch.cuda_available:
        return f"{build} says itself that it sees {names}"
    if computed(case):
        return f"a program computed on {names}"
    if not _listed(case) and not answered(case):
        return "nothing of CUDA is to be mended"
    many = len(visible_gpus(case.snapshot)) > 1
    driver = f"the driver answers and the {'GPUs are' if many else 'GPU is'} healthy"
    if torch.version is None:
        return f"{driver}; torch was not shown"
    return f"{driver}; whether {build} has kernels for {names} was not shown"
