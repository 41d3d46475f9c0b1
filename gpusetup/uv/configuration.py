"""Reads uv's settings as data, from environment variables and from the user's and the system's
uv.toml.

Files in the working folder, its parents and the environment are not read, because a checkout or
another user may have put them there. They are only mentioned, so that the user knows why they have
no effect.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpusetup import named_file
from gpusetup.errors import BadInput
from gpusetup.model.frozen import Frozen
from gpusetup.model.shell import own_setting
from gpusetup.uv.pip_settings import PIP_FILE
from gpusetup.uv.toml import parse_toml

MOST_BYTES = 1 << 20
"""The maximum size of a configuration file; uv's usually have a few lines."""
YES = ("1", "true", "t", "yes", "y", "on")
"""The values of a variable that uv reads as true (clap's BoolishValueParser)."""

TEXTS = {
    "UV_DEFAULT_INDEX": "default-index",
    "UV_INDEX_URL": "index-url",
    "UV_INDEX_STRATEGY": "index-strategy",
    "UV_KEYRING_PROVIDER": "keyring-provider",
    "UV_EXCLUDE_NEWER": "exclude-newer",
    "UV_RESOLUTION": "resolution",
    "UV_PRERELEASE": "prerelease",
    "UV_LINK_MODE": "link-mode",
}
SWITCHES = {
    "UV_NO_INDEX": "no-index",
    "UV_OFFLINE": "offline",
    "UV_NATIVE_TLS": "system-certs",
    "UV_SYSTEM_CERTS": "system-certs",
}
NUMBERS = {
    "UV_CONCURRENT_DOWNLOADS": "concurrent-downloads",
    "UV_CONCURRENT_INSTALLS": "concurrent-installs",
}
LISTS = {
    "UV_INDEX": ("index", r"\s+"),
    "UV_EXTRA_INDEX_URL": ("extra-index-url", r"\s+"),
    "UV_FIND_LINKS": ("find-links", ","),
    "UV_INSECURE_HOST": ("allow-insecure-host", r"\s+"),
    "UV_CONSTRAINT": ("constraint-files", r"\s+"),
    "UV_OVERRIDE": ("override-files", r"\s+"),
    "UV_EXCLUDE": ("exclude-files", r"\s+"),
}
"""Maps each variable to the name of its setting and the separator of its items
(https://docs.astral.sh/uv/reference/environment/)."""

HONOURED = frozenset(
    (
        *TEXTS.values(),
        *SWITCHES.values(),
        *NUMBERS.values(),
        *(key for key, _ in LISTS.values()),
        *("constraint-dependencies", "override-dependencies", "exclude-dependencies"),
        *("exclude-newer-package", "prerelease-package", "native-tls"),
        *("http-proxy", "https-proxy", "no-proxy"),
    )
)
"""The settings that gpusetup applies. It ignores all others, and mentions those that matter for
packages."""

NOT_ABOUT_PACKAGES = re.compile(
    r"UV_(UV|CACHE_DIR|NO_CACHE|PYTHON(?!_PLATFORM|_VERSION).*|(NO_)?MANAGED_PYTHON|TOOL_.*|PROJECT.*|WORKING_DIR|VENV_.*"
    r"|INSTALL_DIR|INSTALLER_.*|UNMANAGED_INSTALL|DISABLE_UPDATE|NO_MODIFY_PATH|PUBLISH_.*|HTTP_.*"
    r"|REQUEST_TIMEOUT|LOCK_TIMEOUT|NO_PROGRESS|PREVIEW.*|LOG_CONTEXT|STACK_SIZE|RUN_.*"
    r"|(NO_)?ENV_FILE|NO_SYNC|FROZEN|LOCKED|ISOLATED|.*_TOKEN|COLOR|GITHUB_.*|INIT_.*|DOWNLOAD_URL"
    r"|S3_.*|CONFIG_FILE|NO_CONFIG|CREDENTIALS_DIR|CONCURRENT_BUILDS|REQUIRED_VERSION"
    r"|INDEX_.*_(USERNAME|PASSWORD)|CHECK_URL|TRUSTED_PUBLISHING|ENVIRONMENTS|REQUIRED_ENVIRONMENTS"
    r"|MANAGED|PACKAGE|WORKSPACE|SOURCES|DEFAULT_GROUPS|DEPENDENCY_GROUPS|DEV_DEPENDENCIES"
    r"|BUILD_BACKEND|CONFLICTS|ADD_BOUNDS|AUDIT.*)"
)
"""Settings of other uv commands, and those that cannot change which files are installed."""


