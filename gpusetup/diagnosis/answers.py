"""Answers to plain questions about torch, CUDA, drivers and GPUs: each states a fact and then the
next step.

Each answer combines the catalog's facts with one rule. If the text's own values decide a question
(for example a driver that is too old for the CUDA version in the question), it becomes a finding
instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpusetup.catalog.kernels import served_by
from gpusetup.choose.host import driver_family
from gpusetup.diagnosis.working_stack import maker_in_a_text, shows_a_working_gpu
from gpusetup.evidence.context import (
    cuda_needed,
    events,
    gpus,
    in_container,
    is_report,
    says_nothing_else,
)
from gpusetup.evidence.facts import driver_serves, wanted_cuda
from gpusetup.fixes import makers
from gpusetup.model.patterns import lazy
from gpusetup.model.shell import own_word
from gpusetup.model.versions import parsed

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext
    from gpusetup.model.builds import TorchBuild
    from gpusetup.model.machine import Event, Gpu

NEWEST_CUDA = (
    "The CUDA that nvidia-smi shows is the newest version that the driver supports; builds for "
    "older versions also run"
)


# --- a plain question -----------------------------------------------------------------------------


def plain_question(context: RuleContext) -> Event | None:
    """The question in a text that mentions no failure; None if there is none."""
    if not is_report(context) or not events(context, "names-no-failure"):
        return None
    failing = events(context, "gpu-unused", "run-hangs")
    if failing or not says_nothing_else(context, "foreign-gpu", "cuda-toolkit-missing"):
        return None
    return next((event for event in events(context, "question-asked")), None)


def plain_answer(context: RuleContext) -> str:
    """The answer to a plain question, with the next step; "" if there is none."""
    question = plain_question(context)
    if question is None:
        return ""
    topic = question.values["topic"]
    # "The driver was it, now it works. Must I do more?" is not a question about a driver.
    if question.values.get("named") == "before" and shows_a_working_gpu(context):
        return ""
    # In "48 tokens/s, is that normal for my RX 9070?" a program already uses the GPU.
    if topic == "maker" and events(context, "gpu-in-use"):
        return ""
    # CUDA versions and NVIDIA drivers do not matter for another maker's GPU.
    if topic in ABOUT_CUDA and maker_in_a_text(context) in ("amd", "intel", "apple"):
        return ""
    if topic in ABOUT_BUILDS and _build_works(context):
        return (
            f"no change is needed: torch {context.torch.version} works here. {NEWEST_CUDA}. "
            "To test it, run `gpusetup verify`"
        )
    return ANSWERS[topic](context, question)


ABOUT_CUDA = ("driver", "downgrade", "torch-cuda")
"""Questions whose answer is a CUDA version or a version of NVIDIA's driver."""
ABOUT_BUILDS = ("build", "torch-cuda", "card", "driver")
"""Questions whose answer could be taken for the advice to replace a build that works."""


def _build_works(context: RuleContext) -> bool:
    """Whether a text shows the exact build, and that it computes on the GPU."""
    torch = context.torch
    computes = torch.cuda_available or events(context, "gpu-in-use", "gpu-trains", "works-there")
    is_cuda = bool(torch.backend and torch.backend.startswith("cu"))
    return bool(is_cuda and torch.version and computes)


def _of_the_driver(context: RuleContext, question: Event) -> str:
    """Answers whether a driver is new enough, or which driver is needed."""
    version = context.driver.version
    wanted = wanted_cuda(context) or question.values.get("cuda") or cuda_needed(context.torch)
    if version and wanted:
        if driver_serves(context, wanted) is not True:
            return ""  # The finding `driver-too-old` contains the fix.
        floor = context.catalog.driver_floor(wanted, driver_family(context.snapshot))
        return (
            f"yes, driver {version} runs builds for CUDA {wanted} (they need {floor} or newer). "
            f"Keep the driver, and do not remove anything. {NEWEST_CUDA}. `gpusetup resolve "
            f"--driver {version}` picks the build"
        )
    if version:
        return (
            f"driver {version} runs {_newest_served(context)}. For the build that fits, run "
            f"`gpusetup resolve --driver {version}`"
        )
    floors = _floors(context, wanted)
    return f"{floors}. `nvidia-smi` shows yours; `gpusetup resolve` picks the build that fits it"


def _newest_served(context: RuleContext) -> str:
    """The newest CUDA of torch's builds that the driver supports."""
    served = {
        build.cuda
        for build in context.catalog.builds
        if build.cuda and driver_serves(context, build.cuda)
    }
    newest = max(served, key=parsed, default=None)
    return f"torch's builds up to CUDA {newest}" if newest else "none of torch's builds"


