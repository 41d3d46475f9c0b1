"""The parts from which `compose_machines.py` puts tapes of machines together.

A `Composer` is a small file system and a set of answers. Each part writes what the real thing
leaves on a machine: a distribution its release file, a driver its modules, nodes, libraries and
the answers of NVML and libcuda, a torch its files in site-packages.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpusetup.catalog.file import load_catalog
from gpusetup.model.units import GIB
from gpusetup.readings.paths import base_name, join, parent
from gpusetup.system.processes import Output
from gpusetup.system.system import Family, Space, Stat
from gpusetup.system.tape import Tape

MIB = 1 << 20
DAY = "2026-11-20T09:00:00Z"
HOME = {"linux": "/home/user", "macos": "/Users/user", "windows": "C:\\Users\\user"}


@dataclass(frozen=True, kw_only=True)
class Card:
    """One kind of GPU: its PCI device id, memory as NVML prints it, and compute capability."""

    name: str
    device_id: str
    memory_mib: int | None
    capability: str
    watts: float = 250.0
    pcie: int = 4
    data_centre: bool = False


CARDS: dict[str, Card] = {
    card.name: card
    for card in (
        Card(name="NVIDIA GeForce RTX 3050 Laptop GPU", device_id="25a2", memory_mib=4096, capability="8.6", watts=60),
        Card(name="NVIDIA GeForce RTX 3070 Laptop GPU", device_id="249d", memory_mib=8192, capability="8.6", watts=115),
        Card(name="NVIDIA GeForce RTX 3060", device_id="2504", memory_mib=12288, capability="8.6", watts=170),
        Card(name="NVIDIA GeForce RTX 3090", device_id="2204", memory_mib=24576, capability="8.6", watts=350),
        Card(name="NVIDIA GeForce RTX 4060", device_id="2882", memory_mib=8188, capability="8.9", watts=115),
        Card(name="NVIDIA GeForce RTX 4070", device_id="2786", memory_mib=12282, capability="8.9", watts=200),
        Card(name="NVIDIA GeForce RTX 4080", device_id="2704", memory_mib=16376, capability="8.9", watts=320),
        Card(name="NVIDIA GeForce RTX 4090", device_id="2684", memory_mib=24564, capability="8.9", watts=450),
        Card(name="NVIDIA GeForce RTX 5090", device_id="2b85", memory_mib=32607, capability="12.0", watts=575, pcie=5),
        Card(name="NVIDIA GeForce GTX 1080 Ti", device_id="1b06", memory_mib=11264, capability="6.1", pcie=3),
        Card(name="NVIDIA GeForce GTX 1660", device_id="2184", memory_mib=6144, capability="7.5", watts=120, pcie=3),
        Card(name="Tesla T4", device_id="1eb8", memory_mib=15109, capability="7.5", watts=70, pcie=3, data_centre=True),
        Card(name="Tesla V100-SXM2-16GB", device_id="1db1", memory_mib=16384, capability="7.0", watts=300, pcie=3, data_centre=True),
        Card(name="NVIDIA A100-SXM4-40GB", device_id="20b0", memory_mib=40960, capability="8.0", watts=400, data_centre=True),
        Card(name="NVIDIA A100-SXM4-80GB", device_id="20b2", memory_mib=81920, capability="8.0", watts=400, data_centre=True),
        Card(name="NVIDIA H100 80GB HBM3", device_id="2330", memory_mib=81559, capability="9.0", watts=700, pcie=5, data_centre=True),
        Card(name="NVIDIA L40S", device_id="26b9", memory_mib=46068, capability="8.9", watts=350, data_centre=True),
        Card(name="NVIDIA GH200 480GB", device_id="2342", memory_mib=97871, capability="9.0", watts=900, pcie=5, data_centre=True),
        Card(name="NVIDIA Thor", device_id="2b00", memory_mib=None, capability="11.0", watts=120, pcie=5),
        Card(name="NVIDIA GB10", device_id="2e12", memory_mib=None, capability="12.1", watts=140, pcie=5),
        Card(name="Orin (nvgpu)", device_id="", memory_mib=None, capability="8.7", watts=60),
    )
}  # fmt: skip
"""PCI ids and memory as the driver prints them; source: pci.ids and public nvidia-smi outputs."""

DISTRIBUTIONS: dict[str, dict[str, str]] = {
    "ubuntu-20.04": {"ID": "ubuntu", "NAME": "Ubuntu", "VERSION_ID": "20.04", "PRETTY_NAME": "Ubuntu 20.04.6 LTS", "libc": "glibc 2.31", "kernel": "5.4.0-216-generic"},
    "ubuntu-22.04": {"ID": "ubuntu", "NAME": "Ubuntu", "VERSION_ID": "22.04", "PRETTY_NAME": "Ubuntu 22.04.5 LTS", "libc": "glibc 2.35", "kernel": "5.15.0-160-generic"},
    "ubuntu-24.04": {"ID": "ubuntu", "NAME": "Ubuntu", "VERSION_ID": "24.04", "PRETTY_NAME": "Ubuntu 24.04.3 LTS", "libc": "glibc 2.39", "kernel": "6.8.0-87-generic"},
    "debian-12": {"ID": "debian", "NAME": "Debian GNU/Linux", "VERSION_ID": "12", "PRETTY_NAME": "Debian GNU/Linux 12 (bookworm)", "libc": "glibc 2.36", "kernel": "6.1.0-40-amd64"},
    "fedora-42": {"ID": "fedora", "NAME": "Fedora Linux", "VERSION_ID": "42", "PRETTY_NAME": "Fedora Linux 42 (Workstation Edition)", "libc": "glibc 2.41", "kernel": "6.16.9-200.fc42.x86_64"},
    "rocky-9": {"ID": "rocky", "NAME": "Rocky Linux", "VERSION_ID": "9.6", "PRETTY_NAME": "Rocky Linux 9.6 (Blue Onyx)", "libc": "glibc 2.34", "kernel": "5.14.0-570.12.1.el9_6.x86_64"},
    "arch": {"ID": "arch", "NAME": "Arch Linux", "PRETTY_NAME": "Arch Linux", "libc": "glibc 2.42", "kernel": "6.17.7-arch1-1"},
    "alpine-3.22": {"ID": "alpine", "NAME": "Alpine Linux", "VERSION_ID": "3.22.2", "PRETTY_NAME": "Alpine Linux v3.22", "libc": "", "kernel": "6.12.54-0-lts"},
}  # fmt: skip


class Composer:
    """One machine in the making."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.tape = Tape(family=family)
        self.home = HOME[family]
        self._listed: dict[str, set[str]] = {}

    # --- files

    def file(
        self, path: str, text: str | None = None, *, size: int = 0, mode: str = "-rw-r--r--"
    ) -> None:
        """A file with its folders; `text` None: it is there, but nobody reads it."""
        if text is not None:
            self.tape.read[path] = text
        self._node(path, mode, size or len(text or ""))

    def folder(self, path: str, *, writable: bool = True) -> None:
        self._listed.setdefault(path, set())
        self._node(path, "drwxr-xr-x", 4096, writable=writable)

    def link(self, path: str, to: str) -> None:
        """A symbolic link beside the file that it means."""
        self.tape.link[path] = to
        self._node(path, "-rwxr-xr-x", 0)

    def gone(self, path: str, code: int = errno.EACCES) -> None:
        """A path that cannot be read."""
        self.tape.read[path] = code

    def _node(self, path: str, mode: str, size: int, *, writable: bool = True) -> None:
        readable = mode[7:8] != "-" if mode[0] == "c" else True
        usable = readable if mode[0] == "c" else writable
        self.tape.stat[path] = Stat(mode=mode, size_bytes=size, readable=readable, writable=usable)
        above = parent(path)
        if above != path:
            if above not in self._listed:
                self.folder(above)
            self._listed[above].add(base_name(path))

    def room(self, free: int, *paths: str) -> None:
        for path in paths:
            self.folder(path)
            self.tape.space[path] = Space(total_bytes=2 * free, free_bytes=free)

    # --- answers

    def says(self, argv: Sequence[str], stdout: str, code: int = 0, stderr: str = "") -> None:
        words = tuple(argv)
        self.tape.run[" ".join(words)] = Output(argv=words, exit=code, stdout=stdout, stderr=stderr)

    def finish(self) -> Tape:
        """The tape with its folders listed and everything in a stable order."""
        self.tape.list = {path: tuple(sorted(names)) for path, names in self._listed.items()}
        for shelf in (
            "facts",
            "read",
            "list",
            "stat",
            "link",
            "space",
            "environ",
            "which",
            "run",
            "ask",
        ):
            setattr(self.tape, shelf, dict(sorted(getattr(self.tape, shelf).items())))
        return self.tape


