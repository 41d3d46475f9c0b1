"""The ways out that a text is given: of its notebook, its program, its package, its system."""

from __future__ import annotations

import re
from functools import cache

import pytest
from each_row import each
from judging import changed
from machines_named import snapshots
from message_samples import samples
from report_asked import NO_DRIVER, NOT_FOUND, UNAVAILABLE, answered, misses

from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.fixes.owners import LENDERS
from gpusetup.model.finding import Fix, command_lines
from gpusetup.model.machine import Container, Os, Snapshot
from gpusetup.render.doctor import answering
from gpusetup.report.read import read_report

LENT = "I run this on Google Colab with a T4"


def test_no_answer_of_a_lent_notebook_touches_its_host() -> None:
    kinds: dict[frozenset[str], str] = {}
    for sample in samples():
        kinds.setdefault(sample.kinds, sample.text)
    touched = re.compile(r"\b(?:reboot|modprobe|dkms|mokutil|Download the driver from)\b")
    for text in list(kinds.values())[::3]:
        for found in answered(f"{LENT}\n{text}").findings:
            if found.root and found.fix and not found.id.startswith(("wsl", "container")):
                shown = [found.fix.text, *command_lines(found.fix)]
                assert not any(map(touched.search, shown)), (text, shown)
                assert all(re.match(r"!|%|import os; ", line) for line in command_lines(found.fix))


TOO_NEW = (
    "NVIDIA GeForce RTX 5070 Ti with CUDA capability sm_120 is not compatible with the current "
    "PyTorch installation."
)


def test_a_portable_package_is_changed_by_its_own_python() -> None:
    at = r'File "F:\a b\ComfyUI_windows_portable\ComfyUI\main.py", line 5, in <module>'
    text = f"{at}\n    import sqlalchemy\nModuleNotFoundError: No module named 'sqlalchemy'"
    path = answered(text).snapshot.python.executable
    assert path == r".\python_embeded\python.exe"
    assert answered(text.replace("_windows_portable", "")).snapshot.python.executable is None


# --- the system that a text is of ----------------------------------------------------------------

OF_LINUX = re.compile(
    r"\b(?:sudo|ldconfig|modprobe|systemctl|dmesg|ulimit)\b|\b(?:apt|apt-get|dnf) |/(?:dev|etc)/"
    r"|\bLD_LIBRARY_PATH"
)
OF_A_MODULE = re.compile(
    r"modprobe|rmmod|\bdkms (?:install|autoinstall)|akmods|mokutil|\breboot\b|/dev/nvidia|nouveau|NVreg"
    r"|nvidia-(?:gridd|fabricmanager|bug-report)|linux-headers|install .*nvidia-(?:driver|utils)",
    re.IGNORECASE,
)
SYSTEMS = {
    "Windows 11": (Os(family="windows", name="Windows 11", machine="x86_64"), OF_LINUX, "export "),
    "macOS 15.1": (Os(family="macos", name="macOS 15.1", machine="arm64"), OF_LINUX, "apt "),
    "Ubuntu 22.04 on WSL2": (
        Os(family="linux", name="Ubuntu 22.04", id="ubuntu", machine="x86_64", wsl=True),
        OF_A_MODULE,
        "$env:",
    ),
    "Ubuntu 22.04": (
        Os(family="linux", name="Ubuntu 22.04", id="ubuntu", machine="x86_64"),
        re.compile(r"\$env:|Remove-Item|winget|Get-(?:Cim|Win)|PowerShell"),
        "Remove-Item",
    ),
}
"""What a text calls its system -> the machine, what no answer names there, and how no line begins."""


@cache
def machines() -> tuple[Snapshot, ...]:
    """What each kind of sample is read as, and the recorded machines."""
    kinds = {sample.kinds: sample.text for sample in samples()}
    return (*map(read_report, kinds.values()), *snapshots().values())


