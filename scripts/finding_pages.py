"""A page for each finding, and their index by message: HTML for the page in the browser, Markdown
for the site.

The words are the record's. The commands are doctor's, for a text with one of the finding's messages
and the output of its check.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path
from typing import NamedTuple

from gpusetup.catalog.file import load_catalog
from gpusetup.causes import containers, parallel
from gpusetup.causes.layers import STAGES, Layer
from gpusetup.causes.record import Cause, CheckCommand
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.diagnosis.explanations import records
from gpusetup.model.finding import Finding, command_lines
from gpusetup.report.read import read_bytes

MESSAGES = Path(__file__).resolve().parent.parent / "web" / "messages.json"
SYSTEM = "OS: Ubuntu 24.04.1 LTS (x86_64)"
"""The line of `python -m torch.utils.collect_env` that names the system of the examples."""
MACHINE = """Nvidia driver version: 570.133.07
GPU models and configuration: GPU 0: NVIDIA GeForce RTX 5070 Ti
PyTorch version: 2.6.0+cu124 in /home/me/venv
"""
"""What a text must show besides before a change of torch can be recommended."""
CHECK_IT = "Check that this is your problem"
FIX_IT = "How to fix it"
OTHER_MESSAGES = "Other messages of this cause:"
MOST_WORDS = 190
"""Of a page: a longer one leaves out further messages that lead to it."""
NO_PAGE = ("ok", "unknown", "report-cut", "report-empty", "rule-broken")
"""Answers about the text that doctor read: nobody searches for them."""
SEEN = {
    "install": "pip, uv or conda stops",
    "build": "A package does not compile",
    "import": "An import fails, or a library is missing",
    "start": "CUDA does not start",
    "first-kernel": "torch is not the build for this GPU",
    "running": "A program runs on the CPU, out of memory, slowly or wrongly",
    "distributed": "Several GPUs",
}
"""The stage at which a program fails -> what its user sees."""
WITHOUT_COMMANDS = (
    "container-hook-failed", "cuda-lib-missing", "libcuda-missing", "library-not-mapped",
    "nccl-shm-error",
)  # fmt: skip
"""Their commands depend on which message was printed, so a page shows the words alone."""
WITHOUT_FOLDERS = (
    "export LD_LIBRARY_PATH=\"$(printenv LD_LIBRARY_PATH | tr : '\\n' | grep -vE '{}' "
    '| paste -sd : -)"'
)
"""LD_LIBRARY_PATH without the folders whose names match a pattern."""
NEW_PYTHON = "uv venv --python 3.12 .venv-3.12\ngpusetup install --venv .venv-3.12"
NEWEST_DRIVER = "sudo apt update\nsudo ubuntu-drivers install\nsudo reboot"
COMMANDS = {
    "amd-gpu": 'sudo usermod -aG render,video "$USER"    # then log out and in again\n'
    "rocminfo | grep gfx",
    "build-without-gpu": 'export TORCH_CUDA_ARCH_LIST="8.0;8.6;9.0"    # the GPUs that will run it',
    "compiler-missing": "sudo apt install -y build-essential    # Debian, Ubuntu\n"
    "winget install Microsoft.VisualStudio.2022.BuildTools --override "
    '"--passive --wait --add Microsoft.VisualStudio.Workload.VCTools --includeRecommended"',
    "compiler-too-new": "sudo apt install -y gcc-13 g++-13\n"
    "export NVCC_PREPEND_FLAGS='-ccbin g++-13'\nexport CC=gcc-13 CXX=g++-13",
    "compute-mode-prohibited": "sudo nvidia-smi -c DEFAULT",
    "container-hook-failed": "nvidia-smi\nsudo apt update\n"
    "sudo apt install -y nvidia-container-toolkit\nsudo systemctl restart docker\n"
    "docker run --rm --gpus all ubuntu nvidia-smi",
    "container-nvml-lost": "docker restart NAME\nkubectl delete pod NAME    # in Kubernetes",
    "container-runtime-not-default": "sudo nvidia-ctk runtime configure --runtime=containerd"
    "    # or crio, docker\nsudo systemctl restart containerd",
    "cuda-call-not-supported": "export CUDA_LAUNCH_BLOCKING=1\n"
    "export NCCL_P2P_DISABLE=1    # if peer access fails\n"
    "unset PYTORCH_CUDA_ALLOC_CONF    # if expandable_segments fail",
    "cuda-home-unset": "export CUDA_HOME=/usr/local/cuda    # the folder of the toolkit",
    "cuda-launch-blocking": "unset CUDA_LAUNCH_BLOCKING\n"
    "$env:CUDA_LAUNCH_BLOCKING = ''    # in PowerShell",
    "cuda-sees-no-device": "unset CUDA_VISIBLE_DEVICES\n"
    "set CUDA_VISIBLE_DEVICES=    # in Windows' cmd\n"
    "nvidia-smi --query-gpu=name,compute_mode,mig.mode.current --format=csv",
    "device-node-missing": "sudo nvidia-modprobe -c=0    # the GPU's number\nls -l /dev/nvidia*\n"
    "sudo systemctl enable --now nvidia-persistenced",
    "docker-other-daemon": "docker context use default\nsudo systemctl restart docker\n"
    "docker run --rm --gpus all ubuntu nvidia-smi",
    "download-network-error": "export PIP_DEFAULT_TIMEOUT=120 UV_HTTP_TIMEOUT=300\n"
    "curl -sSI https://download.pytorch.org/",
    "driver-call-unsupported": NEWEST_DRIVER,
    "driver-missing": NEWEST_DRIVER,
    "driver-slow": "sudo systemctl enable --now nvidia-persistenced",
    "driver-too-old": "gpusetup install    # keeps the driver\n"
    "# Or update the driver:\n" + NEWEST_DRIVER,
    "extension-needs-libcuda": "export LD_PRELOAD=libcuda.so.1",
    "fabric-unhealthy": "sudo journalctl -u nvidia-fabricmanager -n 50\n"
    "sudo systemctl restart nvidia-fabricmanager",
    "forward-compat-unsupported": "ldconfig -p | grep libcuda\n" + WITHOUT_FOLDERS.format("compat"),
    "gpu-check-failed": "gpusetup verify",
    "gpu-hang": "sudo nvidia-bug-report.sh    # first: a reset loses the state\n"
    "kill -9 4711    # the program's number in nvidia-smi\n"
    "sudo nvidia-smi --gpu-reset -i 0    # your GPU's number",
    "gpu-init-failed": "sudo dmesg | grep -i nvrm    # shows the reason\n"
    "sudo poweroff\n# If that does not help:\n" + NEWEST_DRIVER,
    "gpu-memory-taken": "nvidia-smi\n"
    "sudo fuser -v /dev/nvidia*    # also what nvidia-smi does not list",
    "gpu-works-little": "gpusetup monitor",
    "guarded-set-changed": "gpusetup guard",
    "hybrid-gpu-off": "sudo prime-select on-demand    # for prime-select\n"
    "supergfxctl --mode Hybrid    # for supergfxctl\n"
    "sudo envycontrol --switch hybrid    # for envycontrol\nsudo reboot",
    "install-unfinished": "gpusetup install",
    "installed-by-two": "conda remove pytorch    # if conda installed it\n"
    "python -m pip install --force-reinstall --no-deps torch==VERSION"
    "    # if no installer is named\n"
    "gpusetup install --venv .venv    # if the distribution installed it",
    "invalid-device-ordinal": "nvidia-smi -L",
    "kernel-image-invalid": "unset TRITON_PTXAS_PATH\nrm -rf ~/.triton/cache ~/.nv/ComputeCache",
    "libcuda-driver-mismatch": "ldconfig -p | grep libcuda\n"
    + WITHOUT_FOLDERS.format("compat|stubs")
    + "\nsudo reboot    # if the driver was updated",
    "libcuda-missing": "sudo apt install -y libnvidia-compute-580"
    "    # Ubuntu: the branch that nvidia-smi shows\n"
    "sudo dnf install -y xorg-x11-drv-nvidia-cuda-libs    # Fedora with RPM Fusion",
    "library-missing": "sudo apt install -y libgl1 libglib2.0-0    # Debian, Ubuntu\n"
    "sudo dnf install -y mesa-libGL glib2    # Fedora",
    "library-not-mapped": 'mkdir -p "$HOME/tmp"\nexport TMPDIR="$HOME/tmp"\nulimit -v unlimited',
    "library-not-on-path": "PACKAGES=\"$(python -c 'import sysconfig; "
    'print(sysconfig.get_path("purelib"))\')"\n'
    'export LD_LIBRARY_PATH="$PACKAGES/nvidia/cudnn/lib:$LD_LIBRARY_PATH"    # for cuDNN',
    "maker-device-permission": 'sudo usermod -aG render,video "$USER"'
    "    # then log out and in again",
    "maker-driver-not-loaded": "sudo modprobe amdgpu    # for Intel: xe, or i915 for older GPUs",
    "maker-libraries-mixed": WITHOUT_FOLDERS.format("rocm|oneapi")
    + "\nunset LD_PRELOAD\ngpusetup install --venv .venv-torch    # if it still fails",
    "maker-wrong-build": "gpusetup install",
    "mixed-conda-pip": "conda remove -y pytorch torchvision torchaudio\n"
    "python -m pip uninstall -y torch torchvision torchaudio\ngpusetup install",
    "nccl-duplicate-gpu": "torchrun --nproc-per-node=gpu train.py    # your own script",
    "nccl-shm-error": "df -h /dev/shm; ls -l /dev/shm\n"
    "rm -f /dev/shm/nccl-*    # only while no program uses NCCL\n"
    "export NCCL_SHM_DISABLE=1    # if it cannot be enlarged",
    "no-kernel-image": "gpusetup install\n"
    "python -c \"import torch; print((torch.ones(9, device='cuda') * 2).sum().item())\"",
    "no-nvidia-gpu": "gpusetup install --backend cpu",
    "no-target": "gpusetup doctor --python .venv",
    "nvlink-degraded": "nvidia-smi nvlink --status\nsudo reboot",
    "openmp-twice": "gpusetup install --venv .venv\n.venv/bin/python -m pip install numpy",
    "other-gpu-used": "nvidia-smi -L\n"
    "export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=1    # the number in nvidia-smi",
    "package-not-found": "python -m pip install torch --index-url https://download.pytorch.org/whl/cu126\n"
    "python -m pip install PACKAGE",
    "pip-cache-disk-full": "python -m pip cache purge\nuv cache clean\n"
    "export TMPDIR=/data/tmp    # a folder on a larger disk",
    "python-no-wheel": NEW_PYTHON,
    "rocm-arch-missing": "gpusetup install\ngpusetup resolve --explain",
    "rocm-override-wrong": "unset HSA_OVERRIDE_GFX_VERSION\n"
    "grep -n HSA_OVERRIDE ~/.bashrc ~/.profile    # delete the line that sets it",
    "rocm-wheel-on-nvidia": "gpusetup install",
    "static-tls-full": "export LD_PRELOAD=/usr/lib/aarch64-linux-gnu/libgomp.so.1"
    "    # the library in the message",
    "system-not-ready-fabric-manager": "sudo apt install -y nvidia-fabricmanager-580"
    "    # the branch that nvidia-smi shows\nsudo systemctl enable nvidia-fabricmanager\n"
    "sudo systemctl restart nvidia-fabricmanager",
    "torch-half-installed": "python -m pip uninstall -y torch\n"
    'SP="$(python -c \'import sysconfig; print(sysconfig.get_path("purelib"))\')"\n'
    'ls -d "$SP"/torch "$SP"/torch-* "$SP"/~*    # delete what is listed\ngpusetup install',
    "torch-import-failed": "gpusetup install",
    "torch-outside-environment": "unset PYTHONPATH    # in PowerShell: $env:PYTHONPATH = ''\n"
    'python -c "import torch; print(torch.__file__)"',
    "torchaudio-mismatch": "gpusetup install",
    "triton-missing-windows": "python -m pip install triton-windows",
    "two-torch-installs": "python -m pip uninstall -y torch    # until it finds none\n"
    "gpusetup install",
    "vgpu-no-compute": "nvidia-smi -q | grep -i license    # must be `Licensed`",
    "windows-dll-missing": "winget install Microsoft.VCRedist.2015+.x64",
    "windows-path-too-long": "Set-ItemProperty "
    "HKLM:\\SYSTEM\\CurrentControlSet\\Control\\FileSystem "
    "-Name LongPathsEnabled -Value 1\n$env:TRITON_CACHE_DIR = 'C:\\tr'",
    "wrong-libcuda-loaded": WITHOUT_FOLDERS.format("compat|stubs"),
    "wsl-linux-driver": "sudo apt purge -y '^(lib)?nvidia-.*-[0-9]{3}(-server)?(-open)?$'\n"
    "wsl.exe --shutdown",
}
"""What to type where doctor's commands need a machine, with its own numbers and paths, or fit only
the example's."""
WORDS = {
    "amd-gpu": "A ROCm build is installed, so first see whether you may open the GPU. If your "
    "groups lack `render` and `video`, join them, and log out and in again. If /dev/kfd is "
    "missing, no amdgpu driver is loaded (maker-driver-not-loaded). In docker add `--device "
    "/dev/kfd --device /dev/dri --group-add video --group-add $(stat -c %g /dev/dri/renderD128)`. "
    "Unset HIP_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES. The message "
    "`invalid device function` means that the build lacks kernels for the GPU (rocm-arch-missing)",
    "cuda-sees-no-device": "Unset CUDA_VISIBLE_DEVICES, or name GPUs that `nvidia-smi -L` lists. "
    "If MIG is on without an instance, see mig-misconfigured; in a container, container-no-gpu",
    "driver-missing": "Install the driver with your distribution's own package (the commands are "
    "Ubuntu's) and reboot: until then, nouveau (the open-source driver) usually has the GPU. "
    "Afterwards `nvidia-smi` lists the GPU",
    "driver-too-old": "Keep the driver and install the newest torch that it runs (driver 470: "
    "torch 2.7.1 from cu118). Or update the driver to the newest that supports your GPU, and "
    "reboot, because the old one stays loaded; afterwards `nvidia-smi` shows the new version",
    "gpu-hang": "Save the driver's report, end the program and reset the GPU. A reset fails while "
    "any process, also nvidia-persistenced or a display, uses the GPU: then reboot. Update the "
    "driver. If other programs hang too, remove overclocking, check power and cooling, and have "
    "the GPU examined",
    "hybrid-gpu-off": "Turn the NVIDIA GPU on with the tool that switched it off, and reboot",
    "installed-by-two": "Remove the package with the tool that installed it. If the message names "
    "none, only the list was lost: install the same version over it. For a package of the "
    "distribution, use a new environment instead",
    "library-missing": "Install the system package that contains the library (libGL: libgl1, "
    "mesa-libGL; libgthread: libglib2.0-0, glib2; libgomp: libgomp1, libgomp; libnuma: libnuma1, "
    "numactl-libs). Without root, replace opencv-python by opencv-python-headless",
    "maker-libraries-mixed": "PyTorch's wheels bring their own libraries. Start the program in a "
    "shell in which LD_LIBRARY_PATH and LD_PRELOAD name no ROCm, no oneAPI and no other torch "
    "(for oneAPI, open a shell without setvars.sh)",
    "no-nvidia-gpu": "If lspci names an NVIDIA GPU, only its driver is missing (driver-missing). "
    "In a virtual machine or container, ask for a GPU to be passed through. Otherwise use torch's "
    "CPU build",
    "no-wheel-for-platform": "Alpine: use an image with glibc (`FROM python:3.12-slim`). Intel "
    "Mac: torch 2.2.2 is the last (`python -m pip install torch==2.2.2 'numpy<2'` with Python "
    "3.12 or older). 32-bit system: install a 64-bit one. Then type there",
    "ptx-unsupported-toolchain": "Install a release or build of the failing package for an older "
    "CUDA, or with kernels for this GPU. Or update the driver and reboot, because the old one "
    "stays loaded",
    "python-no-wheel": "Make an environment with a Python that torch has wheels for, and install "
    "there",
    "torch-half-installed": "Remove torch and install it again. If pip says `not installed` or "
    "`no RECORD`, delete the folders that are left. If the traceback does not end in "
    "torch/__init__.py, another package's compiled part is missing (extension-not-built)",
}
"""What the page says where doctor's words depend on the machine that it read."""
CHECKS = {
    "amd-gpu": CheckCommand(
        'python -c "import torch; print(torch.version.hip, torch.cuda.is_available())"\n'
        "ls -l /dev/kfd /dev/dri/renderD*; id -nG",
        "6.4.43482 False\ncrw-rw---- 1 root render 234, 0 /dev/kfd\nme sudo",
    ),
    "device-permission": CheckCommand(
        "ls -l /dev/nvidiactl; id -nG",
        "crw-rw---- 1 root vglusers 195, 255 /dev/nvidiactl\nme sudo",
    ),
    "glibc-too-old": CheckCommand("ldd --version | head -n 1", "ldd (GNU libc) 2.17"),
    "libcuda-driver-mismatch": CheckCommand(
        "cat /proc/driver/nvidia/version; ldconfig -p | grep libcuda.so",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024\n"
        "        libcuda.so.1 (libc6,x86-64) => /usr/local/cuda/compat/libcuda.so.1",
    ),
    "library-not-mapped": CheckCommand(
        "findmnt -no OPTIONS -T \"$(python -c 'import sys; print(sys.prefix)')\"; ulimit -v",
        "rw,nosuid,nodev,noexec,relatime\nunlimited",
    ),
    "mig-misconfigured": CheckCommand(
        "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES",
        "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-…)\n"
        "  MIG 3g.20gb     Device  0: (UUID: MIG-…)\n"
        "  MIG 3g.20gb     Device  1: (UUID: MIG-…)",
    ),
    "no-wheel-for-platform": CheckCommand(
        'python -c "import platform; print(platform.platform(), platform.machine())"\n'
        "ls /lib/ld-musl-*",
        "Linux-6.8.0-45-generic-x86_64-with x86_64\n/lib/ld-musl-x86_64.so.1",
    ),
    "open-files-limit": CheckCommand("ulimit -Sn; ulimit -Hn", "1024\n1048576"),
    "pip-cache-disk-full": CheckCommand(
        "df -h . /tmp ~",
        "Filesystem      Size  Used Avail Use% Mounted on\n/dev/sda2        50G   50G   12M 100% /",
    ),
    "port-in-use": CheckCommand(
        "ss -ltnp | grep 29500",
        'LISTEN 0 4096 *:29500 *:* users:(("python3",pid=4711,fd=21))',
    ),
    "ptx-unsupported-toolchain": CheckCommand(
        "nvidia-smi | grep CUDA; nvcc --version | tail -n 2",
        "| NVIDIA-SMI 550.90.07    Driver Version: 550.90.07    CUDA Version: 12.4     |\n"
        "Cuda compilation tools, release 12.8, V12.8.93",
    ),
    "python-no-wheel": CheckCommand("python -VV", "Python 3.15.0a2 (main, Nov 18 2026, 10:00:00)"),
    "rdma-memlock": CheckCommand("ulimit -l", "64"),
}
"""The checks of pages whose output alone does not let doctor name the cause, because it also needs
the message."""
ENDS_THE_SHELL = ("sudo reboot", "wsl.exe --shutdown")
"""Nothing that is pasted after these commands runs."""
OF_ONE_MACHINE = (
    (r"linux-headers-\S+", "linux-headers-$(uname -r)"),
    (r"/\S+/bin/python\b", "python"),
)
"""What names the example machine in a command, and what to type on any other one."""
GROUPS = (
    *SEEN.values(),
    "nvidia-smi or the driver fails, or the GPU is faulty",
    "A container, a pod or WSL has no GPU",
    "AMD, Intel and Apple",
)


