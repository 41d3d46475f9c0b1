"""The isolated surroundings for a run of uv: a private folder, environment variables, and one proxy
to the network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.uv.hosts import AllowedHosts, HostAddress
from gpusetup.uv.program import private_folder
from gpusetup.uv.settings import PersonSettings
from gpusetup.uv.toml import toml_text

if TYPE_CHECKING:
    from gpusetup.uv.gateway import Gateway

CREDENTIALS = "credentials.toml"
"""The file in which `uv auth login` stores passwords."""
CONFIGURATION = "uv.toml"


class World:
    """The surroundings of a uv run: its folder, its environment variables, and the proxy to the
    network (None if it must not use the network)."""

    def __init__(self, folder: Path, environment: dict[str, str], way_out: Gateway | None) -> None:
        self.folder = folder
        self.environment = environment
        self.way_out = way_out

    @property
    def proxies(self) -> dict[str, str | list[str]]:
        """The uv settings that send every connection through gpusetup's proxy; empty if uv may not
        use the network.

        They are settings and not variables, because a keyring program that uv starts must reach its
        own hosts through the user's proxy.
        """
        if self.way_out is None:
            return {}
        url = self.way_out.url
        # Set no exceptions (`no-proxy`), because uv would bypass gpusetup's proxy for them. That
        # proxy handles the user's exceptions itself.
        return {"http-proxy": url, "https-proxy": url, "no-proxy": []}

    @property
    def contacted(self) -> tuple[str, ...]:
        """The hosts to which uv connected, each once."""
        if self.way_out is None:
            return ()
        names = [str(host) for host in self.way_out.contacted]
        return tuple(dict.fromkeys(names))

    @property
    def failures(self) -> Mapping[HostAddress, str]:
        """Maps each host that could not be reached to the reason."""
        if self.way_out is None:
            return {}
        return self.way_out.failures

    def configure(self, configuration: str = "") -> Path:
        """Write the only settings file that uv gets, with the proxy and these settings, and return
        its path."""
        # The proxy settings come first, because the other settings end with tables, and in TOML a
        # key after a table would belong to that table.
        lines = [f"{key} = {toml_text(value)}" for key, value in self.proxies.items()]
        path = self.folder / CONFIGURATION
        path.write_text("\n".join((*lines, configuration)), encoding="utf-8")
        return path

    def refuse_strange_hosts(self) -> None:
        """Raise Unreached if uv tried to reach a host that is not allowed."""
        way_out = self.way_out
        if way_out is None or not way_out.refused:
            return
        raise way_out.allowed.refusal(way_out.refused)


@contextmanager
def private_world(
    settings: PersonSettings, environment: Mapping[str, str], addresses: Iterable[str] | None
) -> Iterator[World]:
    """A context manager that provides isolated surroundings for one run of uv, and removes them
    afterwards.

    `environment` contains uv's environment variables. `addresses` are the indexes and pages that uv
    may ask besides the user's own; None if it must not ask any.
    """
    with private_folder() as folder:
        private = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
        private["UV_CREDENTIALS_DIR"] = str(_credentials_in(folder))
        variables = {**environment, **private}
        if addresses is None:
            yield World(folder, variables, None)
            return
        # Imported here, because it needs TLS, which not every Python has, and is only used with a
        # network.
        from gpusetup.uv.gateway import gateway

        allowed = AllowedHosts((*addresses, *settings.addresses))
        with gateway(allowed, variables) as way_out:
            yield World(folder, variables, way_out)


def _credentials_in(folder: Path) -> Path:
    """Create a folder in which uv finds the passwords that the user stored with `uv auth login`.

    uv puts a lock file beside the passwords whenever it reads them. A command that only shows
    something must not change the user's files, so uv gets a link to the passwords in a private
    folder.
    """
    credentials = folder / "credentials"
    credentials.mkdir(mode=0o700)
    theirs = _credentials_of_person()
    if theirs.is_file():
        ours = credentials / CREDENTIALS
        try:
            ours.symlink_to(theirs)
        except OSError:
            # On Windows, few users may create links, so make a copy. It is deleted with the folder.
            with suppress(OSError):
                shutil.copyfile(theirs, ours)
    return credentials


def _credentials_of_person() -> Path:
    """The path of the file in which uv stores the user's passwords.

    https://docs.astral.sh/uv/concepts/authentication/cli/
    """
    environ = os.environ
    named = environ.get("UV_CREDENTIALS_DIR")
    if named:
        return Path(named).absolute() / CREDENTIALS
    if os.name == "nt":
        return Path(environ.get("APPDATA", ""), "uv", "data", "credentials", CREDENTIALS)
    data = environ.get("XDG_DATA_HOME")
    folder = Path(data) if data else Path.home() / ".local" / "share"
    return folder / "uv" / "credentials" / CREDENTIALS
