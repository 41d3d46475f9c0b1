"""Facts of the interpreter that runs this file, as one line of JSON. Python 3.8 syntax.

It is run by the *target* interpreter by path, so the first entry of its search path is this
folder, which the user's own `python` would not have; it is left out.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from typing import Any, Dict, List


def facts() -> Dict[str, Any]:
    paths = sysconfig.get_paths()
    marker = os.path.join(paths["stdlib"], "EXTERNALLY-MANAGED")
    path = imported_from(paths["stdlib"], paths["purelib"])
    in_environment = sys.prefix != sys.base_prefix
    headers = paths["include"]
    if in_environment:  # as pip and uv decide: it shares its base's `include`, and has one beside
        version = "python%d.%d" % sys.version_info[:2]
        headers = os.path.join(sys.prefix, "include", "site", version)
    return {
        "python": sys.version.split()[0],
        "implementation": sys.implementation.name,
        "executable": sys.executable,
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "bits": 64 if sys.maxsize > 2**32 else 32,
        "free_threaded": "t" in getattr(sys, "abiflags", "") or "free-threading" in sys.version,
        "site_packages": paths["purelib"],
        "machine": machine(),
        "path": path,
        **{name: paths[name] for name in ("purelib", "platlib", "scripts", "data")},
        "headers": headers,
        "externally_managed": marker if os.path.exists(marker) and not in_environment else None,
        "ahead": ahead(paths["purelib"], paths["platlib"]),
        "has_pip": any(os.path.isdir(os.path.join(folder, "pip")) for folder in path),
    }


def imported_from(stdlib: str, library: str) -> List[str]:
    """The folders of packages, in the order of an import: without the standard library, zips, the
    working folder and that of a script."""
    try:
        cwd = os.getcwd()
    except OSError:  # it was deleted
        cwd = ""
    own = os.path.dirname(os.path.abspath(__file__)), os.path.dirname(sys.executable), cwd
    skipped = {stdlib, os.path.join(stdlib, "lib-dynload"), *own}
    found = [entry for entry in sys.path if entry and os.path.abspath(entry) not in skipped]
    return list(dict.fromkeys([*(one for one in found if not one.endswith(".zip")), library]))


def ahead(*libraries: str) -> List[str]:
    """The folders that an import looks in before these: PYTHONPATH's, the user's site-packages.
    The first of all is this script's own."""
    real = [os.path.realpath(folder) for folder in libraries]
    whole = [os.path.realpath(folder) for folder in sys.path[1:]]
    first = [place for place, folder in enumerate(whole) if folder in real]
    return sys.path[1:][: first[0]] if first else []


def machine() -> str:
    """As `platform.machine()`, which imports `subprocess` before Python 3.13."""
    if hasattr(os, "uname"):
        return os.uname().machine
    import platform

    return platform.machine()


if __name__ == "__main__":
    import json

    print(json.dumps(facts()))
