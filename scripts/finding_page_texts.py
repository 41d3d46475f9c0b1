"""What the pages of findings say beside the records: commands, words and checks for a reader whose
machine nobody has read."""

from __future__ import annotations

from gpusetup.causes.record import CheckCommand

WITHOUT_FOLDERS = (
    "export LD_LIBRARY_PATH=\"$(printenv LD_LIBRARY_PATH | tr : '\\n' | grep -vE '{}' "
    '| paste -sd : -)"'
)
"""LD_LIBRARY_PATH without the folders whose names match a pattern."""
NEW_PYTHON = "uv venv --python 3.12 .venv-3.12\ngpusetup install --venv .venv-3.12"
NEWEST_DRIVER = "sudo apt update\nsudo ubuntu-drivers install\nsudo reboot"
COMMANDS = {
    "amd-gpu": 'sudo usermod -aG render,video "$USER"    # then log out and in again\n'
    "rocminfo | grep gfx",
    "build-without-gpu": 'export TORCH_CUDA_ARCH_LIST="8.0;8.6;9.0"'
    "    # the GPUs that will run it\n"
    "# In a Dockerfile, above the RUN that builds:\n"
    '# ENV TORCH_CUDA_ARCH_LIST="8.0;8.6;9.0"\n'
    "python -m pip install --no-build-isolation PACKAGE",
    "compiler-missing": "sudo apt install -y build-essential    # Debian, Ubuntu\n"
    "winget install Microsoft.VisualStudio.2022.BuildTools --override "
    '"--passive --wait --add Microsoft.VisualStudio.Workload.VCTools --includeRecommended"',
    "compiler-too-new": "sudo apt install -y gcc-13 g++-13\n"
    "export NVCC_PREPEND_FLAGS='-ccbin g++-13'\nexport CC=gcc-13 CXX=g++-13",
    "container-hook-failed": "nvidia-smi\nsudo apt update\n"
    "sudo apt install -y nvidia-container-toolkit\nsudo systemctl restart docker\n"
    "docker run --rm --gpus all ubuntu nvidia-smi",
    "container-nvml-lost": "docker restart NAME\nkubectl delete pod NAME    # in Kubernetes",
    "container-runtime-not-default": "sudo nvidia-ctk runtime configure --runtime=containerd"
    "    # or crio, docker\nsudo systemctl restart containerd",
    "cuda-call-not-supported": "export CUDA_LAUNCH_BLOCKING=1\n"
    "export NCCL_P2P_DISABLE=1    # if peer access fails\n"
    "unset PYTORCH_CUDA_ALLOC_CONF    # if expandable_segments fail",
    "cuda-home-unset": "export CUDA_HOME=/usr/local/cuda    # the folder of the toolkit",
    "cuda-lib-missing": "gpusetup install",
    "cuda-sees-no-device": "unset CUDA_VISIBLE_DEVICES\n"
    "set CUDA_VISIBLE_DEVICES=    # in Windows' cmd\n"
    "nvidia-smi --query-gpu=name,compute_mode,mig.mode.current --format=csv",
    "cuda-unknown-error": "sudo fuser -v /dev/nvidia-uvm    # end the programs that it lists\n"
    "sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm",
    "cxx-standard-too-old": "sed -i 's/std=c++1[147]/std=c++17/g' setup.py"
    "    # c++20 for torch 2.14 and newer\n"
    "export CC=gcc-11 CXX=g++-11\npython -m pip install --no-build-isolation .",
    "device-node-missing": "sudo nvidia-modprobe -c=0    # the GPU's number\nls -l /dev/nvidia*\n"
    "sudo systemctl enable --now nvidia-persistenced",
    "device-permission": "ls -l /dev/nvidiactl\n"
    'sudo usermod -aG "$(stat -c %G /dev/nvidiactl)" "$USER"    # if the group is not root\n'
    "sudo chmod a+rw /dev/nvidia[0-9]* /dev/nvidiactl /dev/nvidia-uvm*"
    "    # if it is root; until a reboot",
    "docker-other-daemon": "docker context use default\nsudo systemctl restart docker\n"
    "docker run --rm --gpus all ubuntu nvidia-smi",
    "download-network-error": "export PIP_DEFAULT_TIMEOUT=120 UV_HTTP_TIMEOUT=300\n"
    "curl -sSI https://download.pytorch.org/",
    "driver-not-loaded": "sudo apt install -y linux-headers-6.8.0-45-generic\n"
    "sudo dkms autoinstall\nsudo modprobe nvidia\n"
    "mokutil --sb-state    # if modprobe says that the key was rejected",
    "driver-too-old": "gpusetup install    # keeps the driver\n"
    "# Or update the driver:\n" + NEWEST_DRIVER,
    "extension-arch-mismatch": "python -m pip install --no-build-isolation --no-deps "
    "--force-reinstall --no-cache-dir PACKAGE",
    "extension-needs-libcuda": "export LD_PRELOAD=libcuda.so.1",
    "fabric-unhealthy": "sudo tail -n 100 /var/log/fabricmanager.log\n"
    "sudo systemctl restart nvidia-fabricmanager    # first end every program\n"
    "sudo nvidia-smi -r\nsudo reboot    # if the reset does not help",
    "forward-compat-unsupported": "ldconfig -p | grep libcuda\n" + WITHOUT_FOLDERS.format("compat"),
    "gpu-check-failed": "gpusetup verify",
    "gpu-init-failed": "sudo dmesg | grep -i nvrm    # shows the reason\n"
    "sudo poweroff\n# If that does not help:\n" + NEWEST_DRIVER,
    "gpu-memory-taken": "nvidia-smi\n"
    "sudo fuser -v /dev/nvidia*    # also what nvidia-smi does not list",
    "gpu-unused": "gpusetup install",
    "hybrid-gpu-off": "sudo prime-select on-demand    # for prime-select\n"
    "supergfxctl --mode Hybrid    # for supergfxctl\n"
    "sudo envycontrol --switch hybrid    # for envycontrol\nsudo reboot",
    "input-bound": "gpusetup monitor",
    "install-unfinished": "gpusetup install",
    "installed-by-two": "conda remove pytorch    # if conda installed it\n"
    "python -m pip install --force-reinstall --no-deps torch==VERSION"
    "    # if no installer is named\n"
    "gpusetup install --venv .venv    # if the distribution installed it",
    "invalid-device-ordinal": "nvidia-smi -L",
    "libcuda-driver-mismatch": "ldconfig -p | grep libcuda\n"
    + WITHOUT_FOLDERS.format("compat|stubs")
    + "\nsudo reboot    # if the driver was updated",
    "libcuda-missing": "sudo apt install -y libnvidia-compute-580"
    "    # Ubuntu: the branch that nvidia-smi shows\n"
    "sudo dnf install -y xorg-x11-drv-nvidia-cuda-libs    # Fedora with RPM Fusion",
    "library-missing": "sudo apt install -y libgl1 libglib2.0-0    # Debian, Ubuntu\n"
    "sudo dnf install -y mesa-libGL glib2    # Fedora",
    "library-not-mapped": 'mkdir -p "$HOME/tmp"\nexport TMPDIR="$HOME/tmp"\nulimit -v unlimited',
    "library-not-on-path": "PACKAGES=\"$(python -c 'import sysconfig; "
    'print(sysconfig.get_path("purelib"))\')"\n'
    'export LD_LIBRARY_PATH="$PACKAGES/nvidia/cudnn/lib:$LD_LIBRARY_PATH"    # for cuDNN',
    "maker-device-permission": 'sudo usermod -aG render,video "$USER"'
    "    # then log out and in again",
    "maker-driver-not-loaded": "sudo modprobe amdgpu    # for Intel: xe, or i915 for older GPUs",
    "maker-libraries-mixed": WITHOUT_FOLDERS.format("rocm|oneapi")
    + "\nunset LD_PRELOAD\ngpusetup install --venv .venv-torch    # if it still fails",
    "maker-wrong-build": "gpusetup install",
    "mixed-conda-pip": "conda list | grep -E '^(pytorch|torchvision|torchaudio) '\n"
    "conda remove -y --force pytorch    # and the other two, if they are listed\n"
    "python -m pip uninstall -y torch torchvision torchaudio\ngpusetup install",
    "module-shadowed": "mv torch.py my_torch.py\nrm -rf __pycache__",
    "nccl-duplicate-gpu": "torchrun --nproc-per-node=gpu train.py    # your own script",
    "nccl-shm-error": "df -h /dev/shm; ls -l /dev/shm\n"
    "rm -f /dev/shm/nccl-*    # only while no program uses NCCL\n"
    "export NCCL_SHM_DISABLE=1    # if it cannot be enlarged",
    "no-kernel-image": "python -c \"import torch; print((torch.ones(9, device='cuda') * 2)"
    '.sum().item())"\n'
    "# If it prints 18.0, torch works: rebuild the package that fails.\n"
    "python -m pip install --no-build-isolation --no-deps --force-reinstall --no-cache-dir "
    "PACKAGE\n# If it fails:\ngpusetup install",
    "no-nvidia-gpu": "gpusetup install --backend cpu",
    "no-target": "gpusetup doctor --python .venv",
    "nvlink-degraded": "nvidia-smi nvlink --status\nsudo reboot",
    "openmp-twice": "gpusetup install --venv .venv\n.venv/bin/python -m pip install numpy",
    "package-not-found": "python -m pip install torch --index-url https://download.pytorch.org/whl/cu126\n"
    "python -m pip install PACKAGE",
    "pip-cache-disk-full": "python -m pip cache purge\nuv cache clean\n"
    "export TMPDIR=/data/tmp    # a folder on a larger disk",
    "program-sees-no-gpu": "nvidia-smi -L\n"
    "sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm    # after a suspend\n"
    "sudo systemctl restart ollama    # or your program",
    "python-no-wheel": NEW_PYTHON,
    "requirement-broken": "python -m pip check\n"
    "python -m pip install vllm 'torch==2.4.0'    # both names in one command",
    "rocm-arch-missing": "gpusetup install\ngpusetup resolve --explain",
    "rocm-override-wrong": "unset HSA_OVERRIDE_GFX_VERSION\n"
    "grep -n HSA_OVERRIDE ~/.bashrc ~/.profile    # delete the line that sets it",
    "rocm-wheel-on-nvidia": "gpusetup install",
    "source-checkout-imported": "cd /tmp && PYTHONSAFEPATH=1 python /path/to/script.py"
    "    # Python 3.11 or newer\n"
    "python -m pip install --no-build-isolation -e .    # or build it, in the checkout",
    "static-tls-full": "export LD_PRELOAD=/usr/lib/aarch64-linux-gnu/libgomp.so.1"
    "    # the library in the message",
    "system-not-ready-fabric-manager": "sudo apt install -y nvidia-fabricmanager-580"
    "    # the branch that nvidia-smi shows\nsudo systemctl enable nvidia-fabricmanager\n"
    "sudo systemctl restart nvidia-fabricmanager",
    "torch-half-installed": "python -m pip uninstall -y torch\n"
    'SP="$(python -c \'import sysconfig; print(sysconfig.get_path("purelib"))\')"\n'
    'ls -d "$SP"/torch "$SP"/torch-* "$SP"/~*    # delete what is listed\ngpusetup install',
    "torch-import-failed": "gpusetup install",
    "torch-lacks-device": "gpusetup install",
    "torch-outside-environment": "unset PYTHONPATH    # in PowerShell: $env:PYTHONPATH = ''\n"
    'python -c "import torch; print(torch.__file__)"',
    "torch-sees-no-gpu": "gpusetup doctor    # finds which of these it is",
    "triton-missing-windows": "python -m pip install triton-windows",
    "two-torch-installs": "python -m pip uninstall -y torch    # until it finds none\n"
    "gpusetup install",
    "vgpu-no-compute": "nvidia-smi -q | grep -i license    # must be `Licensed`",
    "windows-dll-missing": "gpusetup install --torch 2.4.1    # for fbgemm.dll and torch 2.4.0\n"
    "winget install Microsoft.VCRedist.2015+.x64    # as administrator",
    "windows-pagefile-too-small": "SystemPropertiesPerformance.exe    # Advanced, Virtual memory",
    "windows-path-too-long": "Set-ItemProperty "
    "HKLM:\\SYSTEM\\CurrentControlSet\\Control\\FileSystem "
    "-Name LongPathsEnabled -Value 1\n$env:TRITON_CACHE_DIR = 'C:\\tr'",
    "wrong-libcuda-loaded": WITHOUT_FOLDERS.format("compat|stubs"),
    "wsl-linux-driver": "sudo apt purge -y '^(lib)?nvidia-.*-[0-9]{3}(-server)?(-open)?$'\n"
    "wsl.exe --shutdown",
}
"""What to type where doctor's commands need a machine, with its own numbers and paths, or fit only
the example's."""
WORDS = {
    "amd-gpu": "A ROCm build is installed, so first see whether your user may use the GPU. If your "
    "groups lack `render` and `video`, join them, and log out and in again. If /dev/kfd is "
    "missing, no amdgpu driver is loaded (maker-driver-not-loaded). In docker add `--device "
    "/dev/kfd --device /dev/dri --group-add video --group-add $(stat -c %g /dev/dri/renderD128)`. "
    "Unset HIP_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES. The message "
    "`invalid device function` means that the build lacks kernels for the GPU (rocm-arch-missing)",
    "cuda-sees-no-device": "Unset CUDA_VISIBLE_DEVICES, or set it to GPUs that `nvidia-smi -L` "
    "lists. If MIG is on without an instance, see mig-misconfigured; in a container, "
    "container-no-gpu",
    "device-permission": "Join the group that owns the device nodes, and log out and in again. If "
    "that group is root, do not join it: an administrator or the setting NVreg_DeviceFileMode of "
    "the nvidia module restricts access. If every user may open the nodes (crw-rw-rw-), SELinux or "
    "a batch system blocks them: ask for a GPU (`srun --gres=gpu:1`)",
    "driver-missing": "Install the driver with your distribution's own package (the commands are "
    "Ubuntu's) and reboot: until then, nouveau (the open-source driver) usually has the GPU. "
    "Afterwards `nvidia-smi` lists the GPU",
    "driver-too-old": "Keep the driver and install the newest torch that it runs (driver 470: "
    "torch 2.7.1 from cu118). Or update the driver to the newest that supports your GPU, and "
    "reboot, because the old one stays loaded; afterwards `nvidia-smi` shows the new version",
    "hybrid-gpu-off": "Turn the NVIDIA GPU on with the tool that switched it off, and reboot",
    "installed-by-two": "Remove the package with the tool that installed it. If the message names "
    "none, only the list was lost: install the same version over it. For a package of the "
    "distribution, use a new environment instead",
    "library-missing": "Install the system package that contains the library (libGL: libgl1, "
    "mesa-libGL; libgthread: libglib2.0-0, glib2; libgomp: libgomp1, libgomp; libnuma: libnuma1, "
    "numactl-libs). Without root, replace opencv-python by opencv-python-headless",
    "maker-libraries-mixed": "PyTorch's wheels bring their own libraries. Start the program in a "
    "shell in which LD_LIBRARY_PATH and LD_PRELOAD name no ROCm, no oneAPI and no other torch "
    "(for oneAPI, open a shell without setvars.sh)",
    "no-kernel-image": "Find out whether torch itself or a compiled package lacks kernels for this "
    "GPU, then replace that one",
    "no-nvidia-gpu": "If lspci names an NVIDIA GPU, only its driver is missing (driver-missing). "
    "In a virtual machine or container, ask for a GPU to be passed through. Otherwise use torch's "
    "CPU build",
    "no-wheel-for-platform": "Alpine: use an image with glibc (`FROM python:3.12-slim`). Intel "
    "Mac: torch 2.2.2 is the last (`python -m pip install torch==2.2.2 'numpy<2'` with Python "
    "3.12 or older). 32-bit system: install a 64-bit one. Then type there",
    "ptx-unsupported-toolchain": "Install a release or build of the failing package for an older "
    "CUDA, or with kernels for this GPU. Or update the driver and reboot, because the old one "
    "stays loaded",
    "python-no-wheel": "Make an environment with a Python that torch has wheels for, and install "
    "there",
    "torch-half-installed": "Remove torch and install it again. If pip says `not installed` or "
    "`no RECORD`, delete the folders that are left. If the traceback does not end in "
    "torch/__init__.py, another package's compiled part is missing (extension-not-built)",
}
"""What the page says where doctor's words depend on the machine that it read."""
CHECKS = {
    "amd-gpu": CheckCommand(
        'python -c "import torch; print(torch.version.hip, torch.cuda.is_available())"\n'
        "ls -l /dev/kfd /dev/dri/renderD*; id -nG",
        "6.4.43482 False\ncrw-rw---- 1 root render 234, 0 /dev/kfd\nme sudo",
    ),
    "apple-silicon": CheckCommand(
        'python -c "import torch; print(torch.__version__, torch.backends.mps.is_available())"',
        "2.9.1 True",
    ),
    "compiler-too-new": CheckCommand(
        "gcc --version | head -n 1; nvcc --version | grep release",
        "gcc (Ubuntu 14.2.0-4ubuntu2) 14.2.0\nCuda compilation tools, release 12.4, V12.4.131",
    ),
    "conda-cuda-virtual-missing": CheckCommand(
        "conda info | grep -A 3 'virtual packages'",
        "       virtual packages : __archspec=1=zen3\n"
        "                          __glibc=2.39=0\n"
        "                          __linux=6.8.0=0",
    ),
    "container-cdi-unresolvable": CheckCommand(
        "nvidia-ctk cdi list",
        "INFO[0000] Found 0 CDI devices",
    ),
    "cuda-home-unset": CheckCommand(
        "printenv CUDA_HOME || echo unset; ls -d /usr/local/cuda*",
        "unset\n/usr/local/cuda-12.4",
    ),
    "cuda-init-out-of-memory": CheckCommand(
        "ulimit -v",
        "8388608",
    ),
    "cuda-launch-blocking": CheckCommand(
        "env | grep CUDA_LAUNCH",
        "CUDA_LAUNCH_BLOCKING=1",
    ),
    "cuda-toolkit-mismatch-extension-build": CheckCommand(
        'nvcc --version | grep release\npython -c "import torch; print(torch.version.cuda)"',
        "Cuda compilation tools, release 11.8, V11.8.89\n12.4",
    ),
    "device-node-missing": CheckCommand(
        "nvidia-smi -L; ls /dev/nvidia[0-9]*",
        "GPU 0: NVIDIA GeForce RTX 3090 (UUID: GPU-…)\n"
        "GPU 1: NVIDIA GeForce RTX 3090 (UUID: GPU-…)\n"
        "/dev/nvidia0",
    ),
    "device-permission": CheckCommand(
        "ls -l /dev/nvidiactl; id -nG",
        "crw-rw---- 1 root vglusers 195, 255 /dev/nvidiactl\nme sudo",
    ),
    "driver-build-failed": CheckCommand(
        "dkms status; uname -r",
        "nvidia/550.90.07: added\n6.16.3-76-generic",
    ),
    "forward-compat-unsupported": CheckCommand(
        "nvidia-smi -L; ldconfig -p | grep libcuda.so",
        "GPU 0: NVIDIA GeForce RTX 3070 (UUID: GPU-…)\n"
        "        libcuda.so.1 (libc6,x86-64) => /usr/local/cuda/compat/libcuda.so.1",
    ),
    "glibc-too-old": CheckCommand(
        "ldd --version | head -n 1",
        "ldd (GNU libc) 2.17",
    ),
    "gpu-memory-taken": CheckCommand(
        "nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv",
        "pid, process_name, used_gpu_memory [MiB]\n4711, python, 22010 MiB",
    ),
    "gpu-too-old-for-flash-attention": CheckCommand(
        "nvidia-smi --query-gpu=name,compute_cap --format=csv",
        "name, compute_cap\nTesla V100-SXM2-16GB, 7.0",
    ),
    "gpu-too-old-for-triton": CheckCommand(
        "nvidia-smi --query-gpu=name,compute_cap --format=csv",
        "name, compute_cap\nTesla P100-PCIE-16GB, 6.0",
    ),
    "host-out-of-memory": CheckCommand(
        "free -g",
        "               total        used        free      shared  buff/cache   available\n"
        "Mem:              31          30           0           0           0           0",
    ),
    "intel-gpu": CheckCommand(
        'python -c "import torch; print(torch.__version__, torch.xpu.is_available())"',
        "2.9.1+cu128 False",
    ),
    "jetson-wrong-wheel": CheckCommand(
        'head -n 1 /etc/nv_tegra_release\npython -c "import torch; print(torch.__version__)"',
        "# R36 (release), REVISION: 4.0\n2.6.0+cpu",
    ),
    "k8s-gpu-not-allocatable": CheckCommand(
        "kubectl get nodes "
        '"-o=custom-columns=NAME:.metadata.name,GPU:.status.allocatable.nvidia\\.com/gpu"',
        "NAME     GPU\nnode-1   <none>",
    ),
    "ld-library-path-conflict": CheckCommand(
        "echo $LD_LIBRARY_PATH",
        "/usr/local/cuda-11.8/lib64",
    ),
    "libcuda-driver-mismatch": CheckCommand(
        "cat /proc/driver/nvidia/version; ldconfig -p | grep libcuda.so",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC "
        "2024\n"
        "        libcuda.so.1 (libc6,x86-64) => /usr/local/cuda/compat/libcuda.so.1",
    ),
    "libcuda-missing": CheckCommand(
        "nvidia-smi -L; ls /usr/lib/x86_64-linux-gnu/libcuda.so*",
        "GPU 0: NVIDIA GeForce RTX 3070 (UUID: GPU-…)\n"
        "ls: cannot access '/usr/lib/x86_64-linux-gnu/libcuda.so*': No such file or directory",
    ),
    "libcuda-stub": CheckCommand(
        "ldconfig -p | grep libcuda; echo $LD_LIBRARY_PATH",
        "        libcuda.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so.1\n"
        "/usr/local/cuda/lib64/stubs",
    ),
    "library-not-mapped": CheckCommand(
        "findmnt -no OPTIONS -T \"$(python -c 'import sys; print(sys.prefix)')\"; ulimit -v",
        "rw,nosuid,nodev,noexec,relatime\nunlimited",
    ),
    "mig-misconfigured": CheckCommand(
        "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES",
        "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-…)\n"
        "  MIG 3g.20gb     Device  0: (UUID: MIG-…)\n"
        "  MIG 3g.20gb     Device  1: (UUID: MIG-…)",
    ),
    "mixed-conda-pip": CheckCommand(
        "conda list | grep -i torch",
        "pytorch                   2.5.1           py3.12_cuda12.4_cudnn9.1.0_0    pytorch\n"
        "torch                     2.6.0                    pypi_0    pypi",
    ),
    "mkl-version-mismatch": CheckCommand(
        "conda list | grep -E '^(mkl|pytorch) '",
        "mkl                       2024.2.2            ha957f24_16\n"
        "pytorch                   2.1.0           py3.10_cuda11.8_cudnn8.7.0_0    pytorch",
    ),
    "mps-server": CheckCommand(
        "ps -eo user,args | grep '[n]vidia-cuda-mps'",
        "root     nvidia-cuda-mps-control -d",
    ),
    "nccl-no-socket-interface": CheckCommand(
        "ip -br addr; echo $NCCL_SOCKET_IFNAME",
        "lo               UNKNOWN        127.0.0.1/8 ::1/128\n"
        "ens5             UP             10.0.0.4/20\n"
        "eth0",
    ),
    "nccl-p2p-failure": CheckCommand(
        "nvidia-smi topo -p2p r",
        "        GPU0    GPU1\n GPU0   X       CNS\n GPU1   CNS     X",
    ),
    "nccl-shm-error": CheckCommand(
        "df -h /dev/shm",
        "Filesystem      Size  Used Avail Use% Mounted on\n"
        "shm              64M   60M  4.0M  94% /dev/shm",
    ),
    "no-wheel-for-platform": CheckCommand(
        'python -c "import platform; print(platform.platform(), platform.machine())"\n'
        "ls /lib/ld-musl-*",
        "Linux-6.8.0-45-generic-x86_64-with x86_64\n/lib/ld-musl-x86_64.so.1",
    ),
    "numpy-abi-mismatch": CheckCommand(
        "python -m pip list | grep -iE '^(numpy|torch) '",
        "numpy                    2.0.0\ntorch                    2.2.2",
    ),
    "nvlink-degraded": CheckCommand(
        "nvidia-smi nvlink --status",
        "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-…)\n         Link 0: <inactive>",
    ),
    "open-files-limit": CheckCommand(
        "ulimit -Sn; ulimit -Hn",
        "1024\n1048576",
    ),
    "openmp-twice": CheckCommand(
        "find \"$(python -c 'import sys; print(sys.prefix)')\" -name '*iomp5*'",
        "/home/me/conda/lib/libiomp5.so\n"
        "/home/me/conda/lib/python3.12/site-packages/torch/lib/libiomp5.so",
    ),
    "pip-cache-disk-full": CheckCommand(
        "df -h . /tmp ~",
        "Filesystem      Size  Used Avail Use% Mounted on\n/dev/sda2        50G   50G   12M 100% /",
    ),
    "port-in-use": CheckCommand(
        "ss -ltnp | grep 29500",
        'LISTEN 0 4096 *:29500 *:* users:(("python3",pid=4711,fd=21))',
    ),
    "power-thermal-throttle": CheckCommand(
        "nvidia-smi -q -d PERFORMANCE | grep ': Active'",
        "            SW Thermal Slowdown           : Active",
    ),
    "ptx-unsupported-toolchain": CheckCommand(
        "nvidia-smi | grep CUDA; nvcc --version | tail -n 2",
        "| NVIDIA-SMI 550.90.07    Driver Version: 550.90.07    CUDA Version: 12.4     |\n"
        "Cuda compilation tools, release 12.8, V12.8.93",
    ),
    "python-no-wheel": CheckCommand(
        "python -VV",
        "Python 3.15.0a2 (main, Nov 18 2026, 10:00:00)",
    ),
    "rocm-wheel-on-nvidia": CheckCommand(
        'python -c "import torch; print(torch.__version__, torch.version.hip)"',
        "2.9.1+rocm6.4 6.4.43482",
    ),
    "torch-outside-environment": CheckCommand(
        'python -c "import torch; print(torch.__file__)"; echo $PYTHONPATH',
        "/opt/shared/torch/__init__.py\n/opt/shared",
    ),
    "torchaudio-mismatch": CheckCommand(
        "python -m pip list | grep -iE '^torch(audio)? '",
        "torch                    2.6.0\ntorchaudio               2.5.1",
    ),
    "triton-missing": CheckCommand(
        'python -c "import triton; print(triton.__version__)"',
        "ModuleNotFoundError: No module named 'triton'",
    ),
    "triton-no-compiler": CheckCommand(
        "gcc --version",
        "bash: gcc: command not found",
    ),
    "wrong-index": CheckCommand(
        "python -m pip index versions torch --index-url https://download.pytorch.org/whl/cu121",
        "torch (2.5.1+cu121)\nAvailable versions: 2.5.1+cu121, 2.5.0+cu121, 2.4.1+cu121",
    ),
    "wsl-linux-driver": CheckCommand(
        "dpkg -l | grep -E 'ii +(lib)?nvidia-'",
        "ii  libnvidia-compute-535  535.183.01-0ubuntu1  amd64  NVIDIA libcompute package",
    ),
}
"""The checks of pages for a person who has the message too: the output alone does not let doctor
name the cause."""
