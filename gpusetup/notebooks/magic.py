"""`%load_ext gpusetup`, then `%gpusetup doctor`: a command in a child, whose words the cell shows.

The environment that is read is this kernel's, unless the line names another. An installation asks
first, which a cell cannot answer: it says `--dry-run` or `--yes`.
"""

from __future__ import annotations

import shlex
import sys
from typing import Any

from gpusetup.model import shell
from gpusetup.system.processes import beside, kill_group

OF_THE_KERNEL = ("doctor", "verify", "install")
TARGETS = ("--python", "--venv", "--from", "--report", "--project")
"""Options that say what is read; without one it is this kernel's environment."""


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext gpusetup` calls."""
    shell.register_magic_function(gpusetup, "line", "gpusetup")


def gpusetup(line: str) -> None:
    """A command of gpusetup: `%gpusetup doctor`, `%gpusetup resolve`, `%gpusetup help`."""
    child = beside((sys.executable, "-m", "gpusetup", *words_of(line)))
    try:
        for text in child.stdout or ():
            print(text.decode("utf-8", "replace"), end="")
    finally:
        kill_group(child)
        child.wait()


def words_of(line: str) -> list[str]:
    """The line's words, with this kernel's Python as the target.

    >>> words_of("install vllm --dry-run")[-1] == f"--python={sys.executable}"
    True
    """
    typed = line.replace("\\", "/") if shell.OWN_SYSTEM == "windows" else line
    words = shlex.split(typed) or ["doctor"]
    named = any(word.partition("=")[0] in TARGETS for word in words)
    here = words[0] in OF_THE_KERNEL and not named
    return [*words, *[f"--python={sys.executable}"] * here]