# --- operating systems ---------------------------------------------------------------------------


def linux(
    name: str = "ubuntu-22.04",
    *,
    machine: str = "x86_64",
    cores: int = 16,
    memory_gib: int = 64,
    kernel: str | None = None,
    memlock: int | None = 8 * MIB,
    cpu: str | None = "AMD Ryzen 9 5950X 16-Core Processor",
    free_gib: int = 200,
    shm_gib: float | None = None,
) -> Composer:
    release = dict(DISTRIBUTIONS[name])
    libc, usual = release.pop("libc"), release.pop("kernel")
    made = Composer("linux")
    made.file("/etc/os-release", "".join(f'{k}="{v}"\n' for k, v in release.items()))
    made.file("/proc/version", f"Linux version {kernel or usual} (builder@host) (gcc) #1 SMP\n")
    made.file(
        "/proc/meminfo",
        f"MemTotal: {memory_gib * MIB} kB\nMemAvailable: {memory_gib * MIB * 3 // 4} kB\n",
    )
    made.file(
        "/proc/cpuinfo", f"processor\t: 0\nmodel name\t: {cpu}\n" if cpu else "processor\t: 0\n"
    )
    made.file("/proc/self/cgroup", "0::/user.slice/user-1000.slice/session-2.scope\n")
    made.file("/proc/1/cgroup", "0::/init.scope\n")
    made.file("/proc/modules", "ext4 1000000 1 - Live 0x0\n")
    made.folder("/sys/bus/pci/devices")
    made.folder("/dev")
    made.room(free_gib * GIB, "/tmp", f"{made.home}/.cache")
    shm = int((shm_gib if shm_gib is not None else memory_gib / 2) * GIB)
    made.folder("/dev/shm")
    made.tape.space["/dev/shm"] = Space(total_bytes=shm, free_bytes=shm)
    made.tape.facts.update(
        platform="linux", machine=machine, release=kernel or usual, os_version="#1 SMP",
        mac_version="", libc=libc, cores=cores, usable_cores=cores,
        limits={"memlock": memlock, "address_space": None}, memory_total=memory_gib * GIB,
        cwd=f"{made.home}/project", home=made.home, now=DAY,
    )  # fmt: skip
    made.tape.environ.update(PATH="/usr/local/bin:/usr/bin:/bin")
    made.folder(f"{made.home}/project")
    made.file("/usr/bin/gcc")
    made.tape.which.update(cc="/usr/bin/cc", gcc="/usr/bin/gcc", nvcc=None)
    return made


