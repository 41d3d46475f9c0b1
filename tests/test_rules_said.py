"""Causes that messages show: each is the root of a text, and of a machine, that says so.

Beside every one stands a neighbour: a text very like it, of which it must not be the cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
from each_row import each
from event_kinds import OWN_NAME, event_kinds
from hypothesis import example, given, settings
from hypothesis import strategies as st
from judging import (
    A100,
    GTX_1080_TI,
    HEALTHY,
    RTX_3090,
    RTX_5090,
    changed,
    event,
    judged,
    spoken_of,
)

from gpusetup.diagnosis.knowledge import records
from gpusetup.diagnosis.rules import ANYWHERE, of_a_driver, rules_for
from gpusetup.model.failing import Failing
from gpusetup.model.finding import Severity
from gpusetup.model.frozen import replace
from gpusetup.model.machine import (
    Container,
    CudaApi,
    DeviceNode,
    Driver,
    Event,
    Gpu,
    Os,
    Package,
    Python,
    Snapshot,
    Torch,
    Wanted,
)
from gpusetup.model.versions import Capability

LINUX = Os(family="linux", machine="x86_64")
V100 = Gpu(name="Tesla V100-SXM2-32GB", compute_capability=Capability(7, 0))
FULL = Gpu(
    name="NVIDIA GeForce RTX 3090",
    compute_capability=Capability(8, 6),
    memory_total_bytes=24 << 30,
    memory_used_bytes=(24 << 30) - (100 << 20),
)
GB10 = Gpu(name="NVIDIA GB10", compute_capability=Capability(12, 1))
CU121 = Torch(installed=True, version="2.5.1+cu121", cuda="12.1", backend="cu121")
CPU = Torch(installed=True, version="2.5.1+cpu", backend="cpu", cuda_available=False)
CPU_UNASKED = replace(CPU, cuda_available=None)
PIP = "no-matching-distribution"


def text(*said: tuple[Event, ...], **parts: Any) -> Snapshot:
    """What was read from somebody's text: Linux, unless it says otherwise."""
    events = tuple(one for group in said for one in group)
    return Snapshot(origin="report", events=events, **{"os": LINUX, **parts})


def smi(*gpus: Gpu, version: str = "550.54.14", cuda: str = "12.4", **parts: Any) -> Snapshot:
    """A text with the table of an nvidia-smi that works."""
    listed = tuple(replace(gpu, visible=None) for gpu in gpus)
    return text(gpus=listed, driver=Driver(version=version, cuda=cuda), **parts)


def closed(others: str) -> DeviceNode:
    return DeviceNode(path="/dev/nvidia0", mode=f"crw-rw{others}")


def asked(requirement: str, **values: str) -> tuple[Event, ...]:
    return event(PIP, requirement=requirement, **values)


