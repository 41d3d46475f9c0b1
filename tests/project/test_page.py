"""The page of `web/`: its answers are the command line's, in Python alone; it lets nothing out."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import page_answers
import pytest
from each_row import each
from machines_named import machine_named
from scripts_loaded import script

from gpusetup.cli import main
from gpusetup.model.frozen import replace
from gpusetup.model.hidden_marks import HIDDEN
from gpusetup.model.machine import Event
from gpusetup.probe.snapshot_files import dump_snapshot, parse_snapshot
from gpusetup.redaction import redact

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "web"
REPORT = """RuntimeError: CUDA error: no kernel image is available for execution on the device
Nvidia driver version: 570.133.07
GPU models and configuration: GPU 0: NVIDIA GeForce RTX 5070 Ti
PyTorch version: 2.6.0+cu124 in /home/somebody/venv
"""


build_page = script("build_page")


@pytest.fixture(autouse=True)
def _nothing_asked_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPUSETUP_CACHE", str(tmp_path))


def printed(*words: str) -> str:
    out = io.StringIO(newline="")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        main(words)
    return out.getvalue()


def asked(*question: object, raw: bytes = b"") -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(page_answers.answer(json.dumps(question), raw))
    return answer


# --- its answers ----------------------------------------------------------------------------------


def test_a_report_gets_what_the_command_line_says(tmp_path: Path) -> None:
    file = tmp_path / "report.txt"
    file.write_text(REPORT, encoding="utf-8")
    answer = asked("report", raw=file.read_bytes())
    assert answer["json"] == printed("doctor", "--report", str(file), "--json")
    assert answer["text"] == printed("doctor", "--report", str(file))


def test_a_described_machine_gets_the_build_and_the_commands() -> None:
    fields = {"gpu": "RTX 3050", "driver": "581.29", "os": "windows", "python": "3.11"}
    answer = asked("resolve", fields)
    assert json.loads(answer["json"])["torch"]
    titles = [way["title"] for way in answer["ways"]]
    assert titles == ["uv", "pip", "conda"]
    assert all(way["text"].strip() for way in answer["ways"])


def test_packages_are_answered_by_the_table_without_asking_anybody() -> None:
    fields = {
        "gpu": "A100 80GB",
        "driver": "570.172.08",
        "os": "linux",
        "machine": "x86_64",
        "packages": "vllm, bitsandbytes",
    }
    told = json.loads(asked("resolve", fields)["json"])
    assert [p["name"] for p in told["packages"] if p["asked"]] == ["bitsandbytes", "vllm"]
    assert any("own table of" in note for note in told["notes"])


@each(
    "fields, said",
    [
        ({"gpu": "RTX 9999", "os": "linux"}, "RTX 9999"),
        ({"os": "linux", "driver": "x"}, "driver"),
        ({"os": "linux", "machine": "x86_64", "packages": "vllm;rm -rf"}, "vllm"),
    ],
)
def test_what_is_no_machine_is_refused_in_words(fields: dict[str, str], said: str) -> None:
    answer = asked("resolve", fields)
    told = json.loads(answer["json"])
    assert told["schema"] == "gpusetup.error/1" and said in told["message"]
    assert answer["ways"] == []


# --- a link ---------------------------------------------------------------------------------------


@each("name", ["rtx3050-laptop", "h100-no-fabric-manager", "mixed-gpus", "wsl2"])
def test_a_link_carries_the_redacted_machine(name: str) -> None:
    shared = redact(machine_named(name))
    fragment = page_answers.packed(dump_snapshot(shared))
    assert re.fullmatch(r"1\.[\w-]+", fragment) and len(fragment) < 8000
    assert parse_snapshot(page_answers.unpacked(fragment)[0], "a link") == shared


def bomb() -> str:
    return page_answers.packed(json.dumps({"schema": "gpusetup.snapshot/1", "x": "0" * (9 << 20)}))


@each(
    "fragment, said",
    [
        ("", "none of this page"),
        ("2.abcd", "another version of this page"),
        ("1.!!!!", "is damaged"),
        (page_answers.packed(dump_snapshot(machine_named("wsl2")))[:-9], "is damaged"),
        (page_answers.packed('{"schema":"x"}'), "is not a snapshot"),
        ("1." + "A" * 2_000_000, "more than 1 MiB"),
        (bomb(), "larger than 8 MiB"),
    ],
)
def test_a_fragment_from_anybody_is_an_answer_or_a_refusal(fragment: str, said: str) -> None:
    answer = asked("linked", fragment)
    told = json.loads(answer["json"])
    assert told["schema"] == "gpusetup.error/1" and told["exit"] == answer["exit"] == 2
    assert said in told["message"] and "link" in told["message"] and told["hint"]
    assert told["message"] in answer["text"]


SLY = "GeForce \u202e0905 XTR\u200f\u2066\x1b[2J\u061c\U000e0041"


def test_hidden_marks_of_a_link_reach_no_answer() -> None:
    machine = machine_named("rtx3050-laptop")
    gpus = tuple(replace(gpu, name=SLY) for gpu in machine.gpus or ())
    event = Event(kind="cuda-error", values={"code": SLY}, text=SLY, source=SLY)
    sly = replace(machine, gpus=gpus, events=(event,), driver=replace(machine.driver, version=SLY))
    answer = asked("linked", page_answers.packed(dump_snapshot(sly)))
    said = [*json.loads(answer["json"])["findings"], json.loads(answer["json"])["snapshot"]]
    for text in (json.dumps(said, ensure_ascii=False), answer["text"]):
        assert not re.search(HIDDEN, text), text


# --- what is built --------------------------------------------------------------------------------

ALONE = """
import sys
allowed = {"gpusetup", "page_answers", "msgspec", "packaging", "rich", "platformdirs"}

