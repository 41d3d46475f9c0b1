"""What comes, comes from hosts that were shown: no redirect and no link leads anywhere else."""

from __future__ import annotations

import base64
import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import pytest
from index_server import Fault, IndexServer, build_wheel, index_server
from installing import TORCH, WANTED, Install, World, needs_linux, versions_in

from gpusetup import cli
from gpusetup.uv.gateway import gateway
from gpusetup.uv.hosts import AllowedHosts, HostAddress
from gpusetup.uv.upstream import reach

pytestmark = needs_linux


@pytest.fixture
def world(world: World) -> World:
    world.add_torch("cpu")
    return world


@pytest.fixture
def stranger(world: World) -> Iterator[IndexServer]:
    """Another server, with a newer release of a package and another torch."""
    with index_server(world.folder / "strange") as index:
        theirs = world.folder / "theirs"
        files = {"filelock.py": "print('theirs')"}
        index.add("simple", build_wheel(theirs, "filelock", "99.0", files=files))
        for wheel in (world.folder / "wheels").glob("*.whl"):
            index.add("copies", wheel)
        yield index


def redirected(to: str) -> Fault:
    return Fault(status=302, headers={"Location": to})


def page_of_strange_links(index: IndexServer) -> Fault:
    name = "filelock-99.0-py3-none-any.whl"
    link = f'<a href="{index.url}/simple/filelock/{name}">{name}</a>'
    return Fault(body=f"<!DOCTYPE html><html><body>{link}</body></html>".encode())


