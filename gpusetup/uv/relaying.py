"""Reads and changes HTTP headers, and transfers bytes between uv and a host."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from contextlib import suppress
from urllib.parse import urlsplit

MOST_HEAD_BYTES = 1 << 16
"""The maximum size of a request's header; uv's have about one kilobyte."""
PART_BYTES = 1 << 20
"""How many bytes are transferred at once."""
HOP_BY_HOP = ("connection", "proxy-connection", "proxy-authorization", "keep-alive")
"""Header fields that are meant for a proxy only (RFC 9110, 7.6.1)."""


def read_head(connection: socket.socket) -> tuple[list[str], bytes]:
    """The lines of an HTTP header, and the bytes that were received after it. Raises ValueError if
    the header does not end."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(1 << 14)
        if not part or len(data) > MOST_HEAD_BYTES:
            raise ValueError("no head of HTTP")
        data += part
    head, _, rest = data.partition(b"\r\n\r\n")
    return head.decode("latin-1").split("\r\n"), rest


def read_exactly(connection: socket.socket, count: int) -> bytes:
    """Read exactly this many bytes from a connection. Raises OSError if it ends earlier."""
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise OSError("the connection ended")
        data += part
    return data


def forwarded(head: list[str], login: tuple[str, ...], *, whole_address: bool) -> bytes:
    """A plain HTTP proxy request in the form that the host itself (or another proxy) expects.

    The request asks the host to close the connection after its response, because the next request
    may be for another host and must be checked again. `whole_address` is for another proxy, which
    needs the full URL.
    """
    method, target, version = head[0].split(" ", 2)
    if not whole_address:
        parts = urlsplit(target)
        target = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
    lines = [f"{method} {target} {version}"]
    for line in head[1:]:
        if line.partition(":")[0].lower() not in HOP_BY_HOP:
            lines.append(line)
    lines += ["Connection: close", *login, "", ""]
    return "\r\n".join(lines).encode("latin-1")


def last_answer(server: socket.socket) -> bytes:
    """The first bytes of a response, with `Connection: close` added to the header; unchanged if
    they are not HTTP.

    Without that header, uv would send its next request over the same connection and find it closed.
    """
    data = b""
    while b"\r\n\r\n" not in data and len(data) <= MOST_HEAD_BYTES:
        part = server.recv(1 << 16)
        if not part:
            break
        data += part
    head, end, rest = data.partition(b"\r\n\r\n")
    if not end or not head.startswith(b"HTTP/1."):
        return data
    status, *lines = head.split(b"\r\n")
    kept = [
        line
        for line in lines
        if line.partition(b":")[0].lower().decode("latin-1") not in HOP_BY_HOP
    ]
    return b"\r\n".join((status, *kept, b"Connection: close", b"", rest))


def refuse(client: socket.socket, status: str) -> None:
    """Send a response with this HTTP status and no content."""
    text = f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    client.sendall(text.encode())


def relay(client: socket.socket, server: socket.socket) -> None:
    """Transfer bytes in both directions until both sides have ended."""
    # uv has its own timeouts for a host that sends nothing.
    client.settimeout(None)
    upwards = threading.Thread(target=carry, args=(client, server), daemon=True)
    upwards.start()
    carry(server, client)
    upwards.join()


def carry(source: socket.socket, target: socket.socket) -> None:
    """Transfer bytes in one direction until the source ends, then close the target for writing."""
    try:
        # On Linux, splice moves the bytes inside the kernel. Connections that gpusetup encrypts
        # must go through Python.
        is_plain = not isinstance(source, ssl.SSLSocket) and not isinstance(target, ssl.SSLSocket)
        if hasattr(os, "splice") and is_plain:
            splice_all(source, target)
        else:
            while part := source.recv(PART_BYTES):
                target.sendall(part)
    except OSError:
        # If one connection fails, end both, so that neither side waits for the other.
        for connection in (source, target):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def splice_all(source: socket.socket, target: socket.socket) -> None:
    """Transfer bytes with Linux's splice, so that they do not pass through Python."""
    outlet, inlet = os.pipe()
    try:
        while count := os.splice(source.fileno(), inlet, PART_BYTES):
            while count:
                count -= os.splice(outlet, target.fileno(), count)
    finally:
        os.close(outlet)
        os.close(inlet)
