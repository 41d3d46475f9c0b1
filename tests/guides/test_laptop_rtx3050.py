"""Guide 002, a laptop with an RTX 3050: what its reader does, and what gpusetup must give back."""

from __future__ import annotations

from gpusetup.verify.answer.render import as_text
from gpusetup.verify.checks.table import on_device
from gpusetup.verify.values import Outcome, Report, Result


def test_the_gpu_is_measured_against_the_cpu_where_there_is_one() -> None:
    """002-17: standard measures how many times as fast as the CPU the GPU is."""
    on_gpu = [check.name for check in on_device("standard", "cuda:0")]
    on_cpu = [check.name for check in on_device("standard", "cpu")]
    assert "speed-over-cpu" in on_gpu
    assert "speed-over-cpu" not in on_cpu

    gpu = {"device": "cuda:0", "name": "RTX 3050", "memory_total_bytes": 4 << 30}
    facts = {"torch": "2.5.1+cu124", "cuda": "12.4", "available": True, "devices": [gpu]}
    compared = Outcome("passed", "products of 4096 x 4096", 54.2, unit="times the CPU in float32")
    report = Report("auto", False, facts, (Result("speed-over-cpu", "cuda:0", compared),))
    assert "GPU Speed: 54 times the CPU" in as_text(report)


def test_verify_of_the_cpu_says_nothing_of_a_gpu() -> None:
    """002-17: `--device cpu` has no line on a GPU's speed."""
    imported = Result("import", "host", Outcome("passed", ""))
    report = Report("cpu", False, {"devices": []}, (imported,))
    assert "times the CPU" not in as_text(report)
