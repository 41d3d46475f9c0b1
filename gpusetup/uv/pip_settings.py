"""Reads pip's settings about where packages come from, from its files and variables."""

from __future__ import annotations

import os
import sys
from configparser import Error, RawConfigParser
from pathlib import Path

from gpusetup.errors import BadInput

KEYS = (
    *("index-url", "extra-index-url", "trusted-host"),
    *("cert", "proxy", "keyring-provider", "constraint"),
)
"""The settings that count (https://pip.pypa.io/en/stable/cli/pip_install/#options)."""
PIP_FILE = "pip.ini" if sys.platform == "win32" else "pip.conf"


def pip_settings(prefix: str | None = None) -> dict[str, str]:
    """The values of pip's settings that matter here (`KEYS`), from its files and variables.

    `[install]` of any file wins over `[global]` of any other, and a variable wins over both.
    `prefix` adds the file of an environment, which pip reads and which only `guard` looks at: a
    checkout may bring an environment with it, so its file decides no index of ours.

    `BadInput` for a file that is no configuration: without it, packages would come from elsewhere.
    """
    parser = RawConfigParser(strict=False)
    parser.optionxform = lambda name: name.lower().replace("_", "-")  # type: ignore[assignment]
    for path in pip_files(prefix):
        if not path.is_file():
            continue
        try:
            parser.read(path, encoding="utf-8-sig")
        except (Error, UnicodeDecodeError):
            # The parser's own words may quote a password, so they are not shown.
            raise BadInput(
                f"{path} is not a pip configuration",
                hint="fix it (`pip config debug` shows what pip reads), or set "
                f"PIP_CONFIG_FILE={os.devnull}",
            ) from None
    settings: dict[str, str] = {}
    for key in KEYS:
        variable = os.environ.get(pip_variable(key))
        in_files = parser.get("install", key, fallback="") or parser.get("global", key, fallback="")
        value = variable or in_files
        if value:
            settings[key] = value
    return settings


def pip_variable(key: str) -> str:
    """The environment variable that sets an option of pip.

    >>> pip_variable("index-url")
    'PIP_INDEX_URL'
    """
    name = key.upper().replace("-", "_")
    return f"PIP_{name}"


def pip_files(prefix: str | None) -> tuple[Path, ...]:
    """The configuration files that pip reads, in order; a later one overrides the earlier ones.

    They are the machine's, the user's, the environment's, and the one that PIP_CONFIG_FILE names
    (https://pip.pypa.io/en/stable/topics/configuration/#location).
    """
    named_file = os.environ.get("PIP_CONFIG_FILE")
    if named_file == os.devnull:
        return ()
    home = Path.home()
    config = os.environ.get("APPDATA") or os.environ.get("XDG_CONFIG_HOME") or home / ".config"
    machine_folder = Path(os.environ.get("PROGRAMDATA", "/etc"))
    if os.name == "nt":
        machine_folder /= "pip"
    files = [machine_folder / PIP_FILE, home / ".pip" / PIP_FILE, Path(config, "pip", PIP_FILE)]
    # In pip's order the environment's file comes after the user's.
    if prefix:
        files.append(Path(prefix, PIP_FILE))
    if named_file:
        files.append(Path(named_file))
    return tuple(files)
