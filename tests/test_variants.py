"""Wheel variants (PEP 817, 825): read from a real index, judged, and never taken unasked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from index_server import Fault
from installing import TORCH, Said, World, enter, needs_linux, new_world, versions_in

from gpusetup.cli import main
from gpusetup.install.fetching.page import parse_page
from gpusetup.install.fetching.variants import judged, parse_variants, variant_of
from gpusetup.install.fetching.wheels import Wheel
from gpusetup.model.machine import Driver, Gpu, Snapshot
from gpusetup.model.versions import Capability

pytestmark = needs_linux
THERE = ("--os", "linux", "--machine", "x86_64", "--python", "3.12", "--glibc", "2.35")
A100 = ("--gpu", "A100 80GB", "--driver", "580.95.05", *THERE)
TAG = "cp312-cp312-manylinux_2_28_x86_64"
LABELS: dict[str, Any] = {
    "cu126": {"nvidia": {"cuda_version_lower_bound": ["12.6"], "sm_arch": ["80_real", "90_real"]}},
    "cu130": {"nvidia": {"cuda_version_lower_bound": ["13.0"], "sm_arch": ["80_real", "90_real"]}},
    "cu140": {"nvidia": {"cuda_version_lower_bound": ["14.0"]}},
    "cu12only": {"nvidia": {"cuda_version_upper_bound": ["13"]}},
    "hopper": {"nvidia": {"sm_arch": ["90_real", "100_real"]}},
    "mkl": {"blas_lapack": {"library": ["mkl"]}},
    "null": {},
}
FILE: dict[str, Any] = {
    "$schema": "https://variants-schema.wheelnext.dev/v0.0.3.json",
    "default-priorities": {"namespace": ["nvidia", "blas_lapack"]},
    "variants": LABELS,
}
Ask = Callable[..., Said]


def shelve(
    world: World, labels: tuple[str, ...], said: str | None, version: str = "2.99.0"
) -> None:
    """Stand-in variant wheels on torch's `variant` shelf, beside an ordinary older one."""
    folder = world.index.root / "whl/variant/torch"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"torch-2.98.0-{TAG}.whl").write_bytes(b"x")
    for label in labels:
        (folder / f"torch-{version}-{TAG}-{label}.whl").write_bytes(b"x")
    if said is not None:
        (folder / f"torch-{version}-variants.json").write_text(said)


@pytest.fixture
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with new_world(tmp_path_factory.mktemp("variants")) as found:
        yield found


