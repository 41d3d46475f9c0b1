"""Programs that fail by themselves, in their own words: what failed, and the program's own way out.

Sources, as of November 2026: uv's and conda's error texts, docker's client, Slurm's gres.c, Isaac
Sim's logs and the drivers that its requirements name, pip's build messages, pip's
req/constructors.py, conda-package-handling.
"""

from __future__ import annotations

from gpusetup.messages.own import NOT_SHOWN
from gpusetup.messages.row import Row, row


def own(
    program: str,
    stage: str,
    needle: str,
    pattern: str = "",
    *,
    says: str,
    way: str,
    unless: str = "",
    why: str = "",
) -> Row:
    """A failure of a program's own, with the stage and the way out."""
    values = {"program": program, "stage": stage, "says": says, "way": way}
    values = {**values, "why": why} if why else values
    return row("program-failed", needle, pattern, unless=unless, **values)


INSTALLERS = (
    own(
        "uv",
        "install",
        "match-runtime",
        r"declared with `?match-runtime ?= ?true`?, but \S{1,60} does not declare static metadata",
        says="uv cannot build against the torch of run time: the package declares no static metadata",
        way="Give its metadata in `[[tool.uv.dependency-metadata]]`, or name the package in "
        "`tool.uv.no-build-isolation-package` instead of `match-runtime`",
    ),
    own(
        "uv",
        "install",
        "toml parse error",
        r"Failed to parse:? `?(?:pyproject|uv)\.(?:toml|lock).{0,80}?TOML parse error",
        says="uv cannot parse the project's TOML file",
        way="Mend the line of pyproject.toml (or uv.lock) that it names",
    ),
    own(
        "uv",
        "install",
        "incompatible with the project's python requirement",
        says="The chosen Python lies outside the project's `requires-python`",
        way="Choose another with `uv python pin 3.12`, or widen `requires-python`",
    ),
    own(
        "uv",
        "install",
        "no virtual environment found",
        r"\berror: No virtual environment found",
        says="uv finds no virtual environment to install into",
        way="Create one with `uv venv`, or activate it; `--system` installs without one",
    ),
    own(
        "uv",
        "install",
        "needs to be updated, but",
        r"lockfile at `?uv\.lock`? needs to be updated, but `--(?:locked|frozen)` was provided",
        says="uv.lock is older than pyproject.toml, and `--locked` forbids to change it",
        way="Run `uv lock`, and commit the lock file",
    ),
    own(
        "conda",
        "install",
        "terms of service have not been accepted",
        says="conda's channels ask for their terms of service to be accepted first",
        way="Accept them (`conda tos accept`), or use conda-forge alone: "
        "`conda config --remove channels defaults --add channels conda-forge`",
    ),
    own(
        "conda",
        "install",
        "environmentlocationnotfound",
        r"EnvironmentLocationNotFound: Not a conda environment",
        says="conda finds no environment at that place",
        way="See the environments with `conda env list`; create it with `conda create -n NAME python`",
    ),
    own(
        "conda",
        "install",
        "writeable envs directories",
        r"No writeable envs directories configured",
        says="conda may not write its folder of environments",
        way="Give the folder to this user, or set `envs_dirs` in ~/.condarc",
    ),
    own(
        "conda",
        "install",
        "before 'conda activate'",
        r"Run 'conda init' before 'conda activate'",
        says="conda is not set up in this shell",
        way="Run `conda init` once and open a new shell (in scripts: `source .../etc/profile.d/conda.sh`)",
    ),
    own(
        "poetry",
        "install",
        "is not compatible with some of the required packages python requirement",
        says="The project allows more releases of Python than a package of it does",
        way="Narrow `requires-python` of the project to the range that poetry names",
    ),
)

DOCKERS = (
    own(
        "docker",
        "start",
        "permission denied while trying to connect to the docker",
        says="This user may not speak to docker's daemon",
        way="Use sudo, or join the group: `sudo usermod -aG docker $USER`, then log in again",
    ),
    own(
        "docker",
        "start",
        "connect to the docker daemon at",
        r"Cannot connect to the Docker daemon at",
        says="docker's daemon does not run",
        way="Start Docker Desktop, or docker's service (`sudo systemctl start docker`)",
    ),
    own(
        "docker",
        "start",
        "unknown flag: --gpus",
        says="This docker does not know `--gpus`",
        way="Take Docker 19.03 or newer from Docker's own packages",
    ),
)