def windows(
    *, build: str = "10.0.26100", cores: int = 16, memory_gib: int = 16, free_gib: int = 150
) -> Composer:
    made = Composer("windows")
    made.tape.facts.update(
        platform="win32", machine="AMD64", release="11", os_version=build, mac_version="", libc="",
        cores=cores, usable_cores=cores, limits={}, memory_total=memory_gib * GIB,
        cwd=f"{made.home}\\project", home=made.home, now=DAY,
    )  # fmt: skip
    local = f"{made.home}\\AppData\\Local"
    made.tape.environ.update(
        PATH="C:\\Windows\\System32;C:\\Windows", SystemRoot="C:\\Windows",
        LOCALAPPDATA=local, TEMP=f"{local}\\Temp",
    )  # fmt: skip
    made.folder(f"{made.home}\\project")
    made.room(free_gib * GIB, f"{local}\\Temp", local)
    made.folder("C:\\Windows\\System32")
    return made


def macos(*, version: str = "15.6", memory_gib: int = 32) -> Composer:
    made = Composer("macos")
    made.tape.facts.update(
        platform="darwin", machine="arm64", release="24.6.0", os_version="Darwin Kernel 24.6.0",
        mac_version=version, libc="", cores=12, usable_cores=12,
        limits={"memlock": None, "address_space": None}, memory_total=memory_gib * GIB,
        cwd=f"{made.home}/project", home=made.home, now=DAY,
    )  # fmt: skip
    made.tape.environ.update(PATH="/opt/homebrew/bin:/usr/bin:/bin")
    made.room(400 * GIB, "/tmp", f"{made.home}/.cache", f"{made.home}/Library/Caches")
    made.folder(f"{made.home}/project")
    made.file("/usr/bin/cc")
    made.tape.which.update(cc="/usr/bin/cc", clang="/usr/bin/clang", nvcc=None)
    return made


