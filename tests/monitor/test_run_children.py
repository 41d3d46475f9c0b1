"""The one way to start a child: what it said, or why it has no answer; it ends with us."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpusetup.system.processes import RUNNING, run

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="looks into /proc")


def is_alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def wait_for_end(pid: int) -> bool:
    for _ in range(100):
        if not is_alive(pid):
            return True
        time.sleep(0.05)
    return False


def test_a_child_that_another_thread_waits_for_ends_when_we_do(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    program = (
        "import sys, threading, time\n"
        "from gpusetup.system.processes import RUNNING, run\n"
        f"argv = ('sh', '-c', 'echo $$ > {told}.new; mv {told}.new {told}; sleep 60')\n"
        "threading.Thread(target=run, args=(argv,), kwargs={'timeout': 60}, daemon=True).start()\n"
        "import pathlib\n"
        f"while not (RUNNING and pathlib.Path({str(told)!r}).exists()): time.sleep(0.01)\n"
        "raise KeyboardInterrupt\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, timeout=30)
    assert wait_for_end(int(told.read_text()))


def test_a_child_that_hangs_is_ended_with_its_own_children(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    said = run(("sh", "-c", f"sleep 60 & echo $! > {told}; wait"), timeout=1)
    assert said.exit is None
    assert said.problem == "no answer in 1 s"
    assert wait_for_end(int(told.read_text()))
    assert not RUNNING


def test_what_cannot_be_killed_is_given_up_and_not_waited_for() -> None:
    """A grandchild in a session of its own holds the pipe, as one in a driver call would."""
    said = run(("sh", "-c", "setsid sleep 5 & sleep 60"), timeout=0.3)
    assert said.problem == "no answer in 0.3 s" and said.seconds < 5
