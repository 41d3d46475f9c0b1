"""Causes in torch itself: it is missing, broken, installed twice, or installed in another
environment."""

from __future__ import annotations

import re

from gpusetup.causes import alike
from gpusetup.causes.record import Cause, CheckCommand, Message
from gpusetup.causes.windows import VISUAL_CPP_RUNTIME
from gpusetup.evidence import proofs
from gpusetup.evidence.context import RuleContext, events, is_report, packages
from gpusetup.fixes import makers, paste
from gpusetup.fixes.jetson import jetson_fix
from gpusetup.messages.fragments import TORCH_SYMBOL
from gpusetup.messages.row import says
from gpusetup.model.finding import Fix, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.shell import Line, Lines

CONDA = ("conda", "mamba", "micromamba", "pixi")


def _fails_by_a_dll(context: RuleContext) -> bool:
    """Whether Windows reports that a DLL or one of its functions is missing (error 126 or 127) or
    that a DLL did not start (1114)."""
    message = context.torch.import_error or ""
    return bool(re.search(r"WinError (?:126|127|1114)\b|DLL load failed", message))


def _recover(context: RuleContext) -> Lines:
    """The command that completes an interrupted installation, in the target environment or in a
    half-created one."""
    for event in events(context, "install-unfinished"):
        if "half_made" in event.values:
            prefix = event.values["prefix"]
            return (paste.command(context, "gpusetup", "install", "--venv", prefix),)
    return (paste.command(context, "gpusetup", "install", "--python", paste.python(context)),)


def _install(context: RuleContext, _text: str) -> Fix:
    """Install torch: the build for the board, for another maker's GPU, or the one that
    gpusetup chooses."""
    if context.os.jetson:
        return jetson_fix(context)
    return makers.first_install(context) or paste.install_torch(context)


def _reinstall(context: RuleContext, _text: str) -> Fix:
    """Remove every torch, then install it once.

    Without the removal, an installer would mistake leftover files for an installed torch, and files
    from conda would hide files from pip.
    """
    remove_commands: list[Line] = []
    conda_version, _ = conda_and_pip(context)
    if conda_version:
        remove_commands.append(_remove_with_conda(context))
    removed_by_pip = ["torch"]
    # If conda and pip both installed torch, they may both have installed its companions too.
    if conda_version or events(context, "mixed-conda-pip"):
        removed_by_pip += COMPANIONS
    remove_with_pip = paste.pip(context, "uninstall", "-y", *removed_by_pip)
    # pip does not uninstall packages that conda installed.
    pip_versions = {
        package.version for package in packages(context, "torch") if package.installer not in CONDA
    }
    # pip removes one copy at a time. Run it once even if no copy is listed, because files may be
    # left over.
    remove_commands += [remove_with_pip] * max(1, len(pip_versions))

    install_torch = paste.install_torch(context)
    install_commands = install_torch.commands
    if paste.chosen_build(context):
        install_commands = paste.install_commands(context, torch_removed=True)
    return replace(
        install_torch,
        text=f"Remove every installed torch. {install_torch.text}",
        commands=(*remove_commands, *install_commands),
        alternatives=paste.by_hand(context, *remove_commands),
    )


COMPANIONS = ("torchvision", "torchaudio")


def _remove_with_conda(context: RuleContext) -> Line:
    """The command that removes conda's torch, with those of its companions that conda installed."""
    machine = context.snapshot
    names = ["pytorch"]
    packages_of_conda = {
        package.name for package in machine.packages or () if package.installer in CONDA
    }
    names += sorted(packages_of_conda.intersection(COMPANIONS))
    prefix = machine.conda.prefix or machine.python.prefix
    environment = ("--prefix", prefix) if prefix else ()
    # With --force, conda does not remove the packages that depend on torch.
    return paste.command(context, "conda", "remove", "--yes", *environment, "--force", *names)


def conda_and_pip(context: RuleContext) -> tuple[str | None, str | None]:
    """The versions of torch that conda and that pip or uv installed; None if there is none."""
    by_conda, by_pip = None, None
    for package in (*packages(context, "pytorch"), *packages(context, "torch")):
        if package.installer in CONDA:
            by_conda = by_conda or package.version
        elif package.name == "torch":
            by_pip = by_pip or package.version
    return by_conda, by_pip


HALVES_DO_NOT_FIT = ("torchvision-mismatch", "torchaudio-mismatch", "extension-abi-mismatch")
"""Findings that appear if a package in the environment is used with a torch from outside the
environment."""

AN_ENVIRONMENT = r"[/\\](?:envs[/\\][\w.-]{1,40}|\.?venv[\w.-]{0,20})[/\\](?:lib[/\\]python\d\.\d{1,2}[/\\]|Lib[/\\])?site-packages[/\\](?!torch[/\\])\w"