ROOTS: tuple[tuple[str, Snapshot, Snapshot], ...] = (
    # --- what stands around the process ---
    ("apple-silicon", text(event("torch-not-compiled-with-cuda"), os=Os(family="macos")),
     text(event("torch-not-compiled-with-cuda"), os=Os(family="macos", machine="x86_64"))),
    ("no-nvidia-gpu", text(event("torch-not-compiled-with-cuda"),
                           os=Os(family="macos", machine="x86_64")),
     text(asked("torch==2.5.1", versions="1.13.0, 2.2.2"),
          os=Os(family="macos", machine="x86_64"), python=Python(version="3.12.1"))),
    ("no-nvidia-gpu", text(event("no-nvidia-gpu"), torch=CPU), text(torch=CPU)),
    ("amd-gpu", text(event("no-hip-gpus"), torch=Torch(version="2.8.0+rocm6.4", backend="rocm6.4")),
     text(event("no-hip-gpus"), gpus=(RTX_3090,),
          torch=Torch(version="2.8.0+rocm6.4", backend="rocm6.4"))),
    ("amd-gpu", text(gpus=(Gpu(name="AMD Radeon RX 5700 XT"),), torch=Torch(backend="rocm6.3")),
     text(gpus=(RTX_3090,), torch=CU121)),
    ("intel-gpu", text(event("no-xpu")), text(event("no-hip-gpus"))),
    ("rocm-wheel-on-nvidia",
     smi(RTX_3090, torch=Torch(installed=True, version="2.8.0+rocm6.4", backend="rocm6.4")),
     smi(RTX_3090, torch=CU121)),
    ("module-shadowed", text(event("module-shadowed", module="torch", path="torch.py")),
     text(event("torch-missing"))),
    ("libcuda-stub", text(event("libcuda-stub")), text(event("no-nvidia-driver"))),
    ("libcuda-stub", text(cuda_api=CudaApi(init_code=34)), text(cuda_api=CudaApi(init_code=803))),
    ("cuda-visible-devices-hidden",
     smi(RTX_3090, environment={"CUDA_VISIBLE_DEVICES": "2"}, cuda_api=CudaApi(init_code=100)),
     smi(RTX_3090, environment={"CUDA_VISIBLE_DEVICES": "0"}, cuda_api=CudaApi(init_code=100))),
    ("container-toolkit-missing", text(event("container-toolkit-missing", runtime="nvidia")),
     text(event("container-no-gpu"))),
    ("container-cdi-unresolvable",
     text(event("container-cdi-unresolvable", device="nvidia.com/gpu=all")),
     text(event("container-toolkit-missing"))),
    ("driver-missing",
     text(event("container-hook-failed"), event("no-nvidia-driver", place="host"),
          container=Container(kind="docker")),
     text(event("no-nvidia-driver"), container=Container(kind="docker"))),
    ("container-hook-failed", text(event("container-hook-failed", problem="ldcache error: open")),
     text(event("container-hook-failed"), event("driver-not-loaded", place="host"))),
    ("k8s-gpu-not-allocatable", text(event("k8s-gpu-not-allocatable")),
     text(event("container-no-gpu"))),
    ("container-no-gpu", text(event("container-no-gpu")), text(event("container-nvml-lost"))),
    # A program without a driver beside an nvidia-smi that works: it runs in a container.
    ("container-no-gpu", replace(smi(RTX_3090), events=event("no-nvidia-driver")),
     text(event("no-nvidia-driver"))),
    ("container-nvml-lost", replace(smi(RTX_3090), events=event("container-nvml-lost")),
     text(event("nvml-mismatch"))),
    ("container-driver-capability-missing", text(event("container-driver-capability-missing")),
     text(event("container-no-gpu"))),
    # nvidia-smi works beside it, and libcuda was not given.
    ("container-driver-capability-missing",
     replace(smi(RTX_3090, container=Container(kind="docker")),
             events=event("no-nvidia-driver") + event("container-driver-capability-missing")),
     replace(smi(RTX_3090, container=Container(kind="docker")), events=event("no-nvidia-driver"))),
    ("container-no-gpu", text(event("smi-not-found"), container=Container(kind="docker")),
     text(event("smi-not-found", place="host"), container=Container(kind="docker"))),
    ("wsl-driver", text(event("wsl-driver", why="blocked")), text(event("device-permission"))),
    ("wsl-driver", text(os=replace(LINUX, wsl=True), torch=replace(CU121, cuda_available=False)),
     text(os=LINUX, torch=replace(CU121, cuda_available=False))),
    # --- the driver ---
    ("gpu-hang", text(event("xid", number="109", bus_id="0000:0b:00")),
     text(event("xid", number="13"))),
    ("gpu-hang", replace(smi(RTX_3090), events=event("xid", number="8")),
     text(event("xid", number="8"), event("xid", number="79"))),
    ("hardware-fault", text(event("sxid", number="20034")), text(event("xid", number="46"))),
    ("driver-build-failed",
     text(event("driver-build-failed", driver="545.29", kernel="6.8.1-300.fc40.x86_64")),
     text(event("driver-not-loaded"))),
    # The recovery that Xid 154 asks for is another Xid's; alone it is all that is known.
    ("ecc-error", text(event("xid", number="154"), event("xid", number="48")),
     text(event("xid", number="154"))),
    ("hardware-fault", text(event("xid", number="154")), text(event("xid", number="43"))),
    # Secure Boot refuses other makers' modules too.
    ("secure-boot-rejected", text(event("secure-boot-rejected", module="nvidia-drm")),
     text(event("secure-boot-rejected", module="vboxdrv.ko"))),
    ("driver-build-failed", text(event("driver-build-failed"), event("driver-not-loaded")),
     text(event("secure-boot-rejected"), event("driver-not-loaded"))),
    ("driver-build-failed", text(event("driver-build-failed", why="headers")),
     replace(smi(RTX_3090), events=event("driver-build-failed", why="headers"))),
    # The kernel driver speaks of a GPU that it does not know: there is one.
    ("gpu-not-supported-by-driver",
     text(event("gpu-not-supported-by-driver"), event("no-nvidia-gpu")),
     text(event("no-nvidia-gpu"))),
    # Fabric Manager finds no switch: nothing needs it, unless CUDA waits for the fabric.
    ("system-not-ready-fabric-manager", text(event("system-not-ready-fabric-manager")),
     text(event("system-not-ready-fabric-manager"), event("no-nvswitch"))),
    ("system-not-ready-fabric-manager",
     text(event("system-not-ready-fabric-manager"), event("no-nvswitch"),
          cuda_api=CudaApi(init_code=802)),
     replace(smi(RTX_3090), events=event("system-not-ready-fabric-manager"))),
    # A vGPU whose licence ran out answers as a GPU that is taken.
    ("vgpu-unlicensed", text(event("vgpu-unlicensed"), event("cuda-error", code="46")),
     text(event("cuda-error", code="46"))),
    ("device-permission",
     text(event("cuda-unavailable"), devices=(closed("----"),)),
     text(event("cuda-unavailable"), devices=(closed("-rw-"),))),
    # A GPU that is only spoken of shows no health.
    ("unknown", text(gpus=(Gpu(name="NVIDIA GeForce RTX 3090"),)), smi(RTX_3090)),
    ("os-call-failed", text(event("cuda-error", code="800")),
     text(event("cuda-error", code="700"))),
    ("driver-missing", text(event("no-nvidia-driver")), text(event("driver-not-loaded"))),
    ("driver-missing", text(event("smi-not-found"), torch=replace(CU121, cuda_available=False)),
     text(event("smi-not-found"), torch=replace(CU121, cuda_available=True))),
    ("driver-not-loaded", text(event("driver-not-loaded")), text(event("no-nvidia-driver"))),
    # nvidia-smi runs, so that the driver's packages are there, whatever torch calls it.
    ("driver-not-loaded", text(event("driver-not-loaded"), event("no-nvidia-driver")),
     text(event("smi-not-found"), event("no-nvidia-driver"))),
    ("driver-not-loaded", text(event("module-not-found", module="nvidia")),
     text(event("module-not-found", module="nvidia-uvm"))),
    ("driver-not-loaded",
     text(event("container-hook-failed"), event("driver-not-loaded", place="host")),
     text(event("container-hook-failed"))),
    ("secure-boot-rejected", text(event("driver-not-loaded"), event("secure-boot-rejected")),
     text(event("driver-not-loaded"), event("module-not-found", module="nvidia"))),
    ("hybrid-gpu-off", text(event("driver-not-loaded"), event("hybrid-gpu-off", tool="asusctl")),
     text(event("driver-not-loaded"))),
    ("nvml-mismatch", text(event("nvml-mismatch")), text(event("container-nvml-lost"))),
    # The table is from before the update, the message from after it.
    ("nvml-mismatch", replace(smi(RTX_3090), events=event("nvml-mismatch")), smi(RTX_3090)),
    ("gpu-init-failed", text(event("gpu-init-failed", bus_id="0000:98:00.0")),
     text(event("gpu-fell-off-bus"))),
    ("gpu-init-failed", text(event("no-devices-found")), text(event("no-nvidia-driver"))),
    ("libcuda-missing", text(event("cuda-version-err")),
     text(event("cuda-version-err"), container=Container(kind="docker"))),
    ("container-driver-capability-missing",
     text(event("cuda-version-err"), container=Container(kind="docker")),
     text(event("cuda-version-err"))),
    ("gpu-not-supported-by-driver", text(event("gpu-not-supported-by-driver")),
     text(event("gpu-init-failed"))),
    ("driver-does-not-answer", text(event("driver-does-not-answer")),
     text(event("driver-not-loaded"))),
    ("driver-too-old", text(event("driver-too-old", found="11040"), torch=CU121),
     text(torch=CU121, driver=Driver(version="535.104.05", cuda="12.2"))),
    ("driver-too-old", text(torch=CU121, driver=Driver(version="470.199.02", cuda="11.4")),
     # torch itself says that it works, whatever the numbers.
     text(torch=replace(CU121, cuda_available=True), driver=Driver(version="470.199.02"))),
    ("driver-too-old", text(event("image-needs-newer-driver", cuda="12.4", driver_cuda="11.4")),
     text(event("forward-compat"), cuda_api=CudaApi(init_code=804))),
    # Kepler ends with driver 470: the wheel is too new for it, and no driver helps.
    ("arch-too-old-for-wheel",
     smi(Gpu(name="Tesla K80", compute_capability=Capability(3, 7)), version="470.82.01",
         cuda="11.4", torch=replace(CU121, kernels=("sm_50", "sm_80", "sm_90"))),
     smi(RTX_3090, version="470.82.01", cuda="11.4",
         torch=replace(CU121, kernels=("sm_50", "sm_80", "sm_90")))),
    # --- CUDA starts, or does not ---
    ("device-permission", text(event("device-permission")), text(event("driver-not-loaded"))),
    ("uvm-missing", text(event("uvm-missing")), text(cuda_api=CudaApi(init_code=999))),
    ("uvm-missing", text(event("module-not-found", module="nvidia-uvm")),
     text(event("module-not-found", module="nvidia"))),
    ("mig-misconfigured",
     replace(smi(replace(A100, mig_enabled=True)), events=event("mig-misconfigured")),
     smi(replace(A100, mig_enabled=True, mig_instances=("MIG-1",)))),
    ("vgpu-no-compute", text(event("compute-mode-exclusive"), event("cuda-error", code="801")),
     text(event("compute-mode-exclusive"))),
    ("vgpu-no-compute", text(event("vgpu-no-compute")), text(event("vgpu-unlicensed"))),
    ("vgpu-no-compute", smi(Gpu(name="GRID T4-8A"), torch=replace(CU121, cuda_available=False)),
     smi(Gpu(name="GRID T4-8Q"), torch=replace(CU121, cuda_available=False))),
    ("vgpu-unlicensed", text(event("vgpu-unlicensed")), text(event("power-thermal-throttle"))),
    ("system-not-ready-fabric-manager", text(event("system-not-ready-fabric-manager")),
     text(event("cuda-error", code="803"))),
    ("system-not-ready-fabric-manager", text(cuda_api=CudaApi(init_code=802)),
     text(cuda_api=CudaApi(init_code=803))),
    # Eight SXM boards that the driver lists and CUDA does not start on, and nothing else.
    ("system-not-ready-fabric-manager",
     smi(*(A100,) * 8, torch=replace(CU121, cuda_available=False)),
     smi(*(RTX_3090,) * 8, torch=replace(CU121, cuda_available=False))),
    ("libcuda-driver-mismatch", text(cuda_api=CudaApi(init_code=803)),
     text(cuda_api=CudaApi(init_code=804))),
    ("forward-compat-unsupported", text(cuda_api=CudaApi(init_code=804)),
     text(cuda_api=CudaApi(init_code=803))),
    ("mps-server", text(event("mps-server", code="807")), text(event("compute-mode-exclusive"))),
    ("mps-server", text(event("cuda-error", code="806")), text(event("cuda-error", code="46"))),
    ("cuda-init-out-of-memory", text(event("cuda-init-out-of-memory")),
     text(event("out-of-memory"))),
    ("os-call-failed", text(cuda_api=CudaApi(init_code=304)),
     text(cuda_api=CudaApi(init_code=999))),
    ("invalid-device-ordinal", text(event("invalid-device-ordinal")),
     text(event("nccl-duplicate-gpu"))),
    ("invalid-device-ordinal", text(event("cuda-error", code="10")),
     text(event("cuda-error", code="100"))),
    ("compute-mode-exclusive", text(event("compute-mode-exclusive")),
     text(event("out-of-memory"))),
    ("driver-call-unsupported", text(cuda_api=CudaApi(init_code=36)),
     text(cuda_api=CudaApi(init_code=803))),
    ("cuda-unknown-error", text(event("cuda-error", code="30")),
     text(event("cuda-error", code="304"))),
    ("cuda-sees-no-device", text(cuda_api=CudaApi(init_code=100)),
     text(cuda_api=CudaApi(init_code=100), torch=Torch(backend="rocm6.4"))),
    ("cuda-init-failed", text(cuda_api=CudaApi(init_code=3)), text(cuda_api=CudaApi(init_code=0))),
    # --- the hardware ---
    ("gpu-fell-off-bus", text(event("xid", number="79")), text(event("xid", number="31"))),
    ("gpu-fell-off-bus", text(event("gpu-fell-off-bus")), text(event("gpu-init-failed"))),
    ("gsp-timeout", text(event("gsp-timeout")), text(event("xid", number="79"))),
    ("hardware-fault", text(event("hardware-fault", what="nvlink")),
     text(event("xid", number="13"))),
    ("hardware-fault", text(event("xid", number="145")), text(event("xid", number="140"))),
    ("hardware-fault", text(event("hardware-fault")), text(event("nvml-mismatch"))),
    ("ecc-error", text(event("ecc-error")), text(event("cuda-error", code="700"))),
    ("ecc-error", text(event("cuda-error", code="214")), text(event("cuda-error", code="719"))),
    ("power-thermal-throttle", text(event("power-thermal-throttle", reason="SW Power Cap")),
     smi(RTX_3090)),
    ("pcie-degraded", text(event("pcie-degraded", width="4", width_max="16")),
     text(event("pcie-degraded", width="8", width_max="16"))),
    ("pcie-degraded", text(event("pcie-errors", severity="Corrected")),
     text(event("pcie-errors", severity="Corrected"), event("xid", number="79"))),
    ("smi-banner-misread", replace(smi(RTX_3090), events=event("smi-banner-misread")),
     smi(RTX_3090)),
    # --- installing ---
    ("python-32bit", text(asked("torch", none_found="true"), python=Python(bits=32)),
     text(asked("torch", none_found="true"), python=Python(version="3.4.1"))),
    ("python-no-wheel", text(asked("torch==1.8.1", versions="1.13.0, 2.0.0, 2.5.1")),
     text(asked("torch==1.8.1+cu199", versions="1.7.0, 1.13.0, 2.0.0"))),
    ("python-no-wheel",
     text(asked("torch", none_found="true", index="https://download.pytorch.org/whl/cu121"),
          python=Python(version="3.13.5")),
     text(asked("torch", none_found="true", index="https://download.pytorch.org/whl/cu131"),
          python=Python(version="3.12.5"))),
    ("python-no-wheel", text(asked("torch", none_found="true")), text(asked("numpie"))),
    ("python-no-wheel", text(event("python-no-wheel", requirement="torch==2.1.0", python="cp313")),
     text(event("no-wheel-for-platform", requirement="torch==2.1.0"))),
    ("python-no-wheel",
     text(event("wheel-not-supported", wheel="torch-1.13.1+cu117-cp310-cp310-linux_x86_64.whl")),
     text(event("wheel-not-supported", wheel="torch-1.13.1+cu117-cp310-cp310-win_amd64.whl"))),
    ("wrong-index",
     text(asked("torch==2.10.0", none_found="true",
                index="https://download.pytorch.org/whl/cu131")),
     text(asked("torch==2.10.0", none_found="true",
                index="https://download.pytorch.org/whl/cu130"), python=Python(version="3.9.1"))),
    # A local label that PyPI never has.
    ("wrong-index", text(asked("torch==2.5.1+cu121", versions="2.4.1, 2.5.0, 2.5.1")),
     text(asked("torch==1.7.1+cu110", versions="1.11.0, 1.12.0, 2.0.0"))),
    ("wrong-index", text(event("wrong-index", status="403", index="https://x/whl/cu999")),
     text(event("download-network-error", host="x"))),
    ("no-wheel-for-platform",
     text(asked("torch==2.5.1+cu121", none_found="true"), os=replace(LINUX, machine="aarch64")),
     text(asked("torch==2.5.1+cu121", none_found="true"), python=Python(version="3.13.0"))),
    ("no-wheel-for-platform",
     text(asked("torch==2.4.0", versions="2.1.0, 2.2.0, 2.2.2"), os=Os(family="macos")),
     text(asked("torch==2.4.0", versions="2.1.0, 2.2.0, 2.2.2"))),
    ("no-wheel-for-platform", text(event("musl-libc", library="libc.musl-x86_64.so.1")),
     text(event("library-missing", library="libGL.so.1"))),
    ("package-not-found", text(asked("numpie", none_found="true")),
     text(asked("torch==9.9.9", versions="2.0.0"))),
    ("download-network-error", text(event("download-network-error", host="x.org", how="proxy")),
     text(event("wrong-index", status="404"))),
    ("download-hash-mismatch", text(event("download-hash-mismatch", file="torch.whl")),
     text(event("pip-cache-disk-full"), event("download-hash-mismatch"))),
    ("pip-cache-disk-full", text(event("pip-cache-disk-full")), text(event("shm-too-small"))),
    ("pip-missing", text(event("pip-missing")), text(event("torch-missing"))),
    ("externally-managed", text(event("externally-managed")), text(event("site-not-writable"))),
    ("site-not-writable", text(event("site-not-writable", path="/usr/lib/python3")),
     text(event("externally-managed"))),
    ("installed-by-two", text(event("installed-by-two", name="numpy")), text(event("pip-missing"))),
    ("conda-cuda-virtual-missing",
     text(event("conda-cuda-virtual-missing", needed="__cuda >=12"), event("resolver-conflict")),
     text(event("resolver-conflict"))),
    ("wrong-index", text(event("conda-not-found", package="pytorch==1.0")),
     text(event("conda-not-found"), os=Os(family="linux", machine="aarch64"))),
    ("resolver-conflict", text(event("resolver-conflict")),
     text(event("python-no-wheel"), event("resolver-conflict"))),
    # --- building ---
    ("build-isolation-no-torch", text(event("build-isolation-no-torch"), event("torch-missing")),
     text(event("torch-missing"))),
    ("cuda-toolkit-mismatch-extension-build",
     text(event("cuda-toolkit-mismatch-extension-build", nvcc="11.8", torch="12.4")),
     text(event("cuda-toolkit-missing"))),
    ("cuda-toolkit-missing", text(event("cuda-toolkit-missing")),
     text(event("triton-no-compiler"))),
    ("compiler-too-new", text(event("compiler-too-new", compiler="12")),
     text(event("compiler-missing"))),
    ("compiler-missing", text(event("compiler-missing"), os=Os(family="windows")),
     text(event("compiler-too-new"))),
    ("cuda-toolkit-missing", text(event("cuda-toolkit-missing", who="shell")),
     text(event("cuda-toolkit-missing", who="shell"), torch=replace(CU121, cuda_available=True))),
    ("extension-not-built", text(event("extension-not-built", module="mmcv")),
     text(event("module-missing", module="mmcv"))),
    ("build-without-gpu", text(event("build-without-gpu")), text(event("cuda-toolkit-missing"))),
    ("cxx-standard-too-old", text(event("cxx-standard-too-old", needs="17", who="build")),
     text(event("compiler-too-new", compiler="12"))),
    ("extension-too-old-for-torch", text(event("extension-too-old-for-torch", header="THC/THC.h")),
     text(event("cuda-toolkit-missing", path="cublas_v2.h"))),
    ("ninja-missing", text(event("ninja-missing")), text(event("cuda-toolkit-missing"))),
    ("kernel-image-invalid", text(event("cuda-error", code="200")),
     text(event("cuda-error", code="209"), event("no-kernel-image"))),
    ("gpu-too-old-for-flash-attention",
     text(event("gpu-too-old-for-flash-attention", needs="Ampere")),
     text(event("extension-arch", module="flash_attn", arches="8.0"))),
    ("module-shadowed", text(event("backport-in-the-way", package="enum34", module="enum")),
     text(event("module-missing", module="enum34"))),
    ("triton-build-failed", text(event("triton-build-failed", lacks="-lcuda")),
     text(event("triton-no-compiler"))),
    ("triton-no-compiler", text(event("triton-no-compiler")), text(event("triton-build-failed"))),
    ("triton-missing", text(event("triton-missing-windows")),
     text(event("triton-missing-windows"), os=Os(family="windows"))),
    ("triton-missing-windows", text(event("triton-missing-windows"), os=Os(family="windows")),
     text(event("triton-no-compiler"), os=Os(family="windows"))),
    ("gpu-too-old-for-triton", text(event("gpu-too-old-for-triton", gpu="GTX 1070")),
     text(event("triton-no-compiler"))),
    # --- the wheel and its libraries ---
    ("torch-missing", text(event("torch-missing")), text(event("build-isolation-no-torch"))),
    ("torch-half-installed", text(event("torch-half-installed")), text(event("torch-missing"))),
    ("torch-cpu-build", text(torch=CPU), text(event("host-out-of-memory"), torch=CPU_UNASKED)),
    ("torch-cpu-build", text(torch=CPU_UNASKED), text(torch=CU121)),
    ("torch-cpu-build", text(event("torch-not-compiled-with-cuda")), text(event("no-hip-gpus"))),
    ("torch-cpu-build", smi(RTX_3090, torch=CPU_UNASKED),
     smi(RTX_3090, torch=CU121)),
    ("xpu-wheel-on-nvidia", smi(RTX_3090, torch=Torch(installed=True, backend="xpu")),
     text(torch=Torch(installed=True, backend="xpu"))),
    ("mixed-conda-pip", text(event("mixed-conda-pip", library="libtorch_python.so")),
     text(event("extension-abi-mismatch", module="apex"))),
    ("jetson-wrong-wheel",
     text(os=Os(family="linux", machine="aarch64", jetson="R35.4.1"), torch=CPU),
     text(os=Os(family="linux", machine="aarch64"), torch=CPU)),
    ("glibc-too-old", text(event("glibc-too-old", needed="2.33", library="libpyg.so")),
     text(event("ld-library-path-conflict", library="libstdc++.so.6"))),
    ("arch-too-new-for-wheel",
     text(event("gpu-not-in-wheel", gpu="NVIDIA GeForce RTX 5090", capability="12.0",
                kernels="sm_50 sm_80 sm_90")),
     text(event("gpu-not-in-wheel", gpu="Tesla V100", capability="7.0",
                kernels="sm_75 sm_80 sm_90"))),
    ("arch-too-old-for-wheel", text(event("gpu-not-in-wheel", gpu="Tesla K20m", side="old")),
     text(event("gpu-not-in-wheel", gpu="NVIDIA B200", side="new"))),
    ("arch-too-old-for-wheel",
     text(gpus=(V100,), torch=Torch(kernels=("sm_75", "sm_80", "sm_90"))),
     text(gpus=(V100,), torch=Torch(kernels=("sm_70", "sm_80", "sm_90")))),
    ("arch-too-new-for-wheel", text(event("no-kernel-image"), gpus=(RTX_5090,)),
     text(event("no-kernel-image"), gpus=(GTX_1080_TI,))),
    ("arch-too-old-for-wheel", text(event("no-kernel-image"), gpus=(GTX_1080_TI,)),
     text(event("no-kernel-image"), gpus=(RTX_3090,))),
    ("extension-arch-mismatch",
     text(event("no-kernel-image", module="detectron2._C"), gpus=(GTX_1080_TI,)),
     text(event("no-kernel-image", module="torch"), gpus=(GTX_1080_TI,))),
    ("extension-arch-mismatch",
     text(event("no-kernel-image"), event("extension-arch", arches="7.5"), gpus=(V100,)),
     text(event("no-kernel-image"), event("extension-arch", arches="7.0"), gpus=(V100,))),
    ("no-kernel-image", text(event("cuda-error", code="209")),
     text(event("cuda-error", code="209"), gpus=(RTX_5090,))),
    ("jit-arch-rejected", text(event("jit-arch-rejected", compiler="nvrtc")),
     text(event("no-kernel-image"))),
    ("ptx-unsupported-toolchain", text(event("ptx-unsupported-toolchain")),
     text(event("driver-too-old"))),
    ("ptx-unsupported-toolchain", text(event("cuda-error", code="222")),
     text(event("cuda-error", code="35"))),
    ("ld-library-path-conflict",
     text(event("ld-library-path-conflict", library="libnvJitLink.so.12")),
     text(event("cuda-lib-missing", library="libnvJitLink.so.12"))),
    ("ld-library-path-conflict",
     text(event("ld-library-path-conflict", compiled="(8, 3, 2)", loaded="(8, 0, 3)")),
     text(event("cuda-lib-missing", library="libcudnn.so.8"))),
    ("cuda-lib-missing", text(event("cuda-lib-missing", library="libcudart.so.11.0")),
     text(event("cuda-lib-missing", library="libcuda.so.1"))),
    ("mkl-version-mismatch", text(event("mkl-version-mismatch", symbol="iJIT_NotifyEvent")),
     text(event("ld-library-path-conflict", symbol="cublasLtGetStatusString"))),
    ("numpy-abi-mismatch", text(event("numpy-abi-mismatch")), text(event("module-missing"))),
    ("extension-abi-mismatch",
     text(event("extension-abi-mismatch", module="xformers", built_torch="2.0.1+cu118")),
     text(event("torchvision-mismatch"))),
    ("torchvision-mismatch",
     text(event("torchvision-mismatch", torch="2.5.1", torchvision="0.19.1")),
     text(event("requirement-broken", package="xformers", needs="torch==2.4.1"))),
    ("torchaudio-mismatch", text(event("torchaudio-mismatch", torch="1.11.0+cu113")),
     text(event("torchvision-mismatch"))),
    ("torch-import-failed", text(torch=Torch(version="2.5.1", import_error="ImportError: x")),
     text(torch=Torch(version="2.5.1"))),
    ("windows-dll-missing", text(event("windows-dll-missing", code="126", dll="fbgemm.dll")),
     text(event("windows-pagefile-too-small"))),
    ("windows-pagefile-too-small",
     text(event("windows-pagefile-too-small"), event("windows-dll-missing")),
     text(event("windows-dll-missing", code="1114"))),
    ("library-not-mapped", text(event("library-not-mapped", library="libcusparseLt.so.0")),
     text(event("library-missing", library="libcusparseLt.so.0"))),
    ("library-missing", text(event("library-missing", library="libGL.so.1")),
     text(event("library-missing", library="libcuda.so.1"))),
    ("openmp-twice", text(event("openmp-twice")), text(event("mkl-version-mismatch"))),
    ("static-tls-full", text(event("static-tls-full", library="libgomp.so.1")),
     text(event("library-missing", library="libgomp.so.1"))),
    # --- while it runs ---
    ("out-of-memory", text(event("out-of-memory", asked_bytes="11521270744")),
     text(event("host-out-of-memory"))),
    ("host-out-of-memory", text(event("host-out-of-memory"), event("dataloader-worker-killed")),
     text(event("dataloader-worker-killed"))),
    ("dataloader-worker-killed", text(event("dataloader-worker-killed", signal="Killed")),
     text(event("shm-too-small"), event("dataloader-worker-killed"))),
    ("shm-too-small", text(event("shm-too-small")), text(event("nccl-shm-error"))),
    ("open-files-limit", text(event("open-files-limit")), text(event("shm-too-small"))),
    ("cuda-fork-reinit", text(event("cuda-fork-reinit")), text(event("out-of-memory"))),
    ("bf16-unsupported", text(event("bf16-unsupported", gpu="Tesla V100")), text(gpus=(V100,))),
    ("tf32-precision", text(event("tf32-precision")), text(gpus=(A100,))),
    ("tf32-precision", text(event("results-differ"), torch=Torch(version="1.10.1+cu111")),
     text(event("results-differ"), torch=Torch(version="1.13.1+cu117"))),
    ("amp-without-gain", text(event("amp-without-gain")), text(gpus=(A100,))),
    ("nccl-unavailable-windows", text(event("nccl-unavailable-windows"), os=Os(family="windows")),
     text(event("nccl-error"))),
    ("nccl-duplicate-gpu",
     text(event("nccl-duplicate-gpu", rank="0", other="1"), event("nccl-error")),
     text(event("invalid-device-ordinal"), event("nccl-error"))),
    ("nccl-no-socket-interface", text(event("nccl-no-socket-interface"), event("nccl-error")),
     text(event("nccl-error"))),
    ("nccl-p2p-failure", text(event("nccl-p2p-failure")), text(event("nccl-shm-error"))),
    ("nccl-shm-error", text(event("nccl-shm-error"), event("nccl-error")),
     text(event("shm-too-small"), event("nccl-shm-error"))),
    ("rdma-memlock", text(event("rdma-memlock")), text(event("nccl-no-socket-interface"))),
    ("nccl-timeout", text(event("nccl-timeout"), event("nccl-error")),
     text(event("nccl-timeout"), event("out-of-memory"))),
    ("nccl-error", text(event("nccl-error", name="unhandled system error")),
     text(event("nccl-error"), event("nccl-timeout"))),
    ("torch-sees-no-gpu", text(event("cuda-unavailable")), text(torch=CPU)),
    # --- healthy, or not said ---
    ("ok", smi(RTX_3090), text()),
    ("ok", text(event("capability-warning", gpu="NVIDIA GB10"), gpus=(GB10,)),
     text(event("gpu-not-in-wheel", gpu="NVIDIA GB10", capability="12.1", kernels="sm_80 sm_90"),
          gpus=(GB10,))),
    ("ok", smi(RTX_3090, torch=replace(CU121, cuda_available=True)),
     smi(RTX_3090, torch=replace(CU121, cuda_available=False))),
    ("out-of-memory",
     text(event("cuda-library-error", status="CUDNN_STATUS_NOT_INITIALIZED"), gpus=(FULL,)),
     text(event("cuda-library-error", status="CUDNN_STATUS_NOT_INITIALIZED"), gpus=(RTX_3090,))),
    ("port-in-use", text(event("port-in-use", port="29500"), event("nccl-error")),
     text(event("nccl-error"))),
    ("extension-abi-mismatch",
     text(event("windows-dll-missing", module="a"), event("extension-abi-mismatch", module="a")),
     text(event("windows-dll-missing", module="b"), event("extension-abi-mismatch", module="a"))),
    ("jetson-wrong-wheel",
     text(event("cuda-lib-missing", library="libcurand.so.10"),
          os=Os(family="linux", jetson="R32")),
     text(event("cuda-lib-missing", library="libcurand.so.10"))),
    ("windows-path-too-long",
     text(event("windows-path-too-long"), event("windows-dll-missing", code="126")),
     text(event("windows-dll-missing", code="126"))),
    ("nccl-no-socket-interface",
     text(event("nccl-connect-failed", peer="10.0.0.2<4711>"), event("nccl-error")),
     text(event("nccl-connect-failed", peer="10.0.0.2<4711>"), event("out-of-memory"))),
    ("driver-not-loaded",
     text(event("no-nvidia-gpu"), os=Os(family="windows"), driver=Driver(nvml_code=9)),
     text(event("no-nvidia-gpu"), os=Os(family="windows"))),
    ("ok", smi(replace(RTX_3090, pcie_generation=1, utilization_percent=0)), text(torch=CU121)),
    # The companions differ, and what uses torch computes: nothing of CUDA is to be fixed.
    ("ok", text(torch=replace(CU121, cuda_available=True), gpus=(RTX_3090,),
                packages=(Package(name="torchvision", version="0.15.2"),)),
     text(torch=CU121, gpus=(RTX_3090,),
          packages=(Package(name="torchvision", version="0.15.2"),))),
    ("unknown", text(), smi(RTX_3090)),
    ("unknown", text(event("module-missing", module="cv2")), text(event("torch-missing"))),
)  # fmt: skip


