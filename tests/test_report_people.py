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


def test_an_illegal_access_is_the_programs_where_nothing_else_shows() -> None:
    diagnosis = judged("RuntimeError: CUDA error: an illegal memory access was encountered")
    assert [(f.id, f.explained_by) for f in diagnosis.findings] == [("cuda-program-error", None)]


def test_the_properties_of_a_device_are_a_gpu() -> None:
    said = (
        "_CudaDeviceProperties(name='Tesla V100-DGXS-32GB', major=7, minor=0, total_memory=32508MB)"
    )
    (gpu,) = read(said).gpus or ()
    assert gpu.name == "Tesla V100-DGXS-32GB"


def test_a_variable_that_torch_advises_is_not_set() -> None:
    text = "RuntimeError: CUDA error: invalid configuration argument\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1"
    assert read(text).environment == {}
    assert ids(text) == {"cuda-program-error"}


def test_a_reply_without_a_cause_says_what_to_do_all_the_same() -> None:
    diagnosis = judged("RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED")
    lines = doctor_markdown(document(diagnosis, load_catalog())).splitlines()
    assert lines[0].startswith("**unknown**")
    assert "export CUDA_LAUNCH_BLOCKING=1" in lines


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
