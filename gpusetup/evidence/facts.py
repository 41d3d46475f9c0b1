"""Facts that rule a cause out: each function returns what was read in a sentence, or "".

A cause's record names the facts that refute it (`refuted_by`); `diagnosis.refute` asks them. A fact
speaks of values of the snapshot only, so it holds for this machine, a snapshot and a text alike.
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
    is_report,
    listed_gpus,
    package,
    packages,
    says_nothing_else,
)
from gpusetup.model.machine import Event, Events, Gpu
from gpusetup.model.versions import cuda_of, parsed

Fact = Callable[[RuleContext], str]
"""What was read, in a sentence; "" if it was not read, or if it does not hold."""


def _named(listed: tuple[Gpu, ...]) -> str:
    return ", ".join(dict.fromkeys(gpu.name for gpu in listed))


# --- the driver -----------------------------------------------------------------------------------


INSUFFICIENT_DRIVER = 35
"""cudaErrorInsufficientDriver."""


def complaints_of_the_driver(context: RuleContext) -> Events:
    """What calls the driver too old."""
    return (
        *events(context, "driver-too-old", "image-needs-newer-driver"),
        *cuda_errors(context, INSUFFICIENT_DRIVER),
    )


def driver_asked_by(context: RuleContext, complaint: Event) -> str | None:
    """The driver that a complaint asks for; the one of torch's CUDA where a CUDA is refused.

    Who names a CUDA compares it with what nvidia-smi prints: minor versions do not help there.
    """
    values, catalog, family = complaint.values, context.catalog, driver_family(context.snapshot)
    named = values.get("needs_driver") or values.get("needed")
    if "cuda" in values and not named:
        cuda = values["cuda"]
        return catalog.toolkit_driver(cuda, family) or catalog.driver_floor(cuda, family)
    cuda_of_torch = cuda_needed(context.torch) or ""
    is_of_torch = complaint.kind == "cuda-error" or values.get("refused")
    if named or not (cuda_of_torch and is_of_torch):
        return named
    return catalog.driver_floor(cuda_of_torch, family)


def driver_serves_the_cuda(context: RuleContext) -> str:
    """The driver is new enough for torch's CUDA, for the toolkit that built the program, and for
    whatever a complaint asks for."""
    version, family = context.driver.version, driver_family(context.snapshot)
    if version is None:
        return ""
    built_with = context.snapshot.toolkit.nvcc
    own_need = context.catalog.driver_floor(built_with, family) if built_with else None
    for complaint in complaints_of_the_driver(context):
        # The driver's own library said which CUDA it serves: it is the one that was loaded.
        floor = driver_asked_by(context, complaint) or (
            None if "found" in complaint.values else own_need
        )
        if floor is None or parsed(version) < parsed(floor):
            return ""
    needed = cuda_needed(context.torch) or built_with
    if needed is None and not complaints_of_the_driver(context):
        return ""
    floor = context.catalog.driver_floor(needed, family) if needed else None
    if floor and parsed(version) < parsed(floor):
        return ""
    shown = f" (CUDA {context.driver.cuda})" if context.driver.cuda else ""
    serves = f"runs programs of CUDA {needed}" if needed else "is as new as the message asks"
    return f"driver {version}{shown} {serves}"


def wanted_cuda(context: RuleContext) -> str | None:
    """The CUDA of the torch that a plain question is about."""
    wanted = context.snapshot.wanted
    asked = {e.values.get("topic", ""): e for e in events(context, "question-asked")}
    if not asked.keys() & OF_DRIVER_AND_CUDA or not says_nothing_else(context):
        return None
    in_the_question = [e.values.get("cuda") for topic, e in asked.items() if topic in OF_A_BUILD]
    return wanted.cuda or cuda_of(wanted.backend or "") or next(iter(in_the_question), None)


OF_DRIVER_AND_CUDA = {"driver", "downgrade", "torch-cuda", "build", "two-numbers", "card"}
"""Topics of questions that a driver's version may answer with no (`messages.questions`)."""
OF_A_BUILD = {"driver", "torch-cuda"}
"""Those in which the CUDA that is named is a build's; elsewhere it may be the driver's."""


def driver_serves(context: RuleContext, cuda: str) -> bool | None:
    """Whether the driver is new enough for a CUDA; None if one of both is not known."""
    floor = context.catalog.driver_floor(cuda, driver_family(context.snapshot))
    version = context.driver.version
    return parsed(version) >= parsed(floor) if version and floor else None


