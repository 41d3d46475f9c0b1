"""Operating system, container, memory, disks, toolkit, conda and environment from small tapes."""

from __future__ import annotations

import pytest
from tapes import ReplaySystem, Tape, system

from gpusetup.model.machine import Python
from gpusetup.probe.container import read_container
from gpusetup.probe.host import read_os
from gpusetup.probe.target import TargetPython
from gpusetup.probe.torch import library_events, runtime_events
from gpusetup.system.system import Stat

DEBIAN = (
    'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\n'
    'VERSION_ID="12"\nNAME="Debian GNU/Linux"\n'
)
TUXEDO = (
    'PRETTY_NAME="TUXEDO OS 24.04.3 LTS"\nNAME="TUXEDO OS"\nID=tuxedo\n'
    'ID_LIKE="ubuntu debian"\nVERSION_ID="24.04"\n'
)
SID = 'PRETTY_NAME="Debian GNU/Linux forky/sid"\nNAME="Debian GNU/Linux"\nID=debian\n'


# --- the operating system -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"/etc/os-release": DEBIAN}, ("debian", "12", "Debian GNU/Linux 12 (bookworm)")),
        ({"/etc/os-release": SID}, ("debian", None, "Debian GNU/Linux forky/sid")),
        ({"/etc/os-release": TUXEDO}, ("tuxedo", "24.04", "TUXEDO OS 24.04.3 LTS")),
        ({}, (None, None, None)),
    ],
)
def test_a_distribution_is_known_by_the_release_files_of_its_tape_alone(
    files: dict[str, str], found: tuple[str | None, str | None, str | None]
) -> None:
    made = read_os(system(files, facts={"release": "6.1", "machine": "x86_64"})).os
    assert (made.id, made.version) == found[:2]
    assert found[2] is None or made.name == found[2]


# --- containers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "environ", "kind"),
    [
        ({"/run/.containerenv": ""}, {"container": "podman"}, "podman"),
        ({"/.dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({}, {"APPTAINER_CONTAINER": "/x.sif"}, "singularity"),
        ({"/proc/1/cgroup": "12:devices:/lxc/101\n"}, {}, "lxc"),
        ({"/proc/1/environ": "NOTcontainer=lxc\0"}, {}, "none"),
    ],
)
def test_the_kind_of_container(files: dict[str, str], environ: dict[str, str], kind: str) -> None:
    assert read_container(system(files, environ=environ)).container.kind == kind


# --- the environment ------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("files", "kinds"),
    [
        (("kernel32.dll",), ["windows-dll-missing"]),
        (("kernel32.dll", "msvcp140.dll"), []),
        ((), []),
    ],
    ids=["no runtime", "a runtime", "a folder that cannot be read"],
)
def test_a_windows_without_the_visual_cpp_runtime_is_told(
    files: tuple[str, ...], kinds: list[str]
) -> None:
    """002-19: doctor looks for the file, because it does not import torch."""
    there = Stat(mode="-rw-rw-rw-", readable=True, writable=True)
    stats: dict[str, Stat | int] = {f"C:\\Windows\\System32\\{name}": there for name in files}
    tape = Tape(family="windows", stat=stats, environ={"SystemRoot": "C:\\Windows"})
    target = TargetPython(python="C:\\env\\Scripts\\python.exe", prefix="C:\\env", record=Python())
    events = runtime_events(ReplaySystem(tape), target)
    assert [event.kind for event in events] == kinds