# --- Python and torch ------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Env:
    """A Python environment that was written onto a machine."""

    prefix: str
    python: str
    site: str
    version: str
    conda: bool = False
    listed: list[str] = field(default_factory=list)


def python(
    made: Composer,
    version: str = "3.11.9",
    *,
    kind: str = "venv",
    prefix: str | None = None,
    own: bool = True,
    active: bool = True,
    bits: int = 64,
    maker: str = "",
) -> Env:
    """An environment of a `kind`: `venv`, `conda`, `system`, `pipx`; `own`: gpusetup runs in it."""
    windows_like = made.family == "windows"
    where = prefix or (
        join(made.home, "miniforge3", "envs", "ml")
        if kind == "conda"
        else join(made.home, "project", ".venv")
    )
    where = prefix or ("/usr" if kind == "system" else where)
    short = ".".join(version.split(".")[:2])
    folder = "Scripts" if windows_like and kind != "conda" else ("" if windows_like else "bin")
    executable = join(
        where,
        *([folder] if folder else []),
        "python.exe" if windows_like else "python3" if kind == "system" else "python",
    )
    stdlib = join(where, "Lib") if windows_like else join(where, "lib", f"python{short}")
    site = join(stdlib, "site-packages")
    if kind == "system":
        site = f"/usr/local/lib/python{short}/dist-packages"
    base = where if kind in ("conda", "system") else ("C:\\Python" if windows_like else "/usr")
    made.file(executable)
    made.folder(site)
    made.room(200 * GIB if not windows_like else 150 * GIB, site)
    made.folder(join(site, "pip"))
    _marker(made, where, kind, version, base, maker)
    facts = {
        "python": version, "executable": executable, "prefix": where, "base_prefix": base,
        "bits": bits, "free_threaded": False, "site_packages": site, "stdlib": stdlib,
        "path": [stdlib, join(stdlib, "lib-dynload"), site],
    }  # fmt: skip
    if own:
        made.tape.facts.update(facts)
    else:
        made.tape.ask[f"read_python {executable}"] = facts
    if active and kind in ("venv", "conda"):
        made.tape.environ["VIRTUAL_ENV" if kind == "venv" else "CONDA_PREFIX"] = where
        mark = ";" if windows_like else ":"
        made.tape.environ["PATH"] = parent(executable) + mark + made.tape.environ["PATH"]
    return Env(prefix=where, python=executable, site=site, version=version, conda=kind == "conda")


