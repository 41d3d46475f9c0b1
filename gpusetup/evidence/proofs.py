"""When a text proves a cause on its own: a message that states it, or two values that were read.

A record names its proof (`certain_if`). Without one its cause is at most likely in a text, however
often it was right: what a text leaves out may speak against it. A proof is needed and does not
suffice, because the doubts of `diagnosis.certainty` still subtract. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gpusetup.evidence.context import (
    RuleContext,
    cuda_needed,
    driver_answers,
    events,
    gpus,
    in_container,
    nvidia_on_pci,
    package,
    whole_number,
)
from gpusetup.model.machine import Event
from gpusetup.model.versions import parsed

Proof = Callable[[RuleContext], bool]


def message_states_it(context: RuleContext) -> bool:
    """The program's message states the cause explicitly, and can have only one reason."""
    return True


def two_values_do_not_fit(context: RuleContext) -> bool:
    """The check that finds the cause compares two values that were both read."""
    return True


def message_states(kind: str, words: str) -> Proof:
    """One of the cause's messages contains these words; its other messages prove less."""
    pattern = re.compile(words, re.IGNORECASE)

    def proof(context: RuleContext) -> bool:
        return any(pattern.search(event.text or "") for event in events(context, kind))

    return proof


def both_are_read(kind: str, first: str, second: str) -> Proof:
    """One message names both values that do not fit."""

    def proof(context: RuleContext) -> bool:
        return any({first, second} <= event.values.keys() for event in events(context, kind))

    return proof


# --- torch, its build, the GPU --------------------------------------------------------------------


def cpu_build_beside_a_gpu(context: RuleContext) -> bool:
    """torch printed that it is a CPU build, and the machine has an NVIDIA GPU."""
    said_so = events(context, "torch-not-compiled-with-cuda")
    printed = (context.torch.version or "").endswith("+cpu")
    return bool(said_so or printed) and bool(gpus(context))


def build_of_one_maker_beside_a_gpu_of_another(context: RuleContext) -> bool:
    """The label of torch's build was read, and the GPU of another maker is named."""
    return context.torch.backend is not None and bool(
        events(context, "foreign-gpu") or gpus(context) or nvidia_on_pci(context)
    )


def capability_is_read(context: RuleContext) -> bool:
    """The GPU's model, and so its compute capability, is known."""
    known = any(gpu.compute_capability for gpu in gpus(context))
    named = any("capability" in e.values for e in events(context, *NAMES_CAPABILITY))
    return known or named


NAMES_CAPABILITY = ("bf16-unsupported", "gpu-too-old-for-triton", "gpu-not-in-wheel")


def driver_and_need_are_read(context: RuleContext) -> bool:
    """Both the driver's version and what needs a newer one are known, or torch states both."""
    refused = events(context, "driver-too-old", "image-needs-newer-driver")
    if any(event.values.keys() & {"found", "needs_driver", "needed"} for event in refused):
        return True
    return context.driver.version is not None and cuda_needed(context.torch) is not None


def installed_pair_is_read(companion: str) -> Proof:
    """torch's release and its companion's were both read."""

    def proof(context: RuleContext) -> bool:
        return context.torch.version is not None and package(context, companion) is not None

    return proof


def releases_of_torch_differ(context: RuleContext) -> bool:
    """The extension says for which torch it was built, and another release runs."""
    return any(map(_names_two_releases, events(context, "extension-abi-mismatch")))


def _names_two_releases(message: Event) -> bool:
    built, runs = (message.values.get(name, "") for name in ("built_torch", "torch"))
    return bool(built and runs) and built.partition("+")[0] != runs.partition("+")[0]


def python_is_outside_the_wheels(context: RuleContext) -> bool:
    """Python and system were read, and no release of torch has a wheel for this Python there."""
    minor = ".".join((context.snapshot.python.version or "").split(".")[:2])
    here = [row for row in context.catalog.builds if row.os == context.os.family]
    return bool(minor and here) and not any(minor in row.pythons for row in here)


def no_torch_is_listed(context: RuleContext) -> bool:
    """The import fails, and the text shows no torch, which would be in another environment."""
    return context.torch.version is None and package(context, "torch") is None


# --- CUDA's start ---------------------------------------------------------------------------------

ON_NVSWITCH = re.compile(r"SXM|HBM3|H[12]00|H20|B[23]00|GB[23]00|[AH]800|HGX|DGX", re.IGNORECASE)
"""Models of GPUs that NVSwitch connects; error 802 has other reasons on other machines."""


def gpus_are_on_nvswitch(context: RuleContext) -> bool:
    """The text names a GPU of a system with NVSwitch, or its service."""
    messages = events(context, "system-not-ready-fabric-manager")
    names_service = any("abric" in (event.text or "") for event in messages)
    return names_service or any(ON_NVSWITCH.search(gpu.name) for gpu in gpus(context))


def compatibility_library_is_read(context: RuleContext) -> bool:
    """A container, or the path of cuda-compat: else a driver that was updated and not loaded
    anew ends with the same error 804."""
    return in_container(context) or context.snapshot.container.cuda_compat_path is not None


def message_names_the_stub(context: RuleContext) -> bool:
    """A program's message shows it, because a folder in LD_LIBRARY_PATH may come after the
    driver's."""
    shown = events(context, "libcuda-stub")
    return any(event.source != "LD_LIBRARY_PATH" for event in shown)


# --- files, kernel, memory ------------------------------------------------------------------------


def folder_of_the_sources_is_read(context: RuleContext) -> bool:
    """The path of the file that failed shows sources of a project in the place of a package."""
    return any(e.values.get("place") == "checkout" for e in events(context, "failing-file"))


def not_in_a_container(context: RuleContext) -> bool:
    """The program runs on the host, whose one driver both files are of."""
    return not in_container(context)


def numbers_show_it_is_full(context: RuleContext) -> bool:
    """The numbers in a message show it: the request is larger than the free memory, or than the
    rest below the limit."""
    return any(map(_asks_for_more_than_is_free, events(context, "out-of-memory")))


def _asks_for_more_than_is_free(message: Event) -> bool:
    asked, total, free, held = (
        whole_number(message.values.get(f"{name}_bytes"))
        for name in ("asked", "total", "free", "held")
    )
    if asked is None or total is None:
        return False
    if free is not None:
        return asked > free
    # Metal prints no free memory; what other programs hold ends with its unit: "14.76 GB".
    beside = re.match(r"([\d.]+) ?GB", message.values.get("beside", ""))
    others = int(float(beside[1]) * BYTES_IN_GB) if beside else 0
    return held is not None and held + others + asked > ROUNDED * total


BYTES_IN_GB = 1 << 30
"""Metal calls 2**30 bytes a GB."""
ROUNDED = 0.99
"""Metal's numbers have two decimals, so a full limit may add up to a little less."""


def torch_of_the_bad_release(version: str, kind: str, file: str) -> Proof:
    """Exactly this release of torch was read, and the file that its wheels lack is named."""

    def proof(context: RuleContext) -> bool:
        is_it = parsed((context.torch.version or "0").partition("+")[0]) == parsed(version)
        return is_it and any(file in (event.text or "") for event in events(context, kind))

    return proof


def driver_answers_beside_the_container(context: RuleContext) -> bool:
    """nvidia-smi lists a GPU on the host, and is not found in the container."""
    return driver_answers(context) and bool(events(context, "smi-not-found"))
