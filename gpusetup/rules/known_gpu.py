"""What is known about the GPUs: their devices, faults, speed and limits."""

from __future__ import annotations

from gpusetup.rules.fact import Fact

FACTS: tuple[Fact, ...] = (
    Fact(
        id="uvm-missing",
        title="nvidia_uvm or its node is missing",
        means="NVML and nvidia-smi work without it, CUDA does not.",
        proven_by="Module or node missing, and cuInit fails",
        way_out="modprobe nvidia_uvm; nvidia-modprobe -u",
        source="manual page of nvidia-modprobe",
    ),
    Fact(
        id="device-permission",
        title="this user may not open the device nodes",
        means="Group, SELinux or cgroup rules.",
        proven_by="A node that is not readable and writable",
        way_out="Join the owning group",
        source="udev rules of the driver packages",
    ),
    Fact(
        id="mig-misconfigured",
        title="MIG without an instance, or several and none chosen",
        means=(
            "CUDA uses one MIG instance a process, and none of a GPU in MIG mode without instances."
        ),
        proven_by="MIG on and no instance; several and no MIG- name in CUDA_VISIBLE_DEVICES",
        way_out="Create or name an instance",
        source='NVIDIA, "MIG User Guide"',
    ),
    Fact(
        id="compute-mode-prohibited",
        title="the compute mode forbids compute",
        means="Set by an administrator.",
        proven_by="Compute mode Prohibited",
        not_when="vgpu-no-compute",
        way_out="nvidia-smi -c DEFAULT",
        source="nvidia-smi's manual page",
    ),
    Fact(
        id="compute-mode-exclusive",
        title="the GPU takes one process at a time",
        means="Exclusive mode; with code 46 it is taken.",
        proven_by="Compute mode Exclusive_Process; code 46",
        way_out="End the other process, or set the mode to default",
        source="nvidia-smi's manual page; CUDA Driver API reference, CUresult",
    ),
    Fact(
        id="vgpu-no-compute",
        title="the vGPU allows no CUDA",
        means="A and B profiles have no compute; without a licence neither have others.",
        proven_by="Code 801 or 102; compute mode Prohibited on a vGPU",
        way_out="A Q or C profile",
        source='NVIDIA, "Virtual GPU Software User Guide"',
    ),
    Fact(
        id="vgpu-unlicensed",
        title="a vGPU without a licence",
        means="Performance is cut down step by step.",
        proven_by="NVML says unlicensed",
        way_out="Licence token",
        source='NVIDIA, "Virtual GPU Client Licensing User Guide"',
    ),
    Fact(
        id="gpu-fell-off-bus",
        title="the GPU no longer answers on the bus",
        means="Power, heat, seating, or power saving of the link.",
        proven_by="Xid 79, `GPU is lost`",
        way_out="Reboot; look at power and seating",
        source='NVIDIA, "Xid Errors"',
    ),
    Fact(
        id="gsp-timeout",
        title="the GPU's system processor does not answer",
        means="Firmware or hardware.",
        proven_by="Xid 119 or 120",
        way_out="Reboot, update the driver",
        source='NVIDIA, "Xid Errors"',
    ),
    Fact(
        id="hardware-fault",
        title="another hardware fault",
        means="Micro-controller, NVLink, power connectors.",
        proven_by=(
            "What the driver recommends (a reset, a reboot: NVML, Xid 154); "
            "Xid 54, 56 to 59, 61, 62, 74, 80, 81, 92, 110, 122, 123, 136, 143 to 150, 154, 155, "
            "158, 167 to 169; an SXid that is not non-fatal"
        ),
        not_when="Xid 13, 31, 43, 45: a program's own fault; Xid 8, 109: gpu-hang",
        way_out="Reboot; field diagnostic",
        source='NVIDIA, "Xid Errors"',
    ),
    Fact(
        id="ecc-error",
        title="memory errors that ECC cannot correct",
        means="A memory row is bad; after a reset it is remapped, until there are no spare rows.",
        proven_by=(
            "Uncorrected errors, a failed or pending remapping, 60 retired pages, the SRAM "
            "threshold, Xid 48, 63, 64, 94, 95, 140, 156, "
            "157, 160, 161, 171, 172; code 214"
        ),
        not_when="Corrected errors, which are harmless",
        way_out="Reset; replace if remapping failed",
        source='NVIDIA, "Xid Errors", "GPU Memory Error Management", "Dynamic Page Retirement"',
    ),
    Fact(
        id="gpu-hang",
        title="the GPU hung",
        means="A kernel that does not end, a fault of the driver, or a GPU that is not stable.",
        proven_by="Xid 8, 38, 44, 46, 109",
        not_when="gpu-fell-off-bus, gsp-timeout, hardware-fault, ecc-error: then that is why",
        way_out="End the program, reset the GPU, update the driver; then look at the hardware",
        source='NVIDIA, "Xid Errors", catalog',
    ),
    Fact(
        id="xid-of-a-program",
        title="Xids that a program's own fault causes",
        means="A bad address or a killed process.",
        proven_by="Xid 11, 13, 31, 32, 43, 45, 68, 69 and those of the copy and video engines",
        not_when="hardware-fault",
        way_out="Nothing on the machine",
        source='NVIDIA, "Xid Errors"',
    ),
    Fact(
        id="power-thermal-throttle",
        title="heat or power hold the clocks down",
        means="The hardware protects itself.",
        proven_by="A hardware or thermal slowdown reason, 90 °C or more",
        not_when="sw_power_cap under load, which is normal",
        way_out="Cooling, power",
        source="nvidia-smi's manual page",
    ),
    Fact(
        id="power-limit-lowered",
        title="the power limit is below the card's default",
        means="Somebody set it (`nvidia-smi -pl`); less speed under load, less heat.",
        proven_by="A limit below the default one, on no laptop",
        way_out="nvidia-smi -pl with the default, where card and supply carry it",
        source="nvidia-smi's manual page",
    ),
    Fact(
        id="nvlink-degraded",
        title="NVLinks are inactive, or were trained anew",
        means="What goes between GPUs is slower or takes the way over PCIe.",
        proven_by=(
            "Fewer active links than a GPU of the same kind, an inactive one on a board with "
            "switches, recovery errors"
        ),
        not_when="One bridge between two cards, which uses a part of their links",
        way_out="Reboot; look at the bridge and the seating",
        source="nvidia-smi's manual page (nvlink); NVML API reference, NvLink methods",
    ),
    Fact(
        id="fabric-unhealthy",
        title="the NVSwitch fabric works, and not as it should",
        means="A route, its bandwidth or its configuration is at fault.",
        proven_by="NVML's fabric health, or a registration that ended with an error",
        not_when="system-not-ready-fabric-manager: then it is not set up at all",
        way_out="Fabric Manager's log; start it anew; reset the board's GPUs",
        source='NVML API reference, nvmlGpuFabricInfoV; NVIDIA, "Fabric Manager User Guide"',
    ),
    Fact(
        id="pcie-degraded",
        title="the PCIe link is narrow, or slow under load",
        means="Riser, slot, seating.",
        proven_by="Half the lanes or fewer (and below 8); a lower generation while busy",
        not_when="A lower generation at rest, which is power saving",
        way_out="Seat the card anew",
        source="nvidia-smi's manual page",
    ),
    Fact(
        id="gpu-memory-taken",
        title="another process holds most of the memory",
        means="What is left may be too little.",
        proven_by="More than 85 % used",
        way_out="See nvidia-smi",
        source="nvidia-smi's manual page",
    ),
    Fact(
        id="gpu-newer-than-catalog",
        title="the GPU is newer than the catalog",
        means="Kernels of its major version may serve it.",
        proven_by="A capability above every row",
        way_out="Update gpusetup",
        source="the wheels and indexes of torch, read for the catalog",
    ),
    Fact(
        id="gpu-order-differs",
        title="CUDA counts GPUs otherwise than nvidia-smi",
        means="CUDA puts the fastest first unless CUDA_DEVICE_ORDER=PCI_BUS_ID.",
        proven_by="Several kinds of GPU and no such variable",
        way_out="Set CUDA_DEVICE_ORDER=PCI_BUS_ID",
        source="CUDA C++ Programming Guide, environment variables",
    ),
    Fact(
        id="bf16-unsupported",
        title="no bfloat16 on this GPU",
        means="bfloat16 begins with compute capability 8.0.",
        proven_by="A capability below 8.0",
        way_out="float16 with a GradScaler",
        source="CUDA C++ Programming Guide, compute capabilities",
    ),
    Fact(
        id="gpu-too-old-for-triton",
        title="too old for torch.compile",
        means="Triton needs compute capability 7.0.",
        proven_by="A capability below 7.0",
        way_out="Run eagerly",
        source="message of torch._inductor",
    ),
)
