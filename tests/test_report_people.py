"""What people say around the programs' output: sentences, pieces, and what only looks alike."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from report_asked import judged

from gpusetup.catalog.file import load_catalog
from gpusetup.commands.doctor_answer import document
from gpusetup.model.machine import Snapshot
from gpusetup.render.markdown import doctor_markdown
from gpusetup.report.read import read_report

LIMIT_SECONDS = 60


def read(text: str) -> Snapshot:
    return read_report(text)


def ids(text: str) -> set[str]:
    return {finding.id for finding in judged(text).findings}


@pytest.mark.parametrize("verb", ("returns", "is always", "i still get", "just prints", "->"))
def test_a_sentence_says_that_cuda_is_not_available(verb: str) -> None:
    assert read(f"here torch.cuda.is_available() {verb} False").torch.cuda_available is not None


@pytest.mark.parametrize(
    "text",
    (
        "torch.cuda.is_available() should not be False",
        "torch.cuda.is_available() returns True instead of False",
        "if you get CUDA out of memory, lower the batch size",
        "if (status != CUDNN_STATUS_SUCCESS) return",
    ),
)
def test_advice_and_code_are_no_failure(text: str) -> None:
    assert not read(text).events
    assert read(text).torch.cuda_available is not False


def test_a_status_of_a_library_alone_explains_nothing_and_is_not_ok() -> None:
    text = "GPU: Tesla T4\nRuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"
    assert judged(text).cause == "unknown"
    assert ids(text) == {"cuda-library-error"}


def test_an_illegal_access_is_the_programs_where_nothing_else_shows() -> None:
    diagnosis = judged("RuntimeError: CUDA error: an illegal memory access was encountered")
    assert [(f.id, f.explained_by) for f in diagnosis.findings] == [("cuda-program-error", None)]


def test_the_versions_that_somebody_tells_are_explained() -> None:
    text = "nvidia-smi shows CUDA Version 12.4 but nvcc --version says 11.8, torch.version.cuda is 12.1"
    machine = read(text)
    assert (machine.driver.cuda, machine.toolkit.nvcc, machine.torch.cuda) == (
        "12.4",
        "11.8",
        "12.1",
    )
    assert "cuda-versions-differ" in ids(text)


def test_a_piece_of_the_long_log_is_read_without_its_head() -> None:
    machine = read(
        "    Product Name                          : NVIDIA GeForce RTX 2060\n"
        "    FB Memory Usage\n        Total                             : 6144 MiB\n"
        "    Driver Version: 525.78.01\nCUDA Version                              : 12.0"
    )
    assert (machine.driver.version, machine.driver.cuda) == ("525.78.01", "12.0")
    assert [(g.name, g.memory_total_bytes) for g in machine.gpus or ()] == [
        ("NVIDIA GeForce RTX 2060", 6144 << 20)
    ]


@pytest.mark.parametrize(
    ("own", "driver", "wsl"),
    (("515.65.01", "516.94", True), ("460.27.04", "418.67", None), ("418.67", "418.67", None)),
)
def test_wsl_has_the_newer_branch_of_windows(own: str, driver: str, wsl: bool | None) -> None:
    banner = f"| NVIDIA-SMI {own}    Driver Version: {driver}       CUDA Version: 11.6     |"
    assert read(banner).os.wsl is wsl


@pytest.mark.parametrize(
    ("text", "version"),
    (
        ("CUDA used to build PyTorch: 11.4\nROCM used to build PyTorch: N/A", None),
        ("Torch 2.0.1+cu118 is running", "2.0.1+cu118"),
        ("please install torch 2.0.1+cu118", None),
        ("torch.cuda.is_available() False, 2.12.0+cpu", "2.12.0+cpu"),
        ("torch.cuda.is_available() is False with 2.6.0+cu124", "2.6.0+cu124"),
        ("2.6.0+cu124 | torch.cuda.is_available() False", "2.6.0+cu124"),
        ("torch.cuda.device_count() 0 / 2.12.0+cpu", "2.12.0+cpu"),
        ("torch.cuda.is_available() False, torchvision 0.27.0+cpu", None),
        ("torch.cuda.is_available() False, torchaudio 2.6.0+cpu", None),
    ),
)
def test_torch_is_what_is_there_not_what_built_or_what_is_wanted(
    text: str, version: str | None
) -> None:
    assert read(text).torch.version == version


def test_the_properties_of_a_device_are_a_gpu() -> None:
    said = (
        "_CudaDeviceProperties(name='Tesla V100-DGXS-32GB', major=7, minor=0, total_memory=32508MB)"
    )
    (gpu,) = read(said).gpus or ()
    assert (gpu.name, str(gpu.compute_capability)) == ("Tesla V100-DGXS-32GB", "7.0")
    assert gpu.memory_total_bytes == 32508 << 20


def test_memory_behind_a_name_is_no_part_of_it() -> None:
    (gpu,) = read("GPU: RTX 4090 24G memory").gpus or ()
    assert gpu.name == "RTX 4090"


def test_one_gpu_in_two_warnings_is_one() -> None:
    text = (
        "Found GPU0 Tesla P100-PCIE-16GB which is of cuda capability 6.0.\n"
        "Tesla P100-PCIE-16GB with CUDA capability sm_60 is not compatible with the current PyTorch "
        "installation. The current PyTorch install supports CUDA capabilities sm_70 sm_90."
    )
    assert len(read(text).gpus or ()) == 1


@pytest.mark.parametrize(
    ("path", "family"),
    (
        ("C:/Users/me/x.obj", "windows"),
        ("/Users/me/x.py", "macos"),
        ("/home/me/x.py", "linux"),
        ("/usr/x/y /opt/x/y\nPress any key to continue . . .", "windows"),
        ("/home/me/x.py, {WindowsPath('/usr/local/cuda/lib64')}", "windows"),
        ('File "/usr/lib/x.py", line 1\nFile "/usr/lib/y.py", line 2\n C:\\a\\x.py', "linux"),
    ),
)
def test_a_path_tells_the_system(path: str, family: str) -> None:
    assert read(f"in ({path})").os.family == family


def test_triton_tells_which_gpu_it_compiles_for() -> None:
    text = "ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'"
    assert [str(gpu.compute_capability) for gpu in read(text).gpus or ()] == ["12.0"]
    assert judged(text).resolution.build.backend == "cu129"


def test_a_lent_notebook_is_given_no_driver_to_install() -> None:
    text = 'File "/kaggle/working/run.py"\nRuntimeError: Found no NVIDIA driver on your system.'
    (finding,) = judged(text).findings
    assert finding.title.startswith("Kaggle")
    assert finding.fix.commands == () and not finding.fix.needs_root


def test_a_torch_that_is_there_is_not_prescribed_against_its_own_compiler() -> None:
    text = (
        "PyTorch version: 2.10.0+cu130\nPython platform: Linux-6.8.12-tegra-aarch64-with-glibc2.39\n"
        "GPU models and configuration: GPU 0: NVIDIA Thor\nNvidia driver version: 580.00\n"
        "ptxas fatal   : Value 'sm_110a' is not defined for option 'gpu-name'"
    )
    root = judged(text).findings[0]
    assert root.id == "jit-arch-rejected"
    assert root.fix.text.startswith("Let Triton use a newer toolkit's ptxas")
    assert not any("install" in command for command in root.fix.commands)


@pytest.mark.parametrize("board", ("R35 (release), REVISION: 4.1", "L4T 35.4.1", "JetPack 5.1.2"))
def test_every_name_of_a_jetsons_release_finds_its_wheels(board: str) -> None:
    text = f"Jetson AGX Orin, # {board}\ntorch.cuda.is_available(): False"
    (root, *_) = judged(text).findings
    assert root.id == "jetson-wrong-wheel"
    assert any("jp/v512" in command for command in root.fix.commands)


def test_what_torch_asked_for_is_told_in_the_title() -> None:
    text = (
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB "
        "of which 17.75 MiB is free."
    )
    root = judged(text).findings[0]
    assert root.title.endswith("2.0 GiB more were asked for, it has 23.6 GiB")


@pytest.mark.parametrize("said", ("i am using wsl on windows 10", "installed in my WSL 2"))
def test_somebody_is_in_wsl(said: str) -> None:
    assert read(said).os.wsl is True


def test_outside_of_the_container_is_inside_one() -> None:
    text = "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\nI can run it outside docker"
    assert read(text).container.kind == "docker"
    assert judged(text).cause == "container-no-gpu"


def test_a_variable_that_torch_advises_is_not_set() -> None:
    text = "RuntimeError: CUDA error: invalid configuration argument\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1"
    assert read(text).environment == {}
    assert ids(text) == {"cuda-program-error"}


def test_a_reply_without_a_cause_says_what_to_do_all_the_same() -> None:
    diagnosis = judged("RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED")
    lines = doctor_markdown(document(diagnosis, load_catalog())).splitlines()
    assert lines[0].startswith("**unknown**")
    assert "export CUDA_LAUNCH_BLOCKING=1" in lines


@pytest.mark.parametrize(
    ("said", "names"),
    (
        ("my device is RTX 5090 with pytorch 2.6", ["RTX 5090"]),
        ("I am using a single NVIDIA V100 here", ["V100"]),
        ("works on an RTX 3090 but fails on an RTX 5090", ["RTX 5090"]),
    ),
)
def test_the_one_gpu_that_somebody_speaks_of_is_read(said: str, names: list[str]) -> None:
    assert [gpu.name for gpu in read(said).gpus or ()] == names


@pytest.mark.parametrize(
    ("said", "driver"),
    [
        ("My driver is 572.70, what now?", "572.70"),
        ("drivers 516.94 (the latest)", "516.94"),
        ("all drivers are up to date (551.86)", "551.86"),
        ("Display driver: 31.0.15.3699", "536.99"),
        ("please install driver 525.60.13 or newer", None),
        ("this needs an NVIDIA driver >= 525.60.13", None),
        ("Minimum driver: 525.60.13", None),
        ("your driver 470.82.01 is too old, it requires driver 525.60.13", "470.82.01"),
        ("Intel display driver 31.0.101.4502", None),
    ],
)
def test_a_driver_that_is_there_is_told_from_one_that_is_asked_for(
    said: str, driver: str | None
) -> None:
    assert read(said).driver.version == driver


@pytest.mark.parametrize(
    "said",
    [
        ">>> torch.cuda.get_device_name(0)\n'Tesla T4'\n>>> ",
        "torch.cuda.get_device_name(0) -> Tesla T4",
        'print(torch.cuda.get_device_name(0))\n"Tesla T4"',
    ],
)
def test_the_name_that_torch_gave_is_the_gpus(said: str) -> None:
    assert [gpu.name for gpu in read(said).gpus or ()] == ["Tesla T4"]


@pytest.mark.parametrize(
    "said", ["On Ubuntu 22.04, python 3.8. It fails", "Python v3.8", "python: 3.8"]
)
def test_a_python_in_a_sentence_is_read(said: str) -> None:
    assert (read(said).python.version or "").startswith("3.8")


ENDLESS = (
    "requires " * 20_000 + "driver",
    "driver is " * 20_000,
    "cuda.is_available() " + "is " * 40_000,
    "nvidia-smi " + "shows the " * 20_000,
    "_STATUS_" * 20_000,
    "CUBLAS_STATUS_NOT_SUPPORTED " + "a" * 60_000,
    "x.cu:1: " + "block: [1,1,1], thread: [" * 8_000,
    "No such file or directory: 'C:\\torchinductor" + "a" * 90_000,
    "NVML_SUCCESS == " * 8_000,
    "ptxas --gpu-name=sm_" * 8_000,
    "    Product Name " + " " * 90_000 + ":",
    "CUDA Version" + " " * 90_000,
    "Connect to " * 12_000,
    "_CudaDeviceProperties(name='" * 8_000,
    "on my Mac" * 20_000,
)


SPOKEN = "\nI am using an RTX 3090 here.\n"


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: GPU 0000:05:00.0: RmInitAdapter failed! (0x26:0x56:1482)",
        "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA "
        "GPU and installed a driver",
        "In the container, with /.dockerenv:\n$ nvidia-smi\nbash: nvidia-smi: command not found\n"
        ">>> torch.cuda.is_available()\nFalse",
    ],
)
def test_a_gpu_that_is_only_spoken_of_answers_for_no_driver(text: str) -> None:
    alone = judged(text).cause
    assert alone not in ("ok", "unknown")
    assert judged(text + SPOKEN).cause == alone


APART = """
import json, sys
sys.path[:0] = {paths!r}
from gpusetup.render.markdown import doctor_markdown
from gpusetup.report.read import read_report
for text in json.load(sys.stdin):
    read_report(text)
print("done")
"""


def test_no_sentence_makes_a_pattern_slow() -> None:
    script = APART.format(paths=[str(Path(__file__).resolve().parent.parent)])
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=json.dumps(ENDLESS),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.stdout == "done\n", done.stderr[-2000:]