@pytest.fixture
def ask(world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    enter(world, monkeypatch)

    def asked(*words: str) -> Said:
        capsys.readouterr()
        code = main(["resolve", "--index-root", world.index.index_root, *words])
        said = capsys.readouterr()
        return Said(exit=code, out=said.out, err=said.err)

    return asked


def test_each_variant_is_judged_and_the_exact_build_stays_the_answer(
    ask: Ask, world: World
) -> None:
    shelve(world, (*LABELS, "unknown"), json.dumps(FILE))
    plain = ask(*A100, "--json").answer
    assert plain["variants"] == [] and not world.index.asked_for("*variant*")
    said = ask(*A100, "--variants", "--json")
    assert said.exit == 0, said.err
    assert "/whl/variant" in said.err
    assert {**said.answer, "variants": []} == plain
    rows = {row["label"]: row for row in said.answer["variants"]}
    assert set(rows) == {*LABELS, "unknown"}
    fitting = [row["label"] for row in said.answer["variants"] if row["reason"] is None]
    assert fitting == ["cu130", "cu126", "null"]
    for label, word in (
        ("cu140", "cuda_version_lower_bound :: 14.0 is not met"),
        ("cu12only", "cuda_version_upper_bound :: 13 is not met"),
        ("hopper", "sm_arch :: 90_real, 100_real is not met"),
        ("mkl", "blas_lapack :: library is a property that is not judged"),
        ("unknown", "no file of the index says"),
    ):
        assert word in rows[label]["reason"]
    best = said.answer["variants"][0]
    assert best["file"] == f"torch-2.99.0-{TAG}-cu130.whl" and best["url"].endswith(best["file"])
    assert "nvidia :: sm_arch :: 80_real" in best["properties"]
    text = ask(*A100, "--variants").out
    assert "torch 2.99.0 cu130: fits" in text and "unproven" in text


def test_without_a_gpu_only_the_one_without_properties_fits(ask: Ask, world: World) -> None:
    shelve(world, tuple(LABELS), json.dumps(FILE))
    rows = ask("--from", "no-gpu", *THERE, "--variants", "--json").answer["variants"]
    assert [row["label"] for row in rows if row["reason"] is None] == ["null"]


@pytest.mark.parametrize(
    "said",
    [
        None,
        "[]",
        "{",
        "[" * 99999,
        json.dumps({**FILE, "$schema": "https://x/v1.0.0.json"}),
        json.dumps({**FILE, "variants": []}),
        json.dumps({**FILE, "variants": {"cu130": {"nvidia": {"sm_arch": ["\x1b[31m"]}}}}),
        json.dumps({**FILE, "default-priorities": {"namespace": [7]}}),
    ],
)
def test_without_a_file_that_can_be_read_no_variant_fits(
    ask: Ask, world: World, said: str | None
) -> None:
    shelve(world, ("cu130", "null"), said)
    answer = ask(*A100, "--variants", "--json")
    assert answer.exit == 0 and answer.answer["torch"]
    assert all(row["reason"] for row in answer.answer["variants"])
    assert len(answer.answer["variants"]) == 2


def test_an_index_without_any_says_so_and_one_that_is_broken_blocks(ask: Ask, world: World) -> None:
    assert "none is offered" in ask(*A100, "--variants").out
    shelve(world, ("null",), json.dumps(FILE))
    world.index.faults["/whl/variant/*"] = Fault(status=503)
    assert ask(*A100, "--variants").exit == 3
    for words in (("numpy",), ("--offline",), ("--format", "uv")):
        assert ask(*A100, "--variants", *words).exit == 2


def test_a_name_with_a_label_does_not_break_the_reading_of_a_page() -> None:
    links = "".join(
        f'<a href="torch-{version}-{TAG}{label}.whl">x</a>'
        for version in ("2.9.0", "2.9.0+cu130", "2.9.0-1")
        for label in ("", "-null", "-cu130", "-x86_64_v3", "-" + "a" * 17, "-A")
    )
    page = f'<html>{links}<a href="torch-2.9.0-variants.json">x</a></html>'
    found = [
        (one.version, one.filename) for one in parse_page("http://i/torch/", "text/html", page)
    ]
    assert found == [
        (v.partition("-")[0], f"torch-{v}-{TAG}.whl") for v in ("2.9.0", "2.9.0+cu130", "2.9.0-1")
    ]


def test_install_passes_over_variants(world: World, ask: Ask, capsys: Any) -> None:
    venv = world.venv()
    wheel = world.add_torch("cpu", requires=())
    shelf = world.index.root / "whl/cpu/torch"
    (shelf / wheel.name.replace(".whl", "-null.whl")).symlink_to(wheel)
    (shelf / f"torch-{TORCH}+cpu-variants.json").write_text(json.dumps(FILE))
    words = ("--python", str(venv), "--torch", TORCH, "--backend", "cpu", "--yes", "--no-verify")
    assert main(["install", "--index-root", world.index.index_root, *words]) == 0
    assert not world.index.asked_for("*-null.whl*")


def test_a_variant_is_taken_where_it_is_asked_for(
    world: World, ask: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    venv = world.venv()
    wheel = world.add_torch("cpu", requires=())
    shelf = world.index.root / "whl/variant/torch"
    shelf.mkdir(parents=True, exist_ok=True)
    (shelf / wheel.name.replace(".whl", "-null.whl")).symlink_to(wheel)
    (shelf / wheel.name.replace(".whl", "-cu140.whl")).symlink_to(wheel)
    (shelf / f"torch-{TORCH}+cpu-variants.json").write_text(json.dumps(FILE))
    words = ("--index-root", world.index.index_root, "--python", str(venv), "--yes", "--no-verify")
    assert main(["install", *words, "--variant", "absent"]) == 1
    assert "those that fit: null" in capsys.readouterr().err
    assert main(["install", *words, "--variant", "cu140"]) == 1
    assert "does not fit this machine" in capsys.readouterr().err
    assert main(["install", *words, "--variant", "null", "numpy"]) == 2
    assert "torch" not in versions_in(venv)
    assert main(["install", *words, "--variant", "null"]) == 0, capsys.readouterr().err
    assert versions_in(venv)["torch"] == f"{TORCH}+cpu"
    assert world.index.asked_for("*-null.whl*")
    assert main(["install", *words, "--undo"]) == 0
    assert "torch" not in versions_in(venv)


# --- the order, and hostile values ----------------------------------------------------------------


def ordered(labels: dict[str, Any], priorities: dict[str, Any], *gpus: Capability) -> list[str]:
    machine = Snapshot(
        driver=Driver(cuda="13.0"),
        gpus=tuple(Gpu(name="x", compute_capability=one) for one in gpus),
    )
    said = parse_variants(
        json.dumps({**FILE, "default-priorities": priorities, "variants": labels})
    )
    wheels = [
        Wheel(name="x", version="1", filename=f"x-1-py3-none-any-{label}.whl", url="")
        for label in labels
    ]
    return [row.label for row in judged(wheels, said, machine) if row.reason is None]


def test_the_order_is_that_of_the_file_then_the_higher_and_the_fuller() -> None:
    low, high = ({"nvidia": {"cuda_version_lower_bound": [v]}} for v in ("12.8", "13.0"))
    full = {"nvidia": {**high["nvidia"], "sm_arch": ["80_real"]}}
    labels = {"null": {}, "low": low, "high": high, "full": full, "alike": high}
    space = {"namespace": ["nvidia"]}
    assert ordered(labels, space, Capability(8, 0)) == ["full", "alike", "high", "low", "null"]
    first = {**space, "property": {"nvidia": {"cuda_version_lower_bound": ["12.8"]}}}
    assert ordered(labels, first, Capability(8, 0))[0] == "low"
    kernels = {**space, "feature": {"nvidia": ["sm_arch"]}}
    more = {**labels, "kernels": {"nvidia": {"sm_arch": ["80_real"]}}}
    assert ordered(more, kernels, Capability(8, 0))[:2] == ["full", "kernels"]


def test_every_visible_gpu_must_be_served() -> None:
    labels = {"both": {"nvidia": {"sm_arch": ["80_real", "90_real"]}}, "one": LABELS["hopper"]}
    assert ordered(labels, {"namespace": ["nvidia"]}, Capability(8, 6), Capability(9, 0)) == [
        "both"
    ]


@given(st.text(max_size=60), st.text(alphabet="tTorch-.0123_+cpuwhlnull/\\", max_size=40))
def test_any_name_is_a_variant_or_none(one: str, other: str) -> None:
    for name in (one, other, f"torch-1.0-py3-none-any-{other}.whl"):
        found = variant_of(name)
        assert found is None or name == f"{found[0][:-4]}-{found[1]}.whl"


KEYS = st.sampled_from([*FILE, "nvidia", "sm_arch", "namespace", "null"])
ANYTHING = st.recursive(
    st.none() | st.text(max_size=9) | st.integers(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(ANYTHING)
def test_any_file_is_read_or_refused(said: Any) -> None:
    for document in (said, {**FILE, **said} if isinstance(said, dict) else said):
        try:
            found = parse_variants(json.dumps(document))
        except ValueError:
            continue
        assert all(0 < len(label) <= 16 for label in found.labels)
