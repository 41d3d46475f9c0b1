"""uv's only connection to the network: a local proxy that connects only to allowed hosts.

uv follows redirects and links to any host without asking. So its connections go through this proxy,
which sees each host's name before a connection is made. TLS is still between uv and the host, so uv
checks certificates and hashes as usual. If the user has their own proxy, this one connects through
it.
"""

from __future__ import annotations

import base64
import hmac
import secrets
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from gpusetup.uv.hosts import AllowedHosts, HostAddress, host_named, host_of
from gpusetup.uv.relaying import forwarded, last_answer, read_head, refuse, relay
from gpusetup.uv.upstream import (
    CONNECT_SECONDS,
    is_without_proxy,
    login_header,
    proxies_of,
    reach,
    why_unreached,
)

USER = "gpusetup"


class Gateway:
    """A proxy for one run of uv. It records the hosts to which uv wanted to connect."""

    def __init__(self, allowed: AllowedHosts, proxies: Mapping[str, str]) -> None:
        """Start a proxy that allows these hosts. `proxies` maps each scheme to the user's own
        proxy, and `no` to the hosts that are reached directly."""
        self.allowed = allowed
        self.proxies = proxies
        self.refused: list[HostAddress] = []
        """Hosts that uv tried to reach but that are not allowed."""
        self.failures: dict[HostAddress, str] = {}
        """Maps an allowed host to the reason why it could not be reached."""
        self.contacted: list[HostAddress] = []
        # Any program on this machine can connect to the loopback address, but only uv knows this
        # password.
        self.password = secrets.token_urlsafe(24)
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self.socket.getsockname()[1]
        self.is_closed = False
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        """The URL of this proxy, including its password."""
        return f"http://{USER}:{self.password}@127.0.0.1:{self.port}"

    def close(self) -> None:
        """Stop accepting connections."""
        self.is_closed = True
        # Closing a socket does not wake the thread that waits for connections, but one last
        # connection does.
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), timeout=1.0).close()
        self.socket.close()

    # --- one connection ---------------------------------------------------------------------------

    def _serve(self) -> None:
        while not self.is_closed:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._handle, args=(client,), daemon=True).start()

    def _handle(self, client: socket.socket) -> None:
        """Handle one connection of uv: connect it to the host, or refuse it with an HTTP
        response."""
        # Ignore errors of the connection, because uv reports them itself when its connection is
        # closed.
        with client, suppress(OSError, ValueError):
            client.settimeout(CONNECT_SECONDS)
            head, rest = read_head(client)
            refusal = self._answer(client, head, rest)
            if refusal is not None:
                refuse(client, refusal)

    def _answer(self, client: socket.socket, head: list[str], rest: bytes) -> str | None:
        """Connect uv to the requested host. Returns None or, if the request is refused, an HTTP
        status."""
        if not self._is_uv(head):
            return "407 Proxy Authentication Required"
        method, target, _ = head[0].split(" ", 2)
        is_tunnel = method == "CONNECT"
        host = host_named(target) if is_tunnel else host_of(target)
        if host is None:
            return "400 Bad Request"
        if not self.allowed.allows(host):
            self.refused.append(host)
            return "403 Forbidden"
        proxy = self._proxy_for("https" if is_tunnel else "http", host.name)
        try:
            server = reach(host, proxy, is_tunnel=is_tunnel)
        except OSError as problem:
            self.failures[host] = why_unreached(problem)
            return "502 Bad Gateway"
        self.contacted.append(host)
        with server:
            if is_tunnel:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                through_http_proxy = proxy is not None and proxy.startswith("http")
                login = login_header(proxy) if proxy and through_http_proxy else ()
                server.sendall(forwarded(head, login, whole_address=through_http_proxy))
                client.sendall(last_answer(server))
            if rest:
                server.sendall(rest)
            relay(client, server)
        return None

    def _is_uv(self, head: list[str]) -> bool:
        """Whether a request contains this proxy's password, which shows that it comes from uv."""
        expected = base64.b64encode(f"{USER}:{self.password}".encode()).decode()
        for line in head[1:]:
            name, _, value = line.partition(":")
            if name.lower() == "proxy-authorization":
                _, _, sent = value.strip().partition(" ")
                return hmac.compare_digest(sent.encode(), expected.encode())
        return False

    def _proxy_for(self, scheme: str, name: str) -> str | None:
        """The user's own proxy for a host; None to connect directly."""
        if is_without_proxy(name, self.proxies.get("no", "")):
            return None
        return self.proxies.get(scheme) or self.proxies.get("all") or None


@contextmanager
def gateway(allowed: AllowedHosts, environment: Mapping[str, str]) -> Iterator[Gateway]:
    """Run a proxy that allows these hosts during the block; `environment` contains the user's own
    proxy settings."""
    way_out = Gateway(allowed, proxies_of(environment))
    try:
        yield way_out
    finally:
        way_out.close()
