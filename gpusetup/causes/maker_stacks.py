"""Causes that keep torch from using an AMD, Intel or Apple GPU."""

from __future__ import annotations

from gpusetup.causes.record import Cause, CheckCommand, Message
from gpusetup.evidence import proofs
from gpusetup.evidence.context import events, on
from gpusetup.fixes import maker_caches

CAUSES = (
    Cause(
        "maker-driver-not-loaded",
        title="The kernel driver of {who} is not loaded",
        plain="The kernel driver of the AMD or Intel GPU is not loaded",
        means="ROCm and Level Zero reach the GPU through a device node, which only the driver "
        "(amdgpu, i915 or xe) creates. ROCm and torch do not include the driver.",
        text="Load the driver",
        # Source: AMD, "Configuring permissions for GPU access"; Linux, drivers/gpu/drm.
        by_check=True,
        explains=("amd-gpu", "intel-gpu", "maker-wrong-build"),
        cases=(
            Message(
                where=(lambda context: bool(events(context, "device-node-missing")),),
                title="The device node of {who} is missing: its kernel driver is not loaded, or "
                "it failed to start",
            ),
        ),
        check=CheckCommand(
            command="lspci -k | grep -EA3 'VGA|3D|Display'",
            prints="03:00.0 VGA compatible controller: Advanced Micro Devices, Inc. [AMD/ATI] "
            "Navi 31 [Radeon RX 7900 XTX]\n\tKernel modules: amdgpu",
        ),
    ),
    Cause(
        "maker-device-permission",
        title="This user has no permission to open {node}",
        plain="This user has no permission to open the AMD or Intel GPU",
        means="The groups render and video own /dev/kfd and the render nodes. The driver is "
        "running, so reinstalling torch changes nothing.",
        text="Join the groups render and video",
        # Source: AMD, "Configuring permissions for GPU access"; udev's rules.
        by_check=True,
        explains=("amd-gpu", "intel-gpu"),
        cases=(
            Message(
                where=(lambda context: context.snapshot.container.kind == "kubernetes",),
                title="The pod has no permission to open the GPU's device node",
                means="AMD's device plugin decides what a pod may do with a device. Groups and the "
                "node's mode come after that.",
            ),
        ),
        check=CheckCommand(
            command="ls -l /dev/kfd /dev/dri/renderD*; id -nG",
            prints="crw-rw---- 1 root render 234, 0 /dev/kfd\nme sudo",
        ),
    ),
    Cause(
        "container-no-maker-gpu",
        title="This container was not given the GPU of {who}",
        plain="The container was not given the AMD or Intel GPU",
        means="A container has only the device nodes that you give it when it starts. `--gpus "
        "all` is an NVIDIA option and adds none of these.",
        text="Start the container with the device nodes",
        # Source: AMD, "Running ROCm Docker containers"; Intel's container images.
        cases=(
            Message(
                where=(lambda context: on(context, "windows") or bool(context.os.wsl),),
                title="A container on Windows has no device node for the GPU of {who}",
                means="Docker Desktop runs containers in a virtual machine of WSL, and WSL has no "
                "/dev/kfd.",
            ),
        ),
        by_check=True,
        explains=("amd-gpu", "intel-gpu"),
        check=CheckCommand(
            command="ls /dev/kfd /dev/dri  # in the container",
            prints="ls: cannot access '/dev/kfd': No such file or directory",
        ),
    ),
    Cause(
        "maker-wrong-build",
        certain_if=proofs.build_of_one_maker_beside_a_gpu_of_another,
        title="{torch_name} is for {built_for}: it cannot use the {who}",
        plain="torch is a CUDA or CPU build on a machine with an AMD or Intel GPU",
        means="PyPI has the CUDA build for Linux and the CPU build for Windows. ROCm and XPU "
        "builds come from separate indexes.",
        text="Install the build for this GPU",
        # Source: torch's indexes, read for the catalog.
        by_check=True,
        explains=("amd-gpu", "intel-gpu", "torch-cpu-build"),
        check=CheckCommand(
            command='python -c "import torch; print(torch.__version__, torch.version.hip)"',
            prints="2.13.0+cu130 None",
        ),
    ),
    Cause(
        "rocm-gpu-unsupported",
        title="ROCm no longer supports the {who}",
        plain="ROCm no longer supports this AMD GPU",
        means="torch's ROCm builds have no kernels for this GPU, and kernels for other targets "
        "do not run on it.",
        text="Use the CPU build, or another GPU",
        # Source: ROCm's release notes: 4.5 was the last with gfx803.
        by_check=True,
        explains=("amd-gpu",),
        check=CheckCommand(
            command="rocminfo | grep -i gfx", prints="  Name:                    gfx803"
        ),
    ),
    Cause(
        "rocm-arch-missing",
        title="{torch_name} has no kernels for the {who}",
        plain="torch's ROCm build has no kernels for this GPU",
        means="A kernel runs only on the GPU target (gfx…) that it was compiled for. torch sees "
        'the GPU, but the first operation fails with "invalid device function".',
        text="Install a build that has kernels for the GPU",
        # Source: PYTORCH_ROCM_ARCH in PyTorch's .ci/docker/manywheel/build.sh.
        by_check=True,
        explains=("amd-gpu",),
        check=CheckCommand(
            command='python -c "import torch; print(torch.cuda.get_arch_list())"',
            prints="['gfx900', 'gfx906', 'gfx90a', 'gfx942', 'gfx1030', 'gfx1100']",
        ),
    ),
    Cause(
        "rocm-older-than-torch",
        certain_if=proofs.two_values_do_not_fit,
        title="This torch needs ROCm {wanted}, but the machine has ROCm {installed}",
        plain="The machine's ROCm is older than torch needs",
        means="This torch does not include ROCm. The machine's ROCm libraries are loaded instead, "
        "and their names contain the major version (libamdhip64.so.7).",
        text="Update ROCm, or install PyTorch's own wheels",
        # Source: the wheels of PyTorch (torch/lib/libamdhip64.so) and of distributions.
        by_check=True,
        explains=("torch-import-failed", "amd-gpu"),
        check=CheckCommand(command="cat /opt/rocm/.info/version", prints="6.4.1-83"),
    ),
    Cause(
        "maker-cache-unwritable",
        certain_if=proofs.message_states_it,
        title="MIOpen cannot use its database of kernels: {refusal}",
        plain="MIOpen cannot use its database of kernels",
        means="MIOpen, ROCm's library for convolutions, keeps what it tuned and compiled in SQLite "
        "databases in the home folder. SQLite needs a disk that can be written and that locks "
        "files, which network file systems such as Lustre and NFS often do not.",
        text="Put MIOpen's databases on a local disk",
        # Source: MIOpen's documentation, "Using the find and performance databases" and "Kernel
        # cache"; MIOpen's sqlite_db.cpp.
        stage="first-kernel",
        way=maker_caches.miopen_on_local_disk,
        explains=("amd-gpu",),
        says=(
            r"Internal error while accessing SQLite database: (?P<refusal>disk I/O error|database is locked|database disk image is malformed|unable to open database file|attempt to write a readonly database|readonly database)",
            r"(?:create_director(?:y|ies)|cannot create director(?:y|ies))\b[^\n]{0,40}?(?P<refusal>Permission denied|Read-only file system|Disk quota exceeded)\b[^\n]{0,80}?[./](?:config|cache)/miopen",
            r"filesystem(?:_error|::permissions| error)\b[^\n]{0,160}?(?P<refusal>No such file or directory|Permission denied|Read-only file system|Stale file handle)\b[^\n]{0,200}?[./](?:config|cache)/miopen",
            r"\bMIOpen\b[^\n]{0,200}?\b(?P<refusal>database is locked|readonly database|Read-only file system|Disk quota exceeded)\b",
        ),
        examples=(
            "terminate called: filesystem error: cannot create directories: Permission denied "
            "[/home/me/.config/miopen]",
            "MIOpen Error: /root/driver/MLOpen/src/kern_db.cpp: Read-only file system",
            "what():  boost::filesystem::permissions: No such file or directory: "
            '"/home/me/.config/miopen//gfx906_60.HIP.ufdb.txt"',
        ),
    ),
    Cause(
        "wsl-rocm-missing",
        title="ROCm for WSL is not installed",
        plain="ROCm for WSL is not installed",
        means="In WSL, ROCm reaches an AMD GPU through /dev/dxg, with a separate library for "
        "WSL. PyTorch's wheel alone looks for /dev/kfd, which WSL does not have.",
        text="Install ROCm for WSL",
        # Source: AMD, "Install Radeon software for WSL with ROCm".
        by_check=True,
        explains=("amd-gpu", "wsl-driver"),
        check=CheckCommand(
            command="ls /opt/rocm/lib/librocdxg.so*",
            prints="ls: cannot access '/opt/rocm/lib/librocdxg.so*': No such file or directory",
        ),
    ),
    Cause(
        "python-for-intel-mac",
        certain_if=proofs.two_values_do_not_fit,
        title="This Python was built for Intel processors and runs translated (Rosetta) on an "
        "Apple chip",
        means="Rosetta hides the difference. A torch for an x86_64 Python does not support MPS, "
        "and its newest wheel is 2.2.2.",
        text="Use a Python for Apple silicon",
        # Source: Apple, "About the Rosetta translation environment"; PyPI's files of torch.
        by_check=True,
        explains=("apple-silicon", "no-nvidia-gpu", "python-no-wheel", "no-wheel-for-platform"),
        check=CheckCommand(
            command='python -c "import platform; print(platform.machine(), platform.processor())"',
            prints="x86_64 i386",
        ),
    ),
    Cause(
        "macos-too-old-for-mps",
        certain_if=proofs.two_values_do_not_fit,
        title="torch {version} needs macOS {wanted} or newer to use Apple's GPU; you have {macos}",
        plain="This macOS is too old for torch's MPS",
        means="On a macOS that is too old, torch.backends.mps.is_built() is True, but "
        "is_available() is False.",
        text="Update macOS",
        # Source: PyTorch's page on the MPS backend; pytorch issues 139425 and 164943.
        by_check=True,
        explains=("apple-silicon",),
        check=CheckCommand(command="sw_vers -productVersion", prints="12.7.6"),
    ),
)