def _floors(context: RuleContext, wanted: str | None) -> str:
    """The driver that a CUDA version needs; for both current major versions if none is named."""
    majors = (wanted,) if wanted else ("12", "13")
    parts = []
    for cuda in majors:
        linux, windows = (context.catalog.driver_floor(cuda, on) for on in ("linux", "windows"))
        parts.append(f"builds for CUDA {cuda} need driver {linux} (Windows: {windows}) or newer")
    return ", ".join(parts)


def _of_a_downgrade(context: RuleContext, question: Event) -> str:
    """Answers whether the person must go back to an older CUDA or driver."""
    wanted = wanted_cuda(context)
    if wanted and driver_serves(context, wanted) is False:
        return ""
    shown, version = context.driver.cuda, context.driver.version
    kept = f" (here {shown})" if shown else ""
    runs = f" (driver {version} runs builds for CUDA {wanted})" if version and wanted else ""
    return (
        f"no, keep the driver and do not remove anything{runs}. The CUDA that nvidia-smi "
        f"shows{kept} is the newest version that the driver supports; builds for older versions "
        "also run, and torch includes its own CUDA libraries. `gpusetup install` picks the build "
        "that fits"
    )


def _of_the_toolkit(context: RuleContext, question: Event) -> str:
    """Answers whether torch needs a CUDA toolkit."""
    return (
        "no, torch needs only the NVIDIA driver: its wheels bring the CUDA libraries and cuDNN. "
        "You need a CUDA toolkit (nvcc) only to compile extensions from source, for example "
        "flash-attn without a wheel. `gpusetup install` installs torch and tests it"
    )


def _of_two_numbers(context: RuleContext, question: Event) -> str:
    """Answers why nvidia-smi and nvcc show different CUDA versions."""
    by_driver, by_nvcc = context.driver.cuda, context.snapshot.toolkit.nvcc
    shown = f" (here {by_driver})" if by_driver else ""
    toolkit = f" (here {by_nvcc})" if by_nvcc else ""
    return (
        f"they may differ. nvidia-smi shows the newest CUDA that the driver supports{shown}, nvcc "
        f"the installed toolkit{toolkit}, and torch.version.cuda the CUDA that torch was built "
        "with and includes. This works as long as the driver supports torch's CUDA major "
        "version; nvcc matters only when you compile extensions. To test it, run `gpusetup "
        "verify`"
    )


def _of_python(context: RuleContext, question: Event) -> str:
    """Answers which torch has wheels for a Python version."""
    python = question.values["python"]
    rows = [row for row in context.catalog.builds if row.channel == "pytorch"]
    releases = {row.torch for row in rows if python in row.pythons}
    if not releases:
        # A version that ends in a letter is a Python without the GIL (3.13t).
        usual_pythons: set[str] = set()
        for row in rows:
            usual_pythons.update(tag for tag in row.pythons if tag[-1].isdigit())
        newest = max(usual_pythons, key=parsed)
        return (
            f"no, torch has no wheels for Python {python} (as of {context.catalog.as_of}; newest: "
            f"Python {newest}). Create an environment with Python "
            f"{context.catalog.milestone('usual python')}, and run `gpusetup install` there"
        )
    oldest, latest = min(releases, key=parsed), max(releases, key=parsed)
    release = _release_named(context, question)
    if release and not any(is_of_release(torch, release) for torch in releases):
        return (
            f"no, torch {release} has no wheels for Python {python}: torch {oldest} to {latest} "
            "have. `gpusetup install` picks the one that fits the driver and the GPU"
        )
    return (
        f"yes, torch {oldest} to {latest} have wheels for Python {python}. `gpusetup install` "
        "picks the one that fits the driver and the GPU"
    )


def is_of_release(version: str, release: str) -> bool:
    """Whether a version belongs to a release, which may be given by its first numbers only.

    >>> is_of_release("2.10.1", "2.10"), is_of_release("2.10.1", "2.1")
    (True, False)
    """
    return f"{version}.".startswith(f"{release}.")


def _release_named(context: RuleContext, question: Event) -> str:
    """The torch release in a question; "" if there is none."""
    torch_of_text = context.snapshot.wanted.torch or context.torch.version or ""
    torch = question.values.get("torch") or torch_of_text
    release = torch.removeprefix("==").partition("+")[0]
    return release if release[:1].isdigit() else ""