def _marker(made: Composer, prefix: str, kind: str, version: str, base: str, maker: str) -> None:
    if kind == "conda":
        made.file(
            join(prefix, "conda-meta", f"python-{version}-h955ad1f_1.json"),
            '{"channel": "https://conda.anaconda.org/conda-forge/linux-64"}',
        )
        made.tape.environ["CONDA_DEFAULT_ENV"] = base_name(prefix)
        made.tape.environ["CONDA_EXE"] = join(parent(parent(prefix)), "bin", "conda")
        return
    if kind == "system":
        return
    extra = f"{maker} = 0.9.7\n" if maker else ""
    made.file(
        join(prefix, "pyvenv.cfg"), f"home = {join(base, 'bin')}\n{extra}version_info = {version}\n"
    )
    if kind == "pipx":
        made.file(join(prefix, "pipx_metadata.json"), "{}")


def installed(
    made: Composer,
    env: Env,
    name: str,
    version: str,
    *,
    installer: str = "pip",
    libraries: Sequence[str] = (),
    missing: Sequence[str] = (),
) -> None:
    """One distribution in site-packages, with its RECORD and its libraries."""
    info = join(env.site, f"{name.replace('-', '_')}-{version}.dist-info")
    made.file(join(info, "INSTALLER"), f"{installer}\n")
    record = "".join(f"{library},sha256=x,1\n" for library in libraries)
    made.file(join(info, "RECORD"), record or f"{name}/__init__.py,sha256=x,1\n")
    for library in libraries:
        if library not in missing:
            made.file(join(env.site, *library.split("/")))


def torch(
    made: Composer,
    env: Env,
    version: str,
    backend: str,
    *,
    installer: str = "pip",
    labelled: bool = True,
    companions: bool = True,
    wheels: Mapping[str, str] | None = None,
    missing: Sequence[str] = (),
    hip: str | None = None,
) -> None:
    """A torch with its companions from the catalog and the NVIDIA wheels that it brings."""
    local = version if made.family == "macos" else f"{version}+{backend}"
    cuda = f"{backend[2:-1]}.{backend[-1]}" if backend.startswith("cu") else None
    libraries = LIBRARIES[made.family] + (CUDA_LIBRARIES[made.family] if cuda else ())
    text = f"__version__ = {local!r}\ndebug = False\ncuda = {cuda!r}\nhip = {hip!r}\n"
    made.file(join(env.site, "torch", "version.py"), text)
    installed(
        made,
        env,
        "torch",
        local if labelled else version,
        installer=installer,
        libraries=libraries,
        missing=missing,
    )
    row = load_catalog().row_of(
        version,
        backend,
        made.family,
        "aarch64"
        if "a" in str(made.tape.facts["machine"]).lower().replace("amd64", "")
        else "x86_64",
    )
    if companions and row:
        for name, other in (("torchvision", row.torchvision), ("torchaudio", row.torchaudio)):
            if other:
                installed(
                    made,
                    env,
                    name,
                    f"{other}+{backend}" if labelled else other,
                    installer=installer,
                )
    for name, number in (wheels or {}).items():
        installed(made, env, name, number, installer=installer)


