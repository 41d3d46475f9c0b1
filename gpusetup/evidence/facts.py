"""Facts that rule out a cause, and the readings that these facts share with other rules.

A fact (`Fact`) returns a sentence about what was read if what its docstring states holds, otherwise
"". The record of a cause lists the facts that refute it (`refuted_by`), and `diagnosis.refute`
calls them. A fact uses only values of the snapshot, so it works the same for this machine, a saved
snapshot and a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gpusetup.accelerators.amd import gfx_of
from gpusetup.catalog.builds import Name
from gpusetup.catalog.companions import serves_backend, serves_torch
from gpusetup.choose.host import driver_family
from gpusetup.evidence.context import (
    RuleContext,
    capabilities,
    cuda_errors,
    cuda_needed,
    events,
    gpus,
    has_nvidia,
    is_report,
    package,
    readings,
    serving,
)
from gpusetup.model.machine import Event, Events
from gpusetup.model.versions import parsed

Fact = Callable[[RuleContext], str]
"""Returns a sentence about what was read, or "" if the fact does not hold or is unknown."""


# --- the driver -----------------------------------------------------------------------------------


def old_driver_messages(context: RuleContext) -> Events:
    """The messages that say that the driver is too old."""
    messages = events(context, "driver-too-old", "image-needs-newer-driver")
    # cudaErrorInsufficientDriver.
    return (*messages, *cuda_errors(context, 35))


def driver_required_by(context: RuleContext, message: Event) -> str | None:
    """The driver version that a message requires: directly, through the CUDA version in it, or, if
    torch or CUDA itself refused the driver, through the CUDA version of torch; None if unknown."""
    values, catalog = message.values, context.catalog
    family = driver_family(context.snapshot)
    if named_driver := values.get("needs_driver") or values.get("needed"):
        return named_driver
    # A program that requires a CUDA version compares it with the version that nvidia-smi prints. So
    # minor-version compatibility does not help here.
    if "cuda" in values:
        cuda = values["cuda"]
        return catalog.toolkit_driver(cuda, family) or catalog.driver_floor(cuda, family)
    torch_cuda = cuda_needed(context.torch)
    is_of_torch = message.kind == "cuda-error" or values.get("refused")
    return catalog.driver_floor(torch_cuda, family) if torch_cuda and is_of_torch else None


def driver_is_new_enough(context: RuleContext) -> str:
    """The driver is new enough for every message that calls it too old, and for torch, or else for
    the toolkit that built the program."""
    version, toolkit_cuda = context.driver.version, context.snapshot.toolkit.nvcc
    if version is None:
        return ""
    messages = old_driver_messages(context)
    for message in messages:
        required = driver_required_by(context, message)
        # A message that contains the CUDA version of the loaded driver library ("found") knows
        # better what was loaded than the toolkit does.
        if required is None and "found" not in message.values and toolkit_cuda:
            required = context.catalog.driver_floor(toolkit_cuda, driver_family(context.snapshot))
        if required is None or parsed(version) < parsed(required):
            return ""
    cuda = cuda_needed(context.torch) or toolkit_cuda
    if cuda and driver_serves(context, cuda) is False:
        return ""
    driver = f"driver {version}"
    if context.driver.cuda:
        driver += f" (CUDA {context.driver.cuda})"
    if cuda:
        return f"{driver} runs programs for CUDA {cuda}"
    # Without a CUDA version, only the messages say what is required.
    return f"{driver} is new enough" if messages else ""


def driver_serves(context: RuleContext, cuda: str) -> bool | None:
    """Whether the driver is new enough for a CUDA version; None if either version is unknown."""
    floor = context.catalog.driver_floor(cuda, driver_family(context.snapshot))
    version = context.driver.version
    return parsed(version) >= parsed(floor) if version and floor else None


def has_no_nvidia_gpu(context: RuleContext) -> str:
    """The machine has no NVIDIA GPU and thus needs no driver."""
    return "this machine has no NVIDIA GPU" if has_nvidia(context) is False else ""


# --- files, packages, tools -----------------------------------------------------------------------


def missing_library_is_listed(context: RuleContext) -> str:
    """A file listing contains the library that a program misses."""
    kinds = ("cuda-lib-missing", "library-missing", "program-lib-missing")
    missing = {event.values.get("library", "") for event in events(context, *kinds)}
    stems = tuple(_stem(library) for library in missing if library)
    for path in listed_files(context):
        name = re.split(r"[/\\]", path)[-1]
        if name.startswith(stems):
            return f"{name} exists: {path}"
    return ""


def _stem(library: str) -> str:
    """A library's name up to its major version, by which the loader looks for it.

    >>> _stem("libcudnn_ops.so.9.1.0"), _stem("libnvrtc.so.12"), _stem("cudnn64_9.dll")
    ('libcudnn_ops.so.9', 'libnvrtc.so.12', 'cudnn64_9.dll')
    """
    linux_name = re.match(r"lib[\w+-]+\.so(?:\.\d+)?", library)
    return linux_name[0] if linux_name else library


def listed_files(context: RuleContext) -> tuple[str, ...]:
    """The paths in the file listings of a text."""
    return tuple(event.values["path"] for event in events(context, "file-listed"))


def toolkit_is_installed(context: RuleContext) -> str:
    """nvidia-container-toolkit is installed on the host."""
    listings = events(context, "toolkit-installed")
    versions = [event.values["version"] for event in listings if "version" in event.values]
    named = " ".join(("nvidia-container-toolkit", *versions[:1]))
    return f"{named} is installed" if listings else ""


def toolkit_is_installed_on_kubernetes(context: RuleContext) -> str:
    """nvidia-container-toolkit is installed, but Kubernetes starts the containers, not docker."""
    installed = toolkit_is_installed(context)
    is_pod = context.snapshot.container.kind == "kubernetes"
    if installed and (is_pod or events(context, "k8s-gpu-not-allocatable", "container-engine")):
        return f"{installed}, but the node's own engine starts the pods"
    return ""


def torchs_dll_fails_only_in_the_program(context: RuleContext) -> str:
    """A DLL of torch itself cannot be loaded, but the same import works in a new process."""
    packages = [event.values.get("package") for event in events(context, "failing-file")]
    if "torch" not in packages or not events(context, "ran-alone"):
        return ""
    return "the same import works outside the program, but torch's DLL does not load in the program"


def failing_file_is_in_a_checkout(context: RuleContext) -> str:
    """The file that failed is in a project's sources, and not in site-packages."""
    for event in events(context, "failing-file"):
        package = event.values.get("package")
        if event.values.get("place") == "checkout" and package:
            root = event.values.get("root", "the working folder")
            return f"Python imports {package} from the source folder {root}"
    return ""


