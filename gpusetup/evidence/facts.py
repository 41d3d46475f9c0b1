"""Facts that rule out a cause. Each function returns a sentence about what was read, or "" if the
fact does not hold.

The record of a cause lists the facts that refute it (`refuted_by`), and `diagnosis.refute` calls
them. A fact uses only values of the snapshot, so it works the same for this machine, a saved
snapshot and a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gpusetup.catalog.companions import serves_backend, serves_torch
from gpusetup.catalog.rows import Name
from gpusetup.choose.host import driver_family
from gpusetup.evidence.context import (
    RuleContext,
    cuda_errors,
    cuda_needed,
    events,
    has_nvidia,
    is_report,
    listed_gpus,
    package,
    packages,
    says_nothing_else,
)
from gpusetup.model.machine import Event, Events, Gpu, Package
from gpusetup.model.versions import cuda_of, parsed

Fact = Callable[[RuleContext], str]
"""Returns a sentence about what was read, or "" if the fact does not hold or is unknown."""


def gpu_names(gpus: tuple[Gpu, ...]) -> str:
    """The names of GPUs, each once."""
    names = [gpu.name for gpu in gpus]
    return ", ".join(dict.fromkeys(names))


# --- the driver -----------------------------------------------------------------------------------


INSUFFICIENT_DRIVER = 35
"""The error code of cudaErrorInsufficientDriver."""


def complaints_of_the_driver(context: RuleContext) -> Events:
    """The messages that say that the driver is too old."""
    messages = events(context, "driver-too-old", "image-needs-newer-driver")
    return (*messages, *cuda_errors(context, INSUFFICIENT_DRIVER))


def driver_asked_by(context: RuleContext, complaint: Event) -> str | None:
    """The driver version that a message requires, either directly or through the CUDA version in
    it; None if the message contains neither."""
    values, catalog = complaint.values, context.catalog
    family = driver_family(context.snapshot)
    named_driver = values.get("needs_driver") or values.get("needed")
    if named_driver:
        return named_driver
    # A program that requires a CUDA version compares it with the version that nvidia-smi prints. So
    # minor-version compatibility does not help here.
    if "cuda" in values:
        cuda = values["cuda"]
        return catalog.toolkit_driver(cuda, family) or catalog.driver_floor(cuda, family)

    torch_cuda = cuda_needed(context.torch)
    is_of_torch = complaint.kind == "cuda-error" or values.get("refused")
    if torch_cuda and is_of_torch:
        return catalog.driver_floor(torch_cuda, family)
    return named_driver


def driver_serves_the_cuda(context: RuleContext) -> str:
    """Returns a sentence if the driver is new enough for torch, for the toolkit that built the
    program, and for every complaint, else ""."""
    version = context.driver.version
    if version is None:
        return ""
    family = driver_family(context.snapshot)
    toolkit_cuda = context.snapshot.toolkit.nvcc
    toolkit_floor = context.catalog.driver_floor(toolkit_cuda, family) if toolkit_cuda else None
    complaints = complaints_of_the_driver(context)
    for complaint in complaints:
        floor = driver_asked_by(context, complaint)
        # If the message contains the CUDA version that the driver supports, use that version,
        # because it comes from the driver library that was really loaded.
        if not floor and "found" not in complaint.values:
            floor = toolkit_floor
        if floor is None or parsed(version) < parsed(floor):
            return ""

    cuda = cuda_needed(context.torch) or toolkit_cuda
    if cuda is None and not complaints:
        return ""
    floor = context.catalog.driver_floor(cuda, family) if cuda else None
    if floor and parsed(version) < parsed(floor):
        return ""
    driver = f"driver {version}"
    if context.driver.cuda:
        driver += f" (CUDA {context.driver.cuda})"
    if cuda:
        return f"{driver} runs programs of CUDA {cuda}"
    return f"{driver} is as new as the message asks"


def wanted_cuda(context: RuleContext) -> str | None:
    """The CUDA version of the torch that is to be installed, if the text shows no installed one."""
    if context.torch.version or not says_nothing_else(context):
        return None
    wanted = context.snapshot.wanted
    return wanted.cuda or cuda_of(wanted.backend or "")


def driver_serves(context: RuleContext, cuda: str) -> bool | None:
    """Whether the driver is new enough for a CUDA version; None if the driver or the requirement is
    unknown."""
    family = driver_family(context.snapshot)
    floor = context.catalog.driver_floor(cuda, family)
    version = context.driver.version
    if not version or not floor:
        return None
    return parsed(version) >= parsed(floor)


def has_no_nvidia_gpu(context: RuleContext) -> str:
    """Returns a sentence if the machine has no NVIDIA GPU and thus needs no driver, else ""."""
    return "this machine has no NVIDIA GPU" if has_nvidia(context) is False else ""


def driver_lists_a_gpu(context: RuleContext) -> str:
    """Returns a sentence if the driver responds and lists a GPU, else ""."""
    gpus = listed_gpus(context)
    if not gpus:
        return ""
    return f"the driver lists {gpu_names(gpus)}"


# --- files, packages, tools -----------------------------------------------------------------------


def missing_library_is_listed(context: RuleContext) -> str:
    """Returns a sentence if a file listing contains the library that a program misses, else ""."""
    missing = set()
    for event in events(context, "cuda-lib-missing", "library-missing", "program-lib-missing"):
        library = event.values.get("library", "")
        if library:
            missing.add(_stem(library))
    for path in listed_files(context):
        name = re.split(r"[/\\]", path)[-1]
        if any(name.startswith(stem) for stem in missing):
            return f"{name} is there: {path}"
    return ""


def _stem(library: str) -> str:
    """A library's name up to its major version, by which the loader looks for it.

    >>> _stem("libcudnn_ops.so.9.1.0"), _stem("libnvrtc.so.12"), _stem("cudnn64_9.dll")
    ('libcudnn_ops.so.9', 'libnvrtc.so.12', 'cudnn64_9.dll')
    """
    linux_name = re.match(r"lib[\w+-]+\.so(?:\.\d+)?", library)
    if linux_name is None:
        return library
    return linux_name[0]


def listed_files(context: RuleContext) -> tuple[str, ...]:
    """The paths in the file listings of a text."""
    listings = events(context, "file-listed")
    return tuple(event.values["path"] for event in listings)


NVCC_PATH = re.compile(r"(/[\w./-]*?/?cuda[\w.-]*)/bin/nvcc$")
"""Matches a path such as `/usr/local/cuda-12.8/bin/nvcc`; the group is the toolkit's folder."""


