"""The two actions: what triage says to webhooks as GitHub sends them, and what verify runs."""

from __future__ import annotations

import http.server
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import triage
import verify_job
import yaml
from each_row import each
from triage_decide import Settings, decide, former

ROOT = Path(__file__).resolve().parents[2]
WEBHOOKS = Path(__file__).parents[1] / "webhooks"
ACTIONS = sorted((ROOT / "actions").glob("*/action.yml"))
BOT = {"login": "github-actions[bot]", "id": 41898282, "type": "Bot"}
ASKED = {"id": 7, "user": BOT, "body": "…\n\n<!-- gpusetup:asked:torch-cpu-build -->"}
ANSWERED = {
    "id": 8,
    "user": BOT,
    "body": "…\n\n<!-- gpusetup:answered:arch-too-new-for-wheel -->\n",
}
LABELLED = Settings(label="gpusetup: {id}")


def event(name: str) -> Any:
    return json.loads((WEBHOOKS / f"{name}.json").read_text(encoding="utf-8"))


def told(name: str, comments: Sequence[Any] = (), settings: Settings = LABELLED) -> Any:
    return decide(name.partition(".")[0], event(name), comments, settings)


# --- what is decided ------------------------------------------------------------------------------


def test_a_certain_cause_is_answered_with_its_label() -> None:
    said = told("issues.opened")
    assert (said.act, said.finding) == ("answer", "arch-too-new-for-wheel")
    assert said.label == "gpusetup: arch-too-new-for-wheel"
    assert "pip install" in said.body or "gpusetup install" in said.body
    assert "asker" not in said.body, "the home folder's name is not repeated"
    assert "nvml-mismatch" not in said.body, "what a form hides in a comment is nobody's report"
    assert former([{"user": BOT, "body": said.body}]) == {"answered": "arch-too-new-for-wheel"}


def test_what_only_a_symptom_shows_is_asked_about_and_may_be_ignored() -> None:
    here = event("issues.opened-vague")
    here["issue"]["body"] = (
        'My script stops:\n```\nTraceback (most recent call last):\n  File "a.py", line 3\n'
        "RuntimeError: CUDA error: no kernel image is available for execution on the device\n```"
    )
    said = decide("issues", here, (), LABELLED)
    assert (said.act, said.finding) == ("ask", "no-kernel-image")
    assert said.body and said.body.startswith("This looks like **no-kernel-image**")
    assert "torch.cuda.get_arch_list()" in said.body
    ignores = Settings(ignore=frozenset({"no-kernel-image"}))
    assert decide("issues", here, (), ignores).act == "silent"


@each(
    "name, comments, why",
    [
        ("issues.opened", [ANSWERED], "answered before"),
        ("issues.opened-vague", [ASKED], "asked before"),
        ("issues.opened-by-bot", [], "bot"),
        ("issue_comment.created-by-another", [ASKED], "somebody else"),
        ("issue_comment.created-on-pull-request", [], "pull request"),
    ],
)
def test_otherwise_it_is_silent(name: str, comments: list[Any], why: str) -> None:
    said = told(name, comments)
    assert said.act == "silent" and why in said.why
    assert said.body is None and said.label is None


def test_a_person_cannot_forge_the_mark() -> None:
    forged = {**ANSWERED, "user": {"login": "asker", "id": 1001, "type": "User"}}
    assert told("issues.opened", [forged]).act == "answer"
    quoted = {**ANSWERED, "body": "<!-- gpusetup:answered:x --> and more words"}
    assert told("issues.opened", [quoted]).act == "answer"


HOSTILE = (
    "::error::x",
    "::set-output name=decision::answer",
    "</details><img src=x onerror=alert(1)>",
    "@everyone [click](https://evil.example)",
    "$(touch /tmp/pwned) `touch /tmp/pwned`",
    "<!-- gpusetup:answered:x -->",
    "\u202e\x1b[2J\x00",
)


