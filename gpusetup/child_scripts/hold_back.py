"""Gives up all rights to change the machine, then runs a program that calls the driver.

    hold_back.py FILE.py [ARGUMENT ...]      a Python file, in this interpreter
    hold_back.py PROGRAM [ARGUMENT ...]      any other program, in place of this one

NVML, libcuda and nvidia-smi load kernel modules and create device nodes if they are missing:
directly if they run as root, otherwise through the setuid program nvidia-modprobe. On Linux, this
script makes that impossible for itself and for every process that it starts: they cannot gain
privileges (no_new_privs), and they lose the capabilities to create nodes and to load modules for
good. On other systems there is nothing to give up.

Python 3.8 syntax, standard library only.
"""

from __future__ import annotations

import os
import runpy
import sys

PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
CAP_SYS_MODULE = 16
CAP_MKNOD = 27
GIVEN_UP = (CAP_SYS_MODULE, CAP_MKNOD)
CAPABILITY_VERSION_3 = 0x20080522
"""These numbers are from linux/prctl.h and linux/capability.h."""


def hold_back() -> None:
    """Give up these rights. It is not an error if a container has already removed one."""
    if sys.platform != "linux":
        return
    import ctypes

    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    given_up_bits = 0
    for capability in GIVEN_UP:
        # Processes that this one starts cannot get the capability back either.
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
        given_up_bits |= 1 << capability
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)  # 0 is this process
    # The array has two halves, for the lower and the upper 32 capabilities; each contains
    # effective, permitted and inheritable.
    capabilities = (ctypes.c_uint32 * 6)()
    if libc.capget(header, capabilities) != 0:
        return
    for index in range(3):
        # A negative Python number has no fixed width, so keep only its lower 32 bits.
        capabilities[index] &= ~given_up_bits & 0xFFFFFFFF
    libc.capset(header, capabilities)


NOT_FOUND = 127
"""The exit code that a shell returns if a program does not exist."""


def main() -> None:
    """Give up the rights, then replace this process with the program."""
    arguments = sys.argv[1:]
    sys.argv[:] = arguments  # the program sees only its own words
    program = arguments[0]
    hold_back()
    if program.endswith(".py"):
        # Add the script's folder to the path, as Python does for a script that it runs.
        folder = os.path.dirname(os.path.abspath(program))
        sys.path.insert(0, folder)
        runpy.run_path(program, run_name="__main__")
        return
    try:
        os.execvp(program, arguments)
    except OSError as problem:
        sys.stderr.write("error: %s: %s\n" % (program, problem.strerror))
        sys.exit(NOT_FOUND)


if __name__ == "__main__":
    main()
