"""Give up what could change the machine, then run a program that asks the driver.

    hold_back.py FILE.py [ARGUMENT ...]      a Python file, in this interpreter
    hold_back.py PROGRAM [ARGUMENT ...]      any other program, in place of this one

NVML, libcuda and nvidia-smi load kernel modules and make device nodes where they are missing: as
root by themselves, else through the setuid program nvidia-modprobe. On Linux neither this process
nor what it starts can do that any more: it gains no privileges (no_new_privs), and the capabilities
to make nodes and to load modules are gone for good. Elsewhere nothing is to be given up.

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
"""From linux/prctl.h and linux/capability.h."""


def hold_back() -> None:
    """What this process may not do (a container took it away already) is not missed."""
    if sys.platform != "linux":
        return
    import ctypes

    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for capability in GIVEN_UP:
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    # Two times (effective, permitted, inheritable): the lower and the upper 32 capabilities.
    held = (ctypes.c_uint32 * 6)()
    if libc.capget(header, held) != 0:
        return
    for place in range(3):
        held[place] &= ~sum(1 << capability for capability in GIVEN_UP) & 0xFFFFFFFF
    libc.capset(header, held)


def main() -> None:
    del sys.argv[0]
    hold_back()
    if sys.argv[0].endswith(".py"):
        sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
        runpy.run_path(sys.argv[0], run_name="__main__")
        return
    try:
        os.execvp(sys.argv[0], sys.argv)
    except OSError as problem:
        sys.stderr.write("error: %s: %s\n" % (sys.argv[0], problem.strerror))
        sys.exit(127)


if __name__ == "__main__":
    main()
