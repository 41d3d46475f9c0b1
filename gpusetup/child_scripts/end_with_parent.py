"""Becomes another program that holds a lock as long as it runs, and ends when its parent ends.

    end_with_parent.py LOCK PARENT_PID PROGRAM [ARGUMENT ...]

On Linux, the kernel kills it when its parent ends. On other systems it goes on, so a process that
needs the lock waits for it. Python 3.8 syntax, stdlib only, POSIX.
"""

from __future__ import annotations

import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""From linux/prctl.h."""
PARENT_HAS_GONE = 75  # EX_TEMPFAIL in sysexits.h
NOT_FOUND = 127
"""The exit code that a shell returns if a program does not exist."""


def main(lock: str, parent: int, argv: list[str]) -> None:
    """Take the lock, and become the program `argv`, which holds the lock until it ends."""
    import fcntl  # not on Windows

    handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX)
    os.set_inheritable(handle, True)
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before prctl was called
        sys.exit(PARENT_HAS_GONE)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    # SIGXFSZ stays ignored, as Python sets it, so that a limit on file sizes is reported as an
    # error instead of killing the program.
    try:
        os.execvp(argv[0], argv)
    except OSError as problem:
        sys.stderr.write("error: %s: %s\n" % (argv[0], problem.strerror))
        sys.exit(NOT_FOUND)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
