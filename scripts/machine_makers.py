"""The machines that `compose_machines.py` writes: one function each, made of parts."""

from __future__ import annotations

from machine_gpus import (
    BANNER,
    cards,
    cuda_api,
    libraries,
    module,
    nodes,
    nvml,
    pci,
    pci_device,
    smi_commands,
    windows_driver,
    working,
)
from machine_parts import (
    WHEELS,
    Composer,
    gpu_answers,
    installed,
    linux,
    macos,
    python,
    torch,
    uuid_of,
    windows,
)

GTX_1080_TI, RTX_3090 = "NVIDIA GeForce GTX 1080 Ti", "NVIDIA GeForce RTX 3090"
A100, H100 = "NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3"


def ready(
    made: Composer,
    version: str = "2.9.1",
    backend: str = "cu128",
    *,
    python_version: str = "3.12.11",
) -> Composer:
    """A virtual environment with a torch and the wheels that it brings."""
    env = python(made, python_version)
    torch(made, env, version, backend, wheels=WHEELS.get(f"{version}+{backend}"))
    return made


def rtx3050_laptop() -> Composer:
    made = windows()
    windows_driver(made, cards("NVIDIA GeForce RTX 3050 Laptop GPU"), "581.29", "13.0")
    torch(made, python(made, "3.11.9"), "2.5.1", "cpu")
    return made


def windows_two_pythons() -> Composer:
    made = windows(cores=12, memory_gib=32)
    windows_driver(made, cards("NVIDIA GeForce RTX 4060"), "576.80", "12.9")
    other = python(
        made,
        "3.12.10",
        prefix="C:\\Users\\user\\AppData\\Local\\Programs\\Python\\Python312",
        kind="system",
        own=False,
    )
    made.tape.environ["PATH"] = f"{other.prefix};" + made.tape.environ["PATH"]
    torch(made, other, "2.9.1", "cu128")
    python(made, "3.11.9")
    return made


def windows_32bit() -> Composer:
    made = windows(cores=8)
    windows_driver(made, cards("NVIDIA GeForce RTX 3060"), "566.36", "12.7")
    python(made, "3.11.9", bits=32)
    return made


def none_at_all() -> Composer:
    made = linux(
        "debian-12", cores=4, memory_gib=16, cpu="Intel(R) Core(TM) i5-8250U CPU @ 1.60GHz"
    )
    pci_device(made, "0000:00:02.0", "8086", "5917", "i915")
    python(made, "3.11.2", maker="uv")
    return made


def without_driver() -> Composer:
    made = linux("ubuntu-24.04")
    pci(made, cards("NVIDIA GeForce RTX 4090"), driver=None)
    return ready(made)


def nouveau() -> Composer:
    made = linux("fedora-42", cores=12, memory_gib=32)
    pci(made, cards("NVIDIA GeForce GTX 1660"), driver="nouveau")
    made.file("/proc/modules", "nouveau 3800000 2 - Live 0x0\n")
    return ready(made)


def mismatch() -> Composer:
    """The package was upgraded while the old kernel module stayed loaded."""
    made = linux("ubuntu-22.04", cores=64, memory_gib=256)
    some = cards(A100)
    pci(made, some)
    module(made, "550.90.07")
    nodes(made, 1)
    library = libraries(made, "550.120")
    nvml(made, "550.90.07", "12.4", [], code=18, library="550.120")
    cuda_api(made, "12.4", some, code=803, library=library)
    return ready(made, "2.5.1", "cu124")


def t4_470() -> Composer:
    made = linux("ubuntu-20.04", cores=8, memory_gib=30)
    working(made, cards("Tesla T4"), "470.256.02", "11.4")
    return ready(made, "2.9.1", "cu128", python_version="3.10.14")


def pascal_healthy() -> Composer:
    made = linux("ubuntu-24.04", cores=8, memory_gib=32)
    working(made, cards(GTX_1080_TI), "580.95.05", "13.0")
    return ready(made, "2.9.1", "cu126", python_version="3.11.9")


def pascal_cu128() -> Composer:
    made = linux("ubuntu-24.04", cores=8, memory_gib=32)
    working(made, cards(GTX_1080_TI), "580.95.05", "13.0")
    return ready(made, "2.9.1", "cu128", python_version="3.11.9")