def group_of(record: Cause) -> str:
    """The group of the index that a finding stands in."""
    layer = record.place[0] if record.place else None
    if layer is Layer.BOUNDARY or record in containers.CAUSES:
        return "A container, a pod or WSL has no GPU"
    if layer in (Layer.HARDWARE, Layer.DRIVER):
        return "nvidia-smi or the driver fails, or the GPU is faulty"
    if layer is Layer.NO_GPU:
        return "AMD, Intel and Apple"
    if record in parallel.CAUSES:
        return SEEN["distributed"]
    if layer is Layer.WHEEL and record.stage in (None, "start"):
        return SEEN["first-kernel"]
    return SEEN[record.stage or (STAGES.get(layer, "start") if layer else "running")]


@cache
def shown() -> tuple[Cause, ...]:
    """The records that have a page, in the order of precedence."""
    return tuple(record for record in records() if record.id not in NO_PAGE)


# --- what people search for -----------------------------------------------------------------------


class SearchedMessage(NamedTuple):
    """A message as a program prints it, and the finding that it shows."""

    finding: str
    message: str
    beside: str = ""
    """What else stood in the text, if the message alone does not decide."""

    @property
    def line(self) -> str:
        """The message on one line."""
        return " ".join(self.message.split())


@cache
def messages() -> tuple[SearchedMessage, ...]:
    """Every row of `web/messages.json`, in the file's order."""
    rows = json.loads(MESSAGES.read_text(encoding="utf-8"))
    return tuple(SearchedMessage(**row) for row in rows)