def wsl_reaches_the_driver(context: RuleContext) -> str:
    """nvidia-smi shows the GPU inside WSL, and no message says that WSL is refused."""
    is_refused = events(context, "wsl-driver")
    shows = events(context, "smi-sees-it")
    return "nvidia-smi shows the GPU there" if shows and not is_refused else ""


def driver_lists_a_gpu(context: RuleContext) -> str:
    """The driver answers and lists a GPU."""
    listed = listed_gpus(context)
    return f"the driver lists {_named(listed)}" if listed else ""


# --- files, packages, tools -----------------------------------------------------------------------


def missing_library_is_listed(context: RuleContext) -> str:
    """A listing shows the library that a program does not find."""
    wanted = {
        _stem(event.values.get("library", ""))
        for event in events(context, "cuda-lib-missing", "library-missing", "program-lib-missing")
    }
    for path in listed_files(context):
        name = re.split(r"[/\\]", path)[-1]
        if any(stem and name.startswith(stem) for stem in wanted):
            return f"{name} is there: {path}"
    return ""


def _stem(library: str) -> str:
    """A library's name up to its major version: a loader asks for that name.

    >>> _stem("libcudnn_ops.so.9.1.0"), _stem("libnvrtc.so.12"), _stem("cudnn64_9.dll")
    ('libcudnn_ops.so.9', 'libnvrtc.so.12', 'cudnn64_9.dll')
    """
    so_name = re.match(r"lib[\w+-]+\.so(?:\.\d+)?", library)
    return so_name[0] if so_name else library


def listed_files(context: RuleContext) -> tuple[str, ...]:
    """The paths that a listing of files shows."""
    return tuple(event.values["path"] for event in events(context, "file-listed"))


def listed_toolkit(context: RuleContext) -> str:
    """The folder of the CUDA toolkit whose nvcc a listing shows."""
    for path in listed_files(context):
        if home := re.match(r"(/[\w./-]*?/?cuda[\w.-]*)/bin/nvcc$", path):
            return home[1]
    return ""


def toolkit_is_listed(context: RuleContext) -> str:
    """A listing shows nvcc, or nvcc printed its release."""
    if home := listed_toolkit(context):
        return f"nvcc is in {home}/bin"
    nvcc = context.snapshot.toolkit.nvcc
    return f"nvcc {nvcc} runs here" if nvcc else ""


def glibc_is_new_enough(context: RuleContext) -> str:
    """The system's glibc is as new as the message asks."""
    shown = re.search(r"glibc (\d+\.\d+)", context.os.libc or "")
    asked = [event.values.get("needed") for event in events(context, "glibc-too-old")]
    newest = max((parsed(version) for version in asked if version), default=None)
    if shown is None or newest is None or parsed(shown[1]) < newest:
        return ""
    return (
        f"this system has glibc {shown[1]}: the program runs with another one (a container, conda)"
    )


def toolkit_is_installed(context: RuleContext) -> str:
    """nvidia-container-toolkit is installed on the host."""
    shown = events(context, "toolkit-installed")
    versions = [event.values["version"] for event in shown if "version" in event.values]
    if not shown:
        return ""
    toolkit = " ".join(("nvidia-container-toolkit", *versions[:1]))
    return f"{toolkit} is installed"


def pods_are_started(context: RuleContext) -> str:
    """It is a node of Kubernetes that starts containers."""
    kind = context.snapshot.container.kind
    shown = kind == "kubernetes" or events(context, "k8s-gpu-not-allocatable", "container-engine")
    return "pods are started by the node's own engine" if shown else ""


def torch_fails_at_its_dll(context: RuleContext) -> str:
    """The DLL that does not start is torch's own."""
    for event in events(context, "failing-file"):
        if event.values.get("package") == "torch":
            return "torch's own DLL does not start in the program"
    return ""


def failing_package(context: RuleContext) -> str:
    """The package that the file which failed belongs to; "" if no such file is shown."""
    for event in events(context, "failing-file"):
        return event.values.get("package", "")
    return ""


def failing_file_is_in_a_checkout(context: RuleContext) -> str:
    """The file that failed lies in the sources of a project, and not in site-packages."""
    for event in events(context, "failing-file"):
        values = event.values
        if values.get("place") == "checkout" and values.get("package"):
            root = values.get("root", "the working folder")
            return f"Python imports {values['package']} from the source folder {root}"
    return ""


