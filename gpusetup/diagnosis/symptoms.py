"""From what a text reports to be seen to what is likely behind it.

A symptom (`Cause.symptom`) is no cause. A row holds where the text makes one cause likelier than
the others; without one the cause is unknown, and the symptom is what the answer speaks of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpusetup.evidence.context import (
    answering,
    cuda_needed,
    driver_answers,
    events,
    gpus,
    in_container,
    on,
)
from gpusetup.findings.container.start import CONTAINER_NO_GPU, start_with_gpu
from gpusetup.findings.programs import is_beside_torch
from gpusetup.findings.record import RECORDS
from gpusetup.model.finding import Finding, Fix
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Torch
from gpusetup.model.versions import parsed

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext

NOT_ON_WINDOWS = ("TensorFlow", "JAX")
WINDOWS_ENDS = "2.11"
"""The first TensorFlow without a GPU build for Windows itself (TensorFlow, installation guide)."""


WITH_KERNELS = (
    *("ExLlama", "AutoGPTQ", "SageAttention", "flash-attn", "flashinfer", "sgl-kernel", "xformers"),
    *("bitsandbytes", "tiny-cuda-nn", "apex", "mmcv", "detectron2", "PyTorch3D", "Nerfstudio"),
)
"""Programs on torch whose own compiled kernels run, and not torch's."""


class Likelier(Frozen):
    """A cause that a text makes likelier behind a symptom."""

    cause: str
    shown: Callable[[RuleContext, Finding], bool]
    because: str
    """What makes it likely; it follows the symptom's own words."""
    text: str = ""
    """What to do, where the symptom's own way out is of another cause."""


def _says(*words: str) -> Callable[[RuleContext, Finding], bool]:
    """Whether the message that shows the symptom has one of these in it."""

    def shown(_: RuleContext, finding: Finding) -> bool:
        said = " ".join(evidence.text for evidence in finding.evidence).lower()
        return any(word in said for word in words)

    return shown


def _lists_no_gpu_in_wsl(context: RuleContext, _: Finding) -> bool:
    """A text from WSL in which no program lists a GPU, and torch may be any."""
    seen = answering(context) or events(context, "smi-sees-it", "gpu-computes")
    wsl = bool(context.snapshot.os.wsl) and context.snapshot.torch.backend != "cpu"
    return wsl and not seen and not in_container(context)


def _torch_was_not_shown(context: RuleContext, _: Finding) -> bool:
    """A driver that answers on Windows, where pip's own torch is the one without CUDA."""
    torch = context.snapshot.torch
    unknown = torch.version is None and torch.cuda is None
    return on(context, "windows") and unknown and driver_answers(context)


def _asked_for_more_than_the_driver_serves(context: RuleContext, _: Finding) -> bool:
    """The text installs a torch of a later CUDA than the driver names; up to 10 minors count."""
    wanted, serves = context.snapshot.wanted, context.snapshot.driver.cuda
    if context.snapshot.torch.version or not serves:
        return False
    asked = wanted.cuda if wanted.backend is None else cuda_needed(Torch(backend=wanted.backend))
    if not asked:
        return False
    least = parsed(asked) if parsed(asked).major < 11 else parsed(f"{parsed(asked).major}.0")
    return parsed(serves) < least


BEYOND_THE_DRIVER = Likelier(
    cause="driver-too-old",
    shown=_asked_for_more_than_the_driver_serves,
    because="the torch that the text installs is of a later CUDA than this driver serves",
    text="Update the driver, or install a torch for the CUDA that nvidia-smi names "
    "(`gpusetup install`)",
)


def _is_a_containers(context: RuleContext, _: Finding) -> bool:
    listed = any(gpu.nvml_index is not None or gpu.uuid for gpu in gpus(context))
    given = context.snapshot.container.nvidia_requested or listed or driver_answers(context)
    return in_container(context) and not given


def _was_started_without(context: RuleContext, symptom: Finding) -> bool:
    """A start that is shown, and gives no GPU: apptainer gives one by `--nv` alone."""
    container = context.snapshot.container
    asked_for_none = container.nvidia_requested is False or container.kind == "singularity"
    return asked_for_none and _is_a_containers(context, symptom)


def _has_no_build_for_windows(context: RuleContext, _: Finding) -> bool:
    if context.snapshot.failing.program not in NOT_ON_WINDOWS or not on(context, "windows"):
        return False
    installed = [p for p in context.snapshot.packages or () if p.name.lower() == "tensorflow"]
    return not any(p.version and parsed(p.version) < parsed(WINDOWS_ENDS) for p in installed)


def _is_set(context: RuleContext, _: Finding) -> bool:
    return "CUDA_VISIBLE_DEVICES" in context.snapshot.environment