def headings_of(id: str) -> tuple[str, ...]:
    """The messages that lead to this finding's page, each once.

    Several findings may share a message; then the page of the one that it shows without further
    words has it, so that a search leads to the usual cause.
    """
    homes: dict[str, str] = {}
    for row in sorted(messages(), key=lambda row: bool(row.beside)):
        homes.setdefault(row.line, row.finding)
    return tuple(line for line, home in homes.items() if home == id)


def title_of(record: Cause) -> str:
    """The message that people search for, else the record's name."""
    return next(iter(headings_of(record.id)), record.name)


# --- what a page says -----------------------------------------------------------------------------


class Block(NamedTuple):
    """A part of a page: a heading, a paragraph or lines of code."""

    kind: str
    """`h1`, `h2`, `p`, `sh` for commands, `text` for an output."""
    text: str


def blocks(record: Cause) -> list[Block]:
    """The whole page, from its title to the next step."""
    found = None if record.id in WITHOUT_COMMANDS else example_of(record)
    fix = found.fix if found else None
    # Where a text does not show what a change needs, doctor's words ask for that first.
    is_complete = fix is not None and not any(need.state != "read" for need in fix.needs)
    text = fix.text if fix and is_complete else record.text
    lines = [str(line) for line in command_lines(fix)]
    if not lines and not callable(record.commands):
        # No text shows this finding with commands, but they are the same on every machine.
        lines = [line for line in record.commands if "{" not in line]
    lines.sort(key=ENDS_THE_SHELL.__contains__)
    if any(line.startswith("gpusetup install") for line in lines):
        # Which build fits is known on the machine only: no version of the example's.
        lines = [line for line in lines if "torch==" not in line]
        lines = [
            re.sub("gpusetup install (?!--venv).*", "gpusetup install", line) for line in lines
        ]
        lines.append("gpusetup resolve    # prints the same for pip, uv and conda")
        text = record.text or record.name
    commands = COMMANDS.get(record.id) or "\n".join(dict.fromkeys(lines))
    for example, anywhere in OF_ONE_MACHINE:
        commands = re.sub(example, anywhere, commands)
    text = WORDS.get(record.id, text).rstrip(" :.")
    check = [Block("h2", CHECK_IT)]
    if how := record.check or CHECKS.get(record.id):
        check += [Block("sh", how.command), Block("p", "prints"), Block("text", how.prints)]
    rest = [
        *([Block("h2", FIX_IT)] if text or commands else ()),
        *([Block("p", f"{text}.")] if text else ()),
        *([Block("sh", commands)] if commands else ()),
    ]
    title = title_of(record)
    # Without a message, the name is the title already.
    name = "" if title == record.name else f"{record.name}. "
    meaning = f"{name}{record.means}".strip()
    head = [Block("h1", title), *([Block("p", meaning)] if meaning else ())]
    words = sum(len(block.text.split()) for block in (*head, *check, *rest))
    words += len(OTHER_MESSAGES.split())
    messages = []
    for line in headings_of(record.id)[1:]:
        words += len(line.split())
        if words <= MOST_WORDS:
            messages.append(line)
    if messages:
        check[1:1] = [Block("p", OTHER_MESSAGES), Block("text", "\n".join(messages))]
    return [*head, *(check if len(check) > 1 else ()), *rest]


