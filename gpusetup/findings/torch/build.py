"""The build of torch: for this GPU and this machine, and what it says of them itself."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    asked_for_cuda,
    events,
    gpus,
    has_nvidia,
    is_report,
    on,
    says_nothing_else,
    value_evidence,
)
from gpusetup.evidence.places import (
    in_a_container_without,
    in_a_hosted_notebook,
    lists_none_in_wsl,
    torch_was_not_shown_on_windows,
)
from gpusetup.findings import alike
from gpusetup.findings.container.boundary import CUDA_VISIBLE_DEVICES_HIDDEN
from gpusetup.findings.container.start import start_with_gpu
from gpusetup.findings.layers import BROKEN_TORCH, COMPANIONS, Layer
from gpusetup.findings.message_rules import finding, from_message, from_messages, shown
from gpusetup.findings.programs import is_beside_torch
from gpusetup.findings.record import Alike, Cause, Likelier, Message
from gpusetup.findings.sources import WHEELS
from gpusetup.fixes import paste, which
from gpusetup.model.finding import Evidence, Finding, Fix
from gpusetup.model.machine import Event

TORCH_CPU_BUILD = Cause(
    id="torch-cpu-build",
    place=(Layer.WHEEL, 110),
    title="a CPU build on a machine with an NVIDIA GPU",
    means="The default index serves Windows CPU builds; conda's plain pytorch may solve to one.",
    proven_by="torch/version.py has no CUDA, and there is an NVIDIA GPU",
    not_when="Hidden GPUs; a missing driver, which comes first",
    way_out="Install the CUDA build from torch's index",
    source=WHEELS,
    explains=(*BROKEN_TORCH, "extension-abi-mismatch"),
    alike=(Alike(causes=("no-nvidia-gpu",), asks=alike.LIST_GPUS, settled_by=("gpus", "driver")),),
    message=Message(
        title="{who} is a CPU build: it cannot use {gpu}",
        detail="The default index has CPU builds only for Windows; conda solves to one where it "
        "sees no driver; an installer may have put it in place of another.",
        text="Replace the CPU build. ",
        way=lambda context, text: _replace_it(context, text),
    ),
)


def torch_cpu_build(context: RuleContext) -> Iterator[Finding]:
    """The machine has an NVIDIA GPU and the installed torch has no CUDA."""
    torch = context.snapshot.torch
    # An installer that took a CUDA build away and put a build without CUDA in its place.
    uninstalled = events(context, "torch-uninstalled") if not torch.cuda_available else ()
    replaced = [e for e in uninstalled if "taken" not in e.values and _is_plain(context, e)]
    said = (*events(context, "torch-not-compiled-with-cuda"), *replaced)
    # No order: where no source tells the GPU, only a text about CUDA makes one likely.
    asked = said or asked_for_cuda(context) or says_nothing_else(context)
    about_it = is_report(context) and asked
    there = has_nvidia(context)
    old = context.catalog.never_serves(context.snapshot.gpus or ())
    if old or context.snapshot.os.jetson or not (there or (there is None and about_it)):
        return
    if said or (torch.backend == "cpu" and not torch.cuda_available):
        who, gpu = named(context), which.names(context)
        of_torch = shown(context, "torch.version", f"{who}, backend {torch.backend or 'cpu'}")
        of_gpu = (shown(context, "gpus", gpu),) if gpus(context) else ()
        seen = (*said, of_torch, *of_gpu)
        yield finding(context, TORCH_CPU_BUILD, seen, who=who, gpu=gpu)


def _replace_it(context: RuleContext, text: str) -> Fix:
    build = context.resolution.build
    if build and build.backend == "cpu":
        return Fix(text="No CUDA build fits this machine: see the other findings")
    return paste.install_torch(context, text)


def named(context: RuleContext) -> str:
    """`torch 2.5.1`, or `torch` alone."""
    return f"torch {context.snapshot.torch.version or ''}".strip()


def _is_plain(context: RuleContext, event: Event) -> bool:
    plain = on(context, "windows") and "+" not in (context.snapshot.torch.version or "+")
    return plain or "cpu" in (context.snapshot.torch.backend, event.values.get("backend"))


def version_evidence(context: RuleContext) -> tuple[Evidence, ...]:
    text = f"{named(context)}, backend {context.snapshot.torch.backend or 'unknown'}"
    return (value_evidence(context, "torch.version", text),)


ROCM_WHEEL_ON_NVIDIA = Cause(
    id="rocm-wheel-on-nvidia",
    place=(Layer.WHEEL, 90),
    title="a ROCm build on an NVIDIA machine",
    means="ROCm is AMD's.",
    proven_by="Label rocm, and an NVIDIA GPU listed",
    not_when="amd-gpu",
    way_out="Install the CUDA build",
    source=WHEELS,
    explains=(*BROKEN_TORCH, *COMPANIONS),
    message=Message(
        title="{who} is a ROCm build: it cannot use {gpus}",
        text="Replace it. ",
        way=paste.install_torch,
    ),
)
XPU_WHEEL_ON_NVIDIA = Cause(
    id="xpu-wheel-on-nvidia",
    place=(Layer.WHEEL, 90),
    title="an XPU build on an NVIDIA machine",
    means="XPU is Intel's.",
    proven_by="Label xpu, and an NVIDIA GPU listed",
    not_when="intel-gpu",
    way_out="Install the CUDA build",
    source=WHEELS,
    explains=(*BROKEN_TORCH, *COMPANIONS),
    message=Message(
        title="{who} is an XPU build: it cannot use {gpus}",
        text="Replace it. ",
        way=paste.install_torch,
    ),
)


def foreign_wheel(context: RuleContext) -> Iterator[Finding]:
    """A build for another maker's GPUs."""
    label = context.snapshot.torch.backend or ""
    cause = {"rocm": ROCM_WHEEL_ON_NVIDIA, "xpu": XPU_WHEEL_ON_NVIDIA}.get(label[:4])
    if cause and gpus(context) and not events(context, "foreign-gpu"):
        said = (shown(context, "torch.version", f"backend {label}"),)
        yield finding(context, cause, said, who=named(context))