@each("cause, ill, well", ROOTS)
def test_a_text_has_its_cause_and_its_neighbour_another(
    cause: str, ill: Snapshot, well: Snapshot
) -> None:
    never_a_root = {record.id for record in records() if not record.place} - {"ok", "unknown"}
    assert cause not in never_a_root, "without a place it is never a root: its line is in CASES"
    diagnosis = judged(ill)
    assert spoken_of(diagnosis) == cause, [(f.id, f.explained_by) for f in diagnosis.findings]
    assert spoken_of(judged(well)) != cause


@each("cause, ill, well", ROOTS)
def test_a_root_that_a_text_shows_has_evidence_and_a_way_out(
    cause: str, ill: Snapshot, well: Snapshot
) -> None:
    root = next((f for f in judged(ill).findings if f.root), None)
    if cause in ("ok", "unknown"):
        assert root is None
    else:
        assert root is not None and root.evidence and root.fix is not None and root.fix.text
        assert "None" not in root.title and "  " not in root.title
        assert not any("None" in line.text for line in root.evidence), root.evidence


LIVE = tuple(
    (cause, ill.events)
    for cause, ill, _ in ROOTS
    if ill.events and ill == text(ill.events) and cause not in ("ok", "unknown")
)
"""Causes that a message alone shows: then a machine that says it has the same finding."""

