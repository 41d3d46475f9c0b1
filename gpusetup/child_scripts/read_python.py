"""Facts of the interpreter that runs this file, as one line of JSON. Python 3.8 syntax.

It is run by the *target* interpreter by path, so the first entry of its search path is this
folder, which the user's own `python` would not have; it is left out.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from typing import Any, Dict


def facts() -> Dict[str, Any]:
    here = os.path.dirname(os.path.abspath(__file__))
    return {
        "python": sys.version.split()[0],
        "implementation": sys.implementation.name,
        "executable": sys.executable,
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "bits": 64 if sys.maxsize > 2**32 else 32,
        "free_threaded": "t" in getattr(sys, "abiflags", "") or "free-threading" in sys.version,
        "site_packages": sysconfig.get_path("purelib"),
        "stdlib": sysconfig.get_path("stdlib"),
        "machine": machine(),
        "path": [entry for entry in sys.path if entry and os.path.abspath(entry) != here],
    }


def machine() -> str:
    """As `platform.machine()`, which imports `subprocess` before Python 3.13."""
    if hasattr(os, "uname"):
        return os.uname().machine
    import platform

    return platform.machine()


if __name__ == "__main__":
    print(json.dumps(facts()))