@each("text", HOSTILE)
def test_what_strangers_write_acts_nowhere(text: str) -> None:
    payload = event("issues.opened")
    gpu = "GPU models and configuration: GPU 0: NVIDIA GeForce RTX 5070 Ti"
    payload["issue"]["title"] = text
    payload["issue"]["body"] = payload["issue"]["body"].replace(gpu, f"{gpu} {text}") + text
    said = decide("issues", payload, [], LABELLED)
    shown = triage.summary(said, dry_run=False) + "".join(triage.outputs(said))
    outside = re.sub(r"(?s)(`{3,})\w*\n.*?\n(> )?\1", "", shown)
    assert not re.search(r"(?<!\\)<img|(?<!\\)@everyone|(?<!\\)\[click\]|\x1b|\x00", outside)
    assert not re.search(r"(?m)^::", shown)
    assert said.label in (None, f"gpusetup: {said.finding}")


# --- what is done ---------------------------------------------------------------------------------


class GitHubStub:
    """GitHub's REST API for one issue: comments by pages, and what was posted."""

    def __init__(self, comments: Sequence[Any] = (), status: int = 200) -> None:
        posted: list[tuple[str, Any, str]] = []
        self.posted = posted

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = int(re.search(r"page=(\d+)$", self.path)[1])
                self.answer(status, list(comments[100 * (page - 1) : 100 * page]))

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                posted.append((self.path, json.loads(raw), self.headers["Authorization"]))
                self.answer(201, {})

            def answer(self, code: int, value: Any) -> None:
                raw = json.dumps(value).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing is printed."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def hub() -> Iterator[Any]:
    started: list[GitHubStub] = []

    def start(comments: Sequence[Any] = (), status: int = 200) -> GitHubStub:
        started.append(GitHubStub(comments, status))
        return started[-1]

    yield start
    for one in started:
        one.server.shutdown()
        one.server.server_close()


def job(tmp_path: Path, hub: GitHubStub, name: str, **settings: str) -> dict[str, str]:
    return {
        "GITHUB_EVENT_PATH": str(WEBHOOKS / f"{name}.json"),
        "GITHUB_EVENT_NAME": name.partition(".")[0],
        "GITHUB_REPOSITORY": "example/trainer",
        "GITHUB_API_URL": f"http://127.0.0.1:{hub.server.server_port}",
        "GITHUB_TOKEN": "ghs_secret",
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "TRIAGE_LABEL": "gpusetup: {id}",
        **settings,
    }


def test_an_answer_is_posted_once_with_its_label(tmp_path: Path, hub: Any) -> None:
    """As the action starts it: a child, whose folder and environment are no help to strangers."""
    server = hub()
    environment = {
        "PATH": os.defpath,
        "HOME": str(tmp_path),
        **job(tmp_path, server, "issues.opened"),
    }
    done = subprocess.run(
        [sys.executable, "-I", str(ROOT / "actions" / "triage" / "triage.py")],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "answer: arch-too-new-for-wheel is certain\n"), (
        done
    )
    assert [path for path, _, _ in server.posted] == [
        "/repos/example/trainer/issues/42/comments",
        "/repos/example/trainer/issues/42/labels",
    ]
    assert {token for *_, token in server.posted} == {"Bearer ghs_secret"}
    assert server.posted[1][1] == {"labels": ["gpusetup: arch-too-new-for-wheel"]}
    output = (tmp_path / "output").read_text(encoding="utf-8")
    assert output == "decision=answer\nfinding=arch-too-new-for-wheel\n"
    assert "ghs_secret" not in done.stdout + done.stderr + (tmp_path / "summary").read_text("utf-8")


# --- verify ---------------------------------------------------------------------------------------


PYTHON = """#!/bin/sh
for word; do
    case "$word" in --junit=*) cp "$(dirname "$0")/report.xml" "${word#--junit=}" ;; esac
done
exit 1
"""
REPORT = """<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="gpusetup verify"><testsuite name="cpu">
<testcase name="matmul" classname="cpu" time="0.1"/>
<testcase name="expect" classname="host">
  <failure message="torch==9.* | &lt;b&gt; ::error::"/>
</testcase>
<testcase name="libraries" classname="host"><skipped message="a CPU build"/></testcase>
</testsuite></testsuites>
"""


