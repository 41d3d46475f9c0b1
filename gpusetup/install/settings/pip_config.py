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
SECTIONS = ("global", "install")
NAME = "pip.ini" if sys.platform == "win32" else "pip.conf"
LARGEST = 1 << 20


def pip_files(
    environ: Mapping[str, str], home: Path, prefix: str | None = None
) -> tuple[Path, ...]:
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


def pip_settings(
    environ: Mapping[str, str], home: Path, prefix: str | None = None
) -> dict[str, str]:
    """What counts of pip's files and variables (`KEYS`): `[install]` of any file counts more than
    `[global]` of any other, and a variable more than both."""
    files = [_settings_in(file) for file in pip_files(environ, home, prefix)]
    found: dict[str, str] = {}
    for section in SECTIONS:
        for one in files:
            found.update(one.get(section, {}))
    variables = {key: environ.get(f"PIP_{key.upper().replace('-', '_')}", "") for key in KEYS}
    return {**found, **{key: value for key, value in variables.items() if value}}


def _settings_in(path: Path) -> dict[str, dict[str, str]]:
    """What one file says by section. `BadInput` where it is no configuration: without it, packages
    would come from elsewhere."""
    parser = RawConfigParser()
    try:
        if not path.is_file():
            return {}
        with path.open("rb") as file:
            parser.read_string(file.read(LARGEST).decode("utf-8-sig", "replace"))
    except OSError:
        return {}
    except Error as problem:
        raise BadInput(
            f"{path} is not a pip configuration: {without_content(str(problem))}",
            hint="fix it (`pip config debug` shows what pip reads), or set "
            f"PIP_CONFIG_FILE={os.devnull}",
        ) from None
    return {
        section: {
            name: value
            for key, value in parser.items(section)
            if value and (name := key.replace("_", "-")) in KEYS
        }
        for section in SECTIONS
        if parser.has_section(section)
    }


def without_content(problem: str) -> str:
    """A parser's complaint, without the line that it quotes: that may hold a password.

    >>> without_content("File contains no section headers.")
    'File contains no section headers.'
    """
    return problem.partition(":")[0][:120].rstrip(".") + "."