class SettingsSource(Frozen):
    """The settings from one variable or file, with the key names of uv.toml."""

    name: str
    """The name of the variable or the path of the file."""
    values: Mapping[str, Any]
    folder: str
    """The folder to which its relative paths refer."""


# --- variables ------------------------------------------------------------------------------------


def sources_of_settings() -> tuple[SettingsSource, ...]:
    """All variables and files whose settings apply, in uv's order. If several have a setting, the
    first one wins."""
    sources = list(_of_variables())
    # Variables come before files, and the user's file before the system's.
    for path in _files_that_count():
        sources.append(_of_file(path))
    return tuple(sources)


def working_folder() -> str:
    """The folder in which the user runs gpusetup; the root folder if it no longer exists."""
    try:
        return os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        return os.sep


def _of_variables() -> Iterator[SettingsSource]:
    """Yields the settings of each uv variable that is set."""
    folder = working_folder()
    for variable, values in _values_of_variables():
        yield SettingsSource(name=variable, values=values, folder=folder)


def _values_of_variables() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields each variable that is set, with its value under the key name of uv.toml."""
    environ = os.environ
    for variable, key in TEXTS.items():
        text = environ.get(variable)
        # uv ignores an empty variable.
        if text:
            yield variable, {key: text}
    for variable, key in SWITCHES.items():
        text = environ.get(variable)
        if text:
            is_on = text.lower() in YES
            yield variable, {key: is_on}
    for variable, key in NUMBERS.items():
        text = environ.get(variable, "")
        if text.isdigit():
            yield variable, {key: int(text)}
    for variable, (key, separator) in LISTS.items():
        items = re.split(separator, environ.get(variable, ""))
        # A separator at the end creates an empty item.
        filled = [item for item in items if item]
        if filled:
            yield variable, {key: filled}


# --- files ----------------------------------------------------------------------------------------


def _files_that_count() -> Iterator[Path]:
    """Yields the uv.toml that UV_CONFIG_FILE names or, without that variable, the user's and the
    system's if they exist. Yields nothing if UV_NO_CONFIG is set.

    https://docs.astral.sh/uv/concepts/configuration-files/
    """
    if os.environ.get("UV_NO_CONFIG", "").lower() in YES:
        return
    named_by_user = os.environ.get("UV_CONFIG_FILE")
    if named_by_user:
        yield Path(named_by_user).absolute()
        return
    for folder in _configuration_folders():
        path = folder / "uv" / "uv.toml"
        # Like uv, also accept a pipe at this path, and only skip a folder.
        if path.exists() and not path.is_dir():
            yield path


def _configuration_folders() -> tuple[Path, ...]:
    """The folders that may contain a `uv` configuration folder: the user's first, then the
    system's."""
    environ = os.environ
    if os.name == "nt":
        names = [environ.get("APPDATA", ""), environ.get("PROGRAMDATA", "")]
        return tuple(Path(name) for name in names if name)
    user = environ.get("XDG_CONFIG_HOME")
    folders = [Path(user) if user else Path.home() / ".config"]
    # https://specifications.freedesktop.org/basedir-spec/latest/
    system = environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    for name in system.split(os.pathsep):
        if name:
            folders.append(Path(name))
    folders.append(Path("/etc"))
    return tuple(folders)


def _of_file(path: Path) -> SettingsSource:
    """The settings in a uv.toml. Those in its `[pip]` table win, because gpusetup installs with `uv
    pip`.

    Raises BadInput if the file is invalid, because ignoring its settings could install packages
    from another index.
    """
    try:
        values = parse_toml(named_file.read_text_once(path, MOST_BYTES))
    except ValueError:
        # The parser's message is not shown, because it may quote a password.
        raise BadInput(
            f"{path} is not a configuration of uv",
            hint=f"fix it, or name another: `{own_setting('UV_CONFIG_FILE', 'FILE')}`",
        ) from None
    pip = values.pop("pip", None)
    if isinstance(pip, dict):
        values |= pip
    return SettingsSource(name=str(path), values=values, folder=str(path.parent))