def example_of(record: Cause) -> Finding | None:
    """The finding in a text that shows it, with commands if a text brings them; None if no text
    does."""
    first: Finding | None = None
    check = record.check
    checked = f"$ {check.command}\n{check.prints}" if check else ""
    shown = [f"{m.message}\n{m.beside}" for m in messages() if m.finding == record.id]
    for text in (*shown, *(row.example for row in record.rows), ""):
        for context in ("", checked, MACHINE):
            words = f"{text}\n{SYSTEM}\n{context}"
            diagnosis = diagnose(read_bytes(words.encode()), load_catalog())
            for finding in diagnosis.findings:
                if finding.id != record.id:
                    continue
                if finding.fix and finding.fix.commands:
                    return finding
                first = first or finding
    return first


# --- Markdown, for the site -----------------------------------------------------------------------

ID = re.compile(r"(?<![\w/-])[a-z][a-z0-9]*(?:-[a-z0-9]+)+(?![\w/-])")


def markdown_index() -> str:
    """The findings by what people see, for the end of `docs/findings/index.md`."""
    parts = []
    for group in GROUPS:
        ids = sorted(record.id for record in shown() if group_of(record) == group)
        parts.append(f"## {group}\n\n" + "".join(f"- [{id}]({id}.md)\n" for id in ids))
    return "\n".join(parts)


