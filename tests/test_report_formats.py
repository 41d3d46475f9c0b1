"""The formats that people paste: what each shows is read, in all its versions."""

from __future__ import annotations

from itertools import product

import pytest
from each_row import each
from machines_named import machine_named
from writers import (
    collect_env,
    conda_list,
    machines,
    pip_list,
    pip_refusal,
    smi_csv,
    smi_list,
    smi_query,
    smi_table,
    traceback,
)

from gpusetup.model.machine import Snapshot
from gpusetup.model.versions import Capability
from gpusetup.report.read import read_report

WITH_GPUS = tuple(m for m in machines() if m.gpus and m.driver.version and m.os.family != "macos")
LAPTOP = machine_named("rtx3050-laptop")


def names(machine: Snapshot) -> list[str]:
    return [gpu.name for gpu in machine.gpus or ()]


@each("machine, form", product(machines(), ["new", "old", "vllm"]))
def test_collect_env_gives_back_the_machine(machine: Snapshot, form: str) -> None:
    read = read_report(collect_env(machine, form=form))
    assert names(read) == names(machine)
    assert read.driver.version == machine.driver.version
    assert read.torch.version == (machine.torch.version if machine.torch.installed else None)
    assert read.torch.installed is bool(machine.torch.installed)
    assert read.os.family == machine.os.family
    assert (machine.python.version or "3").startswith((read.python.version or "-")[:3])


@each("machine, form", product(WITH_GPUS, ["new", "old", "610"]))
def test_a_table_gives_back_its_gpus(machine: Snapshot, form: str) -> None:
    read = read_report(smi_table(machine, form=form))
    assert read.driver.version == machine.driver.version
    assert read.driver.cuda == machine.driver.cuda
    shown = [(gpu.memory_total_bytes or 0) >> 20 for gpu in machine.gpus or ()]
    assert [(gpu.memory_total_bytes or 0) >> 20 for gpu in read.gpus or ()] == shown
    for own, whole in zip(names(read), names(machine), strict=True):
        assert whole.startswith(own.removesuffix("..."))


@pytest.mark.parametrize("write", [smi_list, smi_csv, smi_query])
def test_lists_csv_and_query_give_back_their_gpus(write) -> None:  # type: ignore[no-untyped-def]
    for machine in WITH_GPUS:
        assert names(read_report(write(machine))) == names(machine)


def test_a_cut_name_is_made_whole_by_another_block() -> None:
    text = smi_table(LAPTOP, form="old") + "\n\n" + smi_list(LAPTOP)
    assert names(read_report(text)) == names(LAPTOP)


def test_two_tables_of_one_machine_are_one_list() -> None:
    table = smi_table(LAPTOP)
    assert len(read_report(f"{table}\n\n{table}").gpus or ()) == 1


def test_a_traceback_names_python_and_system() -> None:
    read = read_report(traceback(machine_named("healthy"), "RuntimeError: boom"))
    python = (machine_named("healthy").python.version or "").rpartition(".")[0]
    assert (read.os.family, read.python.version) == ("linux", python)
    assert read_report(traceback(LAPTOP, "RuntimeError: boom")).os.family == "windows"


def test_pip_list_gives_versions_and_the_build() -> None:
    read = read_report(pip_list(LAPTOP))
    assert read.torch.version == LAPTOP.torch.version
    assert read.torch.backend == "cpu"


def test_conda_list_tells_who_installed_torch() -> None:
    both = machine_named("conda-and-pip")
    read = read_report(conda_list(both) + "\n" + pip_list(both))
    assert {p.installer for p in read.packages or () if p.name in ("torch", "pytorch")} == {
        "conda",
        "pip",
    }


def test_condas_build_string_says_cpu() -> None:
    read = read_report("pytorch    2.2.2    py3.10_cpu_0    pytorch\n")
    assert (read.torch.version, read.torch.backend) == ("2.2.2", "cpu")


# --- what other programs print --------------------------------------------------------------------

