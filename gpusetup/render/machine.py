"""The facts about the machine on doctor's screen, and the build that fits it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gpusetup.accelerators.makers import BY_ID, is_seen_only, maker_of
from gpusetup.accelerators.other_gpus import maker_named
from gpusetup.evidence.maker_facts import cards_of_other_makers, may_be_another_makers
from gpusetup.model.machine import Gpu, Snapshot
from gpusetup.model.units import GIB
from gpusetup.render.topology import links_line
from gpusetup.report.hardware import ERRORS_OF_ROCM

if TYPE_CHECKING:
    from gpusetup.model.builds import Offer
    from gpusetup.model.documents import DoctorAnswer, ResolveAnswer


def machine_facts(answer: DoctorAnswer, *, recommends: bool = True) -> dict[str, str | None]:
    """Maps labels to facts about the machine for doctor's screen; None means that the fact is left
    out.

    `recommends`: whether to include the build that fits this machine.
    """
    machine = answer.snapshot
    system, driver, python = machine.os, machine.driver, machine.python
    driver_cuda = f"CUDA {driver.cuda}" if driver.cuda else None
    environment = python.executable or "unknown"
    if python.chosen_by:
        environment += f" (from {python.chosen_by})"
    container = machine.container.kind

    values: dict[str, str | None] = {
        "system": joined(system.name or system.family, system.machine, system.libc),
        "driver": joined(driver.version, driver_cuda, *makers_driver(machine)),
        "GPU": _gpus_text(machine),
        "links": links_line(machine),
        "torch": torch_line(machine),
        "Python": joined(python.version, python.manager),
        "environment": environment,
        "container": None if container == "none" else container,
    }
    # If a text shows neither a GPU nor a driver, no build can be recommended.
    shows_hardware = machine.gpus or driver.version
    is_judged = machine.origin != "report" or shows_hardware
    if is_judged and recommends and not may_be_another_makers(machine):
        values["recommended"] = recommended_line(answer.resolution)
        values["newest"] = newest_line(answer.newest, answer.resolution)
    values["catalog"] = answer.catalog_as_of
    return values


def _gpus_text(machine: Snapshot) -> str:
    """The GPUs of a machine as text, where equal GPUs are counted together."""
    if machine.gpus is None:
        # A ROCm or XPU build shows which maker's GPU the machine has; with any other build, it may
        # be an NVIDIA GPU.
        has_other_build = is_seen_only(maker_of(machine.torch.backend))
        return (other_makers_gpus(machine) if has_other_build else "") or "unknown"
    lines = [gpu_line(gpu) for gpu in machine.gpus]
    texts = counted(lines)
    if not texts and machine.makers is not None:
        texts = [maker_gpu_line(gpu) for gpu in machine.makers.gpus]
    if may_be_another_makers(machine):
        texts = [*texts, other_makers_gpus(machine)]
    return "; ".join(texts) or other_makers_gpus(machine) or "no NVIDIA GPU"


def counted(texts: Iterable[str]) -> list[str]:
    """Each text once, with its number if it occurs several times.

    >>> counted(["T4", "L4", "T4"])
    ['2 x T4', 'L4']
    """
    counted_texts = []
    for text, count in Counter(texts).items():
        counted_texts.append(f"{count} x {text}" if count > 1 else text)
    return counted_texts


def maker_gpu_line(gpu: Gpu) -> str:
    """A GPU from a maker other than NVIDIA as text, with its memory and target if they are known.

    >>> maker_gpu_line(Gpu(name="AMD Radeon RX 9070 XT", target="gfx1201"))
    'AMD Radeon RX 9070 XT, gfx1201'
    """
    memory = f"{gpu.memory_total_bytes / GIB:.1f} GiB" if gpu.memory_total_bytes else None
    return joined(gpu.name, memory, gpu.target)


def makers_driver(machine: Snapshot) -> tuple[str | None, ...]:
    """The kernel driver of AMD, Intel or Apple, its version and the ROCm version; empty if there is
    no such driver."""
    stack = machine.makers
    if stack is None:
        return ()
    runtime = f"ROCm {stack.runtime}" if stack.runtime else None
    return (stack.kernel_driver, stack.driver_version, runtime)


def other_makers_gpus(machine: Snapshot) -> str:
    """The GPUs of other makers that a report mentions, as text; "" if it mentions none."""
    names: dict[str, None] = {}
    makers: dict[str, None] = {}
    for event in cards_of_other_makers(machine):
        name = event.values.get("name", "")
        # A message such as "HIP error" shows the maker, but it is not the name of a GPU.
        is_a_message = name.startswith(ERRORS_OF_ROCM)
        if not is_a_message and (maker_named(name) or MODEL.search(name)):
            names[name] = None
        makers[event.values.get("vendor", "")] = None

    # "AMD GPU" tells nothing more where the text also names the model.
    models = {name: None for name in names if any(letter.isdigit() for letter in name)}
    names = models or names
    fullest_names = []
    for name in names:
        # A text may call the same card "RX 7900" and "AMD Radeon RX 7900 XTX", so keep only the
        # longer name.
        fuller_names = [fuller for fuller in names if name in fuller and fuller != name]
        if name and not fuller_names:
            fullest_names.append(name)
    if not fullest_names:
        fullest_names = [f"{BY_ID[maker].name} GPU" for maker in makers if maker in BY_ID]
    return "; ".join(fullest_names)


MODEL = re.compile(r"\b[A-Z]{1,4} ?\d{3,4}")
"""A model without its maker's name: `W7900`."""


