"""The context of a diagnosis rule, and questions about a machine that several rules ask.

A rule is `Callable[[RuleContext], Findings]`. It sees only plain values: the snapshot, the dated
catalog, and the build that the resolver chose for this machine. It never reads a text or the
machine itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from gpusetup.accelerators.makers import judged_on, other_maker
from gpusetup.catalog.kernels import served_by
from gpusetup.choose.choice import Choice
from gpusetup.model.finding import Evidence, Findings
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import (
    Driver,
    Events,
    Gpu,
    Os,
    Package,
    PciDevice,
    Reading,
    Snapshot,
    Torch,
)
from gpusetup.model.units import GIB
from gpusetup.model.versions import Capability, cuda_of
from gpusetup.readings.packages import normalised

if TYPE_CHECKING:
    from gpusetup.catalog.builds import Catalog


class RuleContext(Frozen):
    """One machine as the rules see it."""

    snapshot: Snapshot
    catalog: Catalog
    choice: Choice = Choice()
    """The torch that `install` would choose, and the newest one for comparison."""
    commands: Mapping[str, tuple[tuple[str, ...], ...]] = {}
    """Maps an installer to the argument lists of the commands that install the chosen build."""
    installer: str = "pip"
    """The installer of this environment: a key of `commands`."""
    other_host: bool = False
    """Whether the user named the GPUs and the driver (`--gpu`). If so, values that the user did not
    name are unknown, not missing."""
    project_words: tuple[str, ...] = ()
    """The words with which `gpusetup install` reads the project in the folder, such as
    `-r pyproject.toml`; () if there is none that asks for torch."""

    @property
    def torch(self) -> Torch:
        """The machine's torch."""
        return self.snapshot.torch

    @property
    def os(self) -> Os:
        """The machine's operating system."""
        return self.snapshot.os

    @property
    def driver(self) -> Driver:
        """The machine's NVIDIA driver."""
        return self.snapshot.driver


Rule = Callable[[RuleContext], Findings]


# --- evidence ---------------------------------------------------------------------------------


def source_of(context: RuleContext, subject: str) -> str:
    """The sources of a value, from its readings or those of its part of the snapshot (`driver` for
    `driver.version`); without any, the value's name."""
    for part in (subject, subject.partition(".")[0]):
        sources = [reading.source for reading in readings(context, part) if reading.value]
        if sources:
            return ", ".join(dict.fromkeys(sources))
    return subject


MOST_QUOTES = 3
"""The most messages that a finding quotes."""


def event_evidence(events: Events) -> tuple[Evidence, ...]:
    """Evidence that quotes the first few of these events, without repeated lines."""
    quotes = (
        Evidence(source=event.source or "event", text=event.text or event.kind) for event in events
    )
    return tuple(dict.fromkeys(quotes))[:MOST_QUOTES]


# --- questions about a machine ------------------------------------------------------------------


def events(context: RuleContext, *kinds: str) -> Events:
    """The events of these kinds."""
    # Build a list first: rules call this thousands of times, and a generator is slower.
    return tuple([event for event in context.snapshot.events if event.kind in kinds])


def gpus(context: RuleContext) -> tuple[Gpu, ...]:
    """The NVIDIA GPUs that a driver listed or a text mentions, including those that a variable
    hides from programs."""
    return of_nvidia(context.snapshot.gpus or ())


def capabilities(context: RuleContext) -> list[Capability]:
    """The compute capabilities of the NVIDIA GPUs, as far as they are known."""
    return [gpu.compute_capability for gpu in gpus(context) if gpu.compute_capability]


