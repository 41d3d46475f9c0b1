"""CUDA's library of a driver that runs: missing, failing, or blind to a GPU."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    event_evidence,
    events,
    gpus,
    has_nvidia,
    in_container,
    is_cuda_build,
    on,
    value_evidence,
)
from gpusetup.findings.driver.cuda_codes import CUDA_INIT_FAILED
from gpusetup.findings.driver.nvml_codes import (
    GPU_DOES_NOT_ANSWER,
    ONE_GPU,
)
from gpusetup.findings.driver.silent import NO_LIBRARY, named_gpu, with_compute_and_utility
from gpusetup.findings.driver.state import GPU_INIT_FAILED, LIBCUDA_MISSING, compute_libraries
from gpusetup.findings.layers import Layer
from gpusetup.findings.record import Cause
from gpusetup.model.finding import Finding, Fix
from gpusetup.model.machine import Event
from gpusetup.model.shell import lines


def libcuda_not_loaded(context: RuleContext) -> Iterator[Finding]:
    """A driver runs or its library is there, and that does not start CUDA: server packages, a
    container, an installation that broke off."""
    messages = events(context, "libcuda-missing")
    driver = context.snapshot.driver
    nvml_works = driver.nvml_code == 0
    found = driver.library_found and has_nvidia(context) is not False
    silent = driver.nvml_code in (None, 9, *NO_LIBRARY)
    runs = nvml_works or (silent and (driver.module_loaded or found))
    if not messages or not runs or context.snapshot.os.jetson:
        return
    works = "NVML works, " if nvml_works else ""
    make = (
        LIBCUDA_MISSING.found
        if is_cuda_build(context.snapshot.torch) or not nvml_works
        else LIBCUDA_MISSING.as_warning
    )
    yield make(
        f"The driver's CUDA library is missing or does not load: {works}CUDA cannot start",
        detail="Server installs and containers at times leave the compute libraries out; an "
        "installation that broke off leaves files of two versions.",
        evidence=event_evidence(messages),
        fix=_libcuda_fix(context),
    )


LOOK_IN_WSLS = "export LD_LIBRARY_PATH=/usr/lib/wsl/lib:$LD_LIBRARY_PATH"
LOOK_IN_DEBIANS = "export LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu:$LD_LIBRARY_PATH"


def libcuda_not_linked(context: RuleContext) -> Iterator[Finding]:
    """cuDNN opens libcuda.so by its plain name, and only libcuda.so.1 is on the loader's way."""
    messages = events(context, "libcuda-unlinked")
    if messages:
        wsl = context.snapshot.os.wsl
        folder = "/usr/lib/wsl/lib" if wsl else "/usr/lib/x86_64-linux-gnu"
        asker = messages[0].values.get("asker", "cuDNN")
        yield LIBCUDA_MISSING.found(
            f"{asker} does not find libcuda.so by its plain name",
            detail="The driver's library is there as libcuda.so.1; the name without a number is a "
            "link to it.",
            evidence=event_evidence(messages),
            fix=Fix(
                text=f"Let the loader look where the driver's libcuda.so is (usually {folder})",
                commands=lines(LOOK_IN_WSLS if wsl else LOOK_IN_DEBIANS),
            ),
        )


def _libcuda_fix(context: RuleContext) -> Fix:
    if not in_container(context):
        return compute_libraries(context)
    return Fix(
        text="Start the container again with compute among its driver capabilities "
        "(NVIDIA_DRIVER_CAPABILITIES=compute,utility; the command does it with a plain image)",
        commands=with_compute_and_utility(),
    )


def cuda_call_failed(context: RuleContext) -> Iterator[Finding]:
    """CUDA starts and cannot say how many GPUs there are."""
    messages = events(context, "cuda-init-failed")
    if messages and not context.other_host:
        first = messages[0].values
        what = first.get("field", "devices").replace("_", " ")
        yield CUDA_INIT_FAILED.found(
            f"CUDA fails when it is asked for its {what}: {first.get('problem', 'an error')}",
            evidence=event_evidence(messages),
            fix=Fix(
                text="Reboot; if it stays, install the driver anew",
                commands=lines("sudo reboot") if on(context, "linux") else (),
                needs_root=True,
                needs_reboot=True,
            ),
        )


CUDA_MISSES_GPU = Cause(
    id="cuda-misses-gpu",
    symptom=True,
    place=(Layer.READINESS, 180),
    title="CUDA does not see a GPU that the driver lists",
    means="The GPU answers NVML, and CUDA leaves it out: it could not start it.",
    proven_by="NVML's and CUDA's lists, and no CUDA_VISIBLE_DEVICES",
    not_when="gpu-fell-off-bus; mig-misconfigured",
    way_out="Kernel log, reset or reboot",
    source="CUDA Driver API reference, cuDeviceGetCount",
)


def cuda_misses_gpu(context: RuleContext) -> Iterator[Finding]:
    """A GPU that NVML lists and CUDA does not, though nothing hides it."""
    missed = events(context, "cuda-misses-gpu")
    if not missed or context.other_host:
        return
    count = context.snapshot.cuda_api.device_count
    yield CUDA_MISSES_GPU.found(
        f"CUDA does not see {' and '.join(named_gpu(context, event) for event in missed[:4])}, "
        "which the driver lists",
        detail="Nothing hides it: CUDA_VISIBLE_DEVICES is not set.",
        evidence=(
            value_evidence(context, "gpus", f"the driver lists {len(gpus(context))}"),
            value_evidence(context, "cuda_api.device_count", f"CUDA sees {count}"),
        ),
        fix=ONE_GPU.fix(context),
    )


def gpu_not_listed(context: RuleContext) -> Iterator[Finding]:
    """A GPU that CUDA or the kernel's driver has is not in the list of the driver's GPUs."""
    messages = events(context, "gpu-not-listed")
    if not messages or context.other_host:
        return
    seen = [event for event in messages if event.values.get("why", "").startswith("CUDA")]
    concerned = tuple(_unlisted(event) for event in messages)
    cause = GPU_DOES_NOT_ANSWER if seen else GPU_INIT_FAILED
    yield cause.found(
        f"{' and '.join(concerned[:4])} {'is' if len(messages) == 1 else 'are'} not among the GPUs "
        f"that {messages[0].values.get('asked')} lists, although {messages[0].values.get('why')}",
        detail="A GPU that cannot be started is left out of the list; torch does without it and "
        "says nothing.",
        evidence=(
            *event_evidence(messages),
            value_evidence(context, "gpus", f"{len(gpus(context))} GPUs are listed"),
        ),
        fix=ONE_GPU.fix(context),
    )


def _unlisted(event: Event) -> str:
    values = event.values
    named = values.get("name") if values.get("name") not in ("", "unknown") else None
    more = ", ".join(part for part in (values.get("bus"), named) if part)
    return f"GPU {values.get('place', '')} by slot ({more})"


RULES = (
    gpu_not_listed,
    libcuda_not_loaded,
    libcuda_not_linked,
    cuda_call_failed,
    cuda_misses_gpu,
)