BLAMES_WHAT_WORKS = (
    "apple-silicon", "no-nvidia-gpu", "driver-missing", "driver-not-loaded", "amd-gpu", "intel-gpu",
    "torch-sees-no-gpu", "gpu-init-failed", "gpu-not-supported-by-driver", "secure-boot-rejected",
    "hybrid-gpu-off", "wsl-driver", "cuda-init-out-of-memory", "no-wheel-for-platform",
    "no-kernel-image", "extension-arch-mismatch", "triton-missing-windows", "driver-build-failed",
    "system-not-ready-fabric-manager", "driver-too-old",
)  # fmt: skip
"""What a machine whose GPU answers excludes, whatever some program said."""


@each("cause, events", LIVE)
def test_a_machine_on_which_a_program_says_it_has_the_same_finding(
    cause: str, events: tuple[Event, ...]
) -> None:
    if cause in BLAMES_WHAT_WORKS:
        return
    machine = changed(events=events, cuda_api=CudaApi())
    assert cause in {finding.id for finding in judged(machine).findings}


# --- the table of kinds --------------------------------------------------------------------------

EVIDENCE_ONLY = {
    "extension-arch", "gpu-computes", "module-missing", "capability-warning", "no-nvswitch",
    "requires-python", "new-smi-banner", "hosted-notebook", "gpu-image", "driver-check-failed",
    "torch-uninstalled", "guarded-set", "extension-installed", "triton-image-invalid",
    "slurm-job", "smi-sees-it", "training-run", "called-from",
}  # fmt: skip
"""Kinds that no finding is made of alone: they tell others apart."""
VALUES = {
    "module": "nvidia", "library": "libx.so", "code": "700", "number": "31", "how": "hung",
    "folder": "/usr/local/cuda/lib64", "width": "4", "width_max": "16",
}  # fmt: skip
TELLS_NO_MODULE = ("no-kernel-image",)
OLD_TORCH = Torch(installed=True, version="1.10.2+cu113", cuda="11.3", backend="cu113")


