"""The output of a watched command: read along, and the same for the person."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

OURS = (sys.executable, "-m", "gpusetup", "monitor")
SCRIPT = """
import os, sys, time
print("terminal:", sys.stdout.isatty(), sys.stderr.isatty(), os.get_terminal_size().columns)
for epoch in range(3):
    for percent in (0, 50, 100):
        sys.stderr.write(f"\\rEpoch {epoch}:  {percent}%|##  | {percent}/100 [00:01<00:01]")
        sys.stderr.flush()
        time.sleep(0.1)
    sys.stderr.write("\\n")
print("\\x1b[32mhello\\x1b[0m", input("name? "))
"""


def on_a_terminal(argv: tuple[str, ...], answer: bytes) -> bytes:
    """What a command prints on a terminal of 111 columns whose user types an answer."""
    child, terminal = pty.fork()
    if child == 0:
        os.execvp(argv[0], argv)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
    output, end, answered = b"", time.monotonic() + 120, False
    while time.monotonic() < end:
        if not select.select([terminal], [], [], 0.2)[0]:
            continue
        try:
            data = os.read(terminal, 65536)
        except OSError:
            break
        output += data
        if b"name?" in output and not answered:
            os.write(terminal, answer)
            answered = True
    os.waitpid(child, 0)
    os.close(terminal)
    return output


def test_on_a_terminal_the_command_prints_the_same_bytes_with_and_without_the_monitor(
    tmp_path: Path,
) -> None:
    """001-17: progress bars stay progress bars."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    command = (sys.executable, str(script))
    alone = on_a_terminal(command, b"Ada\n")
    watched = on_a_terminal((*OURS, "--", *command), b"Ada\n")
    assert b"terminal: True True 111" in alone and b"hello" in alone
    assert alone in watched
    assert b"s per epoch" in watched.partition(alone)[2]


def test_through_pipes_the_streams_stay_apart_and_their_bytes_the_same() -> None:
    script = "import os; os.write(1, b'a\\x00\\xff' * 50000); os.write(2, b'err\\r\\n')"
    done = subprocess.run((*OURS, "--", sys.executable, "-c", script), capture_output=True)
    assert done.stdout == b"a\x00\xff" * 50000
    assert b"err\r\n" in done.stderr and b"Verdict" in done.stderr


def test_a_reader_that_leaves_ends_the_command_as_without_us() -> None:
    script = "while True: print('x' * 1000)"
    argv = (*OURS, "--", sys.executable, "-c", script)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as monitor:
        assert monitor.stdout is not None
        monitor.stdout.read(10)
        monitor.stdout.close()
        assert monitor.wait(60) != 0


def test_a_child_that_outlives_the_command_does_not_hold_the_monitor() -> None:
    began = time.monotonic()
    done = subprocess.run((*OURS, "--", "sh", "-c", "sleep 60 & echo done"), capture_output=True)
    assert done.stdout == b"done\n" and time.monotonic() - began < 40


@pytest.mark.parametrize("more", [(), ("--output", "run.jsonl")])
def test_the_summary_has_the_seconds_of_an_epoch_as_text_and_as_json(
    more: tuple[str, ...], tmp_path: Path
) -> None:
    """001-17: a training that prints its epochs gets their seconds in the summary."""
    script = "import time\nfor n in (1, 2, 3):\n    time.sleep(0.3); print('Epoch', n, flush=True)"
    command = ("--", sys.executable, "-c", script)
    words = ("--json", "--interval", "0.2", *more)
    done = subprocess.run((*OURS, *words, *command), capture_output=True, cwd=tmp_path)
    text = (tmp_path / "run.jsonl").read_bytes() if more else done.stdout
    epochs = json.loads(text.splitlines()[-1])["epochs"]
    assert epochs["epochs"] == 2 and 0.25 < epochs["seconds"] < 5
    kept = tmp_path / "kept.jsonl"
    kept.write_bytes(text)
    replayed = subprocess.run((*OURS, "--replay", str(kept)), capture_output=True)
    assert b"s per epoch" in replayed.stdout
