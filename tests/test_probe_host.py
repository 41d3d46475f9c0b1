"""Operating system, container, memory, disks, toolkit, conda and environment from small tapes."""

from __future__ import annotations

from typing import Any

import pytest
from tapes import said, system

from gpusetup.model.machine import Disk, Memory, Toolkit
from gpusetup.model.units import GIB
from gpusetup.probe.container import read_container
from gpusetup.probe.environment import library_events
from gpusetup.probe.host import SECURE_BOOT, read_cpu, read_os
from gpusetup.probe.machine import wanted_by
from gpusetup.probe.memory import read_cgroup_limit, read_disks, read_memory
from gpusetup.probe.target import Target
from gpusetup.probe.toolkit import read_toolkit
from gpusetup.readings.environment import kept

DEBIAN = (
    'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\n'
    'VERSION_ID="12"\nNAME="Debian GNU/Linux"\n'
)
SID = 'PRETTY_NAME="Debian GNU/Linux forky/sid"\nNAME="Debian GNU/Linux"\nID=debian\n'


# --- the operating system -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"/etc/os-release": DEBIAN}, ("debian", "12", "Debian GNU/Linux 12 (bookworm)")),
        ({"/usr/lib/os-release": DEBIAN}, ("debian", "12", "Debian GNU/Linux 12 (bookworm)")),
        (
            {"/etc/centos-release": "CentOS Linux release 7.9.2009 (Core)\n"},
            ("centos", "7.9.2009", "CentOS Linux 7.9.2009 (Core)"),
        ),
        ({"/etc/os-release": SID}, ("debian", None, "Debian GNU/Linux forky/sid")),
        ({}, (None, None, None)),
    ],
)
def test_a_distribution_is_known_by_the_release_files_of_its_tape_alone(
    files: dict[str, str], found: tuple[str | None, str | None, str | None]
) -> None:
    made = read_os(system(files, facts={"release": "6.1", "machine": "x86_64"})).os
    assert (made.id, made.version) == found[:2]
    assert found[2] is None or made.name == found[2]


def test_a_machine_without_release_files_says_so() -> None:
    readings = read_os(system({})).readings
    assert readings[0].problem == "no release file in /etc or /usr/lib"


@pytest.mark.parametrize(
    ("machine", "named"),
    [("AMD64", "x86_64"), ("arm64", "aarch64"), ("ppc64le", "ppc64le"), ("", None)],
)
def test_architectures_are_called_as_wheels_call_them(machine: str, named: str | None) -> None:
    assert read_os(system({}, family="macos", facts={"machine": machine})).os.machine == named


@pytest.mark.parametrize(
    ("files", "facts", "libc"),
    [
        ({}, {"libc": "glibc 2.39"}, "glibc 2.39"),
        ({"/lib/ld-musl-aarch64.so.1": ""}, {"libc": ""}, "musl"),
        ({}, {"libc": ""}, None),
    ],
)
def test_the_c_library(files: dict[str, str], facts: dict[str, Any], libc: str | None) -> None:
    assert read_os(system(files, facts=facts)).os.libc == libc


@pytest.mark.parametrize(
    ("files", "on"),
    [
        ({SECURE_BOOT: "\x06\0\0\0\x01"}, True),
        ({SECURE_BOOT: "\x06\0\0\0\0"}, False),
        ({}, None),
    ],
)
def test_secure_boot(files: dict[str, str], on: bool | None) -> None:
    assert read_os(system(files)).os.secure_boot is on


