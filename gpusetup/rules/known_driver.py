"""What is known about GPUs, drivers and the CUDA driver API."""

from __future__ import annotations

from gpusetup.rules.fact import Fact

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
        id="driver-build-failed",
        title="the driver's kernel module does not build",
        means="dkms or NVIDIA's installer compiles it for each kernel; a newer kernel than the "
        "driver knows, or missing headers, stop that.",
        proven_by="dkms: bad return status for a module of nvidia; the installer's build step",
        not_when="A GPU that nvidia-smi lists; the build of another module",
        way_out="Headers and a newer driver, or the former kernel",
        source="dkms's manual page; messages of nvidia-installer",
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
        proven_by="The module is bound to the GPU and it is not listed, or the kernel log says so",
        not_when="A GPU that fell off the bus later",
        way_out="Full power-off; the right driver flavour",
        source="messages of NVIDIA's open kernel modules",
    ),
    Fact(
        id="libcuda-missing",
        title="the driver's libcuda is missing or does not load",
        means="nvidia-smi works without it, CUDA does not.",
        proven_by="nvidia-smi prints CUDA Version ERR!",
        not_when="wsl-driver; container-driver-capability-missing (in a container)",
        way_out="The driver's compute libraries, of its exact version",
        source="nvidia-smi's manual page; NVIDIA, driver README, installed components",
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
            " driver half updated. The finding names the call and the GPU where it stopped."
        ),
        proven_by="The child that asked ran into its time limit, or died by a signal",
        not_when="driver-slow: it answered within --timeout",
        way_out="Kernel log, reboot",
        source="gpusetup asks in children with a time limit",
    ),
    Fact(
        id="gpu-does-not-answer",
        title="one GPU fails to tell what it should",
        means="The driver lists the GPU and cannot read it, or what it tells cannot be.",
        proven_by="NVML's error for the GPU, its memory, temperature or power; CUDA's for its name",
        not_when="gpu-fell-off-bus: NVML says that it is lost; a value that no GPU here has",
        way_out="Kernel log, reset or reboot; leave the GPU out until then",
        source="NVML API reference, nvmlReturn_t",
    ),
    Fact(
        id="nvml-init-failed",
        title="the driver's NVML does not start, or cannot list the GPUs",
        means="The kernel driver is there and refuses; nvidia-smi and NCCL fail with it.",
        proven_by="What nvmlInit or nvmlDeviceGetCount answers; 9, 12 and 13 beside a "
        "loaded module or a CUDA that starts; a version that cannot be",
        not_when="Codes that have a cause of their own: 4, 8, 10, 11, 14, 15, 16, 17, 18",
        way_out="Kernel log, reboot",
        source="NVML API reference, nvmlReturn_t",
    ),
    Fact(
        id="cuda-misses-gpu",
        title="CUDA does not see a GPU that the driver lists",
        means="The GPU answers NVML, and CUDA leaves it out: it could not start it.",
        proven_by="NVML's and CUDA's lists, no CUDA_VISIBLE_DEVICES and no MIG",
        not_when="gpus-partly-hidden; gpu-fell-off-bus",
        way_out="Kernel log, reset or reboot",
        source="CUDA Driver API reference, cuDeviceGetCount",
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
)