@pytest.mark.parametrize("system", SYSTEMS)
def test_no_answer_names_what_its_system_lacks(system: str) -> None:
    os, lacks, never = SYSTEMS[system]
    asked, wrong = 0, []
    for machine in machines():
        another = os.family == "linux" and machine.os.family not in (None, "linux")
        if another or machine.os.jetson:
            continue
        here = changed(machine, os=os)
        if os.family != "linux":
            here = changed(here, container=Container(kind="none"))
        judgement = diagnose(here, load_catalog())
        asked += 1
        for found in judgement.findings:
            shown = command_lines(found.fix)
            prose = (found.fix.text,) if found.fix else ()
            wrong += [
                (found.id, line)
                for line in (*shown, *prose, *filter(None, [judgement.next_reading]))
                if (lacks.search(line) or line.startswith(never))
                and not line.startswith("In the Linux system of this message")
            ]
    assert asked > 200 and wrong == []


def way_of(text: str) -> Fix:
    seen = answering(answered(text))
    assert seen is not None and seen.fix is not None
    return seen.fix


IN_WSL = "Ubuntu 22.04 on WSL2, Windows 11\n"
UNKNOWN_ERROR = (
    "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment"
)


@each(
    "said",
    [
        UNKNOWN_ERROR,
        "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",
        "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.",
        "Failed to initialize NVML: Driver/library version mismatch",
    ],
)
def test_in_wsl_the_driver_is_windows_and_a_linux_driver_is_removed(said: str) -> None:
    fix, beside = way_of(IN_WSL + said), way_of(f"Ubuntu 22.04\n{said}")
    assert "wsl.exe --shutdown" in fix.commands and not fix.needs_reboot
    assert any(line.startswith("sudo apt purge") for line in command_lines(fix))
    assert not any("wsl" in line for line in command_lines(beside))


NOT_A_TARGET = (
    "/usr/lib/python3.10/site-packages/torch/x.py",
    "/nix/store/a1-python3-3.11.13-env/lib/python3.11/site-packages/torch/x.py",
    r"H:\app\python_env\Lib\site-packages\torch\x.py",
    "/home/u/.local/lib/python3.10/site-packages/torch/x.py",
    "/tmp/pip-build-env-ab12/overlay/lib/python3.10/site-packages/torch/x.py",
)


# --- what the root makes moot, and what is asked first -------------------------------------------


SYSTEMS_TORCH = (
    '  File "{}/torch/_ops.py", line 573, in load_library\nOSError: /home/me/.local/lib/python3.8/'
    "site-packages/torchaudio/lib/libtorchaudio.so: undefined symbol: _ZN5torch8autograd4NodeE"
)


NO_MODULE = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that "
    "the latest NVIDIA driver is installed and running."
)


ASSERTED = "RuntimeError: CUDA error: device-side assert triggered"
NO_GPU_DRIVER = 'docker: could not select device driver "" with capabilities: [[gpu]].'
CPU_BUILD = "AssertionError: Torch not compiled with CUDA enabled"
BY_PORTABLE = r".\python_embeded\python.exe -s -m pip install"


@each(
    "text, has, never",
    [
        (ASSERTED, "export CUDA_LAUNCH_BLOCKING=1", "set "),
        (f"PS C:\\> python a.py\n{ASSERTED}", "$env:CUDA_LAUNCH_BLOCKING", "export"),
        (f"ComfyUI portable, RTX 3060\n{CPU_BUILD}", BY_PORTABLE, "$ python"),
        (f"Driver: 535\nRTX 4090\n{CPU_BUILD}", "cu126|found: 535", "cu13"),
        (f"RTX 4090, it requires NVIDIA driver 470\n{CPU_BUILD}", "cu126|shows yours", "found"),
        (f"RTX 5070 Ti\n{CPU_BUILD}", "cu129|570 or newer", "cu126"),
        (f"CUDA_VISIBLE_DEVICES=NoDevFiles\n{UNAVAILABLE}\nGPU 0: NVIDIA L4 (UUID: GPU-a)",
         "--gres=gpu:1", "unset"),
        ("C:\\> python -c \"import platform; print(platform.machine())\"\nARM64\nC:\\> pip install "
         "torch\nERROR: Could not find a version that satisfies the requirement torch (from "
         "versions: none)", "whl/cpu", "cu1"),
        ("kubectl logs a\nDataLoader worker (pid 9) is killed by signal: Bus error.", "emptyDir", "--shm"),
        ("|   0  NVIDIA A30    On |   00000000:07:00.0 Off |  On |\n| N/A   33C    P0   28W / 165W | "
         "0MiB / 24576MiB |  N/A  Default |\n|     |      | Enabled |\n| MIG devices: |\n"
         "|  No MIG devices found |\ntorch.cuda.is_available() False", "-cgi 0 -C", "-mig 0"),
    ],
)  # fmt: skip
def test_words_of_a_text_decide_the_shell_the_python_and_the_build(
    text: str, has: str, never: str
) -> None:
    answer = answered(text)
    seen = answering(answer)
    assert seen is not None and seen.fix is not None
    shown = "\n".join((seen.fix.text, *command_lines(seen.fix)))
    assert [one for one in has.split("|") if one not in shown] == []
    assert never not in shown


