"""What users asked for beside the guides: one test, or a few, for each ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from index_server import Fault, IndexServer, build_wheel, index_server

LINUX = ("--os", "linux", "--machine", "x86_64", "--python", "3.11", "--glibc", "2.35")
GFX1151 = ("--gpu", "gfx1151")
RTX_4090 = ("--gpu", "RTX 4090", "--driver", "615.71.09")
CU134 = ("resolve", "--backend", "cu134", *LINUX, *RTX_4090)


def listed(index: IndexServer, folder: Path, backend: str, *versions: str) -> None:
    """Wheels of torch on the page of a backend."""
    folder.mkdir(exist_ok=True)
    for version in versions:
        wheel = build_wheel(folder, "torch", version, tag="cp311-cp311-manylinux_2_28_x86_64")
        index.add(f"whl/{backend}", wheel)


# --- ask-7: a CUDA version that the table does not know -------------------------------------------


def test_the_index_is_asked_for_a_cuda_that_the_table_lacks(tmp_path: Path, says: Any) -> None:
    """ask-7: the answer of the index is marked, and its host is named before it is asked."""
    with index_server(tmp_path / "served") as index:
        listed(index, tmp_path / "w", "cu134", "2.16.0+cu134", "2.17.0.dev20261101+cu134")
        words = (*CU134, "--index", index.index_root, "--json")
        said = says(*words, "--refresh")
        assert said.code == 0
        assert f"Asking {index.index_root}/cu134/torch/" in said.err
        answer = said.document
        assert (answer["torch"], answer["backend"], answer["live"]) == ("2.16.0", "cu134", True)
        assert answer["asked_index"] == f"{index.index_root}/cu134/torch/"
        assert answer["index_url"] == f"{index.index_root}/cu134"
        assert any("was listed by 127.0.0.1" in note for note in answer["notes"])
        index.asked.clear()
        assert says(*words).code == 1 and index.asked == []


def test_without_being_asked_the_way_to_the_index_is_named(says: Any) -> None:
    """ask-7: the table's answer says how old it is and how the index is asked."""
    for backend, code in (("cu134", 1), ("cu199", 2)):
        said = says("resolve", "--backend", backend, *LINUX)
        assert said.code == code
        assert f"gpusetup resolve --backend {backend} --refresh" in said.words


@pytest.mark.parametrize(
    ("gpu", "backend", "live"), [(RTX_4090, "cu130", False), (GFX1151, "rocm7.14", True)]
)
def test_a_known_build_is_the_tables_and_an_unknown_one_of_rocm_is_found_too(
    gpu: tuple[str, ...], backend: str, live: bool, tmp_path: Path, says: Any
) -> None:
    """ask-7 and ask-24: for a torch whose CPU build the table knows."""
    with index_server(tmp_path / "served") as index:
        listed(index, tmp_path / "w", backend, f"2.15.0+{backend}")
        words = ("--backend", backend, *LINUX, *gpu, "--index", index.index_root)
        answer = says("resolve", *words, "--refresh", "--json").document
    assert (answer["torch"], answer["live"]) == ("2.15.0", live)
    assert live or any("was queried just now. It lists nothing" in n for n in answer["notes"])


@pytest.mark.parametrize(
    ("fault", "code", "wanted"),
    [
        (Fault(status=404), 1, "has no builds for cu134"),
        (Fault(status=500), 3, "answered 500"),
        (Fault(status=200, body=b"<html>hotel wifi</html>"), 3, "lists no wheel"),
        (Fault(status=200, body=b'<a href="x.whl">' * 9), 3, None),
        (Fault(status=200, body=b"<a " + b"h" * 4_000_000), 3, "lists no wheel"),
        (Fault(status=200, body=b"<a href=" * 1_000_000), 3, "lists no wheel"),
        (
            Fault(status=200, body=b'<a href="torch-9.9.9%2Bcu134;id-cp311-cp311-win_amd64.whl">'),
            1,
            None,
        ),
        (
            Fault(status=200, body=b'<a href="torch-1e9.whl"><a href="numpy-3-py3-none-any.whl">'),
            1,
            None,
        ),
        (Fault(status=200, body=b"\xff\xfe\x00" * 999), 3, "lists no wheel"),
    ],
    ids=lambda value: None,
)
def test_what_a_hostile_index_answers_is_bounded(
    fault: Fault, code: int, wanted: str | None, tmp_path: Path, says: Any
) -> None:
    """ask-7: no page ends in a crash, and nothing of it goes into a command."""
    with index_server(tmp_path / "served") as index:
        index.faults["/whl/cu134/torch/"] = fault
        said = says(*CU134, "--index", index.index_root, "--refresh")
    assert said.code in ((code,) if wanted else (1, 3))
    assert "Traceback" not in said.err and ";id" not in said.out
    assert wanted is None or wanted in said.err


