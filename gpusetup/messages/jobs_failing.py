"""Failures of their own: jobs, builds and crashes.

Sources, as of November 2026: Slurm's gres.c, and the messages of sbatch, srun and slurmd.

Sources, as of November 2026: CUDA's host headers (crt/host_config.h, math_functions.h) against
glibc 2.41 and gcc 11, MSVC's STL (yvals_core.h), torch/utils/cpp_extension.py, apex' setup.py,
ATen's removed macros and conversions, the setup files of Gaussian splatting's rasterizers, gcc's
driver, XLA's asm_compiler.cc, Cycles' device/cuda.

Sources, as of November 2026: vLLM's platforms/__init__.py and executor/ray_utils.py, SGLang's
utils.py, importlib.metadata, ollama's discover/runner.go, CTranslate2's ops, Windows Error
Reporting, the open kernel modules' nvstatuscodes.h, torch's distributed/rendezvous.py, scontrol's
manual page, uv's cache.
"""

from __future__ import annotations

from gpusetup.messages.row import FAILED, NOT_SHOWN, failed, row

RESUME = (
    "`scontrol update nodename=NODE state=resume` (as root) then takes a drained node back into use"
)


OF_A_BUILD = (
    row(
        FAILED,
        "building wheel for",
        r"Building wheel for [A-Za-z][\w.-]{1,40} \((?:setup\.py|pyproject\.toml)\)\W{1,6}error\b|ERROR: Failed building wheel for [A-Za-z]",
        stage="build",
        why=NOT_SHOWN,
        says="The build of a package failed, and the lines that say why are not in this text",
        way="Build it once more with `pip install -v --no-build-isolation` and read the first line with "
        "`error:`; for CUDA it needs a compiler, and a toolkit of this torch's CUDA major",
    ),
)


FIRST_ERROR = (
    "The first line with `error:` above says why; the usual reasons are sources that are older than this "
    "torch, a toolkit of another CUDA major, and too little memory (MAX_JOBS=2)"
)


UNSHOWN = {"why": NOT_SHOWN}


