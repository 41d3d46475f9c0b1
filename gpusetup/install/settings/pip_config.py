"""pip's settings of where packages come from, as pip reads them."""

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
LARGEST = 1 << 20


def variable(key: str) -> str:
    """The variable of a setting.

    >>> variable("index-url")
    'PIP_INDEX_URL'
    """
    return f"PIP_{key.upper().replace('-', '_')}"


def pip_files(
    environ: Mapping[str, str], home: Path, prefix: str | None = None
) -> tuple[Path, ...]:
    """The files that pip reads, the one that counts most last: the machine's, the user's, the
    environment's own."""
    named = environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return ()
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    name = "pip.ini" if sys.platform == "win32" else "pip.conf"
    shared = environ.get("XDG_CONFIG_DIRS", "").split(os.pathsep) if os.name == "posix" else []
    files = [Path(folder, "pip", name) for folder in (*filter(None, shared), "/etc/xdg")]
    files += [Path("/etc/pip.conf")]
    if sys.platform == "darwin":
        files.append(Path("/Library/Application Support/pip/pip.conf"))
    if program_data := environ.get("PROGRAMDATA"):
        files.append(Path(program_data, "pip", "pip.ini"))
    if not (named and Path(named).exists()):
        files += _users_own(environ, home, config, name)
    files += [Path(prefix, name)] if prefix else []
    return (*files, *((Path(named),) if named else ()))


def _users_own(environ: Mapping[str, str], home: Path, config: Path, name: str) -> tuple[Path, ...]:
    if sys.platform == "win32":
        roaming = environ.get("APPDATA") or home / "AppData" / "Roaming"
        return home / "pip" / name, Path(roaming, "pip", name)
    mac = home / "Library" / "Application Support" / "pip"
    own = mac if sys.platform == "darwin" and mac.is_dir() else config / "pip"
    return home / ".pip" / name, own / name


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
    for key in KEYS:
        if environ.get(variable(key)):
            found[key] = environ[variable(key)]
    return found


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
            f"{path} is no configuration of pip: {without_content(str(problem))}",
            hint="mend it (`pip config debug` shows what pip reads), or set "
            f"PIP_CONFIG_FILE={os.devnull}",
        ) from None
    return {name: _counting(parser, name) for name in SECTIONS if parser.has_section(name)}


def _counting(parser: RawConfigParser, section: str) -> dict[str, str]:
    settings = {key.replace("_", "-"): value for key, value in parser.items(section)}
    return {key: settings[key] for key in KEYS if settings.get(key)}


def without_content(problem: str) -> str:
    """A parser's complaint, without the line that it quotes: that may hold a password.

    >>> without_content("File contains no section headers.")
    'File contains no section headers.'
    """
    return problem.partition(":")[0][:120].rstrip(".") + "."
