"""pip's settings of where packages come from, from its own files and variables."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from configparser import Error, RawConfigParser
from pathlib import Path

from gpusetup.errors import BadInput

KEYS = (
    *("index-url", "extra-index-url", "find-links", "trusted-host"),
    *("cert", "proxy", "keyring-provider", "constraint"),
)
"""The settings that count (https://pip.pypa.io/en/stable/cli/pip_install/#options)."""
NAME = "pip.ini" if sys.platform == "win32" else "pip.conf"


def pip_settings(
    environ: Mapping[str, str], home: Path, prefix: str | None = None
) -> dict[str, str]:
    """What counts of pip's files and variables (`KEYS`): `[install]` of any file counts more than
    `[global]` of any other, and a variable more than both. `BadInput` for a file that is no
    configuration: without it, packages would come from elsewhere."""
    parser = RawConfigParser(strict=False)
    parser.optionxform = lambda name: name.lower().replace("_", "-")  # type: ignore[assignment]
    for path in filter(Path.is_file, _files(environ, home, prefix)):
        try:
            parser.read(path, encoding="utf-8-sig")
        except (Error, UnicodeDecodeError):  # its words may quote a password
            raise BadInput(
                f"{path} is not a pip configuration",
                hint="fix it (`pip config debug` shows what pip reads), or set "
                f"PIP_CONFIG_FILE={os.devnull}",
            ) from None
    found = {
        key: environ.get(f"PIP_{key.upper().replace('-', '_')}")
        or parser.get("install", key, fallback="")
        or parser.get("global", key, fallback="")
        for key in KEYS
    }
    return {key: value for key, value in found.items() if value}


def _files(environ: Mapping[str, str], home: Path, prefix: str | None) -> tuple[Path, ...]:
    """The files that pip reads, the one that counts most last: the machine's, the user's, the
    environment's own, the one that a variable names."""
    named = environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return ()
    config = environ.get("APPDATA") or environ.get("XDG_CONFIG_HOME") or home / ".config"
    machine = Path(environ.get("PROGRAMDATA", "/etc"), *(("pip",) if os.name == "nt" else ()), NAME)
    files = (machine, home / ".pip" / NAME, Path(config, "pip", NAME))
    own = (Path(prefix, NAME),) if prefix else ()
    return (*files, *own, *((Path(named),) if named else ()))