def listed_toolkit(context: RuleContext) -> str:
    """The folder of the CUDA toolkit, if a file listing contains its nvcc; otherwise empty."""
    for path in listed_files(context):
        nvcc = NVCC_PATH.match(path)
        if nvcc is not None:
            return nvcc[1]
    return ""


def toolkit_is_listed(context: RuleContext) -> str:
    """Returns a sentence if a file listing contains nvcc, or nvcc printed its release, else ""."""
    folder = listed_toolkit(context)
    if folder:
        return f"nvcc is in {folder}/bin"
    release = context.snapshot.toolkit.nvcc
    return f"nvcc {release} runs here" if release else ""


def toolkit_is_installed(context: RuleContext) -> str:
    """Returns a sentence if nvidia-container-toolkit is installed on the host, else ""."""
    listings = events(context, "toolkit-installed")
    if not listings:
        return ""
    versions = [event.values["version"] for event in listings if "version" in event.values]
    toolkit = "nvidia-container-toolkit"
    if versions:
        toolkit += f" {versions[0]}"
    return f"{toolkit} is installed"


def pods_are_started(context: RuleContext) -> str:
    """Returns a sentence if Kubernetes, and not docker, starts the containers, else ""."""
    is_pod = context.snapshot.container.kind == "kubernetes"
    shows_engine = events(context, "k8s-gpu-not-allocatable", "container-engine")
    if is_pod or shows_engine:
        return "pods are started by the node's own engine"
    return ""


def torch_fails_at_its_dll(context: RuleContext) -> str:
    """Returns a sentence if the DLL that cannot be loaded belongs to torch itself, else ""."""
    for event in events(context, "failing-file"):
        if event.values.get("package") == "torch":
            return "torch's own DLL does not start in the program"
    return ""


def failing_package(context: RuleContext) -> str:
    """The package that the failing file belongs to; "" if the text shows no such file."""
    for event in events(context, "failing-file"):
        return event.values.get("package", "")
    return ""