FACTS = (
    ("Ultralytics 8.3.40 Python-3.11.9 torch-2.6.0+cpu CPU", "torch.version", "2.6.0+cpu"),
    ("YOLOv5 v7.0 Python-3.9.13 torch-1.12.1+cu116 CUDA:0 (NVIDIA GeForce RTX 3060, 12288MiB)", "torch.cuda", "11.6"),
    ("- PyTorch version (GPU?): 2.1.0+cu121 (True)", "torch.cuda_available", True),
    ("torch version .................... 2.0.1+cu117\ntorch cuda version ............... 11.7", "torch.version", "2.0.1+cu117"),
    (">>> torch.__version__\n'1.13.1+cu117'", "torch.version", "1.13.1+cu117"),
    ("Name: torch\nVersion: 2.4.0+cu121\nSummary: Tensors", "torch.version", "2.4.0+cu121"),
    ("Successfully installed filelock-3.13 torch-2.5.1 triton-3.1.0", "torch.version", "2.5.1"),
    ("Installed 12 packages in 1s\n + torch==2.5.1+cu124", "torch.version", "2.5.1+cu124"),
    ("Requirement already satisfied: torch in ./venv/lib (2.3.0+cu118)", "torch.version", "2.3.0+cu118"),
    ("Python 3.10.6 (tags/v3.10.6:9c7b4bd, Aug  1 2022, 21:53:49) [MSC v.1932 64 bit (AMD64)]", "python.version", "3.10.6"),
    ("Python 3.8.10 (tags/v3.8.10, May 3 2021) [MSC v.1928 32 bit (Intel)] on win32", "python.bits", 32),
    ("Using CPython 3.13.1 interpreter at: /usr/bin/python3.13", "python.version", "3.13.1"),
    ("Cuda compilation tools, release 12.4, V12.4.131", "toolkit.nvcc", "12.4"),
    ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12", "driver.version", "535.183.01"),
    ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build", "driver.open_module", True),
    ('PRETTY_NAME="Ubuntu 22.04.4 LTS"', "os.name", "Ubuntu 22.04.4 LTS"),
    ("Linux box 5.15.167.4-microsoft-standard-WSL2 #1 SMP x86_64 GNU/Linux", "os.wsl", True),
    ("# R35 (release), REVISION: 3.1, GCID: 32827747, BOARD: t186ref", "os.jetson", "R35 (release), REVISION: 3.1"),
    ("SecureBoot enabled", "os.secure_boot", True),
    ("max locked memory       (kbytes, -l) 64", "memory.memlock_bytes", 65536),
    ("$ CUDA_VISIBLE_DEVICES=-1 python train.py", "environment.CUDA_VISIBLE_DEVICES", "-1"),
    ("os.environ['CUDA_VISIBLE_DEVICES'] = '0,1'", "environment.CUDA_VISIBLE_DEVICES", "0,1"),
    ("RuntimeError: The NVIDIA driver on your system is too old (found version 11040).", "driver.cuda", "11.4"),
    ("root@0123456789ab:/workspace# python x.py", "container.kind", "docker"),
    ("$ kubectl exec -it pod -- nvidia-smi", "container.kind", "kubernetes"),
)  # fmt: skip


@each("text, subject, value", FACTS)
def test_a_program_tells_a_fact(text: str, subject: str, value: object) -> None:
    part, _, name = subject.partition(".")
    read = getattr(read_report(text), part)
    assert (read[name] if part == "environment" else getattr(read, name)) == value


def test_the_pci_bus_and_the_driver_that_holds_a_card() -> None:
    text = (
        "01:00.0 VGA compatible controller: NVIDIA Corporation GA106M [GeForce RTX 3060] (rev a1)\n"
        "\tSubsystem: ASUSTeK Computer Inc. Device 1a4c\n"
        "\tKernel driver in use: nouveau\n"
        "06:00.0 VGA compatible controller: Advanced Micro Devices, Inc. [AMD/ATI] Cezanne\n"
        "\tKernel driver in use: amdgpu\n"
    )
    found = read_report(text).pci_devices or ()
    assert [(device.vendor, device.driver) for device in found] == [
        ("nvidia", "nouveau"),
        ("amd", "amdgpu"),
    ]