@lru_cache(maxsize=4)
def of_nvidia(listed: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """The NVIDIA GPUs. Cached, because forty rules ask for them."""
    return tuple([gpu for gpu in listed if not other_maker(gpu.name)])


def listed_gpus(context: RuleContext) -> tuple[Gpu, ...]:
    """The NVIDIA GPUs that a program listed, without those that a text only mentions."""
    if not is_report(context):
        return gpus(context)

    def is_listed(gpu: Gpu) -> bool:
        """Whether the GPU has a value that only programs print. An index may be 0."""
        numbers = (gpu.memory_used_bytes, gpu.nvml_index, gpu.cuda_index)
        return bool(gpu.uuid or gpu.pci_bus_id) or any(number is not None for number in numbers)

    return tuple(filter(is_listed, gpus(context)))


def cuda_errors(context: RuleContext, *codes: int) -> Events:
    """The CUDA error events with these codes."""
    wanted = {str(code) for code in codes}
    return tuple(e for e in events(context, "cuda-error") if e.values.get("code") in wanted)


def cuda_was_refused(context: RuleContext) -> bool:
    """Whether a program tried to use CUDA and failed."""
    if context.torch.cuda_available is False or context.snapshot.cuda_api.init_code:
        return True
    if events(context, "torch-not-compiled-with-cuda", "cuda-unavailable"):
        return True
    # A CUDA extension cannot be loaded if torch is a CPU build.
    mismatches = events(context, "extension-abi-mismatch")
    is_built_for_cuda = any(event.values.get("built_cuda") for event in mismatches)
    return context.torch.backend == "cpu" and is_built_for_cuda


NO_FAILURES = frozenset(
    "torch-loads-libraries rocm-lists-gpu environment-owner host-of-a-lender "  # noqa: SIM905
    "names-failure gpu-computes hosted-notebook gpu-image slurm-job shared-node login-node "
    "image-build backend-runs ran-first program-failed trainer-named bare-yes gpu-unused "
    "ran-alone nccl-on-a-bridge output-shown program-crashed cloud-machine file-listed "
    "failing-file run-finished container-engine toolkit-installed several-gpus run-hangs "
    "machine-powers-off silent-crash gpu-starved container-start-failed vendor-image "
    "python-bound".split()
)
"""Events that do not explain a failure on their own."""


def shows_no_other_failure(context: RuleContext, *kinds: str) -> bool:
    """Whether a text contains no failure messages, or only those of these kinds.

    Values alone prove a cause only if no message says what failed. Such a message may point to a
    cause in any layer, whatever the order of causes is.
    """
    return {event.kind for event in context.snapshot.events} <= NO_FAILURES | {*kinds}


def is_report(context: RuleContext) -> bool:
    """Whether all facts come from a text that a user posted.

    Such a text shows only a part of the machine. What the text does not mention may still exist,
    and a problem that it describes exists although gpusetup did not measure it.
    """
    return context.snapshot.origin == "report"


def nvidia_on_pci(context: RuleContext) -> tuple[PciDevice, ...]:
    """The NVIDIA devices on the PCI bus."""
    return judged_on(context.snapshot.pci_devices)


SHOW_A_GPU = (
    "xid", "gpu-fell-off-bus", "gpu-not-supported-by-driver", "hybrid-gpu-off", "smi-sees-it",
)  # fmt: skip
"""Events that show that a GPU exists, although some program finds none: messages of its kernel
driver, a laptop's GPU switch, or a person who writes that nvidia-smi shows it."""
NO_KERNEL_DRIVER = (9, 12, 13)
"""NVML's codes for "driver not loaded", "library not found" and "library too old". Any other code
comes from a kernel driver."""


def has_nvidia(context: RuleContext) -> bool | None:
    """Whether there is an NVIDIA GPU; None if no source shows it.

    If a driver returns an empty list, there may still be a GPU that failed to start. If no NVIDIA
    device is on the PCI bus, there is no GPU, except in WSL and on boards whose GPU is not on PCI.
    """
    machine = context.snapshot
    if gpus(context) or nvidia_on_pci(context) or machine.os.jetson or context.other_host:
        return True
    if events(context, *SHOW_A_GPU):
        return True
    # No supported macOS has a driver for NVIDIA GPUs.
    if machine.os.family == "macos":
        return False
    denials = events(context, "no-nvidia-gpu")
    # In WSL, a program that reads the PCI bus never finds a GPU. Only a person's statement counts.
    if machine.os.wsl:
        own_lines = lines_of_a_person(context)
        denials = tuple(event for event in denials if line_of(event.source) in own_lines)
    nvml_code = machine.driver.nvml_code
    # An answer of NVML outweighs a statement that there is no GPU.
    if nvml_code is None and denials:
        return False
    # If a driver is installed or responds, the machine probably has a GPU that failed to start, so
    # the answer is unknown.
    if machine.driver.version or machine.driver.module_loaded:
        return None
    # A call that hung or crashed had reached a driver.
    if nvml_code not in (None, *NO_KERNEL_DRIVER) or failed_children(context):
        return None
    # PCI devices or GPUs were listed and none is NVIDIA's. In WSL this proves nothing, because GPUs
    # are not on the PCI bus there.
    lists_hardware = machine.pci_devices is not None or machine.gpus
    if lists_hardware and not machine.os.wsl:
        return False
    # Who names only a GPU of another maker has no other.
    return False if events(context, "foreign-gpu") else None


def driver_answers(context: RuleContext) -> bool:
    """Whether a kernel driver responds, that is, whether it reported a version or listed GPUs."""
    driver = context.driver
    if driver.module_loaded is False:
        return False
    return driver.version is not None or bool(listed_gpus(context))


def failed_children(context: RuleContext) -> Events:
    """Events of our own child processes that hung or crashed while they called the driver. The
    third way to fail, `failed`, means that a Python binding is missing."""
    failures = events(context, "child-failed")
    return tuple(event for event in failures if event.values.get("how") in ("hung", "crashed"))


def kernel_driver_spoke(context: RuleContext) -> bool:
    """Whether NVML or CUDA reached a kernel driver, even if the call then hung. A module that /proc
    lists may still answer nothing."""
    machine = context.snapshot
    nvml_answered = machine.driver.nvml_code not in (None, *NO_KERNEL_DRIVER)
    cuda_started = machine.cuda_api.init_code == 0
    return nvml_answered or cuda_started or bool(failed_children(context))


LINE = re.compile(r"line (\d+)$")
"""Matches the line number at the end of a source such as `nvidia-smi, line 12`."""


def line_of(source: str | None) -> int:
    """The line number in a source; 0 if there is none."""
    number = LINE.search(source or "")
    return int(number[1]) if number else 0


def lines_of_a_person(context: RuleContext) -> set[int]:
    """The numbers of the lines in which a person writes without quoting a program."""
    numbers: set[int] = set()
    for reading in readings(context, "report.sentences"):
        numbers.update(map(int, (reading.value or "").split()))
    return numbers


def on(context: RuleContext, family: str) -> bool:
    """Whether the machine's operating system is of this family."""
    return context.os.family == family


def in_container(context: RuleContext) -> bool:
    """Whether the program runs in a container; False if that is unknown."""
    return context.snapshot.container.kind not in (None, "none")


def package(context: RuleContext, name: str) -> Package | None:
    """The first installed distribution with this name, or None."""
    return next(iter(packages(context, name)), None)


def packages(context: RuleContext, name: str) -> tuple[Package, ...]:
    """Every installed distribution with this name, in any spelling."""
    wanted = normalised(name)
    installed = context.snapshot.packages or ()
    return tuple([copy for copy in installed if normalised(copy.name) == wanted])


def readings(context: RuleContext, subject: str) -> tuple[Reading, ...]:
    """The readings of a subject, from all sources."""
    return tuple([reading for reading in context.snapshot.readings if reading.subject == subject])


def serving(context: RuleContext, gpu: Gpu) -> str | None:
    """The kernel or PTX in the installed torch that a GPU would run; None if there is none.

    If the driver is unknown, it is assumed to be able to compile this build's PTX.
    """
    torch = context.torch
    if gpu.compute_capability is None or torch.kernels is None:
        return None
    cuda = cuda_needed(torch)
    driver_cuda = context.driver.cuda or cuda
    return served_by(torch.kernels, gpu.compute_capability, cuda, driver_cuda)


def cuda_needed(torch: Torch) -> str | None:
    """The CUDA version that a torch was built with.

    >>> cuda_needed(Torch(backend="cu124"))
    '12.4'
    """
    return torch.cuda or cuda_of(torch.backend or "")


def is_cuda_build(torch: Torch) -> bool:
    """Whether this torch was built with CUDA."""
    return cuda_needed(torch) is not None


MOST_DIGITS = 18
"""No size in bytes, version or index has more digits. Texts may contain longer numbers, and Python
raises ValueError for those with more than 4,300 digits."""


def whole_number(text: str | None) -> int | None:
    """The number in a text; None if the text is not a number or has too many digits.

    >>> whole_number("4096"), whole_number("4 GiB"), whole_number("9" * 400)
    (4096, None, None)
    """
    # `isdigit` alone also accepts the digits of other scripts.
    if not text or len(text) > MOST_DIGITS or not (text.isascii() and text.isdigit()):
        return None
    return int(text)


def gib(size_bytes: int) -> str:
    """A memory size in GiB, or in MiB if it is less than half a GiB.

    >>> gib(4294967296), gib(20971520), gib(0)
    ('4.0 GiB', '20 MiB', '0.0 GiB')
    """
    if 0 < size_bytes < GIB / 2:
        return f"{size_bytes >> 20} MiB"
    return f"{size_bytes / GIB:.1f} GiB"