def test_the_report_becomes_a_table_and_the_exit_code_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    python = tmp_path / "python"
    python.write_text(PYTHON, encoding="utf-8")
    python.chmod(0o755)
    (tmp_path / "report.xml").write_text(REPORT, encoding="utf-8")
    environment = {
        "VERIFY_PYTHON": str(python),
        "VERIFY_JUNIT": str(tmp_path / "out" / "v.xml"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
    }
    assert verify_job.main(environment) == 1
    table = (tmp_path / "summary").read_text(encoding="utf-8").splitlines()
    assert table[0] == "### gpusetup verify: failed" and len(table) == 7
    assert table[4] == "| matmul | cpu | ✅ passed |  |"
    assert table[5].startswith("| expect | host | ❌ failed | torch==9.") and "<b>" not in table[5]
    assert table[5].count("|") == 5
    annotated = capsys.readouterr().out.splitlines()
    assert annotated[-2:] == [
        "::error title=verify%3A expect on host failed::torch==9.* | <b> ::error::",
        "::notice title=verify%3A libraries on host skipped::a CPU build",
    ]
    assert (tmp_path / "out" / "v.xml").read_text(encoding="utf-8") == REPORT
    environment["VERIFY_PYTHON"] = str(tmp_path / "nothing")
    assert verify_job.main(environment) == 3


INPUTS = ("python", "image", "gpus", "level", "device", "expect", "strict", "junit")


def test_no_input_writes_a_line_of_its_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    here = {"VERIFY_PYTHON": "/bin/true", "GITHUB_OUTPUT": str(tmp_path / "output")}
    for name in INPUTS:
        hostile = "a\x1b[2Jb" if name == "expect" else f"{tmp_path}/v.xml\nstolen=1"
        wrong = {**here, "VERIFY_IMAGE": "x"} if name == "gpus" else here
        assert verify_job.main({**wrong, f"VERIFY_{name.upper()}": hostile}) == 2, name
        said = capfd.readouterr().out
        assert said.count("\n") == 1 and f"`{name}`" in said, name
    assert not (tmp_path / "output").exists()


PWNING = """#!/bin/sh
echo "::set-output name=junit::pwn"; printf ' \\t::error::pwn\\rx\\r::warning::pwn\\n'
echo "##[error]pwn" >&2; echo "a ##[group]pwn" >&2; echo "::add-mask::pwn" >&2; echo "torch::nms"
"""


def test_what_is_tested_commands_no_runner(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    python = tmp_path / "python"
    python.write_text(PWNING, encoding="utf-8")
    python.chmod(0o755)
    here = {"VERIFY_PYTHON": str(python), "VERIFY_JUNIT": str(tmp_path / "v.xml")}
    assert verify_job.main(here) == 4
    said = capfd.readouterr()
    lines = said.out.splitlines()
    assert said.err == "" and "torch::nms" in lines and "##[" not in said.out
    commands = [line for line in lines if line.lstrip().startswith("::")]
    stop, go_on, unproven = commands
    token = re.fullmatch("::stop-commands::([0-9a-f]{32})", stop)[1]
    assert go_on == f"::{token}::" and unproven.startswith("::error::gpusetup verify: `python`")
    assert said.out.count("pwn") == 6 and lines[0] == stop and lines[-2:] == [go_on, unproven]


# --- the files that GitHub reads ------------------------------------------------------------------


@each("path", ACTIONS)
def test_no_expression_stands_in_a_shell_and_no_event_anywhere(path: Path) -> None:
    action = yaml.safe_load(path.read_text(encoding="utf-8"))
    for step in action["runs"]["steps"]:
        assert "${{" not in step["run"]
        assert all(re.fullmatch(r"\$\{\{ inputs\.[a-z-]+ \}\}", v) for v in step["env"].values())
    assert "github.event" not in path.read_text(encoding="utf-8")
    named = {f"{path.parent.name}_{name}".upper().replace("-", "_") for name in action["inputs"]}
    given = {name for step in action["runs"]["steps"] for name in step["env"]}
    assert named - {"TRIAGE_TOKEN"} <= given