BUILDS = tuple(
    row(FAILED, needle, pattern, stage="build", says=says, way=FIRST_ERROR, **why)
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


ARC = r"(?:Arc (?:Pro )?[AB]\d{2,3}[MV]?|(?<![\w-])B5[78]0)\b"


IN_WORDS = (
    *(
        row(
            "program-lib-missing",
            needle,
            rf"(?=[mlwc])(?:\b(?:missing|lack(?:s|ing)|without) (?:the )?(?:required )?(?:CUDA|cuDNN)(?:/cuDNN| or cuDNN| and cuDNN)? {needle}\b|\b(?:CUDA|cuDNN) {needle} (?:are|were|is|was) missing\b)",
            library="a library of CUDA or cuDNN",
            unless=r"\bif (?:\S{1,20} ){0,4}(?:missing|lacks)",
        )
        for needle in ("dlls", "libraries")
    ),
    row(
        "program-lib-missing",
        "libdevice",
        r"libdevice not found at|Can't find libdevice(?: directory)?",
        library="libdevice.10.bc, of CUDA's compiler,",
        unless="libdevice not found at (?:the )?first",
    ),
    row(
            "no-xpu",
            ("arc a", "arc b", "arc pro", "b580", "b570"),
            rf"(?:(?:does ?n['o]?t|is not|isn't|don't|cannot|can't|not|neither|unable to|fails? to|failed to)\b[^.\n]{{0,60}}?\b(?:find|us(?:e|ing)|see|detect|recogni[sz]e)(?:s|ing)?) (?:\w+ ){{0,4}}?{ARC}|{ARC} (?:GPU |card )?(?:is )?(?:not|n't) (?:being )?(?:found|detected|recogni[sz]ed|used)",
            why="driver",
            unless=r"(?:llama\w*|it|now) (?:does|can) (?:detect|find|see)\w* (?:the |my )?(?:Intel )?(?:Arc )?[AB]\d{3} fine",
        ),
)  # fmt: skip


ENGINES = (
    row("cuda-unavailable", "unspecifiedplatform", r"vLLM is running on UnspecifiedPlatform"),
)


OUTDATED = (
    row(
        "program-lib-missing",
        "jax was built against version",
        r"Found (?P<library>cu\w{3,10}) version \d{4,6}, but JAX was built against version \d{4,6}, which is newer",
        program="JAX",
    ),
    row("no-xpu", "ur error", r"RuntimeError: UR error\b", why="driver"),
    row(
        "nvml-unknown-error",
        "init failure: 999",
        r"\bnvml\b[\w ]{0,12} init failure: 999\b",
    ),
)


CRASHES = (
    row(
        FAILED,
        "faulting module name",
        r"Faulting application name: (?P<program>[^,]{2,60}),.{0,200}?Faulting module name: (?P<module>(?:c10|torch|cu|nv|ggml)[\w.-]{2,40}\.dll).{0,160}?Exception code: (?P<code>0x[0-9a-f]{8})",
    ),
    row(
        FAILED,
        "libuv",
        r"use_libuv was requested but PyTorch was buil[dt] without libuv",
        says="This torch was built without libuv, which its rendezvous asks for",
        way="Set USE_LIBUV=0 before the start: torch's wheels for Windows have no libuv (and no "
        "NCCL: the backend there is gloo)",
    ),
    row(
        FAILED,
        "gres=(null)",
        r"(?:gres\.conf|gpu|[abhv]\d{2,3}\b).{0,1100}?\bGres=\(null\)",
        says="Slurm lists no GPU of this node (Gres=(null))",
        way="Name the GPUs in gres.conf, `GresTypes=gpu` in slurm.conf and `Gres=gpu:COUNT` in the "
        "node's own line (a dynamic node's in `slurmd --conf`), then restart slurmctld and slurmd; "
        "`slurmd -G` prints what the node finds",
    ),
    row(
        FAILED,
        "(gres) specification",
        r"Invalid generic resource \(gres\) specification",
        says="Slurm knows no GPU of the name or count that the job asks for (Invalid gres)",
        way="See which GPUs the partitions have (`sinfo -o '%P %G'`), and ask for one of them: "
        "`--gres=gpu:1`, or with its type `--gres=gpu:a100:1`",
    ),
    row(
        FAILED,
        "(os error 5)",
        r"(?:rename|persist|remove|uv).{0,200}?Access is denied\.? \(os error 5\)",
        says="uv may not rename a file of its cache: another program, mostly the antivirus, holds it",
        way="Run it again, except uv's cache folder (`uv cache dir`) from the scan, or set "
        "UV_LINK_MODE=copy",
    ),
)


ROWS = (
    failed(
        "Slurm",
        "batch job submission failed",
        r"sbatch: error: Batch job submission failed: (?!Requested node configuration|Invalid generic resource)\w",
        says="Slurm refuses the job: its account, partition or limits",
        way="The line names the reason, or the one above it does: see what this account may use "
        "(`sacctmgr show assoc user=$USER format=account,partition,qos`) and what the partitions "
        "have (`sinfo -o '%P %G'`), then change the script's #SBATCH lines",
        stage="start",
    ),
    failed(
        "Slurm",
        "requested node configuration is not available",
        says="Slurm has no node such as the job asks for",
        way="Compare the request with what the partitions have (`sinfo -o '%P %G %c %m %t'`) and "
        "with one node (`scontrol show node NODE`). Where its Gres lacks the GPUs, name them in "
        "gres.conf (`AutoDetect=nvml`) and in the node's line of slurm.conf (`Gres=gpu:4`), and "
        f"restart slurmctld and slurmd; {RESUME}",
        stage="start",
    ),
    failed(
        "Slurm",
        "invalid generic resource (gres) specification",
        says="Slurm does not know the GPU that the job asks for",
        way="Use the names that `sinfo -o '%P %G'` lists (`--gres=gpu:a100:1`)",
        stage="start",
    ),
    failed(
        "Slurm",
        "gres/gpu count",
        r"gres/gpu count reported lower than configured(?: \((?P<found>\d+) < \d+\))?",
        says="slurmd finds fewer GPUs on the node than slurm.conf says",
        way="Make `nvidia-smi -L` list all of them on the node; write `AutoDetect=nvml` into "
        "gres.conf, or correct its devices (`slurmd -G` prints what slurmd finds, `scontrol show "
        f"node NODE` what Slurm expects); {RESUME}",
        stage="start",
    ),
    failed(
        "Slurm",
        "gres.conf file /dev/nvidia",
        r"(?:can't stat|Waiting for) gres\.conf file (?P<device>/dev/nvidia\w{1,12})",
        says="slurmd starts on a node whose NVIDIA driver is not loaded: its device files are missing",
        way="On the node, load the driver (`nvidia-smi -L` must list the GPUs) and let slurmd start "
        "after nvidia-persistenced; write `AutoDetect=nvml` into gres.conf, or the devices that are "
        f"there (`Name=gpu File=/dev/nvidia[0-3]`); {RESUME}",
        stage="start",
    ),
    failed(
        "Slurm",
        "has no file= in gres.conf",
        r"Gres gpu has no File= in gres\.conf",
        says="gres.conf names no device files of the GPUs",
        way="Write `AutoDetect=nvml`, or `Name=gpu File=/dev/nvidia[0-3]`, into the node's gres.conf",
        stage="start",
    ),
    failed(
        "Slurm",
        "autodetect nvml functionality",
        says="This Slurm was built without NVML, and gres.conf asks for AutoDetect=nvml",
        way="Install a Slurm that was built with NVML's headers, or name the devices with `File=`",
        stage="start",
    ),
    *OF_A_BUILD,
    *BUILDS,
    *IN_WORDS,
    *ENGINES,
    *OUTDATED,
    *CRASHES,
)
