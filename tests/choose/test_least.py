"""The least change: what `install` would do to the torch that is there, and never does unasked."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from each_row import each
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpusetup.cli import main

Said = pytest.CaptureFixture[str]
GPU = {"name": "NVIDIA GeForce RTX 3050", "compute_capability": "8.6", "uuid": "GPU-1"}
OLD_GPU = {"name": "Tesla T4", "compute_capability": "7.5", "uuid": "GPU-1"}
SITE = "/env/lib/python3.11/site-packages"
BASE: dict[str, Any] = {
    "schema": "gpusetup.snapshot/1",
    "os": {"family": "linux", "machine": "x86_64", "libc": "glibc 2.35"},
    "python": {"version": "3.11.9", "executable": "/env/bin/python", "prefix": "/env"},
    "driver": {"version": "581.29", "cuda": "13.0"},
    "gpus": [GPU],
}
NONE: dict[str, Any] = {"driver": {}, "gpus": [], "pci_devices": []}
AMD = {**NONE, "pci_devices": [{"vendor": "amd"}]}
T4 = {"gpus": [OLD_GPU], "driver": {"version": "470.256.02", "cuda": "11.4"}}


def planned(
    capsys: Said, torch: str, host: dict[str, Any], words: str, folder: Path, *more: dict[str, Any]
) -> tuple[int, str, str]:
    """The exit code, the torch afterwards, and all that is said."""
    label = torch.partition("+")[2].replace("mine", "") or None
    there = {"installed": True, "version": torch, "backend": label, "location": SITE}
    own = {"name": "torch", "version": torch, "location": SITE}
    file = folder / "machine.json"
    file.write_text(json.dumps({**BASE, "torch": there, "packages": [own, *more], **host}))
    capsys.readouterr()
    code = main(["install", "--dry-run", "--json", "--from", str(file), *shlex.split(words)])
    said = capsys.readouterr()
    answer = json.loads(said.out)
    return code, answer.get("after", {}).get("torch", ""), said.out + said.err


@each(
    "torch, host, words, code, after",
    [
        ("2.5.1+cpu", {}, "", 0, "2.5.1+cu124"),
        ("2.5.1+cu118", {}, "", 0, "2.5.1+cu118"),
        ("2.15.0+cu130", {}, "", 0, "2.15.0+cu130"),
        ("2.5.1+cu124", {}, "--upgrade", 0, "2.15.0+cu130"),
        ("2.15.0+cu130", T4, "", 0, "2.7.1+cu118"),
        ("2.6.0+cu124", {}, "--torch '>=2.7'", 0, "2.7.0+cu128"),
        ("2.6.0+cu124", {}, "--backend cpu", 0, "2.6.0+cpu"),
        ("2.5.1", NONE, "--upgrade", 1, ""),
        # never from one maker's GPUs to another's, nor to the CPU
        *(
            (f"2.9.1+{label}", NONE, words, 1, "")
            for label in ("cu130", "rocm6.4", "xpu")
            for words in ("", "--upgrade")
        ),
        *((f"2.9.1+{one}", {}, "", 1, "") for one in ("rocm6.4", "xpu")),
        ("2.9.1+rocm6.4", AMD, "--upgrade", 0, "2.9.1+rocm6.4"),
    ],
)
def test_what_becomes_of_a_torch(
    torch: str,
    host: dict[str, Any],
    words: str,
    code: int,
    after: str,
    capsys: Said,
    tmp_path: Path,
) -> None:
    assert planned(capsys, torch, host, words, tmp_path)[:2] == (code, after)


def test_an_environment_without_torch_gets_the_newest(capsys: Said, tmp_path: Path) -> None:
    empty = {"torch": {"installed": False}, "packages": []}
    assert planned(capsys, "", empty, "", tmp_path)[:2] == (0, "2.15.0+cu130")


XFORMERS = {"name": "xformers", "version": "0.0.28.post3", "requires": ["torch==2.5.1"]}
VISION = {"name": "torchvision", "version": "0.20.1+cpu", "requires": ["torch==2.5.1"]}
ELSEWHERE = {
    "name": "a",
    "version": "1",
    "requires": ["torch==2.5.1; sys_platform == 'win32'", "torch>=2; ???"],
}
WIDE = {"name": "b", "version": "1", "requires": ["torch>=2.4"]}


def test_what_pins_torch_moves_with_it_and_markers_and_ranges_are_read(
    capsys: Said, tmp_path: Path
) -> None:
    there = (XFORMERS, VISION, ELSEWHERE, WIDE)
    same = planned(capsys, "2.5.1+cpu", {}, "", tmp_path, *there)[2]
    assert "torchvision==0.20.1+cu124" in same and "xformers" not in same
    newest = json.loads(planned(capsys, "2.5.1+cpu", {}, "--upgrade", tmp_path, *there)[2])
    *_, last = newest["steps"]
    assert last["argv"][-1] == "xformers" and not {"a", "b"} & {*last["argv"]}


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    torch=st.sampled_from(("1.13.1", "2.2.2", "2.5.1", "2.7.0", "2.9.1", "2.13.0", "2.15.0")),
    label=st.sampled_from(("cpu", "cu118", "cu121", "cu126", "cu130", "rocm6.4", "xpu")),
    host=st.sampled_from(({}, NONE, T4, AMD)),
    words=st.sampled_from(("", "--upgrade", "--torch '>=2.4'", "--torch 2.7")),
)
def test_it_never_leaves_its_maker_nor_goes_back_unasked_and_a_second_run_changes_nothing(
    capsys: Said,
    tmp_path: Path,
    torch: str,
    label: str,
    host: dict[str, Any],
    words: str,
) -> None:
    code, after, _ = planned(capsys, f"{torch}+{label}", host, words, tmp_path)
    if code:
        assert code == 1
        return
    maker = {"cpu": "cpu", "rocm6.4": "rocm", "xpu": "xpu"}.get(label, "cu")
    assert maker == "cpu" or f"+{maker}" in after
    assert planned(capsys, after, host, words, tmp_path)[:2] == (0, after)
