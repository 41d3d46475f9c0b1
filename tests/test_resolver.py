"""Which build fits which machine, and what always holds."""

from __future__ import annotations

from typing import Any

import pytest
from described_machines import machine
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machines_named import machine_named

from gpusetup.catalog.file import load_catalog
from gpusetup.catalog.kernels import served_by
from gpusetup.errors import UsageError
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Container, Driver, Gpu, Package, PciDevice, Python, Snapshot
from gpusetup.model.resolution import Advice, Request, Resolution
from gpusetup.model.versions import Capability, parsed
from gpusetup.resolver import check_request, resolve, to_answer

CATALOG = load_catalog()
ANY = Request()


def chosen(snapshot: Snapshot, request: Request = ANY) -> tuple[str, str] | None:
    build = resolve(snapshot, request, CATALOG).build
    return (build.torch, build.backend) if build else None


def reasons(found: Resolution, torch: str) -> dict[str, str]:
    return {r.backend: r.reason for r in found.rejections if r.torch == torch}


# --- single machines ----------------------------------------------------------------------------


def test_the_laptop_gets_the_newest_torch_on_the_cuda_of_its_driver() -> None:
    laptop = machine_named("rtx3050-laptop")
    assert chosen(laptop) == ("2.15.0", "cu130")


def test_torch_2_5_1_on_the_laptop_is_cu124_then_cu121_then_cu118() -> None:
    found = resolve(machine_named("rtx3050-laptop"), Request(torch="2.5.1"), CATALOG)
    assert found.build is not None and found.build.backend == "cu124"
    assert [c.backend for c in found.fallbacks] == ["cu121", "cu118"]
    assert found.index_url == "https://download.pytorch.org/whl/cu124"
    assert found.build.driver_floor == "528.33"
    assert (found.build.torchvision, found.build.torchaudio) == ("0.20.1", "2.5.1")


def test_pascal_gets_cu126_although_its_driver_serves_cuda_13() -> None:
    found = resolve(machine("GTX 1080 Ti"), ANY, CATALOG)
    assert found.build is not None
    assert (found.build.torch, found.build.backend) == ("2.14.1", "cu126")
    assert [(s.gpu, str(s.compute_capability), s.by) for s in found.served] == [
        ("NVIDIA GeForce GTX 1080 Ti", "6.1", "sm_60")
    ]
    assert reasons(found, "2.15.0")["cu130"].startswith(
        "has no kernel for NVIDIA GeForce GTX 1080 Ti (6.1): it carries sm_75"
    )
    assert found.advice is None


def test_windows_pascal_has_kernels_of_its_own() -> None:
    found = resolve(machine("GTX 1080 Ti", os="windows", driver="581.29"), ANY, CATALOG)
    assert [s.by for s in found.served] == ["sm_61"]


def test_volta_on_a_12_2_driver_gets_the_12_6_build_by_minor_version_compatibility() -> None:
    assert chosen(machine("V100", driver="535.183.01", python="3.12")) == ("2.14.1", "cu126")


def test_a_t4_on_driver_470_gets_cu118_and_hears_what_a_driver_would_give() -> None:
    found = resolve(machine("T4", driver="470.256.02"), ANY, CATALOG)
    assert found.build is not None
    assert (found.build.torch, found.build.backend) == ("2.7.1", "cu118")
    assert found.advice == Advice(change="driver", to="580.65.06", gives="torch 2.15.0 (cu130)")


def test_within_a_torch_the_highest_cuda_at_most_the_drivers_comes_first_then_the_higher_ones() -> (
    None
):
    found = resolve(machine("RTX 4090", driver="570.124.06"), Request(torch="2.9.0"), CATALOG)
    assert found.build is not None and found.build.backend == "cu128"
    assert [c.backend for c in found.fallbacks] == ["cu126", "cu129"]


def test_a_driver_below_every_cuda_of_a_torch_takes_the_highest_of_its_family() -> None:
    found = resolve(machine("RTX 4090", driver="535.183.01"), Request(torch="2.9.0"), CATALOG)
    assert found.build is not None and found.build.backend == "cu129"


