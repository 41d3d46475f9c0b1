"""The indexes in the user's settings for uv or, if there are none, for pip."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.logins import split_login
from gpusetup.system.processes import run
from gpusetup.uv.configuration import SettingsSource, working_folder
from gpusetup.uv.hosts import documented_file_hosts, host_of
from gpusetup.uv.program import ASK_SECONDS, clean_environment, uv_program

NAMED = re.compile(r"([\w.-]+)=(.+)")
"""A named index in a variable, such as `corp=https://packages.example/simple`."""
OPTIONS = ("authenticate", "ignore-error-codes", "cache-control", "format", "exclude-newer")
"""Further keys of an `[[index]]` table that are passed to uv."""


class Index(Frozen):
    """A package index, the setting that it comes from, and its login, which the URL itself does
    not contain."""

    url: str
    source: str
    """The variable or file that names the index."""
    name: str | None = None
    login: tuple[str, str] | None = None
    """User and password; the password is empty if a keyring has it."""
    is_default: bool = False
    options: Mapping[str, Any] = {}

    @property
    def host(self) -> str:
        """The host of the index, with its port if the URL has one; for an index on disk, its
        folder."""
        parts = urlsplit(self.url)
        if parts.netloc:
            return parts.netloc
        return self.url

    @property
    def shown(self) -> str:
        """The index as text for the user: its host, the setting that names it, and the hosts of its
        files.

        >>> Index(url="https://packages.example/simple", source="UV_INDEX").shown
        'packages.example (UV_INDEX)'
        """
        host = host_of(self.url)
        file_hosts = documented_file_hosts(host) if host else ()
        files = f"; files: {', '.join(file_hosts)}" if file_hosts else ""
        return f"{self.host} ({self.source}{files})"


def indexes_of(sources: tuple[SettingsSource, ...]) -> tuple[Index, ...]:
    """The indexes in uv's settings: extra indexes in order, the default index last.

    An index that only serves packages which a project assigns to it (`explicit`) is left out,
    because gpusetup does not read a project's sources.
    """
    extra: list[Index] = []
    default: Index | None = None
    names: set[str] = set()
    for source in sources:
        for index in _named_in(source):
            # If two indexes have the same name, uv uses the first one.
            if index.name and index.name in names:
                continue
            names.add(index.name or "")
            if not index.is_default:
                extra.append(index)
            elif default is None:
                default = index
    return (*extra, *((default,) if default else ()))


def _named_in(source: SettingsSource) -> Iterator[Index]:
    """Yields the indexes in one variable or file, in the order in which uv uses them."""
    for key in ("index", "extra-index-url"):
        rows = source.values.get(key)
        if not isinstance(rows, list):
            continue
        for row in rows:
            # A variable contains URLs, a file contains tables. An explicit index only serves
            # packages that a project assigns to it.
            table = row if isinstance(row, dict) else {"url": row}
            is_explicit = table.get("explicit")
            if not is_explicit:
                yield _index(table, source, is_default=bool(table.get("default")))
    for key in ("default-index", "index-url"):
        address = source.values.get(key)
        if isinstance(address, str):
            yield _index({"url": address}, source, is_default=True)


def _index(table: Mapping[str, Any], source: SettingsSource, *, is_default: bool) -> Index:
    """An index from one setting, with the login from its URL or from variables."""
    address = str(table.get("url", ""))
    name = table.get("name")
    # Matches `corp=https://...`. A URL may also contain `=`, but only after its first slash.
    named = NAMED.fullmatch(address)
    if named and "/" not in named[1]:
        name = named[1]
        address = named[2]
    url, login = split_login(address)
    if name and login is None:
        login = _login_in_variables(str(name))
    return Index(
        url=with_whole_path(url, source.folder),
        source=source.name,
        name=str(name) if name else None,
        login=login,
        is_default=is_default,
        options={key: table[key] for key in OPTIONS if key in table},
    )


def with_whole_path(url: str, folder: str) -> str:
    """A URL unchanged, or a folder as an absolute path.

    >>> with_whole_path("wheels", "/home/ann")
    '/home/ann/wheels'
    """
    is_address = "://" in url
    if is_address:
        return url
    path = Path(folder, url)
    return os.path.normpath(path)


def _login_in_variables(name: str) -> tuple[str, str] | None:
    """The user and password for an index named `corp`, from UV_INDEX_CORP_USERNAME and
    UV_INDEX_CORP_PASSWORD; None if neither is set."""
    plain_name = re.sub(r"\W", "_", name).upper()
    variable = f"UV_INDEX_{plain_name}"
    user = os.environ.get(f"{variable}_USERNAME", "")
    password = os.environ.get(f"{variable}_PASSWORD", "")
    if not user and not password:
        return None
    return user, password


def indexes_of_pip(pip: Mapping[str, str]) -> tuple[Index, ...]:
    """The indexes in pip's settings: extra indexes first, the default index last."""
    indexes: list[Index] = []
    folder = working_folder()
    # As everywhere, the default index comes last. pip accepts several URLs in one setting.
    for key in ("extra-index-url", "index-url"):
        source = SettingsSource(name=f"pip's {key}", values={}, folder=folder)
        is_default = key == "index-url"
        addresses = pip.get(key, "").split()
        for address in addresses:
            # pip's settings give an index no name, so its login can only be in the URL.
            index = _index({"url": address}, source, is_default=is_default)
            indexes.append(index)
    return tuple(indexes)


@cache
def usual_default() -> Index | None:
    """The default index that is built into uv; None if uv does not print it.

    It is read from uv and not stored here, because a uv release may change it.
    """
    # With `--offline` and no requirements, uv only prints the index that it would use.
    options = ("--no-config", "--emit-index-url", "--no-header", "--quiet", "--offline")
    python = ("--python", sys.executable)
    argv = (uv_program(), "pip", "compile", *options, *python, "-")
    environment = clean_environment()
    output = run(argv, timeout=ASK_SECONDS, environment=environment, stdin="\n")
    address = re.search(r"(?m)^--index-url (\S+)", output.stdout)
    if address is None:
        return None
    return Index(url=address[1], source="uv's default", is_default=True)


def is_usual_default(index: Index) -> bool:
    """Whether an index is uv's built-in default, whatever setting it comes from."""
    default = usual_default()
    return default is not None and index.url.rstrip("/") == default.url.rstrip("/")


def handed_over(indexes: tuple[Index, ...]) -> tuple[tuple[Index, ...], dict[str, str]]:
    """The indexes with new names, and the environment variables that pass their logins to uv under
    these names.

    Logins are not written to files or arguments, because other users may be able to read those.
    """
    renamed: list[Index] = []
    logins: dict[str, str] = {}
    for number, index in enumerate(indexes, start=1):
        # Rename the indexes, because a name from the user's settings could be the name of torch's
        # index in the request.
        name = f"index-{number}"
        renamed.append(replace(index, name=name))
        if index.login:
            variables = login_variables(f"INDEX_{number}", index.login)
            logins.update(variables)
    return tuple(renamed), logins


def login_variables(name: str, login: tuple[str, str]) -> dict[str, str]:
    """The environment variables from which uv reads the login of an index.

    >>> login_variables("TORCH", ("ann", ""))
    {'UV_INDEX_TORCH_USERNAME': 'ann'}
    """
    user, password = login
    variables = {f"UV_INDEX_{name}_USERNAME": user}
    # Without a password variable, uv asks the keyring. An empty variable would count as an empty
    # password.
    if password:
        variables[f"UV_INDEX_{name}_PASSWORD"] = password
    return variables