WAYS = {
    "a page": ("/simple/filelock/", "{strange}/simple/filelock/"),
    "a file": (
        "*/filelock-3.20.0-py3-none-any.whl",
        "{strange}/copies/filelock/filelock-3.20.0-py3-none-any.whl",
    ),
    "torch's page": ("/whl/cpu/torch/", "{strange}/copies/torch/"),
    "torch's file": ("/whl/cpu/torch/*.whl", "{strange}/copies/torch/{torch}"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_redirect_to_a_host_that_was_not_shown_is_not_followed(
    world: World, install: Install, stranger: IndexServer, way: str
) -> None:
    pattern, target = WAYS[way]
    torch = next((world.folder / "wheels").glob("torch-*")).name
    address = target.format(strange=stranger.url, torch=torch)
    world.index.faults[pattern] = redirected(address)
    said = install("--venv", "env", *WANTED)
    assert said.exit == 3, said.err
    assert stranger.asked == []
    assert not Path("env").exists()
    shown = " ".join(said.err.split())
    assert f"An index leads to 127.0.0.1:{stranger.port}" in shown
    assert f"export GPUSETUP_FILE_HOSTS=127.0.0.1:{stranger.port}" in shown


def test_a_link_of_a_page_to_a_host_that_was_not_shown_is_not_followed(
    world: World, install: Install, stranger: IndexServer
) -> None:
    world.index.faults["/simple/filelock/"] = page_of_strange_links(stranger)
    said = install("--venv", "env", *WANTED)
    assert said.exit == 3, said.err
    assert stranger.asked == []
    assert f"127.0.0.1:{stranger.port}, which you have not named" in " ".join(said.err.split())


def test_a_host_that_the_person_names_is_shown_and_asked(
    world: World, install: Install, stranger: IndexServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUSETUP_FILE_HOSTS", f"127.0.0.1:{stranger.port}")
    world.index.faults["/simple/filelock/"] = redirected(f"{stranger.url}/simple/filelock/")
    said = install("--venv", "env", *WANTED)
    assert said.exit == 0, said.err
    assert versions_in(Path("env"))["filelock"] == "99.0"
    shown = " ".join(said.err.split())
    assert f"127.0.0.1:{stranger.port} (GPUSETUP_FILE_HOSTS)" in shown
    receipt = json.loads(Path("env/.gpusetup/receipt.json").read_text())
    assert f"127.0.0.1:{stranger.port}" in receipt["hosts"]


def test_an_answer_that_uv_keeps_counts_only_while_its_host_is_named(
    world: World, install: Install, stranger: IndexServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.index.faults["/simple/filelock/"] = redirected(f"{stranger.url}/simple/filelock/")
    monkeypatch.setenv("GPUSETUP_FILE_HOSTS", f"127.0.0.1:{stranger.port}")
    assert install("--venv", "env", *WANTED, "--dry-run").exit == 0
    monkeypatch.delenv("GPUSETUP_FILE_HOSTS")
    said = install("--venv", "env", *WANTED, "--dry-run")
    assert said.exit == 3, said.err


def test_download_follows_no_redirect_to_another_host(
    world: World, install: Install, stranger: IndexServer
) -> None:
    address = f"{stranger.url}/copies/filelock/filelock-3.20.0-py3-none-any.whl"
    world.index.faults["*/filelock-3.20.0-py3-none-any.whl"] = redirected(address)
    said = install("--download", "wheels", *WANTED)
    assert said.exit == 3, said.err
    assert stranger.asked == []


@pytest.mark.parametrize("path", ["/simple/filelock/", "/whl/cpu/torch/"])
def test_resolve_contacts_no_host_that_it_does_not_name(
    world: World,
    stranger: IndexServer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    path: str,
) -> None:
    shelf = "simple" if "simple" in path else "copies"
    name = path.strip("/").rpartition("/")[2]
    world.index.faults[path] = redirected(f"{stranger.url}/{shelf}/{name}/")
    root = ("--index", world.index.index_root)
    words = ("--torch", TORCH, "--backend", "cpu", "--os", "linux")
    assert cli.main(["resolve", "filelock", *words, *root]) == 3
    assert stranger.asked == []


def test_resolve_refresh_follows_no_redirect_to_another_host(
    world: World, stranger: IndexServer, capsys: pytest.CaptureFixture[str]
) -> None:
    world.index.faults["/whl/cpu/torch/"] = redirected(f"{stranger.url}/copies/torch/")
    words = ("--refresh", "--backend", "cpu", "--index", world.index.index_root)
    assert cli.main(["resolve", *words]) == 3
    assert stranger.asked == []


def test_a_redirect_within_a_host_is_followed(world: World, install: Install) -> None:
    """Many servers add a slash, or name a file by its hash."""
    (world.folder / "index/other").mkdir()
    (world.folder / "index/other/filelock").symlink_to(world.folder / "index/simple/filelock")
    world.index.faults["/simple/filelock/"] = redirected("/other/filelock/")
    said = install("--venv", "env", *WANTED)
    assert said.exit == 0, said.err


# --- the way out of uv ----------------------------------------------------------------------------


class Proxy(socketserver.StreamRequestHandler):
    """A proxy of the person's that wants a login; it keeps what it is asked for."""

    asked: ClassVar[list[str]] = []

    def handle(self) -> None:
        head = []
        while line := self.rfile.readline().strip().decode():
            head.append(line)
        Proxy.asked.append("\n".join(head))
        address = urlsplit(head[0].split()[1])
        with socket.create_connection((address.hostname, address.port or 80)) as server:
            server.sendall("\r\n".join((*head, "", "")).encode())
            while part := server.recv(1 << 16):
                self.wfile.write(part)


@pytest.fixture
def proxy() -> Iterator[str]:
    Proxy.asked.clear()
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Proxy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://ann:geheim@127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_the_persons_own_proxy_comes_after_ours(
    world: World, install: Install, proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    monkeypatch.delenv("NO_PROXY")
    said = install("--venv", "env", *WANTED)
    assert said.exit == 0, said.err
    by_uv = [head for head in Proxy.asked if "user-agent: uv/" in head.lower()]
    assert len(by_uv) >= 3
    login = base64.b64encode(b"ann:geheim").decode()
    assert all(f"proxy-authorization: basic {login.lower()}" in h.lower() for h in by_uv)


def test_the_persons_exceptions_from_the_proxy_hold(
    world: World, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    said = install("--venv", "env", *WANTED)
    assert said.exit == 0, said.err


def test_nobody_but_uv_can_use_the_way_out(world: World) -> None:
    with gateway(AllowedHosts((world.index.simple,)), {}) as way_out:
        address = ("127.0.0.1", way_out.port)
        for login in ("", "Proxy-Authorization: Basic YTpi\r\n"):
            with socket.create_connection(address, timeout=5) as stranger:
                stranger.sendall(f"GET {world.index.simple}/ HTTP/1.1\r\n{login}\r\n".encode())
                assert stranger.recv(1 << 16).startswith(b"HTTP/1.1 407 ")
    assert world.index.asked == []


def test_a_tunnel_leads_to_allowed_hosts_only(world: World) -> None:
    """As https goes through a proxy: by its host's name, which is all that is seen of it."""
    shown = f"127.0.0.1:{world.index.port}"
    with gateway(AllowedHosts((world.index.simple,)), {}) as way_out:
        login = base64.b64encode(f"gpusetup:{way_out.password}".encode()).decode()
        for host, status in ((shown, 200), ("127.0.0.1:9", 403), ("localhost:443", 403)):
            with socket.create_connection(("127.0.0.1", way_out.port), timeout=5) as tunnel:
                words = f"CONNECT {host} HTTP/1.1\r\nProxy-Authorization: Basic {login}\r\n\r\n"
                tunnel.sendall(words.encode())
                assert tunnel.recv(1 << 16).startswith(f"HTTP/1.1 {status} ".encode())
                if status == 200:
                    tunnel.sendall(b"GET /simple/filelock/ HTTP/1.0\r\n\r\n")
                    assert tunnel.recv(1 << 16).startswith(b"HTTP/1.1 200 ")


def test_a_socks_proxy_is_asked_for_the_host_by_its_name(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        heard: list[bytes] = []

        def serve() -> None:
            with server.accept()[0] as client:
                heard.append(client.recv(99))
                client.sendall(b"\x05\x02")
                heard.append(client.recv(99))
                client.sendall(b"\x01\x00")
                heard.append(client.recv(99))
                client.sendall(b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00hello")

        thread = threading.Thread(target=serve)
        thread.start()
        proxy = f"socks5h://ann:geheim@127.0.0.1:{server.getsockname()[1]}"
        with reach(HostAddress("files.example", 443), proxy, is_tunnel=True) as connection:
            assert connection.recv(99) == b"hello"
        thread.join()
    assert heard[1:] == [
        b"\x01\x03ann\x06geheim",
        b"\x05\x01\x00\x03\x0dfiles.example\x01\xbb",
    ]
