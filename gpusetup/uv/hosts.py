"""The hosts from which packages may come: those of the indexes, and those where the indexes keep
their files.

An index may redirect to other hosts, and its pages may link to files on them. gpusetup only allows
hosts that the user was shown: the index's own, those that its documentation names for its files,
and those that the user names in GPUSETUP_FILE_HOSTS. The pages of uv's default index also tell
where its files are (`releases.file_hosts_of`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from gpusetup.errors import Unreached
from gpusetup.model.shell import own_setting

NAMED_BY_PERSON = "GPUSETUP_FILE_HOSTS"
"""The variable with additional hosts, such as `files.example packages.example:8443`."""
WEB = ("http:", "https:")
ON_DISK = "file:"
PORTS = {"http": 80, "https": 443}

FILE_HOSTS = (
    # Since 2025, the pages of torch's index link to this other name of the same storage.
    ("download.pytorch.org", "download-r2.pytorch.org"),
    # https://docs.aws.amazon.com/codeartifact/latest/ug/create-s3-gateway-endpoint.html
    ("*.codeartifact.*.amazonaws.com", "assets-*.s3.*.amazonaws.com"),
    # https://learn.microsoft.com/azure/devops/organizations/security/allow-list-ip-url
    ("pkgs.dev.azure.com", "*.blob.core.windows.net"),
    ("*.pkgs.visualstudio.com", "*.blob.core.windows.net"),
    # https://docs.github.com/rest/releases/assets : downloads of a release are redirected to these
    # hosts.
    ("github.com", "release-assets.githubusercontent.com"),
    ("github.com", "objects.githubusercontent.com"),
)
"""Pairs of an index's host and a host where the index's operator keeps the files, according to the
operator's documentation; `*` matches any text."""


class HostAddress(NamedTuple):
    """A host and its port. The same host with another port counts as a different server."""

    name: str
    port: int

    def __str__(self) -> str:
        """
        >>> str(HostAddress("files.example", 443)), str(HostAddress("files.example", 8443))
        ('files.example', 'files.example:8443')
        """
        name = f"[{self.name}]" if ":" in self.name else self.name
        if self.port == PORTS["https"]:
            return name
        return f"{name}:{self.port}"


def host_of(url: str) -> HostAddress | None:
    """The host of a URL, with its port; None for a folder or anything else that is not an http or
    https URL.

    >>> host_of("https://me:secret@Packages.example/simple")
    HostAddress(name='packages.example', port=443)
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        # The port is not a number, or a bracket is not closed.
        return None
    default_port = PORTS.get(parts.scheme)
    if parts.hostname is None or default_port is None:
        return None
    return HostAddress(plain_name(parts.hostname), port or default_port)


def host_named(text: str) -> HostAddress | None:
    """The host in a text such as `files.example` or `files.example:8443`; None if it is not a
    host."""
    return host_of(f"https://{text}")


def plain_name(name: str) -> str:
    """A host's name as it is sent over the network: in ASCII and lower case, without a dot at the
    end."""
    try:
        return name.rstrip(".").encode("idna").decode().lower()
    except UnicodeError:
        return name.lower()


class AllowedHosts:
    """The hosts to which uv and gpusetup's own requests may connect."""

    def __init__(self, addresses: Iterable[str]) -> None:
        """Allow the hosts of these addresses, which are the indexes and wheel pages in the plan,
        and the hosts that the user named."""
        hosts: list[HostAddress] = []
        folders: list[str] = []
        for address in addresses:
            host = host_of(address)
            # A folder with wheels has no host.
            if host is not None:
                hosts.append(host)
            elif not address.startswith(WEB):
                folders.append(folder_uri(address))
        hosts += hosts_named_by_person()
        self.hosts = tuple(dict.fromkeys(hosts))
        self.folders = tuple(folders)
        """The URLs of indexes and pages on disk, with a slash at the end."""
        patterns: list[str] = []
        for host in self.hosts:
            patterns += documented_file_hosts(host)
        self.patterns = tuple(patterns)

    def allows(self, host: HostAddress | None) -> bool:
        """Whether a host is allowed, because it is one of the hosts or a documented file host of
        one of them."""
        if host is None:
            return False
        if host in self.hosts:
            return True
        # Documented file hosts are always reached over https.
        is_https = host.port == PORTS["https"]
        return is_https and any(fnmatchcase(host.name, pattern) for pattern in self.patterns)

    def require(self, url: str) -> None:
        """Raise Unreached if a URL's host is not allowed. A folder has no host, so it is always
        allowed."""
        host = host_of(url)
        if host is not None and not self.allows(host):
            raise self.refusal([host])

    def require_file(self, url: str, project: str) -> None:
        """Raise `Unreached` for a file on this machine if only a web page can have led to it.

        A file on disk must be in a folder that was shown to the user. An index on disk may also
        link to files elsewhere, but only for projects that it contains.
        """
        path = unquote(url)
        for folder in self.folders:
            is_inside = path.startswith(folder)
            is_listed_there = Path(folder.removeprefix("file://"), project).is_dir()
            if is_inside or is_listed_there:
                return
        shown = ", ".join((*map(str, self.hosts), *self.folders))
        raise Unreached(
            f"An index leads to a file of this machine: {path} (asked: {shown})",
            hint="nothing was changed, and that file was not taken; if it is the one that you "
            "want, name its folder in your settings: `UV_FIND_LINKS=DIR`",
        )

    def refusal(self, hosts: Iterable[HostAddress]) -> Unreached:
        """The error for a redirect or link to hosts that are not allowed, with the command that
        allows them."""
        strange = " ".join(dict.fromkeys(map(str, hosts)))
        shown = ", ".join(map(str, self.hosts))
        named = os.environ.get(NAMED_BY_PERSON, "")
        command = own_setting(NAMED_BY_PERSON, f"{named} {strange}".strip())
        return Unreached(
            f"An index leads to {strange}, which you have not named (asked: {shown})",
            hint="nothing was changed, and that host was not asked; if its files are those that "
            f"you want, allow it: `{command}`, then run this again",
        )


def folder_uri(folder: str) -> str:
    """The `file://` address of a folder, not encoded, with a slash at its end.

    >>> folder_uri("/home/ann/my wheels")
    'file:///home/ann/my wheels/'
    """
    if folder.startswith(ON_DISK):
        address = unquote(folder)
    else:
        address = unquote(Path(folder).absolute().as_uri())
    return address.rstrip("/") + "/"


def documented_file_hosts(host: HostAddress) -> tuple[str, ...]:
    """The hosts where an index keeps its files according to its operator, as patterns; empty if
    none is known.

    >>> documented_file_hosts(HostAddress("pkgs.dev.azure.com", 443))
    ('*.blob.core.windows.net',)
    """
    if host.port != PORTS["https"]:
        return ()
    file_hosts: list[str] = []
    for index, files in FILE_HOSTS:
        if fnmatchcase(host.name, index):
            file_hosts.append(files)
    return tuple(file_hosts)


def hosts_named_by_person() -> tuple[HostAddress, ...]:
    """The additional hosts that the user names in GPUSETUP_FILE_HOSTS."""
    hosts: list[HostAddress] = []
    for text in os.environ.get(NAMED_BY_PERSON, "").split():
        host = host_named(text)
        # A text that is not a host is ignored.
        if host is not None:
            hosts.append(host)
    return tuple(hosts)