def companion_fits(context: RuleContext, companion: Name) -> bool | None:
    """Whether the listed torch and companion fit by version and build; None if that is unknown."""
    listed, torch, catalog = package(context, companion), context.torch, context.catalog
    if listed is None:
        return None
    release = catalog.release_of(torch.version) if torch.version else None
    fits = serves_torch(catalog, companion, listed.version, release.torch) if release else None
    if fits is False or not torch.backend:
        return fits
    # What a wheel without a label is built for depends on its platform. A text may not show it, and
    # conda's packages have builds of their own.
    is_known = not is_report(context) and listed.installer != "conda"
    platform = f"{context.os.family}-{context.os.machine}" if is_known else None
    fits_build = serves_backend(catalog, companion, listed.version, torch.backend, platform)
    return False if fits_build is False else fits


def catalog_has_torch_for_this_python(context: RuleContext) -> str:
    """Some index has the wanted torch for this Python and system."""
    release = (context.snapshot.wanted.torch or "").removeprefix("==")
    python = ".".join((context.snapshot.python.version or "").split(".")[:2])
    backends = [
        build.backend
        for build in context.catalog.builds
        if build.torch == release
        and python in build.pythons
        # If the system is unknown, every build may fit.
        and context.os.family in (None, build.os)
        and context.os.machine in (None, build.machine)
    ]
    if not backends:
        return ""
    return f"torch {release} has wheels for Python {python}: {', '.join(dict.fromkeys(backends))}"


def a_run_ended_well(context: RuleContext) -> str:
    """The last run in the text ended without an error."""
    endings = events(context, "run-finished")
    if not endings:
        return ""
    # The beginning of a line is enough to find it.
    quote = (endings[0].text or "")[:40].strip()
    return f"the run finished after this message ({quote}…)"


# --- kernels --------------------------------------------------------------------------------------


