"""Writes the composed machines of `tests/machines/` and the example machines of the package.

    python scripts/compose_machines.py            rewrite what differs, and say so
    python scripts/compose_machines.py --check    only say so; exit 1 if anything differs

Each machine is a function that puts parts together and a row in `MACHINES`. Its snapshot is made
by playing its tape to the same readers that read a live machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpusetup.model.frozen import replace

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from machine_makers import (  # noqa: E402
    after_suspend,
    amd,
    banner_615,
    conda_and_pip,
    container_without_gpu,
    cpu_torch,
    ecc,
    externally_managed,
    forward_compat,
    gb10,
    gh200,
    half_installed,
    healthy,
    hidden,
    jetson,
    lost,
    lxc,
    mac,
    mig,
    mismatch,
    mixed,
    musl,
    no_fabric_manager,
    none_at_all,
    nouveau,
    orin_unified,
    pascal_cu128,
    pascal_healthy,
    permission,
    python_315,
    rtx3050_laptop,
    rtx5090,
    stale_libcuda,
    t4_470,
    thermal,
    thor,
    tool_environment,
    uvm_missing,
    v100,
    windows_32bit,
    windows_two_pythons,
    without_driver,
    wsl,
)
from machine_parts import Composer  # noqa: E402

from gpusetup.model.codec import to_json  # noqa: E402
from gpusetup.model.machine import Snapshot  # noqa: E402
from gpusetup.probe.machine import read_machine  # noqa: E402
from gpusetup.probe.saved import FIRST, dump_snapshot  # noqa: E402
from gpusetup.system.tape import ReplaySystem, Tape  # noqa: E402

TESTS = ROOT / "tests" / "machines"
PACKAGE = ROOT / "gpusetup" / "data" / "machines"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A machine's folder, its name in the package (None: in the tests only), and what it is."""

    folder: str
    example: str | None
    make: Callable[[], Composer]
    what: str
    source: str = "composed from the contract's description and public outputs of this hardware"


CAPTURED = "values of a real `nvidia-smi` 535.261.03 on four A100 with NVML state set on purpose"

