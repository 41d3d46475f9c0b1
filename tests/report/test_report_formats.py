"""The formats that people paste: what each shows is read, in all its versions."""

from __future__ import annotations

from typing import Any

from each_row import each

from gpusetup.model.machine import Snapshot
from gpusetup.report.read import read_report


def names(machine: Snapshot) -> list[str]:
    return [gpu.name for gpu in machine.gpus or ()]


# --- what other programs print --------------------------------------------------------------------

INCOMPATIBLE = (
    "NVIDIA GeForce RTX 5080 with CUDA capability sm_120 is not compatible with the current "
    "PyTorch installation.\nThe current PyTorch install supports CUDA capabilities sm_80 sm_90."
)
FACTS: tuple[tuple[str, str, Any], ...] = (
    ("- PyTorch version (GPU?): 2.1.0+cu121 (True)", "torch.cuda_available", True),
    (">>> torch.__version__\n'1.13.1+cu117'", "torch.version", "1.13.1+cu117"),
    ("Cuda compilation tools, release 12.4, V12.4.131", "toolkit.nvcc", "12.4"),
    ('PRETTY_NAME="Ubuntu 22.04.4 LTS"', "os.name", "Ubuntu 22.04.4 LTS"),
    ("Linux box 5.15.167.4-microsoft-standard-WSL2 #1 SMP x86_64 GNU/Linux", "os.wsl", True),
    ("$ CUDA_VISIBLE_DEVICES=-1 python train.py", "environment.CUDA_VISIBLE_DEVICES", "-1"),
    ("RuntimeError: The NVIDIA driver on your system is too old (found version 11040).", "driver.cuda", "11.4"),
    ("$ kubectl exec -it pod -- nvidia-smi", "container.kind", "kubernetes"),
    (">>> import torch\n2.3.1+cu121 False\n", "torch.cuda_available", False),
    (INCOMPATIBLE, "torch.kernels", ("sm_80", "sm_90")),
    # --- the GPUs ---
    ("- PyTorch version: 2.5.1+cu124 (GPU)\n- GPU type: NVIDIA A40", "gpus", ["NVIDIA A40"]),
    ('File "x.py", line 1050, in main', "gpus", []),
    # --- the driver ---
    ("libcuda reported version is: 535.54.3\nkernel reported version is: 535.54.3\n", "driver.library_version", "535.54.3"),
    ("PyTorch version: 1.4.0\nOS: Mac OSX 10.14.6\n", "os.machine", "x86_64"),
    ("❯ uv pip install torch", "python.manager", "uv"),
)  # fmt: skip


@each("text, subject, value", FACTS)
def test_a_program_tells_a_fact(text: str, subject: str, value: object) -> None:
    part, _, name = subject.partition(".")
    machine = read_report(text)
    if subject == "gpus":
        assert names(machine) == value
        return
    read = getattr(machine, part)
    assert (read[name] if part == "environment" else getattr(read, name)) == value


def test_what_sources_say_is_kept_where_they_differ() -> None:
    text = "PyTorch version: 2.5.1+cu124\n\nName: torch\nVersion: 2.4.0+cu121\n"
    said = [r.value for r in read_report(text).readings if r.subject == "torch.version"]
    assert said[:2] == ["2.5.1+cu124", "2.4.0+cu121"]


# --- the request ----------------------------------------------------------------------------------

WANTED = (
    ("pip install torch==2.5.1 --index-url https://download.pytorch.org/whl/cu121", "==2.5.1", "cu121", None),
    ("uv pip install torch==2.7.1+cu128", "==2.7.1", "cu128", None),
    ("conda install pytorch=2.1 pytorch-cuda=12.1 -c pytorch -c nvidia", "==2.1.*", None, "12.1"),
    ("pip3 install --pre torch --index-url https://download.pytorch.org/whl/nightly/cu130", None, "cu130", None),
    ("pip install numpy", None, None, None),
)  # fmt: skip


@each("text, torch, backend, cuda", WANTED)
def test_the_request_is_read(
    text: str, torch: str | None, backend: str | None, cuda: str | None
) -> None:
    wanted = read_report(text).wanted
    assert (wanted.torch, wanted.backend, wanted.cuda) == (torch, backend, cuda)
