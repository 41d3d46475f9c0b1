"""The least change: what `install` would do to the torch that is there, and never does unasked."""

from __future__ import annotations

import pytest
from described_machines import machine
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machines_named import machine_named

from gpusetup.accelerators.makers import maker_of
from gpusetup.catalog.file import load_catalog
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Package, PciDevice, Snapshot, Torch
from gpusetup.model.resolution import Request
from gpusetup.model.versions import parsed
from gpusetup.resolver.companions import left_behind, moved_with, pinned, without_release
from gpusetup.resolver.least import crosses, least_change
from gpusetup.resolver.refusal import reasons, told

CATALOG = load_catalog()
LAPTOP = machine_named("rtx3050-laptop")
NO_GPU = replace(
    machine(), gpus=(), pci_devices=(), driver=replace(machine().driver, version=None, cuda=None)
)


def holding(version: str, on: Snapshot, *others: Package) -> Snapshot:
    """A machine whose target holds this torch, and others beside it."""
    backend = version.partition("+")[2] or None
    torch = Torch(installed=True, version=version, backend=backend)
    packages = (Package(name="torch", version=version), *others)
    return replace(on, torch=torch, packages=packages)


def becomes(
    on: Snapshot, request: Request | None = None, *, upgrade: bool = False
) -> tuple[str, ...]:
    found = least_change(on, request or Request(), CATALOG, upgrade=upgrade)
    build = found.resolution.build
    return (found.how, build.torch, build.backend) if build else (found.how,)


# --- what stays, what changes --------------------------------------------------------------------


def test_the_laptop_keeps_its_version_and_gets_the_right_index() -> None:
    found = least_change(LAPTOP, Request(), CATALOG)
    assert becomes(LAPTOP) == ("same-version", "2.5.1", "cu124")
    assert found.newest.build is not None and found.newest.build.torch == "2.15.0"


@pytest.mark.parametrize("version", ["2.5.1+cu118", "2.5.1+cu121", "2.5.1+cu124", "2.15.0+cu130"])
def test_torch_that_serves_stays_whatever_is_newer(version: str) -> None:
    assert becomes(holding(version, LAPTOP))[:2] == ("kept", version.partition("+")[0])
    assert becomes(holding(version, LAPTOP))[2] == version.partition("+")[2]


def test_upgrade_asks_for_the_newest_and_never_goes_back() -> None:
    assert becomes(holding("2.5.1+cu124", LAPTOP), upgrade=True) == ("upgrade", "2.15.0", "cu130")
    assert becomes(holding("2.15.0+cu130", LAPTOP), upgrade=True)[0] == "kept"
    assert becomes(holding("2.16.0+cu130", LAPTOP), upgrade=True)[0] == "kept"
    assert becomes(holding("2.5.1+cu124", LAPTOP), Request(torch="latest"))[0] == "upgrade"


def test_where_the_version_does_not_fit_the_nearest_newer_one_is_taken_then_the_newest() -> None:
    blackwell = machine_named("rtx5090-cu124")
    assert becomes(blackwell) == ("nearest-newer", "2.7.0", "cu128")
    old = machine_named("t4-driver-470")
    assert becomes(old) == ("newest", "2.7.1", "cu118")


def test_a_request_is_met_with_as_little_change() -> None:
    there = holding("2.6.0+cu124", LAPTOP)
    assert becomes(there, Request(torch=">=2.5,<2.9"))[:2] == ("kept", "2.6.0")
    assert becomes(there, Request(torch=">=2.7"))[:2] == ("nearest-newer", "2.7.0")
    assert becomes(there, Request(torch="==2.5.1"))[1:] == ("2.5.1", "cu124")
    assert becomes(there, Request(backend="cu126"))[1:] == ("2.6.0", "cu126")
    assert becomes(there, Request(backend="cpu"))[1:] == ("2.6.0", "cpu")


def test_a_build_that_no_catalog_knows_is_left_alone_where_nothing_speaks_against_it() -> None:
    nightly = holding("2.16.0.dev20261101+cu130", LAPTOP)
    assert becomes(nightly)[0] == "kept"
    assert becomes(holding("2.16.0.dev20261101+cpu", LAPTOP))[0] == "newest"