def v100() -> Composer:
    made = linux("rocky-9", cores=40, memory_gib=180)
    working(made, cards(*["Tesla V100-SXM2-16GB"] * 4), "535.183.01", "12.2")
    return ready(made, "2.7.1", "cu126")


def rtx5090() -> Composer:
    """Blackwell with a torch whose newest kernels are Hopper's."""
    made = linux("arch", cores=32, memory_gib=96)
    working(made, cards("NVIDIA GeForce RTX 5090"), "570.133.07", "12.8", opened=True)
    return ready(made, "2.6.0", "cu124")


def mixed() -> Composer:
    made = linux("ubuntu-22.04")
    working(made, cards(GTX_1080_TI, RTX_3090), "580.95.05", "13.0", order=(1, 0))
    return ready(made, "2.9.1", "cu126", python_version="3.11.9")


def no_fabric_manager() -> Composer:
    made = linux("ubuntu-22.04", cores=192, memory_gib=2048, cpu="Intel(R) Xeon(R) Platinum 8480C")
    working(
        made,
        cards(*[H100] * 8),
        "570.172.08",
        "12.8",
        opened=True,
        init=802,
        fabric_state="in_progress",
    )
    return ready(made)


def mig() -> Composer:
    made = linux("ubuntu-22.04", cores=64, memory_gib=512, cpu="AMD EPYC 7742 64-Core Processor")
    instances = [uuid_of(n, kind="MIG") for n in range(3)]
    working(
        made,
        cards("NVIDIA A100-SXM4-80GB"),
        "570.172.08",
        "12.8",
        mig_enabled=True,
        mig_instances=instances,
    )
    some = made.tape.ask["read_cuda"]["devices"]
    some[0] |= {
        "name": "NVIDIA A100-SXM4-80GB MIG 2g.20gb",
        "uuid": instances[0],
        "memory_total_bytes": 20937965568,
    }
    return ready(made)


def wsl() -> Composer:
    made = linux("ubuntu-24.04", kernel="6.6.87.2-microsoft-standard-WSL2", cores=16, memory_gib=15)
    some = cards("NVIDIA GeForce RTX 4070")
    made.file("/dev/dxg", mode="crw-rw-rw-")
    for name in ("libcuda.so.1", "libnvidia-ml.so.1", "nvidia-smi"):
        made.file(f"/usr/lib/wsl/lib/{name}")
    made.tape.which["nvidia-smi"] = "/usr/lib/wsl/lib/nvidia-smi"
    nvml(made, "581.29", "13.0", gpu_answers(some, driver_model=None), library="580.95.05")
    cuda_api(made, "13.0", some, library="/usr/lib/wsl/lib/libcuda.so.1")
    return ready(made)


def container_without_gpu() -> Composer:
    made = linux("ubuntu-22.04", cores=32, memory_gib=128, shm_gib=0.0625)
    made.file("/.dockerenv", "")
    made.file("/proc/1/cgroup", "0::/\n")
    made.tape.environ.update(
        NVIDIA_VISIBLE_DEVICES="all", NVIDIA_DRIVER_CAPABILITIES="compute,utility"
    )
    pci(made, cards("NVIDIA L40S"))
    made.file("/proc/modules", "nvidia_uvm 2000000 0 - Live 0x0\nnvidia 9900000 3 - Live 0x0\n")
    torch(
        made, python(made, "3.12.3", kind="system"), "2.9.1", "cu128", wheels=WHEELS["2.9.1+cu128"]
    )
    return made


def cpu_torch() -> Composer:
    made = linux("ubuntu-22.04", cores=48, memory_gib=384, cpu="AMD EPYC 9354 32-Core Processor")
    working(made, cards("NVIDIA L40S"), "580.95.05", "13.0", opened=True)
    return ready(made, "2.9.1", "cpu")


def gh200() -> Composer:
    made = linux("ubuntu-22.04", machine="aarch64", cores=72, memory_gib=480, cpu=None)
    working(made, cards("NVIDIA GH200 480GB"), "570.172.08", "12.8", opened=True)
    return ready(made, "2.9.1", "cpu")


def gb10() -> Composer:
    made = linux("ubuntu-24.04", machine="aarch64", cores=20, memory_gib=119, cpu=None)
    working(made, cards("NVIDIA GB10"), "580.95.05", "13.0", opened=True)
    made.tape.ask["read_cuda"]["devices"][0]["memory_total_bytes"] = 128475766784
    return ready(made, "2.9.1", "cu130")