# --- files and settings that gpusetup ignores -----------------------------------------------------


def ignored_settings(sources: tuple[SettingsSource, ...]) -> Iterator[str]:
    """Yields sentences about package settings that gpusetup ignores: one for each file, and one for
    all variables."""
    for source in sources:
        unused = source.values.keys() - HONOURED
        keys = sorted(key for key in unused if _is_about_packages(key))
        if keys:
            yield f"{source.name} also sets {', '.join(keys)}, which gpusetup does not use"
    honoured = {*TEXTS, *SWITCHES, *NUMBERS, *LISTS}
    variables: list[str] = []
    for name in sorted(os.environ):
        is_unused = name.startswith("UV_") and name not in honoured
        if is_unused and not NOT_ABOUT_PACKAGES.fullmatch(name):
            variables.append(name)
    if variables:
        yield f"{', '.join(variables)} is set, which gpusetup does not use"


def _is_about_packages(key: str) -> bool:
    """Whether a setting may change which files are installed."""
    # A setting's variable has the same name in capitals: `UV_LINK_MODE` for `link-mode`.
    variable = f"UV_{key.upper()}".replace("-", "_")
    match = NOT_ABOUT_PACKAGES.fullmatch(variable)
    return match is None


def files_not_read(folder: Path, prefix: str | None) -> Iterator[str]:
    """Yields a sentence for a uv configuration near this folder and for the environment's pip.conf,
    which gpusetup does not read.

    uv and pip themselves would read these files. But they may come with a checkout, so gpusetup
    only uses them if the user names them.
    """
    near = _configuration_near(folder)
    if near is not None:
        path, keys = near
        named_by_user = os.environ.get("UV_CONFIG_FILE")
        is_named = bool(named_by_user) and Path(named_by_user or "").absolute() == path
        way_on = "name an index with UV_DEFAULT_INDEX or UV_INDEX"
        # UV_CONFIG_FILE only accepts the format of uv.toml, not a pyproject.toml.
        if path.name == "uv.toml":
            way_on = f"to use it: `{own_setting('UV_CONFIG_FILE', str(path))}`"
        if not is_named:
            # A folder's name may contain a line break, which would look like a new line of the
            # plan.
            shown = " ".join(str(path).splitlines())
            yield f"{shown} is not read (it sets {', '.join(keys)}); {way_on}"
    if prefix is None:
        return
    pip_file = Path(prefix, PIP_FILE)
    if pip_file.is_file() and _names_an_index(pip_file):
        command = own_setting("PIP_CONFIG_FILE", str(pip_file))
        yield f"{pip_file} is not read; to use it: `{command}`"


def _configuration_near(folder: Path) -> tuple[Path, tuple[str, ...]] | None:
    """The path of the configuration that uv itself would find in this folder or its parents, and
    the package settings in it; None if there is none."""
    for parent in (folder, *folder.parents):
        for path in (parent / "uv.toml", parent / "pyproject.toml"):
            if not path.is_file():
                continue
            try:
                values = parse_toml(named_file.read_text(path, MOST_BYTES))
            except (BadInput, ValueError):
                # An invalid file that may belong to somebody else must not stop gpusetup.
                continue
            if path.name == "pyproject.toml":
                tool = values.get("tool")
                values = tool.get("uv", {}) if isinstance(tool, dict) else {}
            # Settings that do not affect packages (such as `cache-dir`) do not matter here.
            keys = sorted(values.keys() & {*HONOURED, "pip"}) if isinstance(values, dict) else []
            if keys:
                return path, tuple(keys)
    return None


def _names_an_index(path: Path) -> bool:
    try:
        text = named_file.read_text(path, MOST_BYTES)
    except BadInput:
        return False
    return re.search(r"(?im)^\s*(extra[-_])?index[-_]url\s*[=:]", text) is not None
