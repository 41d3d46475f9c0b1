"""Facts about kernels, wheels, GPUs of other makers and memory that rule a cause out.

Each returns what was read in a sentence, or "", like those in `evidence.facts`.
"""

from __future__ import annotations

import re

from gpusetup.accelerators.amd import BUILT_FOR, FIRST_ROCM, gfx_of
from gpusetup.evidence.context import (
    RuleContext,
    events,
    gib,
    gpus,
    is_report,
    readings,
    serving,
    whole_number,
)
from gpusetup.evidence.facts import Fact
from gpusetup.model.machine import Gpu
from gpusetup.model.versions import Capability, parsed


def _named(listed: tuple[Gpu, ...]) -> str:
    return ", ".join(dict.fromkeys(gpu.name for gpu in listed))


# --- kernels --------------------------------------------------------------------------------------


def torch_has_the_kernels(context: RuleContext) -> str:
    """The installed torch has kernels for every GPU whose capability is known."""
    # torch's own warning about the GPU comes from the torch that runs, whatever a list shows.
    if events(context, "gpu-not-in-wheel"):
        return ""
    known = tuple(gpu for gpu in gpus(context) if gpu.compute_capability)
    if not known or not all(_torch_serves(context, gpu) for gpu in known):
        return ""
    version = f"torch {context.torch.version or ''}".strip()
    targets = [gpu.compute_capability.sm for gpu in known if gpu.compute_capability]
    return f"{version} has kernels for {_named(known)} ({', '.join(dict.fromkeys(targets))})"


def kernels_that_a_text_prints(context: RuleContext) -> bool:
    """Whether torch's list of kernels stands in the text, and is not the catalog's."""
    listed = readings(context, "torch.kernels")
    return any(reading.value and reading.source != "catalog" for reading in listed)


def a_build_of_the_release_has_the_kernels(context: RuleContext) -> str:
    """A text names a release of torch, and builds of it have the kernels that are said to lack.

    Then the torch that fails is another one, or an extension fails: only its own list tells. What
    torch said itself, or a list that the text prints, goes before this.
    """
    torch = context.torch
    listed = kernels_that_a_text_prints(context)
    if not is_report(context) or listed or events(context, "gpu-not-in-wheel"):
        return ""
    # A program that printed its own build runs that build.
    if torch.backend is not None and not events(context, "torch-only-named"):
        return ""
    release = (torch.version or "").partition("+")[0]
    targets = {gpu.compute_capability.sm for gpu in gpus(context) if gpu.compute_capability}
    if not release or not targets:
        return ""
    for row in context.catalog.builds:
        of_the_release = row.torch == release or row.torch.startswith(f"{release}.")
        of_the_build = torch.backend == row.backend or (torch.backend is None and row.cuda)
        if of_the_release and of_the_build and targets <= {*row.kernels}:
            return f"torch {release} from {row.backend} has kernels for {_named(gpus(context))}"
    return ""


def _torch_serves(context: RuleContext, gpu: Gpu) -> bool:
    """By the list of kernels; of a build newer than the catalog, by the newest of its index."""
    torch = context.torch
    if torch.kernels is not None:
        return serving(context, gpu) is not None
    rows = [row for row in context.catalog.builds if row.backend == torch.backend]
    newest = max((parsed(row.torch) for row in rows), default=None)
    own = parsed((torch.version or "0").partition("+")[0])
    # Only a build that is newer than those in the catalog is judged by its index.
    if newest is None or torch.version is None or own < newest:
        return False
    capability = gpu.compute_capability or Capability(0, 0)
    return any(capability.sm in row.kernels for row in rows if parsed(row.torch) == newest)


def gpu_is_at_least(major: int, minor: int = 0) -> Fact:
    """Every GPU whose capability is known has at least this one."""
    least = Capability(major, minor)

    def fact(context: RuleContext) -> str:
        known = [gpu for gpu in gpus(context) if gpu.compute_capability]
        if not known or any(
            gpu.compute_capability < least for gpu in known if gpu.compute_capability
        ):
            return ""
        return f"{_named(tuple(known))} has compute capability {known[0].compute_capability}"

    return fact


def torch_lists_the_target(context: RuleContext) -> str:
    """torch's list has the target of the AMD GPU that a text names."""
    kernels = context.torch.kernels or ()
    named = (event.values for event in events(context, "hip-kernel-missing", "foreign-gpu"))
    targets = {values.get("gfx") or gfx_of(values.get("name", "")) for values in named}
    listed = sorted(target for target in targets if target in kernels)
    return f"torch has kernels for {listed[0]}" if listed else ""


def another_release_works(context: RuleContext) -> str:
    """Another release of torch works on the same machine."""
    for event in events(context, "release-regressed"):
        return event.text or "another release of torch works here"
    return ""


def the_gpu_computes(context: RuleContext) -> str:
    """A text that leaves no failure open shows a device in use, a speed, or a training."""
    for event in events(context, "gpu-in-use", "gpu-speed", "gpu-trains"):
        return f"the GPU computes ({(event.text or '')[:60].strip()})"
    return ""


def a_program_found_the_gpu(context: RuleContext) -> str:
    """A program's own log lists the GPU of another maker as usable."""
    for event in events(context, "program-found-gpu"):
        return f"the program found the GPU itself ({(event.text or '')[:60].strip()})"
    return ""