MACHINES: tuple[Row, ...] = (
    Row(folder="windows-rtx3050laptop-581.29-cpu-torch", example=FIRST, make=rtx3050_laptop, what="Windows 11 laptop, CPU build of torch", source="the set-up guide that the project began with"),
    Row(folder="linux-none-at-all", example="no-gpu", make=none_at_all, what="no NVIDIA GPU, no torch"),
    Row(folder="linux-rtx4090-no-driver", example="no-driver", make=without_driver, what="a GPU on the bus, no driver"),
    Row(folder="linux-gtx1660-nouveau", example="nouveau", make=nouveau, what="nouveau holds the GPU"),
    Row(folder="linux-a100-550.90.07-library-mismatch", example="library-mismatch", make=mismatch, what="kernel module 550.90.07, library 550.120"),
    Row(folder="linux-t4-470.256.02", example="t4-driver-470", make=t4_470, what="a driver too old for the installed torch"),
    Row(folder="linux-gtx1080ti-580.95.05", example="gtx1080ti", make=pascal_healthy, what="Pascal with a build that serves it"),
    Row(folder="linux-gtx1080ti-580.95.05-cu128", example="gtx1080ti-cu128", make=pascal_cu128, what="Pascal with a build that no longer has its kernels"),
    Row(folder="linux-4xv100-535.183.01", example="v100-driver-535", make=v100, what="four V100, torch from cu126 by minor-version compatibility"),
    Row(folder="linux-rtx5090-570.133.07-cu124", example="rtx5090-cu124", make=rtx5090, what="Blackwell with a build that has no kernels for it"),
    Row(folder="linux-gtx1080ti+rtx3090-580.95.05", example="mixed-gpus", make=mixed, what="two generations in one machine, in another order for CUDA"),
    Row(folder="linux-8xh100-570.172.08-no-fabric-manager", example="h100-no-fabric-manager", make=no_fabric_manager, what="802: the fabric manager does not run"),
    Row(folder="linux-a100-570.172.08-mig", example="a100-mig", make=mig, what="MIG is on, three instances, one seen by CUDA"),
    Row(folder="wsl-rtx4070-581.29", example="wsl2", make=wsl, what="WSL2 with the driver of Windows"),
    Row(folder="linux-l40s-container-without-gpu", example="container-no-gpu", make=container_without_gpu, what="a container started without GPUs"),
    Row(folder="linux-l40s-580.95.05-cpu-torch", example="cpu-torch", make=cpu_torch, what="a CPU build of torch on a GPU host"),
    Row(folder="linux-gh200-570.172.08-cpu-torch", example="gh200", make=gh200, what="aarch64 with a CPU build of torch"),
    Row(folder="linux-gb10-580.95.05", example="gb10", make=gb10, what="DGX Spark, aarch64, sm_121"),
    Row(folder="jetson-orin-r36.4.0-cpu-torch", example="jetson-orin", make=jetson, what="JetPack 6 with the default index' wheel"),
    Row(folder="jetson-orin-r39.2.1-cpu-torch", example="jetson-orin-7.2", make=orin_unified, what="JetPack 7.2 on an Orin with a CPU build: torch's own wheels serve it"),
    Row(folder="jetson-thor-r38.2.0", example="jetson-thor", make=thor, what="JetPack 7, whose driver calls itself 580.00"),
    Row(folder="windows-rtx4060-576.80-two-pythons", example="windows-two-pythons", make=windows_two_pythons, what="torch is in the other Python"),
    Row(folder="windows-rtx3060-566.36-32bit-python", example="windows-32bit-python", make=windows_32bit, what="a 32-bit Python"),
    Row(folder="linux-rtx3090-550.120-conda-and-pip", example="conda-and-pip", make=conda_and_pip, what="pip's CPU wheel over conda's CUDA build"),
    Row(folder="linux-rtx3090-580.95.05-hidden", example="hidden-gpu", make=hidden, what="CUDA_VISIBLE_DEVICES is empty"),
    Row(folder="linux-rtx4080-615.36.02-banner", example="driver-615", make=banner_615, what="the newer banner of nvidia-smi, no NVML binding"),
    Row(folder="alpine-rtx3060-musl", example="musl", make=musl, what="musl instead of glibc"),
    Row(folder="linux-rtx4070-580.95.05-python-3.15", example="python-3.15", make=python_315, what="a Python that few builds have wheels for"),
    Row(folder="linux-rtx3090-550.163.01-no-uvm", example="no-uvm", make=uvm_missing, what="nvidia_uvm is not loaded"),
    Row(folder="lxc-rtx3060-570.172.08-no-uvm-node", example="lxc", make=lxc, what="an LXC container without /dev/nvidia-uvm"),
    Row(folder="linux-rtx3070laptop-580.95.05-999", example="after-suspend", make=after_suspend, what="999 after a suspend"),
    Row(folder="macos-arm64", example="mac", make=mac, what="a Mac with an Apple GPU"),
    Row(folder="linux-rx7900xtx-rocm", example="amd", make=amd, what="an AMD GPU with a ROCm build"),
    Row(folder="linux-4xa100-550.163.01-gpu-lost", example="gpu-lost", make=lost, what="one of four GPUs fell off the bus", source=CAPTURED),
    Row(folder="linux-4xa100-550.163.01-ecc", example="ecc-error", make=ecc, what="an uncorrectable ECC error", source=CAPTURED),
    Row(folder="linux-4xa100-550.163.01-hot", example="overheated", make=thermal, what="thermal slowdown", source=CAPTURED),
    Row(folder="linux-l40s-570.172.08-permission", example="device-permission", make=permission, what="the user may not open /dev/nvidia*"),
    Row(folder="docker-l40s-570.172.08-803", example="stale-libcuda", make=stale_libcuda, what="803: an image's own libcuda"),
    Row(folder="docker-rtx3090-535.183.01-804", example="forward-compat", make=forward_compat, what="804: cuda-compat on a GeForce"),
    Row(folder="linux-rtx3090-550.120-half-installed", example="half-installed", make=half_installed, what="a torch whose libraries are not all there, a full disk"),
    Row(folder="linux-rtx3090-580.95.05-externally-managed", example="externally-managed", make=externally_managed, what="the system's own Python"),
    Row(folder="linux-rtx4070-580.95.05-pipx", example=None, make=tool_environment, what="gpusetup runs in a tool environment, no target"),
    Row(folder="linux-rtx3090-580.95.05", example="healthy", make=healthy, what="nothing is wrong"),
)  # fmt: skip


def snapshot_of(tape: Tape) -> Snapshot:
    """What the readers make of a tape."""
    return replace(read_machine(ReplaySystem(tape)), origin="composed")


def files() -> dict[Path, str]:
    """Every file that this script writes."""
    made: dict[Path, str] = {}
    for row in MACHINES:
        tape = row.make().finish()
        snapshot, folder = snapshot_of(tape), TESTS / row.folder
        about = {
            "origin": "composed",
            "source": row.source,
            "what": row.what,
            "example": row.example,
        }
        made[folder / "machine.json"] = to_json(about, indent=1) + "\n"
        made[folder / "tape.json"] = to_json(tape, indent=1) + "\n"
        made[folder / "snapshot.json"] = dump_snapshot(snapshot)
        if row.example:
            made[PACKAGE / f"{row.example}.json"] = dump_snapshot(snapshot)
    return made


def main() -> int:
    stale = {
        path: text
        for path, text in files().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }
    for path, text in stale.items():
        print(path.relative_to(ROOT))
        if "--check" not in sys.argv:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