def markdown(record: Cause) -> str:
    """The page of one finding."""
    parts = []
    for kind, text in blocks(record):
        if kind in ("h1", "h2"):
            is_message = text in headings_of(record.id)
            parts.append(f"{'#' * int(kind[1])} {code_span(text) if is_message else text}")
        elif kind == "p":
            parts.append(_linked(text, "[{0}]({0}.md)", "&lt;"))
        else:
            # The fence is longer than any run of backticks in it.
            fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 0)
            parts.append(f"{fence}{kind}\n{text}\n{fence}")
    parts.insert(1, f"Finding: `{record.id}` ([how to read this page](index.md))")
    return "\n\n".join(parts) + "\n"


def code_span(message: str) -> str:
    """A message as code in Markdown, whatever it contains.

    >>> code_span("a `b`"), code_span("a b")
    ('`` a `b` ``', '`a b`')
    """
    line = " ".join(message.split())
    return f"`` {line} ``" if "`" in line else f"`{line}`"


def _linked(text: str, link: str, less: str = "<") -> str:
    """The text with links for the ids of findings, and `less` for `<`, outside its code."""
    parts = re.split(r"(`[^`]*`)", text)
    pages = {record.id for record in shown()}
    for place, part in enumerate(parts):
        if not part.startswith("`"):
            parts[place] = ID.sub(
                lambda match: link.format(match[0]) if match[0] in pages else match[0],
                part.replace("<", less),
            )
    return "".join(parts)


