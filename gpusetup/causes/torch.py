"""torch itself: missing, broken, twice, or elsewhere."""

from __future__ import annotations

from gpusetup.causes import alike
from gpusetup.causes.containers import start_with_gpu
from gpusetup.causes.record import Cause, Likelier, Message
from gpusetup.evidence.context import RuleContext, events, is_report, packages
from gpusetup.evidence.places import (
    in_a_container_without,
    in_a_hosted_notebook,
    lists_none_in_wsl,
    torch_shows_no_cuda_on_windows,
)
from gpusetup.fixes import paste
from gpusetup.fixes.jetson import jetson_fix
from gpusetup.messages.fragments import TORCH_SYMBOL
from gpusetup.model.finding import Fix, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.shell import Lines

CONDA = ("conda", "mamba", "micromamba", "pixi")


def _recover(context: RuleContext) -> Lines:
    return (paste.command(context, "gpusetup", "install", "--python", paste.python(context)),)


def _install(context: RuleContext, _: str) -> Fix:
    return jetson_fix(context) if context.os.jetson else paste.install_torch(context)


def _anew(context: RuleContext, _: str) -> Fix:
    """One torch, after all that is there is taken away: an installer would take what is left for
    an installed torch, and what conda or pip leaves hides the other's."""
    way, build, conda = (
        paste.install_torch(context),
        paste.chosen(context),
        conda_and_pip(context)[0],
    )
    machine, beside = context.snapshot, ("torchvision", "torchaudio")
    prefix = machine.conda.prefix or machine.python.prefix
    where = ("--prefix", prefix) if prefix else ()
    theirs = {p.name for p in machine.packages or () if p.installer in CONDA}
    named = ("pytorch", *sorted(theirs & {*beside}))
    by_conda = paste.command(context, "conda", "remove", "--yes", *where, "--force", *named)
    both = conda or events(context, "mixed-conda-pip")
    by_pip = paste.pip(context, "uninstall", "-y", "torch", *(beside if both else ()))
    times = max(1, len({p.version for p in packages(context, "torch")}))
    remove: Lines = (*((by_conda,) if conda else ()), *((by_pip,) * times))
    install = paste.install_commands(context, removed=True) if build else way.commands
    return replace(
        way,
        text=f"Remove every torch that is there. {way.text}",
        commands=(*remove, *install),
        alternatives=paste.by_hand(context, *remove),
    )


def conda_and_pip(context: RuleContext) -> tuple[str | None, str | None]:
    """The version that conda installed, and the one of pip or uv."""
    found = (*packages(context, "pytorch"), *packages(context, "torch"))
    conda = (p.version for p in found if p.installer in CONDA)
    pip = (p.version for p in found if p.installer not in CONDA and p.name == "torch")
    return next(conda, None), next(pip, None)


HALVES_DO_NOT_FIT = ("torchvision-mismatch", "torchaudio-mismatch", "extension-abi-mismatch")
"""What fails where a package of the environment meets a torch from elsewhere."""

AN_ENVIRONMENT = r"[/\\](?:envs[/\\][\w.-]{1,40}|\.?venv[\w.-]{0,20})[/\\](?:lib[/\\]python\d\.\d{1,2}[/\\]|Lib[/\\])?site-packages[/\\](?!torch[/\\])\w"

USERS_OWN = r"[/\\](?:\.local[/\\]lib[/\\]python\d\.\d{1,2}|Roaming[/\\]Python[/\\]Python\d{2,3})[/\\]site-packages[/\\]torch[/\\]"


def _replace_it(context: RuleContext, text: str) -> Fix:
    build = context.resolution.build
    if build and build.backend == "cpu":
        return Fix(text="No CUDA build works on this machine: see the other findings")
    return paste.install_torch(context, text)


RAISE = 'python -c "import sys, torch; print(sys.executable, torch.__version__); torch.cuda.init()"'


