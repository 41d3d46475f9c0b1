"""What users asked for beside the guides: one test, or a few, for each ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

LINUX = ("--os", "linux", "--machine", "x86_64", "--python", "3.11", "--glibc", "2.35")


# --- ask-7 and ask-10: a CUDA version that the table does not know, a nightly build ---------------


def test_the_page_that_lists_what_is_there_today_is_named(says: Any) -> None:
    """ask-7: the table's answer says how old it is and where newer builds are listed."""
    for backend, code in (("cu134", 1), ("cu199", 2)):
        said = says("resolve", "--backend", backend, *LINUX)
        assert said.code == code
        assert f"https://download.pytorch.org/whl/{backend}/torch/" in said.words


def test_the_nightly_index_for_a_gpu(says: Any) -> None:
    """ask-10: pip's command beside the release that fits; install never takes a nightly build."""
    words = ("--gpu", "GTX 1080 Ti", "--driver", "580.95.05")
    said = says("resolve", "--torch", "nightly", *LINUX, *words)
    url = "https://download.pytorch.org/whl/nightly/cu126"
    assert f"pip install --pre --upgrade torch torchvision --index-url {url}" in said.words
    said = says("install", "--torch", "nightly", "--dry-run")
    assert said.code == 2 and "gpusetup resolve --torch nightly" in said.err


# --- ask-11 and ask-12: projects with extras, scripts, tools --------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_extra_of_a_project_gets_its_source_and_they_exclude_each_other(
    folder: Path, says: Any
) -> None:
    """ask-11: the tables to paste, and the commands that pin the versions."""
    lists = 'cpu = ["torch"]\ngpu = ["torch", "torchvision"]\ndocs = ["mkdocs"]\n'
    text = f'[project]\nname = "x"\nversion = "0"\n[project.optional-dependencies]\n{lists}'
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    said = says("install", "--project", "--from", "rtx3050-laptop", "--torch", "2.5.1")
    assert said.code == 0
    for words in (
        'conflicts = [[{ extra = "cpu" }, { extra = "gpu" }]]',
        '{ index = "pytorch-cpu", extra = "cpu", marker = ',
        '{ index = "pytorch-cu124", extra = "gpu", marker = ',
        "uv add --no-sync --optional gpu torch==2.5.1 torchvision==0.20.1",
    ):
        assert words in said.out
    assert "docs" not in said.out


def test_a_script_gets_uvs_command_and_is_not_added_as_a_package(folder: Path, says: Any) -> None:
    """ask-12: PEP 723 metadata, which uv writes."""
    (folder / "train.py").write_text("import torch\n", encoding="utf-8")
    said = says("install", "--project", "train.py", "--from", "rtx3050-laptop")
    assert said.code == 0
    for words in ("uv add --script train.py torch==", "--index pytorch=https://download.pytorch"):
        assert words in said.words
    assert "uv run train.py" in said.out


@pytest.mark.parametrize("command", [("install", "--dry-run"), ("resolve",)])
def test_a_script_is_never_taken_for_a_package_of_its_name(
    command: tuple[str, ...], folder: Path, says: Any
) -> None:
    """ask-12: the way for scripts is named, and no index is asked."""
    (folder / "train.py").write_text("import torch\n", encoding="utf-8")
    said = says(*command, "train.py")
    assert said.code == 2 and "gpusetup install --project train.py" in said.err


# --- ask-16 and ask-24: a card implies its machine, and other makers ------------------------------


@pytest.mark.parametrize(
    "name", ["Jetson AGX Orin", "Jetson Orin Nano", "Jetson AGX Thor", "sm_87"]
)
def test_a_jetson_by_its_name_is_an_aarch64(name: str, says: Any) -> None:
    """ask-16: the name alone is enough, whatever this computer is."""
    shown = says("resolve", "--gpu", name).out
    assert "x86_64" not in shown and "JetPack" in shown


def test_an_orin_without_its_jetpack_is_told_of_nvidias_wheels(says: Any) -> None:
    """ask-16: as on a real one, NVIDIA's wheels are the way before JetPack 7.2."""
    said = says("resolve", "--gpu", "Jetson AGX Orin")
    assert said.code == 1 and "For an older JetPack, NVIDIA builds wheels" in said.words


def test_a_grace_superchip_is_an_aarch64_unless_something_else_is_said(says: Any) -> None:
    """ask-16: the catalog's row says on what a card is found."""
    answer = says("resolve", "--gpu", "GB200", "--driver", "580.95.05", "--json").document
    assert answer["backend"] == "cu130"
    assert "torchvision==0.29.2" in answer["commands"]["uv"][0]


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("RX 7900 XTX", "rocm7.2"),
        ("gfx1151", "rocm7.2"),
        ("MI300X", "rocm7.2"),
        ("Arc A770", "xpu"),
    ],
)
def test_a_gpu_of_amd_or_intel_gets_its_makers_build(name: str, backend: str, says: Any) -> None:
    """ask-24: never a CUDA build, and one step, since only torch's index has its Triton."""
    answer = says("resolve", "--gpu", name, *LINUX, "--json").document
    assert answer["backend"] == backend
    (pip,) = answer["commands"]["pip"]
    assert f"https://download.pytorch.org/whl/{backend}" in pip
    assert "--no-deps" not in pip
    assert not any("cu1" in word for word in pip)


@pytest.mark.parametrize("name", ["M3", "M4", "M3 Max", "apple m2 ultra", "Apple M4"])
def test_a_chip_of_apple_gets_the_wheel_for_macos(name: str, says: Any) -> None:
    """ask-24: `M3` is no GeForce MX350, and its machine is a Mac."""
    answer = says("resolve", "--gpu", name, "--json").document
    assert answer["backend"] == "cpu" and answer["index_url"].endswith("/whl/cpu")
    assert any("mps" in note for note in answer["notes"])


@pytest.mark.parametrize(
    ("words", "code", "wanted"),
    [
        (("--gpu", "M3", "--os", "linux"), 2, "is an Apple chip"),
        (("--gpu", "RX 7900 XTX", "--backend", "cu130"), 1, "is an AMD GPU"),
        (("--gpu", "RX 580"), 1, "has kernels for RX 580"),
        (("--gpu", "gfx1013"), 1, "no ROCm build of torch has kernels"),
        (("--gpu", "UHD 770"), 1, "XPU builds do not support UHD 770"),
        (("--gpu", "Instinct MI210", "--os", "windows"), 1, "no ROCm build of torch is known"),
        (("--gpu", "RTX 3090", "--backend", "rocm7.2"), 1, "no build from rocm7.2 for NVIDIA GPUs"),
    ],
)
def test_where_a_maker_has_no_build_it_is_said(
    words: tuple[str, ...], code: int, wanted: str, says: Any
) -> None:
    """ask-24: the reason, and no other maker's build in its place."""
    said = says("resolve", "--python", "3.11", *words)
    assert said.code == code and wanted in said.out + said.err
    assert "pip install" not in said.out


def test_a_backend_of_another_maker_by_its_name(says: Any) -> None:
    """ask-24: `--backend rocm6.4` chooses the newest torch that has it."""
    words = ("--backend", "rocm6.4", "--gpu", "gfx1100", *LINUX, "--json")
    answer = says("resolve", *words).document
    assert (answer["torch"], answer["backend"]) == ("2.9.1", "rocm6.4")