def jetson() -> Composer:
    """JetPack 6 with the wheel of the default index, which is a CPU build."""
    made = linux(
        "ubuntu-22.04",
        machine="aarch64",
        kernel="5.15.148-tegra",
        cores=12,
        memory_gib=61,
        cpu=None,
    )
    made.file(
        "/etc/nv_tegra_release",
        "# R36 (release), REVISION: 4.0, GCID: 37537400, BOARD: generic, EABI: aarch64\n",
    )
    made.file("/proc/device-tree/model", "NVIDIA Jetson AGX Orin Developer Kit\0")
    some = cards("Orin (nvgpu)")
    module(made, "540.4.0", opened=True)
    nodes(made, 1)
    library = libraries(made, "1.1", "/usr/lib/aarch64-linux-gnu/nvidia")
    quiet = {
        "uuid": None,
        "pci_bus_id": None,
        "memory_total_bytes": None,
        "temperature_celsius": None,
        "power_watts": None,
        "power_limit_watts": None,
    }
    nvml(made, "540.4.0", "12.6", gpu_answers(some, **quiet))
    cuda_api(made, "12.6", some, library=library)
    made.tape.ask["read_cuda"]["devices"][0] |= {"name": "Orin", "memory_total_bytes": 65881956352}
    return ready(made, "2.9.1", "cpu", python_version="3.10.12")


def thor() -> Composer:
    """JetPack 7 with torch's own wheel; its driver calls itself 580.00."""
    made = linux(
        "ubuntu-24.04",
        machine="aarch64",
        kernel="6.8.12-tegra",
        cores=14,
        memory_gib=122,
        cpu=None,
    )
    made.file(
        "/etc/nv_tegra_release",
        "# R38 (release), REVISION: 2.0, GCID: 41844464, BOARD: generic, EABI: aarch64\n",
    )
    made.file("/proc/device-tree/model", "NVIDIA Jetson AGX Thor Developer Kit\0")
    working(made, cards("NVIDIA Thor"), "580.00", "13.0", opened=True)
    made.tape.ask["read_cuda"]["devices"][0]["memory_total_bytes"] = 131881304064
    return ready(made, "2.9.1", "cu130", python_version="3.12.3")


def orin_unified() -> Composer:
    """JetPack 7.2 on an Orin, with the CPU wheel: torch's own wheels for CUDA 13.2 serve it."""
    made = linux(
        "ubuntu-24.04",
        machine="aarch64",
        kernel="6.8.12-1021-tegra",
        cores=8,
        memory_gib=15,
        cpu=None,
    )
    made.file(
        "/etc/nv_tegra_release",
        "# R39 (release), REVISION: 2.1, GCID: 46758480, BOARD: generic, EABI: aarch64\n",
    )
    made.file(
        "/proc/device-tree/model", "NVIDIA Jetson Orin NX Engineering Reference Developer Kit\0"
    )
    some = cards("Orin (nvgpu)")
    working(made, some, "595.00", "13.2", opened=True)
    made.tape.ask["read_cuda"]["devices"][0] |= {"name": "Orin", "memory_total_bytes": 16437084160}
    return ready(made, "2.15.0", "cpu", python_version="3.12.3")


def conda_and_pip() -> Composer:
    """conda's CUDA build below, a CPU wheel of pip above it."""
    made = linux("ubuntu-22.04")
    working(made, cards(RTX_3090), "550.120", "12.4")
    env = python(made, "3.11.9", kind="conda")
    for name in (
        "pytorch-2.5.1-py3.11_cuda12.4_cudnn9.1.0_0", "pytorch-cuda-12.4-hc786d27_7",
        "torchvision-0.20.1-py311_cu124", "numpy-2.0.1-py311h08b1b3b_1", "mkl-2023.1.0-h213fc3f_46344",
    ):  # fmt: skip
        made.file(
            f"{env.prefix}/conda-meta/{name}.json",
            '{"channel": "https://conda.anaconda.org/pytorch/linux-64"}',
        )
    torch(made, env, "2.9.1", "cpu", labelled=True)
    installed(made, env, "torch", "2.5.1", installer="conda")
    installed(made, env, "numpy", "2.0.1", installer="conda")
    return made


