"""GPUs by name, as people and programs write them."""

from __future__ import annotations

import pytest
from each_row import each

from gpusetup.catalog.file import load_catalog
from gpusetup.catalog.gpus import gpu_described, one_capability, rows_named

GPUS = load_catalog().gpus


@each(
    "text, name",
    [
        ("NVIDIA A100-SXM4-80GB", "A100 SXM4 80 GB"),
        ("L4", "L4"),
        ("gtx1080ti", "GeForce GTX 1080 Ti"),
        ("3080Ti", "GeForce RTX 3080 Ti"),
        ("RTX 3080 Max-Q", "GeForce RTX 3080 Mobile"),
        ("rtxa6000", "RTX A6000"),
        ("Quadro RTX 6000", "Quadro RTX 6000"),
    ],
)
def test_a_name_is_that_gpu(text: str, name: str) -> None:
    found = [row.name for row in rows_named(text, GPUS)]
    assert name in found and (text == "3080Ti" or found == [name])


@pytest.mark.parametrize("text", ["sm_86", "8.6", "compute_86", "SM86", "cc8.6", "sm 8.6"])
def test_a_capability_always_works(text: str) -> None:
    gpu = gpu_described(text, GPUS)
    assert (gpu.name, str(gpu.compute_capability)) == ("sm_86", "8.6")


def test_every_name_that_nvidia_smi_prints_has_one_capability() -> None:
    for row in GPUS:
        for name in (*row.smi_names, row.name):
            assert one_capability(name, rows_named(name, GPUS)) == row.capability, name
