"""Jetson boards: by every name of theirs, live and in texts, with the command that helps."""

from __future__ import annotations

import pytest
from described_machines import machine
from judging import judged
from machines_named import machine_named

from gpusetup.catalog.file import load_catalog
from gpusetup.choose.choice import Choice
from gpusetup.choose.choose import choose
from gpusetup.choose.host import host_of
from gpusetup.choose.wish import Wish
from gpusetup.model.finding import Finding
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot
from gpusetup.report.read import read_report

CATALOG = load_catalog()


def root_of(snapshot: Snapshot) -> Finding:
    return next(finding for finding in judged(snapshot).findings if finding.root)


def commands_of(finding: Finding) -> str:
    assert finding.fix is not None
    return "\n".join(finding.fix.commands)


# --- the driver is numbered apart ---------------------------------------------------------------


def board(
    name: str, release: str, python: str, cuda: str | None = None, driver: str | None = None
) -> Snapshot:
    made = machine(name, driver=driver, python=python, on="aarch64", libc="glibc 2.39")
    os = replace(made.os, jetson=release)
    return replace(made, os=os, driver=replace(made.driver, cuda=cuda))


def choice_for(machine: Snapshot) -> Choice:
    return choose(Wish(), host_of(machine, CATALOG), CATALOG)


def test_orin_runs_the_ordinary_wheels_from_jetpack_7_2_on() -> None:
    build = choice_for(board("Jetson AGX Orin", "R39.2.0", "3.12")).build
    assert build is not None and (build.torch, build.backend) == ("2.15.0", "cu132")
    older = choice_for(board("Jetson AGX Orin", "R36.4.0", "3.10"))
    assert older.build is None
    assert any("need JetPack 7.2 (CUDA 13.2) or newer on a Jetson" in note for note in older.notes)
    said = {r.reason for r in older.rejections if r.backend == "cu132"}
    assert any("needs a JetPack for CUDA 13.2, found JetPack 6 (CUDA 12.6)" in r for r in said)


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
    assert root.id == "jetson-wrong-wheel" and "on Orin with 13.2 or newer" in root.detail
    assert root.fix is not None and "torch 2.15.0 from cu132" in root.fix.text


LOADER = "ImportError: {}: cannot open shared object file: No such file or directory"


@pytest.mark.parametrize(
    ("library", "wheel", "package", "folder"),
    [
        ("libcudss.so.0", "2.9.1+cu130", "nvidia-cudss-cu13", "nvidia/cu13/lib"),
        ("libcusparseLt.so.0", "2.5.0+cu126", "nvidia-cusparselt-cu12", "nvidia/cusparselt/lib"),
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
