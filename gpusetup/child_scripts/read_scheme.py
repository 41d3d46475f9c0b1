"""Where the interpreter that runs this file installs to, as one line of JSON.

Python 3.8 syntax, stdlib only. `tags` are left to the caller: it runs on the same machine.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import sysconfig


def scheme() -> dict[str, object]:
    paths = sysconfig.get_paths()
    marker = os.path.join(paths["stdlib"], "EXTERNALLY-MANAGED")
    in_environment = sys.prefix != sys.base_prefix
    return {
        "python": "%d.%d.%d" % sys.version_info[:3],
        "implementation": sys.implementation.name,
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "executable": sys.executable,
        "prefix": sys.prefix,
        "purelib": paths["purelib"],
        "platlib": paths["platlib"],
        "scripts": paths["scripts"],
        "data": paths["data"],
        "headers": headers(in_environment, paths["include"]),
        "externally_managed": marker if os.path.exists(marker) and not in_environment else None,
        "ahead": ahead((paths["purelib"], paths["platlib"])),
        "has_pip": importlib.util.find_spec("pip") is not None,
    }


def ahead(libraries: tuple[str, ...]) -> list[str]:
    """The folders that an import looks in before these: PYTHONPATH's, the user's site-packages.
    The first of all is this script's own."""
    real = [os.path.realpath(folder) for folder in libraries]
    found: list[str] = []
    for folder in sys.path[1:]:
        if os.path.realpath(folder) in real:
            return found
        found.append(folder)
    return []


def headers(in_environment: bool, include: str) -> str:
    """As pip and uv decide: an environment shares its base's `include`, so it has one beside."""
    if not in_environment:
        return include
    return os.path.join(sys.prefix, "include", "site", "python%d.%d" % sys.version_info[:2])


if __name__ == "__main__":
    print(json.dumps(scheme()))
