"""Prints facts about the interpreter that runs this file, as one line of JSON. Uses Python 3.8
syntax.

The *target* interpreter runs it by path. Therefore the first entry of its search path is this
folder, which the user's own `python` would not have, so we leave it out.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from typing import Any, Dict, List


def facts() -> Dict[str, Any]:
    """The facts that gpusetup needs about this interpreter."""
    paths = sysconfig.get_paths()
    marker = os.path.join(paths["stdlib"], "EXTERNALLY-MANAGED")
    path = imported_from(paths["stdlib"], paths["purelib"])
    in_environment = sys.prefix != sys.base_prefix
    headers = paths["include"]
    if in_environment:  # like pip and uv, because `include` belongs to the base Python
        version = "python%d.%d" % sys.version_info[:2]
        headers = os.path.join(sys.prefix, "include", "site", version)
    # A marker in the base installation does not apply to the environment.
    is_managed = os.path.exists(marker) and not in_environment
    pip_folders = [os.path.join(folder, "pip") for folder in path]
    return {
        "python": sys.version.split()[0],
        "implementation": sys.implementation.name,
        "executable": sys.executable,
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "bits": 64 if sys.maxsize > 2**32 else 32,
        "free_threaded": is_free_threaded(),
        "site_packages": paths["purelib"],
        "machine": machine(),
        "path": path,
        **{name: paths[name] for name in ("purelib", "platlib", "scripts", "data")},
        "headers": headers,
        "externally_managed": marker if is_managed else None,
        "ahead": ahead(paths["purelib"], paths["platlib"]),
        "has_pip": any(map(os.path.isdir, pip_folders)),
    }


def is_free_threaded() -> bool:
    """Whether this Python runs without the global interpreter lock."""
    # Python on Windows has no ABI flags, so look in the version text too.
    flags = getattr(sys, "abiflags", "")
    return "t" in flags or "free-threading" in sys.version


def imported_from(stdlib: str, library: str) -> List[str]:
    """The folders with packages, in import order, without the standard library, zip files, the
    working folder and the script's folder."""
    try:
        cwd = os.getcwd()
    except OSError:  # the working folder was deleted
        cwd = ""
    script_folder = os.path.dirname(os.path.abspath(__file__))
    program_folder = os.path.dirname(sys.executable)
    dynamic_folder = os.path.join(stdlib, "lib-dynload")
    skipped = {stdlib, dynamic_folder, script_folder, program_folder, cwd}
    folders = []
    for entry in sys.path:
        # An empty entry means the working folder.
        if not entry or entry.endswith(".zip"):
            continue
        if os.path.abspath(entry) not in skipped:
            folders.append(entry)
    folders.append(library)
    return list(dict.fromkeys(folders))


def ahead(*libraries: str) -> List[str]:
    """The folders that an import searches before these: those in PYTHONPATH, and the user's
    site-packages. The first entry of the path is skipped, because it is this script's folder."""
    real_libraries = [os.path.realpath(folder) for folder in libraries]
    folders = sys.path[1:]
    for position, folder in enumerate(folders):
        # Compare real paths, because one of them may be a link.
        if os.path.realpath(folder) in real_libraries:
            return folders[:position]
    return []


def machine() -> str:
    """The value of `platform.machine()`, which we do not call because it imports `subprocess`
    before Python 3.13."""
    if hasattr(os, "uname"):
        return os.uname().machine
    import platform

    return platform.machine()


if __name__ == "__main__":
    import json

    print(json.dumps(facts()))
