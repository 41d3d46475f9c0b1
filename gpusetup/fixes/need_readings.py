"""What is known about the facts that a command needs: which torch, which Python, who manages the
host.

Each function returns in words what was read, or what speaks against a command; "" if nothing was
read.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gpusetup.accelerators.makers import INTEL
from gpusetup.catalog.jetpack import board_of
from gpusetup.evidence import facts
from gpusetup.evidence.context import (
    RuleContext,
    events,
    is_report,
    packages,
    releases_of_torch,
)
from gpusetup.evidence.maker_facts import cards_of_other_makers, may_be_another_makers
from gpusetup.fixes import owners
from gpusetup.model.shell import lines
from gpusetup.model.versions import parsed

Reading = Callable[[RuleContext], str]
"""A function that returns in words what was read; "" if nothing was read."""

TORCHS_VERSION = 'python -c "import torch; print(torch.__version__, torch.version.cuda)"'
TORCHS_KERNELS = (
    'python -c "import torch; print(torch.__version__, torch.cuda.get_arch_list(), '
    'torch.cuda.get_device_capability())"'
)
PROGRAMS_PYTHON = (
    'python -c "import sys, torch; print(sys.executable, torch.__version__, '
    'torch.cuda.get_arch_list())"'
)
(GPUS_ON_THE_BUS,) = lines("lspci -nn | grep -iE 'vga|3d|display'")
NODES_ENGINE = "kubectl get nodes -o wide  # its last column is CONTAINER-RUNTIME"

# --- which GPU is there ---------------------------------------------------------------------------


def maker_of_the_gpu_that_is_there(context: RuleContext) -> str:
    """Whose build of torch the machine can use; "" if a text names cards of two makers, so that the
    one with the failing program may be either."""
    if may_be_another_makers(context.snapshot):
        return ""
    return "the text names cards of one maker"


def build_for_the_other_card(context: RuleContext) -> str:
    """What to install if the other maker's card is the one in the machine; "" for texts with cards
    of one maker."""
    if not may_be_another_makers(context.snapshot):
        return ""
    card = cards_of_other_makers(context.snapshot)[0].values
    build = "XPU" if card.get("vendor") == INTEL.id else "ROCm"
    name = card.get("name", "")
    return (
        f"If the {name} is in this machine, install torch's {build} build: "
        f"`gpusetup resolve --gpu '{name}'` names it. If the NVIDIA card is: "
    )


# --- which torch is there -------------------------------------------------------------------------

INSTALLING = (
    *("no-matching-distribution", "python-no-wheel", "wheel-not-supported", "wrong-index"),
    *("no-wheel-for-platform", "conda-not-found", "resolver-conflict", "torch-missing"),
    *("build-isolation-no-torch", "download-hash-mismatch", "download-network-error"),
    *("conda-cuda-virtual-missing", "externally-managed", "pip-cache-disk-full"),
)
"""Events of a person who is about to install torch, so that the installed torch does not matter."""
SHOW_WHICH_TORCH = (
    *("torch-not-compiled-with-cuda", "gpu-not-in-wheel", "no-nvidia-driver"),
    *("no-xpu", "hip-kernel-missing", "torch-lacks-device"),
)
"""Events in which torch itself says what it lacks."""
TELL_RELEASES_APART = ("release-regressed", "pin-pulls-torch")
"""Events that name two releases and show which of them works or stays."""


def torch_that_is_there(context: RuleContext) -> str:
    """The installed torch, as exactly as a command that changes it must know it; "" if it is not
    known."""
    torch = context.torch
    if board := board_of(context.snapshot):
        return f"{board}, whose JetPack decides"
    # A probed machine's torch is known. For a described host, the answer is only what would fit it.
    if not is_report(context) or context.other_host:
        return torch.version or "no torch is installed"
    for event in events(context, "packaged-program"):
        return f"the torch inside {event.values.get('program', 'the program')}"
    if lent := events(context, "hosted-notebook"):
        return f"the torch of {lent[0].values.get('service', 'the notebook')}"
    if two_releases_are_open(context):
        return ""
    # For each release there is one build for macOS, and torch itself prints this message.
    if events(context, "mps-lacks"):
        return "torch's build for macOS"
    # A release that a person mentions does not identify the build, because the index that it came
    # from is unknown.
    is_printed = not events(context, "torch-only-named") or "+" in (torch.version or "")
    if torch.backend or (torch.version and is_printed):
        return f"torch {torch.version or torch.backend}"
    if torch.kernels:
        return f"torch with kernels for {' '.join(torch.kernels)}"
    if torch.installed is False or events(context, *INSTALLING):
        return "no torch is installed yet"
    wanted = context.snapshot.wanted
    if wanted.torch or wanted.backend or wanted.companion:
        return f"torch {wanted.torch or wanted.backend or wanted.companion} is asked for"
    companions = (*packages(context, "torchvision"), *packages(context, "torchaudio"))
    if companions:
        return f"{companions[0].name} {companions[0].version}, which belongs to one torch"
    for event in events(context, *SHOW_WHICH_TORCH):
        return event.text or event.kind
    return ""


TELL_THEM_APART = (*TELL_RELEASES_APART, *INSTALLING, *SHOW_WHICH_TORCH)


def two_releases_are_open(context: RuleContext) -> bool:
    """Whether a text names two releases of torch and nothing shows which of them runs.

    If a program printed the build, that build runs. conda's `pytorch` together with pip's `torch`
    is a cause of its own.
    """
    if context.torch.backend or len(releases_of_torch(context)) < 2:
        return False
    is_installed_twice = bool(packages(context, "pytorch"))
    return not is_installed_twice and not events(context, *TELL_THEM_APART)


# --- what the machine's owner, its engine, its Python allow ---------------------------------------


def engine_of_the_node(context: RuleContext) -> str:
    """The container engine of the node."""
    for event in events(context, "container-engine"):
        return f"the node's engine is {event.values.get('engine', '')}"
    return "" if context.snapshot.container.kind == "kubernetes" else "this host's own engine"


def no_boot_screen(context: RuleContext) -> str:
    """Why nobody can see the machine's screen before its system starts, for example to enroll a
    key."""
    if not events(context, "cloud-machine", "no-boot-screen"):
        return ""
    return (
        "the screen that enrols a key appears before the system starts, where you cannot "
        "reach it from here"
    )


def python_that_must_stay(context: RuleContext) -> str:
    """The program that needs exactly this Python."""
    for event in events(context, "python-bound"):
        return f"the program is bound to Python {event.values.get('python', '')}"
    return ""


def reboot_was_tried(context: RuleContext) -> str:
    """The machine was restarted already, and the failure is still there."""
    remedies_tried = [event.values.get("what") for event in events(context, "remedy-tried")]
    return "the machine was already restarted" if "reboot" in remedies_tried else ""


def cluster_without_docker(context: RuleContext) -> str:
    """The cluster's users cannot start docker, because a scheduler runs their jobs."""
    return "a scheduler starts the jobs here" if events(context, "slurm-job", "login-node") else ""