def versions_are_a_pair(companion: Name) -> Fact:
    """torch and its companion, as they are listed, belong together."""

    def fact(context: RuleContext) -> str:
        beside, torch = package(context, companion), context.torch.version
        if beside is None or torch is None:
            return ""
        release = context.catalog.release_of(torch)
        # An unlabelled wheel's build depends on the platform, which a text may not show.
        os, is_live = context.os, not is_report(context) and beside.installer != "conda"
        platform = f"{os.family}-{os.machine}" if is_live else None
        backend = context.torch.backend
        other_build = backend and (
            serves_backend(context.catalog, companion, beside.version, backend, platform) is False
        )
        fits = release and serves_torch(context.catalog, companion, beside.version, release.torch)
        if not fits or other_build:
            return ""
        return f"{companion} {beside.version} belongs to torch {torch}"

    return fact


def catalog_has_torch_for_this_python(context: RuleContext) -> str:
    """Some index has the torch that is asked for, for this Python and system."""
    asked, os = (context.snapshot.wanted.torch or "").removeprefix("=="), context.os
    here = ".".join((context.snapshot.python.version or "").split(".")[:2])
    indexes = [
        row.backend
        for row in context.catalog.builds
        if row.torch == asked
        and here in row.pythons
        and os.family in (None, row.os)
        and os.machine in (None, row.machine)
    ]
    if not indexes:
        return ""
    return f"torch {asked} has wheels for Python {here}: {', '.join(dict.fromkeys(indexes))}"


def another_python_was_asked(context: RuleContext) -> str:
    """What a person read of torch is of another Python than the one in which the program fails.

    torch's own warning denies the kernels that `get_arch_list()` lists elsewhere, or a program's
    message names another torch than the list of packages.
    """
    warned = events(context, "gpu-not-in-wheel")
    lacking = {event.values.get("capability", "").replace(".", "") for event in warned} - {""}
    for event in events(context, "arch-list-named"):
        target = re.sub(r"\D", "", event.values.get("target", ""))
        if target in lacking:
            return f"the torch that was asked lists {event.values['target']}, and another one runs"
    if lists_another_torch(context):
        return "the program's own message names another torch than the list of packages"
    return ""


def lists_another_torch(context: RuleContext) -> bool:
    """Whether the program's own message names another torch than the list of packages."""
    listed = {one.version.partition("+")[0] for one in packages(context, "torch")}
    named = {
        event.values["torch"].partition("+")[0]
        for event in events(context, "extension-abi-mismatch", "torchvision-mismatch")
        if "torch" in event.values
    }
    return bool(listed and named) and not listed & named


# --- what was done, and what ran ------------------------------------------------------------------


def was_tried(*remedies: str) -> Fact:
    """Every one of these remedies was tried already, and the failure is still there."""
    words = {
        "torch": "torch was reinstalled already",
        "driver": "the driver was reinstalled already",
        "reboot": "the machine was restarted already",
        "vc-runtime": "the Visual C++ runtime is there",
        "package": "the package was reinstalled already",
    }

    def fact(context: RuleContext) -> str:
        tried = {event.values.get("what") for event in events(context, "remedy-tried")}
        return "; ".join(words[name] for name in remedies) if tried.issuperset(remedies) else ""

    return fact


def another_runtime_is_loaded_first(context: RuleContext) -> str:
    """A package with DLLs of its own is imported before torch."""
    for event in events(context, "loaded-first"):
        return f"{event.values['package']} is imported before torch and brings its own DLLs"
    return ""


def imports_alone(context: RuleContext) -> str:
    """The same import works if nothing else was loaded before."""
    return "the same import works on its own" if events(context, "ran-alone") else ""


def a_run_ended_well(context: RuleContext) -> str:
    """The text's last run came to its end without an error."""
    for event in events(context, "run-finished"):
        return f"the run came to its end after this message ({(event.text or '')[:40].strip()}…)"
    return ""


def a_program_computed(context: RuleContext) -> str:
    """torch sees the GPU, or a program computed on it."""
    if context.torch.cuda_available:
        return "torch.cuda.is_available() is True"
    return "a program computed on the GPU" if events(context, "gpu-computes") else ""


def any_of(*facts: Fact) -> Fact:
    """The first of these facts that holds."""
    return lambda context: next(filter(None, (fact(context) for fact in facts)), "")


def all_of(*facts: Fact) -> Fact:
    """All of these facts, in one sentence; "" if one of them does not hold."""

    def fact(context: RuleContext) -> str:
        sentences = [one(context) for one in facts]
        return "; ".join(sentences) if all(sentences) else ""

    return fact