class Browser:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in allowed | set(sys.stdlib_module_names):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Browser())
sys.modules["ssl"] = None
import json, subprocess, threading
threading.Thread.start = subprocess.Popen.__init__ = None
import page_answers
def ask(*question, raw=b""):
    return json.loads(page_answers.answer(json.dumps(question), raw))
assert not page_answers.__file__.startswith(sys.argv[1] + "/web"), page_answers.__file__
print(ask("report", raw=b"Torch not compiled with CUDA enabled")["exit"])
fields = {"gpu": "A100 80GB", "driver": "570.172.08", "packages": "vllm"}
told = ask("resolve", {**fields, "os": "linux", "machine": "x86_64"})
print(told["json"], file=sys.stderr) if told["exit"] else None
print(told["exit"], ask("linked", ask("link")["out"])["exit"])
print(len(ask("start")["findings"]) > 100, ask("finding", "cuda-program-error")["exit"])
"""


def test_the_archive_answers_alone(tmp_path: Path) -> None:
    """It needs neither what is left out nor what browsers lack: threads, ssl, children."""
    archive = build_page.archive([])
    with zipfile.ZipFile(io.BytesIO(archive)) as parts:
        parts.extractall(tmp_path)
    environment = {
        "PYTHONPATH": str(tmp_path),
        "GPUSETUP_CACHE": str(tmp_path / "none"),
        "HOME": "/",
    }
    done = subprocess.run(
        [sys.executable, "-B", "-c", ALONE, str(ROOT)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["1", "0", "1", "True", "0"], done.stderr
    assert build_page.archive([]) == archive, "the same sources make the same bytes"


# --- what it may do -------------------------------------------------------------------------------


def sources() -> Iterator[Path]:
    return (path for path in sorted(WEB.iterdir()) if path.suffix in (".html", ".js", ".css"))


def test_the_policy_lets_nothing_out() -> None:
    page = (WEB / "index.html").read_text(encoding="utf-8")
    found = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert found is not None
    policy = dict(part.strip().split(" ", 1) for part in found[1].split(";"))
    assert policy["default-src"] == policy["form-action"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert policy["script-src"] == "'self' 'wasm-unsafe-eval'"
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|<style", page)


@each("path", list(sources()))
def test_the_page_names_no_other_server_and_sets_no_markup(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.findall(r"https?://", text)
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text)
