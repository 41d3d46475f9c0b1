"""Reads pip's settings that decide where packages come from, from its files and variables."""

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
"""The pip settings that gpusetup reads (https://pip.pypa.io/en/stable/cli/pip_install/#options)."""
PIP_FILE = "pip.ini" if sys.platform == "win32" else "pip.conf"


def pip_settings(prefix: str | None = None) -> dict[str, str]:
    """The values of pip's settings that matter here (`KEYS`), from its files and variables.

    `[install]` in any file overrides `[global]` in all others, and a variable overrides both.
    `prefix` adds an environment's file. pip reads that file, but here only `guard` does: an
    environment may come with a checkout, so its file must not decide which indexes gpusetup uses.

    Raises BadInput if a file is invalid, because without it packages would come from elsewhere.
    """
    parser = RawConfigParser(strict=False)
    parser.optionxform = lambda name: name.lower().replace("_", "-")  # type: ignore[assignment]
    for path in pip_files(prefix):
        if not path.is_file():
            continue
        try:
            parser.read(path, encoding="utf-8-sig")
        except (Error, UnicodeDecodeError):
            # The parser's message is not shown, because it may quote a password.
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

    These are the files of the machine, the user and the environment, and the one that
    PIP_CONFIG_FILE names (https://pip.pypa.io/en/stable/topics/configuration/#location).
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
    # In pip's order, the environment's file comes after the user's.
    if prefix:
        files.append(Path(prefix, PIP_FILE))
    if named_file:
        files.append(Path(named_file))
    return tuple(files)
