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
from gpusetup.render.doctor import main_finding
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
                and not line.startswith("On the Linux system that this message")
            ]
    assert asked > 200 and wrong == []


def way_of(text: str) -> Fix:
    seen = main_finding(answered(text))
    assert seen is not None and seen.fix is not None
    return seen.fix


@each(
    "said",
    [
        "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",
        "Failed to initialize NVML: Driver/library version mismatch",
    ],
)
def test_in_wsl_the_driver_is_windows_and_a_linux_driver_is_removed(said: str) -> None:
    fix = way_of(f"Ubuntu 22.04 on WSL2, Windows 11\n{said}")
    assert "wsl.exe --shutdown" in fix.commands and not fix.needs_reboot
    assert "`sudo apt purge" in fix.text
    beside = way_of(f"Ubuntu 22.04\n{said}")
    assert not any("wsl" in line for line in command_lines(beside))


# --- what the text itself decides ----------------------------------------------------------------

SYSTEMS_TORCH = (
    '  File "{}/torch/_ops.py", line 573, in load_library\nOSError: /home/me/.local/lib/python3.8/'
    "site-packages/torchaudio/lib/libtorchaudio.so: undefined symbol: _ZN5torch8autograd4NodeE"
)


NO_MODULE = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that "
    "the latest NVIDIA driver is installed and running."
)


ASSERTED = "RuntimeError: CUDA error: device-side assert triggered"
CPU_BUILD = "AssertionError: Torch not compiled with CUDA enabled"


@each(
    "text, has, never",
    [
        (ASSERTED, "export CUDA_LAUNCH_BLOCKING=1", "set "),
        (f"PS C:\\> python a.py\n{ASSERTED}", "$env:CUDA_LAUNCH_BLOCKING", "export"),
        (f"Driver: 535\nRTX 4090\n{CPU_BUILD}", "cu126|found: 535", "cu13"),
        (f"RTX 5070 Ti\n{CPU_BUILD}", "cu129|570 or newer", "cu126"),
        (f"CUDA_VISIBLE_DEVICES=NoDevFiles\n{UNAVAILABLE}\nGPU 0: NVIDIA L4 (UUID: GPU-a)",
         "--gres=gpu:1", "unset"),
    ],
)  # fmt: skip
def test_words_of_a_text_decide_the_shell_the_python_and_the_build(
    text: str, has: str, never: str
) -> None:
    fix = way_of(text)
    shown = "\n".join((fix.text, *command_lines(fix)))
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
COMPILED = 'File "{}", line 310\nAssertionError: Torch not compiled with CUDA enabled'


@each(
    "text, has, never",
    [
        (f"docker run --rm --gpus 0 my/image python train.py\n{NO_DRIVER}", "container-no-gpu", ""),
        (f"{TRACED}\n{LIBRARY}", "\nAnother package, not torch", "gpusetup install"),
        # --- torch moves with the program that requires it ---
        (f"$ vllm serve Qwen/Qwen3-8B\n{TOO_NEW}", "\ngpusetup install vllm\n", ""),
        # --- what is built ---
        (f"{NO_CONDA}\nAssertionError: Torch not compiled with CUDA enabled",
         "torch-cpu-build", "conda-missing"),
        (ISOLATED, "build-isolation-no-torch|--no-build-isolation", ""),
        # --- a Dockerfile ---
        (f"kubectl logs a\nRTX 4090\n{CPU_BUILD}", "-m pip", ""),
        *((f"{job}nvidia-smi\n{NO_MODULE}", "administrators", "sudo")
          for job in ("#SBATCH --partition=a100\n$ ", "I start it through slurm, and in the job:\n$ ",
                      "$ srun -p gpu ")),
        (f"[me@login02 ~]$ nvidia-smi\n{NOT_FOUND}", "srun --gres=gpu:1", "nstall the NVIDIA driver"),
        # --- whose torch it is ---
        (SYSTEMS_TORCH.format("/usr/local/lib/python3.8/dist-packages"),
         "pip uninstall -y torchaudio\n", "whl/|torch=="),
        (COMPILED.format(r"D:\My Tools\.venv\Lib\site-packages\torch\x.py"),
         r'--python "D:\My Tools\.venv\Scripts\python.exe"', ""),
        # --- a notebook that was lent ---
        *((f"{said}\n{NO_DRIVER}", f"{lender}|{LENDERS[lender]}", "")
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
         "restart the session|\n!gpusetup install", ""),
    ],
)  # fmt: skip
def test_the_way_out_is_of_what_the_text_shows(text: str, has: str, never: str) -> None:
    assert misses(text, has, never) == []