def no_administrator(context: RuleContext) -> str:
    """The user has no administrator rights on the machine."""
    if events(context, "no-root-rights"):
        return "you have no administrator rights on this machine"
    return ""


def python_of_another_program(context: RuleContext) -> str:
    """The person checked a different Python from the program's, so an installation there changes
    nothing."""
    return facts.another_python_was_asked(context)


def python_of_the_program(context: RuleContext) -> str:
    """The Python of a program that comes with its environment; a command must name exactly this
    Python."""
    python = context.snapshot.python
    if python.executable or python.manager or not owners.has_own_environment(context):
        return python.executable or "no other environment is named"
    return ""


def reinstall_was_tried(context: RuleContext) -> str:
    """The same torch was reinstalled already."""
    tried = {event.values.get("what") for event in events(context, "remedy-tried")}
    build = context.choice.build
    torch = context.torch
    if "torch" not in tried or build is None or torch.version is None:
        return ""
    same_release = parsed(torch.version.partition("+")[0]) == parsed(build.torch)
    same_build = torch.backend in (None, build.backend)
    if not (same_release and same_build):
        return ""
    return f"torch {torch.version} was reinstalled already, without effect"


MOVED_WITH_TORCH = ("torchvision", "torchaudio", "triton")
"""Packages that `gpusetup install` changes together with torch, or that torch's own requirements
change."""


