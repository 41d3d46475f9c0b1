"""What a rule is given, and the small words that rules are written with.

A rule is `Callable[[RuleContext], Findings]`. It sees plain values only: the snapshot, the
dated catalog, and the build that the resolver chose for this machine. It never reads text or the
machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from gpusetup.accelerators.makers import judged_on, other_maker
from gpusetup.catalog.kernels import served_by_codes
from gpusetup.choose.choice import Choice
from gpusetup.model.finding import Evidence, Findings
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import (
    Driver,
    Event,
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
from gpusetup.model.versions import cuda_of
from gpusetup.readings.packages import normalised

if TYPE_CHECKING:
    from gpusetup.catalog.builds import Catalog


class RuleContext(Frozen):
    """One machine as the rules see it."""

    snapshot: Snapshot
    catalog: Catalog
    choice: Choice = Choice()
    """What `install` would make of torch, and the newest beside it."""
    commands: Mapping[str, tuple[tuple[str, ...], ...]] = {}
    """Installer -> the argument lists that install the chosen build."""
    installer: str = "pip"
    """The installer of this environment: a key of `commands`."""
    other_host: bool = False
    """The GPUs and the driver were named (`--gpu`), not read: what is not named is unasked."""

    @property
    def torch(self) -> Torch:
        return self.snapshot.torch

    @property
    def os(self) -> Os:
        return self.snapshot.os

    @property
    def driver(self) -> Driver:
        return self.snapshot.driver


Rule = Callable[[RuleContext], Findings]


# --- evidence ---------------------------------------------------------------------------------


def value_evidence(context: RuleContext, subject: str, text: str) -> Evidence:
    """Evidence for a value of the snapshot, with the source that its reading names."""
    return Evidence(source=source_of(context, subject), text=text)


def source_of(context: RuleContext, subject: str) -> str:
    """Who gave a value: the sources of its readings, or the subject itself where none is kept."""
    for about in (subject, subject.partition(".")[0]):
        sources = (r.source for r in context.snapshot.readings if r.subject == about and r.value)
        if named := ", ".join(dict.fromkeys(sources)):
            return named
    return subject


def event_evidence(events: Events) -> tuple[Evidence, ...]:
    """Events as evidence, three lines at most, each once."""
    lines = (
        Evidence(source=event.source or "event", text=event.text or event.kind) for event in events
    )
    return tuple(dict.fromkeys(lines))[:3]


# --- questions about a machine ------------------------------------------------------------------


def events(context: RuleContext, *kinds: str) -> Events:
    return tuple([event for event in context.snapshot.events if event.kind in kinds])


def gpus(context: RuleContext) -> tuple[Gpu, ...]:
    """The NVIDIA GPUs that a driver listed, hidden ones too."""
    return of_nvidia(context.snapshot.gpus or ())


@lru_cache(maxsize=4)
def of_nvidia(listed: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Those of NVIDIA; kept, because forty rules ask for them one after another."""
    return tuple([gpu for gpu in listed if not other_maker(gpu.name)])


def listed_gpus(context: RuleContext) -> tuple[Gpu, ...]:
    """The NVIDIA GPUs that a program listed; not those that a text only speaks of."""
    # No order: a text may name a GPU that no program listed; a live snapshot cannot.
    return tuple(
        gpu
        for gpu in gpus(context)
        if not is_report(context)
        or gpu.uuid
        or gpu.pci_bus_id
        or gpu.memory_used_bytes is not None
        or gpu.nvml_index is not None
        or gpu.cuda_index is not None
    )


def cuda_errors(context: RuleContext, *codes: int) -> Events:
    """What was said of these CUDA errors, by their codes."""
    texts = {str(code) for code in codes}
    return tuple(e for e in events(context, "cuda-error") if e.values.get("code") in texts)


def cuda_was_refused(context: RuleContext) -> bool:
    """Whether a program looked for CUDA and did not get it."""
    in_vain = context.torch.cuda_available is False or context.snapshot.cuda_api.init_code
    built_for_cuda = context.torch.backend == "cpu" and any(
        event.values.get("built_cuda") for event in events(context, "extension-abi-mismatch")
    )
    refused = events(context, "torch-not-compiled-with-cuda", "cuda-unavailable")
    return bool(in_vain or refused or built_for_cuda)