def _of_torchs_cuda(context: RuleContext, question: Event) -> str:
    """The CUDA for which a release of torch is built, or the release that is built for a CUDA."""
    release = _release_named(context, question)
    cuda = question.values.get("cuda", "")
    rows = [row for row in context.catalog.builds if row.cuda and row.channel == "pytorch"]
    of_release = rows
    if release:
        of_release = [row for row in rows if is_of_release(row.torch, release)]
    fitting = [row for row in of_release if is_of_release(row.cuda or "", cuda)]
    if fitting:
        newest = max(fitting, key=lambda row: parsed(row.torch))
        return (
            f"yes, torch {newest.torch} has builds for CUDA {newest.cuda} ({newest.backend}, "
            f"driver {newest.driver_floor} or newer). `gpusetup resolve` shows whether it fits "
            "your machine"
        )
    labels = sorted({row.cuda for row in of_release if row.cuda}, key=parsed)
    if not labels:
        return f"the catalog does not contain torch {release}. `gpusetup resolve` shows what fits"
    who = f"torch {release}" if release else "torch"
    return (
        f"no, {who} has builds for CUDA {', '.join(labels)}. You do not need a build for CUDA "
        f"{cuda}: a driver that supports it runs these too. `gpusetup resolve` picks one"
    )


def _of_a_build(context: RuleContext, question: Event) -> str:
    """Answers which build a GPU needs."""
    build = context.choice.build
    gpus_in_text = gpus(context)
    if not gpus_in_text or build is None or not build.cuda:
        return (
            "the GPU and the driver decide, not an installed CUDA, because torch includes its "
            "own. RTX 50 cards need cu128 or newer, GTX 10 cards and older cu126 or older. "
            "`gpusetup resolve` picks the build for your machine"
        )
    of_release = _of_a_release(context, question)
    return of_release or f"for {gpus_in_text[0].name}, {_fits(context, build)}"


NO_TOOLKIT = "You do not need a CUDA toolkit for that, because torch includes its own CUDA"


def _of_a_release(context: RuleContext, question: Event) -> str:
    """The newest build of the named torch with kernels for the GPU; "" if there is none."""
    release, gpu = _release_named(context, question), gpus(context)[0]
    if not release or gpu.compute_capability is None:
        return ""
    serving_builds = []
    for row in context.catalog.builds:
        is_asked_for = row.channel == "pytorch" and is_of_release(row.torch, release)
        if is_asked_for and served_by(row, gpu.compute_capability, None):
            serving_builds.append(row)
    if not serving_builds:
        return ""
    newest = max(serving_builds, key=lambda row: (parsed(row.torch), parsed(row.cuda or "0")))
    return (
        f"torch {newest.torch} from {newest.backend} has kernels for {gpu.name}. {NO_TOOLKIT}. To "
        f"see the commands, run `gpusetup resolve --torch {newest.torch} --gpu {_argument(gpu)}`"
    )


def _of_a_card(context: RuleContext, question: Event) -> str:
    """Answers whether torch runs on the GPU that the question names; empty if the GPU's compute
    capability is unknown."""
    build = context.choice.build
    gpus_in_text = gpus(context)
    capabilities = [gpu.compute_capability for gpu in gpus_in_text if gpu.compute_capability]
    if not capabilities:
        return ""
    name = gpus_in_text[0].name
    if build is None or served_by(build, capabilities[0], None) is None:
        return f"no, none of torch's builds has kernels for {name}. However, the CPU build works"
    return f"yes, for {name} {_fits(context, build)}"


def _fits(context: RuleContext, build: TorchBuild) -> str:
    """The sentence about the build that fits a GPU, with its lowest driver and the command that
    shows the same."""
    gpu, family = gpus(context)[0], driver_family(context.snapshot)
    # The build and the card each have a minimum driver; the newer of the two counts.
    of_build = context.catalog.driver_floor(build.cuda or "", family)
    of_card = context.catalog.first_driver(gpu, family)
    floor = max(filter(None, (of_build, of_card)), key=parsed)
    return (
        f"torch {build.torch} from {build.backend} fits (driver {floor} or newer). {NO_TOOLKIT}. "
        f"To see the commands, run `gpusetup resolve --gpu {_argument(gpu)}`"
    )


def _argument(gpu: Gpu) -> str:
    """A GPU as an argument of a command: its name, or its target if the name is not plain."""
    if PLAIN_NAME.fullmatch(gpu.name):
        return own_word(gpu.name)
    if gpu.compute_capability:
        return gpu.compute_capability.sm
    # An example target for a GPU about which nothing is known.
    return "sm_86"