def hidden() -> Composer:
    made = linux("ubuntu-22.04")
    working(made, cards(RTX_3090), "580.95.05", "13.0", init=100)
    made.tape.environ["CUDA_VISIBLE_DEVICES"] = ""
    return ready(made)


def banner_615() -> Composer:
    """A driver whose nvidia-smi prints the newer banner; NVML cannot be asked (no binding)."""
    made = linux("ubuntu-24.04", cores=24)
    some = cards("NVIDIA GeForce RTX 4080")
    working(made, some, "615.36.02", "13.4", opened=True)
    made.tape.ask["read_nvml"] = {"problem": "No module named 'pynvml'"}
    csv, xml, table = smi_commands(made)
    row = {
        "index": "0", "name": some[0].name, "uuid": uuid_of(0), "pci.bus_id": "00000000:01:00.0",
        "driver_version": "615.36.02", "memory.total": "16376 MiB", "memory.used": "310 MiB",
        "compute_cap": "8.9", "temperature.gpu": "38", "power.draw": "14.20 W", "power.limit": "320.00 W",
    }  # fmt: skip
    fields = csv[1].removeprefix("--query-gpu=").split(",")
    made.says(csv, f"{', '.join(fields)}\n{', '.join(row.get(f, '[N/A]') for f in fields)}\n")
    made.says(xml, "", 139)
    made.says(table, BANNER.format(smi="615.36.02", driver="615.36.02", cuda="13.4"))
    return ready(made)


def musl() -> Composer:
    made = linux("alpine-3.22", cores=8, memory_gib=32)
    made.file("/lib/ld-musl-x86_64.so.1")
    made.says(
        ("/lib/ld-musl-x86_64.so.1",),
        "",
        1,
        "musl libc (x86_64)\nVersion 1.2.5\nDynamic Program Loader\n",
    )
    pci(made, cards("NVIDIA GeForce RTX 3060"), driver=None)
    python(made, "3.12.11")
    return made


def python_315() -> Composer:
    made = linux("fedora-42", cores=16, memory_gib=32)
    working(made, cards("NVIDIA GeForce RTX 4070"), "580.95.05", "13.0", opened=True)
    python(made, "3.15.0", maker="uv")
    return made


def uvm_missing() -> Composer:
    made = linux("debian-12")
    working(made, cards(RTX_3090), "550.163.01", "12.4", uvm=False, init=999)
    return ready(made, "2.5.1", "cu124")


def lxc() -> Composer:
    """The host's nodes were passed into the container, but not those of nvidia-uvm."""
    made = linux("debian-12", cores=8, memory_gib=16, kernel="6.8.12-15-pve")
    working(made, cards("NVIDIA GeForce RTX 3060"), "570.172.08", "12.8", init=999)
    for name in ("nvidia-uvm", "nvidia-uvm-tools"):
        del made.tape.stat[f"/dev/{name}"]
        made._listed["/dev"].discard(name)
    made.tape.environ["container"] = "lxc"
    made.file("/proc/1/environ", "container=lxc\0")
    return ready(made)


def after_suspend() -> Composer:
    made = linux(
        "ubuntu-24.04", cores=16, memory_gib=32, cpu="AMD Ryzen 7 5800H with Radeon Graphics"
    )
    working(made, cards("NVIDIA GeForce RTX 3070 Laptop GPU"), "580.95.05", "13.0", init=999)
    return ready(made)


def mac() -> Composer:
    made = macos()
    torch(made, python(made, "3.12.11"), "2.9.1", "cpu", labelled=False)
    return made


def amd() -> Composer:
    made = linux("ubuntu-24.04", cores=24)
    pci_device(made, "0000:03:00.0", "1002", "744c", "amdgpu")
    torch(made, python(made, "3.12.11"), "2.9.1", "rocm6.4", hip="6.4.43484-123eb5128")
    return made


def _four_a100() -> Composer:
    made = linux("ubuntu-22.04", cores=96, memory_gib=1024, cpu="AMD EPYC 7742 64-Core Processor")
    working(made, cards(*[A100] * 4), "550.163.01", "12.4")
    return ready(made, "2.5.1", "cu124")


