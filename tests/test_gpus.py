"""GPUs by name, as people and programs write them."""

from __future__ import annotations

import pytest
from each_row import each
from hypothesis import given
from hypothesis import strategies as st

from gpusetup.catalog.file import load_catalog
from gpusetup.catalog.gpus import gpu_described, one_capability, one_memory, rows_named, tokens
from gpusetup.errors import UsageError
from gpusetup.model.units import GIB

GPUS = load_catalog().gpus


def named(text: str) -> list[str]:
    return [row.name for row in rows_named(text, CATALOG.gpus)]


SPELLINGS = {
    "A100 SXM4 80 GB": (
        *("NVIDIA A100-SXM4-80GB", "a100 sxm4 80 GB", "A100 SXM4 80GB", "A100-SXM4-80GiB"),
    ),
    "Tesla T4": ("T4", "Tesla T4", "nvidia tesla t4", "NVIDIA T4"),
    "L4": ("L4",),
    "GeForce GTX 1080 Ti": ("GTX 1080 Ti", "gtx1080ti"),
    "RTX A6000": ("RTX A6000", "rtxa6000", "A6000", "nvidia rtx a6000"),
    "GeForce RTX 3080 Mobile": ("RTX 3080 Laptop GPU", "rtx 3080 mobile", "RTX 3080 Max-Q"),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_of_a_name_names_that_gpu_alone(name: str) -> None:
    assert {text: named(text) for text in SPELLINGS[name]} == {
        text: [name] for text in SPELLINGS[name]
    }


def test_a_size_tells_two_gpus_apart_and_without_it_both_are_meant() -> None:
    assert one_memory(rows_named("A100 80GB", GPUS)) == 80 * GIB
    assert one_memory(rows_named("A100", GPUS)) is None
    assert str(one_capability("A100", rows_named("A100", GPUS))) == "8.0"


@each(
    "text, said",
    [
        ("RTX 6000", "Quadro RTX 6000 (7.5)"),
        ("RTX 3095", "No GPU is called 'RTX 3095'"),
        ("NVIDIA GeForce", "No GPU is called"),
        ("", "No GPU is called"),
        ("87654", "No GPU is called"),
    ],
)
def test_what_names_no_one_gpu_is_refused_with_what_is_near(text: str, said: str) -> None:
    with pytest.raises(UsageError) as told:
        gpu_described(text, GPUS)
    assert said in told.value.message and told.value.hint


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="No GPU is called 'RTX 3095'") as told:
        rows_named("RTX 3095", CATALOG.gpus)
    assert told.value.exit_code == 2
    assert "GeForce RTX 3090" in (told.value.hint or "")


@pytest.mark.parametrize("text", ["", "   ", "GPU", "NVIDIA", "NVIDIA GeForce", "\x1b[31m", "🎮"])
def test_a_text_that_names_nothing_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        rows_named(text, CATALOG.gpus)


@pytest.mark.parametrize(
    ("text", "row"),
    [("rtx4090", "GeForce RTX 4090"), ("3080Ti", "GeForce RTX 3080 Ti"), ("gtx1080ti", None)],
)
def test_a_name_without_blanks_is_that_gpu(text: str, row: str | None) -> None:
    row = row or "GeForce GTX 1080 Ti"
    (expected,) = {r.capability for r in CATALOG.gpus if r.name == row}
    assert gpu_described(text, CATALOG.gpus).compute_capability == expected
    assert row in named(text)


def test_digits_that_a_gpu_is_called_by_are_its_name() -> None:
    assert gpu_described("4090", CATALOG.gpus).name != "sm_4090"
    with pytest.raises(UsageError):
        gpu_described("87654", CATALOG.gpus)


@pytest.mark.parametrize(
    "text",
    ["sm_86", "SM_86", "8.6", "compute_86", "sm86", "SM86", "86", "cc8.6", "sm 8.6", "sm-86"],
)
def test_a_capability_always_works(text: str) -> None:
    gpu = gpu_described(text, GPUS)
    assert (gpu.name, str(gpu.compute_capability)) == ("sm_86", "8.6")


def test_every_name_that_nvidia_smi_prints_has_one_capability() -> None:
    for row in GPUS:
        for name in (*row.smi_names, row.name):
            assert one_capability(name, rows_named(name, GPUS)) == row.capability, name


@given(st.text(max_size=40))
def test_any_text_gives_gpus_or_a_usage_error(text: str) -> None:
    try:
        rows = rows_named(text, GPUS)
    except UsageError as problem:
        assert problem.hint
    else:
        words = tokens(text) - {"geforce", "tesla", "quadro"}
        assert all(any(words <= tokens(n) for n in (*r.smi_names, r.name)) for r in rows)