def torch_has_the_kernels(context: RuleContext) -> str:
    """The installed torch has kernels for every GPU whose compute capability is known."""
    # torch's own warning about the GPU comes from the torch that is running, so it takes precedence
    # over a list.
    if events(context, "gpu-not-in-wheel"):
        return ""
    identified = [gpu for gpu in gpus(context) if gpu.compute_capability]
    if not identified or not all(serving(context, gpu) for gpu in identified):
        return ""
    targets = dict.fromkeys(capability.sm for capability in capabilities(context))
    torch = f"torch {context.torch.version or ''}".strip()
    names = ", ".join(dict.fromkeys(gpu.name for gpu in identified))
    return f"{torch} has kernels for {names} ({', '.join(targets)})"


def kernels_that_a_text_prints(context: RuleContext) -> bool:
    """Whether the text itself contains torch's list of kernels. Otherwise the list in the snapshot
    comes from the catalog."""
    lists = readings(context, "torch.kernels")
    return any(reading.value and reading.source != "catalog" for reading in lists)


def overridden_target_has_kernels(context: RuleContext) -> str:
    """torch's own list of kernels contains the AMD target that the text names, but
    HSA_OVERRIDE_GFX_VERSION makes the runtime use another target's kernels."""
    override = context.snapshot.environment.get("HSA_OVERRIDE_GFX_VERSION")
    named = [
        event.values.get("gfx") or gfx_of(event.values.get("name", ""))
        for event in events(context, "hip-kernel-missing", "foreign-gpu")
    ]
    listed = [target for target in named if target and target in (context.torch.kernels or ())]
    if not override or not listed:
        return ""
    # One target is enough as an example.
    return f"torch has kernels for {min(listed)}; HSA_OVERRIDE_GFX_VERSION={override} is set"


LOOKED_FOR_A_GPU = (
    *("no-nvidia-driver", "torch-not-compiled-with-cuda", "cuda-unavailable"),
    *("hip-kernel-missing", "no-hip-gpus", "no-xpu", "torch-missing", "cuda-toolkit-missing"),
    *("no-matching-distribution", "wrong-index", "python-no-wheel", "extension-abi-mismatch"),
)
"""Messages of programs that looked for a GPU or a torch build."""


def only_the_maker_is_named(context: RuleContext) -> str:
    """The text names another vendor's GPU, but no program in it looked for a GPU, and it shows no
    torch build for a different vendor. So the GPU's vendor does not explain what fails."""
    torch = context.torch
    # Only a CUDA build loads CUDA's libraries when torch is imported.
    loads_cuda = events(context, "torch-loads-libraries") and events(context, "cuda-lib-missing")
    is_a_different_build = loads_cuda or (torch.backend or "").startswith(("cu", "cpu"))
    if not is_report(context) or is_a_different_build or events(context, *LOOKED_FOR_A_GPU):
        return ""
    # An XPU build prints "CUDA available: False" on every machine.
    torch_sees_none = torch.cuda_available is False and torch.backend != "xpu"
    # Without a torch, "it does not use my Radeon" does not show which program or build is wrong.
    is_unused = events(context, "gpu-unused") and (torch.version or torch.backend)
    if torch_sees_none or is_unused:
        return ""
    return "the text mentions the GPU's vendor, but no program in it failed to find a GPU"


def reasons_of(context: RuleContext, kind: str) -> set[str | None]:
    """The reasons (`why`) in the messages of a kind; None for a message without one."""
    return {event.values.get("why") for event in events(context, kind)}


def rocm_of_wheel(context: RuleContext) -> str:
    """The ROCm release that the installed wheel of torch is for (`6.2`); "" if it is not known."""
    label = re.match(r"rocm(\d+\.\d+)", context.torch.backend or "")
    return label[1] if label else ""


# --- memory ---------------------------------------------------------------------------------------

VIRTUAL_GPU = re.compile(r"\b(?:GRID|vGPU|[A-Z]\d{1,3}-\d{1,2}[ABCQ])\b")
"""Matches NVIDIA's names for profiles of virtual GPUs: `GRID T4-8Q`, `A40-12B`."""


def no_virtual_gpu_is_named(context: RuleContext) -> str:
    """The text names no virtual GPU. Without one, CUDA's refusal may come from an old driver, which
    returns the same error."""
    names = [gpu.name for gpu in context.snapshot.gpus or ()]
    messages = events(context, "vgpu-no-compute", "vgpu-unlicensed")
    words = (*names, *(message.text or "" for message in messages))
    if not is_report(context) or any(map(VIRTUAL_GPU.search, words)):
        return ""
    return "the text mentions no virtual GPU, and an old driver causes the same error"