RESUME = (
    "`scontrol update nodename=NODE state=resume` (as root) then takes a drained node back into use"
)
SLURMS = (
    own(
        "Slurm",
        "start",
        "batch job submission failed",
        r"sbatch: error: Batch job submission failed: (?!Requested node configuration|Invalid generic resource)\w",
        says="Slurm refuses the job: its account, partition or limits",
        way="The line names the reason, or the one above it does: see what this account may use "
        "(`sacctmgr show assoc user=$USER format=account,partition,qos`) and what the partitions "
        "have (`sinfo -o '%P %G'`), then change the script's #SBATCH lines",
    ),
    own(
        "Slurm",
        "start",
        "requested node configuration is not available",
        says="Slurm has no node such as the job asks for",
        way="Compare the request with what the partitions have (`sinfo -o '%P %G %c %m %t'`) and "
        "with one node (`scontrol show node NODE`). Where its Gres lacks the GPUs, name them in "
        "gres.conf (`AutoDetect=nvml`) and in the node's line of slurm.conf (`Gres=gpu:4`), and "
        f"restart slurmctld and slurmd; {RESUME}",
    ),
    own(
        "Slurm",
        "start",
        "invalid generic resource (gres) specification",
        says="Slurm does not know the GPU that the job asks for",
        way="Use the names that `sinfo -o '%P %G'` lists (`--gres=gpu:a100:1`)",
    ),
    own(
        "Slurm",
        "start",
        "gres/gpu count",
        r"gres/gpu count reported lower than configured(?: \((?P<found>\d+) < \d+\))?",
        says="slurmd finds fewer GPUs on the node than slurm.conf says",
        way="Make `nvidia-smi -L` list all of them on the node; write `AutoDetect=nvml` into "
        "gres.conf, or correct its devices (`slurmd -G` prints what slurmd finds, `scontrol show "
        f"node NODE` what Slurm expects); {RESUME}",
    ),
    own(
        "Slurm",
        "start",
        "gres.conf file /dev/nvidia",
        r"(?:can't stat|Waiting for) gres\.conf file (?P<device>/dev/nvidia\w{1,12})",
        says="slurmd starts on a node whose NVIDIA driver is not loaded: its device files are missing",
        way="On the node, load the driver (`nvidia-smi -L` must list the GPUs) and let slurmd start "
        "after nvidia-persistenced; write `AutoDetect=nvml` into gres.conf, or the devices that are "
        f"there (`Name=gpu File=/dev/nvidia[0-3]`); {RESUME}",
    ),
    own(
        "Slurm",
        "start",
        "has no file= in gres.conf",
        r"Gres gpu has no File= in gres\.conf",
        says="gres.conf names no device files of the GPUs",
        way="Write `AutoDetect=nvml`, or `Name=gpu File=/dev/nvidia[0-3]`, into the node's gres.conf",
    ),
    own(
        "Slurm",
        "start",
        "autodetect nvml functionality",
        says="This Slurm was built without NVML, and gres.conf asks for AutoDetect=nvml",
        way="Install a Slurm that was built with NVML's headers, or name the devices with `File=`",
    ),
)

OF_ISAAC = (
    "Take a driver that the requirements page of this Isaac Sim names as validated (5.1: 580.65.06 on "
    "Linux, 580.88 on Windows; 595 crashes it), or the newest Isaac Sim"
)
ISAACS = (
    *(
        own("Isaac Sim", "start", needle, pattern, says="Isaac Sim crashed", way=OF_ISAAC)
        for needle, pattern in (
            ("crashreporter-breakpad.plugin]", r"carb\.crashreporter-breakpad\.plugin\] (?:\[crash\]|Thread \d{1,6} backtrace)"),
            ("] a crash has occurred", r"\[crash\] A crash has occurred"),
        )
    ),
    *(
        own(
            "Isaac Sim",
            "start",
            needle,
            rf"\bIss?aa?c ?(?:Sim|Lab)\b.{{0,300}}?\b{word}|\b{word}.{{0,120}}?\bIsaac ?(?:Sim|Lab)\b",
            why=NOT_SHOWN,
            says="Isaac Sim crashes",
            way=OF_ISAAC,
            unless=r"(?:no longer|does not|doesn't|without(?: a| any)?|not) crash",
        )
        for needle, word in (
            ("crash", r"crash(?:es|ed|ing)?"),
            ("segfault", r"segfaults?"),
            ("segmentation fault", r"segmentation fault"),
        )
    ),
    *(
        own(
            "Isaac Sim",
            "start",
            needle,
            pattern,
            why=NOT_SHOWN,
            says="Isaac Sim gets no GPU from Vulkan",
            way="Make `vulkaninfo --summary` list the NVIDIA GPU (the driver's own Vulkan files; in a "
            "container NVIDIA_DRIVER_CAPABILITIES=all). " + OF_ISAAC,
        )
        for needle, pattern in (
            ("gpu foundation", r"GPU Foundation is not initialized|Failed to create GPU foundation devices"),
            ("no device could be created", r"gpu\.foundation\S{0,20}\] No device could be created"),
            ("failed to create any gpu devices", ""),
            ("error_incompatible_driver", r"\[carb\.graphics[^\]]{0,30}\][^\[\]]{0,40}ERROR_INCOMPATIBLE_DRIVER"),
        )
    ),
    own(
        "Isaac Sim",
        "running",
        "error_device_lost",
        r"\[carb\.graphics[^\]]{0,30}\][^\[\]]{0,40}ERROR_DEVICE_LOST|GPU crash is detected",
        why=NOT_SHOWN,
        says="Vulkan lost the GPU while Isaac Sim ran",
        way="Look for an Xid first (`sudo dmesg | grep -i xid`). " + OF_ISAAC,
    ),
)  # fmt: skip

