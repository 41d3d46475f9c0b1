"""The catalog: what holds for every row of the package's own (`LIVE`), the answers that it gives
today (`golden.json`), and what is decided by a catalog, on the frozen one (`CATALOG`)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conftest import Same

from gpusetup.catalog.builds import completed_from_catalog
from gpusetup.catalog.companions import default_backend
from gpusetup.catalog.file import load_catalog, read_catalog
from gpusetup.catalog.gpus import gpu_described
from gpusetup.catalog.kernels import release
from gpusetup.choose.choose import choose
from gpusetup.choose.host import host_of
from gpusetup.choose.wish import Wish
from gpusetup.errors import BadInput
from gpusetup.model.machine import Driver, Gpu, Os, Python, Snapshot, Torch
from gpusetup.model.versions import Capability
from gpusetup.named_file import SHIPPED

CATALOG = load_catalog()
FACTS = Path(SHIPPED, "facts.json")
FILES = (Path(SHIPPED, "catalog.json"), FACTS)
LIVE = read_catalog(FILES[0].read_bytes())
HERE = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_group_of_rows_has_its_date_its_certainty_and_its_sources(file: Path) -> None:
    document = json.loads(file.read_text(encoding="utf-8"))
    groups = [group for group in document.values() if isinstance(group, dict)]
    assert groups
    for group in groups:
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", group["as_of"]) and group["as_of"] >= "2026"
        assert group["certainty"] and group["source"] and group["rows"]
        rows = [json.dumps(row, sort_keys=True) for row in group["rows"]]
        assert len(rows) == len(set(rows))


def test_every_build_is_complete_for_its_kind() -> None:
    for build in LIVE.builds:
        assert build.os in ("linux", "windows", "macos") and build.machine in ("x86_64", "aarch64")
        assert all(re.fullmatch(r"3\.\d+t?", python) for python in build.pythons) and build.pythons
        assert (build.cuda is None) == (not build.kernels) == (build.driver_floor is None)
        for code in (*build.kernels, *build.ptx):
            Capability.parse(code)
        if build.os == "linux" and build.channel == "pytorch":
            assert build.glibc in ("2.17", "2.28")


def test_a_snapshot_is_completed_with_readings_that_say_so() -> None:
    bare = Snapshot(
        os=Os(family="linux", machine="x86_64"),
        driver=Driver(version="580.95.05"),
        gpus=(Gpu(name="Tesla T4"), Gpu(name="Unheard-of 9000")),
        torch=Torch(installed=True, version="2.15.0+cu130", backend="cu130"),
    )
    full = completed_from_catalog(bare, CATALOG)
    assert full.driver.cuda == "13.0"
    assert full.torch.cuda == "13.0" and full.torch.kernels is not None
    assert "sm_75" in full.torch.kernels
    t4, unknown = full.gpus or ()
    assert (t4.compute_capability, t4.memory_total_bytes) == (Capability(7, 5), 16 << 30)
    assert unknown.compute_capability is None
    said = {r.subject: (r.source, r.value, r.problem) for r in full.readings}
    assert said["torch.kernels"][0] == "catalog"
    assert said["gpu Unheard-of 9000"][2] == "No GPU is called 'Unheard-of 9000'"


def test_a_catalog_that_is_no_catalog_is_refused_with_the_place() -> None:
    with pytest.raises(BadInput, match=r"\$\.as_of"):
        read_catalog(b'{"as_of": 3}')


def test_every_backend_of_a_build_has_a_driver_floor_and_a_toolkit() -> None:
    for cuda in {build.cuda for build in LIVE.builds if build.cuda}:
        assert LIVE.driver_floor(cuda), f"{cuda}: a row in `families`"
        assert LIVE.toolkit_driver(cuda), f"{cuda}: a row in `toolkits`"
        served = LIVE.driver_cuda(LIVE.toolkit_driver(cuda) or "")
        assert served is not None and release(served) >= release(cuda)


GOLDEN_GPUS = ("GTX 1080 Ti", "T4", "RTX 3090", "RTX 4090", "H100", "RTX 5090", "B200", "GB10")
GOLDEN_DRIVERS = ("470.256.02", "535.183.01", "580.95.05", "615.71.09")


def test_the_answers_of_today(same_as_file: Same) -> None:
    """The newest build for each GPU by driver, and what a release brings: one line an answer."""
    answers = {
        f"{gpu}, driver {driver}, {os}": _answer(gpu, driver, os)
        for gpu in GOLDEN_GPUS
        for driver in GOLDEN_DRIVERS
        for os in (("linux", "windows") if gpu == "RTX 4090" else ("linux",))
    }
    answers |= {"no GPU": _answer(None, None, "linux"), "Mac": _answer(None, None, "macos")}
    newest = LIVE.releases[-1]
    answers["newest"] = f"{newest.torch} torchvision {newest.torchvision}"
    answers["default index"] = str(default_backend(LIVE, newest.torch, "linux", "x86_64"))
    same_as_file(json.dumps(answers, indent=1) + "\n", HERE / "golden.json")


def _answer(gpu: str | None, driver: str | None, os: str) -> str:
    on = "aarch64" if gpu == "GB10" or os == "macos" else "x86_64"
    there = Snapshot(
        os=Os(family=os, machine=on, libc="glibc 2.35"),  # type: ignore[arg-type]
        python=Python(version="3.12"),
        driver=Driver(version=driver),
        gpus=(gpu_described(gpu, LIVE.gpus),) if gpu else (),
    )
    build = choose(Wish(), host_of(there, LIVE), LIVE).build
    return f"torch {build.torch} {build.backend}" if build else "none"
