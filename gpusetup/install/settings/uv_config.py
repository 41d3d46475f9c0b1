"""uv's settings as the user has them, as far as they say where packages come from.

uv is asked what else would be fetched. What its configuration says of another target, of hashes in
a requirements file or of the form of a lock (`target`, `require-hashes`, `torch-backend`, ...) is
about other questions and would give a wrong answer, or none.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpusetup.errors import BadInput
from gpusetup.install.credentials import split_login

KEPT = (
    *("index", "index-url", "extra-index-url", "find-links", "no-index", "index-strategy"),
    *("keyring-provider", "allow-insecure-host", "native-tls", "system-certs", "offline"),
    *("http-proxy", "https-proxy", "no-proxy", "cache-dir"),
    *("exclude-newer", "exclude-newer-package", "resolution", "prerelease"),
    *("constraint-dependencies", "override-dependencies", "exclude-dependencies"),
)
"""The settings that count, at the top and under `[pip]`
(https://docs.astral.sh/uv/reference/settings/)."""
HEAD = "# gpusetup guard"
"""How a `uv.toml` begins that the guard wrote: it is for other installers than us."""
MOST_FILES = 8
SOURCES = ("index", "index-url", "extra-index-url", "no-index")


def users_settings(environ: Mapping[str, str], home: Path) -> dict[str, Any]:
    """What uv's files say, run in the folder we are in; one that was deleted has none."""
    try:
        folder = Path.cwd()
    except FileNotFoundError:
        folder = Path("/")
    return settings_of(uv_files(environ, home, folder))


def uv_files(environ: Mapping[str, str], home: Path, folder: Path) -> tuple[Path, ...]:
    """The files that uv reads when it is run in a folder, the one that counts most first."""
    if environ.get("UV_NO_CONFIG"):
        return ()
    if named := environ.get("UV_CONFIG_FILE"):
        return (Path(named),)
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    users = [config / "uv" / "uv.toml", Path(environ.get("APPDATA", config), "uv", "uv.toml")]
    systems = [Path("/etc/xdg/uv/uv.toml"), Path("/etc/uv/uv.toml")]
    found = (next((p for p in paths if _is_file(p)), None) for paths in (users, systems))
    project = next((p for one in (folder, *folder.parents) for p in _project_file(one)), None)
    return tuple(path for path in (project, *found) if path is not None)


def _is_file(path: Path) -> bool:
    """As `is_file`; one that we may not look at is none."""
    try:
        return path.is_file()
    except OSError:
        return False


def _project_file(folder: Path) -> Iterator[Path]:
    if _is_file(folder / "uv.toml"):
        yield folder / "uv.toml"
    elif names_settings(folder / "pyproject.toml"):
        yield folder / "pyproject.toml"


def names_settings(project: Path) -> bool:
    """Whether a project's file has settings of uv."""
    return "uv" in _toml(project).get("tool", {})


def settings_of(files: tuple[Path, ...]) -> dict[str, Any]:
    """What the files say together: lists add up, of anything else the first counts."""
    merged: dict[str, Any] = {}
    for path in files:
        said = {} if is_guard(path) else _toml(path)
        own = said.get("tool", {}).get("uv", {}) if path.name == "pyproject.toml" else said
        _require_urls(own, path)
        _merge(merged, _kept(own, path.parent))
        _merge(merged.setdefault("pip", {}), _kept(own.get("pip", {}), path.parent))
    return merged


def is_guard(path: Path) -> bool:
    """Whether the guard wrote a file."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return path.name == "uv.toml" and file.read(len(HEAD)) == HEAD
    except OSError:
        return False


def _require_urls(table: Mapping[str, Any], path: Path) -> None:
    """`BadInput` where an index has no URL, as uv refuses it too."""
    rows = table.get("index", [])
    is_list = isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
    if not is_list or not all(isinstance(row.get("url"), str) for row in rows):
        raise BadInput(
            f"{path}: an index has no `url`",
            hint="each `[[index]]` needs one; mend it, or UV_NO_CONFIG=1",
        )


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, list):
            into[key] = [*into.get(key, []), *value]
        else:
            into.setdefault(key, value)


def _kept(table: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    return {key: _absolute(key, table[key], folder) for key in KEPT if key in table}


def _absolute(key: str, value: Any, folder: Path) -> Any:
    """Paths are meant from the folder of the file that names them."""
    if isinstance(value, list):
        return [_absolute(key, one, folder) for one in value]
    if isinstance(value, dict):
        return {name: _absolute(name, one, folder) for name, one in value.items()}
    is_place = key in ("url", "index-url", "extra-index-url", "find-links", "cache-dir")
    if is_place and isinstance(value, str) and "://" not in value and not value.startswith("~"):
        return str(folder / value)
    return value


def names_an_index(settings: Mapping[str, Any]) -> bool:
    """Whether anything tells uv which indexes to use."""
    return any(key in settings or key in settings.get("pip", {}) for key in SOURCES)


def index_urls(settings: Mapping[str, Any]) -> Iterator[tuple[str | None, str]]:
    """Name, where it has one, and URL of every index."""
    for table in (settings, settings.get("pip", {})):
        for row in table.get("index", []):
            if "url" in row:
                yield row.get("name"), str(row["url"])
        for key in ("index-url", "extra-index-url"):
            yield from ((None, url) for url in _texts(table.get(key, [])))


def link_urls(settings: Mapping[str, Any]) -> Iterator[str]:
    """Folders and pages of `find-links`: packages lie there beside those of the indexes."""
    for table in (settings, settings.get("pip", {})):
        yield from _texts(table.get("find-links", []))


def _texts(value: Any) -> Iterator[str]:
    yield from map(str, value if isinstance(value, list) else [value])


LISTS = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_EXTRA_INDEX_URL", " "),
    "find-links": ("UV_FIND_LINKS", ","),
}
"""Settings that are URLs -> the variable that says the same, and what stands between two."""


def split_credentials(
    settings: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings without names and passwords, and the variables that hold these: a file may
    outlive us. What a variable says already counts before a file.

    >>> index = {"name": "own", "url": "https://me:pw@i/simple"}
    >>> bare, variables = split_credentials({"index": [index]}, {})
    >>> bare, variables["UV_INDEX_OWN_PASSWORD"]
    ({'index': [{'name': 'own', 'url': 'https://i/simple'}]}, 'pw')
    """
    variables: dict[str, str] = {}
    rest = {key: value for key, value in settings.items() if key != "pip"}
    for table in (rest, {**settings.get("pip", {})}):
        for key, (variable, between) in LISTS.items():
            urls = table.get(key, [])
            urls = urls if isinstance(urls, list) else [urls]
            if any(split_login(str(url))[1] for url in urls):
                del table[key]
                variables.setdefault(
                    variable, environ.get(variable) or between.join(map(str, urls))
                )
        if isinstance(table.get("index"), list):
            table["index"] = [_bare(row, n, variables) for n, row in enumerate(table["index"])]
        if table is not rest and table:
            rest["pip"] = table
    return rest, variables


def _bare(row: Any, number: int, variables: dict[str, str]) -> Any:
    """An index without its login, which goes to the variables of its name."""
    if not isinstance(row, dict):
        return row
    url, login = split_login(str(row.get("url", "")))
    if login is None:
        return row
    name = str(row.get("name") or f"gpusetup-{number}")
    stem = index_variable(name)
    variables |= {f"{stem}_USERNAME": login[0], f"{stem}_PASSWORD": login[1]}
    return {"name": name, **row, "url": url}


def index_variable(name: str) -> str:
    """What uv's variables for an index begin with.

    >>> index_variable("a-b")
    'UV_INDEX_A_B'
    """
    return "UV_INDEX_" + re.sub(r"[^A-Z0-9]", "_", name.upper())


def url_of_index(word: str) -> str:
    """The URL of an index as `UV_INDEX` has it.

    >>> url_of_index("own=https://i/simple?a=b"), url_of_index("https://i/simple?a=b")
    ('https://i/simple?a=b', 'https://i/simple?a=b')
    """
    return word.partition("=")[2] if "=" in word.partition("://")[0] else word


def write_settings(settings: Mapping[str, Any], path: Path) -> Path:
    """The settings as a file for uv."""
    import tomlkit

    path.write_text(tomlkit.dumps(settings), encoding="utf-8")
    return path


def _toml(path: Path) -> dict[str, Any]:
    """What a file says; nothing where it is not there. `BadInput` for a `uv.toml` that is no TOML:
    without it, packages would come from elsewhere."""
    try:
        return _parsed(path.read_text(encoding="utf-8"))
    except OSError:
        return {}
    except ValueError as problem:
        if path.name == "pyproject.toml":
            return {}
        raise BadInput(f"{path} is no TOML: {problem}", hint="mend it, or UV_NO_CONFIG=1") from None


@lru_cache(MOST_FILES)
def _parsed(text: str) -> dict[str, Any]:
    """A file is asked for its index, its logins and its settings; nobody changes what it says."""
    return parse_toml(text)


def parse_toml(text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib

        return tomllib.loads(text)
    import tomli

    return dict(tomli.loads(text))
