"""Decides when a text proves a cause by itself: with a message that states the cause, or with two
values that were read.

The record of a cause names its proof (`certain_if`). Without a proof, a cause found in a text is at
most `likely`, even if it has always been right before, because a fact that the text does not show
may contradict it. A proof is necessary but not sufficient, because the doubts of
`diagnosis.certainty` can still lower the certainty. The functions are pure.
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
    """The proof of a cause whose message states it explicitly and can have no other reason. It
    always holds."""
    return True


def message_states(kind: str, words: str) -> Proof:
    """Returns a proof that holds if one of the cause's messages contains these words. The cause's
    other messages do not prove it."""
    pattern = re.compile(words, re.IGNORECASE)

    def proof(context: RuleContext) -> bool:
        texts = [event.text or "" for event in events(context, kind)]
        return any(map(pattern.search, texts))

    return proof


def both_are_read(kind: str, first: str, second: str) -> Proof:
    """Returns a proof that holds if one message contains both of the contradicting values."""
    names = {first, second}

    def proof(context: RuleContext) -> bool:
        messages = events(context, kind)
        return any(names.issubset(message.values) for message in messages)

    return proof


# --- torch, its build, the GPU --------------------------------------------------------------------


def cpu_build_beside_a_gpu(context: RuleContext) -> bool:
    """Whether torch printed that it is a CPU build, and the machine has an NVIDIA GPU."""
    if not gpus(context):
        return False
    version = context.torch.version or ""
    refused_cuda = events(context, "torch-not-compiled-with-cuda")
    return version.endswith("+cpu") or bool(refused_cuda)


def build_of_one_maker_beside_a_gpu_of_another(context: RuleContext) -> bool:
    """Whether the text shows a torch build and a GPU, so that their vendors can be compared."""
    # ZLUDA runs CUDA builds on AMD's GPUs on purpose.
    owners = [event.values.get("owner") for event in events(context, "environment-owner")]
    if "translation" in owners:
        return False
    backend = context.torch.backend or ""
    # A ROCm or XPU build has another problem than its maker.
    is_of_another = backend == "cpu" or backend.startswith("cu")
    return is_of_another and bool(
        events(context, "foreign-gpu") or gpus(context) or nvidia_on_pci(context)
    )


def capability_is_read(context: RuleContext) -> bool:
    """Whether the GPU's model, and therefore its compute capability, is known."""
    if any(gpu.compute_capability for gpu in gpus(context)):
        return True
    messages = events(context, *NAMES_CAPABILITY)
    return any("capability" in message.values for message in messages)


NAMES_CAPABILITY = ("bf16-unsupported", "gpu-too-old-for-triton", "gpu-not-in-wheel")


def driver_and_need_are_read(context: RuleContext) -> bool:
    """Whether we know the driver's version and what needs a newer one, or torch states both."""
    values_of_both = ("found", "needs_driver", "needed")
    refusals = events(context, "driver-too-old", "image-needs-newer-driver")
    if any(not message.values.keys().isdisjoint(values_of_both) for message in refusals):
        return True
    driver_is_read = context.driver.version is not None
    return driver_is_read and cuda_needed(context.torch) is not None


def installed_pair_is_read(companion: str) -> Proof:
    """Returns a proof that holds if the text shows the releases of torch and its companion."""

    def proof(context: RuleContext) -> bool:
        return context.torch.version is not None and package(context, companion) is not None

    return proof


def releases_of_torch_differ(context: RuleContext) -> bool:
    """Whether the extension's message names the torch that it was built for, and another release is
    running."""
    return any(map(_names_two_releases, events(context, "extension-abi-mismatch")))


def _names_two_releases(message: Event) -> bool:
    """Whether a message says that an extension was built for one release of torch and runs with
    another."""
    release_of_build, _, _ = message.values.get("built_torch", "").partition("+")
    release_that_runs, _, _ = message.values.get("torch", "").partition("+")
    if not release_of_build or not release_that_runs:
        return False
    return release_of_build != release_that_runs


def python_is_outside_the_wheels(context: RuleContext) -> bool:
    """Whether the text shows the Python version and the system, and no release of torch has a wheel
    for them."""
    version = context.snapshot.python.version
    if not version:
        return False
    major_and_minor = ".".join(version.split(".")[:2])
    builds_here = [build for build in context.catalog.builds if build.os == context.os.family]
    for build in builds_here:
        if major_and_minor in build.pythons:
            return False
    return bool(builds_here)


