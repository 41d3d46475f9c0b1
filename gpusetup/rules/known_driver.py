"""What is known about GPUs, drivers and the CUDA driver API."""

from __future__ import annotations

from gpusetup.rules.knowledge import Fact

FACTS: tuple[Fact, ...] = (
    Fact(
        id="apple-silicon",
        title="a Mac with an Apple GPU: there is no CUDA",
        means="Apple's GPUs are used by torch as device mps; CUDA builds do not exist for macOS.",
        proven_by="macOS on arm64",
        way_out="Use device mps or cpu; the ordinary wheel has both",
        source="torch documentation, MPS backend",
    ),
    Fact(
        id="no-nvidia-gpu",
        title="the machine has no NVIDIA GPU",
        means="CUDA needs an NVIDIA GPU; torch's CPU build works without one.",
        proven_by="A PCI bus without NVIDIA's vendor id, no driver, no GPU listed",
        not_when=(
            "A container that was not given its host's GPU; a GPU that is there without its driver"
        ),
        way_out="Use the CPU build, or another machine",
        source="PCI ids: vendor 10de",
    ),
    Fact(
        id="amd-gpu",
        title="the GPU is AMD's",
        means="CUDA builds do not use it; ROCm builds exist for Linux.",
        proven_by=(
            "An AMD display controller and none of NVIDIA, or a ROCm build without an NVIDIA GPU"
        ),
        not_when="A ROCm build on a machine that has an NVIDIA GPU",
        way_out="Install the ROCm build where ROCm supports the GPU",
        source="torch's index, labels rocm*",
    ),
    Fact(
        id="intel-gpu",
        title="the GPU is Intel's and torch an XPU build",
        means="No prescription for NVIDIA applies.",
        proven_by="An XPU build of torch and no NVIDIA GPU",
        not_when="An Intel GPU beside an NVIDIA one",
        way_out="Use device xpu",
        source="torch documentation, XPU backend",
    ),
    Fact(
        id="driver-missing",
        title="an NVIDIA GPU and no NVIDIA driver",
        means=(
            "The GPU is on the bus, and neither the kernel module nor the libraries are installed."
        ),
        proven_by="NVIDIA on the PCI bus, no libcuda, no module on disk",
        not_when="driver-not-loaded: something of a driver is installed; a container; WSL",
        way_out="Install the distribution's driver package and reboot",
        source='NVIDIA, "Driver Installation Guide"',
    ),
    Fact(
        id="driver-not-loaded",
        title="the driver is installed, its kernel module is not loaded",
        means=(
            "After a kernel update without a rebuilt module, with nouveau in the way, or a "
            "module that Secure Boot refuses."
        ),
        proven_by="Libraries or a module on disk and no loaded module; NVML code 9",
        not_when="driver-missing: nothing is installed",
        way_out="Load or rebuild the module; keep nouveau away; reboot",
        source=(
            'NVML API reference, nvmlReturn_t (DRIVER_NOT_LOADED); NVIDIA, "Driver '
            'Installation Guide"'
        ),
    ),
    Fact(
        id="secure-boot-rejected",
        title="Secure Boot rejects the kernel module",
        means="The module's signature is by a key that the firmware does not know.",
        proven_by="The kernel log says `Key was rejected by service`",
        not_when="A module that is not there at all",
        way_out="Enroll the key (mokutil) or switch Secure Boot off",
        source="Linux kernel, module signing",
    ),
    Fact(
        id="hybrid-gpu-off",
        title="a laptop's switch has the NVIDIA GPU off",
        means=(
            "supergfxctl, prime-select, envycontrol and others remove the GPU from the bus "
            "or blacklist its module."
        ),
        proven_by="The tool's state or its configuration says so",
        not_when="A driver that is missing",
        way_out="Switch to hybrid, reboot",
        source="the tools' own documentation",
    ),
    Fact(
        id="gpu-passed-through",
        title="the GPU is kept for a virtual machine",
        means="vfio-pci holds the device, so the NVIDIA driver cannot.",
        proven_by="Every NVIDIA device on the bus is bound to vfio-pci or pci-stub",
        way_out="Use it in the guest, or take it out of the vfio options",
        source="Linux kernel, VFIO",
    ),
    Fact(
        id="nvml-mismatch",
        title="kernel module and driver library are of two versions",
        means="The packages were updated while the old module stayed in memory.",
        proven_by="NVML code 18, or two versions read",
        not_when="WSL, where the two have versions of their own",
        way_out="Reboot",
        source="NVML API reference, nvmlReturn_t (LIB_RM_VERSION_MISMATCH)",
    ),
    Fact(
        id="gpu-init-failed",
        title="the driver is loaded and cannot start the GPU",
        means=(
            "RmInitAdapter failed: firmware, power, seating, address space, or a GPU that "
            "the driver does not support."
        ),
        proven_by="The module is bound to the GPU, no device is listed, or the kernel log says so",
        not_when="A GPU that fell off the bus later",
        way_out="Full power-off; the right driver flavour",
        source="messages of NVIDIA's open kernel modules",
    ),
    Fact(
        id="gpu-not-supported-by-driver",
        title="the loaded driver does not know the GPU",
        means=(
            "Old GPUs end with a driver branch; GPUs before Turing need the closed modules,"
            " from Blackwell on the open ones."
        ),
        proven_by="The kernel log says that the GPU is not supported or legacy",
        way_out="Install the branch and flavour that the GPU needs",
        source='NVIDIA, "Driver Installation Guide"; the catalog\'s table of last branches',
    ),
    Fact(
        id="driver-too-old",
        title="the driver serves less CUDA than torch needs",
        means=(
            "Each CUDA family has a least driver; within 11, 12 and 13 any minor version "
            "runs on it."
        ),
        proven_by="The driver's version below the floor of torch's CUDA",
        not_when="A driver that says itself that it serves that CUDA",
        way_out="Update the driver, or install a torch for an older CUDA",
        source='NVIDIA, "CUDA Compatibility"',
    ),
    Fact(
        id="driver-newer-than-catalog",
        title="the driver is newer than the catalog",
        means="It counts as the newest row: drivers serve older CUDA.",
        proven_by="A driver branch above every row",
        way_out="Nothing",
        source='NVIDIA, "CUDA Compatibility"',
    ),
    Fact(
        id="driver-to-expect",
        title="which driver this torch needs on the other host",
        means="With --for-gpu and no --for-driver the driver is not judged.",
        proven_by="A CUDA build and a named GPU",
        way_out="Name the driver",
        source='NVIDIA, "CUDA Compatibility"',
    ),
    Fact(
        id="driver-slow",
        title="the driver took long to answer",
        means=(
            "Without persistence mode the driver starts every GPU anew for each program: 10"
            " to 30 s on a big node."
        ),
        proven_by="An answer after more than 5 s",
        way_out="Enable nvidia-persistenced",
        source='NVIDIA, "Driver Persistence"',
    ),
    Fact(
        id="driver-does-not-answer",
        title="asking the driver hung or crashed",
        means=(
            "A library of the driver crashed or did not come back: a GPU that stopped, or a"
            " driver half updated."
        ),
        proven_by="The child that asked ran into its time limit, or died by a signal",
        not_when="driver-slow: it answered",
        way_out="Kernel log, reboot",
        source="gpusetup asks in children with a time limit",
    ),
    Fact(
        id="cuda-sees-no-device",
        title="CUDA sees no device although there is one",
        means="cuInit answers 100.",
        proven_by="Code 100 and a GPU that another source lists",
        not_when="A machine without a GPU; hidden GPUs",
        way_out="Look at CUDA_VISIBLE_DEVICES, compute mode, MIG",
        source="CUDA Driver API reference, CUresult",
    ),
    Fact(
        id="invalid-device-ordinal",
        title="a device index beyond the visible GPUs",
        means="More ranks than GPUs, or an index that does not exist.",
        proven_by="Code 101",
        way_out="Name only GPUs that nvidia-smi -L lists",
        source="CUDA Driver API reference, CUresult",
    ),
    Fact(
        id="os-call-failed",
        title="a system call of the CUDA driver failed",
        means="Missing or forbidden device nodes, cgroup or seccomp rules, limits.",
        proven_by="Code 304",
        not_when="uvm-missing and device-permission, which say which call",
        way_out="Make the nodes, lift the limit",
        source="CUDA Driver API reference, CUresult",
    ),
    Fact(
        id="system-not-ready-fabric-manager",
        title="the NVSwitch fabric is not ready",
        means="Systems with NVSwitch need the Fabric Manager of exactly the driver's version.",
        proven_by="Code 802, or a fabric state that is not completed",
        not_when="A Hopper system where confidential computing waits for its ready state",
        way_out="Install and start nvidia-fabricmanager",
        source='CUDA Driver API reference, CUresult; NVIDIA, "Fabric Manager User Guide"',
    ),
    Fact(
        id="libcuda-driver-mismatch",
        title="libcuda does not belong to the loaded driver",
        means="A stale or mounted copy of libcuda, or cuda-compat in front.",
        proven_by="Code 803",
        not_when="nvml-mismatch, which a reboot mends",
        way_out="Remove the copy",
        source="CUDA Driver API reference, CUresult",
    ),
    Fact(
        id="forward-compat-unsupported",
        title="cuda-compat on hardware or a driver that does not allow it",
        means="Forward compatibility is for data centre GPUs and some drivers.",
        proven_by="Code 804",
        way_out="Take cuda-compat out of the path, or update the host's driver",
        source='CUDA Driver API reference, CUresult; NVIDIA, "CUDA Compatibility"',
    ),
    Fact(
        id="mps-server",
        title="the CUDA MPS daemon refuses",
        means="Another user's daemon, one that is not ready, or too many clients.",
        proven_by="Codes 805 to 809",
        way_out="Stop the daemon",
        source='NVIDIA, "Multi-Process Service"',
    ),
    Fact(
        id="cuda-init-out-of-memory",
        title="CUDA cannot start for lack of memory or address space",
        means="CUDA reserves a large address space; ulimit -v or a small guest forbids it.",
        proven_by="Code 2 from cuInit",
        not_when="Out of memory while a program runs",
        way_out="Lift the limit",
        source="CUDA Driver API reference, CUresult",
    ),
    Fact(
        id="driver-call-unsupported",
        title="libcuda asks more than the kernel driver can do",
        means="Libraries newer than the module.",
        proven_by="Code 36",
        way_out="One version of both",
        source="CUDA Driver API reference, CUresult",
    ),
    Fact(
        id="cuda-unknown-error",
        title="CUDA does not start: unknown error",
        means="Often nvidia_uvm after suspend.",
        proven_by="Code 999 (30 in older runtimes)",
        not_when="uvm-missing; a container",
        way_out="Load nvidia_uvm anew, or reboot",
        source="CUDA Driver API reference, CUresult",
    ),
    Fact(
        id="cuda-init-failed",
        title="CUDA does not start, with another code",
        means="A code without a row of its own.",
        proven_by="cuInit answers neither 0 nor a known code",
        way_out="Reboot; install the driver anew",
        source="CUDA Driver API reference, CUresult",
    ),
    Fact(
        id="libcuda-stub",
        title="the toolkit's stub libcuda is loaded",
        means="The stub serves to link programs where there is no driver; it cannot run them.",
        proven_by=(
            "Code 34, or a loaded libcuda in a folder `stubs`; as a warning, such a folder "
            "in LD_LIBRARY_PATH"
        ),
        way_out="Take the folder out of LD_LIBRARY_PATH",
        source="CUDA Driver API reference, CUresult (STUB_LIBRARY)",
    ),
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
        proven_by="Xid 54, 56, 57, 58, 62, 74, 92, 110, 149",
        not_when="Xid 13, 31, 43, 45: a program's own fault",
        way_out="Reboot; field diagnostic",
        source='NVIDIA, "Xid Errors"',
    ),
    Fact(
        id="ecc-error",
        title="memory errors that ECC cannot correct",
        means="A memory row is bad; after a reset it is remapped, until there are no spare rows.",
        proven_by=(
            "Uncorrected errors, a failed or pending remapping, Xid 48, 63, 64, 94, 95; code 214"
        ),
        not_when="Corrected errors, which are harmless",
        way_out="Reset; replace if remapping failed",
        source='NVIDIA, "Xid Errors"; NVIDIA, "GPU Memory Error Management"',
    ),
    Fact(
        id="xid-of-a-program",
        title="Xids that a program's own fault causes",
        means="A bad address or a killed process.",
        proven_by="Xid 13, 31, 43, 45, 69",
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
