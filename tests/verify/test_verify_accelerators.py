"""verify on Intel's and Apple's GPUs, with a stand-in for torch's build: order, words and limits.

The CPU computes here: nothing in this file says how a real GPU of these makers computes.
"""

from __future__ import annotations

import json

import pytest
from verifying import started, states, with_gpus

APPLE = {"name": "Apple GPU", "memory_bytes": 22906503168, "capability": [0, 0]}
ARC = {"name": "Intel(R) Arc(TM) B580 Graphics", "memory_bytes": 12168933376, "capability": [0, 0]}
PRODUCTS = ("--level", "standard", "--only", "float64", "matmul")
"""The CPU takes long for the other products that a GPU is asked for."""


@pytest.mark.parametrize(
    ("maker", "gpus", "devices"),
    [("mps", [APPLE], ["mps"]), ("xpu", [ARC, ARC], ["xpu:0", "xpu:1"])],
    ids=["mps", "xpu"],
)
def test_the_gpus_of_the_build_are_proven(
    maker: str, gpus: list[object], devices: list[str]
) -> None:
    run = with_gpus("--json", gpus=gpus, maker=maker)
    document = json.loads(run.stdout)
    assert (run.returncode, document["verdict"]) == (0, "passed"), run.stderr
    assert [row["device"] for row in document["devices"]] == devices
    for device in devices:
        assert states(document)[f"matmul@{device}"] == "passed"
        assert states(document)[f"amp@{device}"] == "passed"


def test_what_apples_backend_lacks_is_skipped_with_the_reason() -> None:
    run = with_gpus("--device", "mps", *PRODUCTS, "--json", gpus=[APPLE], maker="mps")
    rows = {row["name"]: row for row in json.loads(run.stdout)["checks"]}
    assert (run.returncode, rows["matmul"]["status"]) == (0, "passed")
    assert rows["float64"]["status"] == "skipped"
    assert "multiplies no float64 on mps" in rows["float64"]["detail"]


def test_without_a_gpu_or_without_kernels_for_it_the_next_step_is_named() -> None:
    none = with_gpus("--device", "xpu", gpus=[], maker="xpu")
    assert none.returncode == 1
    assert "torch finds no GPU from Intel" in none.stdout and "`gpusetup doctor`" in none.stdout
    unbuilt = started("--device", "xpu")
    assert unbuilt.returncode == 1
    assert "is not built for Intel's GPUs" in unbuilt.stdout
    assert "`gpusetup install --backend xpu`" in unbuilt.stdout