def test_an_unknown_driver_gets_the_lowest_cuda_that_serves_the_gpus() -> None:
    found = resolve(machine("RTX 4090", driver=None), Request(torch="2.9.0"), CATALOG)
    assert found.build is not None and found.build.backend == "cu126"
    blackwell = resolve(machine("RTX 5090", driver=None), Request(torch="2.9.0"), CATALOG)
    assert blackwell.build is not None and blackwell.build.backend == "cu128"
    assert blackwell.notes[0].startswith("the driver is unknown, so a CUDA that most")


def test_an_unknown_driver_and_no_asked_torch_get_a_cuda_that_most_drivers_serve() -> None:
    names = ("RTX 3060", "V100", "GTX 1080 Ti", "H100", "T4", "RTX 5090", "GB10")
    snapshots = [machine(name, driver=None) for name in names]
    found = [resolve(snapshot, ANY, CATALOG) for snapshot in snapshots]
    assert [one.build and one.build.driver_floor for one in found] == [
        *["525.60.13"] * 5,
        "570",
        "580.65.06",  # which no older driver starts
    ]
    later = next(r for r in found[0].rejections if r.backend == "cu130" and "unknown" in r.reason)
    assert later.reason == "needs NVIDIA driver 580.65.06, and the driver here is unknown"
    assert found[0].advice is not None and found[0].advice.to == "580.65.06"
    named = resolve(snapshots[0], Request(backend="cu130"), CATALOG)
    assert named.build is not None and named.build.backend == "cu130"


def test_a_missing_driver_is_told_with_the_one_that_is_needed() -> None:
    snapshot = replace(machine("T4"), driver=Driver(module_loaded=False, library_found=False))
    found = resolve(snapshot, ANY, CATALOG)
    assert found.build is not None and found.build.cuda
    assert "no NVIDIA driver was found" in found.notes[0] and "525.60.13" in found.notes[0]


def test_a_gpu_known_only_from_the_pci_bus_is_served() -> None:
    bus = (PciDevice(vendor="nvidia", name="GA107M [GeForce RTX 3050 Mobile]"),)
    snapshot = replace(machine(driver=None), gpus=(), pci_devices=bus)
    found = resolve(snapshot, ANY, CATALOG)
    assert [(s.gpu, s.by) for s in found.served] == [("GeForce RTX 3050 Mobile", "sm_86")]


def test_every_visible_gpu_is_served_or_nothing_fits() -> None:
    found = resolve(machine("GTX 1080 Ti", "RTX 5090"), ANY, CATALOG)
    assert found.build is None
    assert found.advice is not None
    assert (found.advice.change, found.advice.to) == ("gpu", "without NVIDIA GeForce GTX 1080 Ti")
    assert any("conda has torch 2.13.0 with CUDA 12.9" in note for note in found.notes)


def test_a_gpu_that_is_hidden_does_not_count() -> None:
    snapshot = machine("GTX 1080 Ti", "RTX 5090")
    old, new = snapshot.gpus or ()
    hidden = replace(snapshot, gpus=(replace(old, visible=False), replace(new, visible=True)))
    assert chosen(hidden) == ("2.15.0", "cu130")


def test_where_a_variable_hides_every_gpu_all_of_them_count() -> None:
    snapshot = machine("GTX 1080 Ti")
    (gpu,) = snapshot.gpus or ()
    assert chosen(replace(snapshot, gpus=(replace(gpu, visible=False),))) == ("2.14.1", "cu126")


def test_a_machine_without_a_gpu_gets_the_cpu_build_and_is_told_so() -> None:
    found = resolve(machine(driver=None), ANY, CATALOG)
    assert found.build is not None and found.build.backend == "cpu"
    assert found.fallbacks == () and found.served == ()
    assert "no NVIDIA GPU was found, so this is the CPU build" in found.notes


def test_a_cuda_build_that_is_asked_for_by_name_is_given_without_a_gpu() -> None:
    found = resolve(machine(driver=None), Request(backend="cu126"), CATALOG)
    assert found.build is not None and found.build.backend == "cu126"
    assert any("not judged against a GPU" in note for note in found.notes)


