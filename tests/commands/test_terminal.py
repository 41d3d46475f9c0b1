"""A child that gpusetup runs has no terminal to ask on, but one that is lent it."""

from __future__ import annotations

import os
import pty
import sys
import time
from collections.abc import Sequence

ASKS = "printf 'Password: ' >/dev/tty; read said </dev/tty; sleep 0.1; echo heard $said >/dev/tty"
"""As ssh, sudo, git and getpass ask: on the terminal itself, whatever their streams are."""
LENDS = """
import sys
from gpusetup.system.processes import StreamingChild, foreground, run

asks = ("sh", "-c", sys.argv[1])
alone, told = run(asks, timeout=5), StreamingChild(asks)
print(f"alone {alone.exit} told {told.exit()} ")
foreground(asks).wait()
"""


def on_a_terminal(script: str, *words: str, prompt: str, typed: Sequence[str]) -> str:
    """All that a person sees of a program who types, slowly, when they are asked."""
    child, terminal = pty.fork()
    if not child:
        shown = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
        os.execve(sys.executable, [sys.executable, "-c", script, *words], shown)
    seen = b""
    try:
        while True:
            seen += os.read(terminal, 4096)
            if prompt.encode() in seen and typed:
                time.sleep(0.05)
                os.write(terminal, typed[0].encode())
                typed = typed[1:]
    except OSError:  # it has ended
        return seen.decode()
    finally:
        os.close(terminal)
        os.waitpid(child, 0)


def test_a_child_has_no_terminal_to_ask_on_but_one_that_is_lent_it_alone() -> None:
    seen = on_a_terminal(LENDS, ASKS, prompt="Password: ", typed=["secret\n"])
    before, _, rest = seen.partition("Password: ")
    refused, told = before.partition("alone ")[2].split(" told ")
    assert int(refused) and int(told.split()[0])
    assert "heard secret" in rest