def lost() -> Composer:
    """GPU 3 fell off the bus: its fields answer `GPU is lost`."""
    made = _four_a100()
    devices = made.tape.ask["read_nvml"]["devices"]
    kept = {
        "index",
        "name",
        "uuid",
        "pci_bus_id",
        "compute_capability",
        "mig_instances",
        "persistence",
    }
    dead = {key: value if key in kept else None for key, value in devices[3].items()}
    problem = {"field": "temperature_celsius", "code": 15, "text": "GPU is lost"}
    devices[3] = {**dead, "lost": True, "problems": [problem]}
    made.tape.ask["read_cuda"]["devices"].pop()
    made.tape.ask["read_cuda"]["device_count"] = 3
    return made


def ecc() -> Composer:
    made = _four_a100()
    made.tape.ask["read_nvml"]["devices"][0] |= {"ecc_uncorrected": 1, "retired_pending": True}
    return made


def thermal() -> Composer:
    made = _four_a100()
    hot = {
        "temperature_celsius": 92,
        "throttle_reasons": ["hw_slowdown", "hw_thermal_slowdown"],
        "utilization_percent": 97,
    }
    made.tape.ask["read_nvml"]["devices"][1] |= hot
    return made


def permission() -> Composer:
    """The nodes belong to a group that the user is not in."""
    made = linux("rocky-9", cores=32, memory_gib=128)
    some = cards("NVIDIA L40S")
    working(made, some, "570.172.08", "12.8", opened=True)
    nodes(made, 1, mode="crw-rw----")
    nvml(made, "570.172.08", "12.8", [], code=4)
    cuda_api(made, "12.8", some, code=304, library=made.tape.ask["read_cuda"]["library"])
    return ready(made)


def stale_libcuda() -> Composer:
    """An image that carries a libcuda of its own, in front of the one that was mounted."""
    made = linux("ubuntu-22.04", cores=32, memory_gib=128, shm_gib=0.0625)
    some = cards("NVIDIA L40S")
    working(made, some, "570.172.08", "12.8", opened=True)
    own = libraries(made, "535.161.08", "/usr/local/lib")
    made.file("/.dockerenv", "")
    made.tape.environ.update(NVIDIA_VISIBLE_DEVICES="all", LD_LIBRARY_PATH="/usr/local/lib")
    cuda_api(made, "12.2", some, code=803, library=own)
    return ready(made)


def forward_compat() -> Composer:
    """A CUDA image's forward compatibility library on a GeForce, which does not allow it."""
    made = linux("ubuntu-22.04", cores=16, memory_gib=64, shm_gib=0.0625)
    some = cards(RTX_3090)
    working(made, some, "535.183.01", "12.2")
    compat = libraries(made, "550.54.15", "/usr/local/cuda-12.4/compat")
    made.file("/.dockerenv", "")
    made.tape.environ.update(
        NVIDIA_VISIBLE_DEVICES="all",
        LD_LIBRARY_PATH="/usr/local/cuda-12.4/compat",
        CUDA_VERSION="12.4.1",
    )
    cuda_api(made, "12.4", some, code=804, library=compat, compat=True)
    return ready(made, "2.5.1", "cu124")


def half_installed() -> Composer:
    made = linux("ubuntu-22.04", free_gib=1)
    working(made, cards(RTX_3090), "550.120", "12.4")
    env = python(made, "3.11.9")
    torch(
        made,
        env,
        "2.5.1",
        "cu124",
        wheels=WHEELS["2.5.1+cu124"],
        missing=["torch/lib/libtorch_cuda.so"],
    )
    return made


def externally_managed() -> Composer:
    made = linux("ubuntu-24.04")
    working(made, cards(RTX_3090), "580.95.05", "13.0")
    env = python(made, "3.12.3", kind="system")
    made.file("/usr/lib/python3.12/EXTERNALLY-MANAGED", "[externally-managed]\n")
    assert env.prefix == "/usr"
    return made


def tool_environment() -> Composer:
    made = linux("ubuntu-24.04")
    working(made, cards("NVIDIA GeForce RTX 4070"), "580.95.05", "13.0", opened=True)
    python(
        made,
        "3.12.3",
        kind="pipx",
        prefix="/home/user/.local/share/pipx/venvs/gpusetup",
        active=False,
    )
    return made


def healthy() -> Composer:
    made = linux("ubuntu-24.04")
    working(made, cards(RTX_3090), "580.95.05", "13.0")
    return ready(made)