def alone_on() -> tuple[Snapshot, ...]:
    """Machines and texts to which one event more is told."""
    return (
        HEALTHY,
        text(),
        text(os=Os()),
        text(os=Os(family="windows")),
        text(container=Container(kind="docker")),
        text(torch=CU121, gpus=(V100,)),
        text(event("torchvision-mismatch")),
        smi(RTX_3090, torch=CU121),
        smi(RTX_3090, torch=OLD_TORCH),
    )


def added_by(kind: str) -> set[str]:
    """The findings that a machine has with an event, and has not without it."""
    values = {} if kind in TELLS_NO_MODULE else VALUES
    return {id for machine, without in made_alone() for id in made(machine, kind, values) - without}


@cache
def made_alone() -> tuple[tuple[Snapshot, set[str]], ...]:
    """The machines, and the findings that they have without another event."""
    return tuple((machine, made(machine)) for machine in alone_on())


def made(machine: Snapshot, kind: str = "", values: Mapping[str, str] | None = None) -> set[str]:
    events = (*machine.events, *event(kind, **values or {})) if kind else machine.events
    return {finding.id for finding in judged(replace(machine, events=events)).findings}


@each("kind", event_kinds)
def test_every_kind_of_event_alone_makes_its_finding(kind: str) -> None:
    added = added_by(kind)
    assert bool(added) == (kind not in EVIDENCE_ONLY), added
    assert kind in added or kind in OWN_NAME


