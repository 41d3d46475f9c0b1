"""Failures of their own: programs, trainers and their environments.

Sources, as of November 2026: ultralytics' and yolov5's torch_utils.py (select_device), titles and
first lines of threads in issue trackers, NVIDIA's manual of nvidia-smi ( row remapping).
"""

from __future__ import annotations

from gpusetup.messages.fragments import in_any_order
from gpusetup.messages.row import FAILED, NOT_SHOWN, failed, row, rows

VALIDATED = "Take a driver that the requirements page of this Isaac Sim names as validated (5.1: 580.65.06 on Linux, 580.88 on Windows; 595 crashes it), or the newest Isaac Sim"


A_NUMBER = "It takes a GPU by its number: `device=0`, or `0,1` for two; without it, it chooses one"


BY_A_WORD = (
    failed(
        "The trainer",
        "invalid cuda",
        r"Invalid CUDA '?(?:--)?device[ =](?i:cuda|gpu)'? requested",
        says="The trainer takes no GPU of this name: `cuda` and `gpu` are no numbers",
        way=A_NUMBER,
    ),
)


BY_A_NUMBER = rows(
    "cuda-unavailable",
    {
        "invalid cuda": r"Invalid CUDA '?(?:--)?device[ =](?!(?i:cuda|gpu)')[^\s{]{1,12} requested",
        "`cudaaccelerator` can not run on your system": "",
    },
)


SLEPT = r"\b(?:suspend(?:s|ed|ing)?|sleep(?:s|ing)?|slept|hibernat\w{1,4}|standby|wak(?:e|es|ing|ed)[ -]?up|woke up|resum(?:e|es|ed|ing) from)\b"


LOST = r"(?:\b(?:only|then|falls back to|back to|uses?|using|on) (?:the |my )?CPU\b|\b(?:without|no longer|not|n't|stops?|lost|loses?|fails?|unavailable|CUDA error)\b[^.\n]{0,40}?\b(?:cuda|gpu|nvidia|torch)\b|\b(?:cuda|gpu|nvidia|torch)\b[^.\n]{0,40}?\b(?:lost|not|n't|no longer|unavailable|gone|disappears?|fails?|error)\b)"


BACK = r"\b(?:re-?boot(?:s|ed|ing)?|restart(?:s|ed|ing)? (?:the |my )?(?:system|machine|computer|pc|server|laptop)|(?:rmmod|modprobe -r) nvidia[_-]uvm|reload\w{0,3} (?:the )?(?:driver|nvidia))\b"


AFTER_SLEEP = (
    row(
        "cuda-lost-after-suspend",
        ("suspend", "sleep", "hibernat", "standby", "wak"),
        in_any_order(SLEPT, LOST, BACK, within=300),
        unless=r"\b(?:sleep mode|wake[_-]?up|sleep\(|time\.sleep|sleep level|enable[_-]sleep|fails? to (?:suspend|resume|sleep)|freez\w+|black screen)\b",
    ),
)
"""A driver whose memory module did not come back from the machine's sleep."""


NO_KERNEL_OF_A_TYPE = (
    failed(
        "torch",
        "not implemented for '",
        r"\"\w{0,60}(?:cuda|mps|cpu)\w{0,30}\" not implemented for '(?!Half)\w{3,20}'",
        says="torch has no such operation for this type of number, in this release",
        way="Compute this operation in float32, or take a newer torch",
    ),
)


ISAACS = ()