# No order: these events are no failures, whatever layer they come from.
NO_FAILURES = (
    "torch-only-named",
    *("one-process-parallel", "model-size", "library-imported", "torch-loads-libraries"),
    *("arch-list-named", "image-named"),
    *(
        "program-found-gpu",
        "release-regressed",
        "index-marker",
        "packaged-program",
        "host-of-a-lender",
    ),
    "gpu-speed",
    *("works-there", "gpu-trains", "gpu-in-use", "asks-about", "names-no-failure", "names-failure"),
    "requirement-broken",
    "capability-warning",
    "gpu-computes",
    "hosted-notebook",
    "gpu-image",
    "slurm-job",
    "shared-node",
    "login-node",
    "image-build",
    "backend-runs",
    "ran-first",
    "program-failed",
    "trainer-named",
    "old-launch",
    "bare-yes",
    "launcher-deprecated",
    *("gpu-unused", "remedy-tried", "ran-alone"),
    *("no-root-rights", "cloud-machine", "no-boot-screen"),
    *("file-listed", "failing-file", "loaded-first", "run-finished"),
    *(
        "container-engine",
        "toolkit-installed",
        "several-gpus",
        "run-hangs",
        "machine-powers-off",
        "graphics-crash",
        "install-typed",
        "silent-crash",
        "gpu-starved",
        "pin-pulls-torch",
        "docker-runtime",
        "container-start-failed",
        "vendor-image",
        "python-bound",
        "question-asked",
    ),
)
"""Events that explain no failure by themselves."""


def says_nothing_else(context: RuleContext, *but: str) -> bool:
    """Whether no message of a failure stands in a text, but these kinds.

    This asks for evidence, and is no precedence: values alone prove a cause only if no message
    says what failed, and that message may lead to a cause of any layer, also of a later one.
    """
    return all(event.kind in (*NO_FAILURES, *but) for event in context.snapshot.events)


def is_report(context: RuleContext) -> bool:
    """Whether all this was read from somebody's text, which shows what it shows.

    A branch on it is about evidence, not about the order of causes: what a text leaves out is not
    absent, and what it complains of is there although no reader measured it.
    """
    return context.snapshot.origin == "report"


def nvidia_on_pci(context: RuleContext) -> tuple[PciDevice, ...]:
    return judged_on(context.snapshot.pci_devices)


SHOW_A_GPU = (
    *("xid", "gpu-fell-off-bus", "gpu-not-supported-by-driver", "hybrid-gpu-off"),
    "smi-sees-it",
)
"""Events of a GPU's kernel driver or a laptop's switch, or a person's word for what nvidia-smi
shows: it is there, whatever finds none."""


NO_KERNEL_DRIVER = (9, 12, 13)
"""NVML: not loaded, no library, an old library. With any other code a kernel driver spoke."""


def has_nvidia(context: RuleContext) -> bool | None:
    """Whether an NVIDIA GPU is there; None if no source could tell.

    A driver that answers with an empty list does not prove its absence (the GPU may have failed to
    start); a PCI bus without one does, outside of WSL and of boards whose GPU is not on PCI.
    """
    machine = context.snapshot
    if gpus(context) or nvidia_on_pci(context) or machine.os.jetson or context.other_host:
        return True
    if events(context, *SHOW_A_GPU):
        return True
    if machine.os.family == "macos":
        return False
    # In WSL a GPU is on no bus: a program that looks there finds none in any case.
    denied = [
        event
        for event in events(context, "no-nvidia-gpu")
        if not machine.os.wsl or is_a_persons_word(context, event)
    ]
    if denied and machine.driver.nvml_code is None:
        return False
    if machine.driver.version or machine.driver.module_loaded:
        return None
    if machine.driver.nvml_code not in (None, *NO_KERNEL_DRIVER) or failed_children(context):
        return None
    if (machine.pci_devices is not None or machine.gpus) and not machine.os.wsl:
        return False
    return False if events(context, "foreign-gpu") else None


