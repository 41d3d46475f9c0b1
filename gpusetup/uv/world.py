"""The isolated surroundings of uv: a private folder, its variables, and one way into the
network."""

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
"""Where `uv auth login` keeps passwords, in a folder of its own."""
CONFIGURATION = "uv.toml"


class World:
    """Everything that one run of uv is given."""

    def __init__(self, folder: Path, environment: dict[str, str], way_out: Gateway | None) -> None:
        self.folder = folder
        self.environment = environment
        self.way_out = way_out

    @property
    def proxies(self) -> dict[str, str | list[str]]:
        """The settings that send every connection of uv through our own proxy.

        They are settings and no variables, because a keyring program that uv starts has its own
        hosts to reach, by the person's proxy.
        """
        if self.way_out is None:
            return {}
        url = self.way_out.url
        # With an exception uv would go past the proxy; that knows the person's exceptions itself.
        return {"http-proxy": url, "https-proxy": url, "no-proxy": []}

    @property
    def contacted(self) -> tuple[str, ...]:
        """The hosts that uv connected to."""
        if self.way_out is None:
            return ()
        names = [str(host) for host in self.way_out.contacted]
        return tuple(dict.fromkeys(names))

    @property
    def failures(self) -> Mapping[HostAddress, str]:
        """Why hosts could not be reached."""
        if self.way_out is None:
            return {}
        return self.way_out.failures

    def configure(self, configuration: str = "") -> Path:
        """Write uv's only settings file: our settings, and the way into the network."""
        # Before the other settings: in TOML a key after a table would belong to the table.
        lines = [f"{key} = {toml_text(value)}" for key, value in self.proxies.items()]
        path = self.folder / CONFIGURATION
        path.write_text("\n".join((*lines, configuration)), encoding="utf-8")
        return path

    def refuse_strange_hosts(self) -> None:
        """Raise `Unreached` if a redirect or link led uv to a host that was not shown."""
        way_out = self.way_out
        if way_out is None or not way_out.refused:
            return
        raise way_out.allowed.refusal(way_out.refused)


@contextmanager
def private_world(
    settings: PersonSettings, environment: Mapping[str, str], addresses: Iterable[str] | None
) -> Iterator[World]:
    """Isolated surroundings for one run of uv, removed after the block.

    `environment`: its variables; `addresses`: the indexes and pages that it may ask besides the
    person's own; None if it asks nobody.
    """
    with private_folder() as folder:
        private = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
        private["UV_CREDENTIALS_DIR"] = str(_credentials_in(folder))
        variables = {**environment, **private}
        if addresses is None:
            yield World(folder, variables, None)
            return
        # Only who asks the network needs sockets and TLS, and not every Python has TLS.
        from gpusetup.uv.gateway import gateway

        allowed = AllowedHosts((*addresses, *settings.addresses))
        with gateway(allowed, variables) as way_out:
            yield World(folder, variables, way_out)


def _credentials_in(folder: Path) -> Path:
    """A folder from which uv can read the person's stored passwords.

    uv puts a lock beside them whenever it looks, and a command that only shows changes nothing of
    the person's. So it finds a link to the file, in a folder of ours.
    """
    credentials = folder / "credentials"
    credentials.mkdir(mode=0o700)
    theirs = _credentials_of_person()
    if theirs.is_file():
        ours = credentials / CREDENTIALS
        try:
            ours.symlink_to(theirs)
        except OSError:
            # Windows allows links to few. The copy goes with the folder.
            with suppress(OSError):
                shutil.copyfile(theirs, ours)
    return credentials


def _credentials_of_person() -> Path:
    """Where uv keeps the person's passwords.

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