def test_an_environment_without_torch_gets_the_newest() -> None:
    empty = replace(LAPTOP, torch=Torch(installed=False), packages=())
    assert becomes(empty) == ("first", "2.15.0", "cu130")


# --- what nothing tells the GPUs of --------------------------------------------------------------

ARM = replace(machine(), os=replace(machine().os, machine="aarch64"))


def unread(version: str, on: Snapshot, *others: Package) -> Snapshot:
    """A torch without a label, whose CUDA was not read."""
    there = holding(version, on, *others)
    return replace(there, torch=replace(there.torch, backend=None, cuda=None))


def test_a_torch_whose_gpus_are_not_read_counts_as_the_default_index_has_it() -> None:
    linux = replace(LAPTOP, os=replace(machine().os))
    assert becomes(unread("2.5.1", linux)) == ("kept", "2.5.1", "cu124")
    assert becomes(unread("2.5.1", LAPTOP)) == ("same-version", "2.5.1", "cu124")
    assert becomes(unread("2.5.1", machine_named("mac")))[:2] == ("kept", "2.5.1")
    assert becomes(unread("2.9.1", ARM))[:2] == ("same-version", "2.9.1")
    assert becomes(unread("2.13.0", ARM)) == ("kept", "2.13.0", "cu130")


def test_what_lies_beside_it_says_more_than_the_default_index() -> None:
    linux = replace(LAPTOP, os=replace(machine().os))
    runtime = Package(name="nvidia-cuda-runtime-cu12", version="12.1.105")
    assert becomes(unread("2.5.1", linux, runtime)) == ("kept", "2.5.1", "cu121")
    strange = replace(runtime, version="12.8.90")
    assert becomes(unread("2.5.1", linux, strange)) == ("kept", "2.5.1", "cu124")


@pytest.mark.parametrize("version", ["2.5.1", "2.5.1+mine", "2.6.0a0+git1234", "2.4.0.dev20240601"])
@pytest.mark.parametrize("upgrade", [False, True])
def test_without_a_gpu_it_never_becomes_a_cpu_build_unasked(version: str, upgrade: bool) -> None:
    there = unread(version, NO_GPU)
    assert becomes(there, upgrade=upgrade)[0] in ("kept", "refused")
    assert becomes(there, Request(torch="2.10.0"))[0] == "refused"
    assert becomes(unread("2.5.1", NO_GPU), Request(backend="cpu"))[1:] == ("2.5.1", "cpu")


def test_what_nothing_tells_stays_where_nothing_speaks_against_it() -> None:
    for there in (unread("2.5.1+mine", LAPTOP), unread("2.9.1", machine_named("jetson-thor"))):
        assert becomes(there)[::2] == ("kept", "unknown")
    vision = Package(name="torchvision", version="0.20.1+cu124")
    assert left_behind(LAPTOP, "2.5.1", "unknown", CATALOG) == ()
    assert becomes(unread("2.5.1+mine", LAPTOP, vision), upgrade=True)[0] == "upgrade"


# --- never from one maker's GPUs to another's ----------------------------------------------------

ACCELERATED = ("2.9.1+cu130", "2.9.1+rocm6.4", "2.9.1+xpu")


@pytest.mark.parametrize("version", ACCELERATED)
@pytest.mark.parametrize("upgrade", [False, True])
def test_without_a_gpu_an_accelerator_build_is_not_exchanged(version: str, upgrade: bool) -> None:
    label = version.partition("+")[2]
    assert becomes(holding(version, NO_GPU), upgrade=upgrade) == ("refused", "2.9.1", label)
    named = Request(backend="cpu")
    assert becomes(holding(version, NO_GPU), named)[1:] == ("2.9.1", "cpu")


@pytest.mark.parametrize("version", ACCELERATED[1:])
def test_another_makers_build_beside_an_nvidia_gpu_is_exchanged_only_by_name(version: str) -> None:
    """What doctor prescribes names the backend; `install` by itself does nothing."""
    assert becomes(holding(version, LAPTOP))[0] == "refused"
    assert becomes(holding(version, LAPTOP))[1:] == ("2.9.1", "cu130")
    assert becomes(holding(version, LAPTOP), Request(backend="cu130"))[0] == "same-version"