OF_A_BUILD = (
    row(
        "program-failed",
        "building wheel for",
        r"Building wheel for (?P<package>[A-Za-z][\w.-]{1,40}) \((?:setup\.py|pyproject\.toml)\)\W{1,6}error\b",
        stage="build",
        why=NOT_SHOWN,
        says="The build of a package failed, and the lines that say why are not in this text",
        way="Build it once more with `pip install -v --no-build-isolation` and read the first line with "
        "`error:`; for CUDA it needs a compiler, and a toolkit of this torch's CUDA major",
    ),
    row(
        "program-failed",
        "failed building wheel for",
        r"ERROR: Failed building wheel for (?P<package>[A-Za-z][\w.-]{1,40})",
        stage="build",
        why=NOT_SHOWN,
        says="The build of a package failed, and the lines that say why are not in this text",
        way="Build it once more with `pip install -v --no-build-isolation` and read the first line with "
        "`error:`; for CUDA it needs a compiler, and a toolkit of this torch's CUDA major",
    ),
    own(
        "numba",
        "first-kernel",
        "may need newer version of nvjitlink",
        says="numba's linker is older than the compiler beside it",
        way="Install `numba-cuda[cu12]` (or `[cu13]`) alone, all its CUDA packages of one major: "
        "`pip list | grep nvidia` shows them",
    ),
)

FIRST_ERROR = (
    "The first line with `error:` above says why; the usual reasons are sources that are older than this "
    "torch, a toolkit of another CUDA major, and too little memory (MAX_JOBS=2)"
)
UNSHOWN = {"why": NOT_SHOWN}
BUILDS = tuple(
    row("program-failed", needle, pattern, stage="build", says=says, way=FIRST_ERROR, **why)
    for needle, pattern, says, why in (
        ("error compiling objects for extension", "", "The build of an extension failed in the compiler", UNSHOWN),
        (
            "with exit ",
            r"error: command '?\S{0,200}?(?:nvcc|cl\.exe|link\.exe|gcc|g\+\+|c\+\+|cc|clang\+\+|hipcc)'? failed with exit (?:code|status) \d{1,10}",
            "The build of an extension failed in the compiler",
            UNSHOWN,
        ),
        ("distutils_use_sdk is not set", "", "The build runs in Visual Studio's shell, without DISTUTILS_USE_SDK=1", {}),
    )
)  # fmt: skip

LONG_PATH = r"[A-Za-z]:\\[^'\"\n]{200,900}"

PIPS = (
    row(
        "program-requirement-missing",
        "is not installable",
        r"Directory ['\"](?P<lacks>[^'\"]{1,120})['\"] is not installable\. Neither ['\"]setup\.py['\"] nor ['\"]pyproject\.toml['\"] found",
        program="pip",
    ),
    row(
        "windows-path-too-long",
        "no such file or directory",
        rf"(?:InvalidArchiveError|Error with archive|Cannot extract|failed with error).{{0,900}}?\[Errno 2\] No such file or directory: ?['\"]{LONG_PATH}['\"]",
    ),
    row(
        "host-out-of-memory",
        "killed",
        r"\.whl \([\d.]{1,8} [kMG]B\)(?:[^A-Za-z]{0,120}(?:[kMG]B(?:/s)?[^A-Za-z]{0,40}){0,3})? Killed\b",
        who="pip",
    ),
)

ROWS = (*OF_A_BUILD, *BUILDS, *INSTALLERS, *DOCKERS, *SLURMS, *ISAACS, *PIPS)
