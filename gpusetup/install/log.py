"""The log of one installation: what was run and fetched, and what was said, without secrets."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gpusetup.errors import GpuSetupError
from gpusetup.install.credentials import redacted
from gpusetup.system.processes import Output

KEPT_LOGS = 20


class Log:
    """A file that grows while an installation goes on.

    A line that cannot be written (a full disk, a folder that is gone) ends no installation.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._began = time.monotonic()

    def line(self, text: str) -> None:
        seconds = time.monotonic() - self._began
        with suppress(OSError), self.path.open("a", encoding="utf-8") as file:
            file.write(f"{seconds:8.3f} {redacted(text)}\n")

    def command(self, argv: Sequence[str]) -> None:
        self.line("$ " + " ".join(argv))

    def output(self, said: Output) -> None:
        for text in (said.stdout, said.stderr):
            for row in text.splitlines():
                self.line(f"  {row}")
        self.line(f"exit {said.exit} after {said.seconds:.1f} s {said.problem or ''}".rstrip())


def open_log() -> Log:
    """A new log in the user's log folder, else in the temporary one; the oldest ones go."""
    from platformdirs import user_log_path

    name, folder = time.strftime("install-%Y%m%d-%H%M%S-"), user_log_path("gpusetup", False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, path = tempfile.mkstemp(prefix=name, suffix=".log", dir=folder)
    except OSError:
        handle, path = tempfile.mkstemp(prefix=name, suffix=".log")
    os.close(handle)
    for old in sorted(folder.glob("install-*.log"))[:-KEPT_LOGS]:
        old.unlink(missing_ok=True)
    return Log(Path(path))


def naming_log(problem: GpuSetupError, log: Log) -> GpuSetupError:
    """The same error, with the log in its hint."""
    hint = f"{problem.hint}\n" if problem.hint else ""
    return type(problem)(problem.message, hint=f"{hint}log: {log.path}")