def test_a_text_that_says_nothing_of_gpus_gets_a_cuda_build() -> None:
    found = resolve(replace(machine(driver=None), gpus=None), Request(torch="2.5.1"), CATALOG)
    assert found.build is not None and found.build.backend == "cu118"
    assert any("the GPU is unknown" in note for note in found.notes)


def test_a_gpu_that_only_a_cpu_build_fits_has_no_answer_unless_cpu_is_asked_for() -> None:
    kepler = machine("sm_30", driver="470.256.02")
    assert chosen(kepler) is None
    assert chosen(kepler, Request(backend="cpu")) == ("2.15.0", "cpu")


def test_macos_gets_the_plain_wheel() -> None:
    found = resolve(machine(driver=None, os="macos", on="aarch64"), ANY, CATALOG)
    assert found.build is not None and not found.build.labelled
    assert found.build.backend == "cpu"
    intel = resolve(machine(driver=None, os="macos"), ANY, CATALOG)
    assert intel.build is not None and intel.build.torch == "2.2.2"


def test_an_old_macos_gets_an_old_torch() -> None:
    snapshot = machine(driver=None, os="macos", on="aarch64")
    old = replace(snapshot, os=replace(snapshot.os, version="13.6"))
    assert chosen(old) == ("2.11.0", "cpu")


def test_an_orin_needs_cuda_13_2_and_thor_is_served_from_cuda_13_0() -> None:
    orin = machine("sm_87", on="aarch64", driver="595.45.04")
    assert chosen(orin) == ("2.15.0", "cu132")
    assert chosen(machine("sm_87", on="aarch64", driver="540.4.0")) is None
    assert chosen(machine("sm_101", on="aarch64", driver="580.65.06")) == ("2.15.0", "cu130")


def test_an_old_glibc_gets_the_last_torch_for_it() -> None:
    assert chosen(machine("T4", libc="glibc 2.17")) == ("2.6.0", "cu124")


def test_musl_has_no_wheels() -> None:
    found = resolve(machine("T4", libc="musl 1.2.5"), ANY, CATALOG)
    assert found.build is None
    assert "there are no wheels for musl" in reasons(found, "2.15.0")["cu130"]


def test_wsl_compares_the_windows_driver_with_the_windows_floor() -> None:
    found = resolve(machine("T4", driver="527.41", wsl=True), Request(torch="2.5.1"), CATALOG)
    assert found.build is not None and found.build.backend == "cu118"
    assert reasons(found, "2.5.1")["cu124"] == "needs NVIDIA driver 528.33, found 527.41"
    linux = resolve(machine("T4", driver="527.41"), Request(torch="2.5.1"), CATALOG)
    assert [c.backend for c in linux.fallbacks] == ["cu124", "cu121"]


def test_a_driver_known_only_by_its_cuda_is_judged_by_the_family() -> None:
    snapshot = replace(machine("T4"), driver=Driver(cuda="12.2"))
    found = resolve(snapshot, Request(torch="2.9.0"), CATALOG)
    assert found.build is not None and found.build.backend == "cu129"
    assert reasons(found, "2.9.0")["cu130"] == "needs a driver for CUDA 13.0, found one for 12.2"


def test_a_compat_library_lifts_an_old_driver() -> None:
    snapshot = replace(
        machine("A100"),
        driver=Driver(version="470.256.02", cuda="12.8"),
        container=Container(cuda_compat_path="/usr/local/cuda/compat"),
    )
    assert chosen(snapshot, Request(torch="2.9.0")) == ("2.9.0", "cu128")


def test_a_newer_capability_is_newer_than_the_catalog_never_unsupported() -> None:
    found = resolve(machine("sm_140"), ANY, CATALOG)
    assert f"newer than the catalog of {CATALOG.as_of}" in found.notes[0]
    assert "unsupported" not in " ".join((*found.notes, *(r.reason for r in found.rejections)))
    same_major = resolve(machine("sm_123"), ANY, CATALOG)
    assert [s.by for s in same_major.served] == ["sm_120"]


def test_a_newer_driver_counts_as_the_newest_row() -> None:
    found = resolve(machine("T4", driver="690.10"), ANY, CATALOG)
    assert found.build is not None and found.build.backend == "cu132"
    assert any("driver 690.10 is newer than the catalog" in note for note in found.notes)