RAISE = 'python -c "import sys, torch; print(sys.executable, torch.__version__); torch.cuda.init()"'


TORCH_SEES_NO_GPU = Cause(
    id="torch-sees-no-gpu",
    symptom=True,
    likelier=(
        Likelier(
            cause="wsl-driver",
            shown=lists_none_in_wsl,
            because="it runs in WSL, and no program there is shown to reach Windows' driver",
            text="Update Windows (WSL has a GPU from Windows 11 and Windows 10 21H2, build 19044, "
            "on), the NVIDIA driver in Windows and WSL itself (`wsl.exe --update`), and start WSL "
            "again (`wsl.exe --shutdown`; open programs in it end); install no Linux driver in it. "
            "Where `nvidia-smi` lists the GPU inside WSL, ask torch (the command above)",
        ),
        Likelier(
            cause="no-nvidia-gpu",
            shown=in_a_hosted_notebook,
            because="a hosted notebook has a GPU only where one was chosen for it",
            text="Choose a GPU for the notebook (Colab: Runtime, Change runtime type; Kaggle: "
            "Settings, Accelerator), and start it again",
        ),
        Likelier(
            cause="torch-cpu-build",
            shown=torch_was_not_shown_on_windows,
            because="the driver works, and on Windows `pip install torch` brings the build without "
            "CUDA",
            text="Put a torch with CUDA in its place (`gpusetup install`) where its version ends "
            "in +cpu",
        ),
        Likelier(
            cause="container-no-gpu",
            shown=in_a_container_without,
            because="it runs in a container, and nothing shows that this was given a GPU",
            way=start_with_gpu,
        ),
    ),
    place=(Layer.RUNNING, 180),
    title="torch says that CUDA is not available",
    means="A symptom: usually another finding explains it.",
    proven_by="torch.cuda.is_available() is False",
    way_out="Ask torch for the reason",
    source="torch.cuda.is_available",
    stage="start",
    alike=(
        Alike(
            causes=("torch-cpu-build", "driver-too-old", "driver-not-loaded", "container-no-gpu"),
            asks=alike.ASK_TORCH,
            unless=alike.shows_its_cuda,
        ),
        Alike(
            causes=("cuda-visible-devices-hidden", "container-no-gpu", "driver-not-loaded"),
            asks=alike.LIST_GPUS,
            settled_by=("gpus",),
        ),
    ),
    message=Message(
        title="torch.cuda.is_available() is False",
        text="Ask torch for the reason, and do what its answer says: `None` is a build without "
        "CUDA (`gpusetup install` replaces it); a driver that is too old or not found is updated "
        "or installed; `No CUDA GPUs are available` is a GPU that the container was not given, or "
        "that CUDA_VISIBLE_DEVICES hides",
        look=(RAISE,),
        see="have torch raise it, where it fails",
    ),
)


SEES_ONE_ELSEWHERE = Message(
    title="A program finds no GPU, though torch sees one elsewhere",
    text="Ask in both places which Python and which torch answer; where they are the same, the "
    "program, or what starts it, sets CUDA_VISIBLE_DEVICES: let it name a GPU that is there",
    look=(RAISE,),
    see="have torch raise it, where it fails",
)


def torch_sees_no_gpu(context: RuleContext) -> Iterator[Finding]:
    """torch itself, or a program above it, says that CUDA is not available."""
    torch = context.snapshot.torch
    said = events(context, "cuda-unavailable")
    if torch.cuda_available is None and not torch.version and is_beside_torch(context):
        return
    if torch.cuda_available is False and not said:
        said = (shown(context, "torch.cuda_available", "torch.cuda.is_available(): False"),)
    if not said or has_nvidia(context) is False:
        return
    asked = all(event.values.get("asked") for event in said)
    # No order: that a program chooses its devices is a guess until an exception says it.
    hides = "CUDA_VISIBLE_DEVICES" in context.snapshot.environment or any(
        "error: " in (event.text or "").lower() for event in said
    )
    if torch.cuda_available:
        cause = CUDA_VISIBLE_DEVICES_HIDDEN if hides and not asked else TORCH_SEES_NO_GPU
        yield from_message(context, cause, SEES_ONE_ELSEWHERE, said)
    else:
        yield finding(context, TORCH_SEES_NO_GPU, said)


GPU_CHECK_FAILED = Cause(
    id="gpu-check-failed",
    symptom=True,
    place=(Layer.RUNNING, 190),
    title="torch computes wrongly or not at all on the GPU",
    means="A check of verify failed or crashed.",
    proven_by="`--deep` ran verify",
    way_out="`gpusetup verify -v`",
    source="gpusetup.verify",
    message=Message(
        title="torch fails on this machine's GPU: {name}",
        text="See the checks one by one",
        look=("gpusetup verify -v",),
        see="run them again",
    ),
)


def build_messages(context: RuleContext) -> Iterator[Finding]:
    yield from from_messages(context, (GPU_CHECK_FAILED,))


RULES = (torch_cpu_build, foreign_wheel, torch_sees_no_gpu, build_messages)