def joined(*parts: str | None) -> str:
    """The known parts, joined with commas; `unknown` if there are none."""
    known_parts = [part for part in parts if part]
    return ", ".join(known_parts) or "unknown"


def gpu_line(gpu: Gpu) -> str:
    """An NVIDIA GPU as text: its name, memory and architecture, and whether it is lost or hidden
    from programs.

    >>> gpu_line(Gpu(name="NVIDIA L4", memory_total_bytes=24 << 30, visible=False))
    'NVIDIA L4, 24.0 GiB, hidden'
    """
    memory = f"{gpu.memory_total_bytes / GIB:.1f} GiB" if gpu.memory_total_bytes else None
    architecture = gpu.compute_capability.sm if gpu.compute_capability else None
    state = None
    if gpu.lost:
        state = "lost"
    elif gpu.visible is False:
        state = "hidden"
    return joined(gpu.name, memory, architecture, state)


def torch_line(machine: Snapshot) -> str:
    """The installed torch as text: its version, backend and installer."""
    torch = machine.torch
    if torch.installed is False:
        return "not installed"
    # A version such as 2.9.1+cu128 already contains the backend.
    names_backend = "+" in (torch.version or "")
    backend = None if names_backend else torch.backend
    installer = f"installed by {torch.installer}" if torch.installer else None
    return joined(torch.version, backend, installer)


def recommended_line(resolution: ResolveAnswer | None) -> str:
    """The recommended build as text or, if none fits, the change that would make one possible."""
    if resolution is None:
        return "no build"
    # A vendor's build, or conda's, is on no index of wheels.
    if resolution.torch and not any(resolution.commands.values()):
        return f"keep torch {resolution.torch}, which no index that gpusetup knows has"
    if resolution.torch:
        vision, audio = resolution.torchvision, resolution.torchaudio
        return joined(
            built(resolution),
            f"torchvision {vision}" if vision else None,
            f"torchaudio {audio}" if audio else None,
        )
    advice = resolution.advice
    if advice is None:
        return "no build"
    return f"no build; {advice.change} {advice.to} gives {advice.gives}"


def built(build: ResolveAnswer | Offer) -> str:
    """A build as text, with the oldest driver that can run it."""
    text = f"torch {build.torch} from {build.backend}"
    if build.driver_floor:
        text += f" (needs driver {build.driver_floor} or newer)"
    return text


def newest_line(newest: Offer | None, resolution: ResolveAnswer | None) -> str | None:
    """The newest build that fits, with the command that installs it; None if it is the recommended
    build."""
    if newest is None or resolution is None:
        return None
    if resolution.torch is None or resolution.torch == newest.torch:
        return None
    return f"{built(newest)}; to install it, run `gpusetup install --upgrade`"
