"""Another machine than the one that was read."""

from __future__ import annotations

import pytest
from described_machines import machine
from machines_named import machine_named

from gpusetup.catalog.file import load_catalog
from gpusetup.errors import UsageError
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Driver, Snapshot
from gpusetup.model.versions import Capability
from gpusetup.resolver.described import Description, described

CATALOG = load_catalog()
HERE = machine("RTX 4090", driver="570.124.06", libc="glibc 2.31")


def test_nothing_given_changes_nothing() -> None:
    assert described(HERE, Description(), CATALOG) == HERE


def test_what_is_not_given_stays() -> None:
    there = described(HERE, Description(gpus=("T4", "sm_90")), CATALOG)
    assert [g.name for g in there.gpus or ()] == ["Tesla T4", "sm_90"]
    assert there.driver == HERE.driver and there.os.libc == "glibc 2.31"
    assert there.python.version == "3.11" and there.python.executable is None
    assert there.origin == "composed"
    assert [r.value for r in there.readings if r.source == "command line"] == ["T4, sm_90"]


def test_a_given_driver_replaces_all_that_was_read_of_the_old_one() -> None:
    old = replace(HERE, driver=Driver(version="570.124.06", cuda="12.8", nvml_code=0))
    there = described(old, Description(driver="470.256.02"), CATALOG)
    assert there.driver == Driver(version="470.256.02")
    assert there.gpus == HERE.gpus


def test_a_driver_on_a_machine_without_a_gpu_means_a_machine_with_an_unknown_one() -> None:
    assert described(machine(driver=None), Description(driver="580.95.05"), CATALOG).gpus is None


def test_another_system_has_another_c_library_and_driver() -> None:
    laptop = machine_named("rtx3050-laptop")
    there = described(laptop, Description(os="linux"), CATALOG)
    assert (there.os.family, there.os.machine, there.os.libc) == ("linux", "x86_64", None)
    assert there.driver == Driver() and there.gpus == laptop.gpus
    assert there.python.version == "3.11.9" and there.python.executable is None
    same = described(HERE, Description(os="linux", glibc="2.17"), CATALOG)
    assert same.os.libc == "glibc 2.17" and same.driver == HERE.driver


def test_a_free_threaded_python_is_one_word() -> None:
    there = described(HERE, Description(python="3.13t"), CATALOG)
    assert (there.python.version, there.python.free_threaded) == ("3.13", True)


def test_other_spellings_of_an_architecture() -> None:
    assert described(HERE, Description(machine="arm64"), CATALOG).os.machine == "aarch64"
    assert described(HERE, Description(machine="amd64"), CATALOG).os.machine == "x86_64"
    assert described(machine(driver=None), Description(os="macos"), CATALOG).os.machine == "aarch64"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Description(driver="latest"), "'latest' is no NVIDIA driver version"),
        (Description(driver="580.95.05-open"), "'580.95.05-open' is no NVIDIA driver version"),
        (Description(driver=""), "'' is no NVIDIA driver version"),
        (Description(python="three"), "'three' is no Python version"),
        (Description(python="3"), "'3' is no Python version"),
        (Description(glibc="musl"), "'musl' is no glibc version"),
        (Description(os="windows", glibc="2.35"), "`--glibc` and windows exclude each other"),
        (Description(os="macos", driver="580.95.05"), "macOS has no NVIDIA driver"),
        (Description(os="macos", gpus=("T4",)), "macOS has no NVIDIA driver"),
        (Description(gpus=("GTX 9999",)), "No GPU is called 'GTX 9999'"),
    ],
)
def test_values_that_are_none_or_clash_are_refused(given: Description, said: str) -> None:
    with pytest.raises(UsageError) as told:
        described(Snapshot(), given, CATALOG)
    assert said in told.value.message and told.value.hint


def test_a_capability_beyond_the_catalog_is_no_unknown_name() -> None:
    (gpu,) = described(HERE, Description(gpus=("sm_140",)), CATALOG).gpus or ()
    assert gpu.compute_capability == Capability(14, 0)