def test_torchs_warning_gives_gpu_capability_and_kernels() -> None:
    text = (
        "NVIDIA GeForce RTX 5080 with CUDA capability sm_120 is not compatible with the current "
        "PyTorch installation.\nThe current PyTorch install supports CUDA capabilities sm_80 sm_90."
    )
    read = read_report(text)
    assert [(gpu.name, gpu.compute_capability) for gpu in read.gpus or ()] == [
        ("NVIDIA GeForce RTX 5080", Capability(12, 0))
    ]
    assert read.torch.kernels == ("sm_80", "sm_90")


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
    (pip_refusal("torch==1.8.1", "1.13.0, 2.0.0"), "==1.8.1", None, None),
    (pip_refusal("torch", "none", index="https://download.pytorch.org/whl/cu121"), None, "cu121", None),
    ("The detected CUDA version (11.8) mismatches the version that was used to compile\nPyTorch (12.4)", None, None, "11.8"),
    ("pip install numpy", None, None, None),
)  # fmt: skip


@each("text, torch, backend, cuda", WANTED)
def test_the_request_is_read(
    text: str, torch: str | None, backend: str | None, cuda: str | None
) -> None:
    wanted = read_report(text).wanted
    assert (wanted.torch, wanted.backend, wanted.cuda) == (torch, backend, cuda)


def test_pips_versions_are_kept_with_the_refusal() -> None:
    event = read_report(pip_refusal("torch==1.8.1", "1.13.0, 2.0.0")).events[0]
    assert event.kind == "no-matching-distribution"
    assert event.values == {
        "requirement": "torch==1.8.1",
        "none_found": "false",
        "versions": "1.13.0, 2.0.0",
    }


def test_the_licensed_product_of_a_vgpu_is_no_gpu() -> None:
    licence = (
        "    vGPU Software Licensed Product\n"
        "        Product Name                      : NVIDIA RTX Virtual Workstation\n"
        "        License Status                    : Unlicensed (Restricted)\n"
    )
    assert read_report(licence).gpus is None
    named = f"    Product Name                          : NVIDIA A40-8Q\n{licence}"
    assert [gpu.name for gpu in read_report(named).gpus or ()] == ["NVIDIA A40-8Q"]


def test_tensorflow_says_both_versions_of_a_driver() -> None:
    said = "libcuda reported version is: 535.54.3\nkernel reported version is: 535.54.3\n"
    driver = read_report(said).driver
    assert (driver.version, driver.library_version) == ("535.54.3", "535.54.3")


def test_dkms_says_which_kernel_it_builds_for() -> None:
    said = "Error! Bad return status for module build on kernel: 6.14.0-37-generic (x86_64)\n"
    assert read_report(said).os.kernel == "6.14.0-37-generic"


@each(
    "text",
    [
        "I use torch 2.6.0 + cu124 on Ubuntu",
        "[pip3] numpy==1.26.4\n[pip3] torch==2.6.0+cu124",
        "Framework & Version: 2.6.0+cu124",
        "Downloading torch-2.6.0%2Bcu124-cp310-cp310-linux_x86_64.whl (768.4 MB)",
        "- __PyTorch version__: 2.6.0+cu124",
    ],
)
def test_a_version_is_read_as_people_and_logs_write_it(text: str) -> None:
    assert read_report(text).torch.version == "2.6.0+cu124"


@each(
    "text, name",
    [
        ("**GPU:** NVIDIA RTX 4090", "RTX 4090"),
        ("We run it on an L20 server", "L20"),
        ("NVIDIA driver 470.256.02, Tesla V100", "Tesla V100"),
        ("|   0  NVIDIA GB10                    On  |", "NVIDIA GB10"),
    ],
)
def test_a_gpu_is_read_from_a_label_a_sentence_and_a_cut_row(text: str, name: str) -> None:
    assert names(read_report(text)) == [name]
