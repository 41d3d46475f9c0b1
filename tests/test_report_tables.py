"""Tables that programs print of torch, and what people write of their machine in any language."""

from __future__ import annotations

import pytest
from each_row import each
from report_asked import misses

from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.report.read import read_report

RTX = "NVIDIA GeForce RTX 2080 Ti"


def names(said: str) -> list[str]:
    return [gpu.name for gpu in read_report(said).gpus or ()]


def cause(said: str) -> str:
    return diagnose(read_report(said), load_catalog()).cause


@pytest.mark.parametrize(
    ("dash", "star"), [("- ", "* "), ("", "")], ids=["with dashes", "as it was before 1.0"]
)
def test_lightnings_table_tells_whether_torch_has_cuda(dash: str, star: str) -> None:
    gpus = f"\t\t{dash}{RTX}\n"
    said = (
        f"{star}CUDA:\n\t{dash}GPU:\n{gpus}\t{dash}available:  True\n\t{dash}version:  11.7\n"
        f"{star}System:\n\t{dash}OS:  Linux\n\t{dash}python:  3.10.9\n"
    )
    machine = read_report(said)
    assert (machine.torch.cuda_available, machine.torch.cuda) == (True, "11.7")


MINE = (
    ("显卡：RTX 3060\n驱动版本：531.79\nPython 版本：3.11.4\ntorch版本：2.1.0+cpu", "zh"),
    ("|显卡|RTX 3060|\n|驱动|531.79|\n|Python|3.11.4|\n|torch|2.1.0+cpu|", "zh table"),
    ("グラボはRTX 3060\nドライバー：531.79\nPython バージョン：3.11.4\ntorch バージョン：2.1.0+cpu", "ja"),
    ("그래픽카드: RTX 3060\n드라이버 버전: 531.79\n파이썬 버전: 3.11.4\ntorch 버전: 2.1.0+cpu", "ko"),
    ("Видеокарта RTX 3060, драйвер 531.79, версия python: 3.11.4, версия torch: 2.1.0+cpu", "ru"),
    ("Ich habe eine RTX 3060, Treiber 531.79, Python Version 3.11.4, torch Version: 2.1.0+cpu", "de"),
    ("J'ai une RTX 3060 (pilote 531.79), Python version 3.11.4, torch version: 2.1.0+cpu", "fr"),
    ("GPU: RTX 3060\nNVIDIA-SMI 531.79\nPython ver: 3.11.4\ntorch ver: 2.1.0+cpu", "en"),
)  # fmt: skip


@pytest.mark.parametrize("said", [one for one, _ in MINE], ids=[name for _, name in MINE])
def test_a_machine_is_read_in_the_words_of_its_owner(said: str) -> None:
    machine = read_report(said)
    assert names(said) == ["RTX 3060"]
    assert machine.driver.version == "531.79"
    assert machine.python.version == "3.11.4"
    assert machine.torch.version == "2.1.0+cpu"
    assert cause(said) == "torch-cpu-build"


def test_the_web_uis_own_words_are_known() -> None:
    said = diagnose(
        read_report("RuntimeError: Torch is not able to use GPU; add --skip"), load_catalog()
    )
    assert (said.cause, said.symptom) == ("unknown", "torch-sees-no-gpu")


@pytest.mark.parametrize(("torch", "said"), [("1.13.1+cu117", False), ("2.0.1+cu117", True)])
def test_torch_compile_is_missed_only_where_it_exists(torch: str, said: bool) -> None:
    table = (
        f"PyTorch version: {torch}\nIs CUDA available: True\n"
        "GPU models and configuration: GPU 0: GeForce GTX 980\n"
    )
    found = diagnose(read_report(table), load_catalog()).findings
    assert any(one.id == "gpu-too-old-for-triton" for one in found) is said


def test_cublas_words_of_old_torch_are_its_status_of_today() -> None:
    said = "RuntimeError: cublas runtime error : the GPU program failed to execute at THCBlas.cu:9"
    statuses = [event.values.get("status") for event in read_report(said).events]
    assert "CUBLAS_STATUS_EXECUTION_FAILED" in statuses