def rocm_build_has_the_target(context: RuleContext) -> str:
    """A program printed a ROCm build, and builds of that ROCm have kernels for the named board.

    A kernel that is missing all the same is one for another GPU: the processor's own graphics, or
    the target that a variable names.
    """
    rocm = re.match(r"rocm(\d+\.\d+)", context.torch.backend or "")
    if rocm is None or context.torch.kernels is not None:
        return ""
    for event in events(context, "foreign-gpu"):
        target = gfx_of(event.values.get("name", ""))
        first = FIRST_ROCM.get(target or "", "0")
        if target in BUILT_FOR and parsed(rocm[1]) >= parsed(first):
            return f"torch's builds for ROCm {rocm[1]} have kernels for {target}"
    return ""


LOOK_FOR_CUDA = (
    *("no-nvidia-driver", "torch-not-compiled-with-cuda", "cuda-unavailable", "cuda-error"),
    *("hip-kernel-missing", "no-xpu", "torch-missing", "question-asked", "cuda-toolkit-missing"),
    *("no-matching-distribution", "wrong-index", "python-no-wheel", "extension-abi-mismatch"),
)
"""Messages that show more of torch than the maker of the GPU does."""


ROCM_WORDS = re.compile(r"hip|roc[mk]|kfd", re.IGNORECASE)


def only_the_maker_is_named(context: RuleContext) -> str:
    """A text names a GPU of another maker and shows neither a build of torch nor its words.

    Whether the build, the driver or the program is at fault, the maker's name does not tell.
    """
    named = [e.values.get("name") or e.text or "" for e in events(context, "foreign-gpu")]
    torch = context.torch
    messages = events(context, "no-hip-gpus")
    # ROCm's own words (`No HIP GPUs`, `/dev/kfd`, `amdhip64.dll`) show that its runtime was asked.
    rocm_complains = any(ROCM_WORDS.search(event.text or "") for event in messages)
    is_read = torch.backend or torch.version or rocm_complains or events(context, *LOOK_FOR_CUDA)
    complains = messages or events(context, "gpu-unused")
    if not is_report(context) or is_read or not (named and complains):
        return ""
    return f"the text names the GPU ({named[0][:40].strip()}) and does not show which torch runs"


def target_is_overridden(context: RuleContext) -> str:
    """HSA_OVERRIDE_GFX_VERSION makes the runtime take another target."""
    value = context.snapshot.environment.get("HSA_OVERRIDE_GFX_VERSION", "")
    return f"HSA_OVERRIDE_GFX_VERSION={value} is set" if value else ""


VIRTUAL_GPU = re.compile(r"\b(?:GRID|vGPU|[A-Z]\d{1,3}-\d{1,2}[ABCQ])\b")
"""How NVIDIA names the profiles of virtual GPUs: `GRID T4-8Q`, `A40-12B`."""


def no_virtual_gpu_is_named(context: RuleContext) -> str:
    """CUDA refuses a text's program, and the text names no virtual GPU: an old driver does too."""
    names = [gpu.name for gpu in context.snapshot.gpus or ()]
    words = [event.text or "" for event in events(context, "vgpu-no-compute", "vgpu-unlicensed")]
    if not is_report(context) or any(map(VIRTUAL_GPU.search, (*names, *words))):
        return ""
    return "the text names no virtual GPU, and an old driver refuses alike"


# --- wheels ---------------------------------------------------------------------------------------


def this_python_has_wheels(context: RuleContext) -> str:
    """torch has wheels for the Python that a text shows, and pip saw no file at all.

    Then pip did not reach the index, or this is a 32-bit Python.
    """
    refused = events(context, "no-matching-distribution")
    python = context.snapshot.python
    minor = ".".join((python.version or "").split(".")[:2])
    saw_nothing = refused and all(event.values.get("none_found") == "true" for event in refused)
    if not saw_nothing or not minor or python.bits or python.free_threaded:
        return ""
    wanted = context.snapshot.wanted
    release = (wanted.torch or "").removeprefix("==")
    for row in context.catalog.builds:
        fits = minor in row.pythons and row.os == context.os.family
        asked = wanted.backend in (None, row.backend) and release in ("", row.torch)
        if fits and asked:
            return f"torch {row.torch} has a wheel for Python {minor} on this system"
    return ""


# --- memory ---------------------------------------------------------------------------------------

HARDLY_ANY = 64 << 20
"""Bytes: a GPU that has room for a context has room for this."""
MOSTLY_FREE = 0.5


def memory_is_not_short(context: RuleContext) -> str:
    """A message says "out of memory", and its own numbers deny it: hardly anything is asked for and
    used, or most of the GPU is free."""
    for message in events(context, "out-of-memory"):
        asked, total, free, held = (
            whole_number(message.values.get(f"{name}_bytes"))
            for name in ("asked", "total", "free", "held")
        )
        if asked is None or total is None or asked > HARDLY_ANY:
            continue
        # Where torch says how much it holds, the record's own case for unused memory speaks.
        if free is not None and held is None and free > MOSTLY_FREE * total:
            return f"{gib(asked)} was asked for, and {gib(free)} of {gib(total)} is free"
        nothing_else = message.values.get("beside", "").startswith("0")
        if held is not None and held < HARDLY_ANY and nothing_else:
            return f"{gib(asked)} was asked for, and nothing of {gib(total)} is used"
    return ""