def test_a_driver_that_dropped_the_gpu_is_told() -> None:
    found = resolve(machine("GTX 1080 Ti", driver="590.48.01"), ANY, CATALOG)
    assert any("no longer knows NVIDIA GeForce GTX 1080 Ti: 580" in note for note in found.notes)


@pytest.mark.parametrize(
    ("python", "torch"),
    [
        ("3.7", "1.13.1"),
        ("3.8", "2.4.1"),
        ("3.10", "2.14.1"),
        ("3.13t", "2.12.0"),
        ("3.15", "2.15.0"),
    ],
)
def test_a_python_gets_the_last_torch_that_has_wheels_for_it(python: str, torch: str) -> None:
    found = chosen(machine("T4", python=python))
    assert found is not None and found[0] == torch


def test_a_python_without_wheels_is_advised_the_nearest_that_gives_most() -> None:
    found = resolve(machine("T4", python="3.6"), ANY, CATALOG)
    assert found.build is None
    assert found.advice == Advice(change="python", to="3.11", gives="torch 2.15.0 (cu130)")


def test_a_32_bit_python_has_no_wheels() -> None:
    snapshot = machine("T4")
    narrow = replace(snapshot, python=replace(snapshot.python, bits=32))
    found = resolve(narrow, ANY, CATALOG)
    assert found.build is None
    assert "64-bit Python" in reasons(found, "2.15.0")["cu130"]
    assert found.advice == Advice(change="python", to="3.11 (64-bit)", gives="torch 2.15.0 (cu130)")


def test_torchvision_is_left_out_for_the_one_python_that_it_refuses() -> None:
    found = resolve(machine("T4", python="3.14.1"), ANY, CATALOG)
    assert found.build is not None and found.build.torchvision is None
    assert any("excludes Python 3.14.1" in note for note in found.notes)
    assert resolve(machine("T4", python="3.14.2"), ANY, CATALOG).build == replace(
        found.build, torchvision="0.29.2"
    )


def test_an_unknown_torch_is_advised_the_newest_that_fits() -> None:
    found = resolve(machine("GTX 1080 Ti"), Request(torch="9.9"), CATALOG)
    assert found.build is None
    assert found.advice == Advice(change="torch", to="2.14.1", gives="torch 2.14.1 (cu126)")


def test_advice_keeps_what_was_asked_for_where_it_can() -> None:
    found = resolve(machine("T4", driver="470.256.02"), Request(torch="2.9.0"), CATALOG)
    assert found.advice == Advice(change="driver", to="525.60.13", gives="torch 2.9.0 (cu129)")
    pinned = resolve(machine("T4", python="3.15"), Request(torch="2.5.1"), CATALOG)
    assert pinned.advice == Advice(change="python", to="3.13", gives="torch 2.5.1 (cu124)")


def test_dropping_one_gpu_is_advised_where_it_gives_a_newer_torch() -> None:
    found = resolve(machine("GTX 1080 Ti", "RTX 3090"), ANY, CATALOG)
    assert found.build is not None and found.build.torch == "2.14.1"
    assert found.advice is not None and found.advice.change == "gpu"
    assert found.advice.gives == "torch 2.15.0 (cu130)"


@pytest.mark.parametrize(
    "spec", ["2.5.1", "==2.5.1", "torch==2.5.1", "2.5", "2.5.1+cu121", ">=2.5,<2.6", "~=2.5.0"]
)
def test_a_torch_can_be_asked_for_in_many_ways(spec: str) -> None:
    found = chosen(machine("T4"), Request(torch=spec))
    assert found is not None and found[0] == "2.5.1"
    if "+" in spec:
        assert found[1] == "cu121"


def test_conda_answers_from_its_own_rows_and_says_where_it_is_behind() -> None:
    assert not any("conda" in note for note in resolve(machine("T4"), ANY, CATALOG).notes)
    found = resolve(machine("T4"), Request(installer="conda"), CATALOG)
    assert found.build is not None and found.index_url is None
    assert (found.build.torch, found.build.channel) == ("2.13.0", "conda-forge")
    assert any("answers an older torch: 2.13.0 (cu130) instead of 2.15.0" in n for n in found.notes)
    old = resolve(machine("T4"), Request(installer="conda", torch="2.5.1"), CATALOG)
    assert old.build is not None and old.build.channel == "conda-pytorch"