LIBRARY = "ImportError: libcudart.so.10.0: cannot open shared object file: No such file"
TRACED = (
    '  File "/env/lib/python3.7/site-packages/mmcv/ops/__init__.py", line 1, in <module>\n'
    "    from .bbox import bbox_overlaps\n"
    '  File "/env/lib/python3.7/importlib/__init__.py", line 127, in import_module\n'
    "    return _bootstrap._gcd_import(name[level:], package, level)"
)
NO_CONDA = "Windows 11\n'conda' is not recognized as an internal or external command"
ISOLATED = (
    "File \"<string>\", line 24, in <module>\nModuleNotFoundError: No module named 'torch'\n"
    "[end of output]\npip list\ntorch                2.6.0+cu126"
)
UNREACHED = "socketStartConnect: Connect to {}<45739> failed : Software caused connection abort"
FATAL = "nvcc fatal   : Unsupported gpu architecture 'compute_{}'"
IN_USE = (
    "01:00.0 VGA compatible controller: NVIDIA Corporation AD107 [GeForce RTX 4060] (rev a1)\n"
    "Kernel driver in use: nouveau"
)
STUB = "Unexpected error from cudaGetDeviceCount(). Error 34: CUDA driver is a stub library"
NO_SUCH_TAG = (
    "ERROR: torch-2.9.1+cu128-cp312-cp312-manylinux_2_28_x86_64.whl is not a supported wheel on this "
    "platform."
)
COMPILED = 'File "{}", line 310\nAssertionError: Torch not compiled with CUDA enabled'