# --- HTML, for the page in the browser ------------------------------------------------------------

FRAME = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'self'; \
img-src data:; base-uri 'none'; form-action 'none'">
<meta name="color-scheme" content="light dark">
<meta name="description" content="{about}">
<title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="../page.css">
</head>
<body class="article">
<nav aria-label="Pages"><a href="../index.html">gpusetup</a> · <a href="index.html">All messages\
</a></nav>
<main>
{body}</main>
<footer><p>From gpusetup's records; catalog of {as_of}.</p></footer>
</body>
</html>
"""
ABOUT = "What error messages of CUDA, PyTorch, docker and the NVIDIA driver mean, and what to type"
HINT = """<p class="hint"><a href="../index.html#report">Paste what your machine printed</a>.</p>
"""
LONGEST_TITLE = 110
"""Of the browser's tab; the page's own heading has the whole message."""
LONGEST_DESCRIPTION = 300


def pages() -> Iterator[tuple[str, str]]:
    """Every page with its place below the built folder."""
    yield "findings/index.html", index()
    for record in shown():
        yield f"findings/{record.id}.html", page(record)


def page(record: Cause) -> str:
    """The page of one finding."""
    first, *others = (_in_html(block) for block in blocks(record))
    id_line = f'<p>Finding: <span class="id">{record.id}</span></p>\n'
    title = title_of(record)
    if len(title) > LONGEST_TITLE:
        title = f"{title[:LONGEST_TITLE].rsplit(' ', 1)[0]} …"
    body = "".join((first, id_line, *others, HINT))
    return _frame(f"{title}: cause and fix", f"{record.name}. {record.means}", body)


def _in_html(block: Block) -> str:
    kind, text = block
    if kind in ("h1", "h2"):
        return f"<{kind}>{escape(text)}</{kind}>\n"
    if kind in ("sh", "text"):
        return f'<pre tabindex="0">{escape(text)}</pre>\n'
    linked = _linked(escape(text, quote=False), '<a class="id" href="{0}.html">{0}</a>')
    coded = re.sub("`([^`]*)`", r"<code>\1</code>", linked)
    return f"<p>{coded}</p>\n"


def index() -> str:
    """The messages by where they come from, each with the id of its finding."""
    title = "Error messages of CUDA, PyTorch and the NVIDIA driver"
    body = f'<h1>{title}</h1>\n<p>{ABOUT}. <a href="../index.html">Paste your own</a>.</p>\n'
    for group in GROUPS:
        rows = set()
        for record in shown():
            if group_of(record) == group:
                rows |= {
                    f'<li><a href="{record.id}.html">{escape(name)}</a> '
                    f'<span class="source id">{record.id}</span></li>\n'
                    for name in headings_of(record.id) or (record.name,)
                }
        body += f'<h2>{group}</h2>\n<ul class="plain">\n{"".join(sorted(rows))}</ul>\n'
    return _frame(title, ABOUT, body)


def _frame(title: str, about: str, body: str) -> str:
    return FRAME.format(
        title=escape(title),
        about=escape(about[:LONGEST_DESCRIPTION]),
        as_of=load_catalog().as_of,
        body=body,
    )