def test_a_kind_that_nobody_knows_makes_no_finding() -> None:
    assert not added_by("no-such-kind")


def test_a_record_with_a_message_names_kinds_of_event_that_are_known() -> None:
    named = {kind for row in records() if row.message for kind in row.events or (row.id,)}
    assert named and named <= set(event_kinds())


# --- exact answers -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "backend"),
    [
        # The driver is not known: the lowest CUDA of the torch that the text is about.
        (text(torch=CPU, python=Python(version="3.11.9")), "cu118"),
        # A driver of CUDA 11.4 runs CUDA 11 builds.
        (text(torch=CU121, driver=Driver(version="470.199.02", cuda="11.4")), "cu118"),
        # The CUDA of an extension build is the request.
        (text(event("cuda-toolkit-mismatch-extension-build", nvcc="11.8", torch="12.4"),
              wanted=Wanted(cuda="11.8")), "cu118"),
        # No wheel is of nvcc 12.2: of that major the nearest that this torch has.
        (text(event("cuda-toolkit-mismatch-extension-build", nvcc="12.2", torch="11.8"),
              wanted=Wanted(cuda="12.2"),
              torch=Torch(version="2.6.0+cu118", cuda="11.8", backend="cu118")), "cu124"),
        (text(event("cuda-toolkit-mismatch-extension-build", nvcc="12.2", torch="11.8"),
              wanted=Wanted(cuda="12.2"),
              torch=Torch(version="2.5.1+cu118", cuda="11.8", backend="cu118")), "cu121"),
        # The index that was asked has nothing for this Python: another one has.
        (text(asked("torch", none_found="true"), python=Python(version="3.13.5"),
              wanted=Wanted(backend="cu121")), "cu126"),
        # No GPU of this kind is in the installed build, nor in any other of that release.
        (text(torch=Torch(version="1.13.1+cu117", cuda="11.7", backend="cu117"),
              gpus=(RTX_5090,)), "cu128"),
        # A wheel that x86_64 has and "this platform" has not: aarch64.
        (text(event("no-wheel-for-platform", requirement="torch==2.8.0+cu128"), os=Os(),
              wanted=Wanted(torch="==2.8.0", backend="cu128")), "cu129"),
        (text(gpus=(V100,), torch=Torch(kernels=("sm_75", "sm_80", "sm_90"))), "cu126"),
    ],
)  # fmt: skip
def test_the_build_that_a_text_asks_for(machine: Snapshot, backend: str) -> None:
    build = judged(machine).resolution.build
    assert build is not None and build.backend == backend


