"""Connects gpusetup's proxy to a host, directly or through the user's own proxy."""

from __future__ import annotations

import base64
import ipaddress
import os
import socket
import ssl
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import unquote, urlsplit

from gpusetup.uv.hosts import PORTS, HostAddress
from gpusetup.uv.relaying import read_exactly, read_head

CONNECT_SECONDS = 5.0
"""The timeout in seconds for one connection. uv waits equally long (`LIMITS` in program.py)."""
SOCKS_PORT = 1080
"""The default port of a SOCKS proxy (RFC 1928)."""


def proxies_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the proxy for each scheme. They come from these variables or, if the variables name
    none on Windows, from the system's settings.

    >>> proxies_of({"HTTPS_PROXY": "proxy.example:3128", "NO_PROXY": ".local"})
    {'https': 'http://proxy.example:3128', 'no': '.local'}
    """
    proxies: dict[str, str] = {}
    for scheme in ("http", "https", "all", "no"):
        # If both are set, programs prefer the lower-case variable.
        name = f"{scheme}_proxy"
        value = environment.get(name) or environment.get(name.upper())
        if value:
            is_address = scheme == "no" or "://" in value
            proxies[scheme] = value if is_address else f"http://{value}"
    if proxies.keys() <= {"no"} and os.name == "nt":
        # On Windows, these proxies are in the registry, which uv reads too.
        return {**urllib.request.getproxies(), **proxies}
    return proxies


def is_without_proxy(name: str, exceptions: str) -> bool:
    """Whether NO_PROXY contains a host: its name, its domain or a block of addresses.

    >>> is_without_proxy("mirror.corp.example", "localhost, .corp.example")
    True
    >>> is_without_proxy("10.1.2.3", "10.0.0.0/8")
    True
    """
    for word in exceptions.replace(",", " ").split():
        domain = word.lower().lstrip("*").lstrip(".")
        # A single `*` matches every host.
        if not domain or name == domain or name.endswith(f".{domain}"):
            return True
        with suppress(ValueError):
            if ipaddress.ip_address(name) in ipaddress.ip_network(word, strict=False):
                return True
    return False


def login_header(proxy: str) -> tuple[str, ...]:
    """The Proxy-Authorization header with the login in a proxy's URL; empty if it has no login."""
    parts = urlsplit(proxy)
    if parts.username is None:
        return ()
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return (f"Proxy-Authorization: Basic {base64.b64encode(login.encode()).decode()}",)


def reach(host: HostAddress, proxy: str | None, *, is_tunnel: bool) -> socket.socket:
    """A connection that leads to a host, directly or through a proxy. Raises OSError if it
    fails."""
    if proxy is None:
        return connected(host)
    parts = urlsplit(proxy)
    usual_port = PORTS.get(parts.scheme, SOCKS_PORT)
    server = connected(HostAddress(parts.hostname or "", parts.port or usual_port))
    try:
        if parts.scheme.startswith("socks"):
            through_socks(server, host, proxy)
            return server
        if parts.scheme == "https":
            server.settimeout(CONNECT_SECONDS)
            context = ssl.create_default_context()
            server = context.wrap_socket(server, server_hostname=parts.hostname)
        if is_tunnel:
            tunnelled(server, host, proxy)
    except BaseException:
        server.close()
        raise
    server.settimeout(None)
    return server


def connected(host: HostAddress) -> socket.socket:
    """A connection to the first address of a host that accepts it. Raises OSError if none does."""
    addresses = socket.getaddrinfo(host.name, host.port, type=socket.SOCK_STREAM)
    problem: OSError = OSError(f"{host} has no address")
    for number, (family, kind, protocol, _, address) in enumerate(addresses, start=1):
        server = socket.socket(family, kind, protocol)
        # A broken IPv6 connection must not use up all the time, so only the last address gets the
        # full timeout.
        server.settimeout(CONNECT_SECONDS if number == len(addresses) else 1.5)
        try:
            server.connect(address)
        except OSError as failure:
            problem = failure
            server.close()
            continue
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.settimeout(None)
        return server
    raise problem


def tunnelled(server: socket.socket, host: HostAddress, proxy: str) -> None:
    """Ask an HTTP proxy to connect to a host (CONNECT). Raises OSError if it refuses."""
    server.settimeout(CONNECT_SECONDS)
    # A proxy needs the port even if it is the default.
    authority = str(host)
    if host.port == PORTS["https"]:
        authority = f"{host}:{host.port}"
    lines = (f"CONNECT {authority} HTTP/1.1", f"Host: {authority}", *login_header(proxy))
    server.sendall("\r\n".join((*lines, "", "")).encode())
    head, _ = read_head(server)
    _, _, status = head[0].partition(" ")
    if not status.startswith("200"):
        raise OSError(f"the proxy answered {status}")
    server.settimeout(None)


def through_socks(server: socket.socket, host: HostAddress, proxy: str) -> None:
    """Ask a SOCKS 5 proxy to connect to a host (RFC 1928, with login RFC 1929). Raises OSError if
    it refuses."""
    parts = urlsplit(proxy)
    server.settimeout(CONNECT_SECONDS)
    has_login = parts.username is not None
    server.sendall(b"\x05\x01\x02" if has_login else b"\x05\x01\x00")
    method = read_exactly(server, 2)[1]
    if method == 2:
        user = unquote(parts.username or "").encode()
        password = unquote(parts.password or "").encode()
        server.sendall(bytes((1, len(user))) + user + bytes((len(password),)) + password)
        if read_exactly(server, 2)[1] != 0:
            raise OSError("the SOCKS proxy does not accept the login")
    elif method != 0:
        raise OSError("the SOCKS proxy asks for a login")
    name = host.name.encode()
    # The proxy resolves the name, because it may be the only one that knows the names in its
    # network.
    server.sendall(b"\x05\x01\x00\x03" + bytes((len(name),)) + name + host.port.to_bytes(2, "big"))
    answer = read_exactly(server, 4)
    if answer[1] != 0:
        raise OSError(f"the SOCKS proxy cannot reach {host} (code {answer[1]})")
    # The proxy's answer contains its own address, either with a length or as IPv4 or IPv6.
    length = {1: 4, 4: 16}.get(answer[3]) or read_exactly(server, 1)[0]
    read_exactly(server, length + 2)
    server.settimeout(None)


def why_unreached(problem: OSError) -> str:
    """A short reason why a host could not be reached."""
    if isinstance(problem, socket.gaierror):
        return "could not resolve host"
    if isinstance(problem, TimeoutError):
        return f"no answer within {CONNECT_SECONDS:g} s"
    return problem.strerror or str(problem)