@each(
    "text, has, never",
    [
        (f"docker run --rm --gpus 0 my/image python train.py\n{NO_DRIVER}", "container-no-gpu", ""),
        (f"{TRACED}\n{LIBRARY}", "\nAnother package, not torch", "gpusetup install"),
        (f"RTX 4090\n{NO_DRIVER}", "RTX 4090", "\ngpusetup found no NVIDIA driver\n"),
        # --- torch moves with the program that requires it ---
        (f"$ vllm serve Qwen/Qwen3-8B\n{TOO_NEW}", "\ngpusetup install vllm\n", ""),
        (f"root@3f2a9c1b7d4e:/vllm-workspace# vllm serve x\n{TOO_NEW}", "\n", "\ngpusetup install"),
        # --- what is built ---
        (f"{NO_CONDA}\nAssertionError: Torch not compiled with CUDA enabled",
         "torch-cpu-build", "conda-missing"),
        (ISOLATED, "build-isolation-no-torch|--no-build-isolation", ""),
        # --- variables ---
        # A ROCm build of that release exists for Linux only, so its shell is bash.
        ("PyTorch version: 2.7.1+rocm6.3\nRuntimeError: HIP error: invalid device function\n"
         "GPU: AMD Radeon RX 6600 XT (gfx1032)",
         "RX 6600 XT (gfx1032)|\nexport HSA_OVERRIDE_GFX_VERSION=10.3.0"
         "|to set HSA_OVERRIDE_GFX_VERSION permanently", "GPU; HIP error"),
        (f"ncclSystemError: {UNREACHED.format('172.17.0.1')}",
         "\nexport NCCL_SOCKET_IFNAME='^docker0,lo'|Docker's default bridge", "=NAME"),
        # --- a Dockerfile ---
        (f"kubectl logs a\nRTX 4090\n{CPU_BUILD}", "Dockerfile (`RUN` before each command)|-m pip", ""),
        (f"Ubuntu 24.04\n$ docker run --gpus all x\n{NO_GPU_DRIVER}\n$ lspci\n00:02.0 VGA compatible "
         "controller: Intel Corporation Alder Lake-P GT2 [Iris Xe Graphics] (rev 0c)",
         "no-nvidia-gpu|In the Dockerfile: ", "`RUN`"),
        # --- a Jetson's image ---
        ("host:~$ sudo docker run -it nvcr.io/nvidia/l4t-pytorch:r32.4.2-pth1.5-py3\nroot@host:/# python3\n"
         '  File "/usr/local/lib/python3.6/dist-packages/torch/__init__.py", line 93, in <module>\n'
         "OSError: libnvToolsExt.so.1: cannot open shared object file: No such file or directory",
         "jetson-wrong-wheel|--runtime nvidia|\ncat /etc/nv_tegra_release", "Keep the image"),
        # --- the driver ---
        *((f"OS: Ubuntu {release} LTS\nNvidia driver version: 410.104\nPyTorch version: 1.5.0+cu102\n"
           "Is CUDA available: False\nGPU 0: Tesla P100-PCIE-16GB", "nvidia.com/drivers", "apt install")
          for release in ("18.04.3", "20.04", "21.04")),
        *((f"{job}nvidia-smi\n{NO_MODULE}", "administrators", "sudo")
          for job in ("#SBATCH --partition=a100\n$ ", "I start it through slurm, and in the job:\n$ ",
                      "$ srun -p gpu ")),
        (f"{NO_MODULE}\n{IN_USE}", "driver-not-loaded|blacklist nouveau", ""),
        (f"[me@login02 ~]$ nvidia-smi\n{NOT_FOUND}", "srun --gres=gpu:1", "nstall the NVIDIA driver"),
        (f"{STUB}\nLD_LIBRARY_PATH=/usr/local/cuda/lib64/stubs", "libcuda-stub|LD_LIBRARY_PATH", "unknown"),
        # --- what is there ---
        ("torch 2.6.0+cu124, RTX 3080\nAssertionError: Torch not compiled with CUDA enabled",
         "The torch that runs|torch.__file__", "gpusetup install"),
        (f"glibc 2.27, Python 3.12.4, RTX 2080 Ti\n{NO_SUCH_TAG}", "glibc-too-old|torch 2.6.0", "uv venv"),
        # --- whose torch it is ---
        (SYSTEMS_TORCH.format("/usr/local/lib/python3.8/dist-packages"),
         "pip uninstall -y torchaudio\n", "whl/|torch=="),
        (COMPILED.format(r"D:\My Tools\.venv\Lib\site-packages\torch\x.py"),
         r'--python "D:\My Tools\.venv\Scripts\python.exe"', ""),
        *((COMPILED.format(file), "\n", "--python ") for file in NOT_A_TARGET),
        # --- a notebook that was lent ---
        *((f"{said}\n{NO_DRIVER}", f"{lender}|{LENDERS[lender].gives_a_gpu}", "")
          for said, lender in (
              ("I run this on Google Colab with a T4", "Google Colab"),
              ("Kaggle notebook with P100", "Kaggle"),
              ("in a Kaggle session", "Kaggle"))),
        *((f"{said}\n{NO_DRIVER}", "nstall the NVIDIA driver", "otebook")
          for said in (
              "it works on Colab, but not on my own machine",
              "the data are from Kaggle",
              "https://colab.research.google.com/github/x/y")),
        (f"{LENT}\nAssertionError: Torch not compiled with CUDA enabled\ntorch 2.5.1+cpu",
         "restart the session (Runtime, Restart session)|\n!gpusetup install", ""),
    ],
)  # fmt: skip
def test_the_way_out_is_of_what_the_text_shows(text: str, has: str, never: str) -> None:
    assert misses(text, has, never) == []


TWO_CUDAS = (
    "torch 2.6.0+cu124, RTX A6000\nInstalled CUDA version 11.5 does not match the version torch was "
    "compiled with 12.4"
)


def test_what_is_recommended_is_what_the_fix_means() -> None:
    assert misses(TWO_CUDAS, "cuda-12.4", "") == []
    assert answered(TWO_CUDAS).resolution.backend != "cu118"