@pytest.mark.parametrize(
    ("machine", "floor"),
    [
        (text(event("driver-too-old", found="11040")), "525.60.13"),
        (text(event("driver-too-old", found="12020")), "580.65.06"),
        (text(event("driver-too-old", found="11040"), torch=CU121), "525.60.13"),
        (text(event("image-needs-newer-driver", cuda="12.4", driver_cuda="11.4")), "550.54.14"),
    ],
)
def test_the_driver_that_a_refusal_asks_for(machine: Snapshot, floor: str) -> None:
    root = next(f for f in judged(machine).findings if f.root)
    assert root.fix is not None and root.fix.min_driver == floor


def test_an_extension_is_built_anew_for_the_gpu_that_is_there() -> None:
    machine = text(event("no-kernel-image", module="detectron2._C"), gpus=(GTX_1080_TI,))
    root = judged(machine).findings[0]
    assert root.fix is not None and "export TORCH_CUDA_ARCH_LIST=6.1" in root.fix.commands


def test_a_companion_is_taken_from_the_index_of_its_torch_by_each_installer() -> None:
    said = event("torchvision-mismatch", torch="2.5.1+cu121", torchvision="0.19.1")
    for installer, words in (("pip", "--index-url URL"), ("uv", "--index URL --default-index URL")):
        torch = replace(CU121, installer=installer)
        root = judged(replace(text(said), torch=torch)).findings[0]
        assert root.fix is not None
        command = root.fix.commands[0]
        expected = words.replace("URL", "https://download.pytorch.org/whl/cu121")
        assert expected in command and command.endswith("torchvision==0.20.1+cu121")


@pytest.mark.parametrize(
    ("requirement", "python"),
    [
        ("torch==1.8.1", "3.9"),
        ("torch==2.1.0", "3.11"),
        ("torchvision==0.16.0", "3.11"),
        ("torchaudio==2.1.0", "3.11"),
    ],
)
def test_a_release_without_wheels_for_this_python_gets_one_that_it_has(
    requirement: str, python: str
) -> None:
    machine = text(asked(requirement, versions="2.5.0, 2.5.1"), python=Python(version="3.13.1"))
    root = judged(machine).findings[0]
    assert root.id == "python-no-wheel" and root.fix is not None
    assert root.fix.python == python and f"--python {python}" in root.fix.commands[0]


def test_a_value_that_is_no_name_is_left_out_of_commands() -> None:
    for package in ("x; rm -rf ~", "--index-url=http://evil.example", "$(id)"):
        root = judged(text(event("build-isolation-no-torch", package=package))).findings[0]
        assert root.fix is not None and not any(package in line for line in root.fix.commands)
    root = judged(text(event("build-isolation-no-torch", package="flash-attn"))).findings[0]
    assert root.fix is not None and root.fix.commands[-1].endswith(
        "--no-build-isolation flash-attn"
    )


def test_a_root_beside_another_error_is_only_likely() -> None:
    alone = judged(text(event("out-of-memory")))
    beside = judged(text(event("out-of-memory"), event("torchaudio-mismatch")))
    assert (alone.confidence, beside.confidence) == ("certain", "likely")
    assert judged(text()).confidence is None
    explained = judged(text(event("nccl-shm-error"), event("nccl-error")))
    assert explained.confidence == "certain"


def test_a_severity_is_what_stops_a_program() -> None:
    machine = text(
        event("requirement-broken", package="xformers", needs="torch==2.4.1", have="2.5.1")
    )
    assert [f.severity for f in judged(machine).findings] == [Severity.WARNING]


def test_a_gpu_of_another_maker_is_no_nvidia_gpu() -> None:
    amd = Gpu(name="AMD Radeon RX 7900 XTX")
    assert judged(text(gpus=(amd,), torch=CPU)).cause == "amd-gpu"
    assert judged(text(gpus=(amd, RTX_3090), torch=CPU)).cause == "torch-cpu-build"


