"""`%load_ext gpusetup` in a real kernel by nbclient; where notebooks run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from each_row import each
from hypothesis import given
from hypothesis import strategies as st

from gpusetup import api
from gpusetup.causes.lenders import LENDERS
from gpusetup.model.documents import ErrorAnswer, InstallAnswer
from gpusetup.notebooks import magic
from gpusetup.notebooks.magic import SIGNS, lender_of, notes

ROOT = Path(__file__).resolve().parent.parent
EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&lt;`<b>` \x1b[31m</pre></div>"

# --- a real notebook ----------------------------------------------------------------------------

RUN = """
import json, sys, nbformat
from nbclient import NotebookClient
cells = [nbformat.v4.new_code_cell(source) for source in json.load(sys.stdin)]
notebook = nbformat.v4.new_notebook(cells=cells)
NotebookClient(notebook, kernel_name="python3", timeout=300, allow_errors=True).execute()
print(json.dumps([cell.outputs for cell in notebook.cells]))
"""


def executed(folder: Path, *cells: str, **environment: str) -> list[list[dict[str, Any]]]:
    """The outputs of each cell, by a real kernel."""
    pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    known = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder), "IPYTHONDIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RUN],
        env={**known, **environment},
        cwd=folder,
        input=json.dumps(cells),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outputs: list[list[dict[str, Any]]] = json.loads(done.stdout.splitlines()[-1])
    return outputs


def shown(outputs: list[dict[str, Any]]) -> dict[str, Any]:
    """The one result of a cell, by its forms."""
    [result] = [one for one in outputs if one["output_type"] == "execute_result"]
    data: dict[str, Any] = result["data"]
    return data


def test_a_notebook_shows_answers_as_html_with_text_beside_it(tmp_path: Path) -> None:
    (tmp_path / "evil.txt").write_text(f"RuntimeError: CUDA error: out of memory {EVIL}\n")
    outputs = executed(
        tmp_path,
        "%load_ext gpusetup",
        "%gpusetup doctor --from rtx3050-laptop",
        "%gpusetup doctor --report evil.txt",
        "%gpusetup resolve --from rtx3050-laptop --torch 2.5.1",
        "%gpusetup plan --model qwen3-8b --context 32768 --gpu 'A100 80GB' --gpus 4",
        f"%gpusetup doctro {EVIL.replace(chr(39), '').replace(chr(34), '')}",
        "answer = %gpusetup doctor\nprint(answer.document.snapshot.python.executable)",
        "import sys; print([n for n in ('torch', 'IPython.core') if n in sys.modules])",
        "%gpusetup install --backend rocm6.4",
        "%reload_ext gpusetup\n%unload_ext gpusetup",
        "%gpusetup doctor",
        COLAB_GPU="0",
    )
    assert outputs[0] == []
    doctor = shown(outputs[1])
    assert "✗ torch-cpu-build" in doctor["text/html"]
    assert doctor["text/plain"].startswith("✗ torch-cpu-build: torch 2.5.1+cpu is a CPU build")
    report = shown(outputs[2])["text/html"]
    assert "out-of-memory" in report
    assert "<script" not in report
    assert "pip install" in shown(outputs[3])["text/html"]
    assert "SP=4" in shown(outputs[4])["text/html"]
    wrong = shown(outputs[5])
    assert "no command" in wrong["text/html"] and "<script" not in wrong["text/html"]
    assert wrong["text/plain"].startswith("error: gpusetup has no command")
    assert outputs[6][-1]["text"].strip() == sys.executable
    assert outputs[7][-1]["text"].strip() == "['IPython.core']"
    assert "text/html" in shown(outputs[8])
    assert outputs[9] == []
    assert "UsageError" in json.dumps(outputs[10])


@pytest.mark.slow
def test_a_notebook_shows_what_verify_proved(tmp_path: Path) -> None:
    words = "%gpusetup verify --device cpu --only matmul"
    verified = shown(executed(tmp_path, "%load_ext gpusetup", words, COLAB_GPU="0")[-1])
    assert "passed" in verified["text/html"] and "matmul on cpu" in verified["text/plain"]


@pytest.mark.slow
def test_a_lent_notebook_without_a_gpu_says_how_to_get_one(tmp_path: Path) -> None:
    cells = ("%load_ext gpusetup", "%gpusetup")
    found = shown(executed(tmp_path, *cells, KAGGLE_KERNEL_RUN_TYPE="Interactive")[-1])
    if "no-nvidia-gpu" not in found["text/plain"]:
        pytest.skip("this machine has a GPU")
    told = "Kaggle gave this notebook no GPU. Choose"
    assert told in found["text/plain"] and told in found["text/html"]
    assert "GPU T4 x2" in found["text/plain"] and "GPU T4 x2" in found["text/html"]


@given(st.text(alphabet=st.sampled_from("<>&\"'`/=\\ \n\x00\u2028scriptonerrorsrc"), max_size=60))
def test_no_text_at_all_becomes_markup(text: str) -> None:
    page = magic.Answer(None, f"{text}{EVIL}")._repr_html_()
    assert re.findall(r"<[^>]*>", page) == ['<pre style="white-space:pre-wrap">', "</pre>"]
    assert "\x1b" not in page and "\x00" not in page


# --- where it runs ------------------------------------------------------------------------------


def test_a_place_is_told_by_what_its_source_says() -> None:
    assert {lender_of({sign}) for sign in SIGNS} == {LENDERS[name] for name in SIGNS.values()}
    assert lender_of(SIGNS) == LENDERS["Kaggle"] and lender_of({"COLAB"}) is None


COLAB = LENDERS["Google Colab"]


def test_a_kernel_that_has_another_torch_loaded_is_to_be_restarted() -> None:
    values: dict[str, Any] = {"target": "/x", "before": {}, "steps": ()}
    installed = InstallAnswer(state="installed", after={"torch": "2.5.1+cu124"}, **values)
    [told] = notes(installed, COLAB, {"torch": "2.4.0+cpu"})
    assert told == (
        "This kernel still has torch 2.4.0+cpu loaded, installed is 2.5.1+cu124. "
        "Restart it: Runtime, Restart session"
    )
    assert list(notes(installed, COLAB, {"torch": "2.5.1+cu124"})) == []
    [told] = notes(api.diagnose("healthy"), None, {"torch": "1.0"})
    assert "Kernel, Restart Kernel" in told
    planned = InstallAnswer(state="planned", after={}, **values)
    assert "`%gpusetup install --yes`" in next(notes(planned, None, {}))


def test_a_lent_notebook_without_a_gpu_hears_how_to_get_one() -> None:
    [told] = notes(api.diagnose("no-gpu"), COLAB, {})
    assert told.startswith("Google Colab gave this notebook no GPU. Choose a runtime with a GPU")


# --- the line -----------------------------------------------------------------------------------

KERNEL = f"--python={sys.executable}"
LINES = {
    "": ["doctor", KERNEL],
    "doctor": ["doctor", KERNEL],
    "doctor --from healthy": ["doctor", "--from", "healthy"],
    "doctor --report x": ["doctor", "--report", "x"],
    "verify --python /x": ["verify", "--python", "/x"],
    "install vllm": ["install", "vllm", KERNEL, "--dry-run"],
    "install --yes": ["install", "--yes", KERNEL],
    "install --undo": ["install", "--undo", KERNEL],
    "plan --model qwen3-8b": ["plan", "--model", "qwen3-8b"],
    "resolve 'torch==2.5'": ["resolve", "torch==2.5"],
}


@each("line", list(LINES))
def test_a_line_is_about_this_kernel_and_installs_nothing_unasked(line: str) -> None:
    assert magic.words_of(line) == LINES[line]


@pytest.mark.parametrize("line", ["nope", "resolve 'x", "mcp", "fleet check", "doctor --frm x"])
def test_a_wrong_line_is_an_answer_without_a_traceback(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = magic.asked(line)
    assert found is not None and isinstance(found.document, ErrorAnswer)
    assert repr(found).startswith("error: ")
    assert capsys.readouterr() == ("", "")


def test_a_fault_of_our_own_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(magic, "read_words", lambda *_: 1 / 0)
    found = magic.asked("doctor")
    assert "gpusetup itself failed: ZeroDivisionError" in repr(found)


def test_help_is_printed_and_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert magic.asked("doctor --help") is None
    assert "usage: gpusetup doctor" in capsys.readouterr().out


def test_what_a_cell_cannot_show_is_said(tmp_path: Path) -> None:
    place = tmp_path / "answer.txt"
    found = magic.asked(f"doctor --from rtx3050-laptop --output {place}")
    assert f"The answer is in {place}" in repr(found)
    assert found is not None and f"The answer is in {place}" in found._repr_html_()
    assert "torch-cpu-build" in place.read_text(encoding="utf-8")
