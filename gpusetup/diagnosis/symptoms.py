"""From what a text reports to be seen to what is likely behind it.

A symptom (`Cause.symptom`) is no cause. A row holds where the text makes one cause likelier than
the others; without one the cause is unknown, and the symptom is what the answer speaks of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpusetup.evidence.context import (
    answering,
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

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext


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


def _is_a_containers(context: RuleContext, _: Finding) -> bool:
    listed = any(gpu.nvml_index is not None or gpu.uuid for gpu in gpus(context))
    given = context.snapshot.container.nvidia_requested or listed or driver_answers(context)
    return in_container(context) and not given


def _was_started_without(context: RuleContext, symptom: Finding) -> bool:
    """A start that is shown, and gives no GPU: apptainer gives one by `--nv` alone."""
    container = context.snapshot.container
    asked_for_none = container.nvidia_requested is False or container.kind == "singularity"
    return asked_for_none and _is_a_containers(context, symptom)


LIKELIER: dict[str, tuple[Likelier, ...]] = {
    "no-kernel-image": (
        Likelier(
            cause="extension-arch-mismatch",
            shown=lambda context, _: is_beside_torch(context),
            because="a program's own build has kernels for some GPUs only",
        ),
    ),
    "torch-sees-no-gpu": (
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
    "program-sees-no-gpu": (
        Likelier(
            cause="container-no-gpu",
            shown=_was_started_without,
            because="it runs in a container that was started without a GPU",
        ),
    ),
    "container-hook-failed": (
        Likelier(
            cause="driver-not-loaded",
            shown=_says("driver rpc er", "driver not lo", "driver error", "nvidia driver"),
            because="the toolkit asked the host's driver, and that did not answer",
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