LIKELIER: dict[str, tuple[Likelier, ...]] = {
    "no-kernel-image": (
        Likelier(
            cause="jetson-wrong-wheel",
            shown=lambda context, _: bool(context.snapshot.os.jetson),
            because="a server's wheel has no kernel for a Jetson's GPU",
            text="Put the torch of this JetPack in its place (`gpusetup install`)",
        ),
        Likelier(
            cause="extension-arch-mismatch",
            shown=lambda context, _: is_beside_torch(context),
            because="a program's own build has kernels for some GPUs only",
        ),
        Likelier(
            cause="extension-arch-mismatch",
            shown=lambda context, _: context.snapshot.failing.program in WITH_KERNELS,
            because="it was raised in a module that brings kernels of its own, for some GPUs only",
        ),
    ),
    "torch-sees-no-gpu": (
        BEYOND_THE_DRIVER,
        Likelier(
            cause="wsl-driver",
            shown=_lists_no_gpu_in_wsl,
            because="it runs in WSL, and no program there is shown to reach Windows' driver",
            text="Update Windows (WSL has a GPU from Windows 11 and Windows 10 21H2, build 19044, "
            "on), the NVIDIA driver in Windows and WSL itself (`wsl.exe --update`), and start WSL "
            "again (`wsl.exe --shutdown`; open programs in it end); install no Linux driver in it. "
            "Where `nvidia-smi` lists the GPU inside WSL, ask torch (the command above)",
        ),
        Likelier(
            cause="no-nvidia-gpu",
            shown=lambda context, _: bool(events(context, "hosted-notebook")),
            because="a hosted notebook has a GPU only where one was chosen for it",
            text="Choose a GPU for the notebook (Colab: Runtime, Change runtime type; Kaggle: "
            "Settings, Accelerator), and start it again",
        ),
        Likelier(
            cause="torch-cpu-build",
            shown=_torch_was_not_shown,
            because="the driver works, and on Windows `pip install torch` brings the build without "
            "CUDA",
            text="Put a torch with CUDA in its place (`gpusetup install`) where its version ends "
            "in +cpu",
        ),
        Likelier(
            cause="container-no-gpu",
            shown=_is_a_containers,
            because="it runs in a container, and nothing shows that this was given a GPU",
        ),
    ),
    "cuda-sees-no-device": (
        Likelier(
            cause="libcuda-stub",
            shown=lambda context, _: bool(events(context, "libcuda-stub")),
            because="a folder `stubs` of the toolkit is on LD_LIBRARY_PATH, and its libcuda "
            "has no driver behind it",
            text="Take the stubs folder out of LD_LIBRARY_PATH",
        ),
        Likelier(
            cause="cuda-visible-devices-hidden",
            shown=_is_set,
            because="CUDA_VISIBLE_DEVICES is set, and may name none of the GPUs",
        ),
        Likelier(
            cause="container-no-gpu",
            shown=_is_a_containers,
            because="it runs in a container, and nothing shows that this was given a GPU",
        ),
    ),
    "program-sees-no-gpu": (
        Likelier(
            cause="no-wheel-for-platform",
            shown=_has_no_build_for_windows,
            because="JAX, and TensorFlow from 2.11 on, have no GPU build for Windows itself",
            text="Install it in WSL 2 (`pip install 'tensorflow[and-cuda]'`, `pip install "
            "'jax[cuda13]'`); TensorFlow 2.10 with Python 3.10 or older is the last for Windows",
        ),
        Likelier(
            cause="container-no-gpu",
            shown=_was_started_without,
            because="it runs in a container that was started without a GPU",
        ),
    ),
    "cuda-init-failed": (BEYOND_THE_DRIVER,),
    "container-hook-failed": (
        Likelier(
            cause="driver-not-loaded",
            shown=_says("driver rpc er", "driver not lo", "driver error", "nvidia driver"),
            because="the toolkit asked the host's driver, and that did not answer",
        ),
        Likelier(
            cause="driver-missing",
            shown=_says("libnvidia-ml.so", "libcuda.so", "/proc/driver/nvidia"),
            because="the toolkit does not find the driver's files on the host",
        ),
        Likelier(
            cause="device-permission",
            shown=_says("insufficient permissions", "no-cgroups", "/dev/nvidiactl: permission"),
            because="the toolkit may not open the GPU's device files",
            text="Give the user who starts the container the group of /dev/nvidia* (`ls -l "
            "/dev/nvidia*`); a rootless engine needs `no-cgroups = true` in "
            "/etc/nvidia-container-runtime/config.toml, or CDI",
        ),
        Likelier(
            cause="device-permission",
            shown=_says("operation not permitted", "devices.allow", "devices.deny"),
            because="the engine may not say which devices the container sees: it runs without "
            "root, or in a container itself",
        ),
        Likelier(
            cause="cuda-unknown-error",
            shown=_says("cuda error: unknown error"),
            because="the host's own driver fails at its first call, for instance without "
            "/dev/nvidia-uvm or after a suspend",
            text="Load CUDA's module anew on the host (`sudo modprobe nvidia_uvm`, and once "
            "`sudo nvidia-smi`), or reboot it; then start the container again",
        ),
        Likelier(
            cause="gpu-init-failed",
            shown=_says("no such device", "no devices were found"),
            because="the host's driver is loaded and finds no GPU that it can start",
            text="Make `nvidia-smi -L` list the GPU on the host first; `sudo dmesg | grep NVRM` "
            "says why it does not",
        ),
        Likelier(
            cause="invalid-device-ordinal",
            shown=_says("unknown device"),
            because="the container asks for a GPU that the host does not have",
            text="Name only GPUs that `nvidia-smi -L` lists on the host (`--gpus all`)",
        ),
        Likelier(
            cause="container-toolkit-missing",
            shown=_says("error", "hook directly", "terminate"),
            because="its configuration, its version or its rights do not suit this engine",
        ),
    ),
}
"""A symptom -> the causes that a text may make likelier, the more telling first."""


def cause_behind(context: RuleContext, symptom: Finding) -> Finding | None:
    """The likely cause of what a text shows, with the symptom's evidence; None where none is."""
    rows = LIKELIER.get(symptom.id, ())
    row = next((one for one in rows if one.shown(context, symptom)), None)
    if row is None:
        return None
    looks = symptom.fix.looks if symptom.fix else ()
    fix = Fix(text=row.text, looks=looks) if row.text else symptom.fix
    if row.cause == CONTAINER_NO_GPU.id:
        fix = replace(start_with_gpu(context), looks=looks)
    return RECORDS[row.cause].found(
        f"{symptom.title}: {row.because}",
        detail=symptom.detail,
        evidence=symptom.evidence,
        fix=fix,
    )
