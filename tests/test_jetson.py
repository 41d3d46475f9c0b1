"""Jetson boards: by every name of theirs, live and in texts, with the command that helps."""

from __future__ import annotations

import pytest
from described_machines import machine
from each_row import each
from judging import judged
from machines_named import machine_named

from gpusetup.catalog.file import load_catalog
from gpusetup.catalog.gpus import gpu_described
from gpusetup.catalog.jetpack import board_of, l4t_of
from gpusetup.model.finding import Finding
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Request, Resolution
from gpusetup.model.versions import Capability
from gpusetup.report.read import read_report
from gpusetup.resolver import resolve
from gpusetup.resolver.situation import situation_of

CATALOG = load_catalog()
ANY = Request()


def root_of(snapshot: Snapshot) -> Finding:
    return next(finding for finding in judged(snapshot).findings if finding.root)


def commands_of(finding: Finding) -> str:
    assert finding.fix is not None
    return "\n".join(finding.fix.commands)


@each(
    "said, release",
    [
        ("# R36 (release), REVISION: 4.3, GCID: 38968081", "R36"),
        ("# R39 (release), REVISION: 2.1, GCID: 46758480", "R39"),
        ("L4T 36.4.3", "R36"),
        ("Jetson Linux 36.4.4", "R36"),
        ("Jetson Linux r39.2", "R39"),
        ("ii  nvidia-l4t-core  36.4.7-20250918154033  arm64", "R36"),
        ("nvidia-jetpack  6.2.1+b38  arm64", "R36"),
        ("nvidia-jetpack 7.0-b128", "R38"),
        ("my Jetson Orin Nano on JetPack 6.2", "R36"),
        ("Jetson Orin NX, JetPack 7.2", "R39"),
        ("Jetson Orin NX with JP 7.2.1", "R39"),
        ("Jetson AGX Orin (JP6.1)", "R36"),
        ("JetPack-5.1.2", "R35"),
        ("an AGX Thor", "R38"),
        ("Jetson AGX Thor Developer Kit", "R38"),
        ("Jetson T5000 with JetPack 7.0", "R38"),
        ("GPU 0: NVIDIA Thor", "R38"),
    ],
)
def test_a_boards_release_is_read_in_the_words_of_its_users(said: str, release: str) -> None:
    text = f"{said}\n>>> torch.cuda.is_available()\nFalse"
    assert l4t_of(board_of(read_report(text))) == release


@pytest.mark.parametrize(
    "name",
    [
        "AGX Thor",
        "Jetson AGX Thor",
        "NVIDIA Jetson AGX Thor Developer Kit",
        "Jetson Thor",
        "Thor",
        "T5000",
        "T4000",
    ],
)
def test_thor_is_known_by_its_names(name: str) -> None:
    assert gpu_described(name, CATALOG.gpus).compute_capability == Capability(11, 0)


@pytest.mark.parametrize(
    "name",
    [
        "Jetson AGX Orin",
        "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super",
        "NVIDIA Jetson Orin NX Engineering Reference Developer Kit",
        "Orin Nano Super",
    ],
)
def test_orin_is_known_by_the_names_of_its_device_tree(name: str) -> None:
    assert gpu_described(name, CATALOG.gpus).compute_capability == Capability(8, 7)


# --- the driver is numbered apart ---------------------------------------------------------------


def board(
    name: str, release: str, python: str, cuda: str | None = None, driver: str | None = None
) -> Snapshot:
    made = machine(name, driver=driver, python=python, on="aarch64", libc="glibc 2.39")
    os = replace(made.os, jetson=release)
    return replace(made, os=os, driver=replace(made.driver, cuda=cuda))


def chosen(found: Resolution) -> tuple[str, str] | None:
    return (found.build.torch, found.build.backend) if found.build else None


def test_thor_with_driver_580_00_runs_the_ordinary_wheels() -> None:
    found = resolve(board("NVIDIA Thor", "R38.2.0", "3.12", "13.0", "580.00"), ANY, CATALOG)
    assert chosen(found) == ("2.15.0", "cu130")
    assert found.build is not None and found.build.driver_floor is None
    assert any("JetPack 7 (CUDA 13.0) runs torch's own" in note for note in found.notes)
    assert [served.by for served in found.served] == ["sm_110"]


def test_a_table_that_shows_only_thor_is_of_a_board() -> None:
    text = """
| NVIDIA-SMI 580.00                 Driver Version: 580.00         CUDA Version: 13.0     |
|   0  NVIDIA Thor                    Off |   00000000:01:00.0 Off |                  N/A |
torch 2.9.1+cu130
"""
    assert all(f.id != "driver-too-old" for f in judged(read_report(text)).findings)


def test_orin_runs_the_ordinary_wheels_from_jetpack_7_2_on() -> None:
    assert chosen(resolve(board("Jetson AGX Orin", "R39.2.0", "3.12"), ANY, CATALOG)) == (
        "2.15.0",
        "cu132",
    )
    older = resolve(board("Jetson AGX Orin", "R36.4.0", "3.10"), ANY, CATALOG)
    assert older.build is None and older.advice is not None
    assert (older.advice.to, older.advice.gives) == ("JetPack 7.2", "torch 2.15.0 (cu132)")
    said = {r.reason for r in older.rejections if r.backend == "cu132"}
    assert any("needs a JetPack for CUDA 13.2, found JetPack 6 (CUDA 12.6)" in r for r in said)