def test_another_makers_build_beside_its_gpu_serves() -> None:
    amd = replace(NO_GPU, pci_devices=(PciDevice(vendor="amd"),))
    intel = replace(NO_GPU, pci_devices=(PciDevice(vendor="intel"),))
    assert becomes(holding("2.9.1+rocm6.4", amd))[0] == "kept"
    assert becomes(holding("2.9.1+xpu", intel))[0] == "kept"
    assert becomes(holding("2.9.1+rocm6.4", intel))[0] == "refused"
    for there in (holding("2.9.1+rocm6.4", amd), holding("2.9.1+xpu", intel)):
        assert becomes(there, upgrade=True)[0] == "kept"
        asked = Request(torch="2.10.0")
        found = least_change(there, asked, CATALOG)
        assert found.how == "refused"
        assert "which is here" in told(found, there, CATALOG)
        (only,) = reasons(found, there, ())
        assert only.command[-2:] == ("--backend", "cpu")


@settings(max_examples=75, suppress_health_check=[HealthCheck.too_slow])
@given(
    held=st.sampled_from(CATALOG.builds),
    on=st.sampled_from([LAPTOP, NO_GPU, machine(), machine_named("t4-driver-470")]),
    asked=st.sampled_from([Request(), Request(torch=">=2.4"), Request(torch="2.7")]),
    upgrade=st.booleans(),
)
def test_whatever_is_there_it_never_leaves_its_maker_unasked(held, on, asked, upgrade) -> None:  # type: ignore[no-untyped-def]
    there = holding(f"{held.torch}+{held.backend}", on)
    found = least_change(there, asked, CATALOG, upgrade=upgrade)
    if found.moves and found.resolution.build is not None:
        assert not crosses(held.backend, found.resolution.build.backend)
    again = found.resolution.build
    if found.moves and again is not None:
        after = holding(f"{again.torch}+{again.backend}", on)
        assert least_change(after, asked, CATALOG, upgrade=upgrade).how == "kept"


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(held=st.sampled_from([b for b in CATALOG.builds if b.channel == "pytorch"]))
def test_no_version_goes_back_where_a_newer_one_fits(held) -> None:  # type: ignore[no-untyped-def]
    found = least_change(holding(f"{held.torch}+{held.backend}", LAPTOP), Request(), CATALOG)
    build, newest = found.resolution.build, found.newest.build
    assert build is not None and newest is not None
    if parsed(newest.torch) >= parsed(held.torch):
        assert parsed(build.torch) >= parsed(held.torch)


def test_the_makers_of_backends() -> None:
    assert [maker_of(b) for b in ("cu130", "rocm7.0", "xpu", "cpu", None)] == [
        "nvidia",
        "amd",
        "intel",
        None,
        None,
    ]


# --- companions ----------------------------------------------------------------------------------

XFORMERS = Package(name="xformers", version="0.0.28.post3", requires=("torch==2.5.1",))
VISION = Package(name="torchvision", version="0.20.1+cpu", requires=("torch==2.5.1",))


def test_what_pins_torch_moves_with_it() -> None:
    there = holding("2.5.1+cpu", LAPTOP, VISION, XFORMERS)
    same = least_change(there, Request(), CATALOG).resolution.build
    assert moved_with(there, same) == ("torch", "torchvision")
    newest = least_change(there, Request(), CATALOG, upgrade=True).resolution.build
    assert moved_with(there, newest) == ("torch", "torchvision", "xformers")


def test_markers_and_ranges_are_read() -> None:
    only_elsewhere = Package(
        name="a", version="1", requires=("torch==2.5.1; sys_platform == 'linux'", "torch>=2; ???")
    )
    wide = Package(name="b", version="1", requires=("torch>=2.4",))
    build = least_change(LAPTOP, Request(), CATALOG, upgrade=True).resolution.build
    assert build is not None
    assert pinned(holding("2.5.1+cpu", LAPTOP, only_elsewhere, wide), build) == ()


def test_a_companion_without_a_release_is_told() -> None:
    build = CATALOG.row_of("2.5.1", "cu124", "linux", "x86_64")
    assert build is not None
    there = holding("2.5.1+cpu", LAPTOP, VISION)
    (found,) = without_release(there, replace(build, torchvision=None))
    assert (found.name, found.needs) == ("torchvision", None)