def test_a_machine_on_which_nothing_was_said_is_judged_without_the_rules_about_messages() -> None:
    of_any = set(ANYWHERE)
    assert rules_for(Snapshot()) == ANYWHERE
    assert set(rules_for(HEALTHY)) == of_any | set(of_a_driver())
    assert set(rules_for(HEALTHY)) < set(rules_for(text(event("xid"))))


# --- whatever is said ----------------------------------------------------------------------------

VALUE = st.sampled_from(
    ("", "0", "2", "79", "700", "999", "99999999999", "12.4", "cp310", "sm_86", "sm_", "x{y}",
     "{0}", "torch", "torch==2.5.1+cu121", "torch-2-cp3-cp3-x.whl", "libcuda.so.1", "nvidia",
     "host", "a b;c", "None", "https://download.pytorch.org/whl/cu121", "1.0, 2.0",
     "9" * 400, "\u202e\x1b[31m")
)  # fmt: skip


@st.composite
def utterances(draw: st.DrawFn) -> tuple[Event, ...]:
    kinds = draw(st.lists(st.sampled_from(sorted(event_kinds())), max_size=5))
    return tuple(
        Event(
            kind=kind,
            values={
                name: draw(VALUE) for name in sorted(event_kinds()[kind]) if draw(st.booleans())
            },
            source="a log",
            text=kind,
        )
        for kind in kinds
    )


STACKS = (text(), smi(RTX_3090, torch=CU121), text(torch=CPU, os=Os(family="windows")),
          text(os=Os(family="macos")), text(os=replace(LINUX, wsl=True)),
          text(container=Container(kind="docker")), smi(V100, A100), HEALTHY)  # fmt: skip


@settings(max_examples=75)
@example(text(), event("out-of-memory", total_bytes="9" * 400))
@example(text(), event("cuda-error", code="9" * 5000))
@example(text(), event("no-wheel-for-platform", said="in words"))
@example(text(), event("driver-too-old", found="9" * 5000, driver_cuda="9" * 5000))
@given(st.sampled_from(STACKS), utterances())
def test_whatever_is_said_no_rule_breaks_and_a_root_has_its_evidence(
    stack: Snapshot, said: tuple[Event, ...]
) -> None:
    diagnosis = judged(replace(stack, events=said))
    known = {row.id for row in records()}
    ids = [finding.id for finding in diagnosis.findings]
    assert "rule-broken" not in ids and len(ids) == len(set(ids))
    assert {diagnosis.cause, *ids} <= known
    for finding in diagnosis.findings:
        assert finding.explained_by is None or finding.explained_by in ids
        assert not finding.root or finding.evidence


# --- which driver --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "floor"),
    [({"cuda": "12.8"}, "570.26"), ({"cuda": "11.8"}, "520.61.05"),
     ({"needs_driver": "545.23", "driver": "535.54"}, "545.23")],
)  # fmt: skip
def test_an_image_needs_the_driver_that_serves_its_cuda_fully(
    values: dict[str, str], floor: str
) -> None:
    root = judged(text(event("image-needs-newer-driver", **values))).findings[0]
    assert (root.id, root.fix and root.fix.min_driver) == ("driver-too-old", floor)


@pytest.mark.parametrize(
    ("driver", "named"),
    [("470.xx", "470 branch"), ("open", "proprietary"), ("550.54.14", "branch and flavour")],
)
def test_the_driver_for_a_gpu_that_this_one_drops_is_named(driver: str, named: str) -> None:
    root = judged(text(event("gpu-not-supported-by-driver", driver=driver))).findings[0]
    assert root.fix is not None and named in root.fix.text


@pytest.mark.parametrize(
    ("kernel", "command"),
    [("6.8.1-300.fc40.x86_64", "sudo dnf install -y kernel-devel-6.8.1-300.fc40.x86_64"),
     ("6.12.9-zen1-1-zen", "sudo pacman -S --noconfirm linux-zen-headers"),
     ("6.1.0-13-cloud-amd64", "sudo apt install -y linux-headers-6.1.0-13-cloud-amd64"),
     ("6.9.0-mine", "sudo reboot")],
)  # fmt: skip
def test_headers_are_named_after_whose_kernel_it_is(kernel: str, command: str) -> None:
    root = judged(text(event("driver-build-failed", kernel=kernel))).findings[0]
    assert root.fix is not None and root.fix.commands[0] == command


def test_a_file_that_the_image_has_already_is_deleted_there() -> None:
    problem = "mount error: file creation failed: /merged/usr/lib/libcuda.so.1: file exists"
    root = judged(text(event("container-hook-failed", problem=problem))).findings[0]
    assert root.fix is not None and "RUN rm -f" in root.fix.text


@pytest.mark.parametrize(
    ("problem", "rootless"),
    [
        ("mount error: open failed: /sys/fs/cgroup/devices/user.slice/devices.allow: denied", True),
        ("mount error: failed to add device rules: unable to find any existing filters", True),
        ("container error: cgroup subsystem devices not found", False),
        ("initialization error: nvml error", False),
    ],
)
def test_an_engine_without_root_leaves_control_groups_alone(problem: str, rootless: bool) -> None:
    root = judged(text(event("container-hook-failed", problem=problem))).findings[0]
    assert root.fix is not None
    assert any("no-cgroups" in command for command in root.fix.commands) is rootless


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        (None, "sudo systemctl restart docker"),
        ("docker", "sudo systemctl restart docker"),
        ("kubernetes", "sudo nvidia-ctk runtime configure --runtime=containerd"),
        ("podman", "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"),
    ],
)
def test_the_toolkit_is_made_known_to_the_engine_that_asks(kind: str | None, command: str) -> None:
    machine = text(event("container-toolkit-missing"), container=Container(kind=kind))
    root = judged(machine).findings[0]
    assert root.fix is not None and command in root.fix.commands


def test_a_gpu_without_address_space_needs_the_firmware_not_another_driver() -> None:
    without = judged(text(event("gpu-init-failed", lacks="address space"))).findings[0]
    plain = judged(text(event("gpu-init-failed"))).findings[0]
    assert without.fix is not None and "Above 4G" in without.fix.text
    assert plain.fix is not None and "Above 4G" not in plain.fix.text


def ways_of(machine: Snapshot, cause: str) -> tuple[str, tuple[str, ...]]:
    fix = next(one.fix for one in judged(machine).findings if one.id == cause and one.fix)
    return fix.text, fix.commands


def test_variables_of_ollamas_service_are_set_in_the_service() -> None:
    off = (replace(RTX_3090, visible=False),)
    hidden = changed(gpus=off, env={"CUDA_VISIBLE_DEVICES": "-1"})
    said, _ = ways_of(
        replace(hidden, failing=Failing(program="ollama")), "cuda-visible-devices-hidden"
    )
    assert "sudo systemctl restart ollama" in said and "~/.bashrc" not in said
