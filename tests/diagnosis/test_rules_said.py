"""Causes that messages show: each is the root of a text, and of a machine, that says so.

Beside every one stands a neighbour: a text very like it, of which it must not be the cause.
"""

from __future__ import annotations

from typing import Any

from each_row import each
from judging import (
    GTX_1080_TI,
    RTX_3090,
    event,
    judged,
    spoken_of,
)

from gpusetup.diagnosis.explanations import records
from gpusetup.model.frozen import replace
from gpusetup.model.machine import (
    Container,
    CudaApi,
    DeviceNode,
    Driver,
    Event,
    Gpu,
    Os,
    Snapshot,
    Torch,
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


GRID = replace(RTX_3090, name="GRID A100-8C", visible=None)


ROOTS: tuple[tuple[str, Snapshot, Snapshot], ...] = (
    # --- what stands around the process ---
    ("cuda-visible-devices-hidden",
     smi(RTX_3090, environment={"CUDA_VISIBLE_DEVICES": "2"}, cuda_api=CudaApi(init_code=100)),
     smi(RTX_3090, environment={"CUDA_VISIBLE_DEVICES": "0"}, cuda_api=CudaApi(init_code=100))),
    ("driver-missing",
     text(event("container-hook-failed"), event("no-nvidia-driver", place="host"),
          container=Container(kind="docker")),
     text(event("no-nvidia-driver"), container=Container(kind="docker"))),
    # nvidia-smi works beside it, and libcuda was not given.
    ("container-driver-capability-missing",
     replace(smi(RTX_3090, container=Container(kind="docker")),
             events=event("no-nvidia-driver") + event("container-driver-capability-missing")),
     replace(smi(RTX_3090, container=Container(kind="docker")), events=event("no-nvidia-driver"))),
    ("wsl-driver", text(os=replace(LINUX, wsl=True), torch=replace(CU121, cuda_available=False)),
     text(os=LINUX, torch=replace(CU121, cuda_available=False))),
    # --- the driver ---
    ("gpu-hang", replace(smi(RTX_3090), events=event("xid", number="8")),
     text(event("xid", number="8"), event("xid", number="79"))),
    # The recovery that Xid 154 asks for is another Xid's; alone it is all that is known.
    ("ecc-error", text(event("xid", number="154"), event("xid", number="48")),
     text(event("xid", number="154"))),
    ("driver-build-failed", text(event("driver-build-failed"), event("driver-not-loaded")),
     text(event("secure-boot-rejected"), event("driver-not-loaded"))),
    # The kernel driver speaks of a GPU that it does not know: there is one.
    ("gpu-not-supported-by-driver",
     text(event("gpu-not-supported-by-driver"), event("no-nvidia-gpu")),
     text(event("no-nvidia-gpu"))),
    # Fabric Manager finds no switch: nothing needs it, unless CUDA waits for the fabric.
    # A vGPU whose licence ran out answers as a GPU that is taken.
    ("vgpu-unlicensed", text(event("vgpu-unlicensed"), event("cuda-error", code="46")),
     text(event("cuda-error", code="46"))),
    ("device-permission",
     text(event("cuda-unavailable"), devices=(closed("----"),)),
     text(event("cuda-unavailable"), devices=(closed("-rw-"),))),
    # nvidia-smi runs, so that the driver's packages are there, whatever torch calls it.
    ("driver-not-loaded", text(event("driver-not-loaded"), event("no-nvidia-driver")),
     text(event("smi-not-found"), event("no-nvidia-driver"))),
    ("secure-boot-rejected", text(event("driver-not-loaded"), event("secure-boot-rejected")),
     text(event("driver-not-loaded"), event("module-not-found", module="nvidia"))),
    ("hybrid-gpu-off", text(event("driver-not-loaded"), event("hybrid-gpu-off", tool="asusctl")),
     text(event("driver-not-loaded"))),
    # --- CUDA starts, or does not ---
    # CUDA refuses a virtual GPU that is named; without one an old driver says the same.
    ("vgpu-no-compute",
     text(event("compute-mode-exclusive"), event("cuda-error", code="801"), gpus=(GRID,)),
     text(event("compute-mode-exclusive"), event("cuda-error", code="801"))),
    # --- the hardware ---
    ("pcie-degraded", text(event("pcie-errors", severity="Corrected")),
     text(event("pcie-errors", severity="Corrected"), event("xid", number="79"))),
    # --- installing ---
    ("no-wheel-for-platform",
     text(asked("torch==2.4.0", versions="2.1.0, 2.2.0, 2.2.2"), os=Os(family="macos")),
     text(asked("torch==2.4.0", versions="2.1.0, 2.2.0, 2.2.2"))),
    ("download-hash-mismatch", text(event("download-hash-mismatch", file="torch.whl")),
     text(event("pip-cache-disk-full"), event("download-hash-mismatch"))),
    ("conda-cuda-virtual-missing",
     text(event("conda-cuda-virtual-missing", needed="__cuda >=12"), event("resolver-conflict")),
     text(event("resolver-conflict"))),
    ("resolver-conflict", text(event("resolver-conflict")),
     text(event("python-no-wheel"), event("resolver-conflict"))),
    # --- building ---
    ("build-isolation-no-torch", text(event("build-isolation-no-torch"), event("torch-missing")),
     text(event("torch-missing"))),
    ("triton-missing-windows", text(event("triton-missing-windows"), os=Os(family="windows")),
     text(event("triton-no-compiler"), os=Os(family="windows"))),
    # --- the wheel and its libraries ---
    ("torch-cpu-build", text(torch=CPU), text(event("host-out-of-memory"), torch=CPU_UNASKED)),
    ("mixed-conda-pip", text(event("mixed-conda-pip", library="libtorch_python.so")),
     text(event("extension-abi-mismatch", module="apex"))),
    ("jetson-wrong-wheel",
     text(os=Os(family="linux", machine="aarch64", jetson="R35.4.1"), torch=CPU),
     text(os=Os(family="linux", machine="aarch64"), torch=CPU)),
    ("extension-arch-mismatch",
     text(event("no-kernel-image", module="detectron2._C"), gpus=(GTX_1080_TI,)),
     text(event("no-kernel-image", module="torch"), gpus=(GTX_1080_TI,))),
    ("windows-pagefile-too-small",
     text(event("windows-pagefile-too-small"), event("windows-dll-missing")),
     text(event("windows-dll-missing", code="1114"))),
    ("library-not-mapped", text(event("library-not-mapped", library="libcusparseLt.so.0")),
     text(event("library-missing", library="libcusparseLt.so.0"))),
    # --- while it runs ---
    ("host-out-of-memory", text(event("host-out-of-memory"), event("dataloader-worker-killed")),
     text(event("dataloader-worker-killed"))),
    ("nccl-duplicate-gpu",
     text(event("nccl-duplicate-gpu", rank="0", other="1"), event("nccl-error")),
     text(event("invalid-device-ordinal"), event("nccl-error"))),
    ("nccl-no-socket-interface", text(event("nccl-no-socket-interface"), event("nccl-error")),
     text(event("nccl-error"))),
    ("nccl-shm-error", text(event("nccl-shm-error"), event("nccl-error")),
     text(event("shm-too-small"), event("nccl-shm-error"))),
    ("nccl-timeout", text(event("nccl-timeout"), event("nccl-error")),
     text(event("nccl-timeout"), event("out-of-memory"))),
    # --- healthy, or not said ---
    ("out-of-memory",
     text(event("cuda-library-error", status="CUDNN_STATUS_NOT_INITIALIZED"), gpus=(FULL,)),
     text(event("cuda-library-error", status="CUDNN_STATUS_NOT_INITIALIZED"), gpus=(RTX_3090,))),
    ("port-in-use", text(event("port-in-use", port="29500"), event("nccl-error")),
     text(event("nccl-error"))),
    ("extension-abi-mismatch",
     text(event("windows-dll-missing", module="a"), event("extension-abi-mismatch", module="a")),
     text(event("windows-dll-missing", module="b"), event("extension-abi-mismatch", module="a"))),
    ("windows-path-too-long",
     text(event("windows-path-too-long"), event("windows-dll-missing", code="126")),
     text(event("windows-dll-missing", code="126"))),
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
    root = next((f for f in diagnosis.findings if f.root), None)
    if root is None:
        assert cause in ("ok", "unknown")
    else:
        assert root.evidence and root.fix and root.fix.text


# --- exact answers -------------------------------------------------------------------------------


BUILT = "driver-build-failed"
HOOK = "container-hook-failed"
UNKNOWN_TO = "gpu-not-supported-by-driver"
NEEDS = "image-needs-newer-driver"


@each(
    "said, told, never",
    [
        (event(NEEDS, cuda="12.8"), "570.26", "520"),
        (event(NEEDS, cuda="11.8"), "520.61.05", "570"),
        (event(NEEDS, needs_driver="545.23", driver="535.54"), "545.23", "570"),
        (event(UNKNOWN_TO, driver="470.xx"), "the last driver branch", "proprietary"),
        (event(UNKNOWN_TO, driver="open"), "proprietary", "branch that the message"),
        (event(UNKNOWN_TO, driver="550.54.14"), "branch and modules", "branch that the message"),
        (event(BUILT, kernel="6.8.1-300.fc40.x86_64"),
         "sudo dnf install -y kernel-devel-6.8.1-300.fc40.x86_64", "apt install"),
        (event(BUILT, kernel="6.12.9-zen1-1-zen"),
         "sudo pacman -S --noconfirm linux-zen-headers", "apt install"),
        (event(BUILT, kernel="6.1.0-13-cloud-amd64"),
         "sudo apt install -y linux-headers-6.1.0-13-cloud-amd64", "dnf"),
        (event(BUILT, kernel="6.9.0-mine"), "sudo reboot", "apt install"),
        (event(HOOK, problem="mount error: open failed: /sys/fs/cgroup/devices/user.slice/"
                             "devices.allow: denied"), "no-cgroups", "RUN rm"),
        (event(HOOK, problem="mount error: failed to add device rules: unable to find any existing "
                             "filters"), "no-cgroups", "RUN rm"),
        (event(HOOK, problem="container error: cgroup subsystem devices not found"),
         "", "no-cgroups"),
        (event("gpu-init-failed", lacks="address space"), "Above 4G", "None"),
        (event("gpu-init-failed"), "", "Above 4G"),
    ],
)  # fmt: skip
def test_a_value_of_a_message_decides_the_way_out(
    said: tuple[Event, ...], told: str, never: str
) -> None:
    fix = judged(text(said)).findings[0].fix
    assert fix
    shown = "\n".join((fix.text, fix.min_driver or "", *fix.commands))
    assert told in shown and never not in shown


def test_a_value_that_is_no_name_is_left_out_of_commands() -> None:
    for package in ("x; rm -rf ~", "--index-url=http://evil.example", "$(id)"):
        root = judged(text(event("build-isolation-no-torch", package=package))).findings[0]
        assert root.fix and not any(package in line for line in root.fix.commands)
    root = judged(text(event("build-isolation-no-torch", package="flash-attn"))).findings[0]
    assert root.fix and root.fix.commands[-1].endswith("--no-build-isolation flash-attn")


# --- whatever is said ----------------------------------------------------------------------------