LIBRARIES: dict[str, tuple[str, ...]] = {
    "linux": ("torch/lib/libc10.so", "torch/lib/libtorch_cpu.so", "torch/lib/libtorch_python.so"),
    "macos": ("torch/lib/libc10.dylib", "torch/lib/libtorch_cpu.dylib"),
    "windows": ("torch/lib/c10.dll", "torch/lib/torch_cpu.dll"),
}
CUDA_LIBRARIES: dict[str, tuple[str, ...]] = {
    "linux": ("torch/lib/libc10_cuda.so", "torch/lib/libtorch_cuda.so"),
    "macos": (),
    "windows": ("torch/lib/c10_cuda.dll", "torch/lib/torch_cuda.dll"),
}
WHEELS: dict[str, dict[str, str]] = {
    "2.5.1+cu124": {"nvidia-cublas-cu12": "12.4.5.8", "nvidia-cuda-runtime-cu12": "12.4.127", "nvidia-cudnn-cu12": "9.1.0.70", "nvidia-nccl-cu12": "2.21.5", "nvidia-nvjitlink-cu12": "12.4.127", "triton": "3.1.0"},
    "2.6.0+cu124": {"nvidia-cublas-cu12": "12.4.5.8", "nvidia-cuda-runtime-cu12": "12.4.127", "nvidia-cudnn-cu12": "9.1.0.70", "nvidia-nccl-cu12": "2.21.5", "nvidia-nvjitlink-cu12": "12.4.127", "triton": "3.2.0"},
    "2.7.1+cu126": {"nvidia-cublas-cu12": "12.6.4.1", "nvidia-cuda-runtime-cu12": "12.6.77", "nvidia-cudnn-cu12": "9.5.1.17", "nvidia-nccl-cu12": "2.26.2", "nvidia-nvjitlink-cu12": "12.6.85", "triton": "3.3.1"},
    "2.9.1+cu126": {"nvidia-cublas-cu12": "12.6.4.1", "nvidia-cuda-runtime-cu12": "12.6.77", "nvidia-cudnn-cu12": "9.10.2.21", "nvidia-nccl-cu12": "2.27.5", "nvidia-nvjitlink-cu12": "12.6.85", "triton": "3.5.1"},
    "2.9.1+cu128": {"nvidia-cublas-cu12": "12.8.4.1", "nvidia-cuda-runtime-cu12": "12.8.90", "nvidia-cudnn-cu12": "9.10.2.21", "nvidia-nccl-cu12": "2.27.5", "nvidia-nvjitlink-cu12": "12.8.93", "triton": "3.5.1"},
}  # fmt: skip
"""The NVIDIA wheels that some builds for Linux x86_64 require; source: the builds' metadata."""


def gpu_answers(cards: Sequence[Card], **changes: Any) -> list[dict[str, Any]]:
    """What NVML says of each card; `changes` apply to all."""
    return [{**_nvml_device(card, place), **changes} for place, card in enumerate(cards)]


def uuid_of(place: int, *, kind: str = "GPU") -> str:
    """A made-up UUID, the same for the same place."""
    digit = f"{place + 1:x}"
    return f"{kind}-{digit * 8}-{digit * 4}-{digit * 4}-{digit * 4}-{digit * 12}"


def bus_of(place: int) -> str:
    return f"0000:{place + 1:02x}:00.0"


def _nvml_device(card: Card, place: int) -> dict[str, Any]:
    size = card.memory_mib * MIB if card.memory_mib else None
    return {
        "index": place, "name": card.name, "uuid": uuid_of(place),
        "pci_bus_id": f"0000{bus_of(place).upper()}", "memory_total_bytes": size,
        "memory_used_bytes": 300 * MIB if size else None, "compute_capability": card.capability,
        "persistence": card.data_centre, "mig_enabled": False if card.capability in ("8.0", "9.0") else None,
        "mig_instances": [], "compute_mode": "Default",
        "ecc_enabled": True if card.data_centre else None, "ecc_uncorrected": 0 if card.data_centre else None,
        "retired_pending": False if card.data_centre else None,
        "remap_failed": False if card.capability in ("8.0", "9.0") else None,
        "temperature_celsius": 41, "power_watts": 18.5, "power_limit_watts": card.watts,
        "throttle_reasons": ["gpu_idle"], "utilization_percent": 0,
        "pcie_generation": card.pcie, "pcie_generation_max": card.pcie, "pcie_width": 16,
        "pcie_width_max": 16, "virtualization": "none", "licensed": None, "fabric_state": None,
        "driver_model": None, "display_active": not card.data_centre, "lost": False, "problems": [],
    }  # fmt: skip