def no_torch_is_listed(context: RuleContext) -> bool:
    """Whether the text shows no torch at all. If the import fails although the text shows a torch,
    that torch is in another environment, so this proof does not hold."""
    return context.torch.version is None and package(context, "torch") is None


# --- CUDA's start ---------------------------------------------------------------------------------

ON_NVSWITCH = re.compile(r"SXM|HBM3|H[12]00|H20|B[23]00|GB[23]00|[AH]800|HGX|DGX", re.IGNORECASE)
"""Matches GPU models that are connected by NVSwitch. On other machines, error 802 has other
reasons."""


def gpus_are_on_nvswitch(context: RuleContext) -> bool:
    """Whether the text names a GPU of a system with NVSwitch, or the Fabric Manager service."""
    messages = events(context, "system-not-ready-fabric-manager")
    if any("abric" in (message.text or "") for message in messages):
        return True
    names = [gpu.name for gpu in gpus(context)]
    return any(map(ON_NVSWITCH.search, names))


def compatibility_library_is_read(context: RuleContext) -> bool:
    """Whether the text shows a container or the path of cuda-compat. Without either, error 804 may
    come from a driver that was updated but not reloaded."""
    return in_container(context) or context.snapshot.container.cuda_compat_path is not None


def message_names_the_stub(context: RuleContext) -> bool:
    """Whether a program's message shows the stub. A stub folder in LD_LIBRARY_PATH is not enough,
    because it may come after the driver's folder."""
    shown = events(context, "libcuda-stub")
    return any(event.source != "LD_LIBRARY_PATH" for event in shown)


# --- files, kernel, memory ------------------------------------------------------------------------


def folder_of_the_sources_is_read(context: RuleContext) -> bool:
    """Whether the failing file's path is in a project's source checkout, which is imported instead
    of the installed package."""
    folders = [event.values.get("place") for event in events(context, "failing-file")]
    return "checkout" in folders


def not_in_a_container(context: RuleContext) -> bool:
    """Whether the program runs directly on the host and not in a container, so that both driver
    files are from the host's driver."""
    return not in_container(context)


def numbers_show_it_is_full(context: RuleContext) -> bool:
    """Whether the numbers in a message show that the memory is full, because the request is larger
    than the free memory or than what is left below a limit."""
    return any(map(_asks_for_more_than_is_free, events(context, "out-of-memory")))


def _asks_for_more_than_is_free(message: Event) -> bool:
    """Whether the request in a message is larger than the memory that is left; False if the message
    lacks the numbers."""
    requested = whole_number(message.values.get("asked_bytes"))
    total = whole_number(message.values.get("total_bytes"))
    free = whole_number(message.values.get("free_bytes"))
    held_by_torch = whole_number(message.values.get("held_bytes"))
    if requested is None or total is None:
        return False
    if free is not None:
        return requested > free
    if held_by_torch is None:
        return False
    # Metal does not print the free memory, so compute it from the limit and the used parts. The
    # part used by other programs is a text with a unit: "14.76 GB".
    gb_of_others = re.match(r"([\d.]+) ?GB", message.values.get("beside", ""))
    held_by_others = int(float(gb_of_others[1]) * BYTES_IN_GB) if gb_of_others else 0
    return held_by_torch + held_by_others + requested > ROUNDED * total


BYTES_IN_GB = 1 << 30
"""For Metal, a GB is 2**30 bytes."""
ROUNDED = 0.99
"""Metal's numbers have two decimals, so the parts of a full limit may add up to slightly less than
it."""


def torch_of_the_bad_release(version: str, kind: str, file: str) -> Proof:
    """Returns a proof that holds if the text shows exactly this release of torch, and names the
    file that its wheels lack."""

    def proof(context: RuleContext) -> bool:
        release, _, _ = (context.torch.version or "0").partition("+")
        if parsed(release) != parsed(version):
            return False
        messages = events(context, kind)
        return any(file in (message.text or "") for message in messages)

    return proof


def driver_answers_beside_the_container(context: RuleContext) -> bool:
    """Whether nvidia-smi lists a GPU on the host, but is not found in the container."""
    return driver_answers(context) and bool(events(context, "smi-not-found"))