def compiled_for_the_torch_that_is_there(context: RuleContext) -> str:
    """Packages compiled for the present torch, and what happens to them if it changes."""
    compiled = {event.values["package"] for event in events(context, "compiled-for-torch")}
    # For listed packages, `choose.compatibility` reports this with both versions.
    listed = {package.name for package in context.snapshot.packages or ()}
    bound = sorted(compiled - listed - {*MOVED_WITH_TORCH})
    if not bound:
        return ""
    names = " and ".join(bound)
    are, their = ("are", "their releases") if bound[1:] else ("is", "its release")
    return (
        f". {names} {are} compiled for the installed torch: right after installing the new torch, "
        f"install {their} for it or build from source, because otherwise imports fail with an "
        "undefined symbol"
    )


NEW_ABI = "__cxx11"
OLD_ABI = re.compile(r"\b_Z\w+[EK]Ss\w*")
"""A symbol that takes a `std::string` of the old C++ ABI (Itanium C++ ABI: `Ss`)."""


def abi_of_the_missing_symbol(context: RuleContext) -> str:
    """Advice on the C++ ABI that an extension needs, judged by the symbol that it misses in torch.

    On Linux torch's wheels have the new ABI since 2.7; of the 2.6 wheels only those for CUDA 12.6.
    """
    for event in events(context, "extension-abi-mismatch"):
        symbol = event.text or ""
        is_old = OLD_ABI.search(symbol) is not None
        if "undefined symbol" not in symbol or not (is_old or NEW_ABI in symbol):
            continue
        built, needed = ("old", "TRUE") if is_old else ("new", "FALSE")
        return (
            f". The missing symbol has the {built} C++ ABI: if torch has the other one (`python "
            '-c "import torch; print(torch.compiled_with_cxx11_abi())"`), choose a wheel with '
            f"`cxx11abi{needed}` in its name"
        )
    return ""


def pin_of_another_package(context: RuleContext) -> str:
    """A package whose requirement would bring the other torch back at its next installation."""
    for event in events(context, "pin-pulls-torch"):
        package, torch = event.values.get("package", ""), event.values.get("torch", "")
        version, file = event.values.get("version"), event.values.get("file", "its requirements")
        requirement = f"{package}=={version}" if version else package
        return (
            f"{requirement} requires torch=={torch} and restores it whenever it is installed: "
            f"first remove this pin from {file}, or choose a release of {package} for the newer "
            "torch. "
        )
    return ""


def host_of_a_lender(context: RuleContext) -> str:
    """The container is rented: its user cannot change the host's driver or power settings."""
    for event in events(context, "host-of-a-lender"):
        return f"the host cannot be changed from here ({(event.text or '')[:40].strip()})"
    return ""


def marker_of_another_system(context: RuleContext) -> str:
    """What to change if the project uses its torch index only on another system, so this one gets
    CPU builds; "" otherwise.
    """
    if not events(context, "index-marker") or context.torch.backend != "cpu":
        return ""
    return (
        "In pyproject.toml, the index of torch applies to one system only. Add this system to "
        "the marker under `[tool.uv.sources]` (`sys_platform == 'linux' or sys_platform == "
        "'win32'`), because otherwise `uv sync` installs the CPU build again. "
    )


def kernels_of_torch(context: RuleContext) -> str:
    """What shows that torch has kernels for the GPU; "" if nothing does.

    Without such kernels, rebuilding an extension changes nothing.
    """
    if not events(context, "no-kernel-image"):
        return "no kernel is missing"
    if context.torch.kernels is not None:
        return f"torch has kernels for {' '.join(context.torch.kernels)}"
    return "torch computes here" if events(context, "gpu-computes") else ""


def never(_context: RuleContext) -> str:
    """For facts that no reading can show: always ""."""
    return ""


def always(_context: RuleContext) -> str:
    """Returns a reading that is always known, with this reason."""
    return "nothing more is needed"