USERS_OWN = r"[/\\](?:\.local[/\\]lib[/\\]python\d\.\d{1,2}|Roaming[/\\]Python[/\\]Python\d{2,3})[/\\]site-packages[/\\]torch[/\\]"


RAISE = 'python -c "import sys, torch; print(sys.executable, torch.__version__); torch.cuda.init()"'


CAUSES = (
    Cause(
        "install-unfinished",
        title="An installation into {prefix} was interrupted",
        means="An installation with gpusetup was interrupted, so the environment is incomplete.",
        text="Run `gpusetup install`. The command first restores the previous environment or "
        "completes the new one",
        commands=_recover,
    ),
    Cause(
        "torch-missing",
        certain_if=proofs.no_torch_is_listed,
        means="The Python that runs the program has no torch. Often the reason is that torch was "
        "installed into another environment.",
        check=CheckCommand('python -c "import sys, torch; print(sys.executable)"', "ModuleNotFoundError: No module named 'torch'"),
        title="torch is not installed in {python}",
        text="Install torch",
        # Source: the wheels and indexes of torch, read for the catalog.
        way=_install,
        cases=(
            Message(
                where=(lambda c: is_report(c) and bool(c.snapshot.torch.version),),
                title="The Python that runs the program has no torch, but another one has torch "
                "{torch}",
                text="Start the program with the Python that has torch: write that Python's full "
                "path before the script. (If you call a script only by its name, Windows starts "
                "it with the system's Python.) `python -c 'import sys; print(sys.executable)'` "
                "shows which one runs",
            ),
        ),
        says=(
            r"No module named ['\"]?torch['\"]?(?![\w.])",
            r"Package 'torch' is not installed",
            says(r"Package\(s\) not found: torch\b", example="WARNING: Package(s) not found: torch"),
        ),
        not_examples=("[INFO] Found comfy_kitchen backend triton: {'available': False, 'disabled': True, 'unavailable_reason': \"ImportError: No module named 'triton'\", 'capabilities': []}",),
    ),
    Cause(
        "torch-half-installed",
        title="torch is only partly installed",
        means="torch's installation was interrupted, or another installation overwrote part of it.",
        text="Reinstall it",
        way=_reinstall,
        says=(
            r"(?:site|dist)-packages[/\\]torch[/\\]__init__\.py.{0,400}?name '_C' is not defined",
            says(r"(?:site|dist)-packages[/\\]torch[/\\]__init__\.py['\"].{0,160}?No module named ['\"]?torch\.(?:_C|version|torch_version)\b", example="File \"/x/site-packages/torch/__init__.py\", line 29, in <module>\nModuleNotFoundError: No module named 'torch.torch_version'"),
        ),
    ),
    Cause(
        "two-torch-installs",
        title="torch is installed {times} times: {versions}",
        plain="torch is installed more than once",
        means="The files of the two packages are mixed, or Python uses the package that comes "
        "first on its path.",
        text="Remove all of them, then install torch once",
        explains=("torch-half-installed", "mixed-conda-pip"),
        before_torch=(Severity.ERROR,),
        way=_reinstall,
    ),
    Cause(
        "mixed-conda-pip",
        title="conda's and pip's torch files are mixed",
        means="Neither installer knows about the other's files, so Python may load files from "
        "both.",
        text="Remove both, then install torch once",
        # Source: conda documentation, using pip.
        explains=("torch-cpu-build",),
        before_torch=(Severity.ERROR,),
        way=_reinstall,
        alike={"conda list torch": ("ld-library-path-conflict", "torch-half-installed")},
        says=(says(rf"(?P<library>lib(?:torch_python|torch_cuda\w*|torch_cpu|torch|c10_cuda|c10|shm)\.so): undefined symbol: (?P<symbol>{TORCH_SYMBOL})", example="ImportError: /opt/conda/lib/python3.10/site-packages/torch/lib/libtorch_python.so: undefined symbol: _ZNK5torch8autograd4Node4nameEv"),),
    ),
    Cause(
        "torch-import-failed",
        title="torch cannot be imported",
        means="doctor tried to import torch, but the import failed.",
        text="Reinstall torch. ",
        symptom=True,
        way=paste.install_torch,
        cases=(
            Message(
                where=(_fails_by_a_dll,),
                means="A DLL that torch needs is missing, usually one from the Visual C++ runtime.",
                text="Install the current Visual C++ runtime (x64), then reinstall torch",
                windows=(VISUAL_CPP_RUNTIME,),
                then=("gpusetup install",),
                needs_root=True,
            ),
        ),
    ),
    Cause(
        "torch-outside-environment",
        title="Python imports a torch from outside the environment: {place}",
        means="Python searches PYTHONPATH before the environment's packages.",
        text="Remove that folder from PYTHONPATH. Then check whether the environment has torch",
        # Source: Python documentation, site.
        explains=(
            "torch-half-installed", "two-torch-installs", "torch-cpu-build", "rocm-wheel-on-nvidia",
            "arch-too-new-for-wheel", "arch-too-old-for-wheel",
            "driver-too-old",
        ),
        before_torch=(Severity.ERROR, Severity.WARNING),
        where=(lambda context: bool(events(context, *HALVES_DO_NOT_FIT)),),
        commands=("export PYTHONNOUSERSITE=1",),
        says=(says(rf"{AN_ENVIRONMENT}.{{0,700}}?{USERS_OWN}|{USERS_OWN}.{{0,700}}?{AN_ENVIRONMENT}", example="/home/user/miniconda3/envs/llm/lib/python3.10/site-packages/transformers/a.py line 2\n/home/user/.local/lib/python3.10/site-packages/torch/nn/b.py"),),
    ),
    Cause(
        "torch-sees-no-gpu",
        check=CheckCommand('python -c "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())"', "2.9.1+cu128 12.8 False"),
        title="torch.cuda.is_available() is False",
        means="PyTorch asked CUDA for a GPU and got none. Usually another finding is the cause, "
        "for example a CPU build, an old driver, or a container without a GPU.",
        text="What to do depends on the reason. If the build has no CUDA "
        "(`torch.version.cuda` is `None`), run `gpusetup install`. If the driver is missing or too "
        "old, install or update it. If torch says `No CUDA GPUs are available`, either "
        "CUDA_VISIBLE_DEVICES hides the GPU or, in a container, the container was given none",
        symptom=True,
        look=(RAISE,),
        cases=(
            Message(
                having={"bare": ""},
                title="If `{bare}` is what {question} printed, torch sees no GPU here",
                means="The text contains only this one word. Without a text, `gpusetup doctor` "
                "reads your machine itself.",
                look=(RAISE,),
            ),
            Message(
                where=(lambda context: bool(context.torch.cuda_available),),
                title="A program finds no GPU, although torch sees one in another place",
                text="Check which Python and which torch run in both places. If they are the "
                "same, the program or its launcher sets CUDA_VISIBLE_DEVICES: correct that value",
                look=(RAISE,),
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
        means="The GPU computed a wrong result, or an operation of torch failed on it.",
        text="Run `gpusetup verify` and read the result of each check",
        symptom=True,
        look=("gpusetup verify -v",),
    ),
    Cause(
        "smi-banner-misread",
        title="{program} misreads the output of a newer nvidia-smi; the driver is fine",
        means="Since driver 610, nvidia-smi prints `CUDA UMD Version`. Tools that search for "
        "`CUDA Version` find nothing, so they choose the CPU build or their oldest CUDA build.",
        text="Set the build that you want in the tool's options, or update the tool",
        # Source: nvidia-smi of driver 610.
        commands=("gpusetup install",),
        says=(
            says(r"(?:parse|unexpected|unrecognized|unknown|no match).{0,60}CUDA UMD Version", example="ValueError: could not parse 'CUDA UMD Version: 13.1'"),
            r"(?=[cfu])(?:could not|cannot|can't|failed to|unable to) (?:\w+ ){0,3}(?:parse|determine|detect|find|read|extract|get) .{0,30}CUDA version.{0,60}nvidia-smi",
            says(r"(?:could not|cannot|failed to|unable to) parse .{0,20}nvidia-smi", example="failed to parse the output of nvidia-smi"),
        ),
        not_examples=("CUDA UMD Version: 13.1",),
    ),
    Cause(
        "torch-lacks-device",
        certain_if=proofs.message_states_it,
        title='The installed torch is too old for the device "{device}"',
        plain="The installed torch is too old for the device mps or xpu",
        means="torch has the device mps since 1.12, and the module torch.mps since 2.1. Ordinary "
        "builds have the module torch.xpu since 2.3. A package may look for it on every machine, "
        "whatever GPU the machine has.",
        text="Install a newer torch of the same kind, or an older release of the package in the "
        "traceback. You do not need a build for another GPU",
        # Source: torch's release notes of 1.12 and 2.0; huggingface/transformers issue 31563 (2.3).
        explains=("apple-silicon", "intel-gpu", "no-nvidia-gpu", "program-failed"),
        says=(
            says(r"Expected one of cpu, cuda[\w, ]{0,200} device type at start of device string: (?P<device>mps|xpu)\b", example="RuntimeError: Expected one of cpu, cuda, xpu, mkldnn, opengl, hip, vulkan, meta, hpu " "device type at start of device string: mps"),
            says(r"module ['\"]torch(?:\.backends)?['\"] has no attribute ['\"](?P<device>mps|xpu)['\"]", example="AttributeError: module 'torch' has no attribute 'xpu'"),
        ),
    ),
)  # fmt: skip
