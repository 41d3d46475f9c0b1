"""The facts about the machine on doctor's screen, and the build that fits it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gpusetup.accelerators.makers import BY_ID, is_seen_only, maker_of
from gpusetup.model.machine import Gpu, GpuLink, Snapshot
from gpusetup.model.units import GIB
from gpusetup.readings.smi_topology import WORDS

if TYPE_CHECKING:
    from gpusetup.model.builds import Advice, Offer
    from gpusetup.model.documents import DoctorAnswer, ResolveAnswer


def machine_facts(answer: DoctorAnswer) -> dict[str, str | None]:
    """Label -> fact about the machine for doctor's screen; None leaves the fact out."""
    machine = answer.snapshot
    python, torch = machine.python, machine.torch
    # A version such as 2.9.1+cu128 already contains the backend.
    backend = None if "+" in (torch.version or "") else torch.backend
    installer = f"installed by {torch.installer}" if torch.installer else None
    torch_text = joined(torch.version, backend, installer)
    if torch.installed is False:
        torch_text = "not installed"
    environment = python.executable or "unknown"
    if python.chosen_by:
        environment += f" (from {python.chosen_by})"
    container = machine.container.kind

    values: dict[str, str | None] = {
        **host_facts(machine),
        "links": _links_line(machine),
        "torch": torch_text,
        "Python": joined(python.version, python.manager),
        "environment": environment,
        "container": None if container == "none" else container,
    }
    # If a text shows neither a GPU nor a driver, no build can be recommended.
    if machine.origin != "report" or machine.gpus or machine.driver.version:
        values["recommended"] = _recommended_line(answer.resolution)
        values["newest"] = newest_line(answer.newest, answer.resolution)
    values["catalog"] = answer.catalog_as_of
    return values


def host_facts(machine: Snapshot) -> dict[str, str]:
    """Maps labels to the facts that decide which builds run on a machine, whatever its Python."""
    system, driver = machine.os, machine.driver
    drivers = [driver.version, f"CUDA {driver.cuda}" if driver.cuda else None]
    if stack := machine.makers:
        runtime = f"ROCm {stack.runtime}" if stack.runtime else None
        drivers += [stack.kernel_driver, stack.driver_version, runtime]
    return {
        "system": joined(system.name or system.family, system.machine, system.libc),
        "driver": joined(*drivers),
        "GPU": _gpus_text(machine),
    }


def joined(*parts: str | None) -> str:
    """The known parts, each once, joined with commas; `unknown` if there are none."""
    return ", ".join(dict.fromkeys(part for part in parts if part)) or "unknown"


def counted(texts: Iterable[str]) -> list[str]:
    """Each text once, with its number if it occurs several times.

    >>> counted(["T4", "L4", "T4"])
    ['2 x T4', 'L4']
    """
    return [f"{count} x {text}" if count > 1 else text for text, count in Counter(texts).items()]


# --- the GPUs -------------------------------------------------------------------------------------


def _gpus_text(machine: Snapshot) -> str:
    """The GPUs of a machine as text, where equal GPUs are counted together."""
    if machine.gpus is None:
        # A ROCm or XPU build shows which maker's GPU the machine has. With any other build, it may
        # be an NVIDIA GPU, even if the text mentions another one.
        if not is_seen_only(maker_of(machine.torch.backend)):
            return "unknown"
        return _other_makers_gpu(machine) or "unknown"
    gpus = machine.gpus
    if not gpus and machine.makers is not None:
        gpus = machine.makers.gpus
    return "; ".join(counted(map(gpu_line, gpus))) or _other_makers_gpu(machine) or "no NVIDIA GPU"


def gpu_line(gpu: Gpu) -> str:
    """A GPU as text: its name, memory and architecture, and whether it is lost or hidden from
    programs.

    >>> gpu_line(Gpu(name="NVIDIA L4", memory_total_bytes=24 << 30, visible=False))
    'NVIDIA L4, 24.0 GiB, hidden'
    >>> gpu_line(Gpu(name="AMD Radeon RX 9070 XT", maker="amd", target="gfx1201"))
    'AMD Radeon RX 9070 XT, gfx1201'
    """
    memory = f"{gpu.memory_total_bytes / GIB:.1f} GiB" if gpu.memory_total_bytes else None
    architecture = gpu.target
    # Snapshots of the first version name no maker; their GPUs are NVIDIA's.
    if gpu.maker in (None, "nvidia"):
        architecture = gpu.compute_capability.sm if gpu.compute_capability else None
    state = "hidden" if gpu.visible is False else None
    if gpu.lost:
        state = "lost"
    return joined(gpu.name, memory, architecture, state)