@pytest.mark.parametrize(
    ("limit", "value", "fault", "wanted"),
    [
        ("MOST_BYTES", 1 << 20, Fault(status=200, body=b" " * (2 << 20)), "is larger than 1 MiB"),
        ("WHOLE_SECONDS", 0.2, Fault(status=200, body=b" " * 700_000, drip_seconds=0.1),
         "was not read within 0.2 s"),
    ],
)  # fmt: skip
def test_a_page_that_is_too_large_or_too_slow_is_not_read(
    limit: str,
    value: float,
    fault: Fault,
    wanted: str,
    tmp_path: Path,
    says: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ask-7: size and time are bounded."""
    monkeypatch.setattr(f"gpusetup.uv.pages.{limit}", value)
    with index_server(tmp_path / "served") as index:
        index.faults["/whl/cu134/torch/"] = fault
        said = says(*CU134, "--index", index.index_root, "--refresh")
    assert said.code == 3 and wanted in said.err


def test_an_index_out_of_reach_is_said_in_a_few_words(says: Any) -> None:
    """ask-7: exit 3, with the way on without the index."""
    said = says(*CU134, "--index", "http://127.0.0.1:9/whl", "--refresh")
    assert said.code == 3
    assert "127.0.0.1 refused the connection" in said.err
    assert "without `--refresh` gpusetup answers from its table" in said.err


@pytest.mark.parametrize("backend", ["../x", "cu134/../../y", "no such"])
def test_no_word_that_is_no_backend_is_asked_of_an_index(backend: str, says: Any) -> None:
    """ask-7: the address is made of a label only."""
    said = says("resolve", f"--backend={backend}", "--refresh", *LINUX)
    assert said.code == 2 and "Asking" not in said.err


# --- ask-10: a nightly build ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "backend"),
    [
        (("--gpu", "RTX 4090", "--driver", "580.95.05"), "cu130"),
        (("--gpu", "GTX 1080 Ti", "--driver", "580.95.05"), "cu126"),
        (("--gpu", "RTX 4090", "--driver", "580.95.05", "--backend", "cu126"), "cu126"),
        (("--gpu", "RTX 4090", "--driver", "615.71.09", "--backend", "cu134"), "cu134"),
        (("--backend", "cpu"), "cpu"),
    ],
)
def test_the_nightly_index_for_a_gpu(words: tuple[str, ...], backend: str, says: Any) -> None:
    """ask-10: index and commands of uv and pip, and what a nightly build means."""
    answer = says("resolve", "--torch", "nightly", *LINUX, *words, "--json").document
    url = f"https://download.pytorch.org/whl/nightly/{backend}"
    assert (answer["torch"], answer["index_url"]) == ("nightly", url)
    uv, pip = (" ".join(answer["commands"][name][0]) for name in ("uv", "pip"))
    packages = "--upgrade-package torch --upgrade-package torchvision"
    assert f"--prerelease=allow {packages} --index {url}" in uv
    assert pip.endswith(f"-m pip install --pre --upgrade --index-url {url} torch torchvision")
    assert any("without the tests of a release" in note for note in answer["notes"])


def test_no_nightly_build_for_a_driver_that_is_too_old(says: Any) -> None:
    """ask-10: exit 1 with the reason; install never takes one."""
    words = ("--gpu", "RTX 4090", "--driver", "470.256.02")
    said = says("resolve", "--torch", "nightly", *LINUX, *words)
    assert said.code == 1 and "needs NVIDIA driver" in said.err
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


def test_a_script_gets_the_lines_of_its_block_and_is_not_added_as_a_package(
    folder: Path, says: Any
) -> None:
    """ask-12: PEP 723 metadata."""
    text = '# /// script\n# dependencies = ["torch"]\n# ///\nimport torch\n'
    (folder / "train.py").write_text(text, encoding="utf-8")
    said = says("install", "--project", "train.py", "--from", "rtx3050-laptop")
    assert said.code == 0
    for words in (
        '# [[tool.uv.index]]\n# name = "pytorch"\n# url = "https://download.pytorch',
        "# [tool.uv.sources]\n# torch = [{ index = ",
        "uv add --script train.py torch==",
        "uv run train.py",
    ):
        assert words in said.out


@pytest.mark.parametrize("command", [("install", "--dry-run"), ("resolve",)])
def test_a_script_is_never_taken_for_a_package_of_its_name(
    command: tuple[str, ...], folder: Path, says: Any
) -> None:
    """ask-12: the way for scripts is named, and no index is asked."""
    (folder / "train.py").write_text("import torch\n", encoding="utf-8")
    said = says(*command, "train.py")
    assert said.code == 2 and "gpusetup install --project train.py" in said.err


def test_a_tool_of_uv_gets_torchs_index(says: Any) -> None:
    """ask-12: `uv tool install` with the build that fits."""
    words = ("--installer", "uv-tool", "--offline", *LINUX, "--gpu", "T4", "--driver", "580.95.05")
    said = says("resolve", "whisperx", *words)
    install = "uv tool install --torch-backend cu130 --with torch==2.15.0 whisperx"
    assert said.code == 0 and install in said.out
    said = says("resolve", *words)
    assert said.code == 2 and "needs the tool's package" in said.err


# --- ask-16 and ask-24: a card implies its machine, and other makers ------------------------------


@pytest.mark.parametrize(
    "name", ["Jetson AGX Orin", "Jetson Orin Nano", "Jetson AGX Thor", "sm_87"]
)
def test_a_jetson_by_its_name_is_an_aarch64(name: str, says: Any) -> None:
    """ask-16: the name alone is enough, whatever this computer is."""
    shown = says("resolve", "--gpu", name).out
    assert "x86_64" not in shown and "JetPack" in shown


def test_an_orin_without_its_jetpack_gets_the_wheels_of_each(says: Any) -> None:
    """ask-16: as on a real one, NVIDIA's wheels are the way before JetPack 7.2."""
    said = says("resolve", "--gpu", "Jetson AGX Orin")
    assert said.code == 1 and "JetPack 6: https://developer.download.nvidia.com/" in said.out


def test_a_grace_superchip_is_an_aarch64_unless_something_else_is_said(says: Any) -> None:
    """ask-16: the catalog's row says on what a card is found."""
    answer = says("resolve", "--gpu", "GB200", "--driver", "580.95.05", "--json").document
    assert answer["backend"] == "cu130"
    assert "torchvision==0.29.2" in answer["commands"]["uv"][0]


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("RX 7900 XTX", "rocm7.2"),
        ("AMD Radeon RX 9070 XT", "rocm7.2"),
        ("gfx1151", "rocm7.2"),
        ("Radeon 8060S", "rocm7.2"),
        ("MI300X", "rocm7.2"),
        ("Arc A770", "xpu"),
        ("Intel Arc B580", "xpu"),
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


@pytest.mark.parametrize("name", ["M3", "M3 Max", "apple m2 ultra", "Apple M4"])
def test_a_chip_of_apple_gets_the_wheel_for_macos(name: str, says: Any) -> None:
    """ask-24: `M3` is no GeForce MX350, and its machine is a Mac."""
    answer = says("resolve", "--gpu", name, "--json").document
    assert answer["backend"] == "cpu" and answer["index_url"].endswith("/whl/cpu")
    assert any("mps" in note for note in answer["notes"])


@pytest.mark.parametrize(
    ("words", "code", "wanted"),
    [
        (("--gpu", "M4"), 2, "say `Apple M4` or `Tesla M4`"),
        (("--gpu", "M3", "--os", "linux"), 2, "is a chip of Apple"),
        (("--gpu", "RX 7900 XTX", "--backend", "cu130"), 1, "is AMD's"),
        (("--gpu", "RX 7900 XTX", "--gpu", "RTX 3090"), 1, "two vendors"),
        (("--gpu", "RX 580"), 1, "ROCm no longer supports Polaris"),
        (("--gpu", "gfx1013"), 1, "no ROCm build of torch has kernels"),
        (("--gpu", "UHD 770"), 1, "not among the GPUs of torch's XPU builds"),
        (("--gpu", "Instinct MI210", "--os", "windows"), 1, "AMD's own index lists none"),
        (("--gpu", "RTX 3090", "--backend", "rocm7.2"), 1, "no build for NVIDIA GPUs"),
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


def test_wheel_variants_are_named_where_the_choice_is_explained(says: Any) -> None:
    """ask-37: what they are for this machine, and what to do until they are there."""
    words = ("resolve", *LINUX, "--gpu", "T4", "--driver", "580.95.05")
    shown = says(*words, "--explain").words
    assert "wheel variants (PEP 817 and PEP 825, drafts in 2026)" in shown
    assert "name the index as above" in shown
    assert "variants" not in says(*words).out