ROWS = (
    failed(
        "CuPy",
        "multiple cupy packages are installed",
        says="CuPy is installed more than once, in packages for different CUDA versions",
        way="Remove all of them (`pip uninstall cupy cupy-cuda11x cupy-cuda12x cupy-cuda13x`), then install the one for the CUDA that this driver serves",
    ),
    failed(
        "numba",
        "no supported gpu compute capabilities found",
        says="numba finds no GPU generation that it and its CUDA toolkit both know: the toolkit is older than this numba takes",
        way="Install `numba-cuda[cu12]` (or `[cu13]`), which brings a toolkit that fits, and let CUDA_HOME name no older one",
    ),
    failed(
        "numba",
        "is unsupported by numba",
        r"CUDA Toolkit \d{1,2}\.\d is unsupported by Numba",
        says="numba takes no toolkit as old as this one",
        way="Install `numba-cuda[cu12]` (or `[cu13]`), and let CUDA_HOME name no older toolkit",
    ),
    failed(
        "ExLlama",
        "cudahostregister",
        r"cudaHostRegister\([^)\n]{3,60}\)\s+failed: invalid argument",
        says="ExLlama could not pin memory of the host",
        way="Take its newest release, or load the model without tensor parallelism",
        why="not shown",
    ),
    failed(
        "stable-diffusion-webui",
        "a tensor with all nans was produced",
        "A tensor with all NaNs was produced in (?:Unet|VAE)",
        says="stable-diffusion-webui computed values that float16 cannot hold",
        way="Start it with --no-half (for the VAE: --no-half-vae), or take the fixed VAE",
    ),
    failed(
        "Whisper",
        "fp16 is not supported on cpu",
        says="Whisper computes on the CPU",
        way='Move the model to the GPU (`.to("cuda")`, --device cuda) or load it in float32; where no GPU is seen, `gpusetup doctor` on that machine says why',
    ),
    failed(
        "numba",
        "may need newer version of nvjitlink",
        stage="first-kernel",
        says="numba's linker is older than the compiler beside it",
        way="Install `numba-cuda[cu12]` (or `[cu13]`) alone, all its CUDA packages of one major: `pip list | grep nvidia` shows them",
    ),
    failed(
        "uv",
        "match-runtime",
        r"declared with `?match-runtime ?= ?true`?, but \S{1,60} does not declare static metadata",
        stage="install",
        says="uv cannot build against the torch of run time: the package declares no static metadata",
        way="Give its metadata in `[[tool.uv.dependency-metadata]]`, or name the package in `tool.uv.no-build-isolation-package` instead of `match-runtime`",
    ),
    failed(
        "uv",
        "toml parse error",
        r"Failed to parse:? `?(?:pyproject|uv)\.(?:toml|lock).{0,80}?TOML parse error",
        stage="install",
        says="uv cannot parse the project's TOML file",
        way="Mend the line of pyproject.toml (or uv.lock) that it names",
    ),
    failed(
        "uv",
        "incompatible with the project's python requirement",
        stage="install",
        says="The chosen Python lies outside the project's `requires-python`",
        way="Choose another with `uv python pin 3.12`, or widen `requires-python`",
    ),
    failed(
        "uv",
        "no virtual environment found",
        r"\berror: No virtual environment found",
        stage="install",
        says="uv finds no virtual environment to install into",
        way="Create one with `uv venv`, or activate it; `--system` installs without one",
    ),
    failed(
        "uv",
        "needs to be updated, but",
        r"lockfile at `?uv\.lock`? needs to be updated, but `--(?:locked|frozen)` was provided",
        stage="install",
        says="uv.lock is older than pyproject.toml, and `--locked` forbids to change it",
        way="Run `uv lock`, and commit the lock file",
    ),
    failed(
        "conda",
        "terms of service have not been accepted",
        stage="install",
        says="conda's channels ask for their terms of service to be accepted first",
        way="Accept them (`conda tos accept`), or use conda-forge alone: `conda config --remove channels defaults --add channels conda-forge`",
    ),
    failed(
        "conda",
        "environmentlocationnotfound",
        "EnvironmentLocationNotFound: Not a conda environment",
        stage="install",
        says="conda finds no environment at that place",
        way="See the environments with `conda env list`; create it with `conda create -n NAME python`",
    ),
    failed(
        "conda",
        "writeable envs directories",
        "No writeable envs directories configured",
        stage="install",
        says="conda may not write its folder of environments",
        way="Give the folder to this user, or set `envs_dirs` in ~/.condarc",
    ),
    failed(
        "conda",
        "before 'conda activate'",
        "Run 'conda init' before 'conda activate'",
        stage="install",
        says="conda is not set up in this shell",
        way="Run `conda init` once and open a new shell (in scripts: `source .../etc/profile.d/conda.sh`)",
    ),
    failed(
        "poetry",
        "is not compatible with some of the required packages python requirement",
        stage="install",
        says="The project allows more releases of Python than a package of it does",
        way="Narrow `requires-python` of the project to the range that poetry names",
    ),
    failed(
        "docker",
        "permission denied while trying to connect to the docker",
        stage="start",
        says="This user may not speak to docker's daemon",
        way="Use sudo, or join the group: `sudo usermod -aG docker $USER`, then log in again",
    ),
    failed(
        "docker",
        "connect to the docker daemon at",
        "Cannot connect to the Docker daemon at",
        stage="start",
        says="docker's daemon does not run",
        way="Start Docker Desktop, or docker's service (`sudo systemctl start docker`)",
    ),
    failed(
        "docker",
        "unknown flag: --gpus",
        stage="start",
        says="This docker does not know `--gpus`",
        way="Take Docker 19.03 or newer from Docker's own packages",
    ),
    row(
        FAILED,
        ("building wheel for",),
        r"Building wheel for (?P<package>[A-Za-z][\w.-]{1,40}) \((?:setup\.py|pyproject\.toml)\)\W{1,6}error\b|ERROR: Failed building wheel for (?P<failed>[A-Za-z][\w.-]{1,40})",
        stage="build",
        why=NOT_SHOWN,
        says="The build of a package failed, and the lines that say why are not in this text",
        way="Build it once more with `pip install -v --no-build-isolation` and read the first line with `error:`; for CUDA it needs a compiler, and a toolkit of this torch's CUDA major",
    ),
    row(
        FAILED,
        ("crashreporter-breakpad.plugin]", "] a crash has occurred"),
        r"carb\.crashreporter-breakpad\.plugin\] (?:\[crash\]|Thread \d{1,6} backtrace)|\[crash\] A crash has occurred",
        program="Isaac Sim",
        stage="start",
        says="Isaac Sim crashed",
        way=VALIDATED,
    ),
    row(
        FAILED,
        ("crash", "segfault", "segmentation fault"),
        r"\bIss?aa?c ?(?:Sim|Lab)\b.{0,300}?\b(?:crash(?:es|ed|ing)?|segfaults?|segmentation fault)|\b(?:crash(?:es|ed|ing)?|segfaults?|segmentation fault).{0,120}?\bIsaac ?(?:Sim|Lab)\b",
        unless="(?:no longer|does not|doesn't|without(?: a| any)?|not) crash",
        program="Isaac Sim",
        stage="start",
        says="Isaac Sim crashes",
        way=VALIDATED,
        why=NOT_SHOWN,
    ),
    row(
        FAILED,
        (
            *("gpu foundation", "no device could be created", "failed to create any gpu devices"),
            *("error_incompatible_driver", "error_device_lost", "gpu crash is detected"),
        ),
        r"GPU Foundation is not initialized|Failed to create GPU foundation devices|gpu\.foundation\S{0,20}\] No device could be created|Failed to create any GPU devices|\[carb\.graphics[^\]]{0,30}\][^\[\]]{0,40}ERROR_(?:INCOMPATIBLE_DRIVER|DEVICE_LOST)|GPU crash is detected",
        program="Isaac Sim",
        stage="start",
        says="Isaac Sim gets no GPU from Vulkan, or lost it",
        way=f"Make `vulkaninfo --summary` list the NVIDIA GPU (the driver's own Vulkan files; in a container NVIDIA_DRIVER_CAPABILITIES=all), and look for an Xid (`sudo dmesg | grep -i xid`). {VALIDATED}",
        why=NOT_SHOWN,
    ),
    failed(
        "podman",
        "no read access to runc binary",
        stage="start",
        says="podman may not read its runtime's file",
        way="Use crun (`--runtime crun`), or give the file of runc read access again",
    ),
    failed(
        "docker",
        "starting container process caused",
        r"starting container process caused\W{1,4}permission denied",
        stage="start",
        says="The system forbids the container's process to start",
        way="Under SELinux run it with `--security-opt label=disable` once; if it starts, install the policy for NVIDIA's containers (dgx-selinux)",
    ),
    failed(
        "CuPy",
        "nvrtc_error_compilation",
        "NVRTC_ERROR_COMPILATION",
        unless="invalid value for --gpu-architecture|cannot open source file",
        stage="first-kernel",
        says="NVRTC cannot compile a kernel of CuPy",
        way="The lines above it name the place: CUDA's headers of another release are the usual reason (`pip install \"cupy-cuda12x[ctk]\"`, CUDA_PATH unset), else the program's own kernel",
        why="not shown",
    ),
    failed(
        "RAPIDS",
        "or newer architecture is required",
        r"A GPU with NVIDIA (?P<needs>\w+)\W{0,3} \(Compute Capability (?P<capability>\d+\.\d)\) or newer",
        stage="start",
        says="RAPIDS has no kernels for so old a GPU",
        way="Take the last release of RAPIDS for this architecture (Pascal: 24.02), or a newer GPU",
    ),
    *BY_A_WORD,
    *BY_A_NUMBER,
    *AFTER_SLEEP,
    *NO_KERNEL_OF_A_TYPE,
    *ISAACS,
)
