"""Prints facts about the interpreter that runs this file, as one line of JSON. Uses Python 3.8
syntax.

The *target* interpreter runs it by path. Therefore the first entry of its search path is this
folder, which the user's own `python` would not have, so we leave it out.
"""

from __future__ import annotations

import os
import platform
import sys
import sysconfig
from typing import Any, Dict, List


def facts() -> Dict[str, Any]:
    """The facts that gpusetup needs about this interpreter."""
    paths = sysconfig.get_paths()
    marker = os.path.join(paths["stdlib"], "EXTERNALLY-MANAGED")
    path = imported_from(paths["stdlib"], paths["purelib"])
    in_environment = sys.prefix != sys.base_prefix
    return {
        "python": sys.version.split()[0],
        "executable": sys.executable,
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "bits": 64 if sys.maxsize > 2**32 else 32,
        # Python on Windows has no ABI flags, so look in the version text too.
        "free_threaded": "t" in getattr(sys, "abiflags", "") or "free-threading" in sys.version,
        "site_packages": paths["purelib"],
        "machine": platform.machine(),
        "path": path,
        **{name: paths[name] for name in ("purelib", "platlib", "scripts", "data")},
        # A marker in the base installation does not apply to the environment.
        "externally_managed": marker if os.path.exists(marker) and not in_environment else None,
        "has_pip": any(os.path.isdir(os.path.join(folder, "pip")) for folder in path),
    }


def imported_from(stdlib: str, library: str) -> List[str]:
    """The folders with packages, in import order, without the standard library (on Windows partly
    next to the interpreter), zip files, the working folder and the script's folder."""
    try:
        cwd = os.getcwd()
    except OSError:  # the working folder was deleted
        cwd = ""
    script_folder = os.path.dirname(os.path.abspath(__file__))
    dynamic = os.path.join(stdlib, "lib-dynload")
    skipped = {stdlib, dynamic, script_folder, os.path.dirname(sys.executable), cwd}
    # An empty entry means the working folder.
    folders = [
        entry
        for entry in sys.path
        if entry and not entry.endswith(".zip") and os.path.abspath(entry) not in skipped
    ]
    return list(dict.fromkeys([*folders, library]))


if __name__ == "__main__":
    import json

    print(json.dumps(facts()))
