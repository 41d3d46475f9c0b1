"""A child with torch in it is as a new one: streams, folder, variables, path, and its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import warm

SAYS = """
import json, os, sys
said = sys.stdin.read()
print("on stderr", file=sys.stderr)
print(json.dumps({
    "said": said, "argv": sys.argv, "cwd": os.getcwd(), "environment": dict(os.environ),
    "path": sys.path, "main": __name__, "fds": sorted(map(int, os.listdir("/proc/self/fd"))),
    "leads": os.getsid(0) == os.getpid(), "torch": "torch" in sys.modules,
}))
sys.exit({code})
"""
ENVIRONMENT = {"PATH": "/usr/bin", "PYTHONPATH": "/no/such/folder", "A_VARIABLE": "é"}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks")


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(warm, "SCRIPTS", (str(tmp_path),))
    return tmp_path


def ended(kind: Any, script: Path, cwd: Path) -> tuple[int, dict[str, Any], str]:
    with kind(
        [sys.executable, str(script), "word", "--two"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env=ENVIRONMENT, cwd=cwd, start_new_session=True,
    ) as process:  # fmt: skip
        out, err = process.communicate("hello\n", timeout=120)
    return process.returncode, json.loads(out), err


def test_it_has_what_a_new_process_has_and_torch(scripts: Path, tmp_path: Path) -> None:
    script, folder = scripts / "says.py", tmp_path / "elsewhere"
    script.write_text(SAYS.replace("{code}", "7"))
    folder.mkdir()
    code, warmed, said = ended(warm.Popen, script, folder)
    new_code, new, new_said = ended(subprocess.Popen, script, folder)
    assert (code, said) == (new_code, new_said) == (7, "on stderr\n")
    assert (warmed.pop("torch"), new.pop("torch")) == (True, False)
    for one in (warmed, new):  # what the loader of a new interpreter adds for itself
        one["environment"].pop("LC_CTYPE", None)
    assert warmed == new


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("import os\nos.abort()", -signal.SIGABRT),
        ("raise SystemExit('in words')", 1),
        ("1 / 0", 1),
        ("", 0),
    ],
)
def test_it_ends_as_a_new_process_ends(scripts: Path, body: str, code: int) -> None:
    script = scripts / "ends.py"
    script.write_text(body + "\n")
    for kind in (warm.Popen, subprocess.Popen):
        with kind([sys.executable, str(script)], stderr=subprocess.PIPE, text=True) as process:
            said = process.communicate(timeout=120)[1]
        assert process.returncode == code
        assert ("in words" in said) == ("in words" in body)
        assert ("ZeroDivisionError" in said) == ("1 / 0" in body)


def test_one_that_hangs_can_be_waited_for_and_ended(scripts: Path) -> None:
    script = scripts / "hangs.py"
    script.write_text("import time\nprint('here', flush=True)\ntime.sleep(600)\n")
    process = warm.Popen([sys.executable, str(script)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"here\n"
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.1)
    assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(timeout=60) == -signal.SIGKILL
    process.stdout.close()


def test_its_own_children_of_ours_have_torch_too(scripts: Path) -> None:
    (scripts / "inner.py").write_text("import sys\nprint('torch' in sys.modules)\nsys.exit(5)\n")
    (scripts / "outer.py").write_text(
        "import subprocess, sys\n"
        f"done = subprocess.run([sys.executable, {str(scripts / 'inner.py')!r}],"
        " stdout=subprocess.PIPE, text=True)\n"
        "print(done.stdout.strip(), done.returncode)\n"
    )
    with warm.Popen(
        [sys.executable, str(scripts / "outer.py")], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.communicate(timeout=120)[0] == "True 5\n"


def test_another_program_is_started_as_usual() -> None:
    with warm.Popen(["/bin/sh", "-c", "exit 3"]) as process:
        assert process.wait(timeout=60) == 3
    assert not warm.is_ours(["python", str(warm.PACKAGE / "verify")])
    assert warm.is_ours([sys.executable, "-B", str(warm.PACKAGE / "verify")])
