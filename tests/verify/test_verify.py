"""verify as its users start it: three ways, the bad states, the machine with (stand-in) GPUs."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from verifying import FOLDER, ROOT, RTX_3050, T4, started, states, with_gpus

from gpusetup.model.codec import from_json
from gpusetup.model.documents import VerifyAnswer


def interpreters() -> list[Path]:
    """Other Pythons of this machine that verify promises to run under; they have no torch."""
    homes = sorted(Path("~/.pyenv/versions").expanduser().glob("3.*/bin/python"))
    return [path for path in homes if int(path.parts[-3].split(".")[1]) >= 8]


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("empty") / "proof"
    shutil.copytree(FOLDER, place, ignore=shutil.ignore_patterns("__pycache__"))
    return place


@pytest.mark.parametrize("way", ["module", "path", "copy"])
@pytest.mark.one_in(6)
def test_three_ways_to_start_are_one_program(way: str, copied: Path) -> None:
    command, cwd = {
        "module": ((sys.executable, "-m", "gpusetup.verify"), ROOT),
        "path": ((sys.executable, str(FOLDER)), copied.parent),
        "copy": ((sys.executable, copied.name), copied.parent),
    }[way]
    run = started("--device", "cpu", "--json", command=command, cwd=cwd)
    document = json.loads(run.stdout)
    assert (run.returncode, run.stderr, next(iter(document))) == (0, "", "schema")
    assert states(document) == {
        "import@host": "passed",
        "properties@cpu": "passed",
        "matmul@cpu": "passed",
        "amp@cpu": "passed",
    }
    assert from_json(run.stdout, VerifyAnswer, what="the answer").verdict == "passed"


@pytest.mark.parametrize("python", interpreters(), ids=lambda path: path.parts[-3])
@pytest.mark.one_in(3)
def test_any_python_from_3_8_says_that_torch_is_missing(python: Path, copied: Path) -> None:
    run = started("--json", "--expect", "torch==2.5.*", command=(str(python), str(copied)))
    document = json.loads(run.stdout)
    assert (run.returncode, run.stderr) == (1, "")
    first, *others = document["checks"]
    assert first["detail"] == f"torch is not installed for {python}"
    assert {row["status"] for row in others} == {"skipped"}


def test_the_screens_of_a_cpu() -> None:
    lines = started("--device", "cpu").stdout.splitlines()
    assert lines[:2] == ["verdict: passed", ""]
    assert lines[2].startswith("PyTorch version: 2.")
    assert lines[3:6] == ["CUDA available: False", "CPU computation test: PASSED", ""]
    auto = started()
    assert auto.returncode == 1
    assert auto.stdout.startswith("verdict: failed (cannot run: gpu on host)\n\ngpu on host: ")
    assert "\nCUDA available: False\nGPU not detected!\n" in auto.stdout
    assert "is a CPU build" in auto.stdout


def test_an_image_build_computes_nothing_and_a_skip_is_not_a_pass() -> None:
    free = started("--device", "none", "--json", "--expect", "torch>=2.0")
    strict = started("--device", "none", "--json", "--strict")
    assert (free.returncode, strict.returncode) == (0, 1)
    assert states(json.loads(free.stdout)) == {
        "import@host": "passed",
        "libraries@host": "skipped",
        "expect@host": "passed",
    }


def test_the_screen_of_the_laptop_of_the_guide() -> None:
    run = with_gpus(gpus=[RTX_3050])
    assert run.returncode == 0, run.stderr
    expected = (ROOT / "tests" / "rendered" / "verify-rtx3050.txt").read_text()
    place = run.stdout.partition("from ")[2].partition("\n")[0]
    without_figures = re.sub(r": [\d.e-]+ \(limit", ": X (limit", run.stdout)
    assert without_figures.replace(place, "PLACE") == expected


def test_every_gpu_is_proven_and_told_by_its_uuid() -> None:
    expected_of = ("--expect", "gpus>=2", "memory_gib>=3.5", "capability>=8.0")
    run = with_gpus("--json", "--only", "properties", *expected_of, gpus=[RTX_3050, T4])
    document = json.loads(run.stdout)
    assert [row["cuda_index"] for row in document["devices"]] == [0, 1]
    assert document["devices"][1]["uuid"].startswith("GPU-00000001")
    assert {"properties@cuda:0", "properties@cuda:1"} <= set(states(document))
    expected = [row for row in document["checks"] if row["name"] == "expect"]
    assert [row["status"] for row in expected] == ["passed", "passed", "failed"]
    assert expected[2]["detail"] == "capability>=8.0: found 7.5 on cuda:1"
    assert run.returncode == 1


SAID = "Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized"


@pytest.mark.parametrize(
    ("visible", "said", "detail", "hint"),
    [
        ("", None, "GPU not detected! CUDA_VISIBLE_DEVICES='' hides every GPU", "unset"),
        ("7", None, "GPU not detected! CUDA_VISIBLE_DEVICES='7' hides every GPU", "unset"),
        # The variable is innocent, and what CUDA says is passed on.
        ("0", SAID, f"RuntimeError: {SAID}", ""),
    ],
)
@pytest.mark.one_in(2)
def test_why_there_is_no_gpu_is_said(
    visible: str, said: str | None, detail: str, hint: str
) -> None:
    scene = {"init": said} if said else {}
    run = with_gpus("--json", gpus=[], environment={"CUDA_VISIBLE_DEVICES": visible}, **scene)
    row = json.loads(run.stdout)["checks"][1]
    assert run.returncode == 1 and row["detail"].endswith(detail)
    assert "request a GPU" in row["hint"] or not hint


@pytest.mark.parametrize(
    ("fault", "check", "status", "detail"),
    [
        ("abort", "matmul", "crashed", "the process died of SIGABRT"),
        ("wrong-element", "matmul", "failed", "1 of 1000 elements are wrong"),
        ("sticky", "matmul", "failed", "illegal memory access"),
        ("no-kernel", "arch", "failed", "no kernel for compute capability 8.6"),
    ],
)
@pytest.mark.one_in(6)
def test_a_sick_gpu_is_named_and_the_other_is_still_proven(
    fault: str, check: str, status: str, detail: str
) -> None:
    words = ("--json", "--only", check, "properties")
    run = with_gpus(*words, gpus=[RTX_3050, RTX_3050], faults={fault: "cuda:0"})
    document = json.loads(run.stdout)
    sick = next(r for r in document["checks"] if (r["name"], r["device"]) == (check, "cuda:0"))
    assert (run.returncode, document["verdict"], sick["status"]) == (1, "failed", status)
    assert detail in sick["detail"]
    others = {name: state for name, state in states(document).items() if name.endswith("cuda:1")}
    assert set(others.values()) == {"passed"}


def torch_of(folder: Path, body: str) -> dict[str, str]:
    """The variables under which `import torch` runs this instead."""
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(body + "\n")
    return {"PYTHONPATH": str(folder)}


@pytest.mark.parametrize("body", ["x = 1\n", "import sys\nsys.exit(3)\n"])
@pytest.mark.one_in(2)
def test_a_local_torch_py_is_named(tmp_path: Path, body: str) -> None:
    (tmp_path / "torch.py").write_text(body)
    module = (sys.executable, "-m", "gpusetup.verify")
    run = started("--json", command=module, cwd=tmp_path, environment={"PYTHONPATH": str(ROOT)})
    first = json.loads(run.stdout)["checks"][0]
    assert (run.returncode, first["status"]) == (1, "failed")
    assert str(tmp_path / "torch.py") in first["detail"]
    assert "is not PyTorch" in first["detail"]


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        ("raise OSError('libtorch_cpu.so: wrong ELF class: ELFCLASS32')", "architecture"),
        (
            "raise OSError('libc10.so: cannot open shared object file')",
            "is missing",
        ),
        ("raise ImportError('libc10.so: undefined symbol: _ZN3c10')", "two versions"),
        ("import fsspec_that_is_not_there", "needs the package"),
        ("raise SystemExit(0)", '`python -c "import torch"`'),
        ("import os; os.kill(os.getpid(), 4)", "this CPU lacks an instruction"),
    ],
)
@pytest.mark.one_in(5)
def test_a_broken_torch_is_one_line_and_the_way_out(tmp_path: Path, body: str, hint: str) -> None:
    run = started("--json", environment=torch_of(tmp_path, body))
    first = json.loads(run.stdout)["checks"][0]
    crashed = first["detail"] == "the process died of SIGILL"
    assert (run.returncode, first["status"]) == (1, "crashed" if crashed else "failed")
    assert crashed or first["detail"].startswith("import torch failed: ")
    assert hint in first["hint"]


def test_what_a_library_prints_on_stdout_does_not_spoil_the_document(tmp_path: Path) -> None:
    body = "import os\nos.write(1, b'NCCL version 2.27\\n')\nprint('{}')\nraise OSError('no')\n"
    run = started("--json", environment=torch_of(tmp_path, body))
    assert json.loads(run.stdout)["checks"][0]["detail"] == "import torch failed: OSError: no"
    assert "NCCL version" in run.stderr


def test_a_foreign_name_cannot_drive_the_terminal() -> None:
    evil = {**RTX_3050, "name": "RTX\x1b[2J\nverdict: passed"}
    run = with_gpus("--only", "properties", gpus=[evil])
    assert "\x1b" not in run.stdout
    assert run.stdout.splitlines().count("verdict: passed") == 1


def test_gpusetup_verify_passes_words_output_and_exit_code_through() -> None:
    command = (sys.executable, "-m", "gpusetup", "verify", "--python", sys.executable)
    expected = ("--expect", "torch==0.1", "capability>=8.0")
    run = started("--json", "--device", "cpu", *expected, command=command)
    document = json.loads(run.stdout)
    assert (run.returncode, document["checks"][-2]["status"]) == (1, "failed")
    assert document["checks"][-1]["detail"] == "capability>=8.0: its value is unknown"
    assert run.stderr.startswith("target: ")