XFORMERS = (
    "xFormers 0.0.30\nmemory_efficient_attention.cutlassF:  unavailable\n"
    "pytorch.version:   2.7.0+cu128\npytorch.cuda:      available\ngpu.compute_capability:   7.5\n"
    f"gpu.name:   {RTX}\nbuild.info:   available\nbuild.torch_version:   2.6.0+cu124\n"
)
ENV = "PyTorch version: N/A\nOS: Ubuntu 24.04 LTS\nPython version: 3.12.3\n"
IN_TORCH = (
    '  File "/home/me/venv/lib/python3.12/site-packages/torch/__init__.py", line 4\n'
    "ImportError: /home/me/venv/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so: "
    "undefined symbol: ncclCommAny\n"
)
DIFFERS = "Installed CUDA version 11.3 does not match the version torch was compiled with 11.8"
SEES = "PyTorch version: 2.7.0+cu128\nIs CUDA available: True\n"
OLD_PYTHON = (
    "/opt/conda/lib/python3.6/site-packages/torch/cuda/__init__.py:106: UserWarning:\n"
    "NVIDIA GeForce RTX 3090 with CUDA capability sm_86 is not compatible with the current "
    "PyTorch installation.\nThe current PyTorch install supports CUDA capabilities sm_37 sm_70."
)
THOR = (
    "PyTorch version: 2.10.0+cu130\nPython platform: Linux-6.8.12-tegra-aarch64-with-glibc2.39\n"
    "GPU models and configuration: GPU 0: NVIDIA Thor\nNvidia driver version: 580.00\n"
    "ptxas fatal   : Value 'sm_110a' is not defined for option 'gpu-name'"
)
ORIN = "Jetson AGX Orin, # {}\ntorch.cuda.is_available(): False"


@each(
    "text, has, never",
    [
        (XFORMERS, "\nok\n", ""),
        (ENV, "torch-missing", ""),
        (IN_TORCH + ENV, "ld-library-path-conflict", ""),
        (f"{DIFFERS}, unable to compile", "cuda-toolkit-mismatch-extension-build", ""),
        (f"{DIFFERS} but since the APIs are compatible, accepting this combination",
         "\nunknown\n", ""),
        (f"torch.cuda.is_available() returns False\n{SEES}", "which Python", ""),
        (f"RuntimeError: No CUDA GPUs are available\n{SEES}", "sets CUDA_VISIBLE_DEVICES", ""),
        (OLD_PYTHON, "uv venv --python", "another GPU"),
        ("My GPU is an RTX 3060, NVIDIA driver version: 531.79. It is slow.", "\nunknown\n", ""),
        ("GPU 0: NVIDIA GeForce RTX 3060 (UUID: GPU-0)\nNVIDIA driver version: 531.79",
         "\nok\n", ""),
        # --- what people say ---
        *((f'the words are vague, {before}"CUDA unknown error"', "\nunknown\n", "")
          for before in ("such as ", "例如 ", "например, ", "e.g. ")),
        ('e.g. "CUDA unknown error"\nRuntimeError: CUDA unknown error', "cuda-unknown-error", ""),
        ("GPU: Tesla T4\nRuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
         "\nunknown\n", ""),
        ("ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'", "cu129", "cu126"),
        ('File "/kaggle/working/run.py"\nRuntimeError: Found no NVIDIA driver on your system.',
         "\nKaggle", "sudo"),
        (THOR, "jit-arch-rejected|\nLet Triton use a newer toolkit's ptxas", " install "),
        *((ORIN.format(board), "jetson-wrong-wheel|jp/v512", "")
          for board in ("R35 (release), REVISION: 4.1", "L4T 35.4.1", "JetPack 5.1.2")),
        ("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB "
         "of which 17.75 MiB is free.", "2.0 GiB more were asked for, it has 23.6 GiB\n", ""),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\nI can run it outside "
         "docker", "container-no-gpu", ""),
    ],
)  # fmt: skip
def test_what_is_told_of_the_cause(text: str, has: str, never: str) -> None:
    assert misses(text, has, never) == []