# --- the CPU --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "usable"),
    [
        ({}, 16),
        ({"/sys/fs/cgroup/cpu.max": "250000 100000\n"}, 3),
        ({"/sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        ({"/sys/fs/cgroup/cpu.max": "max 100000\n"}, 16),
        ({"/sys/fs/cgroup/cpu.max": "9900000 100000\n"}, 16),
        (
            {
                "/proc/self/cgroup": "0::/system.slice/job.scope\n",
                "/sys/fs/cgroup/system.slice/job.scope/cpu.max": "max 100000\n",
                "/sys/fs/cgroup/system.slice/cpu.max": "200000 100000\n",
            },
            2,
        ),
    ],
)
def test_usable_cores_are_what_affinity_and_quota_leave(files: dict[str, str], usable: int) -> None:
    cpu = read_cpu(system(files, facts={"cores": 32, "usable_cores": 16}))
    assert (cpu.logical_cores, cpu.usable_cores) == (32, usable)


# --- containers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "environ", "kind"),
    [
        ({"/.dockerenv": ""}, {}, "docker"),
        ({"/run/.containerenv": ""}, {"container": "podman"}, "podman"),
        ({"/.dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({"/.singularity.d/": ""}, {}, "singularity"),
        ({}, {"APPTAINER_CONTAINER": "/x.sif"}, "singularity"),
        ({"/proc/1/environ": "A=b\0container=lxc\0"}, {}, "lxc"),
        ({"/proc/1/cgroup": "12:devices:/lxc/101\n"}, {}, "lxc"),
        ({"/proc/1/cgroup": "1:name=systemd:/docker/0123\n"}, {}, "docker"),
        ({"/proc/1/cgroup": "0::/init.scope\n"}, {}, "none"),
        ({"/proc/1/environ": "NOTcontainer=lxc\0"}, {}, "none"),
    ],
)
def test_the_kind_of_container(files: dict[str, str], environ: dict[str, str], kind: str) -> None:
    assert read_container(system(files, environ=environ)).container.kind == kind


@pytest.mark.parametrize(
    ("nodes", "given"),
    [
        (("nvidiactl", "nvidia0"), True),
        (("dxg",), True),
        (("nvidia-caps",), False),
        (("null",), False),
    ],
)
def test_only_device_nodes_tell_that_a_container_was_given_gpus(
    nodes: tuple[str, ...], given: bool
) -> None:
    files = {"/.dockerenv": "", **{f"/dev/{name}": "" for name in nodes}}
    machine = system(files, environ={"NVIDIA_VISIBLE_DEVICES": "all"})
    assert read_container(machine).container.nvidia_requested is given


def test_outside_of_a_container_nobody_gives_gpus() -> None:
    assert read_container(system({"/dev/nvidia0": ""})).container.nvidia_requested is None
    assert read_container(system({}, family="windows")).container.kind is None


@pytest.mark.parametrize(
    ("files", "environ", "path"),
    [
        (
            {"/usr/local/cuda/compat/libcuda.so.1": ""},
            {"LD_LIBRARY_PATH": "/x:/usr/local/cuda/compat"},
            "/usr/local/cuda/compat",
        ),
        ({"/usr/local/cuda/compat/libcuda.so.1": ""}, {}, None),
        ({}, {"LD_LIBRARY_PATH": "/usr/local/cuda/compat"}, None),
        (
            {
                "/usr/local/cuda-12.4/compat/libcuda.so.1": "",
                "/etc/ld.so.conf.d/00-compat.conf": "# first\n/usr/local/cuda-12.4/compat\n",
            },
            {},
            "/usr/local/cuda-12.4/compat",
        ),
    ],
)
def test_a_compat_library_counts_where_the_loader_finds_it(
    files: dict[str, str], environ: dict[str, str], path: str | None
) -> None:
    assert read_container(system(files, environ=environ)).container.cuda_compat_path == path


# --- the environment ------------------------------------------------------------------------------


def test_passwords_of_addresses_are_not_even_read() -> None:
    environ = {
        "PIP_INDEX_URL": "https://me:word@host/simple",
        "UV_INDEX": "a=https://t@h/x https://u:p@i/y",
    }
    found = kept(environ)
    assert found == {
        "PIP_INDEX_URL": "https://host/simple",
        "UV_INDEX": "a=https://h/x https://i/y",
    }


def test_foreign_libraries_and_stubs_on_the_library_path_are_events() -> None:
    files = {
        "/opt/cudnn/lib/libcudnn.so.8": "",
        "/opt/cudnn/lib/libcudnn_ops_infer.so.8": "",
        "/opt/cudnn/lib/notes.txt": "",
        "/usr/local/cuda/lib64/stubs/libcuda.so": "",
        "/usr/lib/app/libapp.so": "",
    }
    path = "/opt/cudnn/lib::/usr/local/cuda/lib64/stubs/:/usr/lib/app:/none"
    machine = system(files, environ={"LD_LIBRARY_PATH": path})
    events = list(library_events(machine, None))
    assert [(e.kind, e.values["folder"], e.values["libraries"]) for e in events] == [
        ("foreign-library", "/opt/cudnn/lib", "libcudnn.so libcudnn_ops_infer.so"),
        ("libcuda-stub", "/usr/local/cuda/lib64/stubs/", "libcuda.so"),
    ]


def test_libraries_of_the_target_itself_are_not_foreign() -> None:
    folder = "/m/envs/ml/lib"
    machine = system({f"{folder}/libstdc++.so.6": ""}, environ={"LD_LIBRARY_PATH": folder})
    own = Target(python="p", prefix="/m/envs/ml", chosen_by="self", manager="conda")
    other = Target(python="p", prefix="/m/envs/m", chosen_by="self", manager="conda")
    assert list(library_events(machine, own)) == []
    assert [event.kind for event in library_events(machine, other)] == ["foreign-library"]


def test_uvs_own_choice_of_a_backend_is_a_request() -> None:
    assert wanted_by({"UV_TORCH_BACKEND": "cu121"}).backend == "cu121"
    assert wanted_by({"UV_TORCH_BACKEND": "auto"}).backend is None


# --- toolkit and conda ----------------------------------------------------------------------------

NVCC = "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 12.4, V12.4.131\n"


def test_a_toolkit_and_a_compiler_on_path() -> None:
    machine = system(
        {},
        which={"nvcc": "/usr/bin/nvcc", "gcc": "/usr/bin/gcc"},
        says={"/usr/bin/nvcc --version": said(NVCC)},
    )
    toolkit = read_toolkit(machine).toolkit
    assert toolkit == Toolkit(nvcc="12.4", compiler="/usr/bin/gcc")


def test_an_nvcc_that_says_nothing_is_a_problem() -> None:
    machine = system({}, which={"nvcc": "/x/nvcc"}, says={"/x/nvcc --version": said("oops")})
    side = read_toolkit(machine)
    assert side.toolkit.nvcc is None
    assert side.readings[0].problem == "its answer names no release"


# --- memory and disks -----------------------------------------------------------------------------


def test_memory_and_its_limits() -> None:
    machine = system(
        {"/proc/meminfo": "MemTotal: 1024 kB\nMemAvailable: 512 kB\nHugePages_Total: 0\n"},
        facts={"limits": {"memlock": 65536}, "memory_total": 7},
        space={"/dev/shm": GIB},
    )
    assert read_memory(machine) == Memory(
        total_bytes=1 << 20,
        available_bytes=1 << 19,
        shm_total_bytes=2 * GIB,
        memlock_bytes=65536,
    )


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"/sys/fs/cgroup/memory.max": "1073741824\n"}, GIB),
        ({"/sys/fs/cgroup/memory.max": "max\n"}, None),
        (
            {
                "/proc/self/cgroup": "0::/job/7\n",
                "/sys/fs/cgroup/job/7/memory.max": "1073741824\n",
                "/sys/fs/cgroup/memory.max": "max\n",
            },
            GIB,
        ),
    ],
)
def test_the_memory_limit_of_our_own_cgroup(files: dict[str, str], limit: int | None) -> None:
    assert read_cgroup_limit(system(files)) == limit


def test_a_folder_that_is_not_there_yet_has_the_room_of_the_one_above_it() -> None:
    machine = system(
        {"/home/u/": "", "/tmp/": ""},
        facts={"home": "/home/u"},
        environ={"UV_CACHE_DIR": "/big/uv"},
        space={"/": 5 * GIB, "/home/u": 2 * GIB, "/tmp": GIB},
    )
    assert read_disks(machine, None) == (
        Disk(subject="uv-cache", path="/big/uv", free_bytes=5 * GIB, writable=True),
        Disk(subject="pip-cache", path="/home/u/.cache/pip", free_bytes=2 * GIB, writable=True),
        Disk(subject="tmp", path="/tmp", free_bytes=GIB, writable=True),
    )


# --- this machine ---------------------------------------------------------------------------------
