"""The log of one installation: what was run and fetched, and what was said, without secrets."""

from __future__ import annotations

import re
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from gpusetup.run import Output

KEPT_LOGS = 20


def without_logins(text: str) -> str:
    """Text without the credentials of its URLs.

    >>> without_logins("GET https://me:p@ss@mirror.example/whl?sig=ab, ok")
    'GET https://mirror.example/whl?..., ok'
    """
    hosts = re.sub(r"(?<=://)[^/\s]*@", "", text)
    return re.sub(r"(://[^\s?\"'`)]+\?)[^\s\"'`),#]+", r"\1...", hosts)


def shared(text: str) -> str:
    """Text without passwords and tokens, and with home folders as `~`; servers keep their names.

    >>> shared("GET https://me:secret@mirror.example/whl token=abc /home/alice/x")
    'GET https://mirror.example/whl token=<secret> ~/x'
    """
    from gpusetup.redaction.places import hide_homes
    from gpusetup.redaction.secrets import hide_secrets

    home = str(Path.home())
    text = text.replace(home, "~") if len(home) > 1 else text
    return hide_homes(hide_secrets(without_logins(text)))


class Log:
    """A file that grows while an installation goes on; several threads may write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._began = time.monotonic()

    def line(self, text: str) -> None:
        seconds = time.monotonic() - self._began
        with self._lock, self.path.open("a", encoding="utf-8") as file:
            file.write(f"{seconds:8.3f} {shared(text)}\n")

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

    name = time.strftime("install-%Y%m%d-%H%M%S")
    for folder in (user_log_path("gpusetup", appauthor=False), Path(tempfile.gettempdir())):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle, path = tempfile.mkstemp(prefix=f"{name}-", suffix=".log", dir=folder)
        except OSError:
            continue
        with open(handle, "w", encoding="utf-8"):  # noqa: PTH123 - the handle is open already
            pass
        _drop_old(folder)
        return Log(Path(path))
    return Log(Path(tempfile.mkdtemp(prefix="gpusetup-")) / f"{name}.log")


def _drop_old(folder: Path) -> None:
    logs = sorted(folder.glob("install-*.log"))
    for path in logs[:-KEPT_LOGS]:
        path.unlink(missing_ok=True)