def driver_answers(context: RuleContext) -> bool:
    """Whether a kernel driver is there and talks: it gave a version or listed GPUs."""
    driver = context.driver
    return driver.module_loaded is not False and (
        driver.version is not None or bool(listed_gpus(context))
    )


HUNG_OR_CRASHED = ("hung", "crashed")
"""How a question to the driver ends when the driver is at fault; `failed` is a missing binding."""


def failed_children(context: RuleContext) -> Events:
    """Our own questions to the driver that hung or crashed."""
    failures = events(context, "child-failed")
    return tuple(event for event in failures if event.values.get("how") in HUNG_OR_CRASHED)


def kernel_driver_spoke(context: RuleContext) -> bool:
    """Whether NVML or CUDA reached a kernel driver, or hung in it, whatever /proc lists."""
    machine = context.snapshot
    nvml = machine.driver.nvml_code
    silent = failed_children(context)
    return bool(nvml not in (None, *NO_KERNEL_DRIVER) or machine.cuda_api.init_code == 0 or silent)


LINE = re.compile(r"line (\d+)$")
"""How a source names a place in a text."""


def line_of(source: str | None) -> int:
    """The line of a text that a source names; 0 if it names none."""
    named = LINE.search(source or "")
    return int(named[1]) if named else 0


def lines_of_a_person(context: RuleContext) -> set[int]:
    """The lines of a text in which a person speaks and quotes no program."""
    listed = readings(context, "report.sentences")
    return {int(number) for reading in listed for number in (reading.value or "").split()}


def is_a_persons_word(context: RuleContext, event: Event) -> bool:
    """Whether a message stands in a sentence of a person's own."""
    return line_of(event.source) in lines_of_a_person(context)


def on(context: RuleContext, family: str) -> bool:
    return context.os.family == family


def in_container(context: RuleContext) -> bool:
    return context.snapshot.container.kind not in (None, "none")


def package(context: RuleContext, name: str) -> Package | None:
    """The first installed distribution of that name, or None."""
    return next(_named(context, name), None)


def packages(context: RuleContext, name: str) -> tuple[Package, ...]:
    """Every installed distribution of that name."""
    return tuple(_named(context, name))


def _named(context: RuleContext, name: str) -> Iterator[Package]:
    plain = normalised(name)
    return (p for p in context.snapshot.packages or () if normalised(p.name) == plain)


def readings(context: RuleContext, subject: str) -> tuple[Reading, ...]:
    return tuple(reading for reading in context.snapshot.readings if reading.subject == subject)


def serving(context: RuleContext, gpu: Gpu) -> str | None:
    """The kernel or PTX of the installed torch that a GPU would run; None if there is none.

    A driver that is not known is taken to compile this build's PTX.
    """
    torch = context.torch
    if gpu.compute_capability is None or torch.kernels is None:
        return None
    cuda = cuda_needed(torch)
    by_driver = context.driver.cuda or cuda
    return served_by_codes(torch.kernels, gpu.compute_capability, cuda, by_driver)


def cuda_needed(torch: Torch) -> str | None:
    """The CUDA that a torch was built with.

    >>> cuda_needed(Torch(backend="cu124"))
    '12.4'
    """
    return torch.cuda or cuda_of(torch.backend or "")


def is_cuda_build(torch: Torch) -> bool:
    return cuda_needed(torch) is not None


def whole_number(text: str | None) -> int | None:
    """A number that a text gave; None if it is none, or has more digits than anything counted.

    >>> whole_number("4096"), whole_number("4 GiB"), whole_number("9" * 400)
    (4096, None, None)
    """
    if not text or len(text) > 18 or not (text.isascii() and text.isdigit()):
        return None
    return int(text)


def gib(size_bytes: int) -> str:
    """A size of memory; a small one in MiB.

    >>> gib(4294967296), gib(20971520), gib(0)
    ('4.0 GiB', '20 MiB', '0.0 GiB')
    """
    if 0 < size_bytes < GIB / 2:
        return f"{size_bytes >> 20} MiB"
    return f"{size_bytes / GIB:.1f} GiB"