CAUSES = (
    Cause(
        "install-unfinished",
        title="An installation into {prefix} was interrupted",
        plain="An installation into this environment was interrupted",
        means="After a kill or a power cut the environment is between two states.",
        text="`gpusetup install` finishes it first: the environment becomes exactly the previous "
        "or exactly the new one",
        proven_by="The journal of the installation is still there",
        commands=_recover,
    ),
    Cause(
        "torch-missing",
        title="torch is not installed in {python}",
        plain="torch is not installed",
        text="Install it",
        proven_by="The Python's folders hold no torch",
        not_when="Another interpreter has it: name that one with `--python`",
        # Source: the wheels and indexes of torch, read for the catalog.
        stage="import",
        by_check=True,
        way=_install,
        cases=(
            Message(
                where=(lambda c: is_report(c) and bool(c.snapshot.torch.version),),
                title="The Python that runs this has no torch; another one has torch {torch}",
                text="Start the program with the Python that has torch: write that Python's full "
                "path before the script (Windows starts a script that is called by its name with "
                "the system's Python). `python -c 'import sys; print(sys.executable)'` says which "
                "one runs",
            ),
        ),
        says=(
            r"No module named ['\"]?torch['\"]?(?![\w.])",
            r"Package 'torch' is not installed",
            r"Package\(s\) not found: torch\b",
        ),
        examples=("WARNING: Package(s) not found: torch",),
        not_examples=(
            "[INFO] Found comfy_kitchen backend triton: {'available': False, 'disabled': True, 'unavailable_reason': \"ImportError: No module named 'triton'\", 'capabilities': []}",
        ),
    ),
    Cause(
        "torch-half-installed",
        title="torch is only partly installed",
        means="An install was interrupted, or another one overwrote it.",
        text="Reinstall it",
        proven_by="Libraries that torch's RECORD lists are missing",
        stage="import",
        way=_anew,
        says=(
            r"(?:site|dist)-packages[/\\]torch[/\\]__init__\.py.{0,400}?name '_C' is not defined",
            r"(?:site|dist)-packages[/\\]torch[/\\]__init__\.py['\"].{0,160}?No module named ['\"]?torch\.(?:_C|version|torch_version)\b",
        ),
        examples=(
            "File \"/x/site-packages/torch/__init__.py\", line 29, in <module>\nModuleNotFoundError: No module named 'torch.torch_version'",
        ),
    ),
    Cause(
        "two-torch-installs",
        title="torch is installed {times} times: {versions}",
        plain="torch is installed more than once",
        means="The files of both are mixed, or Python uses the first on its path.",
        text="Remove all of them, then install one",
        proven_by="Two distributions are named torch and have different versions",
        not_when="mixed-conda-pip: conda installed one of them",
        explains=(
            "torch-half-installed",
            "mixed-conda-pip",
        ),
        before_torch=(Severity.ERROR,),
        way=_anew,
    ),
    Cause(
        "mixed-conda-pip",
        title="conda's and pip's torch files are mixed",
        means="Neither installer knows the other's files, and chance decides which ones Python loads.",
        text="Remove both, then install one",
        proven_by="conda's pytorch and pip's torch have different versions",
        # Source: conda documentation, using pip.
        explains=("torch-cpu-build",),
        before_torch=(Severity.ERROR,),
        way=_anew,
        alike={
            "conda list torch": (
                "ld-library-path-conflict",
                "torch-half-installed",
            )
        },
        says=(
            rf"(?P<library>lib(?:torch_python|torch_cuda\w*|torch_cpu|torch|c10_cuda|c10|shm)\.so): undefined symbol: (?P<symbol>{TORCH_SYMBOL})",
        ),
        examples=(
            "ImportError: /opt/conda/lib/python3.10/site-packages/torch/lib/libtorch_python.so: undefined symbol: _ZNK5torch8autograd4Node4nameEv",
        ),
    ),
    Cause(
        "torch-import-failed",
        title="torch does not import",
        means="doctor tried to import it.",
        text="Reinstall it. ",
        proven_by="The import ends in an error",
        symptom=True,
        way=paste.install_torch,
    ),
    Cause(
        "torch-outside-environment",
        title="Python imports a torch from outside the environment: {place}",
        plain="Python imports a torch from outside the environment",
        means="Python searches PYTHONPATH before the environment's packages.",
        text="Remove that folder from the path; then check whether the environment has torch",
        proven_by="torch would be imported from a folder outside the environment",
        # Source: Python documentation, site.
        explains=(
            "torch-half-installed",
            "two-torch-installs",
            "torch-cpu-build",
            "rocm-wheel-on-nvidia",
            "xpu-wheel-on-nvidia",
            "arch-too-new-for-wheel",
            "arch-too-old-for-wheel",
            "driver-too-old",
        ),
        before_torch=(Severity.ERROR, Severity.WARNING),
        where=(lambda context: bool(events(context, *HALVES_DO_NOT_FIT)),),
        commands=("export PYTHONNOUSERSITE=1",),
        cases=(
            Message(
                where=(lambda context: bool(context.snapshot.environment.get("PYTHONPATH")),),
                having={"place": "."},
                commands=("unset PYTHONPATH",),
            ),
        ),
        says=(rf"{AN_ENVIRONMENT}.{{0,700}}?{USERS_OWN}|{USERS_OWN}.{{0,700}}?{AN_ENVIRONMENT}",),
        examples=(
            "/home/user/miniconda3/envs/llm/lib/python3.10/site-packages/transformers/a.py line 2\n/home/user/.local/lib/python3.10/site-packages/torch/nn/b.py",
        ),
    ),
    Cause(
        "torch-cpu-build",
        title="{who} is a CPU build: it cannot use {gpu}",
        plain="A CPU build on a machine with an NVIDIA GPU",
        means="The default index has CPU builds only for Windows; conda picks one if it sees "
        "no driver; another package's install may have replaced the CUDA build.",
        text="Replace the CPU build. ",
        proven_by="torch/version.py has no CUDA, and there is an NVIDIA GPU",
        not_when="cuda-visible-devices-hidden, driver-missing: then that comes first",
        # Source: the wheels and indexes of torch, read for the catalog.
        explains=("extension-abi-mismatch",),
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
        # Source: the wheels and indexes of torch, read for the catalog.
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
        # Source: the wheels and indexes of torch, read for the catalog.
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
        cases=(
            Message(
                where=(lambda context: bool(context.torch.cuda_available),),
                title="A program finds no GPU, though torch sees one elsewhere",
                text="Ask in both places which Python and which torch answer; if they are the "
                "same, the program, or what starts it, sets CUDA_VISIBLE_DEVICES: let it name a "
                "GPU that is there",
                look=(RAISE,),
            ),
        ),
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
                shown=torch_shows_no_cuda_on_windows,
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
        proven_by="a record of `gpusetup verify` in `fleet show`",
        symptom=True,
        look=("gpusetup verify -v",),
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
        # Source: nvidia-smi of driver 610.
        commands=("gpusetup install",),
        says=(
            r"(?:parse|unexpected|unrecognized|unknown|no match).{0,60}CUDA UMD Version",
            r"(?=[cfu])(?:could not|cannot|can't|failed to|unable to) (?:\w+ ){0,3}(?:parse|determine|detect|find|read|extract|get) .{0,30}CUDA version.{0,60}nvidia-smi",
            r"(?:could not|cannot|failed to|unable to) parse .{0,20}nvidia-smi",
        ),
        examples=(
            "ValueError: could not parse 'CUDA UMD Version: 13.1'",
            "failed to parse the output of nvidia-smi",
        ),
        not_examples=("CUDA UMD Version: 13.1",),
    ),
)