def failing_file_is_in_a_checkout(context: RuleContext) -> str:
    """Returns a sentence if the file that failed is in a project's sources, and not in
    site-packages, else ""."""
    for event in events(context, "failing-file"):
        failing_package = event.values.get("package")
        is_in_checkout = event.values.get("place") == "checkout"
        if is_in_checkout and failing_package:
            root = event.values.get("root", "the working folder")
            return f"Python imports {failing_package} from the source folder {root}"
    return ""


def versions_are_a_pair(companion: Name) -> Fact:
    """Returns a fact that holds if the listed versions of torch and companion work together."""

    def fact(context: RuleContext) -> str:
        listed_companion = package(context, companion)
        torch = context.torch.version
        if listed_companion is None or torch is None:
            return ""
        version = listed_companion.version
        release = context.catalog.release_of(torch)
        if release is None:
            return ""
        if not serves_torch(context.catalog, companion, version, release.torch):
            return ""
        if _is_of_another_backend(context, companion, listed_companion):
            return ""
        return f"{companion} {version} belongs to torch {torch}"

    return fact


def _is_of_another_backend(context: RuleContext, name: Name, companion: Package) -> bool:
    """Whether a companion was built for another backend than torch; False if that is unknown."""
    backend = context.torch.backend
    if not backend:
        return False
    # If a wheel's version has no label, its build depends on the platform, which a text may not
    # show.
    platform = None
    if not is_report(context) and companion.installer != "conda":
        platform = f"{context.os.family}-{context.os.machine}"
    fits = serves_backend(context.catalog, name, companion.version, backend, platform)
    return fits is False


def catalog_has_torch_for_this_python(context: RuleContext) -> str:
    """Returns a sentence if some index has the wanted torch for this Python and system, else ""."""
    release = (context.snapshot.wanted.torch or "").removeprefix("==")
    python = ".".join((context.snapshot.python.version or "").split(".")[:2])
    backends = []
    for build in context.catalog.builds:
        if build.torch != release or python not in build.pythons:
            continue
        # If the system is unknown, every build may fit.
        fits_system = context.os.family in (None, build.os)
        if fits_system and context.os.machine in (None, build.machine):
            backends.append(build.backend)
    if not backends:
        return ""
    return f"torch {release} has wheels for Python {python}: {', '.join(dict.fromkeys(backends))}"


def another_python_was_asked(context: RuleContext) -> str:
    """Returns a sentence if the torch output in the text comes from another Python than the one in
    which the program fails, else "".

    The signs are that torch itself warns that it lacks kernels which `get_arch_list()` lists
    elsewhere, or that a program's message names another torch than the list of packages.
    """
    lacking_targets = set()
    for event in events(context, "gpu-not-in-wheel"):
        digits = event.values.get("capability", "").replace(".", "")
        if digits:
            lacking_targets.add(digits)
    for event in events(context, "arch-list-named"):
        digits = re.sub(r"\D", "", event.values.get("target", ""))
        if digits in lacking_targets:
            return f"the torch that was asked lists {event.values['target']}, and another one runs"
    if lists_another_torch(context):
        return "the program's own message names another torch than the list of packages"
    return ""


def lists_another_torch(context: RuleContext) -> bool:
    """Whether the program's own message names another torch than the list of packages."""
    listed_releases = {
        distribution.version.partition("+")[0] for distribution in packages(context, "torch")
    }
    named_releases = set()
    for event in events(context, "extension-abi-mismatch", "torchvision-mismatch"):
        if "torch" in event.values:
            named_releases.add(event.values["torch"].partition("+")[0])
    if not listed_releases or not named_releases:
        return False
    return listed_releases.isdisjoint(named_releases)


# --- remedies and other runs ----------------------------------------------------------------------


def imports_alone(context: RuleContext) -> str:
    """Returns a sentence if the same import works in a new process, else ""."""
    if not events(context, "ran-alone"):
        return ""
    return "the same import works on its own"


def a_run_ended_well(context: RuleContext) -> str:
    """Returns a sentence if the last run in the text ended without an error, else ""."""
    for event in events(context, "run-finished"):
        quote = (event.text or "")[:40].strip()
        return f"the run came to its end after this message ({quote}…)"
    return ""


def all_of(*facts: Fact) -> Fact:
    """A fact that holds if all of these facts hold."""

    def joined_facts(context: RuleContext) -> str:
        """The sentences of all facts, joined; "" if one of them does not hold."""
        sentences = [fact(context) for fact in facts]
        if not all(sentences):
            return ""
        return "; ".join(sentences)

    return joined_facts