def test_rocm_is_known_and_not_fitted() -> None:
    request = Request(backend="rocm6.4")
    check_request(request, CATALOG)
    found = resolve(machine("T4"), request, CATALOG)
    assert found.build is None
    assert (
        reasons(found, "2.9.1")["rocm6.4"]
        == "is not for NVIDIA GPUs, and other GPUs are not fitted"
    )


def test_an_unconfirmed_label_is_known_and_has_no_torch() -> None:
    request = Request(backend="cu134")
    check_request(request, CATALOG)
    found = resolve(machine("T4"), request, CATALOG)
    assert found.build is None
    assert "has no torch from 1.13 on" in reasons(found, "any")["cu134"]


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (Request(backend="cu131"), "knows no torch for 'cu131'"),
        (Request(backend="cuda"), "knows no torch for 'cuda'"),
        (Request(torch="2.5.1+cu131"), "knows no torch for 'cu131'"),
        (Request(torch="2.5.1+cu124", backend="cu121"), "asks for cu124 and `--backend` for cu121"),
        (Request(torch="newest"), "'newest' is no torch version"),
        (Request(torch=">=2.5;"), "'>=2.5;' is no torch version"),
    ],
)
def test_a_wrong_question_is_refused(request_: Request, said: str) -> None:
    with pytest.raises(UsageError, match=r"['`].+['`]") as told:
        check_request(request_, CATALOG)
    assert said in told.value.message and told.value.hint
    found = resolve(machine("T4"), request_, CATALOG)
    assert found.rejections


def test_a_platform_without_wheels_is_told_which_there_are() -> None:
    found = resolve(machine("T4", os="windows", on="aarch64"), ANY, CATALOG)
    assert found.build is None
    assert {r.reason for r in found.rejections} >= {
        "is built for linux x86_64, this is windows aarch64"
    }


def test_an_unknown_platform_is_assumed_and_said() -> None:
    found = resolve(Snapshot(driver=Driver(version="580.95.05")), ANY, CATALOG)
    assert found.build is not None and found.build.os == "linux"
    assert any("Linux on x86_64 is assumed" in note for note in found.notes)


def test_the_public_answer_has_commands_for_every_installer() -> None:
    snapshot = machine_named("rtx3050-laptop")
    answer = to_answer(resolve(snapshot, Request(torch="2.5.1"), CATALOG), snapshot)
    assert answer.python == "3.11" and answer.catalog_as_of == CATALOG.as_of
    assert set(answer.commands) == {"uv", "pip", "conda"}
    assert "torch==2.5.1+cu124" in answer.commands["uv"][0]
    assert "pytorch-cuda=12.4" in answer.commands["conda"][0]


def test_no_answer_is_a_null_torch_with_reasons_and_advice() -> None:
    snapshot = machine("T4")
    answer = to_answer(resolve(snapshot, Request(torch="9.9"), CATALOG), snapshot)
    assert answer.torch is None and answer.commands == {}
    assert answer.rejections and answer.advice is not None


# --- what always holds --------------------------------------------------------------------------

CAPABILITIES = sorted(
    {row.capability for row in CATALOG.gpus} | {Capability(12, 3), Capability(14, 0)}
)
DRIVERS = sorted(
    {row.linux for row in CATALOG.toolkits}
    | {f"{row.branch}.10" for row in CATALOG.branches}
    | {"352.99", "470.256.02", "535.183.01", "581.29", "700.10"},
    key=parsed,
)
BACKENDS = ("auto", "auto", "auto", "cpu", "cu118", "cu126", "cu130", "rocm6.4")
TORCHES = (None, None, None, "2.5.1", ">=2.6,<2.9", "2.15.0", "9.9")