def test_no_newer_jetpack_is_promised_to_a_xavier() -> None:
    found = resolve(board("Jetson AGX Xavier", "R35.4.1", "3.8"), ANY, CATALOG)
    assert found.build is None
    assert found.advice is None or "JetPack" not in found.advice.to


def test_a_described_thor_is_no_machine_with_a_driver_that_is_too_old() -> None:
    described = machine("AGX Thor", driver="580.00", python="3.12", on="aarch64")
    assert chosen(resolve(described, ANY, CATALOG)) == ("2.15.0", "cu130")


def test_a_discrete_gpu_beside_a_boards_own_counts_by_its_driver() -> None:
    both = machine("Tesla T4", "Jetson AGX Orin", driver="550.54.14", on="aarch64")
    assert board_of(both) is None
    assert situation_of(both, ANY, CATALOG).jetpack is None


# --- what to do ---------------------------------------------------------------------------------


def test_jetpack_6_gets_nvidias_wheel_and_the_library_that_it_does_not_declare() -> None:
    root = root_of(machine_named("jetson-orin"))
    assert root.id == "jetson-wrong-wheel" and root.fix is not None
    gone, first, second, third, last = root.fix.commands
    assert gone.endswith("uninstall -y torchvision torchaudio")
    assert first.endswith("pip install --no-deps nvidia-cusparselt-cu12")
    assert second.endswith(
        'site-packages/nvidia/cusparselt/lib"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"'
    )
    assert "--find-links https://developer.download.nvidia.com/compute/redist/jp/v61" in third
    assert last.endswith("pip install torch")


def test_jetpack_7_2_gets_torchs_own_wheel_for_an_orin() -> None:
    root = root_of(machine_named("jetson-orin-7.2"))
    assert root.id == "jetson-wrong-wheel" and "from CUDA 13.0 on, on Orin" in root.detail
    assert root.fix is not None and "torch 2.15.0 from cu132" in root.fix.text


def test_a_thor_with_torchs_own_wheel_is_healthy() -> None:
    assert judged(machine_named("jetson-thor")).cause == "ok"


def test_a_cuda_build_that_a_jetpack_does_not_serve_is_for_another_board() -> None:
    orin = machine_named("jetson-orin")
    torch = replace(orin.torch, version="2.9.1+cu130", backend="cu130", cuda="13.0", kernels=None)
    assert root_of(replace(orin, torch=torch)).id == "jetson-wrong-wheel"


def test_a_server_wheel_without_kernels_for_the_board_is_no_old_gpu() -> None:
    orin = machine_named("jetson-orin")
    torch = replace(orin.torch, version="2.9.1+cu126", backend="cu126", cuda="12.6", kernels=None)
    found = judged(replace(orin, torch=torch)).findings
    assert [f.id for f in found if f.root] == ["jetson-wrong-wheel"]
    assert all(not f.id.startswith("arch-") for f in found)


LOADER = "ImportError: {}: cannot open shared object file: No such file or directory"


@pytest.mark.parametrize(
    ("library", "wheel", "package", "folder"),
    [
        ("libcudss.so.0", "2.8.0+cu126", "nvidia-cudss-cu12", "nvidia/cu12/lib"),
        ("libcudss.so.0", "2.9.1+cu130", "nvidia-cudss-cu13", "nvidia/cu13/lib"),
        ("libcusparseLt.so.0", "2.5.0+cu126", "nvidia-cusparselt-cu12", "nvidia/cusparselt/lib"),
        ("libcusparseLt.so.0", "2.9.1+cu130", "nvidia-cusparselt-cu13", "nvidia/cu13/lib"),
        ("libnvpl_lapack_lp64_gomp.so.0", "2.9.1+cu130", "nvpl-lapack nvpl-blas", "nvpl/lib"),
    ],
)
def test_a_library_that_torchs_wheel_does_not_declare_is_installed_by_pip(
    library: str, wheel: str, package: str, folder: str
) -> None:
    text = f"Jetson Orin NX, JetPack 6.2\ntorch {wheel}\n>>> import torch\n{LOADER.format(library)}"
    root = root_of(read_report(text))
    assert root.id == "cuda-lib-missing" and library in root.title
    assert f"--no-deps {package}" in commands_of(root)
    # The one who wrote the text shows no folder: the line asks their Python for it.
    assert f"get_path('purelib') + '/{folder}')" in commands_of(root)
    assert ")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" in commands_of(root)


def test_elsewhere_a_missing_cudss_is_not_a_boards() -> None:
    text = f"Tesla T4, driver 580.95.05\ntorch 2.9.1+cu130\n{LOADER.format('libcudss.so.0')}"
    assert "export LD_LIBRARY_PATH" not in commands_of(root_of(read_report(text)))


def test_a_carrier_board_of_another_maker_is_known_by_its_chip() -> None:
    from tapes import system

    from gpusetup.probe.host import read_jetson

    files = {
        "/proc/device-tree/model": "ZED Box Mini\0",
        "/proc/device-tree/compatible": "stereolabs,zed\0nvidia,tegra234\0",
    }
    assert read_jetson(system(files)) == "ZED Box Mini"
    assert read_jetson(system({"/proc/device-tree/model": "Raspberry Pi 5\0"})) is None
