"""The build of torch: without CUDA, for another maker, or without a GPU that it sees."""

from __future__ import annotations

from gpusetup.causes import alike
from gpusetup.causes.containers import start_with_gpu
from gpusetup.causes.record import Cause, Likelier
from gpusetup.causes.sources import WHEELS
from gpusetup.evidence.context import RuleContext
from gpusetup.evidence.places import (
    in_a_container_without,
    in_a_hosted_notebook,
    lists_none_in_wsl,
    torch_was_not_shown_on_windows,
)
from gpusetup.fixes import paste
from gpusetup.messages.row import any_of
from gpusetup.model.finding import Fix


def _replace_it(context: RuleContext, text: str) -> Fix:
    build = context.resolution.build
    if build and build.backend == "cpu":
        return Fix(text="No CUDA build works on this machine: see the other findings")
    return paste.install_torch(context, text)


RAISE = 'python -c "import sys, torch; print(sys.executable, torch.__version__); torch.cuda.init()"'

CAUSES = (
    Cause(
        "torch-cpu-build",
        title="{who} is a CPU build: it cannot use {gpu}",
        plain="A CPU build on a machine with an NVIDIA GPU",
        means="The default index has CPU builds only for Windows; conda picks one if it sees "
        "no driver; another package's install may have replaced the CUDA build.",
        text="Replace the CPU build. ",
        proven_by="torch/version.py has no CUDA, and there is an NVIDIA GPU",
        not_when="cuda-visible-devices-hidden, driver-missing: then that comes first",
        source=WHEELS,
        explains=("extension-abi-mismatch",),
        by_check=True,
        way=_replace_it,
        alike={alike.LIST_GPUS: ("no-nvidia-gpu",)},
    ),
    Cause(
        "rocm-wheel-on-nvidia",
        title="{who} is a ROCm build: it cannot use {gpus}",
        plain="A ROCm build on an NVIDIA machine",
        means="ROCm is for AMD's GPUs.",
        text="Replace it. ",
        proven_by="torch's label is rocm, and an NVIDIA GPU is listed",
        not_when="amd-gpu: there is no NVIDIA GPU",
        source=WHEELS,
        by_check=True,
        way=paste.install_torch,
    ),
    Cause(
        "xpu-wheel-on-nvidia",
        title="{who} is an XPU build: it cannot use {gpus}",
        plain="An XPU build on an NVIDIA machine",
        means="XPU is for Intel's GPUs.",
        text="Replace it. ",
        proven_by="torch's label is xpu, and an NVIDIA GPU is listed",
        not_when="intel-gpu: there is no NVIDIA GPU",
        source=WHEELS,
        by_check=True,
        way=paste.install_torch,
    ),
    Cause(
        "torch-sees-no-gpu",
        title="torch.cuda.is_available() is False",
        means="This is a symptom: usually another finding explains it.",
        text="Ask torch for the reason and follow its answer: `None` is a build without CUDA "
        "(`gpusetup install` replaces it); a driver that is too old or not found is updated or "
        "installed; `No CUDA GPUs are available` means that the container has no GPU, or that "
        "CUDA_VISIBLE_DEVICES hides it",
        proven_by="torch.cuda.is_available() answers False",
        symptom=True,
        stage="start",
        by_check=True,
        look=(RAISE,),
        see="make torch print the reason",
        likelier=(
            Likelier(
                cause="wsl-driver",
                shown=lists_none_in_wsl,
                because="it runs in WSL, and no program there is shown to reach Windows' driver",
                text="Update Windows (WSL has a GPU from Windows 11 and Windows 10 21H2, build 19044, "
                "on), the NVIDIA driver in Windows and WSL itself (`wsl.exe --update`), and start WSL "
                "again (`wsl.exe --shutdown`; open programs in it end); install no Linux driver in it. "
                "If `nvidia-smi` lists the GPU inside WSL, ask torch (the command above)",
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
                text="If its version ends in +cpu, replace it with a CUDA build (`gpusetup install`)",
            ),
            Likelier(
                cause="container-no-gpu",
                shown=in_a_container_without,
                because="it runs in a container, and nothing shows that this was given a GPU",
                way=start_with_gpu,
            ),
        ),
        alike={
            alike.ASK_TORCH: (
                "torch-cpu-build",
                "driver-too-old",
                "driver-not-loaded",
                "container-no-gpu",
            ),
            alike.LIST_GPUS: (
                "cuda-visible-devices-hidden",
                "container-no-gpu",
                "driver-not-loaded",
            ),
        },
    ),
    Cause(
        "gpu-check-failed",
        title="torch fails on this machine's GPU: {name}",
        plain="torch computes wrongly or not at all on the GPU",
        means="A check of verify failed or crashed.",
        text="See the checks one by one",
        proven_by="`--deep` ran verify",
        symptom=True,
        look=("gpusetup verify -v",),
        see="run them again",
    ),
    Cause(
        "smi-banner-misread",
        title="{program} misreads the banner of the newer nvidia-smi: the driver is healthy",
        plain="A tool misreads the banner of the newer nvidia-smi: the driver is healthy",
        means="From driver 610 on nvidia-smi prints `CUDA UMD Version`; tools that search for "
        "`CUDA Version` find none and choose the CPU build or their oldest one.",
        text="Name the build yourself, or update the tool",
        proven_by="The tool says that it found no CUDA version, and nvidia-smi prints such a banner",
        not_when="driver-missing, driver-too-old: the driver itself is the reason",
        source="nvidia-smi of driver 610",
        commands=("gpusetup install",),
        says=any_of(
            {
                "cuda umd version": r"(?:parse|unexpected|unrecognized|unknown|no match).{0,60}CUDA UMD Version",
                "nvidia-smi": r"(?=[cfu])(?:could not|cannot|can't|failed to|unable to) (?:\w+ ){0,3}(?:parse|determine|detect|find|read|extract|get) .{0,30}CUDA version.{0,60}nvidia-smi",
                "parse": r"(?:could not|cannot|failed to|unable to) parse .{0,20}nvidia-smi",
            },
        ),
        examples=(
            "ValueError: could not parse 'CUDA UMD Version: 13.1'",
            "installer: could not determine the CUDA version from nvidia-smi, using CPU",
            "failed to parse the output of nvidia-smi",
        ),
        not_examples=("CUDA UMD Version: 13.1",),
    ),
)