gpus = st.lists(st.sampled_from(CAPABILITIES), max_size=3).map(
    lambda found: tuple(Gpu(name=f"GPU {c}", compute_capability=c) for c in found)
)
requests = st.builds(
    Request,
    torch=st.sampled_from(TORCHES),
    backend=st.sampled_from(BACKENDS),
    installer=st.sampled_from(("auto", "conda")),
)


@st.composite
def machines(draw: st.DrawFn) -> Snapshot:
    systems: st.SearchStrategy[tuple[Any, str]] = st.sampled_from(
        (
            ("linux", "x86_64"),
            ("linux", "x86_64"),
            ("windows", "x86_64"),
            ("linux", "aarch64"),
            ("macos", "aarch64"),
        )
    )
    os, on = draw(systems)
    base = machine(
        os=os,
        on=on,
        driver=draw(st.sampled_from((None, *DRIVERS))),
        python=draw(st.sampled_from((None, "3.6", "3.8", "3.11", "3.13", "3.13t", "3.15"))),
        libc=draw(st.sampled_from((None, "glibc 2.17", "glibc 2.36", "musl 1.2.5"))),
        wsl=draw(st.sampled_from((None, True))) if os == "linux" else None,
    )
    return replace(base, gpus=draw(st.one_of(st.none(), gpus)))


many = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@many
@given(machines(), requests)
def test_a_chosen_cuda_build_has_code_for_every_visible_gpu(
    snapshot: Snapshot, asked: Request
) -> None:
    found = resolve(snapshot, asked, CATALOG)
    if found.build is None or found.build.cuda is None:
        return
    driver = snapshot.driver.version
    own = CATALOG.driver_cuda(driver) if driver else None
    for gpu in snapshot.gpus or ():
        assert gpu.compute_capability is not None
        assert served_by(found.build, gpu.compute_capability, own) is not None
    assert len(found.served) == len(snapshot.gpus or ())


@many
@given(machines(), requests, st.sampled_from(DRIVERS), st.sampled_from(DRIVERS))
def test_a_newer_driver_never_gives_an_older_torch(
    snapshot: Snapshot, asked: Request, one: str, other: str
) -> None:
    older, newer = sorted((one, other), key=parsed)
    before = chosen(replace(snapshot, driver=Driver(version=older)), asked)
    after = chosen(replace(snapshot, driver=Driver(version=newer)), asked)
    if before is not None:
        assert after is not None
        assert parsed(after[0]) >= parsed(before[0])


@many
@given(machines(), requests)
def test_a_gpu_is_never_left_to_a_cpu_build_unasked(snapshot: Snapshot, asked: Request) -> None:
    found = resolve(snapshot, asked, CATALOG)
    if (
        found.build is None
        or found.build.cuda
        or asked.backend == "cpu"
        or snapshot.os.family == "macos"
    ):
        return
    assert snapshot.gpus == () and snapshot.driver.version is None
    assert "no NVIDIA GPU was found, so this is the CPU build" in found.notes


@many
@given(machines(), requests)
def test_every_row_of_the_platform_is_the_answer_a_fallback_or_rejected_with_a_reason(
    snapshot: Snapshot, asked: Request
) -> None:
    found = resolve(snapshot, asked, CATALOG)
    assert all(r.reason.strip() for r in found.rejections)
    channels = ("conda-pytorch", "conda-forge") if asked.installer == "conda" else ("pytorch",)
    rows = [
        (b.torch, b.backend)
        for b in CATALOG.builds
        if (b.os, b.machine) == (snapshot.os.family, snapshot.os.machine) and b.channel in channels
    ]
    told = [(r.torch, r.backend) for r in found.rejections]
    if found.build:
        told.append((found.build.torch, found.build.backend))
    told += [(c.torch, c.backend) for c in found.fallbacks]
    assert set(rows) <= set(told)
    assert all(row.torch == found.build.torch for row in found.fallbacks if found.build)


