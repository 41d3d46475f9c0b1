"""The RTX 3050 laptop: Windows' Python, pip, uv and torch under Wine, with a stand-in driver.

What Wine is not, a kernel with NVIDIA's driver, WMI, PowerShell or an antivirus, is not seen here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from scripts_loaded import script

windows, story = script("windows"), script("windows_story")
pytestmark = [
    pytest.mark.windows,
    pytest.mark.skipif(bool(windows.reason_to_skip()), reason=str(windows.reason_to_skip())),
]


@pytest.fixture(scope="module")
def told() -> Iterator[Any]:
    """The laptop after its story, and the story."""
    with story.laptop(windows.cache_folder()) as laptop:
        yield laptop, list(story.story(laptop))


@pytest.fixture
def laptop(told: Any) -> Any:
    return told[0]


def test_the_story_of_the_rtx_3050_laptop(told: Any) -> None:
    steps = told[1]
    said = [f"{step.typed} -> {step.ended.exit}\n{step.ended.out}" for step in steps]
    *made, complaint, plan, installed, doctor, verify, undone, again = said
    assert [step.ended.exit for step in steps] == [0, 0, 0, 1, 0, 0, 0, 0, 0, 1], "\n".join(said)
    assert len(made) == 3
    assert "✗ torch-cpu-build: torch 2.5.1+cpu" in complaint
    assert "NVIDIA GeForce RTX 3050 Laptop GPU  (nvml" in complaint
    assert "581.29, CUDA 13.0" in complaint
    assert "Install torch 2.5.1 from cu124" in complaint
    assert "2.5.1+cu124" in plan
    assert "✓ Installed: C:\\project\\.venv has torch 2.5.1+cu124" in installed
    assert "✓ tested: 7 checks passed" in installed
    assert "✓ ok: torch 2.5.1+cu124 can use NVIDIA GeForce RTX 3050 Laptop GPU" in doctor
    assert "GPU computation test: PASSED" in verify
    assert "Undone: C:\\project\\.venv has torch 2.5.1+cpu" in undone
    assert "✗ torch-cpu-build: torch 2.5.1+cpu" in again


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["moving", "verifying"])
def test_a_kill_is_ended_by_the_same_command(laptop: Any, phase: str) -> None:
    """Everything of the prefix is killed at once, as when the power fails."""
    steps = list(story.killed(laptop, phase))
    said = "\n".join(f"{step.typed} -> {step.ended.exit}\n{step.ended.out}" for step in steps)
    killed, doctor, retried, undone = steps
    assert [step.ended.exit for step in steps] == [-9, 1, 0, 0], said
    assert "install-unfinished" in doctor.ended.out
    assert "was interrupted" in retried.ended.out.splitlines()[0]
    assert "✓ Installed: C:\\project\\.venv has torch 2.5.1+cu124" in retried.ended.out
    assert "Undone: C:\\project\\.venv has torch 2.5.1+cpu" in undone.ended.out
    assert killed.ended.out == ""