def _other_makers_gpu(machine: Snapshot) -> str:
    """The GPU of another maker that a report mentions, as text; "" if it mentions none."""
    mentions = [event.values for event in machine.events if event.kind == "foreign-gpu"]
    # "AMD GPU" and "HIP error" tell the maker only; a model has a number, such as W7900.
    models = [gpu["name"] for gpu in mentions if re.search(r"\d{3}", gpu.get("name", ""))]
    makers = [f"{BY_ID[gpu['vendor']].name} GPU" for gpu in mentions if gpu.get("vendor") in BY_ID]
    # A text may call the same card "RX 7900" and "AMD Radeon RX 7900 XTX", so use the longest name.
    return max(models or makers, key=len, default="")


def _links_line(machine: Snapshot) -> str | None:
    """The links between the GPUs and their NUMA nodes as text; None if there is only one GPU or
    nothing is known.

    >>> gpus = tuple(Gpu(name="A100", nvml_index=n, numa_node=n) for n in (0, 1))
    >>> links = (GpuLink(first=0, second=1, kind="NV12"),)
    >>> _links_line(Snapshot(gpus=gpus, gpu_links=links))
    'GPU 0-1 12 NVLinks (NV12); NUMA node 0: GPU 0; NUMA node 1: GPU 1'
    """
    gpus = machine.gpus or ()
    if len(gpus) < 2:
        return None
    indexes_by_node: dict[int, list[str]] = defaultdict(list)
    for position, gpu in enumerate(gpus):
        if gpu.numa_node is not None:
            # A report may list GPUs without NVML's indexes; in that case, use their order.
            index = position if gpu.nvml_index is None else gpu.nvml_index
            indexes_by_node[gpu.numa_node].append(str(index))
    parts = _link_texts(machine.gpu_links or ())
    for node, indexes in sorted(indexes_by_node.items()):
        parts.append(f"NUMA node {node}: GPU {', '.join(indexes)}")
    return "; ".join(parts) or None


def _link_texts(links: Sequence[GpuLink]) -> list[str]:
    """Each type of link between two GPUs as text, with the pairs of GPUs that it connects."""
    pairs_by_type: dict[str, list[str]] = defaultdict(list)
    for link in links:
        pairs_by_type[link.kind].append(f"{link.first}-{link.second}")
    # Eight GPUs have 28 pairs, which need not be listed if all have the same type of link. Two GPUs
    # are a single pair, which is listed.
    are_all_equal = len(pairs_by_type) == 1 and len(links) > 1
    texts = []
    for link_type, pairs in pairs_by_type.items():
        gpus = "every two GPUs" if are_all_equal else f"GPU {', '.join(pairs)}"
        if link_type.startswith("NV"):
            # `NV12` means 12 NVLinks.
            words = f"{link_type[2:]} NVLinks"
        else:
            words = WORDS.get(link_type, "unknown link")
        texts.append(f"{gpus} {words} ({link_type})")
    return texts


# --- the builds -----------------------------------------------------------------------------------


def _recommended_line(resolution: ResolveAnswer | None) -> str:
    """The recommended build as text or, if none fits, the change that would make one possible."""
    if resolution is None:
        return "no build"
    if not resolution.torch:
        advice = resolution.advice
        return f"no build; {advice_text(advice)}" if advice else "no build"
    # Without a command, the installed torch stays: a vendor's or conda's is on no index of wheels.
    if not any(resolution.commands.values()):
        return f"keep torch {resolution.torch}, which is not on any index that gpusetup knows"
    vision, audio = resolution.torchvision, resolution.torchaudio
    return joined(
        _built(resolution),
        f"torchvision {vision}" if vision else None,
        f"torchaudio {audio}" if audio else None,
    )


def advice_text(advice: Advice) -> str:
    """Another driver or Python as text, with the build that it makes possible."""
    # A full version is the minimum; a branch such as 580 is the last branch that supports the GPU.
    newer = " or newer" if "." in advice.to else ""
    change = {
        "driver": f"use NVIDIA driver {advice.to}{newer}",
        "python": f"use a 64-bit Python {advice.to}",
    }[advice.change]
    return f"{change} to get {advice.gives}"


def _built(build: ResolveAnswer | Offer) -> str:
    """A build as text, with the oldest driver that can run it."""
    needs = f" (needs driver {build.driver_floor} or newer)" if build.driver_floor else ""
    return f"torch {build.torch} from {build.backend}{needs}"


def newest_line(newest: Offer | None, resolution: ResolveAnswer | None) -> str | None:
    """The newest build that fits, with its command; None if none fits, or if it is the recommended
    build."""
    if newest is None or resolution is None or resolution.torch in (None, newest.torch):
        return None
    return f"{_built(newest)}; to install it, run `{newest.command}`"