@many
@given(machines(), requests)
def test_advice_is_true(snapshot: Snapshot, asked: Request) -> None:
    """What the advice says one would get is what one gets."""
    found = resolve(snapshot, asked, CATALOG)
    advice = found.advice
    if advice is None:
        return
    if advice.change == "driver":
        assert parsed(advice.to) > parsed(snapshot.driver.version or "0")
        snapshot = replace(snapshot, driver=Driver(version=advice.to))
    elif advice.change == "python":
        snapshot = replace(snapshot, python=Python(version=advice.to))
    elif advice.change == "gpu":
        kept = tuple(g for g in snapshot.gpus or () if f"without {g.name}" != advice.to)
        snapshot = replace(snapshot, gpus=kept)
    elif advice.change == "torch":
        asked = replace(asked, torch=None)
    else:
        asked = replace(asked, backend="auto")
    after = chosen(snapshot, asked)
    assert after is not None
    assert advice.gives == f"torch {after[0]} ({after[1]})"
    if found.build is not None:
        assert parsed(after[0]) > parsed(found.build.torch)


# --- the first driver of a GPU ------------------------------------------------------------------


def test_a_gpu_that_came_after_the_driver_is_the_reason() -> None:
    found = resolve(machine("RTX 5090", driver="550.54.14"), ANY, CATALOG)
    said = "RTX 5090 needs NVIDIA driver 570 or newer, found 550.54.14"
    assert found.build is None
    assert said in reasons(found, "2.9.0")["cu128"]
    assert found.advice is not None and found.advice.change == "driver"


def test_windows_numbers_of_a_branch_count_as_the_branch() -> None:
    assert chosen(machine("RTX 5090", driver="572.16", os="windows", libc=None)) is not None
    assert chosen(machine("RTX 5090", driver="566.36", os="windows", libc=None)) is None
    assert chosen(machine("B200", driver="572.61", os="windows", libc=None)) is None


def test_a_gpu_that_the_driver_itself_listed_is_known_to_it() -> None:
    listed = machine("B200", driver="570.124.06")
    assert listed.gpus is not None
    seen = replace(listed, gpus=(replace(listed.gpus[0], uuid="GPU-1", nvml_index=0),))
    assert chosen(listed) is None
    assert chosen(seen) == ("2.13.0", "cu129")


def test_without_the_newer_gpu_there_is_a_build() -> None:
    both = machine("RTX 3090", "RTX 5090", driver="550.54.14")
    found = resolve(both, ANY, CATALOG)
    assert found.build is None and found.advice is not None
    assert all("RTX 3090 needs" not in r.reason for r in found.rejections)


def test_a_gpu_on_the_bus_that_the_driver_does_not_list_is_judged_by_its_name() -> None:
    device = PciDevice(vendor="nvidia", bus_id="0000:01:00.0", name="GB202 [GeForce RTX 5090]")
    bare = replace(machine(driver="550.54.14"), gpus=(), pci_devices=(device,))
    assert "GeForce RTX 5090 needs" in reasons(resolve(bare, ANY, CATALOG), "2.9.0")["cu128"]


def test_the_driver_of_an_unknown_host_is_named_for_the_gpu_too() -> None:
    found = resolve(machine("B200", driver=None), Request(torch="2.9.1"), CATALOG)
    assert any("570.133.20 or newer" in note for note in found.notes)


def test_kepler_ends_with_torch_2_3_because_of_the_cudnn_of_the_next() -> None:
    found = resolve(machine("Tesla K80", driver="470.256.02"), ANY, CATALOG)
    assert found.build is not None
    assert (found.build.torch, found.build.backend) == ("2.3.1", "cu118")
    said = "carry cuDNN 9, which has no kernels for Kepler"
    assert said in reasons(found, "2.4.0")["cu118"]
    assert said not in reasons(found, "2.3.1")["cu121"]
    pascal = resolve(machine("GTX 1080 Ti"), ANY, CATALOG)
    assert all("Kepler" not in r.reason for r in pascal.rejections)


@pytest.mark.parametrize(("installed", "noted"), (("2.11.1", False), ("2.11.0+cu130", True)))
def test_a_torchaudio_that_serves_as_it_is_may_stay(installed: str, noted: bool) -> None:
    there = (Package(name="torchaudio", version=installed),)
    host = replace(machine("T4", driver="595.58.03"), packages=there)
    found = resolve(host, ANY, CATALOG)
    assert found.build is not None and found.build.backend == "cu132"
    assert any("no torchaudio is known for" in note for note in found.notes) is noted
