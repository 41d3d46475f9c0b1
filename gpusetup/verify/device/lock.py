"""One `verify` at a time takes most of a GPU's memory; another one tests a small share."""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import Iterator, Optional


@contextlib.contextmanager
def alone_on(uuid: Optional[str]) -> Iterator[bool]:
    """Whether no other `verify` of this machine tests the memory of this GPU now.

    Where no lock can be had at all (Windows, no writable folder) the answer is yes.
    """
    alone = True
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            path = os.path.join(tempfile.gettempdir(), f"gpusetup-verify-{uuid}.lock")
            flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
            handle = os.open(path, flags, 0o666)
            stack.callback(os.close, handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                alone = False
        yield alone