PLAIN_NAME = lazy(r"[A-Za-z0-9][A-Za-z0-9 -]{1,39}")
"""The form of a GPU name that may be copied from a text into a command."""


def _of_a_maker(context: RuleContext, question: Event) -> str:
    """Answers whether and how torch uses another maker's GPU."""
    words = (question.text or "").lower()
    names_a_mac = any(word in words for word in ("mac", "apple", "mps"))
    is_mac = names_a_mac or maker_in_a_text(context) == "apple"
    # Docker on a Mac runs containers in a Linux machine, which has no Metal.
    if is_mac and (in_container(context) or "docker" in words or "container" in words):
        return (
            "no: a container on a Mac runs in a Linux machine without Metal, so torch finds no "
            'GPU there. Run the program on macOS itself, where torch has the device "mps", or let '
            "the container use the CPU"
        )
    if is_mac:
        return f"yes, as the device mps. {makers.for_mac(context).text}. {TRY_IT}"
    if "intel" in words or "arc" in words:
        return f"yes, as the device xpu. {makers.for_intel(context).text}. {TRY_IT}"
    fix = makers.for_amd(context)
    # PyTorch's own index has ROCm builds for Linux only.
    if "windows" in words:
        fix = makers.from_amds_index(context, makers.board_of(context)[1])
    return f"yes, if ROCm supports the GPU. {fix.text}. {TRY_IT}"


TRY_IT = "On that machine, `gpusetup doctor` shows what fits"


def _of_several_cudas(context: RuleContext, question: Event) -> str:
    """Answers whether several CUDA toolkits can be installed together."""
    return (
        "yes, toolkits of several CUDA versions can be installed side by side, and torch uses "
        "none of them, because each environment's torch includes its own CUDA. There is only one "
        "driver. `gpusetup doctor` shows which of them an environment uses"
    )


def _of_a_jetson(context: RuleContext, question: Event) -> str:
    """Answers whether there are torch wheels for a Jetson."""
    return (
        "yes, NVIDIA publishes torch wheels for each JetPack; PyTorch's own aarch64 wheels have no "
        "kernels for most Jetsons. On the board, `gpusetup doctor` names the wheel for its JetPack "
        "and Python"
    )


def _of_wsl(context: RuleContext, question: Event) -> str:
    """Answers whether WSL needs a Linux driver."""
    return (
        "no, install the NVIDIA driver in Windows only: WSL gets its libraries from there "
        "(/usr/lib/wsl/lib), and a Linux driver inside WSL hides them. In WSL, run `gpusetup "
        "install`"
    )


def _of_several_gpus(context: RuleContext, question: Event) -> str:
    """Answers whether several GPUs can be used as one with their memory combined."""
    return (
        "not by itself: each GPU keeps its own memory, and data parallel (DDP) puts the whole "
        "model on each. To split a model over them, use FSDP or DeepSpeed ZeRO-3 (to train), or "
        'tensor parallel or device_map="auto" (to infer). Whether yours fits: `gpusetup plan '
        "--model NAME --gpu GPU --gpus 2 --strategy fsdp`"
    )


def _of_memory(context: RuleContext, question: Event) -> str:
    """Answers how much GPU memory a model needs, with the command that computes it."""
    gpus_in_text = gpus(context)
    # An example, if the text names no GPU.
    gpu = _argument(gpus_in_text[0]) if gpus_in_text else "'RTX 3090'"
    return (
        "the model, the method and the sequence length decide. gpusetup computes it without a "
        f"GPU. For example: `gpusetup plan --model qwen3-8b --lora 16 --gpu {gpu}`"
    )


def _of_a_check(context: RuleContext, question: Event) -> str:
    """Answers how to check whether torch uses the GPU."""
    return (
        'run `python -c "import torch; print(torch.cuda.is_available())"` which prints True if '
        "torch sees the GPU. `gpusetup verify` computes on the GPU and checks the results"
    )


ANSWERS: dict[str, Callable[[RuleContext, Event], str]] = {
    "driver": _of_the_driver,
    "downgrade": _of_a_downgrade,
    "toolkit": _of_the_toolkit,
    "two-numbers": _of_two_numbers,
    "python": _of_python,
    "torch-cuda": _of_torchs_cuda,
    "build": _of_a_build,
    "card": _of_a_card,
    "maker": _of_a_maker,
    "wsl-driver": _of_wsl,
    "several": _of_several_gpus,
    "memory": _of_memory,
    "several-cudas": _of_several_cudas,
    "jetson": _of_a_jetson,
    "check": _of_a_check,
}
"""The topic of a question (see `messages.questions`) -> the function that answers it."""
